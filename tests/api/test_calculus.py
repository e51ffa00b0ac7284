"""Averages, slopes, integrals, running sums, polynomials and choices: NumPy's values and errors, jitted and eager on
both engines; few kernels, and one program for any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.oracle import agrees, both_engines, jitted_agrees

Function = Callable[..., Any]
RNG = np.random.default_rng(3)
X = np.round(RNG.normal(size=(5, 6)) * 8) / 4
W, ROW, COLUMN = RNG.random((5, 6)) + 0.1, RNG.random(6) + 0.1, RNG.random(5) + 0.1
T, S = np.cumsum(COLUMN) * 4, np.cumsum(ROW) * 4


@pytest.fixture(autouse=True, scope="module")
def _engines() -> Iterator[None]:
    with both_engines():
        yield


AVERAGES: dict[str, Function] = {
    "plain": lambda a, w, r, c: np.average(a),
    "kept, returned": lambda a, w, r, c: np.average(a, axis=(1, 0), returned=True, keepdims=True),
    "of an axis, returned": lambda a, w, r, c: np.average(a, axis=0, returned=True),
    "weights": lambda a, w, r, c: np.average(a, weights=w),
    "weights of an axis": lambda a, w, r, c: np.average(a, axis=1, weights=w, keepdims=True),
    "weights of a row": lambda a, w, r, c: np.average(a, axis=1, weights=r, returned=True),
    "weights in a list": lambda a, w, r, c: np.average(a, axis=0, weights=[1, 2, 3, 4, 5]),
    "weights of axes in order": lambda a, w, r, c: np.average(a, axis=(1, 0), weights=w.T, returned=True),
    "weights without an axis": lambda a, w, r, c: np.average(a, weights=r),
    "weights of another size": lambda a, w, r, c: np.average(a, axis=1, weights=c),
    "weights of 0": lambda a, w, r, c: np.average(a, axis=1, weights=w * 0),
    "one weight of 0": lambda a, w, r, c: np.average(a, axis=0, weights=np.where(r == r[2], 0.0, w)),
    "a wrong axis": lambda a, w, r, c: np.average(a, axis=2, weights=w),
}
SLOPES: dict[str, Function] = {
    **{f"plain, {k}": lambda a, t, s, k=k: np.gradient(a, edge_order=k) for k in (1, 2)},
    **{f"a distance, {k}": lambda a, t, s, k=k: np.gradient(a, 2, edge_order=k) for k in (1, 2)},
    **{f"distances, {k}": lambda a, t, s, k=k: np.gradient(a, 0.5, 3, edge_order=k) for k in (1, 2)},
    **{f"coordinates, {k}": lambda a, t, s, k=k: np.gradient(a, t, s, edge_order=k) for k in (1, 2)},
    **{f"both, {k}": lambda a, t, s, k=k: np.gradient(a, t, 2, edge_order=k) for k in (1, 2)},
    **{f"an axis, {k}": lambda a, t, s, k=k: np.gradient(a, s, axis=-1, edge_order=k) for k in (1, 2)},
    **{f"just enough, {k}": lambda a, t, s, k=k: np.gradient(a[: k + 1], axis=0, edge_order=k) for k in (1, 2)},
    **{f"too few, {k}": lambda a, t, s, k=k: np.gradient(a[:k], axis=0, edge_order=k) for k in (1, 2)},
    "axes in order": lambda a, t, s: np.gradient(a, 2.0, 3.0, axis=(1, 0)),
    "an axis twice": lambda a, t, s: np.gradient(a, axis=(1, 1)),
    "a vector": lambda a, t, s: np.gradient(a[0], [1, 2, 4, 5, 7, 11]),
    "order 3": lambda a, t, s: np.gradient(a, edge_order=3),
    "too many distances": lambda a, t, s: np.gradient(a, 1, 2, 3),
    "distances of rank 2": lambda a, t, s: np.gradient(a, a, 1),
    "coordinates of another size": lambda a, t, s: np.gradient(a, s, 1),
    "trapezoid": lambda a, t, s: np.trapezoid(a),
    "trapezoid, dx": lambda a, t, s: np.trapezoid(a, dx=0.5, axis=0),
    "trapezoid, x": lambda a, t, s: np.trapezoid(a, t, axis=0),
    "trapezoid, x of all": lambda a, t, s: np.trapezoid(a, a * 2 + 1),
    "trapezoid, x in a list": lambda a, t, s: np.trapezoid(a, [1, 2, 4, 5, 6, 7]),
    "trapezoid, x of another size": lambda a, t, s: np.trapezoid(a, t),
    "trapezoid of a number": lambda a, t, s: np.trapezoid(a[0, 0]),
}  # fmt: skip
OTHERS: dict[str, Function] = {
    **{
        f"{name}, {what}": lambda a, name=name, options=options: getattr(np, name)(a, **options)
        for name in ("cumulative_sum", "cumulative_prod")
        for what, options in {
            "axis": {"axis": 1}, "initial": {"axis": 0, "include_initial": True}, "no axis": {},
            "dtype": {"axis": 1, "dtype": np.complex128, "include_initial": True},
        }.items()
    },
    "cumulative_sum of a vector": lambda a: np.cumulative_sum(a[0]),
    "cumulative_sum of a number": lambda a: np.cumulative_sum(a[0, 0], include_initial=True),
    "cumulative_sum, out": lambda a: np.cumulative_sum(a, axis=0, out=np.zeros((5, 6), np.complex128)),
    "polyval": lambda a: np.polyval([1, 2, 3], a),
    "polyval, floats": lambda a: np.polyval([1.5, -2.0], a),
    "polyval of arrays": lambda a: np.polyval(a[0, :3], a[1]),
    "polyval of none": lambda a: np.polyval(a[0, :0], a[1]),
    "polyval of a number": lambda a: np.polyval(3.0, a),
    "select": lambda a: np.select([np.real(a) > 2, np.real(a) < -2], [a, -a]),
    "select, numbers": lambda a: np.select([np.real(a) > 2, np.real(a) < -2], [1, a[0]], 5),
    "select, broadcast": lambda a: np.select([np.real(a[0]) > 2, np.real(a[:, :1]) < -2], [1, 2.5]),
    "select, default": lambda a: np.select([np.real(a) > 0], [a], default=a[0]),
    "select of numbers": lambda a: np.select([np.real(a[0, 0]) > 0], [3]),
    "select of too few": lambda a: np.select([np.real(a) > 0], [1, 2.5]),
    "select, no bools": lambda a: np.select([a], [a]),
    "piecewise": lambda a: np.piecewise(a, [np.real(a) < 0, np.real(a) > 1], [1, 2]),
    "piecewise, rest": lambda a: np.piecewise(a, [np.real(a) < 0, np.real(a) > 1], [1, 2, 7]),
    "piecewise, overlapping": lambda a: np.piecewise(a, [np.real(a) < 2, np.real(a) < 1], [1, 2, 7]),
    "piecewise of too many": lambda a: np.piecewise(a, [np.real(a) < 0], [1, 2, 3]),
    "piecewise of a number": lambda a: np.piecewise(a[0, 0], np.real(a[0, 0]) < 0, [1, 2]),
    "piecewise of another size": lambda a: np.piecewise(a, [np.real(a[0]) < 0], [1]),
    "ptp": lambda a: np.ptp(np.real(a), axis=0, keepdims=True),
    "ptp of all": lambda a: np.ptp(np.real(a)),
    "ptp of none": lambda a: np.ptp(np.real(a[:, :0]), axis=1),
    "count_nonzero": lambda a: np.count_nonzero(a),
    "count_nonzero, kept": lambda a: np.count_nonzero(a, axis=(0, 1), keepdims=True),
    "nancumsum": lambda a: np.nancumsum(np.where(np.real(a) > 1, np.nan, a), axis=1),
    "nancumprod": lambda a: np.nancumprod(np.where(np.real(a) > 1, np.nan, a), axis=0),
    "nancumsum of all": lambda a: np.nancumsum(a, dtype=np.complex128),
}  # fmt: skip


@pytest.mark.parametrize("name", AVERAGES)
def test_averages(name: str) -> None:
    for dtype in ("float64", "int16", "complex64", "float32"):
        agrees(AVERAGES[name], X.astype(dtype), W, ROW, COLUMN)


@pytest.mark.parametrize("name", SLOPES)
def test_slopes(name: str) -> None:
    for dtype in ("float64", "int16", "complex128"):
        agrees(SLOPES[name], X.astype(dtype), T, S)


@pytest.mark.parametrize("name", OTHERS)
def test_others(name: str) -> None:
    for dtype in ("float64", "int16", "complex64"):
        agrees(OTHERS[name], X.astype(dtype))


def test_slopes_keep_float32() -> None:
    agrees(lambda a: np.gradient(a, 0.5, edge_order=2), X.astype(np.float32))
    agrees(lambda a: np.gradient(a, np.float64(0.5)), X.astype(np.float32))
    agrees(lambda a: np.gradient(a), X.astype(np.float16))


def test_pieces_of_functions() -> None:
    """A function sees the elements under its condition, and no others."""
    jitted_agrees(lambda a: np.piecewise(a, [a < 0, a >= 0], [lambda t: t * 2, lambda t: t + t.sum()]), X)
    jitted_agrees(lambda a: np.piecewise(a[0], a[0] < 0, [lambda t, s: t * s, 3], 2), X)


def test_a_sum_of_weights_that_is_0_is_found_when_the_program_runs() -> None:
    jitted = tn.jit(lambda a, w: np.average(a, axis=1, weights=w))
    np.testing.assert_allclose(jitted(X, W), np.average(X, axis=1, weights=W))
    zero = W.copy()
    zero[3] = 0
    with pytest.raises(ZeroDivisionError, match=r"^average: weights sum to zero, .*test_calculus\.py:\d+\)$"):
        jitted(X, zero)
    assert jitted.cache_info().compiles == 1


@pytest.mark.parametrize(
    ("function", "most"),
    [
        (lambda a: np.average(a, axis=1, weights=a + 9), 1),
        (lambda a: np.gradient(a), 2),
        (lambda a: np.gradient(a, axis=1), 1),
        (lambda a: np.trapezoid(a), 1),
        (lambda a: np.select([a > 1, a < -1], [a, -a]), 1),
        (lambda a: np.polyval([1.0, 2.0, 3.0], a), 1),
        (lambda a: np.ptp(a, axis=0), 1),
    ],
)
def test_few_kernels_for_any_size(function: Function, most: int) -> None:
    jitted = tn.jit(function)
    for n in (3, 5, 40):
        x = RNG.normal(size=(n, n + 1))
        found, wanted = jitted(x), function(x)
        for a, b in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else ((found, wanted),):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    assert jitted.cache_info().compiles == 1
    assert len(jitted.lower(np.ones((3, 4))).regions) <= most


COUNTS: dict[str, Function] = {
    "plain": lambda i, w: np.bincount(i),
    "weights": lambda i, w: np.bincount(i, weights=w),
    "minlength": lambda i, w: np.bincount(i, minlength=20),
    "used": lambda i, w: np.bincount(i, w) / np.bincount(i).clip(1),
    "of none": lambda i, w: np.bincount(i[:0]),
    "of none, weights": lambda i, w: np.bincount(i[:0], w[:0], 3),
    "of a list": lambda i, w: np.bincount([1, 2, 2], w[:3]),
    "below 0": lambda i, w: np.bincount(i - 1),
    "of floats": lambda i, w: np.bincount(w),
    "of a matrix": lambda i, w: np.bincount(i[None]),
    "complex weights": lambda i, w: np.bincount(i, w * 1j),
    "too few weights": lambda i, w: np.bincount(i, w[1:]),
    "a negative minlength": lambda i, w: np.bincount(i, minlength=-1),
    "largest": lambda i, w: np.bincount(i).argmax(),
}


@pytest.mark.parametrize("name", COUNTS)
def test_counts(name: str) -> None:
    for dtype in ("int64", "uint8", "int16"):
        agrees(COUNTS[name], np.array([3, 0, 7, 3, 3, 1], dtype), ROW)


def test_counts_of_any_number() -> None:
    """One program, however many numbers there are; two counts of one array have one size."""
    jitted = tn.jit(lambda i, w: (np.bincount(i, w) * np.bincount(i)).sum())
    for n in (1, 5, 300):
        i, w = RNG.integers(0, n, n), RNG.random(n)
        np.testing.assert_allclose(jitted(i, w), (np.bincount(i, w) * np.bincount(i)).sum())
    assert jitted.cache_info().compiles == 1
    lowered = tn.jit(lambda i: np.bincount(i, minlength=100) * 2).lower(i)
    assert "bincount" in lowered.as_text("program")
    assert lowered.memory().bytes == 800  # at least: the largest number is not known before
    assert lowered.memory().unbounded


def test_as_many_counts_as_were_asked_for() -> None:
    """``minlength`` is a size that the counts have at least: a slice up to it has just this size."""
    jitted = tn.jit(lambda i: np.bincount(i, minlength=4)[:4] * np.arange(4))
    for n in (2, 4, 9):
        i = np.arange(n)
        np.testing.assert_array_equal(jitted(i), np.bincount(i, minlength=4)[:4] * np.arange(4))
    sized = tn.jit(lambda i, w: np.bincount(i, minlength=w.shape[0])[: w.shape[0]] * w)
    for n in (2, 5):
        np.testing.assert_array_equal(sized(np.arange(3), np.ones(n)), np.bincount(np.arange(3), minlength=n)[:n])
    with pytest.raises(tn.TraceError, match=r"^comparison 4 <= \(number of counts\): a size known only"):
        tn.jit(lambda i: i if 4 <= np.bincount(i).shape[0] else -i)(np.arange(3))
    for n in (2, 4, 9):
        np.testing.assert_array_equal(tn.jit(lambda i: np.bincount(i)[:4])(np.arange(n)), np.ones(min(n, 4)))
