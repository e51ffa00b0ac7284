"""Sums and differences along axes: arrays of samples in, integrals, slopes, running sums and polynomials out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.deliver import deliver, new
from tenferro.tracer.api.elementwise import BY_UFUNC, where
from tenferro.tracer.api.joining import concatenate
from tenferro.tracer.api.layout import atleast_1d, axes_as_named, axis_of
from tenferro.tracer.api.library import cumprod
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.api.reductions import cumsum, diff, sum_
from tenferro.tracer.dim import integer
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced

DOUBLE = np.dtype(np.float64)
_multiply: Callable[..., Any] = BY_UFUNC[np.multiply].function


def _at(axis: int, part: Any) -> tuple[Any, ...]:
    """The key of a part along an axis."""
    return (*(slice(None),) * axis, part)


def trapezoid(y: Any, x: Any = None, dx: Any = 1.0, axis: Any = -1) -> Any:
    """The integral along an axis by the trapezoidal rule: Σ d (y[1:] + y[:-1]) / 2."""
    trace = running_trace("trapezoid")
    values = as_traced(trace, y, "trapezoid")
    k = axis_of(axis, values.ndim, "trapezoid")
    upper, lower = values[_at(k, slice(1, None))], values[_at(k, slice(None, -1))]
    if x is None:
        return sum_(_multiply(dx, upper + lower) / 2.0, k)
    places = as_traced(trace, x, "trapezoid")
    if places.ndim != 1:
        return sum_(_multiply(diff(places, axis=axis), upper + lower) / 2.0, k)
    if not trace.guard("==", places.type.shape[0], values.type.shape[k]):
        raise _uneven(trace, "trapezoid", "x", places, values, k)
    return sum_(_along(diff(places), values.ndim, k) * (upper + lower) / 2.0, k)


def _uneven(
    trace: Trace, name: str, what: str, places: TracedArray, values: TracedArray, axis: int
) -> ShapeError:  # fmt: skip
    return ShapeError(
        f"{name}: {what} of size {trace.hint(places.type.shape[0])} along axis {axis} of size "
        f"{trace.hint(values.type.shape[axis])}; equal sizes are needed{at(user_line())}"
    )


def _along(vector: TracedArray, rank: int, axis: int) -> TracedArray:
    """A vector that broadcasts along one axis."""
    found: TracedArray = vector[(slice(None), *(None,) * (rank - 1 - axis))]
    return found


# -- slopes ----------------------------------------------------------------------------------------------------------


def gradient(f: Any, *varargs: Any, axis: Any = None, edge_order: Any = 1) -> Any:
    """Central differences inside, differences of ``edge_order`` at the ends: one array for an axis, else a tuple.
    Distances are numbers, or the coordinates along each axis."""
    trace = running_trace("gradient")
    values = as_traced(trace, f, "gradient")
    axes = axes_as_named(axis, values.ndim, "gradient")
    order = integer(edge_order, "gradient", "edge_order")
    if order not in (1, 2):
        raise ShapeError(f"gradient: edge_order {order}; 1 or 2 is needed{at(user_line())}")
    steps = _steps(trace, values, axes, varargs)
    if values.dtype.kind in "iu":
        values = values.astype(DOUBLE)
    slopes = tuple(_slope(trace, values, k, step, order) for k, step in zip(axes, steps, strict=True))
    return slopes[0] if len(axes) == 1 else slopes


def _steps(trace: Trace, values: TracedArray, axes: Sequence[int], given: Sequence[Any]) -> list[Any]:
    """For each axis a number, or the distances between neighbours as a vector."""
    arrays: list[Any] = [x if isinstance(x, int | float) else as_traced(trace, x, "gradient") for x in given]
    if not arrays:
        arrays = [1.0] * len(axes)
    elif len(arrays) == 1 and not getattr(arrays[0], "ndim", 0):
        arrays *= len(axes)
    if len(arrays) != len(axes):
        raise DtypeError(f"gradient: {len(arrays)} distances for {len(axes)} axes; one each is needed{at(user_line())}")
    found: list[Any] = []
    for x, k in zip(arrays, axes, strict=True):
        rank = getattr(x, "ndim", 0)
        if rank > 1:
            raise ShapeError(f"gradient: distances of rank {rank}; numbers or vectors are needed{at(user_line())}")
        if not rank:
            found.append(x)
            continue
        if not trace.guard("==", x.type.shape[0], values.type.shape[k]):
            raise _uneven(trace, "gradient", "coordinates", x, values, k)
        found.append(diff(x.astype(DOUBLE) if x.dtype.kind in "iu" else x))
    return found


def _slope(trace: Trace, f: TracedArray, axis: int, step: Any, order: int) -> TracedArray:
    if not trace.guard("<=", order + 1, f.type.shape[axis]):
        raise ShapeError(
            f"gradient: axis {axis} of size {trace.hint(f.type.shape[axis])}; {order + 1} elements, edge_order + 1, or "
            f"more are needed{at(user_line())}"
        )

    def part(start: int | None, stop: int | None) -> TracedArray:
        found: TracedArray = f[_at(axis, slice(start, stop))]
        return found

    result = f.dtype if f.dtype.kind in "fc" else DOUBLE
    is_first, is_last = _ends(trace, f, axis)
    is_even = not getattr(step, "ndim", 0)
    if is_even and order == 1:
        # The neighbours of an end are the end itself and the one beside it: one difference for all.
        rise = concatenate([part(1, None), part(-1, None)], axis) - concatenate([part(0, 1), part(None, -1)], axis)
        slope = where(is_first | is_last, rise / step, rise / (2.0 * step))
        return new(trace, build.convert(trace, slope.read(), result))
    first, last = [part(0, 1), part(1, 2)], [part(-2, -1), part(-1, None)]
    if order == 2:
        first, last = [*first, part(2, 3)], [part(-3, -2), *last]
    below, above = _moved(trace, part(None, -1), axis, 1), _moved(trace, part(1, None), axis, -1)
    if is_even:
        inner, ends = (above - below) / (2.0 * step), _even_ends(first, last, step)
    else:
        gaps = [_along(_moved(trace, step, 0, side), f.ndim, axis) for side in (1, -1)]
        inner, ends = _uneven_slopes((below, f, above), *gaps), _uneven_ends(first, last, step)
    low, inner, high = (new(trace, build.convert(trace, x.read(), result)) for x in (ends[0], inner, ends[1]))
    made: TracedArray = where(is_first, low, where(is_last, high, inner))
    return made


def _ends(trace: Trace, f: TracedArray, axis: int) -> tuple[TracedArray, TracedArray]:
    """Where the first and the last element along the axis are."""
    place = new(trace, trace.emit1(layout.iota, shape=f.type.shape, axis=axis))
    return place == 0, place == f.shape[axis] - 1


def _moved(trace: Trace, x: TracedArray, axis: int, side: int) -> TracedArray:
    """One element longer: moved up behind a zero, or with a zero at the end; nobody reads what belongs to no inner
    element."""
    low = tuple(int(k == axis and side > 0) for k in range(x.ndim))
    high = tuple(int(k == axis and side < 0) for k in range(x.ndim))
    return new(trace, trace.emit1(layout.pad, x.read(), build.literal(0, x.dtype), low=low, high=high))


def _even_ends(first: Sequence[TracedArray], last: Sequence[TracedArray], step: Any) -> list[Any]:
    """The slopes at the first and the last point, from two points or, of second order, from three."""
    if len(first) == 2:
        return [(first[1] - first[0]) / step, (last[1] - last[0]) / step]
    return [
        -1.5 / step * first[0] + 2.0 / step * first[1] + -0.5 / step * first[2],
        0.5 / step * last[0] + -2.0 / step * last[1] + 1.5 / step * last[2],
    ]


def _uneven_slopes(f: Sequence[TracedArray], low: TracedArray, high: TracedArray) -> Any:
    """The slope at the middle of three points, of second order."""
    both = low + high
    a, b, c = -high / (low * both), (high - low) / (low * high), low / (high * both)
    return a * f[0] + b * f[1] + c * f[2]


def _uneven_ends(first: Sequence[TracedArray], last: Sequence[TracedArray], step: TracedArray) -> list[Any]:
    """``_even_ends`` for the distances ``step`` between neighbours."""
    if len(first) == 2:
        return [(first[1] - first[0]) / step[0], (last[1] - last[0]) / step[-1]]
    low, high = step[0], step[1]
    both = low + high
    a, b, c = -(2.0 * low + high) / (low * both), both / (low * high), -low / (high * both)
    found = [a * first[0] + b * first[1] + c * first[2]]
    low, high = step[-2], step[-1]
    both = low + high
    a, b, c = high / (low * both), -both / (low * high), (2.0 * high + low) / (high * both)
    return [*found, a * last[0] + b * last[1] + c * last[2]]


# -- running sums ----------------------------------------------------------------------------------------------------


def cumulative_sum(
    x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False
) -> Any:
    """Running sums along an axis, which a vector need not name; with ``include_initial`` from 0 on."""
    return _cumulative("cumulative_sum", cumsum, 0, x, axis, dtype, out, include_initial)


def cumulative_prod(
    x: Any, /, *, axis: Any = None, dtype: Any = None, out: Any = None, include_initial: bool = False
) -> Any:
    """Running products along an axis, which a vector need not name; with ``include_initial`` from 1 on."""
    return _cumulative("cumulative_prod", cumprod, 1, x, axis, dtype, out, include_initial)


def _cumulative(
    name: str, running: Callable[..., Any], start: int, x: Any, axis: Any, dtype: Any, out: Any, include_initial: bool
) -> Any:  # fmt: skip
    trace = running_trace(name)
    array = atleast_1d(as_traced(trace, x, name))
    if axis is None and array.ndim > 1:
        raise ShapeError(f"{name}: rank {array.ndim}; an axis is needed{at(user_line())}")
    k = 0 if axis is None else axis_of(axis, array.ndim, name)
    found = running(array, k, dtype)
    if include_initial:
        shape = tuple(1 if j == k else n for j, n in enumerate(found.type.shape))
        first = new(trace, build.broadcast(trace, build.literal(start, found.dtype), shape))
        found = concatenate([first, found], k)
    return found if out is None else deliver(trace, name, found.read(), out)


def polyval(p: Any, x: Any) -> Any:
    """The polynomial with coefficients ``p``, that of the highest power first, by Horner's rule; pins their number."""
    trace = running_trace("polyval")
    coefficients, places = as_traced(trace, p, "polyval"), as_traced(trace, x, "polyval")
    if coefficients.ndim == 0:
        raise DtypeError(f"polyval: coefficients of rank 0; an array of them is needed{at(user_line())}")
    count = trace.concrete(coefficients.type.shape[0], "polyval")
    value = new(trace, build.broadcast(trace, build.literal(0, places.dtype), places.type.shape))
    for k in range(count):
        value = value * places + coefficients[k]
    return value


def _f(name: str, function: Any, arrays: tuple[str, ...]) -> ApiFunction:
    return ApiFunction(name, function, arrays, False, getattr(np, name))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f("trapezoid", trapezoid, ("y", "x", "dx")),
    _f("gradient", gradient, ("f", "varargs")),
    _f("cumulative_sum", cumulative_sum, ("x", "out")),
    _f("cumulative_prod", cumulative_prod, ("x", "out")),
    _f("polyval", polyval, ("p", "x")),
)
