"""NumPy-level functions: what a traced function computes is what NumPy computes, dtype and shape included."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tenferro.tracer.errors import ShapeError
from tests.tracer.tracing import agrees, guards, op_names, traced

DTYPES = ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")


def data(dtype: str, *shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    d = np.dtype(dtype)
    if d.kind == "c":
        return (rng.uniform(-2, 2, shape) + 1j * rng.uniform(-2, 2, shape)).astype(d)
    if d.kind == "f":
        return rng.uniform(-2, 2, shape).astype(d)
    return rng.integers(0 if d.kind in "bu" else -5, 2 if d.kind == "b" else 6, shape).astype(d)


UNARY = [
    np.negative, np.positive, np.absolute, np.exp, np.sin, np.cos, np.tanh, np.square, np.sign, np.conjugate, np.invert,
    np.isnan, np.isfinite, np.isinf, np.logical_not, np.floor, np.ceil, np.rint, np.trunc, np.arctan, np.sinh, np.exp2,
    np.expm1, np.log1p, np.log2, np.log10, np.cbrt, np.cosh, np.tan, np.arcsin, np.arccos, np.arcsinh, np.arccosh,
    np.arctanh, np.signbit, np.deg2rad, np.rad2deg, np.degrees, np.radians, np.fabs,
]  # fmt: skip
BINARY = [
    np.add, np.subtract, np.multiply, np.divide, np.maximum, np.minimum, np.fmax, np.fmin, np.bitwise_and,
    np.bitwise_or,
    np.bitwise_xor, np.logical_and, np.logical_or, np.logical_xor, np.equal, np.not_equal, np.less, np.less_equal,
    np.greater, np.greater_equal, np.hypot, np.arctan2, np.copysign,
    np.fmod, np.float_power, np.logaddexp, np.logaddexp2, np.heaviside, np.nextafter, np.left_shift, np.right_shift,
]  # fmt: skip


def _supported(ufunc: np.ufunc, *args: Any) -> bool:
    try:
        with np.errstate(all="ignore"):
            ufunc(*args)
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("ufunc", UNARY, ids=lambda u: u.__name__)
def test_unary(ufunc: np.ufunc) -> None:
    for dtype in DTYPES:
        x = data(dtype, 3, 4)
        if _supported(ufunc, x) and not (ufunc is np.sign and x.dtype.kind == "c"):
            agrees(lambda a: ufunc(a), x)


@pytest.mark.parametrize("ufunc", BINARY, ids=lambda u: u.__name__)
def test_binary(ufunc: np.ufunc) -> None:
    for left in DTYPES:
        for right in ("?", "i1", "u1", "i8", "u8", "f2", "f4", "f8", "c8"):
            x, y = data(left, 3, 4), data(right, 4, seed=1)
            if not _supported(ufunc, x, y):
                continue
            if ufunc in (
                np.maximum,
                np.minimum,
                np.fmax,
                np.fmin,
                np.less,
                np.less_equal,
                np.greater,
                np.greater_equal,
            ):
                if "c" in (x.dtype.kind, y.dtype.kind):
                    continue
            agrees(lambda a, b: ufunc(a, b), x, y)


@pytest.mark.parametrize("ufunc", [np.log, np.sqrt, np.reciprocal], ids=lambda u: u.__name__)
def test_unary_on_positive(ufunc: np.ufunc) -> None:
    for dtype in DTYPES[1:]:
        agrees(lambda a: ufunc(a), abs(data(dtype, 5)) + np.ones(1, dtype))


@pytest.mark.parametrize("ufunc", [np.floor_divide, np.remainder], ids=lambda u: u.__name__)
def test_division_with_rest(ufunc: np.ufunc) -> None:
    for dtype in DTYPES[1:12]:
        x, y = data(dtype, 40), data(dtype, 40, seed=1)
        y[y == 0] = 3
        agrees(lambda a, b: ufunc(a, b), x, y)


@pytest.mark.parametrize("scalar", [2, 2.5, 1j, True, np.float32(1.5), np.float64(1.5), np.int8(3)], ids=repr)
def test_promotion_with_scalars(scalar: Any) -> None:
    for dtype in DTYPES:
        x = data(dtype, 4)
        for operation in (lambda a: a + scalar, lambda a: scalar * a, lambda a: a / 2 + scalar):
            agrees(operation, x)


def test_weak_arguments() -> None:
    for dtype in ("f2", "f4", "f8", "i4", "c8"):
        agrees(lambda a, s: a * s + s * s, data(dtype, 4), 0.3)
        agrees(lambda a, n: a * n + n, data(dtype, 4), 3)
    agrees(lambda a, s: a * s, data("f4", 3), np.float64(0.3))
    agrees(lambda s, t: s + t, 0.5, 0.25)


ELEMENTWISE: list[Callable[..., Any]] = [
    lambda x: x**2, lambda x: x**3, lambda x: x**0.5 if x.dtype.kind == "f" else x, lambda x: x**1, lambda x: x**0,
    lambda x: np.power(x, 2), lambda x: np.where(x > 0, x, -x), lambda x: np.where(x > 0, 1, 0.5),
    lambda x: np.where(x > 0, np.where(x > 1, 2, x), 0), lambda x: np.clip(x, -1, 1), lambda x: x.clip(0),
    lambda x: x.clip(max=1), lambda x: np.clip(x, None, x + 1), lambda x: x.astype(np.float32),
    lambda x: x.astype("i4"), lambda x: x.astype(bool), lambda x: +x, lambda x: abs(x), lambda x: (x > 0) & (x < 1),
    lambda x: ~(x > 0), lambda x: x.real, lambda x: x.imag, lambda x: x.conj(), lambda x: np.nan_to_num(x / 0),
    lambda x: np.round(x), lambda x: divmod(x, 3), lambda x: 1 - x, lambda x: 2 / (x + 10), lambda x: 7 // (x + 10),
    lambda x: 7 % (x + 10), lambda x: np.isclose(x, x + 1e-12), lambda x: np.array_equal(x, x), lambda x: x.round(),
    lambda x: np.multiply(x, 2, dtype=np.float64),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(ELEMENTWISE)))
@pytest.mark.parametrize("dtype", ["f4", "f8", "i4"])
def test_elementwise(number: int, dtype: str) -> None:
    x = data(dtype, 3, 4)
    if number in (22, 31, 33) and dtype == "i4":
        x = x + np.int32(0)
    agrees(ELEMENTWISE[number], x)


REDUCTIONS: list[Callable[..., Any]] = [
    lambda x: x.sum(), lambda x: x.sum(axis=0), lambda x: x.sum((0, -1)), lambda x: x.sum(1, keepdims=True),
    lambda x: np.sum(x, dtype=np.float64), lambda x: np.sum(x, where=x > 0), lambda x: np.sum(x, initial=3),
    lambda x: x.mean(), lambda x: x.mean(-1, keepdims=True), lambda x: np.mean(x, axis=(0, 2)),
    lambda x: np.mean(x, where=x == x), lambda x: x.var(), lambda x: x.var(-1, keepdims=True), lambda x: x.var(ddof=1),
    lambda x: np.var(x, axis=0, ddof=0.5), lambda x: x.std(axis=1), lambda x: np.count_nonzero(x),
    lambda x: np.count_nonzero(x, axis=1), lambda x: x.any(), lambda x: x.any(axis=1), lambda x: np.all(x, axis=0),
    lambda x: np.all(x, keepdims=True), lambda x: np.cumsum(x), lambda x: x.cumsum(axis=1), lambda x: np.diff(x),
    lambda x: np.diff(x, n=2, axis=0), lambda x: np.add.reduce(x), lambda x: np.add.reduce(x, axis=None),
    lambda x: np.add.accumulate(x), lambda x: np.prod(x, axis=1), lambda x: x.prod(),
    lambda x: np.multiply.reduce(x, axis=2),
]  # fmt: skip
ORDERED: list[Callable[..., Any]] = [
    lambda x: x.max(), lambda x: x.max(axis=-1, keepdims=True), lambda x: np.min(x, axis=(0, 1)), lambda x: np.ptp(x),
    lambda x: x.argmax(), lambda x: x.argmax(axis=1), lambda x: np.argmin(x, axis=0, keepdims=True),
    lambda x: np.amax(x, axis=1), lambda x: np.max(x, initial=1), lambda x: np.maximum.reduce(x, axis=1),
    lambda x: np.median(x, axis=1), lambda x: np.quantile(x, 0.25), lambda x: np.sort(x, axis=0),
    lambda x: np.argsort(x, axis=-1, kind="stable"),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(REDUCTIONS)))
def test_reductions(number: int) -> None:
    for dtype in ("?", "i2", "u4", "f2", "f4", "f8", "c8"):
        if dtype == "c8" and number == 4:  # NumPy discards the imaginary part with a warning; here it is refused
            continue
        agrees(REDUCTIONS[number], data(dtype, 3, 4, 5))


@pytest.mark.parametrize("number", range(len(ORDERED)))
def test_ordered_reductions(number: int) -> None:
    for dtype in ("i2", "u4", "f4", "f8"):
        agrees(ORDERED[number], data(dtype, 3, 4, 5) if dtype != "u4" else data(dtype, 3, 4, 5) + np.uint32(1))


LAYOUT: list[Callable[..., Any]] = [
    lambda x: x.reshape(12, 5), lambda x: x.reshape(-1), lambda x: x.reshape((3, -1)), lambda x: x.T,
    lambda x: x.transpose(1, 2, 0), lambda x: x.transpose((2, 0, 1)), lambda x: x.T.reshape(5, -1), lambda x: x.mT,
    lambda x: x.swapaxes(0, 2), lambda x: np.moveaxis(x, 0, -1), lambda x: np.rollaxis(x, 2),
    lambda x: np.expand_dims(x, (0, 2)), lambda x: x[:, None].squeeze(1), lambda x: np.squeeze(x[:1]),
    lambda x: x.ravel(),
    lambda x: x.T.ravel(), lambda x: x.flatten(), lambda x: np.broadcast_to(x, (2, 3, 4, 5)), lambda x: np.flip(x),
    lambda x: np.flip(x, 1), lambda x: np.flipud(x), lambda x: np.fliplr(x), lambda x: np.rot90(x),
    lambda x: np.rot90(x, 3), lambda x: np.rot90(x, 2), lambda x: np.roll(x, 1), lambda x: np.roll(x, -2, axis=1),
    lambda x: np.roll(x, (1, 2), axis=(0, 2)), lambda x: np.roll(x, 7, axis=0), lambda x: np.roll(x, 0, axis=0),
    lambda x: np.concatenate([x, x * 2], axis=1),
    lambda x: np.concatenate([x, x], axis=None), lambda x: np.stack([x, x + 1]),
    lambda x: np.stack([x, x + 1], axis=-1),
    lambda x: np.vstack([x, x]), lambda x: np.hstack([x, x]), lambda x: np.vstack([x[0, 0], x[0, 1]]),
    lambda x: np.hstack([x[0, 0], x[0, 1]]), lambda x: np.column_stack([x[0, 0], x[0, 1]]),
    lambda x: np.dstack([x[0], x[1]]),
    lambda x: np.split(x, 2, axis=1), lambda x: np.split(x, [1, 3], axis=2), lambda x: np.array_split(x, 2, axis=2),
    lambda x: np.tile(x, 2), lambda x: np.tile(x, (2, 1, 1, 3)), lambda x: np.repeat(x, 2, axis=1),
    lambda x: np.repeat(x, 3),
    lambda x: np.pad(x, 1), lambda x: np.pad(x, ((1, 0), (0, 2), (1, 1)), constant_values=7),
    lambda x: np.pad(x[0], ((1, 2), (3, 4)), constant_values=((1, 2), (3, 4))), lambda x: np.atleast_2d(x[0, 0]),
    lambda x: np.broadcast_arrays(x, x[0])[1], lambda x: np.append(x[0, 0], 5), lambda x: np.tril(x),
    lambda x: np.triu(x, 1),
    lambda x: np.diagonal(x), lambda x: np.trace(x), lambda x: np.diagonal(x, 1, 1, 2),
    lambda x: np.append(x, x, axis=0),
    lambda x: np.meshgrid(x[0, 0], x[0, :, 0]), lambda x: np.meshgrid(x[0, 0], x[0, :, 0], indexing="ij"),
    lambda x: x.reshape(2, 6, 5), lambda x: (x + 1).reshape(4, 15).T.reshape(5, 12), lambda x: x.reshape(3, 20)[:, ::2],
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(LAYOUT)))
def test_layout(number: int) -> None:
    for dtype in ("f4", "i8"):
        agrees(LAYOUT[number], data(dtype, 3, 4, 5))


INDEXING: list[Callable[..., Any]] = [
    lambda x: x[1], lambda x: x[-1], lambda x: x[1, 2], lambda x: x[1, 2, 3], lambda x: x[..., 0], lambda x: x[:, 1:3],
    lambda x: x[1:-1], lambda x: x[:-2], lambda x: x[2:], lambda x: x[::2], lambda x: x[::-1], lambda x: x[:, ::-2],
    lambda x: x[:, 3:0:-1], lambda x: x[:, -2:], lambda x: x[:, :2], lambda x: x[..., -3:-1], lambda x: x[5:],
    lambda x: x[:, 10:], lambda x: x[:, :10], lambda x: x[:, -10:2], lambda x: x[:, 2:1], lambda x: x[1::2, 1::3],
    lambda x: x[None], lambda x: x[:, None, 1], lambda x: x[1, ..., None], lambda x: x[...], lambda x: x[:, -1::-2],
    lambda x: x[[0, 2]], lambda x: x[:, [0, -1, 1]], lambda x: x[[0, 1], [2, 3]], lambda x: x[[[0, 1], [2, 0]]],
    lambda x: x[[0, 1], :, [2, 3]], lambda x: x[:, [0, 1], [2, 3]], lambda x: x[0, :, [1, 2]],
    lambda x: x[:, 0, [1, 2]],
    lambda x: x[[0, 1], None, [2, 3]], lambda x: x[1:, [0, 1]], lambda x: x[..., [0, 1]], lambda x: x[np.array([2, 0])],
    lambda x: x[x > 0], lambda x: x[x[:, :, 0] > 0], lambda x: x[x[:, 0, 0] > 0], lambda x: x[:, x[0, :, 0] > 0],
    lambda x: x[..., x[0, 0] > 0], lambda x: x[x > 0].sum(), lambda x: x[x > 100], lambda x: np.take(x, [0, 2], axis=1),
    lambda x: np.take(x, [0, 59]), lambda x: x.take(1, axis=0), lambda x: np.take(x, [5, -7], axis=1, mode="clip"),
    lambda x: np.take(x, [5, -7], axis=1, mode="wrap"), lambda x: np.take_along_axis(x, x.argmax(1, keepdims=True), 1),
    lambda x: np.nonzero(x > 0), lambda x: np.flatnonzero(x > 0), lambda x: np.compress(x[:, 0, 0] > 0, x, axis=0),
    lambda x: np.extract(x > 0, x), lambda x: np.where(x > 0), lambda x: x[x.argmax() % 3], lambda x: x[1][2][3],
    lambda x: x[x > 0] * 2 + x[x > 0], lambda x: x[np.array([True, False, True])], lambda x: x[[True, False, True]],
    lambda x: x[:, np.newaxis, :, 1:], lambda x: x[()],
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(INDEXING)))
def test_indexing(number: int) -> None:
    agrees(INDEXING[number], data("f8", 3, 4, 5))


PRODUCTS: list[tuple[Callable[..., Any], tuple[int, ...], tuple[int, ...]]] = [
    (lambda a, b: a @ b, (3, 4), (4, 5)),
    (lambda a, b: a @ b, (4,), (4, 5)),
    (lambda a, b: a @ b, (3, 4), (4,)),
    (lambda a, b: a @ b, (4,), (4,)),
    (lambda a, b: a @ b, (2, 3, 4), (4, 5)),
    (lambda a, b: a @ b, (2, 1, 3, 4), (5, 4, 2)),
    (lambda a, b: a @ b, (2, 3, 4), (4,)),
    (lambda a, b: np.dot(a, b), (3, 4), (4, 2)),
    (lambda a, b: a.dot(b), (4,), (4,)),
    (lambda a, b: np.dot(a, b), (3, 4), (2, 4, 5)),
    (lambda a, b: np.inner(a, b), (3, 4), (5, 4)),
    (lambda a, b: np.outer(a, b), (3,), (4,)),
    (lambda a, b: np.vdot(a, b), (3, 2), (3, 2)),
    (lambda a, b: np.tensordot(a, b, 1), (3, 4), (4, 2)),
    (lambda a, b: np.tensordot(a, b, ([0, 1], [1, 0])), (3, 4, 2), (4, 3, 5)),
    (lambda a, b: np.multiply.outer(a, b), (3,), (4, 2)),
]


@pytest.mark.parametrize("number", range(len(PRODUCTS)))
def test_products(number: int) -> None:
    function, left, right = PRODUCTS[number]
    for dtype in ("f4", "f8", "c8", "i4"):
        agrees(function, data(dtype, *left), data(dtype, *right, seed=1))
    agrees(function, data("f4", *left), data("f8", *right, seed=1))


LIBRARY: list[Callable[..., Any]] = [
    lambda x, y: np.interp(x, [-2.0, 0.0, 2.0], [1.0, 5.0, 2.0]),
    lambda x, y: np.searchsorted(np.sort(x), y),
    lambda x, y: np.digitize(x, [-1.0, 0.0, 1.0]),
    lambda x, y: np.convolve(x, y, "same"),
    lambda x, y: np.convolve(x, y),
    lambda x, y: np.cross(x[:3], y[:3]),
    lambda x, y: np.kron(x, y),
    lambda x, y: np.cov(np.stack([x, y[:6]])),
    lambda x, y: np.nansum(np.where(x > 0, x, np.nan)),
    lambda x, y: np.nanmax(x.reshape(2, 3), axis=0),
    lambda x, y: np.unwrap(x * 4),
    lambda x, y: np.sinc(x),
]


@pytest.mark.parametrize("number", range(len(LIBRARY)))
def test_library_calls(number: int) -> None:
    agrees(LIBRARY[number], data("f8", 6), data("f8", 6, seed=1))


def test_library_calls_pin_their_sizes() -> None:
    result = traced(lambda x, y: np.convolve(x, y), np.ones(4), np.ones(2))
    assert op_names(result) == ["numpy_call"]
    assert guards(result) == ["d0_0 == 4", "d1_0 == 2"]
    with pytest.raises(ShapeError, match=r"convolve: .*\(at .*test_functions\.py:\d+\)"):
        traced(lambda x, y: np.convolve(x, y), np.ones(4), np.ones(0))
