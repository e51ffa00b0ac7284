"""Indexing: basic keys make views, index arrays gather, masks select.

In: an array and a key. Out: a view, an element as a scalar, or a new array. Writes are in ``writes``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import of_integers
from tenferro.tracer.api.deliver import deliver, new, target_of
from tenferro.tracer.api.layout import axis_of, line_of, ravel
from tenferro.tracer.api.promotion import as_bool, broadcast_operands
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.cells import Place
from tenferro.tracer.dims import Extent, product
from tenferro.tracer.errors import BoundsError, DtypeError, MutationError, ShapeError, TraceError
from tenferro.tracer.keys import Index, parse
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout, library, pointwise as p
from tenferro.tracer.program import Literal, Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced, from_known, operand

INT64 = np.dtype(np.int64)


def getitem(x: Any, key: Any, /) -> Any:
    """``x[key]``: a view for basic keys, an element as a scalar, a new array for index arrays, masks and bools."""
    trace = running_trace("getitem")
    array = as_traced(trace, x, "getitem")
    if type(key) is tuple and not key and not array.type.shape:
        return new(trace, array.read())
    index = parse(trace, array.type, key, "getitem")
    if index.element is not None:
        return _element(trace, array, index)
    base = boxed(array, index)
    if index.flag is not None:
        return _flagged(trace, base, *index.flag, index.together)
    if not index.arrays:
        return base
    return _gather(trace, base, index)


def boxed(array: TracedArray, index: Index) -> TracedArray:
    """The basic part of a key, as a view."""
    for step in index.chosen:
        array = array.stepped(step, (*array.type.shape[: step.axis], 1, *array.type.shape[step.axis + 1 :]))
    return array.stepped(index.box, index.box.shape)


def base_place(array: TracedArray, place: Place) -> Place | None:
    """Where the element lies in the cell, if every view on the way says so."""
    node: TracedArray | None = array
    while node is not None and node._parent is not None:
        assert node._step is not None
        mapped = node._step.place(place)
        if mapped is None:
            return None
        place, node = mapped, node._parent
    return place


def _element(trace: Trace, array: TracedArray, index: Index) -> TracedArray:
    """One element, as the scalar that it is now; writes that wait are answered without an operation."""
    assert index.element is not None
    place = base_place(array, index.element)
    cell = array._cell
    if place is None or cell.known is not None:
        return new(trace, index.box.read(trace, array.read()))
    waiting = cell.element(place)
    if waiting is None:
        stored = cell.stored()
        ones = (1,) * len(place)
        waiting = build.reshape(trace, build.cut(trace, stored, place, ones, ones), ())
    return new(trace, waiting)


def _flagged(trace: Trace, base: TracedArray, axis: int, holds: bool, together: bool) -> TracedArray:
    """``x[True]``, ``x[False]``: a copy with one or no element along the bool's own axis."""
    value = base.read()
    if not holds:
        shape = value.type.shape
        rank = len(shape)
        value = build.cut(trace, value, (0,) * rank, (1,) * rank, (*shape[:axis], 0, *shape[axis + 1 :]))
    order = fronting((axis,), base.ndim)
    return new(trace, build.copied(trace, value if together else build.transpose(trace, value, order)))


# -- index arrays ----------------------------------------------------------------------------------------------------


def single_mask(index: Index) -> TracedArray | None:
    """The mask if the key has exactly one array and it is bool."""
    if len(index.arrays) != 1:
        return None
    array = index.arrays[0][1]
    return array if array.dtype.kind == "b" else None


def index_values(trace: Trace, base: TracedArray, index: Index, name: str) -> tuple[list[int], Operand]:
    """The axes that the arrays index (in key order), and one int64 array of places among their merged elements."""
    axes: list[int] = []
    values: list[Operand] = []
    for axis, array in index.arrays:
        if array.dtype.kind == "b":
            check_mask(trace, base, array, axis, name)
            values += _places_under(trace, array)
            axes += range(axis, axis + array.ndim)
        else:
            values.append(build.convert(trace, array.read(), INT64))
            axes.append(axis)
    if len(values) == 1:
        return axes, values[0]
    try:
        values = broadcast_operands(trace, name, values)
    except ShapeError as error:
        raise BoundsError(str(error)) from None
    return axes, _merged(trace, [base.type.shape[a] for a in axes], values)


