"""Results of NumPy-level functions: an operand in; a new variable, or a write into ``out=``, out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.promotion import aligned, as_bool, broadcast_shapes, shape_mismatch
from tenferro.tracer.errors import DtypeError, MutationError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import pointwise
from tenferro.tracer.program import ArrayType, Operand
from tenferro.tracer.trace import Trace
from tenferro.tracer.traced import TracedArray, fresh, operand


def new(trace: Trace, value: Operand, weak: bool = False) -> TracedArray:
    """A fresh variable; ``weak`` where it stands for a Python scalar."""
    result = fresh(trace, value)
    if weak and not result.type.weak:
        result.type = ArrayType(value.type.dtype, value.type.shape, True)
    elif result.type.weak and not weak:
        result.type = ArrayType(value.type.dtype, value.type.shape)
    return result


def target_of(out: Any, name: str) -> TracedArray:
    """The one array of ``out=``, which must be traced."""
    if type(out) is tuple:
        if len(out) != 1:
            raise TraceError(f"{name}: out has {len(out)} arrays; one is needed{at(user_line())}")
        out = out[0]
    if type(out) is not TracedArray:
        raise MutationError(
            f"{name}: out is an array made outside the trace; write into a traced array, such as numpy.zeros(shape) "
            f"made in the function{at(user_line())}"
        )
    return out


def check_cast(name: str, source: np.dtype[Any], target: np.dtype[Any], casting: Any = "same_kind") -> None:
    """NumPy's rule for what an in-place operation may convert."""
    if not np.can_cast(source, target, casting):
        raise DtypeError(
            f"{name}: result of dtype {source.name} for an array of dtype {target.name}; a cast of kind '{casting}' is "
            f"needed, x = {name}(…) makes a new array{at(user_line())}"
        )


def deliver(trace: Trace, name: str, value: Operand, out: Any = None, where: Any = True, weak: bool = False) -> Any:
    """``value`` as the result of the call, through ``where=`` and ``out=``."""
    if type(out) is tuple and len(out) == 1:
        (out,) = out
    if out is None:
        if where is not True:
            raise TraceError(
                f"{name}: where without out leaves elements undefined; give out, or use numpy.where{at(user_line())}"
            )
        return new(trace, value, weak)
    target = target_of(out, name)
    check_cast(name, value.type.dtype, target.dtype)
    value = build.convert(trace, value, target.dtype)
    shape = target.type.shape
    joined = broadcast_shapes(trace, name, [shape, value.type.shape])
    # A size that must be 1 here may be a symbol: that it is 1 becomes a guard.
    pairs = list(zip(joined, shape, strict=False))
    fits = len(joined) == len(shape) and all(a == b or trace.guard("==", a, b) for a, b in pairs)
    if not fits:
        raise shape_mismatch(trace, name, [shape, value.type.shape])
    value = aligned(trace, value, shape)
    if where is not True:
        condition = as_bool(trace, operand(trace, where, name)[0])
        value = trace.emit1(pointwise.where, aligned(trace, condition, shape), value, target.read())
    target.store(value)
    return target
