"""Arrays put together and taken apart: diagonals, blocks of nested lists, parts along an axis, sliding windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import extents_of
from tenferro.tracer.api.deliver import new_array
from tenferro.tracer.api.joining import concatenate, split
from tenferro.tracer.api.layout import as_tuple, axis_of, ravel
from tenferro.tracer.api.linalg import diagonal
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.cells import Sliding
from tenferro.tracer.dim import integer
from tenferro.tracer.dims import add, sub
from tenferro.tracer.errors import DtypeError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout, pointwise as p
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced

INT64 = np.dtype(np.int64)


# -- diagonals -------------------------------------------------------------------------------------------------------


def diag(v: Any, k: Any = 0) -> Any:
    """Diagonal ``k`` of a matrix; of a vector the square matrix that has it there and zeros elsewhere."""
    trace = running_trace("diag")
    array = as_traced(trace, v, "diag")
    if array.ndim == 2:
        return diagonal(array, k)
    if array.ndim != 1:
        raise ShapeError(f"diag: rank {array.ndim}; rank 1 or 2 is needed{at(user_line())}")
    return _embedded(trace, "diag", array, k)


def diagflat(v: Any, k: Any = 0) -> Any:
    """The square matrix with the flattened elements on diagonal ``k`` and zeros elsewhere."""
    trace = running_trace("diagflat")
    return _embedded(trace, "diagflat", ravel(as_traced(trace, v, "diagflat")), k)


def _embedded(trace: Trace, name: str, vector: TracedArray, k: Any) -> TracedArray:
    """A select on ``column == row + k`` between the vector, moved to the columns that it belongs to, and zero."""
    offset = integer(k, name, "k")
    size = add(vector.type.shape[0], abs(offset))
    zero = build.literal(0, vector.dtype)
    value = vector.read()
    if offset:
        value = trace.emit1(layout.pad, value, zero, low=(max(offset, 0),), high=(max(-offset, 0),))
    value = trace.emit1(layout.broadcast_to, value, shape=(size, size), axes=(1,))
    row, column = (trace.emit1(layout.iota, shape=(size, size), axis=a) for a in (0, 1))
    if offset:
        row = trace.emit1(p.add, row, build.literal(offset, INT64))
    return new_array(trace, trace.emit1(p.where, trace.emit1(p.equal, column, row), value, zero))


# -- parts and blocks ------------------------------------------------------------------------------------------------


def hsplit(ary: Any, indices_or_sections: Any) -> Any:
    """``split`` along axis 1, of a vector along axis 0."""
    array = _of_rank("hsplit", ary, 1)
    return split(array, indices_or_sections, 1 if array.ndim > 1 else 0)


def vsplit(ary: Any, indices_or_sections: Any) -> Any:
    """``split`` along axis 0."""
    return split(_of_rank("vsplit", ary, 2), indices_or_sections, 0)


def dsplit(ary: Any, indices_or_sections: Any) -> Any:
    """``split`` along axis 2."""
    return split(_of_rank("dsplit", ary, 3), indices_or_sections, 2)


def _of_rank(name: str, x: Any, rank: int) -> TracedArray:
    array: TracedArray = as_traced(running_trace(name), x, name)
    if array.ndim < rank:
        raise ShapeError(f"{name}: rank {array.ndim}; rank {rank} or more is needed{at(user_line())}")
    return array


def block(arrays: Any) -> Any:
    """Nested lists of arrays: the innermost are joined along the last axis, those around them along the one before."""
    trace = running_trace("block")
    depth, rank = _depth(trace, arrays)
    found = _joined(trace, arrays, depth, max(depth, rank))
    return found if depth else new_array(trace, build.copied(trace, found.read()))


def _depth(trace: Trace, x: Any) -> tuple[int, int]:
    """(depth of nesting, largest rank of an array); ShapeError where depths differ or a list is empty."""
    if isinstance(x, tuple):
        raise DtypeError(f"block: a tuple of {len(x)}; lists alone arrange blocks{at(user_line())}")
    if not isinstance(x, list):
        return 0, as_traced(trace, x, "block").ndim
    if not x:
        raise ShapeError(f"block: an empty list; one block or more is needed{at(user_line())}")
    found = [_depth(trace, i) for i in x]
    depths = sorted({depth for depth, _ in found})
    if len(depths) > 1:
        raise ShapeError(f"block: lists of depths {depths} side by side; equal depths are needed{at(user_line())}")
    return 1 + depths[0], max(rank for _, rank in found)


def _joined(trace: Trace, x: Any, depth: int, rank: int) -> TracedArray:
    if depth:
        made: TracedArray = concatenate([_joined(trace, i, depth - 1, rank) for i in x], rank - depth)
        return made
    array: TracedArray = as_traced(trace, x, "block")
    return array[(None,) * (rank - array.ndim)] if array.ndim < rank else array


# -- windows ---------------------------------------------------------------------------------------------------------


def sliding_window_view(
    x: Any, window_shape: Any, axis: Any = None, *, subok: bool = False, writeable: bool = False
) -> Any:  # fmt: skip
    """A read-only view of all windows of a shape: their starts stand where the axes stood, their own axes last."""
    name = "sliding_window_view"
    trace = running_trace(name)
    array = as_traced(trace, x, name)
    if writeable:
        raise TraceError(f"{name}: writeable, which windows that overlap are not; write into a copy{at(user_line())}")
    sizes, rank = extents_of(window_shape, name), array.ndim
    axes = tuple(range(rank)) if axis is None else tuple(axis_of(a, rank, name) for a in as_tuple(axis))
    if len(sizes) != len(axes):
        raise ShapeError(f"{name}: {len(sizes)} sizes for {len(axes)} axes; one each is needed{at(user_line())}")
    shape = list(array.type.shape)
    for k, size in zip(axes, sizes, strict=True):
        if not trace.guard("<=", size, shape[k]):
            raise ShapeError(
                f"{name}: a window of {trace.describe(size)} on axis {k} of size {trace.hint(shape[k])}; at most the "
                f"axis's size is needed{at(user_line())}"
            )
        shape[k] = add(sub(shape[k], size), 1)
    return array.stepped(Sliding(axes, sizes), (*shape, *sizes))


def _f(function: Callable[..., Any], arrays: tuple[str, ...], view: bool = False) -> ApiFunction:
    return ApiFunction(function.__name__, function, arrays, view, getattr(np, function.__name__))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f(diag, ("v",), True),
    _f(diagflat, ("v",)),
    _f(hsplit, ("ary",), True),
    _f(vsplit, ("ary",), True),
    _f(dsplit, ("ary",), True),
    _f(block, ("arrays",)),
    ApiFunction("sliding_window_view", sliding_window_view, ("x",), True, np.lib.stride_tricks.sliding_window_view),
)
