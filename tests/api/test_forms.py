"""Forms of calls that NumPy takes or refuses: the same result, or an error of the same kind, in every way."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import MemoryLimitError, ShapeError
from tests import oracle
from tests.oracle import agrees, jitted_agrees

X = np.arange(6.0).reshape(2, 3) ** 2


@pytest.fixture(scope="module", autouse=True)
def _engines() -> Iterator[None]:
    with oracle.both_engines():
        yield


DIFFERENCES: list[Callable[[Any], Any]] = [
    lambda x: np.diff(x, prepend=0), lambda x: np.diff(x, append=0.5), lambda x: np.diff(x, prepend=1, append=2.5),
    lambda x: np.diff(x, prepend=x[:, :1]), lambda x: np.diff(x, axis=0, prepend=0, append=9),
    lambda x: np.diff(x, axis=0, prepend=np.zeros((1, 3))), lambda x: np.diff(x, n=2, prepend=0),
    lambda x: np.diff(x, 0, prepend=1), lambda x: np.diff(x, -1), lambda x: np.diff(x, 5),
    lambda x: np.diff(x, prepend=[1.0, 2.0]), lambda x: np.diff(x, prepend=[[1.0], [2.0]]),
    lambda x: np.diff(x, prepend=np.float32(1)), lambda x: np.diff(x, prepend=np.array(1.0)),
    lambda x: np.diff(x, prepend=x[0, 0]), lambda x: np.diff(x, prepend=x.sum()), lambda x: np.diff(x, prepend=1j),
    lambda x: np.diff(x, axis=5, prepend=0), lambda x: np.diff(x[0], prepend=True), lambda x: np.diff(x[0, 0]),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(DIFFERENCES)))
def test_differences_with_ends(number: int) -> None:
    agrees(DIFFERENCES[number], X)


@pytest.mark.parametrize("dtype", ["?", "i1", "u1", "f4", "c8"])
def test_ends_take_part_in_promotion(dtype: str) -> None:
    x = np.array([1, 0, 0, 1, 1]).astype(dtype)
    for end in (False, 0.5, 2**40, [7, 8]):
        agrees(lambda a, end=end: np.diff(a, prepend=end), x)


PRODUCTS: list[Callable[[Any, Any], Any]] = [
    lambda a, b: a @ b, np.dot, np.inner, np.vdot, lambda a, b: np.tensordot(a, b, 1), np.outer,
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["?", "f8"])
@pytest.mark.parametrize(
    "shapes",
    [
        ((3,), (3,)), ((0,), (0,)), ((2, 3), (3,)), ((2, 0), (0, 3)), ((0, 3), (3, 0)), ((0,), (0, 2)), ((2, 0), (0,)),
        ((2, 2, 0), (0, 2)), ((0, 2, 3), (3, 2)), ((1,), (1,)), ((2, 3), (4,)), ((), (3,)),
    ],
)  # fmt: skip
def test_products_of_any_size(shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: str) -> None:
    rng = np.random.default_rng(1)
    a, b = (np.asarray(rng.random(s) > 0.4).astype(dtype) for s in shapes)
    for product in PRODUCTS:
        agrees(product, a, b)


def test_a_size_of_bools_known_at_run_time() -> None:
    agrees(lambda a, m: (a[m] @ a[m], np.dot(a[~m], a[~m])), np.array([True, False, True]), np.array([True] * 3))


PARTS = (0.0, -0.0, 1.0, -2.5, np.nan, np.inf, -np.inf)
COMPLEX = np.array([complex(a, b) for a in PARTS for b in PARTS])
FINITE = COMPLEX[np.isfinite(COMPLEX)]
ORDERED: list[Callable[[Any], Any]] = [
    np.argmax, np.argmin, np.max, np.min, np.sort, lambda z: np.argsort(z, kind="stable"), np.ptp, np.sign,
    np.nan_to_num, lambda z: np.nan_to_num(z, nan=1.5, posinf=2, neginf=-3), lambda z: z.reshape(-1, 1).argmax(0),
    lambda z: np.argmin(z.reshape(1, -1), axis=1, keepdims=True), lambda z: np.argmax(z.reshape(1, 1, -1), axis=-1),
    lambda z: np.argmax(z, keepdims=True), lambda z: np.clip(z, -1, 1 + 1j), np.median,
    lambda z: np.max(z, initial=5), lambda z: np.max(z, initial=-9, where=z.real > 0),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["c8", "c16"])
@pytest.mark.parametrize("number", range(len(ORDERED)))
def test_order_and_direction_of_complex_numbers(number: int, dtype: str) -> None:
    with np.errstate(all="ignore"):
        for values in (FINITE, COMPLEX, FINITE[::-1]):
            agrees(ORDERED[number], values.astype(dtype))


@pytest.mark.parametrize("ufunc", [np.maximum, np.minimum, np.fmax, np.fmin, np.less, np.less_equal, np.greater])
def test_comparisons_of_complex_numbers(ufunc: np.ufunc) -> None:
    pool = COMPLEX[np.signbit(COMPLEX.real) <= (COMPLEX.real != 0)]  # equal zeros of two signs: see the differences
    pool = pool[np.signbit(pool.imag) <= (pool.imag != 0)]
    agrees(ufunc, np.repeat(pool, len(pool)), np.tile(pool, len(pool)))


def test_no_largest_complex_number_of_none() -> None:
    agrees(lambda z: z[:0].argmax(), FINITE)
    agrees(lambda z, m: z[m].argmax(), FINITE[:2], np.array([False, False]))


MASKED: list[Callable[[Any], Any]] = [
    lambda x: np.mean(x, where=x[:, :1] >= 0), lambda x: np.mean(x, 1, where=np.array([True, False, True])),
    lambda x: np.mean(x[0], where=x > 0), lambda x: np.sum(x, where=x[:, 0] > 0), lambda x: np.sum(x[0], where=x > 0),
    lambda x: np.max(x, initial=0, where=x[:, 0] > 0), lambda x: np.max(x, 0, initial=x[0, 0], where=x > 1),
    lambda x: np.max(x, 0, initial=x[0]), lambda x: np.sum(x, 0, initial=x[0, :2]), lambda x: np.max(x, initial=1j),
    lambda x: np.max(x[:0], 0, initial=x[0]), lambda x: np.max(x, where=x > 0), lambda x: np.sum(x[:1], where=x > 0),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(MASKED)))
def test_conditions_and_initial_values_fit_the_array(number: int) -> None:
    agrees(MASKED[number], X)


FILLED: list[Callable[[Any], Any]] = [
    lambda x: np.full((4, 5), x[:, 0]), lambda x: np.full((4, 2), x[:, 0]), lambda x: np.full((4, 5), x[0, :1]),
    lambda x: np.full_like(x, x[:, 0]), lambda x: np.full_like(x[:, :2], x[:, 0]),
    lambda x: np.exp(x, out=np.zeros((2, 3)), where=x[:, 0] > 0), lambda x: np.exp(x[0], out=np.zeros(3), where=x > 0),
    lambda x: np.exp(x, out=np.zeros((2, 3)), where=x[0] > 0), lambda x: np.exp(x[0], out=np.zeros((2, 3))),
    lambda x: np.exp(x, out=np.zeros(3)),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(FILLED)))
def test_what_is_filled_in_fits_the_target(number: int) -> None:
    jitted_agrees(FILLED[number], X)


def test_a_captured_value_that_does_not_fit_is_refused() -> None:
    """Its size is a symbol: reading past its end must be a guard's matter."""
    row = np.arange(2.0)
    for function in (lambda x: np.full((4, 5), row) + x[0, 0], lambda x: np.sum(x, where=row > 0)):
        with pytest.raises(ShapeError, match=r"shapes \(.*\) and \(2,\); they do not broadcast: .*\(at .*test_forms"):
            tn.jit(function)(X)


