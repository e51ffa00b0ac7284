"""Running products along an axis, and linear recurrences h[i] = a[i] · h[i − 1] + b[i] with 0 before the first.

Derivatives of running products are recurrences, and so are derivatives of recurrences. In these, neighbours are
combined pair by pair, so that there are about 2 log₂ n calls of NumPy and not n (Blelloch 1990, "Prefix sums and their
applications"). The order of combination depends on the axis's size alone. A factor of 0 makes 0 of anything, infinities
too: what lies behind it does not count.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.program import ArrayType, Params

Array = np.ndarray[Any, Any]


def infer(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    """Of the row ``recurrence``."""
    a, b = types
    if a.dtype != b.dtype or a.shape != b.shape or a.dtype.kind not in "fc":
        raise DtypeError(f"recurrence: operands {a} and {b}; equal types of floats or complex numbers are needed here")
    if not 0 <= params["axis"] < a.rank:
        raise ShapeError(f"recurrence: axis {params['axis']} for rank {a.rank}; it must be in [0, {a.rank})")
    return (ArrayType(a.dtype, a.shape),)


def reference(a: Any, b: Any, *, axis: int) -> Array:
    """float16 is computed in float32 and rounded once."""
    dtype = np.asarray(a).dtype
    wide = np.dtype(np.float32) if dtype == np.float16 else dtype
    factors, terms = (np.moveaxis(np.asarray(x).astype(wide), axis, 0) for x in (a, b))
    with np.errstate(all="ignore"):
        found = np.moveaxis(_states(factors, terms), 0, axis)
        return np.array(found.astype(dtype), order="C")


def _states(a: Array, b: Array) -> Array:
    n = len(b)
    if n < 2:
        return b
    pairs = n // 2
    first, second = slice(0, 2 * pairs, 2), slice(1, 2 * pairs, 2)
    odd = _states(_times(a[second], a[first]), _times(a[second], b[first]) + b[second])
    found = np.empty_like(b)
    found[0], found[second] = b[0], odd
    found[2::2] = _times(a[2::2], odd[: (n - 1) // 2]) + b[2::2]
    return found


def _times(x: Array, y: Array) -> Array:
    """The product, and 0 where a factor is. Complex products part by part: NumPy's own use fma in some places."""
    if x.dtype.kind != "c":
        return np.where((x == 0) | (y == 0), np.zeros((), x.dtype), x * y)
    found = np.empty(x.shape, x.dtype)
    found.real = x.real * y.real - x.imag * y.imag
    found.imag = x.real * y.imag + x.imag * y.real
    return np.where((x == 0) | (y == 0), np.zeros((), x.dtype), found)


COLUMNS = 256  # from so many on a call of NumPy for each step costs less than a loop of its own for each column


def infer_before(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    """Of the row ``products_before``."""
    (x,) = types
    if x.dtype.kind not in "fc":
        raise DtypeError(f"products_before: dtype {x.dtype.name}; no rule for it")
    if not 0 <= params["axis"] < x.rank:
        raise ShapeError(
            f"products_before: axis {params['axis']} for rank {x.rank}; it must be in [0, {x.rank})"
        )  # fmt: skip
    return (ArrayType(x.dtype, x.shape),)


def before(x: Any, *, axis: int, reverse: bool) -> Array:
    """1, x[0], x[0] · x[1], …, multiplied one by one; with ``reverse`` from the last one on."""
    rows = np.moveaxis(np.asarray(x), axis, 0)
    rows = rows[::-1] if reverse else rows
    found = np.ones(rows.shape, rows.dtype)
    with np.errstate(all="ignore"):
        if found[:1].size >= COLUMNS and rows.dtype.kind == "f":
            for k in range(1, len(rows)):
                np.multiply(found[k - 1], rows[k - 1], out=found[k])
        elif len(rows) > 1:
            np.multiply.accumulate(rows[:-1], axis=0, out=found[1:])
    return np.array(np.moveaxis(found[::-1] if reverse else found, 0, axis), order="C")
