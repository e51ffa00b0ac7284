"""Indexing: basic keys make views, index arrays gather and scatter, masks select and replace.

In: an array and a key. Out: a view, a new array, or a write into the array.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.deliver import deliver, new
from tenferro.tracer.api.layout import axis_of, ravel
from tenferro.tracer.api.promotion import (
    aligned,
    as_bool,
    broadcast_operands,
    broadcast_shapes,
    converted,
    is_result_of,
    is_weak,
    shape_mismatch,
)
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.cells import Box, Place
from tenferro.tracer.dims import Extent, product
from tenferro.tracer.errors import BoundsError, DtypeError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout, library, pointwise as p
from tenferro.tracer.program import DimScalar, Literal, Operand
from tenferro.tracer.slicing import Index, parse
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced, operand

INT64 = np.dtype(np.int64)


def getitem(x: Any, key: Any, /) -> Any:
    """``x[key]``: a view for basic keys, an element as a scalar, a new array for index arrays and masks."""
    trace = running_trace("getitem")
    array = as_traced(trace, x, "getitem")
    index = parse(trace, array.type, key, "getitem")
    if index.element is not None:
        return _element(trace, array, index)
    base = _boxed(array, index.box)
    if not index.arrays:
        return base
    return _gather(trace, base, index)


def _boxed(array: TracedArray, box: Box) -> TracedArray:
    return array.view(box, box.shape)


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


# -- index arrays ----------------------------------------------------------------------------------------------------


def _index_operand(trace: Trace, item: Any, name: str) -> Operand:
    """An integer index array as int64; an empty list counts as one."""
    if isinstance(item, list | tuple) and len(item) == 0:
        item = np.zeros(0, np.int64)
    value, _ = operand(trace, item, name)
    kind = value.type.dtype.kind
    if kind not in "iub":
        raise BoundsError(
            f"{name}: index of dtype {value.type.dtype.name}; integers or bools are needed{at(user_line())}"
        )
    return value


def _single_mask(trace: Trace, index: Index, name: str) -> Operand | None:
    """The mask if the key has exactly one array and it is bool."""
    if len(index.arrays) != 1:
        return None
    value = _index_operand(trace, index.arrays[0][1], name)
    return value if value.type.dtype.kind == "b" else None


def _index_values(trace: Trace, base: TracedArray, index: Index, name: str) -> tuple[list[int], Operand]:
    """The axes that the arrays index (in key order), and one int64 array of places among their merged elements."""
    axes = [axis for axis, _ in index.arrays]
    values = [_index_operand(trace, item, name) for _, item in index.arrays]
    if any(v.type.dtype.kind == "b" for v in values):
        raise TraceError(
            f"{name}: a mask beside other index arrays; numpy.nonzero(mask) gives index arrays{at(user_line())}"
        )
    values = [build.convert(trace, v, INT64) for v in values]
    if len(values) == 1:
        return axes, values[0]
    values = broadcast_operands(trace, name, values)
    return axes, _merged(trace, [base.type.shape[a] for a in axes], values)


def _number(extent: Extent) -> Operand:
    return Literal(extent, INT64) if isinstance(extent, int) else DimScalar(extent, INT64)


def _merged(trace: Trace, sizes: Sequence[Extent], values: Sequence[Operand]) -> Operand:
    """Row-major places of several indices; one that is out of range makes the place so too, for the take's check."""
    zero = Literal(0, INT64)
    place: Operand | None = None
    inside: Operand | None = None
    for n, value in zip(sizes, values, strict=True):
        size = _number(n)
        wrapped = trace.emit1(p.where, trace.emit1(p.less, value, zero), trace.emit1(p.add, value, size), value)
        fits = trace.emit1(p.bitwise_and, trace.emit1(p.less_equal, zero, wrapped), trace.emit1(p.less, wrapped, size))
        inside = fits if inside is None else trace.emit1(p.bitwise_and, inside, fits)
        place = wrapped if place is None else trace.emit1(p.add, trace.emit1(p.multiply, place, size), wrapped)
    assert place is not None and inside is not None
    return trace.emit1(p.where, inside, place, _number(product(sizes)))


def _fronted(trace: Trace, value: Operand, axes: Sequence[int]) -> tuple[Operand, list[int]]:
    """``axes`` moved to the front and merged; and the order of axes used."""
    rank = len(value.type.shape)
    order = [*axes, *(k for k in range(rank) if k not in axes)]
    moved = build.transpose(trace, value, order)
    sizes = moved.type.shape
    return build.reshape(trace, moved, (product(sizes[: len(axes)]), *sizes[len(axes) :])), order


def _gather(trace: Trace, base: TracedArray, index: Index) -> TracedArray:
    mask = _single_mask(trace, index, "getitem")
    if mask is not None:
        return _select(trace, base, mask, index.arrays[0][0])
    axes, places = _index_values(trace, base, index, "getitem")
    if len(axes) == 1 and index.together:
        return new(trace, trace.emit1(layout.take, base.read(), places, axis=axes[0]))
    merged, _ = _fronted(trace, base.read(), axes)
    taken = trace.emit1(layout.take, merged, places, axis=0)
    if not index.together:
        return new(trace, taken)
    return new(trace, build.transpose(trace, taken, _placed(len(places.type.shape), len(taken.type.shape), min(axes))))


