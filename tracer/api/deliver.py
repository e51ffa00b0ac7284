"""Results of NumPy-level functions: an operand in; a new variable, or a write into ``out=``, out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build, complaints
from tenferro.tracer.api.promotion import as_bool, broadcast_into
from tenferro.tracer.api.record import API
from tenferro.tracer.errors import DtypeError, MutationError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import pointwise
from tenferro.tracer.program import ArrayType, Operand
from tenferro.tracer.trace import Trace, is_tenferro_array
from tenferro.tracer.traced import TracedArray, as_traced, fresh, operand


def new(trace: Trace, value: Operand, *, scalar: bool | None = None) -> TracedArray:
    """A fresh variable of NumPy's own: at rank 0 a NumPy scalar, unless ``scalar`` is False."""
    result = fresh(trace, value, scalar=scalar)
    if result.type.weak:
        result.type = ArrayType(value.type.dtype, value.type.shape)
    return result


def strengthened(trace: Trace, x: Any, name: str) -> TracedArray:
    """``x`` as the array that some functions make of an argument before they compute: a Python number has NumPy's own
    dtype there, and gives way to none."""
    array: TracedArray = as_traced(trace, x, name)
    return new(trace, array.read()) if array.type.weak else array


def numbers_of(trace: Trace, x: Any, name: str) -> np.ndarray[Any, Any] | None:
    """Numbers, lists or arrays as an array of what they hold in this call, which the program relies on; None where an
    argument of the traced function takes part."""
    if not isinstance(x, np.ndarray) and not is_tenferro_array(x):
        found = np.asarray(x)
        return found if found.dtype != object else None
    array = as_traced(trace, x, name)
    known: np.ndarray[Any, Any] | None = array._known_number(name)
    if known is not None:
        array._keep_slope(name)
    return known


def new_array(trace: Trace, value: Operand) -> TracedArray:
    """A fresh variable that is an array at rank 0 too, as what NumPy's conversions make."""
    return new(trace, value, scalar=False)


def target_of(out: Any, name: str) -> TracedArray:
    """The one array of ``out=``, which must be traced."""
    if type(out) is tuple:
        if len(out) != 1:
            raise TraceError(f"{name}: out has {len(out)} arrays; one is needed{at(user_line())}")
        out = out[0]
    if isinstance(out, np.generic | int | float | complex) or getattr(out, "_scalar", False):
        raise complaints.scalar_write(name)
    if type(out) is not TracedArray:
        raise MutationError(
            f"{name}: out is an array made outside the trace; write into a traced array, such as numpy.zeros(shape) "
            f"made in the function{at(user_line())}"
        )
    return out


def check_cast(name: str, source: np.dtype[Any], target: np.dtype[Any], casting: Any = "same_kind") -> None:
    """NumPy's rule for what may be converted; ValueError for a rule that NumPy has not."""
    if casting == "same_value":
        raise TraceError(
            f"{name}: casting 'same_value', which asks the elements; 'no', 'equiv', 'safe', 'same_kind' or 'unsafe' is "
            f"needed{at(user_line())}"
        )
    if not np.can_cast(source, target, casting):
        raise DtypeError(
            f"{name}: result of dtype {source.name} for an array of dtype {target.name}; a cast of kind '{casting}' is "
            f"needed, x = {name}(…) makes a new array{at(user_line())}"
        )


# Beside the ufuncs, whose results NumPy stretches to ``out``.
_STRETCHED = frozenset({"clip", "quantile", "percentile", "outer", "vecdot", "copyto"})


COMPUTED_IN_OUT = frozenset({"sum", "prod", "nansum", "nanprod"})
"""Without ``dtype=`` they compute in the dtype of ``out``."""


def stretches(name: str) -> bool:
    """Whether NumPy broadcasts the function's result to ``out``; for the others the shapes must be equal."""
    ufunc = API[name].reference if name in API else None
    return name in _STRETCHED or (isinstance(ufunc, np.ufunc) and ufunc.signature is None)


def deliver(
    trace: Trace, name: str, value: Operand, out: Any = None, where: Any = True, casting: Any = "same_kind"
) -> Any:
    """``value`` as the result of the call, through ``where=`` and ``out=``."""
    if type(out) is tuple and len(out) == 1:
        (out,) = out
    if out is None:
        if where is not True:
            raise TraceError(
                f"{name}: where without out leaves elements undefined; give out, or use numpy.where{at(user_line())}"
            )
        return new(trace, value)
    target = target_of(out, name)
    check_cast(name, value.type.dtype, target.dtype, casting)
    condition = None if where is True else as_bool(trace, operand(trace, where, name)[0])
    value = broadcast_into(trace, name, build.convert(trace, value, target.dtype), target.type.shape, stretches(name))
    if condition is not None:
        condition = broadcast_into(trace, name, condition, target.type.shape)
        value = trace.emit1(pointwise.where, condition, value, target.read())
    target.store(value)
    return target
