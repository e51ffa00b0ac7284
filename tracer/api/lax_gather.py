"""``gather`` and ``scatter`` of ``tenferro.lax``: windows at an array of starts, read or written.

In: an operand, an array whose last axis holds a start for each of some operand axes, and dimension numbers that say
which axes of the windows are which of the result (or of the updates). The rules are those of XLA, except that a window
that is not wholly inside raises unless ``mode`` says otherwise.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api import lax_windows
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.lax_common import (
    INT64,
    Shape,
    axes_in_order,
    box,
    fits,
    function,
    integers,
    kept,
    number,
    one_of,
    same_size,
    scalar,
    sizes_of,
    sorted_axes,
    spread,
)
from tenferro.tracer.api.lax_windows import Windows, all_inside, clipped, coded, first_places
from tenferro.tracer.api.promotion import sizes_text
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.dims import Extent, product
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout, library, pointwise as p
from tenferro.tracer.program import Literal, Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import as_traced


class GatherDimensionNumbers(NamedTuple):
    """``offset_dims``: the result's axes that come from the windows. ``collapsed_slice_dims``: the operand's axes whose
    windows have size 1 and that the result has not. ``start_index_map``: the operand's axis that each start is for.
    The batching dims are axes that operand and starts share, one for one."""

    offset_dims: tuple[int, ...]
    collapsed_slice_dims: tuple[int, ...]
    start_index_map: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    start_indices_batching_dims: tuple[int, ...] = ()


class ScatterDimensionNumbers(NamedTuple):
    """``update_window_dims``: the updates' axes that are the windows'. ``inserted_window_dims``: the operand's axes
    whose windows have size 1 and that the updates have not. ``scatter_dims_to_operand_dims``: the operand's axis that
    each start is for."""

    update_window_dims: tuple[int, ...]
    inserted_window_dims: tuple[int, ...]
    scatter_dims_to_operand_dims: tuple[int, ...]
    operand_batching_dims: tuple[int, ...] = ()
    scatter_indices_batching_dims: tuple[int, ...] = ()


class _Numbers(NamedTuple):
    """Either of them, checked. ``windows``: axes of the result or updates; ``dropped``: axes of the operand that these
    have not, ``batching`` among them; ``starts``: the operand's axes that have starts."""

    windows: tuple[int, ...]
    dropped: tuple[int, ...]
    starts: tuple[int, ...]
    batching: tuple[int, ...]
    indices_batching: tuple[int, ...]


def _numbers(name: str, given: Any, fields: Sequence[str], rank: int, batch: int) -> _Numbers:
    missing = [f for f in fields[:3] if not hasattr(given, f)]
    if missing:
        raise DtypeError(
            f"{name}: dimension_numbers of class {type(given).__name__}; one with {', '.join(fields[:3])} is needed"
            f"{at(user_line())}"
        )
    windows, dropped, starts, batching, others = (tuple(getattr(given, f, ())) for f in fields)
    batching = axes_in_order(batching, rank, name, fields[3])
    dropped = sorted_axes(dropped, rank, name, fields[1])
    if set(batching) & set(dropped) or set(batching) & set(starts):
        raise ShapeError(
            f"{name}: {fields[3]} {batching}; axes that {fields[1]} and {fields[2]} do not name are needed"
            f"{at(user_line())}"
        )
    kept_axes = rank - len(dropped) - len(batching)
    if len(windows) != kept_axes:
        raise ShapeError(
            f"{name}: {fields[0]} {tuple(windows)} for an operand of rank {rank} of which {rank - kept_axes} axes are "
            f"left out; {kept_axes} are needed{at(user_line())}"
        )
    return _Numbers(
        sorted_axes(windows, batch + len(windows), name, fields[0]),
        tuple(sorted((*dropped, *batching))),
        axes_in_order(starts, rank, name, fields[2]),
        batching,
        axes_in_order(others, batch, name, fields[4]),
    )


def _starts(trace: Trace, name: str, indices: Operand, shape: Shape, numbers: _Numbers) -> dict[int, Operand]:
    """For each operand axis that has starts an array of the batch's shape; for one that it shares with the starts the
    index along it."""
    batch = indices.type.shape[:-1]
    count = indices.type.shape[-1]
    if not trace.guard("==", count, len(numbers.starts)):
        raise ShapeError(
            f"{name}: indices of shape {sizes_text(trace, indices.type.shape)} for {len(numbers.starts)} axes "
            f"{numbers.starts}; as many along their last axis are needed{at(user_line())}"
        )
    found: dict[int, Operand] = {}
    for k, axis in enumerate(numbers.starts):
        column = box(trace, indices, (*(0,) * len(batch), k), (*batch, 1))
        found[axis] = build.reshape(trace, column, batch)
    if len(numbers.batching) != len(numbers.indices_batching):
        raise ShapeError(
            f"{name}: {len(numbers.batching)} batching axes of the operand, {len(numbers.indices_batching)} of the "
            f"indices; equal numbers are needed{at(user_line())}"
        )
    for axis, other in zip(numbers.batching, numbers.indices_batching, strict=True):
        same_size(trace, name, shape[axis], batch[other], "batching axes")
        found[axis] = trace.emit1(layout.iota, shape=batch, axis=other)
    return found


