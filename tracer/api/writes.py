"""Writes: an array, a key and a value in; the array's variable has a new value.

Boxes are updated, index arrays scatter, and masks choose between old and new.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import check_numbers, listed
from tenferro.tracer.api.deliver import check_cast, deliver, target_of
from tenferro.tracer.api.indexing import (
    base_place,
    boxed,
    check_mask,
    fronted,
    fronting,
    getitem,
    index_values,
    index_windows,
    placed,
    single_mask,
)
from tenferro.tracer.api.layout import permuted
from tenferro.tracer.api.promotion import broadcast_into, converted, sizes_text
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.keys import Index, parse
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import library, pointwise as p
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, operand

Shape = tuple[Extent, ...]


def setitem(x: Any, key: Any, value: Any, /) -> None:
    """``x[key] = value`` on a traced array, converted to its dtype as NumPy does."""
    trace = running_trace("setitem")
    assert type(x) is TracedArray
    x.check_writeable()
    index = parse(trace, x.type, key, "setitem")
    check_numbers(trace, value, x.dtype, "setitem")
    new_value, _ = operand(trace, listed(value, x.dtype, "setitem"), "setitem")
    if new_value.type.dtype.kind == "c" and x.dtype.kind not in "cb":
        raise DtypeError(f"setitem: complex values into {x.dtype.name}; x.real or abs(x) is needed{at(user_line())}")
    new_value = build.convert(trace, new_value, x.dtype)
    if index.element is not None and _set_element(trace, x, index, new_value):
        return
    target = boxed(x, index)
    if index.flag is not None:
        _store_flagged(trace, target, *index.flag, index.together, new_value)
    elif index.arrays:
        _scatter(trace, target, index, new_value)
    elif not (type(value) is TracedArray and _is_same_view(value, x, index)):
        target.store(_fitted(trace, new_value, target.type.shape))


def _is_same_view(value: TracedArray, x: TracedArray, index: Index) -> bool:
    """Python writes the result of ``x[key] += v`` back where it already is."""
    node: TracedArray | None = value
    for step in (index.box, *reversed(index.chosen)):
        if node is None or node._step != step:
            return False
        node = node._parent
    return node is x


def _set_element(trace: Trace, x: TracedArray, index: Index, value: Operand) -> bool:
    assert index.element is not None
    place = base_place(x, index.element)
    if place is None or not place:
        return False
    if not all(trace.guard("==", n, 1) for n in value.type.shape):
        raise ShapeError(
            f"setitem: value of shape {sizes_text(trace, value.type.shape)} for one element; a number is "
            f"needed{at(user_line())}"
        )
    x._cell.set_element(place, build.reshape(trace, value, ()) if value.type.shape else value)
    return True


def _store_flagged(
    trace: Trace, target: TracedArray, axis: int, holds: bool, together: bool, value: Operand
) -> None:  # fmt: skip
    """``x[True] = v`` and ``x[False] = v``, which writes nothing but must fit."""
    if not together:
        target, axis = permuted(target, fronting((axis,), target.ndim)), 0
    shape = target.type.shape
    if holds:
        target.store(_fitted(trace, value, shape))
    else:
        _fitted(trace, value, (*shape[:axis], 0, *shape[axis + 1 :]))


def _fitted(trace: Trace, value: Operand, shape: Shape) -> Operand:
    """The value broadcast to the window; leading axes of size 1 may be dropped, as NumPy allows."""
    return broadcast_into(trace, "setitem", _without_leading_ones(trace, value, len(shape)), shape)


def _without_leading_ones(trace: Trace, value: Operand, rank: int) -> Operand:
    """The value without axes of size 1 in front of its last ``rank``."""
    own = value.type.shape
    while len(own) > rank and trace.guard("==", own[0], 1):
        own = own[1:]
    return build.reshape(trace, value, own) if own != value.type.shape else value


# -- index arrays and masks ------------------------------------------------------------------------------------------


def _scatter(trace: Trace, target: TracedArray, index: Index, value: Operand, mode: str = "set") -> None:
    mask = single_mask(index)
    if mask is not None:
        _mask_store(trace, target, mask, index.arrays[0][0], index.together, value)
        return
    axes, places = index_values(trace, target, index, "setitem")
    base = target.read()
    order = fronting(axes, len(base.type.shape))
    merged = fronted(trace, base, axes)
    rest = merged.type.shape[1:]
    index_rank = len(places.type.shape)
    position = min(axes) if index.together else 0
    window_order = placed(index_rank, index_rank + len(rest), position)
    front = (*places.type.shape, *rest)
    window = tuple(front[k] for k in window_order)
    fitted = build.broadcast(trace, _fitted(trace, value, window), window)
    fitted = build.transpose(trace, fitted, _inverse(window_order))
    windows = index_windows(target, axes)
    written = trace.emit1(library.scatter, merged, places, fitted, axis=0, mode=mode, windows=windows)
    moved = build.reshape(trace, written, tuple(base.type.shape[k] for k in order))
    target.store(build.transpose(trace, moved, _inverse(order)))


def _inverse(order: list[int]) -> list[int]:
    return [order.index(k) for k in range(len(order))]


def _mask_store(
    trace: Trace, target: TracedArray, mask: TracedArray, axis: int, together: bool, value: Operand
) -> None:
    """``x[mask] = v``: a choice between old and new where v does not depend on how many are chosen."""
    check_mask(trace, target, mask, axis, "setitem")
    width, rank = mask.ndim, target.ndim
    if axis and not together:
        target, axis = permuted(target, fronting(range(axis, axis + width), rank)), 0
    shape = target.type.shape
    behind = rank - axis - width
    value = _without_leading_ones(trace, value, axis + 1 + behind)
    own = value.type.shape
    if len(own) > behind:
        lead, chosen, rest = own[: -behind - 1], own[-behind - 1], own[len(own) - behind :]
        if trace.hint(chosen) is None or not trace.guard("==", chosen, 1):
            _store_each(trace, target, mask, axis, value)
            return
        value = build.reshape(trace, value, (*lead, *(1,) * width, *rest) if lead else rest)
    wide = build.expand(trace, mask.read(), tuple(range(axis, axis + width)), rank) if rank > width else mask.read()
    fitted = build.broadcast(trace, _fitted(trace, value, shape), shape) if value.type.shape else value
    target.store(trace.emit1(p.where, build.broadcast(trace, wide, shape), fitted, target.read()))


def _store_each(trace: Trace, target: TracedArray, mask: TracedArray, axis: int, value: Operand) -> None:
    """A value for each element under the mask: as many as there are, which the run checks."""
    width, rank = mask.ndim, target.ndim
    base = target.read()
    if axis:
        own = value.type.shape
        full = axis + 1 + rank - axis - width
        value = build.reshape(trace, value, ((1,) * (full - len(own)) + own))
        value = build.transpose(trace, value, fronting((axis,), full))
    order = fronting(range(axis, axis + width), rank)
    written = trace.emit1(library.mask_update, build.transpose(trace, base, order), mask.read(), value)
    target.store(build.transpose(trace, written, _inverse(order)))


def combine_at(ufunc: np.ufunc, x: Any, key: Any, value: Any) -> None:
    """``ufunc.at(x, key, value)`` of a ufunc that a scatter combines by: repeated places take all their values."""
    name = f"{ufunc.__name__}.at"
    trace = running_trace(name)
    assert type(x) is TracedArray
    x.check_writeable()
    index = parse(trace, x.type, key, name)
    if not index.arrays or single_mask(index) is not None:
        x[key] = ufunc(getitem(x, key), value)
        return
    added = converted(trace, operand(trace, value, name)[0], x.dtype, name)
    _scatter(trace, boxed(x, index), index, added, ufunc.__name__)


def copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    """Write ``src`` into ``dst``."""
    trace = running_trace("copyto")
    target = target_of(dst, "copyto")
    value, key = operand(trace, src, "copyto")
    if key is int:  # a Python int takes the target's dtype where it fits
        value = converted(trace, value, target.dtype, "copyto")
    check_cast("copyto", value.type.dtype, target.dtype, casting)
    value = _without_leading_ones(trace, build.convert(trace, value, target.dtype), target.ndim)
    deliver(trace, "copyto", value, target, where)


FUNCTIONS: tuple[ApiFunction, ...] = (ApiFunction("copyto", copyto, ("dst", "src", "where"), False, np.copyto),)
