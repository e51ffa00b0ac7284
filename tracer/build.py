"""Small steps on operands: an operand in, the same elements under another dtype or layout out.

A step that changes nothing records nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.tracer.dims import Extent
from tenferro.tracer.ops import layout, pointwise
from tenferro.tracer.program import DimScalar, Literal, Operand, Value
from tenferro.tracer.trace import Trace

Shape = tuple[Extent, ...]
_INT64 = np.dtype(np.int64)
_PYTHON = {"b": bool, "i": int, "u": int, "f": float, "c": complex}


_LITERALS: dict[tuple[Any, str], Literal] = {}
_LITERALS_KEPT = 4096


def size(extent: Extent) -> Operand:
    """A size as an operand, int64."""
    return Literal(extent, _INT64) if isinstance(extent, int) else DimScalar(extent, _INT64)


def literal(value: Any, dtype: np.dtype[Any]) -> Literal:
    """A constant with the value that the dtype gives it: ``0.1`` in float32 is ``0.10000000149…``."""
    if type(value) is not float or not value or value != value:  # zeros of both signs are one key, and NaN is none
        return _literal(value, dtype)
    known = _LITERALS.get((value, dtype.char))
    if known is None:
        if len(_LITERALS) >= _LITERALS_KEPT:
            _LITERALS.clear()
        known = _LITERALS[value, dtype.char] = _literal(value, dtype)
    return known


def _literal(value: Any, dtype: np.dtype[Any]) -> Literal:
    if type(value) is complex and dtype.kind not in "cb":
        value = value.real
    if dtype.kind in "fc" and dtype.char not in "dD":
        with np.errstate(over="ignore"):
            return Literal(dtype.type(value).item(), dtype)
    return Literal(_PYTHON[dtype.kind](dtype.type(value)), dtype)


def convert(trace: Trace, x: Operand, dtype: np.dtype[Any]) -> Operand:
    """``astype`` where the dtype differs."""
    if x.type.dtype == dtype:
        return x
    if isinstance(x, DimScalar) and dtype.kind in "iufc":
        return DimScalar(x.expr, dtype)
    if isinstance(x, Literal) and not (x.dtype.kind in "fc" and dtype.kind in "iu"):
        return literal(wrapped(int(x.value.real), dtype) if dtype.kind in "iu" else x.value, dtype)
    return trace.emit1(pointwise.astype, x, dtype=dtype)


def wrapped(value: int, dtype: np.dtype[Any]) -> int:
    """The integer that NumPy's ``astype`` gives."""
    info = np.iinfo(dtype)
    return value if info.min <= value <= info.max else (value - int(info.min)) % 2**info.bits + int(info.min)


def reshape(trace: Trace, x: Operand, shape: Shape) -> Operand:
    """The same elements in row-major order; a rank-0 operand that is no Value is broadcast to size 1 instead."""
    if x.type.shape == shape:
        return x
    if not isinstance(x, Value):
        return trace.emit1(layout.broadcast_to, x, shape=shape, axes=())
    return trace.emit1(layout.reshape, x, shape=shape)


def broadcast(trace: Trace, x: Operand, shape: Shape) -> Operand:
    """NumPy's alignment at the last axis; the caller has checked that the sizes fit."""
    if x.type.shape == shape:
        return x
    offset = len(shape) - len(x.type.shape)
    return trace.emit1(layout.broadcast_to, x, shape=shape, axes=tuple(range(offset, len(shape))))


def expand(trace: Trace, x: Operand, axes: Sequence[int], rank: int) -> Operand:
    """Axes of size 1 everywhere but at ``axes``, which are the operand's own."""
    shape: list[Extent] = [1] * rank
    for a, n in zip(axes, x.type.shape, strict=True):
        shape[a] = n
    if tuple(shape) == x.type.shape:
        return x
    return trace.emit1(layout.broadcast_to, x, shape=tuple(shape), axes=tuple(axes))


def transpose(trace: Trace, x: Operand, axes: Sequence[int]) -> Operand:
    """Axis k of the result is axis ``axes[k]`` of the operand."""
    if tuple(axes) == tuple(range(len(axes))):
        return x
    return trace.emit1(layout.transpose, x, axes=tuple(axes))


def cut(trace: Trace, x: Operand, starts: Shape, steps: tuple[int, ...], sizes: Shape) -> Operand:
    """The strided box of the operand."""
    if is_full(x.type.shape, starts, steps, sizes):
        return x
    return trace.emit1(layout.slice_, x, starts=starts, steps=steps, sizes=sizes)


def replace_box(
    trace: Trace, base: Operand, value: Operand, starts: Shape, steps: tuple[int, ...], sizes: Shape
) -> Operand:
    """``base`` with the strided box holding ``value`` (of the box's shape, or rank 0)."""
    if is_full(base.type.shape, starts, steps, sizes):
        return copied(trace, broadcast(trace, value, base.type.shape))
    return trace.emit1(layout.slice_update, base, value, starts=starts, steps=steps, sizes=sizes)


def is_full(shape: Shape, starts: Shape, steps: tuple[int, ...], sizes: Shape) -> bool:
    """Whether the box is the whole array, in order."""
    return sizes == shape and all(s == 1 for s in steps) and all(s == 0 for s in starts)


def copied(trace: Trace, x: Operand) -> Value:
    """A value of its own, so that two variables never share one by accident."""
    return trace.emit1(pointwise.copy, x)


def outside(trace: Trace, value: Operand, axis: int) -> Operand:
    """What stands for a start or an index along an axis that is out of range (``layout.OUTSIDE``)."""
    near = trace.emit1(pointwise.minimum, value, Literal(layout.FARTHEST, _INT64))
    near = trace.emit1(pointwise.maximum, near, Literal(-layout.FARTHEST, _INT64))
    scaled = trace.emit1(pointwise.multiply, near, Literal(layout.AXES, _INT64))
    return trace.emit1(pointwise.add, scaled, Literal(layout.OUTSIDE + axis, _INT64))