def _windows(
    trace: Trace, name: str, indices: Operand, shape: Shape, sizes: Shape, numbers: _Numbers
) -> Windows:  # fmt: skip
    for axis, (n, w) in enumerate(zip(shape, sizes, strict=True)):
        if not fits(trace, w, n):
            raise ShapeError(
                f"{name}: windows of size {trace.hint(w)} on axis {axis}, which has {trace.hint(n)} elements; at most "
                f"as many are needed{at(user_line())}"
            )
    starts = _starts(trace, name, indices, shape, numbers)
    batch = indices.type.shape[:-1]
    if not starts:  # every window is at 0
        starts = {0: build.broadcast(trace, Literal(0, INT64), batch)}
    return Windows(name, shape, sizes, starts, starts, batch)


# -- gather ----------------------------------------------------------------------------------------------------------


def gather(
    operand: Any, start_indices: Any, dimension_numbers: Any, slice_sizes: Any, *, mode: str = "raise",
    fill_value: Any = None, indices_are_sorted: bool = False, unique_indices: bool = False,
) -> Any:  # fmt: skip
    """Windows of ``slice_sizes`` at each of the starts. A window that is not wholly inside is an IndexError; ``mode``
    "clip" moves it inside, "fill" fills it with ``fill_value`` (by default NaN, the lowest signed or highest unsigned
    integer, True)."""
    trace = running_trace("gather")
    one_of(mode, ("raise", "clip", "fill"), "gather")
    array = as_traced(trace, operand, "gather")
    indices = _indices(trace, start_indices, "gather", "start_indices")
    batch = indices.type.shape[:-1]
    numbers = _numbers("gather", dimension_numbers, GatherDimensionNumbers._fields, array.ndim, len(batch))
    sizes = sizes_of(trace, slice_sizes, array.ndim, "gather", "slice_sizes")
    for axis in numbers.dropped:
        if sizes[axis] != 1 and not trace.guard("==", sizes[axis], 1):
            raise ShapeError(
                f"gather: windows of size {trace.hint(sizes[axis])} on axis {axis}, which the result has not; size 1 "
                f"is needed{at(user_line())}"
            )
    x, sizes = array.read(), tuple(1 if a in numbers.dropped else n for a, n in enumerate(sizes))
    if not sizes:
        return new(trace, build.copied(trace, build.broadcast(trace, x, batch)))
    windows = _windows(trace, "gather", indices, x.type.shape, sizes, numbers)
    cut = tuple(n if a in windows.starts else w for a, (n, w) in enumerate(zip(x.type.shape, sizes, strict=True)))
    x, windows = box(trace, x, (0,) * len(cut), cut), replace(windows, shape=cut)
    taken = _read(trace, x, windows, mode, fill_value)
    kept_sizes = tuple(n for a, n in enumerate(sizes) if a not in numbers.dropped)
    taken = build.reshape(trace, taken, (*batch, *kept_sizes))
    order = _result_order(numbers.windows, len(batch))
    return new(trace, build.copied(trace, build.transpose(trace, taken, order)))


def _indices(trace: Trace, given: Any, name: str, what: str) -> Operand:
    indices = integers(trace, given, name, what)
    if not indices.type.shape:
        raise ShapeError(f"{name}: {what} of rank 0; rank 1 or more is needed{at(user_line())}")
    return indices


def _read(trace: Trace, x: Operand, windows: Windows, mode: str, fill_value: Any) -> Operand:
    match mode:
        case "clip":
            return lax_windows.read(trace, x, windows, first_places(trace, windows, clipped(trace, windows)))
        case "raise":
            first = first_places(trace, windows, windows.starts)
            return lax_windows.read(trace, x, windows, coded(trace, windows, first))
        case _:
            dtype = x.type.dtype
            fill = _lost(dtype) if fill_value is None else scalar(trace, fill_value, dtype, "gather", "fill_value")
            taken = lax_windows.read(trace, x, windows, first_places(trace, windows, clipped(trace, windows)))
            holds = all_inside(trace, windows)
            return trace.emit1(p.where, spread(trace, holds, range(len(windows.batch)), taken.type.shape), taken, fill)


def _lost(dtype: np.dtype[Any]) -> Literal:
    """What stands for an element that is not there."""
    match dtype.kind:
        case "i":
            return build.literal(int(np.iinfo(dtype).min), dtype)
        case "u":
            return build.literal(int(np.iinfo(dtype).max), dtype)
        case "b":
            return build.literal(True, dtype)
        case _:
            return build.literal(np.nan, dtype)


