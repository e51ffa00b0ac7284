"""Element by element functions and reductions of ``tenferro.lax``: JAX's names for NumPy's functions, and those that
NumPy has not.

Dtypes are NumPy's: operands promote, integers are summed in 64 bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api import reductions as numpy_reductions
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.elementwise import apply
from tenferro.tracer.api.lax_common import as_items, fresh, function
from tenferro.tracer.api.layout import axes_of, axis_of, flip
from tenferro.tracer.api.neural import expit
from tenferro.tracer.api.promotion import aligned, converted, resolve, result_type, same_shape, sizes_text
from tenferro.tracer.api.record import API, TracedFunction
from tenferro.tracer.dim import integer
from tenferro.tracer.errors import DtypeError, ExponentError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import elementary, pointwise as p, reductions, rounding
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import as_traced, operand

_UNARY = {
    "abs": "absolute", "acos": "arccos", "acosh": "arccosh", "asin": "arcsin", "asinh": "arcsinh", "atan": "arctan",
    "atanh": "arctanh", "bitwise_not": "invert", "cbrt": "cbrt", "ceil": "ceil", "conj": "conjugate", "cos": "cos",
    "cosh": "cosh", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "floor": "floor", "is_finite": "isfinite",
    "log": "log", "log1p": "log1p", "neg": "negative", "reciprocal": "reciprocal", "sign": "sign", "sin": "sin",
    "sinh": "sinh", "sqrt": "sqrt", "square": "square", "tan": "tan", "tanh": "tanh",
}  # fmt: skip
_BINARY = {
    "add": "add", "atan2": "arctan2", "bitwise_and": "bitwise_and", "bitwise_or": "bitwise_or",
    "bitwise_xor": "bitwise_xor", "eq": "equal", "ge": "greater_equal", "gt": "greater", "le": "less_equal",
    "lt": "less", "max": "maximum", "min": "minimum", "mul": "multiply", "ne": "not_equal", "nextafter": "nextafter",
    "pow": "power", "rem": "fmod", "shift_left": "left_shift", "sub": "subtract",
}  # fmt: skip
"""JAX's names and NumPy's."""


def _unary(name: str, of_numpy: str) -> TracedFunction:
    def call(x: Any) -> Any:
        return API[of_numpy].function(x)

    return named(name, call, f"``numpy.{of_numpy}``.", "x")


def _binary(name: str, of_numpy: str) -> TracedFunction:
    def call(x: Any, y: Any) -> Any:
        return API[of_numpy].function(x, y)

    return named(name, call, f"``numpy.{of_numpy}``.", "x", "y")


def named(name: str, call: Callable[..., Any], summary: str, *arrays: str) -> TracedFunction:
    """The record of a function that takes its name and its docstring from elsewhere."""
    call.__name__ = call.__qualname__ = name
    call.__doc__ = summary
    return function(name, call, *arrays)


# -- choices ---------------------------------------------------------------------------------------------------------


def of_one_shape(trace: Trace, name: str, operands: list[Operand], names: list[str]) -> list[Operand]:
    """Operands of one shape; numbers take it."""
    shapes = [x.type.shape for x in operands if x.type.shape]
    for what, x in zip(names, operands, strict=True):
        own = x.type.shape
        if own and not _is_shape(trace, own, shapes[0]):
            raise ShapeError(
                f"{name}: {what} of shape {sizes_text(trace, own)} beside one of shape "
                f"{sizes_text(trace, shapes[0])}; one shape, or numbers, are needed{at(user_line())}"
            )
    return [aligned(trace, x, shapes[0]) if shapes else x for x in operands]


def _is_shape(trace: Trace, a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    if same_shape(trace, a, b):
        return True
    return len(a) == len(b) and all(trace.guard("==", n, m) for n, m in zip(a, b, strict=True))


def promoted(trace: Trace, name: str, *xs: Any) -> list[Operand]:
    """The arguments in the dtype that they promote to."""
    pairs = [operand(trace, x, name) for x in xs]
    dtype = result_type([key for _, key in pairs])
    return [converted(trace, x, dtype, name) for x, _ in pairs]


def clamp(min: Any, x: Any, max: Any) -> Any:  # noqa: A002
    """``x`` brought between ``min`` and ``max``, which are numbers or have its shape; NaN stays."""
    trace = running_trace("clamp")
    shape = as_traced(trace, x, "clamp").type.shape
    operands = promoted(trace, "clamp", min, x, max)
    if not shape and any(o.type.shape for o in operands):
        raise ShapeError(f"clamp: bounds that are arrays for a number; numbers are needed{at(user_line())}")
    low, value, high = of_one_shape(trace, "clamp", operands, ["min", "x", "max"])
    return new(trace, trace.emit1(p.minimum, trace.emit1(p.maximum, value, low), high))


def select(pred: Any, on_true: Any, on_false: Any) -> Any:
    """Elements of ``on_true`` where ``pred`` holds, else of ``on_false``: arrays of one shape, or numbers."""
    trace = running_trace("select")
    chosen = operand(trace, pred, "select")[0]
    if chosen.type.dtype.kind != "b":
        raise DtypeError(f"select: pred of dtype {chosen.type.dtype.name}; bool is needed{at(user_line())}")
    cases = of_one_shape(trace, "select", promoted(trace, "select", on_true, on_false), ["on_true", "on_false"])
    operands = of_one_shape(trace, "select", [chosen, *cases], ["pred", "on_true", "on_false"])
    return new(trace, trace.emit1(p.where, *operands))


# -- arithmetic ------------------------------------------------------------------------------------------------------


def _divided(trace: Trace, x: Operand, y: Operand) -> Operand:
    """The quotient rounded towards 0: that of ``floor_divide``, and 1 more where it was rounded the other way."""
    quotient = trace.emit1(p.floor_divide, x, y)
    if x.type.dtype.kind != "i":
        return quotient
    dtype = x.type.dtype
    zero = build.literal(0, dtype)
    rest = trace.emit1(p.subtract, x, trace.emit1(p.multiply, quotient, y))
    differ = trace.emit1(p.not_equal, trace.emit1(p.less, x, zero), trace.emit1(p.less, y, zero))
    inexact = trace.emit1(p.bitwise_and, trace.emit1(p.not_equal, rest, zero), trace.emit1(p.not_equal, y, zero))
    up = trace.emit1(p.bitwise_and, differ, inexact)
    return trace.emit1(p.add, quotient, build.convert(trace, up, dtype))


def div(x: Any, y: Any) -> Any:
    """The quotient; of integers rounded towards 0. Division of an integer by 0 gives 0 and a warning, as in NumPy."""
    trace = running_trace("div")
    dtypes = [operand(trace, v, "div")[0].type.dtype for v in (x, y)]
    if all(d.kind in "biu" for d in dtypes):
        return apply(np.floor_divide, _divided, (x, y))
    return API["divide"].function(x, y)


def rsqrt(x: Any) -> Any:
    """1 / sqrt(x)."""
    trace = running_trace("rsqrt")
    if operand(trace, x, "rsqrt")[0].type.dtype.kind == "c":
        return API["divide"].function(1, API["sqrt"].function(x))
    return apply(np.sqrt, lambda trace, v: trace.emit1(elementary.rsqrt, v), (x,))


def logistic(x: Any) -> Any:
    """1 / (1 + exp(−x)), exact for large |x| too."""
    array = as_traced(running_trace("logistic"), x, "logistic")
    if array.dtype.kind == "c":
        return 1 / (1 + API["exp"].function(-array))
    if array.dtype.kind != "f":
        array = array.astype(resolve(np.exp, (array.dtype,))[0])  # what NumPy computes integers in
    return expit(array)


def integer_pow(x: Any, y: int) -> Any:
    """``x`` to a power that is a Python int, as products; negative powers of integers are refused."""
    trace = running_trace("integer_pow")
    exponent = integer(y, "integer_pow", "y")
    value = as_traced(trace, x, "integer_pow").read()
    if value.type.dtype.kind == "b":
        raise DtypeError(f"integer_pow: dtype bool; numbers are needed{at(user_line())}")
    if exponent < 0 and value.type.dtype.kind in "iu":
        raise ExponentError(
            f"integer_pow: integers to the exponent {exponent}; x.astype(float) is needed{at(user_line())}"
        )
    one = build.literal(1, value.type.dtype)
    if not exponent:
        return new(trace, build.copied(trace, build.broadcast(trace, one, value.type.shape)))
    power = _power(trace, value, abs(exponent))
    return new(trace, trace.emit1(p.divide, one, power) if exponent < 0 else build.copied(trace, power))


def _power(trace: Trace, x: Operand, exponent: int) -> Operand:
    """By squares, from the lowest bit of the exponent up."""
    found: Operand | None = None
    while True:
        if exponent & 1:
            found = x if found is None else trace.emit1(p.multiply, found, x)
        exponent >>= 1
        if not exponent:
            assert found is not None
            return found
        x = trace.emit1(p.multiply, x, x)


def round_(x: Any, rounding_method: Any = 0) -> Any:
    """To the nearest integer; halves away from zero, or to the even one where ``rounding_method`` is 1."""
    trace = running_trace("round")
    method = integer(getattr(rounding_method, "value", rounding_method), "round", "rounding_method")
    if method not in (0, 1):
        raise TraceError(f"round: rounding_method {rounding_method!r}; 0 or 1 is needed{at(user_line())}")
    value = as_traced(trace, x, "round").read()
    if value.type.dtype.kind != "f":
        raise DtypeError(f"round: dtype {value.type.dtype.name}; a floating dtype is needed{at(user_line())}")
    if method:
        return new(trace, trace.emit1(rounding.rint, value))
    whole = trace.emit1(rounding.trunc, value)
    rest = trace.emit1(p.absolute, trace.emit1(p.subtract, value, whole))
    one = trace.emit1(rounding.copysign, build.literal(1, value.type.dtype), value)
    away = trace.emit1(p.less_equal, build.literal(0.5, value.type.dtype), rest)
    return new(trace, trace.emit1(p.where, away, trace.emit1(p.add, whole, one), whole))


def _shifted(x: Any, y: Any, name: str, kind: str) -> Any:
    """``x >> y`` on the bits of ``x`` as signed or unsigned."""
    trace = running_trace(name)
    value, count = promoted(trace, name, x, y)
    dtype = value.type.dtype
    if dtype.kind not in "iu":
        raise DtypeError(f"{name}: dtype {dtype.name}; integers are needed{at(user_line())}")
    target = np.dtype(f"{kind}{dtype.itemsize}")
    if target == dtype:
        return API["right_shift"].function(new(trace, value), new(trace, count))
    value, count = (trace.emit1(p.bitcast, v, dtype=target) for v in (value, count))
    made = API["right_shift"].function(new(trace, value), new(trace, count))
    return new(trace, trace.emit1(p.bitcast, made.read(), dtype=dtype))


def shift_right_arithmetic(x: Any, y: Any) -> Any:
    """Bits moved right; copies of the highest one come in."""
    return _shifted(x, y, "shift_right_arithmetic", "i")


def shift_right_logical(x: Any, y: Any) -> Any:
    """Bits moved right; zeros come in."""
    return _shifted(x, y, "shift_right_logical", "u")


def real(x: Any) -> Any:
    """The real part."""
    return fresh(running_trace("real"), API["real"].function(x))


def imag(x: Any) -> Any:
    """The imaginary part."""
    return fresh(running_trace("imag"), API["imag"].function(x))


# -- reductions ------------------------------------------------------------------------------------------------------


def _reduction(name: str, of_numpy: str, summary: str) -> TracedFunction:
    def call(operand: Any, axes: Any) -> Any:
        return API[of_numpy].function(operand, tuple(as_items(axes)))

    return named(name, call, summary, "operand")


def _logical(name: str, of_numpy: str) -> TracedFunction:
    def call(operand: Any, axes: Any) -> Any:
        array = as_traced(running_trace(name), operand, name)
        if array.dtype.kind != "b":
            raise DtypeError(f"{name}: dtype {array.dtype.name}; bool is needed{at(user_line())}")
        return API[of_numpy].function(array, tuple(as_items(axes)))

    return named(name, call, f"``numpy.{of_numpy}`` over the axes.", "operand")


def sum_of_squares(operand: Any, axes: Any = None) -> Any:
    """Σ x·x over the axes, in the dtype that the sum is computed in: integers do not wrap at their own width, float16
    is squared and summed in float32."""
    trace = running_trace("sum_of_squares")
    value = as_traced(trace, operand, "sum_of_squares").read()
    chosen = axes_of(None if axes is None else tuple(as_items(axes)), len(value.type.shape), "sum_of_squares")
    target = numpy_reductions.accumulation_dtype(value.type.dtype)
    half = target == np.dtype(np.float16)
    wide = build.convert(trace, value, np.dtype(np.float32) if half else target)
    total = trace.emit1(reductions.sum_, trace.emit1(p.multiply, wide, wide), axes=chosen, keepdims=False)
    return new(trace, build.convert(trace, total, target))


def _arg(name: str) -> TracedFunction:
    def call(operand: Any, axis: int, index_dtype: Any = np.int64) -> Any:
        return API["astype"].function(API[name].function(operand, axis), index_dtype)

    return named(name, call, f"``numpy.{name}`` along one axis, in the dtype asked for.", "operand")


def running(name: str, of_numpy: str) -> Callable[..., Any]:
    """A function of running results by NumPy's name."""

    def call(operand: Any, axis: int = 0, reverse: bool = False) -> Any:
        trace = running_trace(name)
        array = as_traced(trace, operand, name)
        k = axis_of(axis, array.ndim, name)
        if not reverse:
            return API[of_numpy].function(array, k)
        return fresh(trace, flip(API[of_numpy].function(flip(array, k), k), k))

    return call


