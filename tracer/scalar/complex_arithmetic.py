"""Complex arithmetic and comparison: in go ``Complex`` pairs, out comes what NumPy's formulas give."""

from __future__ import annotations

import numpy as np

from tenferro.tracer.scalar.arithmetic import is_nan
from tenferro.tracer.scalar.builder import Builder, Complex, Value


def add(b: Builder, x: Complex, y: Complex) -> Complex:
    return Complex(b.add(x.re, y.re), b.add(x.im, y.im))


def subtract(b: Builder, x: Complex, y: Complex) -> Complex:
    return Complex(b.sub(x.re, y.re), b.sub(x.im, y.im))


def multiply(b: Builder, x: Complex, y: Complex) -> Complex:
    """The four products, without fma: equal bits on every engine, and those of NumPy."""
    re = b.sub(b.mul(x.re, y.re), b.mul(x.im, y.im))
    return Complex(re, b.add(b.mul(x.re, y.im), b.mul(x.im, y.re)))


def multiply_into(b: Builder, x: Complex, y: Complex) -> Complex:
    """One step of a product: a factor that is 1 + 0i to the bit leaves the other as it is, so that whatever a lane
    starts from or is filled up with is seen nowhere."""
    found = select(b, is_one(b, x), y, multiply(b, x, y))
    return select(b, is_one(b, y), x, found)


def is_one(b: Builder, z: Complex) -> Value:
    """Whether it is 1 + 0i; 1 − 0i is not."""
    integer = np.dtype(f"i{z.im.dtype.itemsize}")
    no_imaginary = b.eq(b.bitcast(z.im, integer), b.const(0, integer))
    return b.and_(b.eq(z.re, b.const(1.0, z.re.dtype)), no_imaginary)


def divide(b: Builder, x: Complex, y: Complex) -> Complex:
    """Smith's method (Communications of the ACM 5, 1962), as NumPy divides."""
    re, im = b.abs(y.re), b.abs(y.im)
    by_real = b.le(im, re)
    big, small = b.select(by_real, y.re, y.im), b.select(by_real, y.im, y.re)
    # 0/0 by a zero divisor would lose the signs of x/0.
    none = b.const(0.0, y.re.dtype)
    is_zero = b.and_(b.eq(re, none), b.eq(im, none))
    ratio = b.div(small, big)
    scale = b.div(b.const(1.0, y.re.dtype), b.add(big, b.mul(small, ratio)))
    upper, lower = b.select(by_real, x.re, x.im), b.select(by_real, x.im, x.re)
    real = b.mul(b.add(upper, b.mul(lower, ratio)), scale)
    # (im - re ratio) or (im ratio - re), by which part of y is larger.
    left = b.select(by_real, x.im, b.mul(x.im, ratio))
    right = b.select(by_real, b.mul(x.re, ratio), x.re)
    imaginary = b.mul(b.sub(left, right), scale)
    return Complex(
        b.select(is_zero, b.div(x.re, re), real),
        b.select(is_zero, b.div(x.im, re), imaginary),
    )


def reciprocal(b: Builder, z: Complex) -> Complex:
    """Smith's method with 1 for the dividend and two quotients at the end, as NumPy has it: NaN of 0."""
    by_real = b.le(b.abs(z.im), b.abs(z.re))
    big, small = b.select(by_real, z.re, z.im), b.select(by_real, z.im, z.re)
    ratio, one = b.div(small, big), b.const(1.0, z.re.dtype)
    divisor = b.add(big, b.mul(small, ratio))
    imaginary = b.div(b.neg(b.select(by_real, ratio, one)), divisor)
    return Complex(b.div(b.select(by_real, one, ratio), divisor), imaginary)


def absolute(b: Builder, z: Complex) -> Value:
    """The square root of re**2 + im**2 of parts scaled by a power of two, so that nothing over- or underflows on
    the way; infinite if a part is, even beside a NaN."""
    return b.call("hypot", hypot, z.re, z.im)


