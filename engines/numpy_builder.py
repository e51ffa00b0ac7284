"""Scalar expansions evaluated on NumPy arrays: in go arrays, out come arrays, each native operation by its contract.

It shares no code with the machine-code engines, so that equal bits prove both. Correctness comes before speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tenferro.tracer.scalar.builder import F16, F32, F64, Builder, CallSize, Dtype, Values

Array = Any  # an ndarray, or the NumPy scalar that NumPy makes of rank 0


class NumpyBuilder(Builder):
    """Values are arrays of one shape, or of rank 0."""

    def const(self, value: float, dtype: Dtype) -> Array:
        if dtype.kind in "iu":
            return np.asarray(int(value) % 2 ** (8 * dtype.itemsize), f"u{dtype.itemsize}").view(dtype)
        with np.errstate(over="ignore"):
            return np.asarray(value, dtype)

    def add(self, x: Array, y: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.add(x, y)

    def sub(self, x: Array, y: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.subtract(x, y)

    def mul(self, x: Array, y: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.multiply(x, y)

    def div(self, x: Array, y: Array) -> Array:
        if x.dtype.kind != "f":
            raise TypeError(f"div: dtype {x.dtype}; integers have no native division here")
        with np.errstate(all="ignore"):
            return np.divide(x, y)

    def fma(self, x: Array, y: Array, z: Array) -> Array:
        if x.dtype == F16:
            raise TypeError("fma: dtype float16; widen it first")
        x, y, z = np.broadcast_arrays(x, y, z)
        with np.errstate(all="ignore"):
            return _fma_single(x, y, z) if x.dtype == F32 else _fma_double(x, y, z)

    def neg(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.negative(x)

    def abs(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.absolute(x)

    def sqrt(self, x: Array) -> Array:
        with np.errstate(all="ignore"):
            return np.sqrt(x)

    def floor(self, x: Array) -> Array:
        return np.floor(x)

    def ceil(self, x: Array) -> Array:
        return np.ceil(x)

    def trunc(self, x: Array) -> Array:
        return np.trunc(x)

    def rint(self, x: Array) -> Array:
        return np.rint(x)

    def copysign(self, x: Array, y: Array) -> Array:
        return np.copysign(x, y)

    def lt(self, x: Array, y: Array) -> Array:
        return np.less(x, y)

    def le(self, x: Array, y: Array) -> Array:
        return np.less_equal(x, y)

    def eq(self, x: Array, y: Array) -> Array:
        return np.equal(x, y)

    def ne(self, x: Array, y: Array) -> Array:
        return np.not_equal(x, y)

    def select(self, condition: Array, x: Array, y: Array) -> Array:
        return np.where(condition, x, y)

    def and_(self, x: Array, y: Array) -> Array:
        return np.bitwise_and(x, y)

    def or_(self, x: Array, y: Array) -> Array:
        return np.bitwise_or(x, y)

    def xor(self, x: Array, y: Array) -> Array:
        return np.bitwise_xor(x, y)

    def not_(self, x: Array) -> Array:
        return np.invert(x)

    def shl(self, x: Array, n: Array) -> Array:
        return np.left_shift(x, _in_range(x, n))

    def shr(self, x: Array, n: Array) -> Array:
        return np.right_shift(x, _in_range(x, n))

    def popcount(self, x: Array) -> Array:
        bits = np.asarray(x).view(f"u{x.dtype.itemsize}")
        return np.bitwise_count(bits).astype(x.dtype)

    def clz(self, x: Array) -> Array:
        width = 8 * x.dtype.itemsize
        bits = np.asarray(x).view(f"u{x.dtype.itemsize}").astype(np.uint64)
        used = sum((bits >> np.uint64(i)) > 0 for i in range(width))
        return np.asarray(width - used).astype(x.dtype)

    def convert(self, x: Array, dtype: Dtype) -> Array:
        if {x.dtype, dtype} >= {F16, F64}:
            raise TypeError(f"convert: {x.dtype} to {dtype}; float16 goes by way of float32")
        if x.dtype.kind == "f" and dtype.kind in "iu":
            _check_in_range(np.asarray(x), dtype)
        with np.errstate(over="ignore", invalid="ignore"):
            return x.astype(dtype)

    def bitcast(self, x: Array, dtype: Dtype) -> Array:
        return np.asarray(x).view(dtype)

    def lookup(self, table: tuple[float, ...], dtype: Dtype, index: Array) -> Array:
        if np.any(index < 0):
            raise IndexError("lookup: a negative index; the contract needs one in range")
        return np.asarray(table, dtype)[index]

    def if_any(self, condition: Array, slow: Callable[[], Values], fast: Callable[[], Values]) -> Values:
        return slow() if np.any(condition) else fast()

    def while_any(
        self, condition: Callable[..., Array], body: Callable[..., Sequence[Array]], *values: Array
    ) -> tuple[Array, ...]:
        while np.any(condition(*values)):
            values = tuple(body(*values))
        return values

    def call(self, name: str, function: Callable[..., Values], *args: Array, size: CallSize = "usual") -> Values:
        return function(self, *args)


def _in_range(x: Array, n: Array) -> Array:
    if np.any(np.less(n, 0)) or np.any(n >= 8 * x.dtype.itemsize):
        raise ValueError(f"shift: an amount outside [0, {8 * x.dtype.itemsize}); the contract needs one in range")
    return n


def _check_in_range(x: Array, dtype: Dtype) -> None:
    info = np.iinfo(dtype)
    whole = np.trunc(x)
    if not np.all((whole >= float(info.min)) & (whole < float(int(info.max) + 1))):
        raise ValueError(f"convert: a value that {dtype} cannot hold; the contract needs one in range")


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
    total = Fraction(x) * Fraction(y) + Fraction(z)
    if total == 0:
        return x * y + z
    try:
        return float(total)
    except OverflowError:
        return np.inf if total > 0 else -np.inf
