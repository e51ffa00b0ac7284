"""Scalar expansions evaluated on NumPy arrays: in go arrays, out come arrays, each native operation by its contract.

It shares no code with the machine-code engines, so that equal bits prove both. Correctness comes before speed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro.tracer.ops.fma_reference import fma
from tenferro.tracer.scalar.builder import F16, F64, Builder, CallSize, Dtype, Values

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
        return fma(x, y, z)

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
