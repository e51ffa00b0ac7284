"""Conversions between dtypes: of numbers (``astype``) and of bits (``view``).

In: an array and a dtype. Out: a new array, or another array over the same memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import dtype_of
from tenferro.tracer.api.deliver import check_cast, new
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.cells import Cast
from tenferro.tracer.errors import DtypeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import pointwise as p
from tenferro.tracer.trace import running_trace
from tenferro.tracer.traced import as_traced


def astype(x: Any, dtype: Any, /, *, copy: bool = True, casting: Any = "unsafe") -> Any:
    """Convert; float to int saturates, NaN gives 0. Fresh unless ``copy`` is False and nothing changes."""
    trace = running_trace("astype")
    array = as_traced(trace, x, "astype")
    target = dtype_of(dtype, "astype")
    check_cast("astype", array.dtype, target, casting)
    if target == array.dtype:
        if not copy and not array.type.weak:
            return array
        return new(trace, build.copied(trace, array.read()), scalar=array._scalar)
    if array.dtype.kind == "c" and target.kind not in "cb":
        raise DtypeError(f"astype: {array.dtype.name} to {target.name}; x.real or abs(x) is needed{at(user_line())}")
    return new(trace, build.convert(trace, array.read(), target), scalar=array._scalar)


def _astype_of_numpy(x: Any, dtype: Any, *, copy: bool = True, casting: Any = "unsafe") -> Any:
    return x.astype(dtype, copy=copy, casting=casting)


def view(x: Any, dtype: Any = None, /) -> Any:
    """The same memory read as a dtype of equal width; another array over it where no dtype is given."""
    trace = running_trace("view")
    array = as_traced(trace, x, "view")
    target = array.dtype if dtype is None else dtype_of(dtype, "view")
    if not np.dtype(dtype or target).isnative:
        raise _no_view(array.dtype, np.dtype(dtype))
    if target == array.dtype:
        return array if array._scalar else array[...]
    if target.itemsize != array.dtype.itemsize or "c" in (target.kind, array.dtype.kind):
        raise _no_view(array.dtype, target)
    if array._scalar:
        return new(trace, trace.emit1(p.bitcast, array.read(), dtype=target))
    return array.stepped(Cast(target), array.type.shape, target)


def _no_view(source: np.dtype[Any], target: np.dtype[Any]) -> DtypeError:
    return DtypeError(
        f"view: {source} as {target}; a real dtype of equal width is needed, x.astype(dtype) converts the "
        f"numbers{at(user_line())}"
    )


def _view_of_numpy(x: Any, dtype: Any = None) -> Any:
    return x.view() if dtype is None else x.view(dtype)


FUNCTIONS: tuple[ApiFunction, ...] = (
    ApiFunction("astype", astype, ("x",), True, _astype_of_numpy),
    ApiFunction("view", view, ("x",), True, _view_of_numpy),
)
