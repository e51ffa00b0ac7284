"""Sets of two arrays: what both, either or one of them holds, sorted; and which elements an array has.

All are made by sorting; NumPy's hints about the algorithm (``kind=``, ``assume_unique=``) do not change the result.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import arange, of_integers
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.indexing import take
from tenferro.tracer.api.joining import concatenate
from tenferro.tracer.api.layout import ravel
from tenferro.tracer.api.promotion import result_type, strong
from tenferro.tracer.api.record import API, ApiFunction
from tenferro.tracer.api.sets import unique
from tenferro.tracer.dims import is_runtime
from tenferro.tracer.errors import TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced, operand


def _in_one_dtype(trace: Trace, name: str, *xs: Any) -> list[TracedArray]:
    """The arrays in the dtype that both promote to."""
    arrays = [as_traced(trace, x, name) for x in xs]
    pairs = [operand(trace, x, name) for x in arrays]
    dtype = result_type([strong(key) for _, key in pairs])
    return [new(trace, build.convert(trace, value, dtype)) for value, _ in pairs]


def isin(
    element: Any, test_elements: Any, assume_unique: bool = False, invert: bool = False, *, kind: Any = None
) -> Any:  # fmt: skip
    """Whether each element is one of ``test_elements``; NaN is none."""
    trace = running_trace("isin")
    if kind not in (None, "sort", "table"):
        raise TraceError(f"isin: kind {kind!r}; 'sort', 'table' or None is needed{at(user_line())}")
    values, tests = _in_one_dtype(trace, "isin", element, of_integers(trace, test_elements))
    found = _isin(trace, values, ravel(tests))
    return API["logical_not"].function(found) if invert else found


def _isin(trace: Trace, values: TracedArray, tests: TracedArray) -> Any:
    count = tests.type.shape[0]
    if values.dtype.kind == "c" or is_runtime(count):
        # Complex NaNs break the order, and of a size that only the run tells nobody knows whether there is an element.
        return (values[..., None] == tests).any(axis=-1)
    if not trace.guard("<", 0, count):
        return values < values
    ordered = API["sort"].function(tests)
    place = API["searchsorted"].function(ordered, values)
    return take(ordered, API["minimum"].function(place, tests.shape[0] - 1)) == values


def union1d(ar1: Any, ar2: Any) -> Any:
    """What either array holds."""
    trace = running_trace("union1d")
    both = [ravel(as_traced(trace, x, "union1d")) for x in (ar1, ar2)]
    return unique(concatenate(both))


def intersect1d(ar1: Any, ar2: Any, assume_unique: bool = False, return_indices: bool = False) -> Any:
    """What both arrays hold; with ``return_indices`` also where each is met first."""
    trace = running_trace("intersect1d")
    first, second = (ravel(x) for x in _in_one_dtype(trace, "intersect1d", ar1, ar2))
    left = right = None
    if not assume_unique and return_indices:
        (first, left), (second, right) = unique(first, return_index=True), unique(second, return_index=True)
    elif not assume_unique:
        first, second = unique(first), unique(second)
    both = concatenate([first, second])
    order = API["argsort"].function(both, kind="stable")
    both = take(both, order)
    is_met = both[1:] == both[:-1]
    found = both[:-1][is_met]
    if not return_indices:
        return found
    places = order[:-1][is_met], order[1:][is_met] - first.shape[0]
    named = zip(places, (left, right), strict=True)
    return (found, *(place if index is None else take(index, place) for place, index in named))


def setdiff1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    """What the first array holds and the second one does not; unsorted, and as often as it is there, where
    ``assume_unique``."""
    trace = running_trace("setdiff1d")
    first = ravel(as_traced(trace, ar1, "setdiff1d"))
    first = first if assume_unique else unique(first)
    return first[isin(first, ar2, invert=True)]


def setxor1d(ar1: Any, ar2: Any, assume_unique: bool = False) -> Any:
    """What just one of the arrays holds."""
    trace = running_trace("setxor1d")
    parts = [ravel(as_traced(trace, x, "setxor1d")) for x in (ar1, ar2)]
    both = concatenate(parts if assume_unique else [unique(x) for x in parts])
    ordered = API["sort"].function(both)
    place = arange(ordered.shape[0])
    last = API["maximum"].function(ordered.shape[0] - 1, 0)
    before = take(ordered, API["maximum"].function(place - 1, 0))
    after = take(ordered, API["minimum"].function(place + 1, last))
    return ordered[((ordered != before) | (place == 0)) & ((ordered != after) | (place == last))]


def _f(function: Any, *arrays: str) -> ApiFunction:
    return ApiFunction(function.__name__, function, arrays, False, getattr(np, function.__name__))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f(isin, "element", "test_elements"),
    _f(union1d, "ar1", "ar2"),
    _f(intersect1d, "ar1", "ar2"),
    _f(setdiff1d, "ar1", "ar2"),
    _f(setxor1d, "ar1", "ar2"),
)