def _places_under(trace: Trace, mask: TracedArray) -> list[Operand]:
    """``nonzero(mask)``: at once where the trace has made the mask itself."""
    known = mask.known()
    if known is not None:
        return [from_known(trace, places).read() for places in np.nonzero(known)]
    shape, value = mask.type.shape, mask.read()
    return [mask_select(trace, trace.emit1(layout.iota, shape=shape, axis=k), value) for k in range(len(shape))]


def _merged(trace: Trace, sizes: Sequence[Extent], values: Sequence[Operand]) -> Operand:
    """Row-major places of several indices. One that is out of range makes a place that no array has, which tells the
    check of the take which of them it is (``layout.OUTSIDE``)."""
    zero = Literal(0, INT64)
    place: Operand = zero
    told: list[tuple[Operand, Operand]] = []
    for k, (n, value) in enumerate(zip(sizes, values, strict=True)):
        size = build.size(n)
        wrapped = trace.emit1(p.where, trace.emit1(p.less, value, zero), trace.emit1(p.add, value, size), value)
        fits = trace.emit1(p.bitwise_and, trace.emit1(p.less_equal, zero, wrapped), trace.emit1(p.less, wrapped, size))
        told.append((fits, build.outside(trace, value, k)))
        place = wrapped if not k else trace.emit1(p.add, trace.emit1(p.multiply, place, size), wrapped)
    for inside, code in reversed(told):
        place = trace.emit1(p.where, inside, place, code)
    return place


def index_windows(base: TracedArray, axes: Sequence[int]) -> tuple[Any, ...]:
    """The parameter ``windows`` of what takes places that ``index_values`` has merged."""
    return ("", tuple([base.type.shape[a] for a in axes]), tuple(axes)) if len(axes) > 1 else ()


def fronting(axes: Sequence[int], rank: int) -> list[int]:
    """The order that moves ``axes`` to the front."""
    return [*axes, *(k for k in range(rank) if k not in axes)]


def fronted(trace: Trace, value: Operand, axes: Sequence[int]) -> Operand:
    """``axes`` moved to the front and merged."""
    moved = build.transpose(trace, value, fronting(axes, len(value.type.shape)))
    sizes = moved.type.shape
    return build.reshape(trace, moved, (product(sizes[: len(axes)]), *sizes[len(axes) :]))


def placed(index_rank: int, rank: int, position: int) -> list[int]:
    """The order that moves the first ``index_rank`` axes behind ``position`` of the others."""
    rest = list(range(index_rank, rank))
    return [*rest[:position], *range(index_rank), *rest[position:]]


def _gather(trace: Trace, base: TracedArray, index: Index) -> TracedArray:
    mask = single_mask(index)
    if mask is not None and mask.known() is None:
        return _select(trace, base, mask, index.arrays[0][0], index.together)
    axes, places = index_values(trace, base, index, "getitem")
    if len(axes) == 1 and index.together:
        taken = trace.emit1(layout.take, base.read(), places, axis=axes[0])
        return new(trace, taken, scalar=False if index.has_dots else None)
    whole, windows = fronted(trace, base.read(), axes), index_windows(base, axes)
    taken = trace.emit1(layout.take, whole, places, axis=0, windows=windows)
    if not index.together or not taken.type.shape:
        return new(trace, taken, scalar=False if index.has_dots else None)
    return new(trace, build.transpose(trace, taken, placed(len(places.type.shape), len(taken.type.shape), min(axes))))


# -- masks -----------------------------------------------------------------------------------------------------------


