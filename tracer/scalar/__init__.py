"""Every scalar function of the op table, written once in native operations: in go values on a builder, out comes one.

``f(b, *values)`` takes every dtype that its row in ``tenferro.tracer.ops`` accepts; complex values are ``Complex``
pairs. float16 is widened to float32 for one operation and rounded back.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer.scalar import (
    arithmetic,
    complex_arithmetic,
    complex_functions,
    division,
    exponential,
    trigonometric,
)
from tenferro.tracer.scalar.builder import Builder, Complex, Dtype, Value
from tenferro.tracer.scalar.conversion import astype

Function = Callable[..., Value]
BOOL = np.dtype(np.bool_)


def _by_kind(on_real: Function, on_complex: Function, doc: str) -> Function:
    def function(b: Builder, *values: Value) -> Value:
        return (on_complex if isinstance(values[-1], Complex) else on_real)(b, *values)

    function.__name__ = function.__qualname__ = on_real.__name__
    function.__doc__ = doc
    return function


add = _by_kind(arithmetic.add, complex_arithmetic.add, "x + y; or of bools.")
subtract = _by_kind(arithmetic.subtract, complex_arithmetic.subtract, "x - y.")
multiply = _by_kind(arithmetic.multiply, complex_arithmetic.multiply, "x y; and of bools.")
divide = _by_kind(arithmetic.divide, complex_arithmetic.divide, "x / y of floats and complex numbers.")
negative = _by_kind(arithmetic.negative, complex_arithmetic.negative, "-x.")
absolute = _by_kind(arithmetic.absolute, complex_arithmetic.absolute, "|x|; the least integer stays.")
maximum = _by_kind(arithmetic.maximum, complex_arithmetic.maximum, "The larger; NaN wins; -0.0 is below 0.0.")
minimum = _by_kind(arithmetic.minimum, complex_arithmetic.minimum, "The smaller; NaN wins; -0.0 is below 0.0.")
equal = _by_kind(arithmetic.equal, complex_arithmetic.equal, "x == y.")
not_equal = _by_kind(arithmetic.not_equal, complex_arithmetic.not_equal, "x != y; true with a NaN.")
less = _by_kind(arithmetic.less, complex_arithmetic.less, "x < y.")
less_equal = _by_kind(arithmetic.less_equal, complex_arithmetic.less_equal, "x <= y.")
exp = _by_kind(arithmetic.widened(exponential.exp), complex_functions.exp, "e to the x.")
log = _by_kind(arithmetic.widened(exponential.log), complex_functions.log, "The natural logarithm.")
sin = _by_kind(arithmetic.widened(trigonometric.sin), complex_functions.sin, "The sine of radians.")
cos = _by_kind(arithmetic.widened(trigonometric.cos), complex_functions.cos, "The cosine of radians.")
tanh = _by_kind(arithmetic.widened(exponential.tanh), complex_functions.tanh, "The hyperbolic tangent.")
sqrt = _by_kind(arithmetic.sqrt, complex_functions.sqrt, "The square root; of complex numbers that with re >= 0.")
floor_divide, remainder = division.floor_divide, division.remainder


def where(b: Builder, condition: Value, x: Value, y: Value) -> Value:
    """x where condition holds, else y."""
    select = complex_arithmetic.select if isinstance(x, Complex) else arithmetic.where
    return select(b, condition, x, y)


def guarded(b: Builder, tangent: Value, found: Value) -> Value:
    """What was found, and 0 where the tangent is 0. Asked this way round, it is part of the instruction that makes what
    was found where a processor has masks that clear."""
    part = tangent.re if isinstance(tangent, Complex) else tangent
    zero = b.const(0, part.dtype)
    return where(b, not_equal(b, tangent, _like(tangent, zero)), found, _like(found, zero))


def _like(x: Value, part: Any) -> Value:
    return Complex(part, part) if isinstance(x, Complex) else part


def bitcast(b: Builder, x: Value, dtype: Dtype) -> Value:
    """The same bits as another real dtype of equal width; a bool is 0 or 1."""
    if BOOL in (x.dtype, dtype):
        return astype(b, x, dtype)
    return b.bitcast(x, dtype)


def conjugate(b: Builder, x: Value) -> Value:
    """The complex conjugate; a real value itself."""
    return Complex(x.re, b.neg(x.im)) if isinstance(x, Complex) else x


def real(b: Builder, x: Value) -> Value:
    """The real part."""
    return x.re if isinstance(x, Complex) else x


def imag(b: Builder, x: Value) -> Value:
    """The imaginary part; zero of a real value."""
    return x.im if isinstance(x, Complex) else b.const(0, x.dtype)


def constant(b: Builder, value: complex, dtype: Dtype) -> Value:
    """A constant of any dtype."""
    if dtype.kind != "c":
        return b.const(value.real if isinstance(value, complex) else value, dtype)
    part = np.dtype(f"f{dtype.itemsize // 2}")
    return Complex(b.const(value.real, part), b.const(value.imag, part))


__all__ = [
    "Builder", "Complex", "absolute", "add", "astype", "bitcast", "conjugate", "constant", "cos", "divide", "equal",
    "exp", "floor_divide", "guarded", "imag", "less", "less_equal", "log", "maximum", "minimum", "multiply", "negative",
    "not_equal", "real", "remainder", "sin", "sqrt", "subtract", "tanh", "where",
]  # fmt: skip
