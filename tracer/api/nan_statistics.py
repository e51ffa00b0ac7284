"""Statistics that pass over NaNs: an array and axes in, one number for each remaining place out.

Each is a composition of selections and reductions, which fuse into one kernel, and none warns: a row of NaNs alone has
the sum 0, the product 1, and a NaN for the rest; it has no place of a largest or smallest element, which is an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.deliver import deliver, new
from tenferro.tracer.api.layout import axes_of
from tenferro.tracer.api.library import cumprod
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.api.reductions import (
    INT64,
    MAX,
    MIN,
    NOTHING,
    PRODUCT,
    SUM,
    Dtype,
    Extreme,
    Fold,
    chosen_by,
    counted,
    cumsum,
    extreme,
    flag,
    folded,
    mean_of,
    of_bools,
    of_none,
    place_of,
    start_of,
    working_dtype,
)
from tenferro.tracer.api.variance import centre_of, degrees_subtracted, final_dtype, less, spread
from tenferro.tracer.errors import DtypeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Op
from tenferro.tracer.ops import pointwise as p, reductions
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import as_traced


def _numbers(trace: Trace, value: Operand) -> Operand | None:
    """Where the elements are numbers; None for a dtype that has no NaN."""
    return trace.emit1(p.equal, value, value) if value.type.dtype.kind in "fc" else None


def _filled(trace: Trace, value: Operand, numbers: Operand | None, fill: complex) -> Operand:
    """The array with another value in the place of NaNs."""
    if numbers is None:
        return value
    return trace.emit1(p.where, numbers, value, build.literal(fill, value.type.dtype))


def _folded(name: str, fold: Fold, a: Any, *options: Any) -> Any:
    trace = running_trace(name)
    value = as_traced(trace, a, name).read()
    return folded(name, fold, trace, _filled(trace, value, _numbers(trace, value), fold.neutral), *options)


def nansum(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOTHING, initial: Any = NOTHING,
    where: Any = NOTHING,
) -> Any:  # fmt: skip
    """The sum of the numbers over the axes."""
    return _folded("nansum", SUM, a, axis, dtype, out, keepdims, initial, where)


def nanprod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOTHING, initial: Any = NOTHING,
    where: Any = NOTHING,
) -> Any:  # fmt: skip
    """The product of the numbers over the axes."""
    return _folded("nanprod", PRODUCT, a, axis, dtype, out, keepdims, initial, where)


def _chosen(trace: Trace, value: Operand, where: Any, name: str) -> Operand | None:
    """The numbers that ``where=`` leaves in."""
    numbers, asked = _numbers(trace, value), chosen_by(trace, where, value.type.shape, name)
    if numbers is None or asked is None:
        return asked if numbers is None else numbers
    return trace.emit1(p.bitwise_and, numbers, asked)


def _working(name: str, dtype: Dtype, asked: Any, out: Any) -> tuple[Dtype, Dtype]:
    found = working_dtype(dtype, asked, name)
    if dtype.kind in "fc" and out is not None and out.dtype.kind not in "fc":
        raise DtypeError(f"{name}: out of dtype {out.dtype.name}; a floating dtype is needed{at(user_line())}")
    return found


def nanmean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOTHING, *, where: Any = NOTHING
) -> Any:
    """The sum of the numbers divided by how many they are."""
    trace = running_trace("nanmean")
    array = as_traced(trace, a, "nanmean")
    working, result = _working("nanmean", array.dtype, dtype, out)
    value = build.convert(trace, array.read(), working)
    axes = axes_of(axis, array.ndim, "nanmean")
    average = mean_of(trace, value, _chosen(trace, value, where, "nanmean"), axes, flag(keepdims))
    return deliver(trace, "nanmean", build.convert(trace, average, result), out)


def _variance(
    name: str, a: Any, axis: Any, dtype: Any, out: Any, ddof: float, keepdims: Any, where: Any, mean: Any
) -> tuple[Trace, Operand, Dtype]:
    """Σ|x − mean|² / (n − ddof) of the numbers, NaN where n is not above ddof; and the dtype of the result."""
    trace = running_trace(name)
    array = as_traced(trace, a, name)
    working, result = _working(name, array.dtype, dtype, out)
    value = build.convert(trace, array.read(), working)
    axes, shape = axes_of(axis, array.ndim, name), value.type.shape
    chosen = _chosen(trace, value, where, name)
    squares = spread(trace, value, chosen, centre_of(trace, name, mean, value), axes, flag(keepdims))
    real = squares.type.dtype
    count = counted(trace, chosen, shape, axes, flag(keepdims), real)
    if array.dtype.kind not in "fc":
        rest = less(trace, count, ddof)
    else:
        rest = trace.emit1(p.subtract, count, build.literal(ddof, real))
        enough = trace.emit1(p.less, build.literal(0, real), rest)
        rest = trace.emit1(p.where, enough, rest, build.literal(np.nan, real))
    return trace, trace.emit1(p.divide, squares, rest), final_dtype(real, result, dtype)


def nanvar(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = NOTHING, *,
    where: Any = NOTHING, mean: Any = NOTHING, correction: Any = NOTHING,
) -> Any:  # fmt: skip
    """The variance of the numbers; NaN where there are not more of them than ``ddof``."""
    subtracted = degrees_subtracted("nanvar", ddof, correction)
    trace, value, result = _variance("nanvar", a, axis, dtype, out, subtracted, keepdims, where, mean)
    return deliver(trace, "nanvar", build.convert(trace, value, result), out)


def nanstd(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = NOTHING, *,
    where: Any = NOTHING, mean: Any = NOTHING, correction: Any = NOTHING,
) -> Any:  # fmt: skip
    """The square root of the variance of the numbers."""
    subtracted = degrees_subtracted("nanstd", ddof, correction)
    trace, value, result = _variance("nanstd", a, axis, dtype, out, subtracted, keepdims, where, mean)
    return deliver(trace, "nanstd", build.convert(trace, trace.emit1(p.sqrt, value), result), out)


def _extreme(name: str, kind: Extreme, a: Any, axis: Any, out: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    trace = running_trace(name)
    value = as_traced(trace, a, name).read()
    if value.type.dtype.kind not in "fc":
        return extreme(name, kind, trace, value, axis, out, keepdims, initial, where)
    axes = axes_of(axis, len(value.type.shape), name)
    start = start_of(trace, name, initial, where, value.type.dtype)
    found = of_none(trace, name, value, axes, flag(keepdims), start)
    if found is None:
        found = _largest(trace, kind, value, _chosen(trace, value, where, name), axes, flag(keepdims), start)
    return deliver(trace, name, found, out)


def _largest(
    trace: Trace, kind: Extreme, value: Operand, chosen: Operand | None, axes: tuple[int, ...], keepdims: bool,
    start: Operand | None,
) -> Operand:  # fmt: skip
    """The extreme of the chosen numbers and ``start``; without any the start itself, NaN where there is none."""
    dtype = value.type.dtype
    is_complex = dtype.kind == "c"
    filled = _filled(trace, value, chosen, complex(kind.fill, kind.fill) if is_complex else kind.fill)
    found: Operand = trace.emit1(kind.row, filled, axes=axes, keepdims=keepdims)
    assert chosen is not None
    some = of_bools(trace, reductions.max_, chosen, axes, keepdims)
    if start is None:
        nan = build.literal(complex(np.nan, np.nan) if is_complex else np.nan, dtype)
        return trace.emit1(p.where, some, found, nan)
    both = trace.emit1(kind.pair, found, start)
    best = trace.emit1(p.where, trace.emit1(p.equal, start, start), both, found)
    return trace.emit1(p.where, some, best, start)


def nanmax(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOTHING, initial: Any = NOTHING, where: Any = NOTHING
) -> Any:
    """The largest number; an empty axis is a ShapeError."""
    return _extreme("nanmax", MAX, a, axis, out, keepdims, initial, where)


def nanmin(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOTHING, initial: Any = NOTHING, where: Any = NOTHING
) -> Any:
    """The smallest number; an empty axis is a ShapeError."""
    return _extreme("nanmin", MIN, a, axis, out, keepdims, initial, where)


def _place(name: str, op: Op, fill: float, a: Any, axis: Any, out: Any, keepdims: Any) -> Any:
    trace = running_trace(name)
    value = as_traced(trace, a, name).read()
    numbers = _numbers(trace, value)
    found = place_of(trace, name, op, _filled(trace, value, numbers, fill), axis, keepdims)
    if numbers is not None:
        some = of_bools(trace, reductions.max_, numbers, axes_of(axis, len(value.type.shape), name), flag(keepdims))
        found = trace.emit1(p.required, found, build.convert(trace, some, INT64), name=name, reason="NaN")
    return deliver(trace, name, found, out)


def nanargmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NOTHING) -> Any:
    """The index of the first largest number; a row of NaNs alone is a ShapeError when the program runs."""
    return _place("nanargmax", reductions.argmax, -np.inf, a, axis, out, keepdims)


def nanargmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NOTHING) -> Any:
    """The index of the first smallest number; a row of NaNs alone is a ShapeError when the program runs."""
    return _place("nanargmin", reductions.argmin, np.inf, a, axis, out, keepdims)


def nancumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Running sums of the numbers along an axis (None: of the flattened array), as a library call."""
    return _running("nancumsum", cumsum, 0, a, axis, dtype, out)


def nancumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Running products of the numbers along an axis (None: of the flattened array), as a library call."""
    return _running("nancumprod", cumprod, 1, a, axis, dtype, out)


def _running(name: str, running: Callable[..., Any], fill: int, a: Any, axis: Any, dtype: Any, out: Any) -> Any:
    trace = running_trace(name)
    value = as_traced(trace, a, name).read()
    return running(new(trace, _filled(trace, value, _numbers(trace, value), fill)), axis, dtype, out)


def _f(function: Callable[..., Any], *arrays: str) -> ApiFunction:
    return ApiFunction(function.__name__, function, ("a", "out", *arrays), False, getattr(np, function.__name__))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f(nansum, "initial", "where"),
    _f(nanprod, "initial", "where"),
    _f(nanmean, "where"),
    _f(nanvar, "where", "mean"),
    _f(nanstd, "where", "mean"),
    _f(nanmax, "initial", "where"),
    _f(nanmin, "initial", "where"),
    _f(nancumsum),
    _f(nancumprod),
    _f(nanargmax),
    _f(nanargmin),
)