def check_mask(trace: Trace, base: TracedArray, mask: TracedArray, axis: int, name: str) -> None:
    """The mask's sizes are those of the axes that it stands on, from ``axis`` on: guards, or a BoundsError."""
    sizes = mask.type.shape
    for k, (n, m) in enumerate(zip(base.type.shape[axis : axis + len(sizes)], sizes, strict=True)):
        if not trace.guard("==", n, m):
            raise BoundsError(
                f"{name}: mask of size {trace.hint(m)} for axis {axis + k} of size {trace.hint(n)}; they must be "
                f"equal{at(user_line())}"
            )


def _select(trace: Trace, base: TracedArray, mask: TracedArray, axis: int, together: bool) -> TracedArray:
    """The elements under a mask: a size known only at run time, and one for all selections by the same mask."""
    check_mask(trace, base, mask, axis, "getitem")
    value = base.read()
    rank = len(value.type.shape)
    if axis:
        value = build.transpose(trace, value, fronting(range(axis, axis + mask.ndim), rank))
    value = build.reshape(trace, value, value.type.shape) if value.type.shape else value
    selected = mask_select(trace, value, mask.read())
    if axis and together:
        selected = build.transpose(trace, selected, placed(1, rank - mask.ndim + 1, axis))
    return new(trace, selected)


def mask_select(trace: Trace, value: Operand, mask: Operand) -> Operand:
    """The row of that name, with one run-time extent for each mask."""
    return trace.emit1(library.mask_select, value, mask, extent=trace.runtime_extent(mask))


def nonzero(a: Any) -> Any:
    """The indices of elements that are not 0, one array for each axis."""
    trace = running_trace("nonzero")
    array = as_traced(trace, a, "nonzero")
    shape = array.type.shape
    if not shape:
        raise ShapeError(f"nonzero: rank 0; rank 1 or more is needed{at(user_line())}")
    mask = as_bool(trace, array.read())
    return tuple(
        new(trace, mask_select(trace, trace.emit1(layout.iota, shape=shape, axis=k), mask)) for k in range(len(shape))
    )


def flatnonzero(a: Any) -> Any:
    """``nonzero`` of the flattened array."""
    return nonzero(ravel(a))[0]


def argwhere(a: Any) -> Any:
    """The indices of elements that are not 0, a row for each element."""
    from tenferro.tracer.api.joining import stack

    trace = running_trace("argwhere")
    array = as_traced(trace, a, "argwhere")
    if array.ndim:
        return stack(nonzero(array), axis=1)
    return argwhere(ravel(array))[:, :0]  # a scalar has no axis


# -- functions -------------------------------------------------------------------------------------------------------


def _integers(trace: Trace, x: Any, name: str) -> Operand:
    """Indices as an operand of integers or bools; an empty list counts as integers."""
    value = operand(trace, of_integers(trace, x), name)[0]
    if value.type.dtype.kind not in "iub":
        raise DtypeError(f"{name}: indices of dtype {value.type.dtype.name}; integers are needed{at(user_line())}")
    return value


def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    """Elements by index along an axis (None: of the flattened array); an index out of range is a BoundsError when the
    program runs. ``mode`` "clip" and "wrap" bring indices into range instead."""
    trace = running_trace("take")
    array = as_traced(trace, a, "take")
    array, k = line_of(array, axis, "take")
    places = build.convert(trace, _integers(trace, indices, "take"), INT64)
    size = build.size(array.type.shape[k])
    if mode == "clip":
        last = trace.emit1(p.subtract, size, Literal(1, INT64))
        places = trace.emit1(p.minimum, trace.emit1(p.maximum, places, Literal(0, INT64)), last)
    elif mode == "wrap":
        places = trace.emit1(p.remainder, places, size)
    elif mode != "raise":
        raise TraceError(f"take: mode {mode!r}; 'raise', 'clip' or 'wrap' is needed{at(user_line())}")
    return deliver(trace, "take", trace.emit1(layout.take, array.read(), places, axis=k), out)


