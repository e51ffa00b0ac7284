"""Choices among several: conditions and what each stands for in, one array out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import zeros_like
from tenferro.tracer.api.deliver import new_array
from tenferro.tracer.api.promotion import as_bool, broadcast_operands, chosen, result_type
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.api.writes import setitem
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import pointwise as p
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced, operand

BOOL = np.dtype(np.bool_)


def select(condlist: Any, choicelist: Any, default: Any = 0) -> Any:
    """For each place the choice whose condition is the first to hold, or ``default``."""
    trace = running_trace("select")
    if len(condlist) != len(choicelist) or not len(condlist):
        raise ShapeError(
            f"select: {len(condlist)} conditions for {len(choicelist)} choices; as many, and one or more, are "
            f"needed{at(user_line())}"
        )
    conditions = [operand(trace, c, "select")[0] for c in condlist]
    for k, condition in enumerate(conditions):
        if condition.type.dtype != BOOL:
            raise DtypeError(
                f"select: condition {k} of dtype {condition.type.dtype.name}; bools are needed{at(user_line())}"
            )
    pairs = [operand(trace, x, "select") for x in (*choicelist, default)]
    dtype = result_type([key for _, key in pairs])
    values = [chosen(trace, value, dtype) for value, _ in pairs]
    both = broadcast_operands(trace, "select", [*conditions, *values])
    conditions, values = both[: len(conditions)], both[len(conditions) :]
    found = values[-1]
    for condition, value in zip(reversed(conditions), reversed(values[:-1]), strict=True):
        found = trace.emit1(p.where, condition, value, found)
    shape = max((x.type.shape for x in both), key=len)
    return new_array(trace, build.broadcast(trace, found, shape))


def piecewise(x: Any, condlist: Any, funclist: Any, *args: Any, **kw: Any) -> Any:
    """For each place what belongs to the last condition that holds, in the dtype of ``x``: a number, or what a function
    gives of the elements under the condition; one more than there are conditions is for where none holds."""
    trace = running_trace("piecewise")
    array = as_traced(trace, x, "piecewise")
    conditions = _conditions(trace, array, condlist)
    if len(funclist) == len(conditions) + 1:
        rest = conditions[0]
        for condition in conditions[1:]:
            rest = trace.emit1(p.bitwise_or, rest, condition)
        conditions.append(trace.emit1(p.invert, rest))
    elif len(funclist) != len(conditions):
        raise ShapeError(
            f"piecewise: {len(funclist)} functions for {len(conditions)} conditions; as many, or one more, are "
            f"needed{at(user_line())}"
        )
    found: TracedArray = zeros_like(array)
    for condition, function in zip(conditions, funclist, strict=True):
        if array.ndim:
            mask = new_array(trace, condition)
            setitem(found, mask, function(array[mask], *args, **kw) if callable(function) else function)
            continue
        chosen = operand(trace, function(array, *args, **kw) if callable(function) else function, "piecewise")[0]
        chosen = build.convert(trace, chosen, array.dtype)
        found = new_array(trace, trace.emit1(p.where, condition, chosen, found.read()))
    return found


def _conditions(trace: Trace, array: TracedArray, condlist: Any) -> list[Operand]:
    """Bools of one shape. A single condition, of numbers, may stand by itself; an array is a list of its rows."""
    if isinstance(condlist, list | tuple):
        is_list = any(isinstance(c, list) or getattr(c, "ndim", 0) > 0 for c in condlist[:1])
        is_single = not is_list and (array.ndim > 0 or not condlist)
    else:
        rank = getattr(condlist, "ndim", 0)
        is_single = rank == 0 or (rank == 1 and array.ndim > 0)
    found = [operand(trace, c, "piecewise")[0] for c in ([condlist] if is_single else condlist)]
    return broadcast_operands(trace, "piecewise", [as_bool(trace, c) for c in found])


def _f(name: str, function: Any, arrays: tuple[str, ...]) -> ApiFunction:
    return ApiFunction(name, function, arrays, False, getattr(np, name))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f("select", select, ("condlist", "choicelist", "default")),
    _f("piecewise", piecewise, ("x", "condlist")),
)
