"""Slices of ``tenferro.lax``: an array, starts and sizes in, the part of it, or the array with the part replaced, out.

Starts that are ints or sizes give boxes, as NumPy's slices do. Starts that are known when the program runs give index
arrays, or a choice between old and new for each element.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api import lax_windows
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.lax_common import (
    Shape,
    as_items,
    box,
    element,
    fits,
    function,
    integers,
    is_known,
    kept,
    number,
    one_of,
    sizes_of,
)
from tenferro.tracer.api.lax_windows import ZERO, Windows, clipped, coded, first_places
from tenferro.tracer.api.layout import axis_of
from tenferro.tracer.api.promotion import sizes_text
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.dim import as_extent, integer
from tenferro.tracer.dims import DimExpr, Extent, add, floordiv, maximum, minimum, sub
from tenferro.tracer.errors import BoundsError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import pointwise as p
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, is_tenferro_array, running_trace
from tenferro.tracer.traced import TracedArray, as_traced

Start = Extent | Operand
_MODES = ("raise", "clip")


# -- slices at fixed places ------------------------------------------------------------------------------------------


def slice_(operand: Any, start_indices: Any, limit_indices: Any, strides: Any = None) -> Any:
    """Elements from ``start_indices`` on, below ``limit_indices``, each so many apart; nothing is clamped."""
    trace = running_trace("slice")
    array = as_traced(trace, operand, "slice")
    rank = array.ndim
    starts = _bounds(trace, start_indices, rank, "start_indices")
    limits = _bounds(trace, limit_indices, rank, "limit_indices")
    steps = [1] * rank if strides is None else [integer(s, "slice", "stride") for s in as_items(strides)]
    if len(steps) != rank or any(s < 1 for s in steps):
        raise ShapeError(
            f"slice: strides {tuple(steps)} for rank {rank}; one for each axis, 1 or more, is needed{at(user_line())}"
        )
    sizes = []
    for axis, (n, start, limit, step) in enumerate(zip(array.type.shape, starts, limits, steps, strict=True)):
        if not (trace.guard("<=", 0, start) and trace.guard("<=", start, limit) and trace.guard("<=", limit, n)):
            raise BoundsError(
                f"slice: from {trace.hint(start)} to {trace.hint(limit)} on axis {axis}, which has {trace.hint(n)} "
                f"elements; 0 <= start <= limit <= {trace.hint(n)} is needed{at(user_line())}"
            )
        length = sub(limit, start)
        sizes.append(length if step == 1 else floordiv(add(length, step - 1), step))
    cut = build.cut(trace, array.read(), tuple(starts), tuple(steps), tuple(sizes))
    return new(trace, build.copied(trace, cut))


def _bounds(trace: Trace, x: Any, rank: int, what: str) -> list[Extent]:
    found = []
    for item in as_items(x):
        extent = as_extent(item)
        if extent is None:
            raise TraceError(
                f"slice: {what} {item!r}; ints or sizes are needed, dynamic_slice takes traced starts{at(user_line())}"
            )
        found.append(extent)
    if len(found) != rank:
        raise ShapeError(
            f"slice: {what} of length {len(found)} for rank {rank}; one for each axis is needed{at(user_line())}"
        )
    return found


def slice_in_dim(operand: Any, start_index: Any, limit_index: Any, stride: int = 1, axis: int = 0) -> Any:
    """``slice`` along one axis; None is the axis's end, a negative bound counts from there."""
    trace = running_trace("slice_in_dim")
    array = as_traced(trace, operand, "slice_in_dim")
    k = axis_of(axis, array.ndim, "slice_in_dim")
    n = array.shape[k]
    start = 0 if start_index is None else start_index
    limit = n if limit_index is None else limit_index
    for what, bound in (("start_index", start), ("limit_index", limit)):
        if as_extent(bound) is None:
            raise TraceError(
                f"slice_in_dim: {what} {bound!r}; an int or size is needed, dynamic_slice_in_dim takes a traced "
                f"start{at(user_line())}"
            )
    start, limit = (n + b if b < 0 else b for b in (start, limit))
    starts, limits, strides = [0] * array.ndim, list(array.shape), [1] * array.ndim
    starts[k], limits[k], strides[k] = start, limit, stride
    return slice_(array, starts, limits, strides)