def _placed(index_rank: int, rank: int, position: int) -> list[int]:
    """The order that moves the first ``index_rank`` axes behind ``position`` of the others."""
    rest = list(range(index_rank, rank))
    return [*rest[:position], *range(index_rank), *rest[position:]]


# -- masks -----------------------------------------------------------------------------------------------------------


def _check_mask(trace: Trace, base: TracedArray, mask: Operand, axis: int, name: str) -> None:
    own = base.type.shape[axis : axis + len(mask.type.shape)]
    for k, (n, m) in enumerate(zip(own, mask.type.shape, strict=True)):
        if not trace.guard("==", n, m):
            raise BoundsError(
                f"{name}: mask of size {trace.hint(m)} for axis {axis + k} of size {trace.hint(n)}; they must be "
                f"equal{at(user_line())}"
            )


def _select(trace: Trace, base: TracedArray, mask: Operand, axis: int) -> TracedArray:
    """The elements under a mask: a size known only at run time, and one for all selections by the same mask."""
    _check_mask(trace, base, mask, axis, "getitem")
    width = len(mask.type.shape)
    value = base.read()
    rank = len(value.type.shape)
    if axis:
        order = [*range(axis, axis + width), *range(axis), *range(axis + width, rank)]
        value = build.transpose(trace, value, order)
    value = build.reshape(trace, value, value.type.shape) if value.type.shape else value
    selected = mask_select(trace, value, mask)
    if axis:
        selected = build.transpose(trace, selected, _placed(1, rank - width + 1, axis))
    return new(trace, selected)


def mask_select(trace: Trace, value: Operand, mask: Operand) -> Operand:
    """The row of that name, with one run-time extent for each mask."""
    if not mask.type.shape:
        raise TraceError(f"getitem: a mask of rank 0; a mask of rank 1 or more is needed{at(user_line())}")
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


# -- writes ----------------------------------------------------------------------------------------------------------


def setitem(x: Any, key: Any, value: Any, /) -> None:
    """``x[key] = value`` on a traced array, converted to its dtype as NumPy does."""
    trace = running_trace("setitem")
    assert type(x) is TracedArray
    x.check_writeable()
    index = parse(trace, x.type, key, "setitem")
    new_value, value_key = operand(trace, value, "setitem")
    if new_value.type.dtype.kind == "c" and x.dtype.kind not in "cb":
        raise DtypeError(f"setitem: complex values into {x.dtype.name}; x.real or abs(x) is needed{at(user_line())}")
    if is_weak(value_key):
        new_value = converted(trace, new_value, x.dtype, "setitem")
    new_value = build.convert(trace, new_value, x.dtype)
    if index.element is not None and _set_element(trace, x, index, new_value):
        return
    target = _boxed(x, index.box)
    if index.arrays:
        _scatter(trace, target, index, new_value)
    elif not (type(value) is TracedArray and _is_same_view(value, x, index.box)):
        target.store(_fitted(trace, new_value, target.type.shape))


def _is_same_view(value: TracedArray, x: TracedArray, box: Box) -> bool:
    """Python writes the result of ``x[key] += v`` back where it already is."""
    return value._parent is x and value._step == box


def _set_element(trace: Trace, x: TracedArray, index: Index, value: Operand) -> bool:
    assert index.element is not None
    place = base_place(x, index.element)
    if place is None or not place:
        return False
    if product(value.type.shape) != 1:
        raise ShapeError(
            f"setitem: value of shape {value.type.shape} for one element; a number is needed{at(user_line())}"
        )
    x._cell.set_element(place, build.reshape(trace, value, ()) if value.type.shape else value)
    return True


def _fitted(trace: Trace, value: Operand, shape: tuple[Extent, ...]) -> Operand:
    """The value broadcast to the window; leading axes of size 1 may be dropped, as NumPy allows."""
    own = value.type.shape
    if not own:
        return value
    while len(own) > len(shape) and trace.guard("==", own[0], 1):
        own = own[1:]
    value = build.reshape(trace, value, own) if own != value.type.shape else value
    joined = broadcast_shapes(trace, "setitem", [shape, own])
    if not is_result_of(trace, joined, shape):
        raise shape_mismatch(trace, "setitem", [shape, own])
    return aligned(trace, value, shape)