def _result_order(windows: Sequence[int], batch: int) -> list[int]:
    """The order that moves (batch, windows) to where the windows' axes are ``windows``."""
    places = iter(range(batch))
    inner = {axis: batch + k for k, axis in enumerate(windows)}
    return [inner[a] if a in inner else next(places) for a in range(batch + len(windows))]


# -- scatter ---------------------------------------------------------------------------------------------------------


def _scatter(name: str, combine: str, summary: str) -> TracedFunction:
    def call(
        operand: Any, scatter_indices: Any, updates: Any, dimension_numbers: Any, *, mode: str = "raise",
        indices_are_sorted: bool = False, unique_indices: bool = False,
    ) -> Any:  # fmt: skip
        return _scattered(name, combine, operand, scatter_indices, updates, dimension_numbers, mode)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = (
        f'``operand`` with windows {summary}. A window that is not wholly inside is an IndexError; ``mode`` "drop" '
        f'leaves it out, "clip" moves it inside.'
    )
    return function(name, call, "operand", "scatter_indices", "updates")


def _scattered(
    name: str, combine: str, operand: Any, scatter_indices: Any, updates: Any, dimension_numbers: Any, mode: str
) -> Any:
    trace = running_trace(name)
    one_of(mode, ("raise", "clip", "drop"), name)
    array = as_traced(trace, operand, name)
    indices = _indices(trace, scatter_indices, name, "scatter_indices")
    batch = indices.type.shape[:-1]
    numbers = _numbers(name, dimension_numbers, ScatterDimensionNumbers._fields, array.ndim, len(batch))
    added = kept(trace, updates, array.dtype, name, "updates")
    own = added.type.shape
    if len(own) != len(batch) + len(numbers.windows):
        raise ShapeError(
            f"{name}: updates of rank {len(own)}; {len(batch)} axes of the indices and {len(numbers.windows)} of the "
            f"windows are needed{at(user_line())}"
        )
    outer = [a for a in range(len(own)) if a not in numbers.windows]
    for n, axis in zip(batch, outer, strict=True):
        same_size(trace, name, n, own[axis], "axes of indices and updates")
    x = array.read()
    if not array.ndim:
        x = build.reshape(trace, x, (1,))
    sizes = [own[a] for a in numbers.windows]
    for axis in numbers.dropped:
        sizes.insert(axis, 1)
    sizes = sizes or [1]
    added = build.transpose(trace, added, (*outer, *numbers.windows)) if own else added
    added = build.reshape(trace, added, (*batch, *sizes))
    windows = _windows(trace, name, indices, x.type.shape, tuple(sizes), numbers)
    made = _written(trace, x, added, windows, combine, mode)
    return new(trace, build.reshape(trace, made, array.type.shape))


def _written(trace: Trace, x: Operand, added: Operand, windows: Windows, combine: str, mode: str) -> Operand:
    shape = x.type.shape
    cut = tuple(n if a in windows.starts else w for a, (n, w) in enumerate(zip(shape, windows.sizes, strict=True)))
    zeros, ones = (0,) * len(shape), (1,) * len(shape)
    base, inner = box(trace, x, zeros, cut), replace(windows, shape=cut)
    first = first_places(trace, inner, clipped(trace, inner) if mode == "clip" else inner.starts)
    block = inner.block
    total: Extent = product(cut[a] for a in block)
    target = lax_windows.merged(trace, base, block)
    index = lax_windows.places(trace, inner, coded(trace, inner, first) if mode == "raise" else first)
    if mode == "drop":  # to one place more, which goes again
        target = lax_windows.lengthened(trace, target, block.start)
        holds = spread(trace, all_inside(trace, inner), range(len(inner.batch)), index.type.shape)
        index = trace.emit1(p.where, holds, index, number(total))
    value = lax_windows.as_value(trace, added, inner)
    made: Operand = trace.emit1(
        library.scatter, target, index, value, axis=block.start, mode=combine, windows=inner.params
    )
    if mode == "drop":
        made = lax_windows.shortened(trace, made, block.start)
    made = build.reshape(trace, made, cut)
    return made if cut == shape else build.replace_box(trace, x, made, zeros, ones, cut)


FUNCTIONS: tuple[TracedFunction, ...] = (
    function("gather", gather, "operand", "start_indices", "slice_sizes", "fill_value"),
    _scatter("scatter", "set", "replaced by ``updates``; of several values for an element the last stays"),
    _scatter("scatter_add", "add", "added to by ``updates``; several values for an element are all added"),
    _scatter("scatter_sub", "subtract", "from which ``updates`` are subtracted, all values for an element"),
    _scatter("scatter_mul", "multiply", "multiplied by ``updates``, by all values for an element"),
    _scatter("scatter_min", "minimum", "where the smallest of what is there and ``updates`` stays"),
    _scatter("scatter_max", "maximum", "where the largest of what is there and ``updates`` stays"),
)