def index_in_dim(operand: Any, index: Any, axis: int = 0, keepdims: bool = True) -> Any:
    """The slice of size 1 at a fixed index; without ``keepdims`` its axis goes."""
    if as_extent(index) is None:
        raise TraceError(
            f"index_in_dim: index {index!r}; an int or size is needed, dynamic_index_in_dim takes a traced "
            f"one{at(user_line())}"
        )
    return _at_index("index_in_dim", operand, index, axis, keepdims, "raise")


# -- slices at traced places -----------------------------------------------------------------------------------------


def dynamic_slice(operand: Any, start_indices: Any, slice_sizes: Any, mode: str = "raise") -> Any:
    """The window of ``slice_sizes`` that starts at ``start_indices``, ints or traced integers; a negative start counts
    from the end. A window that is not wholly inside is an IndexError; ``mode="clip"`` moves it inside instead."""
    name = "dynamic_slice"
    trace = running_trace(name)
    array = as_traced(trace, operand, name)
    sizes = sizes_of(trace, slice_sizes, array.ndim, name, "slice_sizes")
    starts = _starts(trace, start_indices, array.ndim, name)
    return new(trace, build.copied(trace, _window(trace, name, array.read(), starts, sizes, mode)))


def dynamic_slice_in_dim(
    operand: Any, start_index: Any, slice_size: Any, axis: int = 0, mode: str = "raise"
) -> Any:  # fmt: skip
    """``dynamic_slice`` along one axis."""
    name = "dynamic_slice_in_dim"
    trace = running_trace(name)
    array = as_traced(trace, operand, name)
    k = axis_of(axis, array.ndim, name)
    sizes = [*array.shape[:k], slice_size, *array.shape[k + 1 :]]
    value = _window(
        trace, name, array.read(), _start_along(trace, start_index, k, array.ndim, name),
        sizes_of(trace, sizes, array.ndim, name, "slice_size"), mode,
    )  # fmt: skip
    return new(trace, build.copied(trace, value))


def dynamic_index_in_dim(
    operand: Any, index: Any, axis: int = 0, keepdims: bool = True, mode: str = "raise"
) -> Any:  # fmt: skip
    """The slice of size 1 at an index; without ``keepdims`` its axis goes."""
    return _at_index("dynamic_index_in_dim", operand, index, axis, keepdims, mode)


def _at_index(name: str, operand: Any, index: Any, axis: int, keepdims: bool, mode: str) -> Any:
    trace = running_trace(name)
    array = as_traced(trace, operand, name)
    k = axis_of(axis, array.ndim, name)
    shape = array.type.shape
    starts = _start_along(trace, index, k, array.ndim, name)
    value = _window(trace, name, array.read(), starts, (*shape[:k], 1, *shape[k + 1 :]), mode)
    if not keepdims:
        value = build.reshape(trace, value, (*shape[:k], *shape[k + 1 :]))
    return new(trace, build.copied(trace, value))


def _starts(trace: Trace, given: Any, rank: int, name: str) -> list[Start]:
    """The starts from a sequence, or from an array of rank 1."""
    if isinstance(given, np.ndarray) or type(given) is TracedArray or is_tenferro_array(given):
        array = integers(trace, given, name, "start_indices")
        if len(array.type.shape) != 1 or not trace.guard("==", array.type.shape[0], rank):
            raise ShapeError(
                f"{name}: start_indices of shape {sizes_text(trace, array.type.shape)} for rank {rank}; one start for "
                f"each axis is needed{at(user_line())}"
            )
        return [element(trace, array, (k,)) for k in range(rank)]
    items = as_items(given)
    if len(items) != rank:
        raise ShapeError(
            f"{name}: start_indices of length {len(items)} for rank {rank}; one start for each axis is "
            f"needed{at(user_line())}"
        )
    return [_start(trace, i, name) for i in items]


def _start_along(trace: Trace, given: Any, axis: int, rank: int, name: str) -> list[Start]:
    starts: list[Start] = [0] * rank
    starts[axis] = _start(trace, given, name)
    return starts


def _start(trace: Trace, item: Any, name: str) -> Start:
    """A start as a size where it can be compared, else as an operand of rank 0."""
    extent = None if isinstance(item, bool) else as_extent(item)
    if extent is None and type(item) is TracedArray and not item.ndim and item.dtype.kind in "iu":
        known = item.known()
        extent = None if known is None else int(known)
    if extent is not None and is_known(trace, extent):
        return extent
    value = integers(trace, item, name, "a start") if extent is None else number(extent)
    if value.type.shape:
        raise ShapeError(f"{name}: a start of rank {len(value.type.shape)}; a number is needed{at(user_line())}")
    return value


