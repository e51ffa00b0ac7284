"""Running results along an axis, by NumPy's names: ``maximum.accumulate`` and its like, as library calls.

In: an array and an axis. Out: for each place the ufunc's result for all elements up to it.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from tenferro.tracer.api.creation import dtype_of
from tenferro.tracer.api.deliver import deliver
from tenferro.tracer.api.layout import axis_of
from tenferro.tracer.api.library import cumprod, result_of
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.api.reductions import cumsum
from tenferro.tracer.errors import DtypeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops.call_rules import ACCUMULATED
from tenferro.tracer.trace import running_trace
from tenferro.tracer.traced import TracedArray, as_traced

RUNNING: dict[str, Callable[..., Any]] = {"add": cumsum, "multiply": cumprod}
"""Of these a running result has a function of its own."""


def _line(name: str, array: Any, axis: Any) -> tuple[TracedArray, int]:
    """The array, and the axis that counts."""
    found = as_traced(running_trace(name), array, name)
    if not found.ndim:
        raise DtypeError(f"{name}: of a number; rank 1 or more is needed{at(user_line())}")
    return found, axis_of(axis, found.ndim, name)


def _accumulate(ufunc: np.ufunc) -> ApiFunction:
    name = f"{ufunc.__name__}.accumulate"
    of_its_own = RUNNING.get(ufunc.__name__)

    def function(array: Any, axis: Any = 0, dtype: Any = None, out: Any = None) -> Any:
        x, k = _line(name, array, axis)
        if of_its_own is not None:
            return of_its_own(x, k, dtype, out[0] if type(out) is tuple else out)
        static: dict[str, Hashable] = {"axis": k} if dtype is None else {"axis": k, "dtype": dtype_of(dtype, name)}
        value = x.read()
        return deliver(running_trace(name), name, result_of(name, [value], static, value.type.shape), out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"``numpy.{name}``: running results along an axis."
    return ApiFunction(name, function, ("array", "out"), False, ufunc.accumulate)


FUNCTIONS: tuple[ApiFunction, ...] = tuple(_accumulate(getattr(np, name)) for name in (*RUNNING, *ACCUMULATED))
