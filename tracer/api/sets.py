"""Sets and counts of values: arrays in, their different values with places and numbers, and counts by bins, out.

How many values there are is known when the program has run; everything is sorted, as NumPy's results are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.elementwise import where
from tenferro.tracer.api.indexing import take, take_along_axis
from tenferro.tracer.api.layout import axis_of, ravel
from tenferro.tracer.api.library import result_of
from tenferro.tracer.api.promotion import sizes_text
from tenferro.tracer.api.record import API, ApiFunction
from tenferro.tracer.api.reductions import cumsum, diff
from tenferro.tracer.dim import pinned
from tenferro.tracer.errors import DtypeError, ShapeError, TraceError
from tenferro.tracer.foreign import NUMPY_ERRORS, as_own
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced, from_known

INT64 = np.dtype(np.int64)


# -- sets ------------------------------------------------------------------------------------------------------------


def unique(
    ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, axis: Any = None, *,
    equal_nan: bool = True, sorted: bool = True,
) -> Any:  # fmt: skip
    """The different values in increasing order; on request where each is met first, which of them each element is, and
    how often each is met. Of the flattened array: rows (``axis``) are refused."""
    if axis is not None:
        raise TraceError(
            f"unique: axis {axis!r}; None, for the values of the flattened array, is needed{at(user_line())}"
        )
    asked = (return_index, return_inverse, return_counts)
    found = _unique("unique", ar, asked, equal_nan)
    return found if any(asked) else found[0]


def unique_values(x: Any, /) -> Any:
    """The different values; NaNs are all different."""
    return _unique("unique_values", x, (False, False, False), False)[0]


def unique_counts(x: Any, /) -> Any:
    """(values, counts)."""
    return _COUNTS(*_unique("unique_counts", x, (False, False, True), False))


def unique_inverse(x: Any, /) -> Any:
    """(values, inverse_indices)."""
    return _INVERSE(*_unique("unique_inverse", x, (False, True, False), False))


def unique_all(x: Any, /) -> Any:
    """(values, indices, inverse_indices, counts)."""
    return _ALL(*_unique("unique_all", x, (True, True, True), False))


_COUNTS, _INVERSE, _ALL = (type(f([1])) for f in (np.unique_counts, np.unique_inverse, np.unique_all))


def _unique(name: str, ar: Any, asked: tuple[bool, bool, bool], equal_nan: bool) -> tuple[Any, ...]:
    """The values, and the index, the inverse and the counts where they are asked for."""
    trace = running_trace(name)
    array = as_traced(trace, ar, name)
    flat = ravel(array)
    index, inverse, counts = asked
    if index or inverse:
        order = API["argsort"].function(flat, kind="stable")
        ordered = take(flat, order)
    else:
        order, ordered = None, API["sort"].function(flat)
    first = _first_of_each(trace, ordered, equal_nan)
    found: list[Any] = [ordered[first]]
    which = cumsum(first) - 1 if inverse or counts else None
    if index:
        found.append(order[first])
    if inverse:
        placed = new(trace, build.copied(trace, build.broadcast(trace, build.literal(0, INT64), flat.type.shape)))
        placed[order] = which
        found.append(placed.reshape(array.shape))
    if counts:
        found.append(API["bincount"].function(which))
    return tuple(found)


def _first_of_each(trace: Trace, ordered: TracedArray, equal_nan: bool) -> TracedArray:
    """Where another value begins. The element before the first one is not asked for, so that no size is a guard."""
    place = new(trace, trace.emit1(layout.iota, shape=ordered.type.shape, axis=0))
    before = take(ordered, API["maximum"].function(place - 1, 0))
    differs = ordered != before
    if equal_nan and ordered.dtype.kind in "fc":
        differs &= (ordered == ordered) | (before == before)
    found: TracedArray = differs | (place == 0)
    return found


def lexsort(keys: Any, axis: int = -1) -> Any:
    """The order by the last key, then by the one before it, ….: one stable sort for each."""
    trace = running_trace("lexsort")
    arrays = [as_traced(trace, k, "lexsort") for k in keys]
    if not arrays:
        raise DtypeError(f"lexsort: no keys; one or more are needed{at(user_line())}")
    if len({a.ndim for a in arrays}) > 1:
        ranks = [a.ndim for a in arrays]
        raise ShapeError(f"lexsort: keys of ranks {ranks}; one rank is needed{at(user_line())}")
    sort = API["argsort"].function
    if not arrays[0].ndim:
        return new(trace, build.literal(0, INT64))
    k = axis_of(axis, arrays[0].ndim, "lexsort")
    order = sort(arrays[0], axis=k, kind="stable")
    for key in arrays[1:]:
        order = take_along_axis(order, sort(take_along_axis(key, order, k), axis=k, kind="stable"), k)
    return order


# -- histograms ------------------------------------------------------------------------------------------------------


def histogram(a: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None) -> Any:
    """(how many elements lie in each bin, the bins' edges). A bin holds its lower edge, the last one both; what lies
    outside, and NaN, is not counted. With ``weights`` their sums, with ``density`` divided so that Σ h Δ = 1."""
    trace = running_trace("histogram")
    array, edges = ravel(as_traced(trace, a, "histogram")), histogram_bin_edges(a, bins, range, weights)
    count = edges.shape[0] - 1
    place, is_inside = _bins_of(array.astype(np.uint8) if array.dtype.kind == "b" else array, edges)
    place = where(is_inside, place, count)  # one bin more for all that is outside
    weight = _weights_of(trace, weights, "histogram")
    found = API["bincount"].function(place, weight, minlength=count + 1)[:count]
    if weight is not None:
        found = found.astype(weight.dtype)
    if density:
        found = found / diff(edges).astype(np.float64) / found.sum()
    return found, edges


def _bins_of(numbers: Any, edges: Any) -> tuple[Any, Any]:
    """The bin that each number lies in, and whether it lies in one."""
    place = API["searchsorted"].function(edges, numbers, side="right") - 1
    place = where(numbers == edges[-1], edges.shape[0] - 2, place)
    return place, (numbers >= edges[0]) & (numbers <= edges[-1])


def _weights_of(trace: Trace, weights: Any, name: str) -> Any:
    weight = None if weights is None else ravel(as_traced(trace, weights, name))
    if weight is not None and weight.dtype.kind not in "biuf":
        raise DtypeError(f"{name}: weights of dtype {weight.dtype.name}; real numbers are needed{at(user_line())}")
    return weight


def histogram2d(
    x: Any, y: Any, bins: Any = 10, range: Any = None, density: Any = None, weights: Any = None
) -> Any:  # fmt: skip
    """(how many pairs lie in each cell, the edges along x, those along y). ``bins``: a number or edges for both axes,
    or a pair of such; ``range``: a pair of ranges."""
    trace = running_trace("histogram2d")
    pair = [as_traced(trace, a, "histogram2d") for a in (x, y)]
    for name, a in zip("xy", pair, strict=True):
        if a.ndim != 1:
            raise ShapeError(f"histogram2d: {name} of rank {a.ndim}; rank 1 is needed{at(user_line())}")
    if not trace.guard("==", pair[0].type.shape[0], pair[1].type.shape[0]):
        sizes = sizes_text(trace, (pair[0].type.shape[0], pair[1].type.shape[0]))
        raise ShapeError(f"histogram2d: x and y have sizes {sizes}; one size is needed{at(user_line())}")
    dtype = np.result_type(*(a.dtype for a in pair))
    numbers = [a.astype(np.uint8 if dtype.kind == "b" else dtype) for a in pair]
    spans = (None, None) if range is None else range
    edges = [_edges_of(trace, *each) for each in zip(numbers, _for_each(bins), spans, strict=True)]
    (row, in_row), (column, in_column) = map(_bins_of, numbers, edges)
    rows, columns = (e.shape[0] - 1 for e in edges)
    place = where(in_row & in_column, row * columns + column, rows * columns)
    found = API["bincount"].function(place, _weights_of(trace, weights, "histogram2d"), minlength=rows * columns + 1)
    found = found[: rows * columns].reshape(rows, columns).astype(np.float64)
    if density:
        found = found / diff(edges[0])[:, None] / diff(edges[1])[None, :] / found.sum()
    return found, *edges


def _for_each(bins: Any) -> tuple[Any, Any]:
    """The bins of each axis: a sequence of two speaks of them one by one, any other of both."""
    if isinstance(bins, list | tuple) and len(bins) == 2:
        return bins[0], bins[1]
    return bins, bins


def _edges_of(trace: Trace, numbers: TracedArray, bins: Any, span: Any) -> Any:
    """A range gives float64 edges here, whatever the numbers are."""
    is_of_elements = span is None or not isinstance(pinned(bins), int)
    return histogram_bin_edges(numbers if is_of_elements else numbers.astype(np.float64), bins, span)


def histogram_bin_edges(a: Any, bins: Any = 10, range: Any = None, weights: Any = None) -> Any:
    """The edges of bins of equal width between the smallest and the largest element, or in ``range``; or those given,
    of which NumPy sees to it that they increase."""
    trace = running_trace("histogram_bin_edges")
    if isinstance(bins, str):
        raise TraceError(
            f"histogram: bins {bins!r}, whose number depends on the elements; a number of bins or their edges are "
            f"needed{at(user_line())}"
        )
    array, bins = ravel(as_traced(trace, a, "histogram")), pinned(bins)
    options: dict[str, Any] = {} if range is None else {"range": tuple(map(float, range))}
    if isinstance(bins, int) or not getattr(bins, "ndim", 1):
        options["bins"] = int(bins)
        if range is not None:
            return _known_edges(trace, array, options)
        return new(trace, result_of("histogram_bin_edges", [array.read()], options, (int(bins) + 1,)))
    if isinstance(bins, list | tuple) and all(type(b) in (int, float) for b in bins):
        return _known_edges(trace, array, {**options, "bins": bins})
    edges = as_traced(trace, bins, "histogram")
    return new(trace, result_of("histogram_bin_edges", [array.read(), edges.read()], options, edges.type.shape))


def _known_edges(trace: Trace, array: TracedArray, options: dict[str, Any]) -> TracedArray:
    """The edges that do not depend on the elements."""
    try:
        return from_known(trace, np.histogram_bin_edges(np.zeros(0, array.dtype), **options))
    except NUMPY_ERRORS as error:
        raise as_own("histogram", error) from None


def _f(function: Any, *arrays: str) -> ApiFunction:
    return ApiFunction(function.__name__, function, arrays, False, getattr(np, function.__name__))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f(unique, "ar"),
    _f(unique_values, "x"),
    _f(unique_counts, "x"),
    _f(unique_inverse, "x"),
    _f(unique_all, "x"),
    _f(lexsort, "keys"),
    _f(histogram, "a", "bins", "weights"),
    _f(histogram2d, "x", "y", "bins", "weights"),
    _f(histogram_bin_edges, "a", "bins", "weights"),
)