def _running(name: str) -> TracedFunction:
    summary = f"``numpy.{name}`` along an axis, from its end where ``reverse``."
    return named(name, running(name, name), summary, "operand")


FUNCTIONS: tuple[TracedFunction, ...] = (
    *(_unary(*names) for names in _UNARY.items()),
    *(_binary(*names) for names in _BINARY.items()),
    function("clamp", clamp, "min", "x", "max"),
    function("select", select, "pred", "on_true", "on_false"),
    function("div", div, "x", "y"),
    function("rsqrt", rsqrt, "x"),
    function("logistic", logistic, "x"),
    function("integer_pow", integer_pow, "x"),
    function("round", round_, "x"),
    function("shift_right_arithmetic", shift_right_arithmetic, "x", "y"),
    function("shift_right_logical", shift_right_logical, "x", "y"),
    function("real", real, "x"),
    function("imag", imag, "x"),
    _reduction("reduce_sum", "sum", "``numpy.sum`` over the axes."),
    _reduction("reduce_prod", "prod", "``numpy.prod`` over the axes."),
    _reduction("reduce_max", "max", "``numpy.max`` over the axes."),
    _reduction("reduce_min", "min", "``numpy.min`` over the axes."),
    _logical("reduce_and", "all"),
    _logical("reduce_or", "any"),
    function("sum_of_squares", sum_of_squares, "operand"),
    _arg("argmax"),
    _arg("argmin"),
    _running("cumsum"),
    _running("cumprod"),
)
