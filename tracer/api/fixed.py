"""NumPy functions of fixed result shape that have no rule of their own: library calls with the sizes of this call.

In: arrays in front, static arguments behind. Out: one array whose shape and dtype NumPy has told, on ones of the same
shapes. The sizes are pinned, so each new size is a new program.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.dim import pinned
from tenferro.tracer.errors import DtypeError, TraceError
from tenferro.tracer.foreign import NUMPY_ERRORS, as_own
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import library
from tenferro.tracer.program import Operand
from tenferro.tracer.standing import silently
from tenferro.tracer.trace import Trace, is_supported, running_trace
from tenferro.tracer.traced import TracedArray, operand

# The leading parameters that hold arrays; the result's shape depends on shapes and static arguments alone.
_ARRAYS: dict[str, tuple[str, ...]] = {
    "interp": ("x", "xp", "fp"),
    "searchsorted": ("a", "v"),
    "digitize": ("x", "bins"),
    "convolve": ("a", "v"),
    "correlate": ("a", "v"),
    "cross": ("a", "b"),
    "kron": ("a", "b"),
    "cov": ("m",),
    "corrcoef": ("x",),
    "nanmedian": ("a",),
    "nancumsum": ("a",),
    "unwrap": ("p",),
    "sinc": ("x",),
    "i0": ("x",),
    "partition": ("a",),
    "argpartition": ("a",),
    "vander": ("x",),
    "ediff1d": ("ary",),
}


def _made(name: str) -> Callable[..., Any]:
    original = getattr(np, name)
    signature = inspect.signature(original)

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise DtypeError(f"{name}: {error}{at(user_line())}") from None
        arrays = [given.pop(p) for p in _ARRAYS[name] if p in given]
        return _call(name, arrays, {k: v for k, v in given.items() if v is not signature.parameters[k].default})

    function.__name__ = name
    function.__doc__ = f"``numpy.{name}`` as a library call; pins the sizes of its arrays."
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _call(name: str, arrays: list[Any], static: dict[str, Hashable]) -> Any:
    trace = running_trace(name)
    operands = [operand(trace, x, name)[0] for x in arrays]
    static = {k: pinned(v) for k, v in static.items()}
    for key, value in static.items():
        if type(value) is TracedArray or not isinstance(value, int | float | str | tuple | np.dtype | type):
            raise TraceError(f"{name}: {key} {value!r}; a number, a name or a tuple of them is needed{at(user_line())}")
    ones = [np.ones(_pinned(trace, name, x), x.type.dtype) for x in operands]
    try:
        with np.errstate(all="ignore"):
            told = silently(getattr(np, name), ones, static)  # it warns when it runs
            found = np.asarray(told)
    except NUMPY_ERRORS as error:
        raise as_own(name, error) from None
    if not is_supported(found.dtype):
        raise DtypeError(f"{name}: result of dtype {found.dtype}; no engine holds it{at(user_line())}")
    parameters = tuple(sorted(static.items()))
    value = trace.emit1(
        library.numpy_call, *operands, function=name, static=parameters, shape=found.shape, dtype=found.dtype
    )
    return new(trace, value, scalar=isinstance(told, np.generic))


def _pinned(trace: Trace, name: str, x: Operand) -> tuple[int, ...]:
    return tuple(trace.concrete(n, name) for n in x.type.shape)


FUNCTIONS: tuple[ApiFunction, ...] = tuple(
    ApiFunction(name, _made(name), arrays, False, getattr(np, name)) for name, arrays in _ARRAYS.items()
)