JOINED: list[Callable[[Any], Any]] = [
    lambda x: np.concatenate([x, 1.0]), lambda x: np.concatenate([x, x[0]]), lambda x: np.concatenate([x[0], x], 1),
    lambda x: np.concatenate([x, x], dtype="f4"), lambda x: np.concatenate([x, x], dtype="i4"),
    lambda x: np.concatenate([x, x], dtype="i4", casting="unsafe"), lambda x: np.concatenate([x, x], dtype="foo"),
    lambda x: np.stack([x, x], dtype="i4"), lambda x: np.vstack([x, x], dtype="i4"),
    lambda x: np.hstack([x], dtype="i4"),
    lambda x: np.stack([x, x[0]]), lambda x: np.stack([x, x], axis=1.5), lambda x: np.stack([x, x], axis=3),
    lambda x: np.split(x, -1), lambda x: np.array_split(x, 0), lambda x: np.split(x, 3),
    lambda x: np.repeat(x, -1), lambda x: np.tile(x, -1),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(JOINED)))
def test_joining_and_splitting(number: int) -> None:
    agrees(JOINED[number], X)


@pytest.mark.parametrize("function", [np.concatenate, np.stack, np.vstack, np.hstack, np.column_stack])
def test_nothing_to_join(function: Callable[[Any], Any]) -> None:
    for of in (function, getattr(tn.numpy, function.__name__)):
        with pytest.raises(ValueError):
            of([])
        with pytest.raises(ValueError):
            tn.jit(lambda x, of=of: of([]))(X)