def _scatter(trace: Trace, target: TracedArray, index: Index, value: Operand, mode: str = "set") -> None:
    mask = _single_mask(trace, index, "setitem")
    if mask is not None:
        _mask_store(trace, target, mask, index.arrays[0][0], value)
        return
    axes, places = _index_values(trace, target, index, "setitem")
    base = target.read()
    merged, order = _fronted(trace, base, axes)
    rest = merged.type.shape[1:]
    index_rank = len(places.type.shape)
    position = min(axes) if index.together else 0
    rank = index_rank + len(rest)
    window_order = _placed(index_rank, rank, position)
    front = (*places.type.shape, *rest)
    window = tuple(front[k] for k in window_order)
    fitted = build.broadcast(trace, _fitted(trace, value, window), window)
    fitted = build.transpose(trace, fitted, np.argsort(window_order).tolist() if window_order else [])
    written = trace.emit1(library.scatter, merged, places, fitted, axis=0, mode=mode)
    moved = build.reshape(trace, written, tuple(base.type.shape[k] for k in order))
    target.store(build.transpose(trace, moved, np.argsort(order).tolist()))


def _mask_store(trace: Trace, target: TracedArray, mask: Operand, axis: int, value: Operand) -> None:
    """``x[mask] = v``: a choice between old and new where v does not depend on how many are chosen."""
    _check_mask(trace, target, mask, axis, "setitem")
    shape = target.type.shape
    width, rank = len(mask.type.shape), len(shape)
    if len(value.type.shape) > rank - width - axis:
        chosen = _one_value(trace, value, rank - width - axis)
        if chosen is None:
            if axis:
                raise TraceError(
                    f"setitem: a value for each element under a mask behind other axes; move the mask's axes to the "
                    f"front{at(user_line())}"
                )
            target.store(trace.emit1(library.mask_update, target.read(), mask, value))
            return
        value = chosen
    wide = build.expand(trace, mask, tuple(range(axis, axis + width)), rank) if rank > width else mask
    wide = build.broadcast(trace, wide, shape)
    value = aligned(trace, value, shape) if not value.type.shape else build.broadcast(trace, value, shape)
    target.store(trace.emit1(p.where, wide, value, target.read()))


def _one_value(trace: Trace, value: Operand, rank: int) -> Operand | None:
    """The value without its leading axes where they have size 1 (one value for all elements), else None."""
    shape = value.type.shape
    lead = shape[: len(shape) - rank]
    if any(trace.hint(n) is None or not trace.guard("==", n, 1) for n in lead):
        return None
    return build.reshape(trace, value, shape[len(lead) :])


def add_at(x: Any, key: Any, value: Any) -> None:
    """``numpy.add.at(x, key, value)``: repeated places add up."""
    trace = running_trace("add.at")
    assert type(x) is TracedArray
    x.check_writeable()
    index = parse(trace, x.type, key, "add.at")
    if not index.arrays:
        x[key] = getitem(x, key) + value
        return
    added = converted(trace, operand(trace, value, "add.at")[0], x.dtype, "add.at")
    if _single_mask(trace, index, "add.at") is not None:
        x[key] = getitem(x, key) + value
        return
    _scatter(trace, _boxed(x, index.box), index, added, "add")


# -- functions -------------------------------------------------------------------------------------------------------


def take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    """Elements by index along an axis (None: of the flattened array); an index out of range is a BoundsError when the
    program runs. ``mode`` "clip" and "wrap" bring indices into range instead."""
    trace = running_trace("take")
    array = as_traced(trace, a, "take")
    if axis is None:
        array, axis = ravel(array), 0
    k = axis_of(axis, array.ndim, "take")
    value = _index_operand(trace, indices, "take")
    places = build.convert(trace, value, INT64)
    size = _number(array.type.shape[k])
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
    key: list[Any] = []
    for j in range(array.ndim):
        if j == k:
            key.append(chosen)
            continue
        shape = tuple(array.type.shape[j] if i == j else 1 for i in range(array.ndim))
        key.append(new(trace, trace.emit1(layout.iota, shape=shape, axis=j)))
    return getitem(array, tuple(key))


def compress(condition: Any, a: Any, axis: Any = None, out: Any = None) -> Any:
    """The slices along an axis where the condition holds."""
    trace = running_trace("compress")
    array = as_traced(trace, a, "compress")
    if axis is None:
        array, axis = ravel(array), 0
    mask = new(trace, as_bool(trace, operand(trace, condition, "compress")[0]))
    k = axis_of(axis, array.ndim, "compress")
    return deliver(trace, "compress", getitem(array, (*(slice(None),) * k, mask)).read(), out)


def extract(condition: Any, arr: Any) -> Any:
    """The elements where the condition holds, flattened."""
    trace = running_trace("extract")
    mask = new(trace, as_bool(trace, operand(trace, condition, "extract")[0]))
    return getitem(ravel(arr), ravel(mask))


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """Write ``src`` into ``dst``."""
    from tenferro.tracer.api.deliver import check_cast, target_of

    trace = running_trace("copyto")
    target = target_of(dst, "copyto")
    value, key = operand(trace, src, "copyto")
    if not is_weak(key):
        check_cast("copyto", value.type.dtype, target.dtype, casting)
    deliver(trace, "copyto", converted(trace, value, target.dtype, "copyto"), target, where)


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
    _f("nonzero", nonzero, ("a",)),
    _f("flatnonzero", flatnonzero, ("a",)),
    _f("copyto", copyto, ("dst", "src", "where")),
)
