"""Places in arrays: flat numbers, indices for each axis, keys of diagonals and triangles: one in and another out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import arange, extents_of, of_integers, tri
from tenferro.tracer.api.deliver import new, new_array
from tenferro.tracer.api.elementwise import FLOOR_DIVIDE, REMAINDER
from tenferro.tracer.api.indexing import nonzero
from tenferro.tracer.api.record import API, ApiFunction
from tenferro.tracer.dim import make_dim
from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import DtypeError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import pointwise as p
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced

INT64 = np.dtype(np.int64)


def _indices(trace: Trace, x: Any, name: str) -> TracedArray:
    """Integers as int64."""
    array = as_traced(trace, x, name)
    if array.dtype.kind not in "iu":
        raise DtypeError(f"{name}: indices of dtype {array.dtype.name}; integers are needed{at(user_line())}")
    return new(trace, build.convert(trace, array.read(), INT64))


def required_place(trace: Trace, name: str, x: TracedArray, holds: Any) -> TracedArray:
    """``x``; a ShapeError when the program runs where the condition does not hold."""
    checked = build.convert(trace, holds.read(), INT64)
    return new(trace, trace.emit1(p.required, x.read(), checked, name=name, reason="place"))


def _first_axis_first(name: str, order: Any) -> bool:
    if order not in ("C", "F"):
        raise TraceError(f"{name}: order {order!r}; 'C' or 'F' is needed{at(user_line())}")
    return bool(order == "F")


def unravel_index(indices: Any, shape: Any, order: str = "C") -> Any:
    """The index along each axis that a place in the flattened array has. A place that the shape has not is a
    ShapeError when the program runs."""
    trace = running_trace("unravel_index")
    rest, sizes = _indices(trace, indices, "unravel_index"), extents_of(shape, "unravel_index")
    total: Any = 1
    for n in sizes:
        total = total * make_dim(trace, n)
    rest = required_place(trace, "unravel_index", rest, (rest >= 0) & (rest < total))
    walked = range(len(sizes)) if _first_axis_first("unravel_index", order) else reversed(range(len(sizes)))
    found: dict[int, Any] = {}
    for k in walked:
        size = API["maximum"].function(make_dim(trace, sizes[k]), 1)  # of size 0 there is no place
        found[k], rest = REMAINDER(rest, size), FLOOR_DIVIDE(rest, size)
    return tuple(found[k] for k in range(len(sizes)))


def ravel_multi_index(multi_index: Any, dims: Any, mode: Any = "raise", order: str = "C") -> Any:
    """The place in the flattened array that an index along each axis names. What is out of range is a ShapeError when
    the program runs; ``mode`` "clip" and "wrap", for all axes or each, bring it into range instead."""
    name = "ravel_multi_index"
    trace, sizes = running_trace(name), extents_of(dims, name)
    parts = list(multi_index) if isinstance(multi_index, tuple | list) else list(as_traced(trace, multi_index, name))
    modes = list(mode) if isinstance(mode, tuple | list) else [mode] * len(sizes)
    if not len(parts) == len(modes) == len(sizes):
        raise ShapeError(f"{name}: {len(parts)} indices for {len(sizes)} axes; one each is needed{at(user_line())}")
    walked = list(range(len(sizes)))
    found: Any = None
    for k in reversed(walked) if _first_axis_first(name, order) else walked:
        index = _brought(trace, name, _indices(trace, parts[k], name), sizes[k], modes[k])
        found = index if found is None else found * make_dim(trace, sizes[k]) + index
    return found


def _brought(trace: Trace, name: str, index: TracedArray, size: Extent, mode: Any) -> Any:
    n = make_dim(trace, size)
    match mode:
        case "raise":
            return required_place(trace, name, index, (index >= 0) & (index < n))
        case "clip":
            return API["minimum"].function(API["maximum"].function(index, 0), n - 1)
        case "wrap":
            return REMAINDER(index, n)
        case _:
            raise TraceError(f"{name}: mode {mode!r}; 'raise', 'clip' or 'wrap' is needed{at(user_line())}")


# -- keys ------------------------------------------------------------------------------------------------------------


def diag_indices(n: Any, ndim: int = 2) -> Any:
    """The key of the diagonal of an array of ``ndim`` axes of size n."""
    return (arange(n),) * ndim


def diag_indices_from(arr: Any) -> Any:
    """``diag_indices`` for an array, whose sizes must be equal."""
    trace = running_trace("diag_indices_from")
    array = as_traced(trace, arr, "diag_indices_from")
    sizes = array.type.shape
    if len(sizes) < 2 or not all(trace.guard("==", n, sizes[0]) for n in sizes[1:]):
        raise ShapeError(
            f"diag_indices_from: sizes {tuple(map(trace.hint, sizes))}; two or more equal ones are "
            f"needed{at(user_line())}"
        )
    return diag_indices(make_dim(trace, sizes[0]), len(sizes))


def tril_indices(n: Any, k: Any = 0, m: Any = None) -> Any:
    """The key of the elements on and below a diagonal of an (n, m) array."""
    return nonzero(tri(n, m, k, bool))


def triu_indices(n: Any, k: Any = 0, m: Any = None) -> Any:
    """The key of the elements on and above a diagonal of an (n, m) array."""
    return nonzero(API["logical_not"].function(tri(n, m, k - 1, bool)))


def tril_indices_from(arr: Any, k: Any = 0) -> Any:
    """``tril_indices`` for a matrix."""
    return tril_indices(*_sizes("tril_indices_from", arr, k))


def triu_indices_from(arr: Any, k: Any = 0) -> Any:
    """``triu_indices`` for a matrix."""
    return triu_indices(*_sizes("triu_indices_from", arr, k))


def _sizes(name: str, arr: Any, k: Any) -> tuple[Any, Any, Any]:
    array = as_traced(running_trace(name), arr, name)
    if array.ndim != 2:
        raise ShapeError(f"{name}: rank {array.ndim}; rank 2 is needed{at(user_line())}")
    return array.shape[0], k, array.shape[1]


def ix_(*args: Any) -> Any:
    """The key of every combination of indices: a vector for each axis, or bools that choose along it."""
    trace = running_trace("ix_")
    found: list[Any] = []
    for k, x in enumerate(args):
        array = as_traced(trace, of_integers(trace, x), "ix_")
        if array.ndim != 1:
            raise ShapeError(f"ix_: an argument of rank {array.ndim}; rank 1 is needed{at(user_line())}")
        places = nonzero(array)[0] if array.dtype.kind == "b" else array
        shape = tuple(places.type.shape[0] if j == k else 1 for j in range(len(args)))
        found.append(new_array(trace, build.copied(trace, build.reshape(trace, places.read(), shape))))
    return tuple(found)


def _f(function: Any, *arrays: str) -> ApiFunction:
    return ApiFunction(function.__name__, function, arrays, False, getattr(np, function.__name__))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f(unravel_index, "indices"),
    _f(ravel_multi_index, "multi_index"),
    _f(diag_indices),
    _f(diag_indices_from, "arr"),
    _f(tril_indices),
    _f(triu_indices),
    _f(tril_indices_from, "arr"),
    _f(triu_indices_from, "arr"),
    _f(ix_, "args"),
)