def _window(trace: Trace, name: str, x: Operand, starts: list[Start], sizes: Shape, mode: str) -> Operand:
    one_of(mode, _MODES, name)
    fixed = [_fixed_start(trace, name, *place, mode) for place in _places(trace, name, x.type.shape, starts, sizes)]
    known = [0 if s is None else s for s in fixed]
    lengths = tuple(n if s is None else w for n, s, w in zip(x.type.shape, fixed, sizes, strict=True))
    x = box(trace, x, known, lengths)
    windows = _windows(trace, name, x, starts, fixed, sizes)
    if not windows.starts:
        return x
    if mode == "clip":
        first = first_places(trace, windows, clipped(trace, windows))
    else:
        first = coded(trace, windows, first_places(trace, windows, windows.starts))
    return lax_windows.read(trace, x, windows, first)


def _places(
    trace: Trace, name: str, shape: Shape, starts: list[Start], sizes: Shape
) -> list[tuple[int, Extent, Start, Extent]]:  # fmt: skip
    """(axis, size, start, size of the window); a ShapeError for a window that is longer than the axis."""
    for axis, (n, w) in enumerate(zip(shape, sizes, strict=True)):
        if not fits(trace, w, n):
            raise ShapeError(
                f"{name}: a window of size {trace.hint(w)} on axis {axis}, which has {trace.hint(n)} elements; at most "
                f"as many are needed{at(user_line())}"
            )
    return [(axis, shape[axis], starts[axis], sizes[axis]) for axis in range(len(shape))]


def _fixed_start(
    trace: Trace, name: str, axis: int, n: Extent, start: Start, size: Extent, mode: str
) -> Extent | None:  # fmt: skip
    """The start, counted from the front, where it is known before the program runs."""
    if not isinstance(start, int | DimExpr) or not is_known(trace, n, size):
        return 0 if isinstance(start, int) and start == 0 and size == n else None
    room = sub(n, size)
    front = start if trace.guard("<=", 0, start) else add(n, start)
    if mode == "clip":
        front = front if trace.proves("<=", front, room) else minimum(front, room)
        return front if trace.proves("<=", 0, front) else maximum(front, 0)
    if not (trace.guard("<=", 0, front) and trace.guard("<=", front, room)):
        raise BoundsError(
            f"{name}: a window of size {trace.hint(size)} starts at {trace.hint(start)} on axis {axis}, which has "
            f"{trace.hint(n)} elements; a start in [0, {trace.hint(room)}] is needed{at(user_line())}"
        )
    return front


def _windows(
    trace: Trace, name: str, x: Operand, starts: list[Start], fixed: list[Extent | None], sizes: Shape
) -> Windows:
    """The window along the axes whose start is not fixed."""
    told = {a: _as_operand(s) for a, s in enumerate(starts) if fixed[a] is None}
    front = {a: _from_front(trace, s, x.type.shape[a]) for a, s in told.items()}
    return Windows(name, x.type.shape, sizes, front, told, ())


def _as_operand(start: Start) -> Operand:
    return number(start) if isinstance(start, int | DimExpr) else start


def _from_front(trace: Trace, start: Operand, n: Extent) -> Operand:
    """A negative start counts from the end."""
    wrapped = trace.emit1(p.add, start, number(n))
    return trace.emit1(p.where, trace.emit1(p.less, start, ZERO), wrapped, start)


# -- slices replaced -------------------------------------------------------------------------------------------------


def dynamic_update_slice(operand: Any, update: Any, start_indices: Any, mode: str = "raise") -> Any:
    """``operand`` with the window at ``start_indices`` replaced by ``update``, which has its rank; starts and ``mode``
    as in ``dynamic_slice``."""
    name = "dynamic_update_slice"
    trace = running_trace(name)
    array = as_traced(trace, operand, name)
    new_value = kept(trace, update, array.dtype, name, "an update")
    if len(new_value.type.shape) != array.ndim:
        raise ShapeError(
            f"{name}: an update of rank {len(new_value.type.shape)} for rank {array.ndim}; equal ranks are "
            f"needed{at(user_line())}"
        )
    starts = _starts(trace, start_indices, array.ndim, name)
    return new(trace, _replaced(trace, name, array.read(), new_value, starts, mode))


