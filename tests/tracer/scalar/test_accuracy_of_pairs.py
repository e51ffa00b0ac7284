"""Elementary functions of two operands against mpmath, their special values against NumPy, and constants."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

from tenferro.tracer.scalar import logarithms, powers
from tests.tracer.scalar.inputs import exact, function, ulps
from tests.tracer.scalar.kernels import Array, compiled, evaluated
from tests.tracer.scalar.test_ops import assert_same, samples

BOUND = {"float16": 0.51, "float32": 1.0, "float64": 1.5}
NAMES = ("power", "arctan2", "hypot", "logaddexp", "logaddexp2")
Pair = tuple[Array, Array]


def classes(name: str, dtype: np.dtype[Any], count: int, seed: int = 0) -> dict[str, Pair]:
    """Finite pairs: ordinary numbers; any exponents; where the result comes near overflow, underflow or 1."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    top = np.log(float(info.max))

    def wide(low: float, high: float) -> Array:
        return np.asarray(2.0 ** rng.uniform(low, high, count))

    signs = rng.choice([-1, 1], (2, count))
    anything = info.minexp - info.nmant, info.maxexp - 1
    if name == "power":
        x = wide(-8, 8)
        near = 1 + rng.choice([-1, 1], count) * wide(-info.nmant, -2)
        found = {
            "ordinary": (np.abs(rng.normal(0, 2, count)), rng.normal(0, 3, count)),
            "whole": (rng.normal(0, 3, count), np.rint(rng.normal(0, 6, count))),
            "any exponents": (wide(*anything), rng.normal(0, 1, count)),
            "boundary": (x, signs[0] * rng.uniform(0.98, 1.07, count) * top / np.abs(np.log(x))),
            "near 1": (near, signs[0] * rng.uniform(0, 1, count) * top / np.abs(np.log(near))),
        }
    elif name.startswith("logaddexp"):
        x = signs[0] * wide(-6, 8)
        found = {
            "ordinary": (rng.normal(0, 3, count), rng.normal(0, 3, count)),
            "any exponents": (signs[0] * wide(-12, 9), signs[1] * wide(-12, 9)),
            "boundary": (x, x + rng.normal(0, 1, count)),
        }
    else:
        x = wide(*anything)
        found = {
            "ordinary": (rng.normal(0, 2, count), rng.normal(0, 2, count)),
            "any exponents": (signs[0] * x, signs[1] * wide(*anything)),
            "boundary": (signs[0] * x, signs[1] * x * rng.choice([0.41421356, 1.0, 2.41421356], count)),
        }
    with np.errstate(over="ignore", under="ignore"):
        pairs = {key: (x.astype(dtype), y.astype(dtype)) for key, (x, y) in found.items()}
    return {key: _usable(x, y) for key, (x, y) in pairs.items()}


def _usable(x: Array, y: Array) -> Pair:
    usable = np.isfinite(x) & np.isfinite(y) & (x != 0) & (y != 0)
    return x[usable], y[usable]


def errors_of(name: str, got: Array, pair: Pair) -> Array:
    """In ulp of the true value; for logaddexp in ulp of the larger of it and the operands, which may cancel."""
    high, low = exact(name, *pair)
    if not name.startswith("logaddexp"):
        return ulps(got, high, low)
    larger = np.maximum(np.abs(high), np.maximum(*(np.abs(v.astype(np.float64)) for v in pair)))
    info = np.finfo(got.dtype)
    unit = np.ldexp(1.0, np.frexp(larger)[1] - 1 - info.nmant)
    return np.asarray(np.abs((got.astype(np.float64) - high) - low) / unit)


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("name", NAMES)
def test_against_mpmath(name: str, dtype: str) -> None:
    kind = np.dtype(dtype)
    kernel = compiled(function(name), [kind, kind])
    for case, (x, y) in classes(name, kind, 500).items():
        errors = errors_of(name, kernel(x, y), (x, y))
        worst = int(np.argmax(errors))
        bound = 3.0 if dtype == "float64" and name.startswith("logaddexp") else BOUND[dtype]
        assert errors[worst] <= bound, f"{case}: {name}({x[worst]!r}, {y[worst]!r}) is off by {errors[worst]} ulp"


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="longdouble is no wider than float64 here")
@pytest.mark.parametrize("spread", [0.01, 1.0, 20.0])
def test_powers_densely(spread: float) -> None:
    """Two hundred thousand float64 powers of all sizes of y log(x) against NumPy's in longdouble."""
    rng = np.random.default_rng(0)
    x = np.exp(rng.normal(0, spread, 200_000))
    y = rng.uniform(-708, 708, len(x)) / np.log(x)
    with np.errstate(all="ignore"):
        true = np.power(x.astype(np.longdouble), y.astype(np.longdouble))
        high = true.astype(np.float64)
    low = np.where(np.isfinite(high), (true - high).astype(np.float64), 0.0)
    assert ulps(compiled(function("power"), [x.dtype, x.dtype])(x, y), high, low).max() <= 1.01


