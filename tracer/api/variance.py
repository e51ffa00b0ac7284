"""Variances: an array and axes in, the mean of squared deviations from the mean, or its root, out.

Without ``where=`` and ``mean=`` the sum of squares is a reduction of its own, in two passes over each chunk; else a
composition of sums, which is one kernel too.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.deliver import deliver
from tenferro.tracer.api.layout import axes_of
from tenferro.tracer.api.promotion import broadcast_into, converted
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.api.reductions import (
    HALF,
    NOTHING,
    Dtype,
    chosen_by,
    counted,
    flag,
    mean_of,
    number,
    working_dtype,
)
from tenferro.tracer.dims import maximum, sub
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import pointwise as p, reductions
from tenferro.tracer.program import DimScalar, Literal, Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import as_traced, operand


def degrees_subtracted(name: str, ddof: Any, correction: Any) -> float:
    """``ddof=``, or the array API's word for it, as a number."""
    if correction is not NOTHING:
        if ddof != 0:
            raise ShapeError(f"{name}: ddof and correction; one of them is needed{at(user_line())}")
        ddof = correction
    if not hasattr(type(ddof), "__float__") or getattr(ddof, "ndim", False):
        raise DtypeError(f"{name}: ddof {ddof!r}; a number is needed{at(user_line())}")
    return float(ddof)


def centre_of(trace: Trace, name: str, mean: Any, value: Operand) -> Operand | None:
    """``mean=`` in the dtype and shape of the array; None where it is to be computed."""
    if mean is NOTHING or mean is None:
        return None
    found, _ = operand(trace, mean, name)
    if found.type.dtype.kind == "c" != value.type.dtype.kind:
        raise DtypeError(f"{name}: mean {found.type.dtype.name}; real numbers are needed{at(user_line())}")
    found = converted(trace, found, value.type.dtype, name)
    return build.broadcast(trace, broadcast_into(trace, name, found, value.type.shape), value.type.shape)


def spread(
    trace: Trace, value: Operand, chosen: Operand | None, centre: Operand | None, axes: tuple[int, ...], keepdims: bool
) -> Operand:
    """Σ|x − centre|² of the chosen elements; their mean where no centre is given."""
    if chosen is None and centre is None:
        return trace.emit1(reductions.squared_deviations, value, axes=axes, keepdims=keepdims)
    if centre is None:
        centre = build.broadcast(trace, mean_of(trace, value, chosen, axes, True), value.type.shape)
    square = _square(trace, trace.emit1(p.subtract, value, centre))
    if chosen is not None:
        square = trace.emit1(p.where, chosen, square, build.literal(0, square.type.dtype))
    return trace.emit1(reductions.sum_, square, axes=axes, keepdims=keepdims)


def _square(trace: Trace, x: Operand) -> Operand:
    """|x|² as a real number."""
    if x.type.dtype.kind != "c":
        return trace.emit1(p.multiply, x, x)
    parts = [trace.emit1(op, x) for op in (p.real, p.imag)]
    return trace.emit1(p.add, *(trace.emit1(p.multiply, part, part) for part in parts))


def _variance(
    name: str, a: Any, axis: Any, dtype: Any, ddof: float, keepdims: Any, where: Any, mean: Any
) -> tuple[Trace, Operand, Dtype]:
    """Σ|x − mean|² / max(n − ddof, 0), and the dtype of the result."""
    trace = running_trace(name)
    array = as_traced(trace, a, name)
    working, result = working_dtype(array.dtype, dtype, name)
    value = build.convert(trace, array.read(), working)
    axes, shape = axes_of(axis, array.ndim, name), value.type.shape
    chosen = chosen_by(trace, where, shape, name)
    squares = spread(trace, value, chosen, centre_of(trace, name, mean, value), axes, flag(keepdims))
    real = squares.type.dtype
    count = less(trace, counted(trace, chosen, shape, axes, flag(keepdims), real), ddof)
    return trace, trace.emit1(p.divide, squares, count), final_dtype(real, result, dtype)


def final_dtype(real: Dtype, result: Dtype, asked: Any) -> Dtype:
    """Real for complex arrays, unless a complex dtype was asked for."""
    return result if result == HALF or asked is not None else real


def less(trace: Trace, count: Operand, ddof: float) -> Operand:
    """max(count − ddof, 0)."""
    real = count.type.dtype
    if ddof == 0:
        return count
    if isinstance(count, Literal):
        return build.literal(max(count.value.real - ddof, 0), real)
    if isinstance(count, DimScalar) and ddof.is_integer():
        return number(trace, maximum(sub(count.expr, int(ddof)), 0), real)
    rest = trace.emit1(p.subtract, count, build.literal(ddof, real))
    return trace.emit1(p.maximum, rest, build.literal(0, real))


def var(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = NOTHING, *,
    where: Any = NOTHING, mean: Any = NOTHING, correction: Any = NOTHING,
) -> Any:  # fmt: skip
    """The variance, Σ|x − mean|² / (n − ddof); real for complex arrays."""
    subtracted = degrees_subtracted("var", ddof, correction)
    trace, value, result = _variance("var", a, axis, dtype, subtracted, keepdims, where, mean)
    return deliver(trace, "var", build.convert(trace, value, result), out)


def std(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = NOTHING, *,
    where: Any = NOTHING, mean: Any = NOTHING, correction: Any = NOTHING,
) -> Any:  # fmt: skip
    """The square root of the variance."""
    subtracted = degrees_subtracted("std", ddof, correction)
    trace, value, result = _variance("std", a, axis, dtype, subtracted, keepdims, where, mean)
    return deliver(trace, "std", build.convert(trace, trace.emit1(p.sqrt, value), result), out)


FUNCTIONS: tuple[ApiFunction, ...] = (
    ApiFunction("var", var, ("a", "out", "where", "mean"), False, np.var),
    ApiFunction("std", std, ("a", "out", "where", "mean"), False, np.std),
)
