"""Averages and counts: values and their weights in, one number for each remaining place, or each value, out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import extents_of, of_integers
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.layout import axes_as_named
from tenferro.tracer.api.promotion import aligned, result_type
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.api.reductions import INT64, NOTHING, flag, mean, number
from tenferro.tracer.dims import is_runtime, product
from tenferro.tracer.errors import DivisionError, DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import library, pointwise as p, reductions
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced

DOUBLE = np.dtype(np.float64)


def average(
    a: Any, axis: Any = None, weights: Any = None, returned: bool = False, *, keepdims: Any = NOTHING
) -> Any:  # fmt: skip
    """Σ w a / Σ w over the axes, the mean without weights; with ``returned`` the sum of weights too. Where weights sum
    to 0 there is a DivisionError when the program runs, and one where there are neither weights nor results."""
    trace = running_trace("average")
    array = as_traced(trace, a, "average")
    axes = axes_as_named(axis, array.ndim, "average")
    if weights is None:
        _require_results(trace, array, axes)
        found = mean(array, tuple(axes), keepdims=keepdims)
        count = number(trace, product(array.type.shape[k] for k in axes), found.dtype)
        return (found, _spread_out(trace, count, found)) if returned else found
    weight = _weights(trace, array, as_traced(trace, weights, "average"), axes, axis is None)
    wider = [DOUBLE] if array.dtype.kind in "biu" else []
    dtype = result_type([array.dtype, weight.type.dtype, *wider])
    options: dict[str, Any] = {"axes": tuple(sorted(axes)), "keepdims": flag(keepdims)}
    weight = build.convert(trace, weight, dtype)
    scale = trace.emit1(reductions.sum_, weight, **options)
    weighted = trace.emit1(
        p.multiply, build.convert(trace, array.read(), dtype), aligned(trace, weight, array.type.shape)
    )
    total = trace.emit1(reductions.sum_, weighted, **options)
    shape = total.type.shape
    whole = trace.emit1(p.divide, total, aligned(trace, scale, shape))
    is_some: Operand = trace.emit1(p.not_equal, scale, build.literal(0, dtype))
    is_some = build.broadcast(trace, build.convert(trace, is_some, INT64), shape)
    found = new(trace, trace.emit1(p.required, whole, is_some, name="average", reason="weights"))
    return (found, _spread_out(trace, scale, found)) if returned else found


def _require_results(trace: Trace, array: TracedArray, axes: list[int]) -> None:
    """A DivisionError where there is no result: NumPy divides the elements by their number, to know the weights."""
    kept = [n for k, n in enumerate(array.type.shape) if k not in axes]
    if not all(is_runtime(n) or trace.guard("<", 0, n) for n in kept):
        raise DivisionError(
            f"average: no results of an array of shape {tuple(map(trace.hint, array.type.shape))}; numpy.mean gives "
            f"none{at(user_line())}"
        )


def bincount(x: Any, /, weights: Any = None, minlength: Any = 0) -> Any:
    """How often each number from 0 to the largest occurs, or the sum of its weights; at least ``minlength`` numbers.
    How many there are is known when the program has run."""
    trace = running_trace("bincount")
    operands = [_vector(trace, x)]
    if weights is not None:
        operands.append(_vector(trace, weights))
        if not trace.guard("==", *(v.type.shape[0] for v in operands)):
            raise ShapeError(
                f"bincount: {trace.hint(operands[0].type.shape[0])} numbers and "
                f"{trace.hint(operands[1].type.shape[0])} weights; equal sizes are needed{at(user_line())}"
            )
        size = operands[0].type.shape[0]
        if not is_runtime(size) and trace.guard("==", size, 0):
            operands.pop()  # NumPy counts nothing in integers, whatever the weights
    (least,) = extents_of(minlength, "bincount")
    extent = trace.runtime_extent(operands[0], "bincount", least)
    trace.promised(least, extent)
    return new(trace, trace.emit1(library.bincount, *operands, minlength=least, extent=extent))


def _vector(trace: Trace, x: Any) -> Operand:
    array = as_traced(trace, of_integers(trace, x), "bincount")
    if array.ndim != 1:
        raise ShapeError(f"bincount: rank {array.ndim}; rank 1 is needed{at(user_line())}")
    found: Operand = array.read()
    return found


def _spread_out(trace: Trace, value: Operand, like: TracedArray) -> TracedArray:
    shape = like.type.shape
    return new(trace, build.copied(trace, build.broadcast(trace, value, shape)) if shape else value)


def _weights(trace: Trace, array: TracedArray, weight: TracedArray, axes: list[int], all_axes: bool) -> Operand:
    """The weights with axes of size 1 where they repeat: they have the array's shape, or that of the axes, in the order
    in which these are named."""
    shape, own = array.type.shape, weight.type.shape
    if len(own) == len(shape) and all(trace.guard("==", n, m) for n, m in zip(own, shape, strict=True)):
        return weight.read()
    if all_axes:
        raise DtypeError(f"average: weights of another shape than the array's; an axis is needed{at(user_line())}")
    named = [shape[k] for k in axes]
    if len(own) != len(named) or not all(trace.guard("==", n, m) for n, m in zip(own, named, strict=True)):
        raise ShapeError(
            f"average: weights of shape {tuple(map(trace.hint, own))} for axes of sizes "
            f"{tuple(map(trace.hint, named))}; equal ones are needed{at(user_line())}"
        )
    moved = build.transpose(trace, weight.read(), [axes.index(k) for k in sorted(axes)])
    return build.reshape(trace, moved, tuple(n if k in axes else 1 for k, n in enumerate(shape)))


FUNCTIONS: tuple[ApiFunction, ...] = (
    ApiFunction("average", average, ("a", "weights"), False, np.average),
    ApiFunction("bincount", bincount, ("x", "weights"), False, np.bincount),
)