def take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    """For each place the element that ``indices`` names along the axis."""
    trace = running_trace("take_along_axis")
    array = as_traced(trace, arr, "take_along_axis")
    chosen = as_traced(trace, indices, "take_along_axis")
    if axis is None:
        array, axis = ravel(array), 0
    k = axis_of(axis, array.ndim, "take_along_axis")
    if chosen.ndim != array.ndim:
        raise ShapeError(
            f"take_along_axis: indices of rank {chosen.ndim} for rank {array.ndim}; equal ranks are "
            f"needed{at(user_line())}"
        )
    return getitem(array, _along(trace, array, chosen, k))


def put_along_axis(arr: Any, indices: Any, values: Any, axis: Any, mode: str = "raise") -> None:
    """Write values to the places that ``indices`` names along the axis."""
    trace = running_trace("put_along_axis")
    target = target_of(arr, "put_along_axis")
    chosen = as_traced(trace, indices, "put_along_axis")
    if axis is None:
        if not target._contiguous:
            raise MutationError(
                f"put_along_axis: axis None of a view whose elements do not lie in row-major order, so that flattening "
                f"copies it; an axis is needed{at(user_line())}"
            )
        target, axis = ravel(target), 0
    k = axis_of(axis, target.ndim, "put_along_axis")
    if chosen.ndim != target.ndim:
        raise ShapeError(
            f"put_along_axis: indices of rank {chosen.ndim} for rank {target.ndim}; equal ranks are "
            f"needed{at(user_line())}"
        )
    target[_along(trace, target, chosen, k)] = values


def _along(trace: Trace, array: TracedArray, chosen: TracedArray, axis: int) -> tuple[Any, ...]:
    """The key of ``take_along_axis``: an array of indices along the axis, the places themselves along all others."""
    key: list[Any] = []
    for j in range(array.ndim):
        if j == axis:
            key.append(chosen)
            continue
        shape = tuple(array.type.shape[j] if i == j else 1 for i in range(array.ndim))
        key.append(new(trace, trace.emit1(layout.iota, shape=shape, axis=j)))
    return tuple(key)


def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    """The slices along an axis where the condition holds; what is behind the condition's end counts as False."""
    return _compressed("compress", condition, a, axis, out)


def _compressed(name: str, condition: Any, a: Any, axis: Any, out: Any = None) -> Any:
    trace = running_trace(name)
    array = as_traced(trace, a, name)
    if axis is None:
        array, axis = ravel(array), 0
    k = axis_of(axis, array.ndim, name)
    chosen = as_traced(trace, condition, name)
    if chosen.ndim != 1:
        raise ShapeError(f"{name}: a condition of rank {chosen.ndim}; rank 1 is needed{at(user_line())}")
    known = chosen.known()
    mask = new(trace, as_bool(trace, chosen.read())) if known is None else from_known(trace, known != 0)
    key: tuple[Any, ...] = (slice(None),) * k
    if trace.guard("<", mask.type.shape[0], array.type.shape[k]):
        array = array[(*key, slice(mask.shape[0]))]
    return deliver(trace, name, getitem(array, (*key, mask)).read(), out)


def extract(condition: Any, arr: Any) -> Any:
    """The elements where the condition holds, flattened."""
    return _compressed("extract", ravel(condition), arr, None)


def _take_reference(x: Any, key: Any) -> Any:
    return x[key]


def _f(name: str, function: Any, arrays: tuple[str, ...], view: bool = False) -> ApiFunction:
    return ApiFunction(name, function, arrays, view, getattr(np, name))


FUNCTIONS: tuple[ApiFunction, ...] = (
    ApiFunction("getitem", getitem, ("x", "key"), True, _take_reference),
    _f("take", take, ("a", "indices", "out")),
    _f("take_along_axis", take_along_axis, ("arr", "indices")),
    _f("compress", compress, ("condition", "a", "out")),
    _f("extract", extract, ("condition", "arr")),
    _f("put_along_axis", put_along_axis, ("arr", "indices", "values")),
    _f("nonzero", nonzero, ("a",)),
    _f("argwhere", argwhere, ("a",)),
    _f("flatnonzero", flatnonzero, ("a",)),
)