def hypot(b: Builder, x: Value, y: Value) -> Value:
    x, y = b.abs(x), b.abs(y)
    dtype = x.dtype
    integer = np.dtype(f"i{dtype.itemsize}")
    swapped = b.lt(x, y)
    big, small = b.select(swapped, y, x), b.select(swapped, x, y)
    mantissa, bias = (23, 127) if dtype.itemsize == 4 else (52, 1023)
    # 2**-exponent of the larger part, kept in the range where it and its inverse are normal.
    exponent = b.and_(b.bitcast(big, integer), b.const(((2 * bias + 1) << mantissa), integer))
    low, high = b.const(2 << mantissa, integer), b.const((2 * bias - 2) << mantissa, integer)
    exponent = b.select(b.lt(exponent, low), low, exponent)
    exponent = b.select(b.lt(high, exponent), high, exponent)
    down = b.bitcast(b.sub(b.const((2 * bias) << mantissa, integer), exponent), dtype)
    up = b.bitcast(exponent, dtype)
    # Subnormal parts need a second factor: 2**mantissa there and back.
    tiny = b.lt(big, b.const(2.0 ** (2 - bias), dtype))
    more, less = (b.select(tiny, b.const(2.0**k, dtype), b.const(1.0, dtype)) for k in (mantissa + 2, -mantissa - 2))
    p, q = (b.mul(b.mul(v, down), more) for v in (big, small))
    square = b.mul(p, p)
    error = b.fma(p, p, b.neg(square))
    # sqrt(square + error + q**2) with one correction keeps the result within 1 ulp.
    total = b.fma(q, q, square)
    root = b.sqrt(total)
    lost = b.add(error, b.fma(q, q, b.sub(square, total)))
    rest = b.add(b.fma(b.neg(root), root, total), lost)
    fixed = b.fma(rest, b.div(b.const(0.5, dtype), root), root)
    fixed = b.select(b.eq(total, b.const(0.0, dtype)), total, fixed)
    result = b.mul(b.mul(fixed, less), up)
    infinity = b.const(np.inf, dtype)
    is_infinite = b.or_(b.eq(x, infinity), b.eq(y, infinity))
    return b.select(is_infinite, infinity, result)


def negative(b: Builder, x: Complex) -> Complex:
    return Complex(b.neg(x.re), b.neg(x.im))


def equal(b: Builder, x: Complex, y: Complex) -> Value:
    return b.and_(b.eq(x.re, y.re), b.eq(x.im, y.im))


def not_equal(b: Builder, x: Complex, y: Complex) -> Value:
    return b.or_(b.ne(x.re, y.re), b.ne(x.im, y.im))


def less(b: Builder, x: Complex, y: Complex) -> Value:
    """By the real parts, ties by the imaginary parts; false with a NaN in the parts that decide."""
    return _ordered(b, x, y, b.lt(x.im, y.im))


def less_equal(b: Builder, x: Complex, y: Complex) -> Value:
    return _ordered(b, x, y, b.le(x.im, y.im))


def _ordered(b: Builder, x: Complex, y: Complex, imaginary: Value) -> Value:
    # NumPy: a smaller real part decides unless an imaginary part is NaN.
    known = b.not_(b.or_(is_nan(b, x.im), is_nan(b, y.im)))
    by_real = b.and_(b.lt(x.re, y.re), known)
    return b.or_(by_real, b.and_(b.eq(x.re, y.re), imaginary))


def maximum(b: Builder, x: Complex, y: Complex) -> Complex:
    """The later in lexicographic order; a NaN in either part wins, the first operand's first."""
    return _extreme(b, x, y, less_equal(b, y, x))


def minimum(b: Builder, x: Complex, y: Complex) -> Complex:
    return _extreme(b, x, y, less_equal(b, x, y))


def _extreme(b: Builder, x: Complex, y: Complex, takes_x: Value) -> Complex:
    takes_x = b.or_(takes_x, b.or_(is_nan(b, x.re), is_nan(b, x.im)))
    return select(b, takes_x, x, y)


def select(b: Builder, condition: Value, x: Complex, y: Complex) -> Complex:
    return Complex(b.select(condition, x.re, y.re), b.select(condition, x.im, y.im))
