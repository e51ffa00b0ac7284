"""x y + z of NumPy arrays, rounded once: float16, float32 and float64 arrays of one dtype in, an array of it out.

NumPy has no such function. Sums and products are taken apart into numbers and their errors, which are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = Any  # an ndarray, or the NumPy scalar that NumPy makes of rank 0
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)


def fma(x: Array, y: Array, z: Array) -> Array:
    """The product and the sum with one rounding."""
    x, y, z = np.broadcast_arrays(x, y, z)
    with np.errstate(all="ignore"):
        if x.dtype == F16:  # exact in float64, but for what is too small to tell
            return _fma_double(*(v.astype(np.float64) for v in (x, y, z))).astype(F16)
        return _fma_single(x, y, z) if x.dtype == F32 else _fma_double(x, y, z)


def _odd(value: Array, error: Array) -> Array:
    """The value rounded to odd, given its exact error."""
    bits = value.view(np.int64)
    moves = (error != 0) & ((bits & 1) == 0) & np.isfinite(value)
    # One step towards the error's side: away from zero where both signs agree.
    step = np.where((error > 0) == (value > 0), 1, -1)
    return np.where(moves, bits + step, bits).view(np.float64)


def _two_sum(x: Array, y: Array) -> tuple[Array, Array]:
    s = x + y
    part = s - x
    return s, (x - (s - part)) + (y - part)


def _fma_single(x: Array, y: Array, z: Array) -> Array:
    """The product is exact in float64; the sum is rounded to odd there, so that rounding to float32 is the only one."""
    s, error = _two_sum(x.astype(np.float64) * y.astype(np.float64), z.astype(np.float64))
    return _odd(s, np.where(np.isfinite(s), error, 0.0)).astype(np.float32)


def _fma_double(x: Array, y: Array, z: Array) -> Array:
    """Boldo and Melquiond, Emulation of FMA (IEEE Trans. Computers 57, 2008), section 5; far exponents by fractions."""
    # A finite product is finite to fma, even where it overflows as a float64.
    plain = np.where(np.isfinite(x) & np.isfinite(y) & np.isinf(z), z, x * y + z)
    high = x * y
    low = _product_error(x, y, high)
    t, t_error = _two_sum(z, low)
    v, v_error = _two_sum(high, t)
    rest, rest_error = _two_sum(t_error, v_error)
    result = v + _odd(rest, rest_error)
    inside = (np.abs(high) < 2.0**900) & (np.abs(high) > 2.0**-800) & (np.abs(z) < 2.0**900)
    inside &= ((np.abs(z) > 2.0**-800) | (z == 0)) & (np.abs(x) < 2.0**900) & (np.abs(y) < 2.0**900) & (v != 0)
    outside = ~inside & np.isfinite(x) & np.isfinite(y) & np.isfinite(z) & (x != 0) & (y != 0)
    result = np.array(np.where(inside, result, plain))
    for i in zip(*np.nonzero(outside), strict=True) if result.ndim else ([()] if outside else []):
        result[i] = _exact(float(x[i]), float(y[i]), float(z[i]))
    return result


def _product_error(x: Array, y: Array, product: Array) -> Array:
    """x y - product, by Veltkamp's splitting."""
    factor = 2.0**27 + 1.0
    x_high = factor * x - (factor * x - x)
    y_high = factor * y - (factor * y - y)
    x_low, y_low = x - x_high, y - y_high
    return x_low * y_low - (((product - x_high * y_high) - x_low * y_high) - x_high * y_low)


def _exact(x: float, y: float, z: float) -> float:
    from fractions import Fraction

    total = Fraction(x) * Fraction(y) + Fraction(z)
    if total == 0:
        return x * y + z
    try:
        return float(total)
    except OverflowError:
        return np.inf if total > 0 else -np.inf