AXES: list[Any] = [1.5, "a", 10, -10, (0, 0), (0, 5), (1.5,), 1j, np.float64(1), np.array(1), ()]
ALONG: list[Callable[[Any, Any], Any]] = [
    lambda x, k: np.sum(x, axis=k), lambda x, k: x.max(axis=k), lambda x, k: np.var(x, k), lambda x, k: np.any(x, k),
    lambda x, k: np.argmax(x, axis=k), lambda x, k: np.cumsum(x, axis=k), lambda x, k: np.sort(x, axis=k),
    lambda x, k: np.diff(x, axis=k), lambda x, k: np.concatenate([x, x], axis=k), lambda x, k: np.flip(x, k),
    lambda x, k: np.roll(x, 1, axis=k), lambda x, k: np.expand_dims(x, k), lambda x, k: np.swapaxes(x, k, 0),
    lambda x, k: np.moveaxis(x, k, 0), lambda x, k: np.take(x, [0], axis=k), lambda x, k: np.repeat(x, 2, axis=k),
    lambda x, k: np.nansum(x, axis=k), lambda x, k: np.size(x, k), lambda x, k: np.squeeze(x[None], k),
]  # fmt: skip


@pytest.mark.parametrize("axis", AXES, ids=repr)
def test_axes(axis: Any) -> None:
    for function in ALONG:
        agrees(lambda x, function=function: function(x, axis), X)


SIZES: list[Callable[[Any], Any]] = [
    lambda x: np.zeros(-1) + x[0, 0], lambda x: np.ones((2, -1)), lambda x: np.ones(1.5), lambda x: np.zeros("a"),
    lambda x: np.eye(-1), lambda x: np.identity(-2), lambda x: np.arange(-3), lambda x: np.linspace(0, 1, -1),
    lambda x: np.linspace(0, 1, 1.5), lambda x: np.full(-2, x[0, 0]), lambda x: x.reshape(-2, 3),
    lambda x: x.reshape(-1, -2), lambda x: x.reshape(1.5, 4), lambda x: x.reshape("a"), lambda x: x.reshape(4),
    lambda x: np.broadcast_to(x, (-1, 3)), lambda x: np.broadcast_to(x, (1.5, 3)), lambda x: np.pad(x, -1),
    lambda x: np.zeros(10**13) + x[0, 0], lambda x: np.ones((10**7, 10**7)), lambda x: np.eye(10**8),
    lambda x: np.arange(10**13), lambda x: np.zeros((10**10, 10**10)), lambda x: np.zeros(2**63),
    lambda x: np.full((10**13, 2), x[0, 0]), lambda x: np.repeat(x, 10**13), lambda x: np.zeros(x.shape[0] * 2**61),
    lambda x: np.zeros(x.shape[0] * 10**13), lambda x: np.broadcast_to(x, (2**62, 2, 3)) + 1,
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(SIZES)))
def test_sizes_of_any_kind(number: int) -> None:
    jitted_agrees(SIZES[number], X)


@pytest.mark.parametrize("n", [-5, -1, 10**13, 2**62])
def test_sizes_that_are_arguments(n: int) -> None:
    for function in (
        lambda x, n: np.zeros(n), lambda x, n: np.ones(n) + x[0, 0], lambda x, n: np.full((n, 3), x[0]),
        lambda x, n: np.repeat(x[0, 0], n), lambda x, n: x.reshape(n), lambda x, n: np.arange(n) * 1.0,
    ):  # fmt: skip
        jitted_agrees(function, X, n)


def test_the_line_of_a_size_is_told() -> None:
    with pytest.raises(MemoryLimitError, match=r"zeros: Unable to allocate .*\(at .*test_forms\.py:\d+\)$"):
        tn.jit(lambda x: x + np.zeros(10**13)[:3])(X)


SUMS: list[Callable[[Any], Any]] = [
    np.sum, lambda x: x.reshape(1, -1).sum(0), lambda x: x.reshape(1, -1).sum(1), lambda x: x.reshape(-1, 1).sum(0),
    lambda x: x.reshape(-1, 1).sum(1), lambda x: np.sum(x, axis=()), lambda x: x.sum(keepdims=True),
    lambda x: (x * 1).sum(), lambda x: np.dot(x, x), lambda x: np.stack([x] * 3).sum(0),
    lambda x: np.stack([x] * 3).sum(1), lambda x: np.sum(x, where=x == 0), lambda x: np.sum(x, where=x != 0),
    np.count_nonzero, lambda x: np.mean(x) if len(x) else x,
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f2", "f4", "c16"])
@pytest.mark.parametrize("size", [0, 1, 33, 5000])
def test_sums_of_negative_zeros_are_positive(size: int, dtype: str) -> None:
    x = -np.zeros(size, dtype)
    assert np.signbit(x.real).all()
    agrees(lambda x: tuple(total(x) for total in SUMS), x)
