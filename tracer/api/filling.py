"""Writes of values that are repeated as often as is needed: an array, places and values in, the array changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer.api.creation import arange, listed, zeros
from tenferro.tracer.api.deliver import check_cast, new, target_of
from tenferro.tracer.api.elementwise import FLOOR_DIVIDE, REMAINDER, where
from tenferro.tracer.api.indexing import take
from tenferro.tracer.api.layout import ravel
from tenferro.tracer.api.promotion import as_bool
from tenferro.tracer.api.record import API, ApiFunction
from tenferro.tracer.api.reductions import cumsum
from tenferro.tracer.dims import product
from tenferro.tracer.errors import ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced, is_number, operand


def _cycled(trace: Trace, name: str, values: Any, places: TracedArray, target: TracedArray) -> TracedArray:
    """For each place the value of that number, from the front again where there are fewer; in the target's dtype, by
    the rules of ``target[...] = values``."""
    flat = ravel(as_traced(trace, listed(values, target.dtype, name), name))
    if not trace.guard("<", 0, flat.type.shape[0]):
        raise ShapeError(f"{name}: no values; one or more are needed{at(user_line())}")
    stored = zeros(flat.shape, target.dtype)
    stored[...] = values if is_number(values) else flat
    found: TracedArray = take(stored, REMAINDER(places, flat.shape[0]))
    return found


def _check_safe(name: str, values: Any, target: TracedArray) -> None:
    """What ``putmask`` and ``place`` ask of arrays: that no value changes."""
    if getattr(values, "ndim", 0):
        check_cast(name, values.dtype, target.dtype, "safe")


def _numbered(array: TracedArray) -> TracedArray:
    """0, 1, 2, … in the array's shape."""
    found: TracedArray = arange(array.size).reshape(array.shape)
    return found


def fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    """Write ``val``, repeated as often as needed, along the diagonal; ``wrap`` begins a tall matrix's anew behind its
    end."""
    trace = running_trace("fill_diagonal")
    target = target_of(a, "fill_diagonal")
    sizes = target.type.shape
    if len(sizes) < 2:
        raise ShapeError(f"fill_diagonal: rank {len(sizes)}; rank 2 or more is needed{at(user_line())}")
    number = _numbered(target)
    if len(sizes) == 2:
        step, last = target.shape[1] + 1, target.shape[1] * target.shape[1]
        is_met = REMAINDER(number, step) == 0
        is_met = is_met if wrap else is_met & (number < last)
    else:
        if not all(trace.guard("==", n, sizes[0]) for n in sizes[1:]):
            raise ShapeError(
                f"fill_diagonal: sizes {tuple(map(trace.hint, sizes))} of more than two axes; equal ones are "
                f"needed{at(user_line())}"
            )
        step = 0
        for _ in sizes:
            step = step * target.shape[0] + 1
        is_met = REMAINDER(number, step) == 0
    target[...] = where(is_met, _cycled(trace, "fill_diagonal", val, FLOOR_DIVIDE(number, step), target), target)


def putmask(a: Any, mask: Any, values: Any) -> None:
    """Write into the places under the mask the values of the same number, from the front again where there are
    fewer."""
    _write_under("putmask", a, mask, values, _numbered)


def _condition(trace: Trace, name: str, mask: Any, target: TracedArray) -> TracedArray:
    """The mask, which has as many elements as the array, as bools of its shape."""
    condition = new(trace, as_bool(trace, operand(trace, mask, name)[0]))
    if not trace.guard("==", product(condition.type.shape), product(target.type.shape)):
        shapes = [tuple(map(trace.hint, x.type.shape)) for x in (condition, target)]
        raise ShapeError(
            f"{name}: a mask of shape {shapes[0]} for an array of shape {shapes[1]}; as many elements are "
            f"needed{at(user_line())}"
        )
    found: TracedArray = condition.reshape(target.shape)
    return found


def place(arr: Any, mask: Any, vals: Any) -> None:
    """Write the values one after the other into the places under the mask, from the front again where there are
    fewer."""
    _write_under("place", arr, mask, vals, lambda condition: (cumsum(ravel(condition)) - 1).reshape(condition.shape))


def _write_under(name: str, array: Any, mask: Any, values: Any, number: Callable[[TracedArray], TracedArray]) -> None:
    """Write into the places under the mask the values whose numbers ``number`` gives for the mask."""
    trace = running_trace(name)
    target = target_of(array, name)
    condition = _condition(trace, name, mask, target)
    _check_safe(name, values, target)
    target[...] = where(condition, _cycled(trace, name, values, number(condition), target), target)


def put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    """Write values to places of the flattened array, from the front again where there are fewer; the last one for a
    place stays."""
    trace = running_trace("put")
    target = target_of(a, "put")
    places = ravel(as_traced(trace, ind, "put"))
    flat = ravel(target).copy()
    last = flat.shape[0] - 1
    if mode == "clip":
        places = API["minimum"].function(API["maximum"].function(places, 0), last)
    elif mode == "wrap":
        places = REMAINDER(places, flat.shape[0])
    elif mode != "raise":
        raise TraceError(f"put: mode {mode!r}; 'raise', 'clip' or 'wrap' is needed{at(user_line())}")
    flat[places] = _cycled(trace, "put", v, arange(places.shape[0]), target)
    target[...] = flat.reshape(target.shape)


def _f(function: Any, *arrays: str) -> ApiFunction:
    return ApiFunction(function.__name__, function, arrays, False, getattr(np, function.__name__))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f(fill_diagonal, "a", "val"),
    _f(putmask, "a", "mask", "values"),
    _f(place, "arr", "mask", "vals"),
    _f(put, "a", "ind", "v"),
)