def test_whole_powers_that_fit_are_exact() -> None:
    x, n = (v.ravel() for v in np.meshgrid(np.arange(-40.0, 41.0), np.arange(0.0, 12.0)))
    true = np.array([int(a) ** int(k) for a, k in zip(x, n, strict=True)], object)
    fits = np.array([abs(v) < 2**53 for v in true])
    got = compiled(function("power"), [x.dtype, x.dtype])(x, n)
    np.testing.assert_array_equal(got[fits], true[fits].astype(np.float64))


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("name", NAMES)
def test_special_values(name: str, dtype: str) -> None:
    """Every pair of zeros, ones, halves, infinities, NaN, subnormal and largest numbers, as NumPy and C99 have them."""
    info = np.finfo(dtype)
    parts = [0.0, 0.5, 1.0, 2.0, 3.0, 2.5, np.inf, float(info.max), float(info.smallest_subnormal)]
    values = np.array([s * v for v in parts for s in (1, -1)] + [np.nan], dtype)
    x, y = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(values, values))
    got = compiled(function(name), [x.dtype, x.dtype])(x, y)
    with np.errstate(all="ignore"):
        expected = getattr(np, name)(x, y)
    close = np.isclose(got, expected, rtol=4 * float(info.eps), atol=0) & (np.signbit(got) == np.signbit(expected))
    assert_same(got, expected, (x, y), close | (np.isnan(got) & np.isnan(expected)))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "int32", "uint32", "int64", "uint64"])
def test_integer_powers_wrap(dtype: str) -> None:
    kind = np.dtype(dtype)
    x, n = (np.ascontiguousarray(v.ravel()) for v in np.meshgrid(samples(kind), samples(kind)))
    n = n & np.iinfo(kind).max
    bits = 8 * kind.itemsize
    true = [pow(int(a), int(k), 2**bits) for a, k in zip(x, n, strict=True)]
    expected = np.array(true, f"u{kind.itemsize}").view(kind)
    assert_same(compiled(function("power"), [kind, kind], level=0)(x, n), expected, (x, n))
    assert_same(evaluated(function("power"), x, n), expected, (x, n))


def test_constants() -> None:
    with mpmath.workprec(300):
        ln2 = mpmath.log(2)
        sums = {powers.LN2_SPLIT: ln2, powers.TWO_THIRDS: mpmath.mpf(2) / 3}
        for base, constants in logarithms.BASES.items():
            sums[constants.inverse], sums[constants.of_two] = 1 / mpmath.log(base), ln2 / mpmath.log(base)
        for (high, low), true in sums.items():
            assert low == float(true - mpmath.mpf(high))
        for step, value in enumerate(powers.CBRT_STEPS):
            assert value == float(mpmath.mpf(2) ** (mpmath.mpf(-step) / 3))
    # The product with an exponent of eleven bits is exact.
    for high in (powers.LN2_SPLIT[0], *(c.of_two[0] for c in logarithms.BASES.values())):
        assert float(high * 2.0**42).is_integer() or float(high * 2.0**44).is_integer()
    assert all((n * 21846) >> 16 == n // 3 for n in range(2047))
