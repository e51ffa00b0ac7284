"""Elements taken out, put between, repeated or chosen by number: arrays and places in, a new array out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import arange, extents_of, listed, zeros
from tenferro.tracer.api.deliver import deliver, new_array
from tenferro.tracer.api.elementwise import REMAINDER
from tenferro.tracer.api.indexing import getitem, take
from tenferro.tracer.api.joining import concatenate
from tenferro.tracer.api.layout import axis_of, ravel
from tenferro.tracer.api.places import required_place
from tenferro.tracer.api.promotion import broadcast_operands, chosen, result_type
from tenferro.tracer.api.record import API, ApiFunction
from tenferro.tracer.dim import make_dim, pinned
from tenferro.tracer.dims import product
from tenferro.tracer.errors import BoundsError, DtypeError, ShapeError, TraceError
from tenferro.tracer.foreign import NUMPY_ERRORS, as_own
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import pointwise as p
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced, is_number, operand

INT64 = np.dtype(np.int64)


def _line(name: str, arr: Any, axis: Any) -> tuple[TracedArray, int]:
    """The array and its axis; the flattened array for None."""
    array = as_traced(running_trace(name), arr, name)
    return (ravel(array), 0) if axis is None else (array, axis_of(axis, array.ndim, name))


def _key(axis: int, part: Any) -> tuple[Any, ...]:
    return (*(slice(None),) * axis, part)


def _place(trace: Trace, name: str, obj: int, array: TracedArray, axis: int, beyond: int) -> Any:
    """An int as a place that counts from the front; ``beyond``: how many places there are behind the last element."""
    n = array.shape[axis]
    if not (-n <= obj and obj < n + beyond):
        raise BoundsError(
            f"{name}: index {obj} is out of bounds for axis {axis} with size {n}; one in [{-n}, {n + beyond}) is "
            f"needed{at(user_line())}"
        )
    return obj + n if obj < 0 else obj


def _known(name: str, obj: Any) -> Any:
    """Indices as NumPy takes them: a slice, or an array; None where they are traced."""
    if isinstance(obj, slice):
        return slice(*(pinned(x) for x in (obj.start, obj.stop, obj.step)))
    if isinstance(obj, TracedArray):
        return obj.known()
    found = np.asarray(obj)
    if found.dtype == object:
        return None
    return found.astype(np.int64) if not found.size and not isinstance(obj, np.ndarray) else found


def delete(arr: Any, obj: Any, axis: Any = None) -> Any:
    """Without the elements that an int, a slice, indices or a mask name. For anything but an int the size is a constant
    of the program, or known when the program has run where the indices are traced."""
    trace = running_trace("delete")
    array, k = _line("delete", arr, axis)
    if type(obj) is int:
        place = _place(trace, "delete", obj, array, k, 0)
        return concatenate([array[_key(k, slice(place))], array[_key(k, slice(place + 1, None))]], k)
    known = None if isinstance(obj, np.ndarray) and not isinstance(obj, TracedArray) else _known("delete", obj)
    if known is not None:
        n = trace.concrete(array.type.shape[k], "delete")
        try:
            kept = np.delete(np.arange(n), known)
        except NUMPY_ERRORS as error:
            raise as_own("delete", error) from None
        return take(array, kept.tolist(), k)
    places = as_traced(trace, obj, "delete")
    if places.dtype.kind == "b":
        return getitem(array, _key(k, ~places))
    goes = zeros(array.shape[k], bool)
    goes[ravel(places)] = True
    return getitem(array, _key(k, ~goes))


def insert(arr: Any, obj: Any, values: Any, axis: Any = None) -> Any:
    """With values before the places that an int, a slice or indices name, converted to the array's dtype. For anything
    but an int the size is a constant of the program."""
    trace = running_trace("insert")
    array, k = _line("insert", arr, axis)
    new_values = as_traced(trace, listed(values, array.dtype, "insert"), "insert")
    new_values = new_values[(None,) * max(array.ndim - new_values.ndim, 0)]
    if type(obj) is int:
        return _between(trace, array, obj, API["moveaxis"].function(new_values, 0, k), k)
    known = _known("insert", obj)
    if known is None:
        raise TraceError(
            f"insert: places that are traced, whose number is not known; an int or known indices are "
            f"needed{at(user_line())}"
        )
    n = trace.concrete(array.type.shape[k], "insert")
    places = np.arange(n)[known] if isinstance(known, slice) else known.ravel()
    places = np.flatnonzero(places) if places.dtype == bool else places
    if places.dtype.kind not in "iu":
        raise DtypeError(f"insert: places of dtype {places.dtype.name}; integers are needed{at(user_line())}")
    if places.size == 1:
        return _between(trace, array, int(places[0]), new_values, k)
    return _inserted(array, n, places, new_values, k)


def _between(trace: Trace, array: TracedArray, obj: int, values: TracedArray, axis: int) -> Any:
    """With the values, of any number along the axis, before one place."""
    place = _place(trace, "insert", obj, array, axis, 1)
    window = [values.shape[j] if j == axis else n for j, n in enumerate(array.shape)]
    between = zeros(tuple(window), array.dtype)
    between[...] = values
    return concatenate([array[_key(axis, slice(place))], between, array[_key(axis, slice(place, None))]], axis)


def _inserted(array: TracedArray, n: int, places: np.ndarray[Any, Any], values: TracedArray, axis: int) -> Any:
    """With a value before each of the places, of which one axis of ``n`` elements has some."""
    if ((places < -n) | (places > n)).any():
        raise BoundsError(f"insert: a place is out of bounds for axis {axis} with size {n}{at(user_line())}")
    places = np.where(places < 0, places + n, places).astype(np.int64)
    places[np.argsort(places, kind="stable")] += np.arange(len(places))
    count = n + len(places)
    made = zeros(tuple(count if j == axis else m for j, m in enumerate(array.shape)), array.dtype)
    old = np.setdiff1d(np.arange(count), places)
    made[_key(axis, places.tolist())] = values
    made[_key(axis, old.tolist())] = array
    return made


def resize(a: Any, new_shape: Any) -> Any:
    """The elements over and over until an array of this shape is full; zeros where there are none."""
    trace = running_trace("resize")
    flat = ravel(as_traced(trace, a, "resize"))
    shape = extents_of(new_shape, "resize")
    total = make_dim(trace, product(shape))
    if not trace.guard("<", 0, flat.type.shape[0]):
        return zeros(tuple(make_dim(trace, n) for n in shape), flat.dtype)
    found = take(flat, REMAINDER(arange(total), flat.shape[0]))
    return new_array(trace, build.copied(trace, build.reshape(trace, found.read(), shape)))


def choose(a: Any, choices: Any, out: Any = None, mode: str = "raise") -> Any:
    """For each place the element of the choice of that number, which must be there unless ``mode`` is "clip" or
    "wrap"."""
    trace = running_trace("choose")
    index = as_traced(trace, a, "choose")
    if index.dtype.kind not in "iub":
        raise DtypeError(f"choose: indices of dtype {index.dtype.name}; integers are needed{at(user_line())}")
    cases = list(choices) if isinstance(choices, tuple | list) else list(as_traced(trace, choices, "choose"))
    if not cases:
        raise ShapeError(f"choose: no choices; one or more are needed{at(user_line())}")
    number = index.astype(INT64)
    match mode:
        case "raise":
            number = required_place(trace, "choose", number, (number >= 0) & (number < len(cases)))
        case "wrap":
            number = REMAINDER(number, len(cases))
        case "clip":
            pass
        case _:
            raise TraceError(f"choose: mode {mode!r}; 'raise', 'clip' or 'wrap' is needed{at(user_line())}")
    pairs = [operand(trace, x if is_number(x) else as_traced(trace, x, "choose"), "choose") for x in cases]
    dtype = result_type([key for _, key in pairs])
    first, *others = broadcast_operands(
        trace, "choose", [number.read(), *(chosen(trace, value, dtype) for value, _ in pairs)]
    )
    found = others[0]
    for k, value in enumerate(others[1:], 1):
        found = trace.emit1(p.where, trace.emit1(p.less_equal, build.literal(k, INT64), first), value, found)
    shape = max((x.type.shape for x in (first, *others)), key=len)
    return deliver(trace, "choose", build.copied(trace, build.broadcast(trace, found, shape)), out)


def unstack(x: Any, /, *, axis: int = 0) -> Any:
    """The slices along an axis, whose size is a constant of the program."""
    trace = running_trace("unstack")
    array = as_traced(trace, x, "unstack")
    if not array.ndim:
        raise ShapeError(f"unstack: a number; rank 1 or more is needed{at(user_line())}")
    k = axis_of(axis, array.ndim, "unstack")
    return tuple(array[_key(k, j)] for j in range(trace.concrete(array.type.shape[k], "unstack")))


def _f(function: Any, *arrays: str, view: bool = False) -> ApiFunction:
    return ApiFunction(function.__name__, function, arrays, view, getattr(np, function.__name__))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f(delete, "arr"),
    _f(insert, "arr", "values"),
    _f(resize, "a"),
    _f(choose, "a", "choices", "out"),
    *((_f(unstack, "x", view=True),) if hasattr(np, "unstack") else ()),
)
