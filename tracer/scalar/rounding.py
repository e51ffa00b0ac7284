"""Rounding to integers, signs and neighbours: in go floats (or what the row accepts), out comes NumPy's result."""

from __future__ import annotations

import numpy as np

from tenferro.tracer.scalar import complex_arithmetic
from tenferro.tracer.scalar.arithmetic import is_nan, widened, zero
from tenferro.tracer.scalar.builder import F16, F32, I16, Builder, Complex, Value


@widened
def floor(b: Builder, x: Value) -> Value:
    """Down."""
    return b.floor(x)


@widened
def ceil(b: Builder, x: Value) -> Value:
    """Up."""
    return b.ceil(x)


@widened
def trunc(b: Builder, x: Value) -> Value:
    """Towards zero."""
    return b.trunc(x)


@widened
def _rint(b: Builder, x: Value) -> Value:
    return b.rint(x)


def rint(b: Builder, x: Value) -> Value:
    """To the nearest integer, ties to even; both parts of a complex number."""
    return Complex(b.rint(x.re), b.rint(x.im)) if isinstance(x, Complex) else _rint(b, x)


@widened
def _sign(b: Builder, x: Value) -> Value:
    none, one = zero(b, x), b.const(1, x.dtype)
    found = b.select(b.lt(none, x), one, none)
    if x.dtype.kind == "u":
        return found
    found = b.select(b.lt(x, none), b.const(-1, x.dtype), found)
    return found if x.dtype.kind == "i" else b.select(is_nan(b, x), x, found)


def sign(b: Builder, x: Value) -> Value:
    """-1, 0 or 1, NaN for NaN; x / |x| of complex numbers, where one infinite part alone gives the direction."""
    return _sign_of_complex(b, x) if isinstance(x, Complex) else _sign(b, x)


def _sign_of_complex(b: Builder, z: Complex) -> Complex:
    """As NumPy: an infinite modulus has the direction of the infinite part, of im where neither is, none of two."""
    dtype = z.re.dtype
    none, one, infinity = b.const(0.0, dtype), b.const(1.0, dtype), b.const(np.inf, dtype)
    size = complex_arithmetic.absolute(b, z)
    vanishes, far = b.eq(size, none), b.eq(size, infinity)
    re_far, im_far = (b.eq(b.abs(v), infinity) for v in (z.re, z.im))
    divisor = b.select(vanishes, one, size)
    re, im = (b.select(vanishes, none, b.select(is_nan(b, size), size, b.div(v, divisor))) for v in (z.re, z.im))
    far_re = b.select(re_far, b.copysign(one, z.re), none)
    far_im = b.select(re_far, none, b.copysign(one, z.im))
    both, unknown = b.and_(re_far, im_far), b.const(np.nan, dtype)
    far_re, far_im = b.select(both, unknown, far_re), b.select(both, unknown, far_im)
    return Complex(b.select(far, far_re, re), b.select(far, far_im, im))


def signbit(b: Builder, x: Value) -> Value:
    """Whether the sign bit is set, of zeros and NaN too."""
    integer = np.dtype(f"i{x.dtype.itemsize}")
    return b.lt(b.bitcast(x, integer), b.const(0, integer))


def copysign(b: Builder, x: Value, y: Value) -> Value:
    """x with the sign bit of y."""
    if x.dtype != F16:
        return b.copysign(x, y)
    size = b.and_(b.bitcast(x, I16), b.const(0x7FFF, I16))
    return b.bitcast(b.or_(size, b.and_(b.bitcast(y, I16), b.const(-0x8000, I16))), F16)


@widened
def heaviside(b: Builder, x: Value, at_zero: Value) -> Value:
    """0 below zero, 1 above, ``at_zero`` at zero, NaN for NaN."""
    none, one = zero(b, x), b.const(1, x.dtype)
    found = b.select(b.lt(none, x), one, b.select(b.eq(x, none), at_zero, none))
    return b.select(is_nan(b, x), x, found)


def nextafter(b: Builder, x: Value, y: Value) -> Value:
    """The number next to x on the way to y; y itself where they are equal."""
    integer = np.dtype(f"i{x.dtype.itemsize}")
    bits, none, one = b.bitcast(x, integer), b.const(0, integer), b.const(1, integer)
    size = b.and_(bits, b.const(np.iinfo(integer).max, integer))
    below, same, unordered = _compared(b, x, y)
    # Away from zero one bit up, towards it one down.
    outwards = b.eq(b.lt(bits, none), b.not_(below))
    moved = b.add(bits, b.select(outwards, one, b.const(-1, integer)))
    sign = b.and_(b.bitcast(y, integer), b.const(np.iinfo(integer).min, integer))
    moved = b.select(b.eq(size, none), b.or_(sign, one), moved)
    # Of zeros of either sign C and NumPy return y, NumPy's float16 alone x.
    moved = b.select(same, bits if x.dtype == F16 else b.bitcast(y, integer), moved)
    unknown = b.bitcast(b.const(np.nan, x.dtype), integer)
    return b.bitcast(b.select(unordered, unknown, moved), x.dtype)


def _compared(b: Builder, x: Value, y: Value) -> tuple[Value, Value, Value]:
    """(x < y, x == y, one is NaN)."""
    p, q = (b.convert(v, F32) if v.dtype == F16 else v for v in (x, y))
    return b.lt(p, q), b.eq(p, q), b.or_(is_nan(b, p), is_nan(b, q))