def dynamic_update_slice_in_dim(
    operand: Any, update: Any, start_index: Any, axis: int, mode: str = "raise"
) -> Any:  # fmt: skip
    """``dynamic_update_slice`` that starts at 0 along all axes but one."""
    name = "dynamic_update_slice_in_dim"
    trace = running_trace(name)
    array = as_traced(trace, operand, name)
    k = axis_of(axis, array.ndim, name)
    new_value = kept(trace, update, array.dtype, name, "an update")
    return new(trace, _replaced_along(trace, name, array, new_value, start_index, k, mode))


def dynamic_update_index_in_dim(operand: Any, update: Any, index: Any, axis: int, mode: str = "raise") -> Any:
    """``operand`` with the slice of size 1 at an index replaced; ``update`` may come without that axis, or be a
    number."""
    name = "dynamic_update_index_in_dim"
    trace = running_trace(name)
    array = as_traced(trace, operand, name)
    k = axis_of(axis, array.ndim, name)
    new_value = kept(trace, update, array.dtype, name, "an update")
    shape = array.type.shape
    if not new_value.type.shape:
        new_value = build.broadcast(trace, new_value, (*shape[:k], 1, *shape[k + 1 :]))
    elif len(new_value.type.shape) == array.ndim - 1:
        own = new_value.type.shape
        new_value = build.reshape(trace, new_value, (*own[:k], 1, *own[k:]))
    return new(trace, _replaced_along(trace, name, array, new_value, index, k, mode))


def _replaced_along(
    trace: Trace, name: str, array: TracedArray, update: Operand, start: Any, axis: int, mode: str
) -> Operand:  # fmt: skip
    if len(update.type.shape) != array.ndim:
        raise ShapeError(
            f"{name}: an update of rank {len(update.type.shape)} for rank {array.ndim}; equal ranks are "
            f"needed{at(user_line())}"
        )
    starts = _start_along(trace, start, axis, array.ndim, name)
    return _replaced(trace, name, array.read(), update, starts, mode)


def _replaced(trace: Trace, name: str, x: Operand, update: Operand, starts: list[Start], mode: str) -> Operand:
    one_of(mode, _MODES, name)
    sizes = update.type.shape
    fixed = [_fixed_start(trace, name, *place, mode) for place in _places(trace, name, x.type.shape, starts, sizes)]
    known = tuple(s for s in fixed if s is not None)
    if len(known) == len(fixed):
        return build.replace_box(trace, x, update, known, (1,) * len(known), sizes)
    if is_known(trace, *sizes) and not all(trace.guard("<", 0, w) for w in sizes):
        return build.copied(trace, x)
    # Axes that the window fills are loops of their own; the others share one index.
    moving: list[Extent | None] = [
        0 if s is not None and is_known(trace, n, w) and trace.guard("==", n, w) else None
        for s, n, w in zip(fixed, x.type.shape, sizes, strict=True)
    ]
    placed = [s if f is None else f for s, f in zip(starts, fixed, strict=True)]
    windows = _windows(trace, name, x, placed, moving, sizes)
    code = None
    if mode == "clip":
        windows = Windows(name, windows.shape, sizes, clipped(trace, windows), windows.told, ())
    else:
        code = coded(trace, windows, ZERO)
    return lax_windows.replaced(trace, x, update, windows, code)


FUNCTIONS: tuple[TracedFunction, ...] = (
    function("slice", slice_, "operand", "start_indices", "limit_indices"),
    function("slice_in_dim", slice_in_dim, "operand", "start_index", "limit_index"),
    function("index_in_dim", index_in_dim, "operand", "index"),
    function("dynamic_slice", dynamic_slice, "operand", "start_indices", "slice_sizes"),
    function("dynamic_slice_in_dim", dynamic_slice_in_dim, "operand", "start_index", "slice_size"),
    function("dynamic_index_in_dim", dynamic_index_in_dim, "operand", "index"),
    function("dynamic_update_slice", dynamic_update_slice, "operand", "update", "start_indices"),
    function("dynamic_update_slice_in_dim", dynamic_update_slice_in_dim, "operand", "update", "start_index"),
    function("dynamic_update_index_in_dim", dynamic_update_index_in_dim, "operand", "update", "index"),
)
