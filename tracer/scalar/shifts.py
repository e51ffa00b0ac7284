"""Shifts by any amount: in go two integers of one dtype, out comes NumPy's result."""

from __future__ import annotations

import numpy as np

from tenferro.tracer.scalar.arithmetic import zero
from tenferro.tracer.scalar.builder import Builder, Value


def _amount(b: Builder, x: Value, n: Value) -> tuple[Value, Value]:
    """(whether n lies in [0, bits), n or 0 where it does not)."""
    unsigned = np.dtype(f"u{x.dtype.itemsize}")
    inside = b.lt(b.bitcast(n, unsigned), b.const(8 * x.dtype.itemsize, unsigned))
    return inside, b.select(inside, n, zero(b, n))


def left_shift(b: Builder, x: Value, n: Value) -> Value:
    """x 2**n, wrapped; 0 for amounts that are negative or the width and more."""
    inside, amount = _amount(b, x, n)
    return b.select(inside, b.shl(x, amount), zero(b, x))


def right_shift(b: Builder, x: Value, n: Value) -> Value:
    """x 2**-n rounded down; 0, or -1 of negative numbers, for amounts that are negative or the width and more."""
    inside, amount = _amount(b, x, n)
    if x.dtype.kind == "u":
        return b.select(inside, b.shr(x, amount), zero(b, x))
    last = b.const(8 * x.dtype.itemsize - 1, x.dtype)
    return b.shr(x, b.select(inside, amount, last))
