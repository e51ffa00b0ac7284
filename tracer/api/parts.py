"""Parts and signs of numbers, ranks and shapes: what NumPy has beside its ufuncs, element by element."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import zeros
from tenferro.tracer.api.deliver import deliver, new
from tenferro.tracer.api.elementwise import where
from tenferro.tracer.api.library import array_equal
from tenferro.tracer.api.promotion import broadcast_shapes, converted, resolve
from tenferro.tracer.api.record import API, ApiFunction
from tenferro.tracer.errors import DtypeError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import running_trace
from tenferro.tracer.traced import TracedArray, as_traced, operand


def angle(z: Any, deg: bool = False) -> Any:
    """The angle of complex numbers from the positive real axis, in (−π, π]; in degrees where ``deg``."""
    trace = running_trace("angle")
    array = as_traced(trace, z, "angle")
    if array.dtype.kind == "c":
        found = API["arctan2"].function(API["imag"].function(array), API["real"].function(array))
    else:
        found = API["arctan2"].function(0, array)
    return found * (180 / math.pi) if deg else found


def of_parts(real: TracedArray, imag: TracedArray) -> TracedArray:
    """Complex numbers of two arrays of one real dtype. They are made of the sizes of both and turned by their signs, so
    that zeros keep theirs."""
    (a, turns_back), (b, is_below) = _size(real), _size(imag)
    whole = a + where(b == b, where(b < np.inf, 1j * b, complex(0, np.inf)), complex(0, np.nan))
    whole = where(is_below != turns_back, API["conjugate"].function(whole), whole)
    found: TracedArray = where(turns_back, -whole, whole)
    return found


def _size(x: TracedArray) -> tuple[Any, Any]:
    """(the size of each number, whether it has a minus), where |x| would have no slope at 0."""
    is_below = API["signbit"].function(x)
    return where(is_below, -x, x), is_below


def refuse_imaginary(name: str, dtype: np.dtype[Any]) -> None:
    """A DtypeError for the imaginary part of real numbers, which is not written."""
    if name == "imag" and dtype.kind != "c":
        raise DtypeError(f"imag: assigned in dtype {dtype.name}; a complex dtype is needed{at(user_line())}")


def set_part(array: Any, name: str, value: Any) -> None:
    """``x.real = value`` and ``x.imag = value``, converted to the dtype of the part."""
    trace = running_trace(name)
    x: TracedArray = as_traced(trace, array, name)
    x.check_writeable()
    refuse_imaginary(name, x.dtype)
    if x.dtype.kind != "c":
        x[...] = value
        return
    real, imag = API["real"].function(x), API["imag"].function(x)
    part = zeros(x.shape, real.dtype)
    part[...] = value
    whole = of_parts(part, imag) if name == "real" else of_parts(real, part)
    x.store(build.convert(trace, whole.read(), x.dtype))


def modf(x: Any, /, out: Any = None) -> Any:
    """(fractional part, whole part), both with the sign of ``x``."""
    trace = running_trace("modf")
    if out is not None and not (isinstance(out, tuple) and all(o is None for o in out)):
        raise TraceError(f"modf: out; x - numpy.trunc(x) and numpy.trunc(x, out=…) are available{at(user_line())}")
    value, key = operand(trace, x, "modf")
    dtype = resolve(np.modf, (key,))[0]
    array = new(trace, converted(trace, value, dtype, "modf"))
    whole = API["trunc"].function(array)
    part = where(API["isinf"].function(array), 0.0, array - whole)
    return API["copysign"].function(part, array), whole


def _signed_infinity(name: str, sign: float) -> Any:
    def function(x: Any, out: Any = None) -> Any:
        trace = running_trace(name)
        array = as_traced(trace, x, name)
        if array.dtype.kind == "c":
            raise DtypeError(f"{name}: dtype {array.dtype.name}; real numbers are needed{at(user_line())}")
        found = API["isinf"].function(array) & (array < 0 if sign < 0 else array > 0)
        return deliver(trace, name, found.read(), out)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"Whether each element is {'−' if sign < 0 else '+'}∞."
    return function


def atleast_3d(*arys: Any) -> Any:
    """With axes of size 1 in front and behind where there are fewer than three; a list of several."""
    trace = running_trace("atleast_3d")
    found = [_solid(as_traced(trace, x, "atleast_3d")) for x in arys]
    return found[0] if len(found) == 1 else tuple(found)


def _solid(array: TracedArray) -> Any:
    match array.ndim:
        case 0:
            return array.reshape(1, 1, 1)
        case 1:
            return array[None, :, None]
        case 2:
            return array[:, :, None]
        case _:
            return array


def array_equiv(a1: Any, a2: Any) -> Any:
    """Whether the arrays broadcast to one shape with equal elements: False at once where they do not broadcast."""
    trace = running_trace("array_equiv")
    arrays = [as_traced(trace, x, "array_equiv") for x in (a1, a2)]
    try:
        shape = broadcast_shapes(trace, "array_equiv", [x.type.shape for x in arrays])
    except ShapeError:
        return False
    left, right = (new(trace, build.broadcast(trace, x.read(), shape)) for x in arrays)
    return array_equal(left, right)


def sort_complex(a: Any) -> Any:
    """The sorted elements as complex numbers."""
    found = API["sort"].function(as_traced(running_trace("sort_complex"), a, "sort_complex"))
    if found.dtype.kind == "c":
        return found
    return found.astype(np.complex64 if found.dtype.kind in "iu" and found.dtype.itemsize < 4 else np.complex128)


def _f(name: str, function: Any, *arrays: str) -> ApiFunction:
    return ApiFunction(name, function, arrays, False, getattr(np, name))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f("angle", angle, "z"),
    _f("modf", modf, "x"),
    _f("isneginf", _signed_infinity("isneginf", -1.0), "x", "out"),
    _f("isposinf", _signed_infinity("isposinf", 1.0), "x", "out"),
    ApiFunction("atleast_3d", atleast_3d, ("arys",), True, np.atleast_3d),
    _f("array_equiv", array_equiv, "a1", "a2"),
    _f("sort_complex", sort_complex, "a"),
)
