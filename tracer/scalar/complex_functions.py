"""Elementary functions of complex numbers: in goes a ``Complex``, out comes its function.

All are computed in float64; complex64 is widened, which leaves each part within 1 ulp. For complex128 the bound is on
the error relative to |result| (``docs/accuracy.md``). Special values follow C99 annex G.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenferro.tracer.scalar import exponential, trigonometric
from tenferro.tracer.scalar.angles import arctan2
from tenferro.tracer.scalar.arithmetic import is_nan
from tenferro.tracer.scalar.builder import F32, F64, I64, Builder, Complex, Value
from tenferro.tracer.scalar.exponential import LN2_DOUBLE
from tenferro.tracer.scalar.growth import exp2 as exp2_of_real
from tenferro.tracer.scalar.logarithms import BASES

Pair = tuple[Value, Value]


def _in_double(name: str, function: Callable[[Builder, Value, Value], Pair]) -> Callable[[Builder, Complex], Complex]:
    def on_complex(b: Builder, z: Complex) -> Complex:
        narrow = z.re.dtype == F32
        re, im = (b.convert(v, F64) if narrow else v for v in (z.re, z.im))
        re, im = b.call(name, function, re, im, size="compact")
        return Complex(b.convert(re, F32), b.convert(im, F32)) if narrow else Complex(re, im)

    return on_complex


def _const(b: Builder, value: float) -> Value:
    return b.const(value, F64)


def _is_finite(b: Builder, x: Value) -> Value:
    return b.lt(b.abs(x), _const(b, np.inf))


def _is_infinite(b: Builder, x: Value) -> Value:
    return b.eq(b.abs(x), _const(b, np.inf))


def _is_zero(b: Builder, x: Value) -> Value:
    return b.eq(x, _const(b, 0.0))


def _exp_parts(b: Builder, x: Value) -> Pair:
    """(m, f) with exp(x) = m f, where f is 1 but for large x, so that a product with m does not overflow early."""
    # exp(600) is rounded once more; the sum x - 600 is exact where x is above it.
    large = b.lt(_const(b, 600.0), x)
    rest = b.select(large, b.sub(x, _const(b, 600.0)), x)
    factor = b.select(large, _const(b, 3.7730203009299397e260), _const(b, 1.0))
    return exponential.exp(b, rest), factor


def _exp(b: Builder, re: Value, im: Value) -> Pair:
    return _turned(b, re, im, _exp_parts(b, re), trigonometric.sin_cos(b, im))


def _turned(b: Builder, re: Value, im: Value, parts: Pair, angle: Pair) -> Pair:
    """The power of re (the product of ``parts``) times the sine and cosine that im stands for."""
    size, factor = parts
    s, c = (b.mul(b.mul(size, v), factor) for v in angle)
    # A zero imaginary part stays what it is beside any real part.
    s, c = b.select(_is_zero(b, im), im, s), b.select(_is_zero(b, im), b.mul(size, factor), c)
    # exp(-inf) is 0 and exp(inf) infinite whatever the angle.
    vanishes = b.and_(b.eq(re, _const(b, -np.inf)), b.not_(_is_finite(b, im)))
    explodes = b.and_(b.eq(re, _const(b, np.inf)), b.not_(_is_finite(b, im)))
    none = _const(b, 0.0)
    c = b.select(vanishes, none, b.select(explodes, re, c))
    return c, b.select(vanishes, none, s)


def _log(b: Builder, re: Value, im: Value) -> Pair:
    x, y = b.abs(re), b.abs(im)
    swapped = b.lt(x, y)
    big, small = b.select(swapped, y, x), b.select(swapped, x, y)
    size = b.select(b.or_(is_nan(b, re), is_nan(b, im)), _const(b, np.nan), _log_of_size(b, big, small))
    infinite = b.or_(_is_infinite(b, re), _is_infinite(b, im))
    size = b.select(infinite, _const(b, np.inf), size)
    return size, arctan2(b, im, re)


def _log_of_size(b: Builder, big: Value, small: Value) -> Value:
    """log(hypot(big, small)), accurate near 1 too, where the logarithm of a rounded size would keep no digit."""
    half = _const(b, 0.5)
    near = b.and_(b.lt(half, big), b.lt(big, _const(b, 1.5)))
    # Far from 1: both parts over 2**e, e from the larger one, which is first moved to where 2**e and 2**-e are normal.
    shift = b.select(b.lt(big, _const(b, 2.0**-1000)), b.const(60, I64), b.const(0, I64))
    shift = b.select(b.lt(_const(b, 2.0**1000), big), b.const(-60, I64), shift)
    more = exponential.power_of_two(b, shift, exponential.DOUBLE)
    p, q = b.mul(big, more), b.mul(small, more)
    exponent = b.sub(b.shr(b.bitcast(p, I64), b.const(52, I64)), b.const(1023, I64))
    down = exponential.power_of_two(b, b.neg(b.select(near, b.const(0, I64), exponent)), exponential.DOUBLE)
    p, q = b.mul(p, down), b.mul(q, down)
    n = b.convert(b.sub(exponent, shift), F64)
    far = b.mul(half, exponential.log(b, b.fma(p, p, b.mul(q, q))))
    far = b.fma(n, _const(b, LN2_DOUBLE[0]), b.fma(n, _const(b, LN2_DOUBLE[1]), far))
    far = b.select(_is_zero(b, big), _const(b, -np.inf), far)
    return b.select(near, b.mul(half, _log_one_plus(b, *_square_minus_one(b, p, q))), far)


def _square_minus_one(b: Builder, p: Value, q: Value) -> Pair:
    """p**2 + q**2 - 1 as a sum of two values, for 1/2 < p < 3/2."""
    square, other = b.mul(p, p), b.mul(q, q)
    lost = b.add(b.fma(p, p, b.neg(square)), b.fma(q, q, b.neg(other)))
    start = b.sub(square, _const(b, 1.0))
    # The error of that subtraction is there below 1/2 only.
    lost = b.add(lost, b.sub(square, b.add(start, _const(b, 1.0))))
    return _two_sum(b, start, other, lost)


def _two_sum(b: Builder, x: Value, y: Value, rest: Value) -> Pair:
    """x + y + rest as a value and what it lacks (Knuth)."""
    s = b.add(x, y)
    part = b.sub(s, x)
    error = b.add(b.sub(x, b.sub(s, part)), b.sub(y, part))
    return s, b.add(error, rest)


def _log_one_plus(b: Builder, high: Value, low: Value) -> Value:
    """log(1 + high + low): the logarithm of the rounded sum, and its error over it."""
    one = _const(b, 1.0)
    total, error = _two_sum(b, one, high, low)
    return b.add(exponential.log(b, total), b.div(error, total))


def _hyperbolic(b: Builder, x: Value) -> tuple[Value, Value, Value]:
    """(m, n, f) with sinh(x) = m f and cosh(x) = n f, where f is 1 but for large |x|."""
    size, half, one = b.abs(x), _const(b, 0.5), _const(b, 1.0)
    limit = _const(b, 20.0)
    minus_one, _ = exponential.expm1_double(b, b.select(b.lt(limit, size), limit, size))
    near = b.mul(half, b.add(minus_one, b.div(minus_one, b.add(minus_one, one))))
    e, factor = _exp_parts(b, size)
    large = b.mul(half, e)
    above = b.lt(limit, size)
    inverse = b.div(half, b.select(above, one, e))
    sinh = b.copysign(b.select(above, large, near), x)
    return sinh, b.select(above, large, b.add(large, inverse)), factor


def _sin(b: Builder, re: Value, im: Value) -> Pair:
    sinh, cosh, factor = _hyperbolic(b, im)
    sin_re, cos_re = trigonometric.sin_cos(b, re)
    x, y = b.mul(b.mul(sin_re, cosh), factor), b.mul(b.mul(cos_re, sinh), factor)
    x = b.select(_is_zero(b, re), re, x)
    flat = b.and_(_is_zero(b, im), b.not_(_is_finite(b, re)))
    return x, b.select(b.or_(flat, _without_direction(b, re, im)), im, y)


def _without_direction(b: Builder, re: Value, im: Value) -> Value:
    """sin and cos are infinite here, at an angle that nothing tells: C99 makes the part that cosh or sinh gives
    infinite."""
    return b.and_(_is_infinite(b, im), b.not_(_is_finite(b, re)))


def _cos(b: Builder, re: Value, im: Value) -> Pair:
    sinh, cosh, factor = _hyperbolic(b, im)
    sin_re, cos_re = trigonometric.sin_cos(b, re)
    x, y = b.mul(b.mul(cos_re, cosh), factor), b.neg(b.mul(b.mul(sin_re, sinh), factor))
    none, one = _const(b, 0.0), _const(b, 1.0)
    vanishes = b.or_(_is_zero(b, re), _is_zero(b, im))
    signed = b.neg(b.mul(b.copysign(none, re), b.copysign(one, im)))
    x = b.select(_without_direction(b, re, im), _const(b, np.inf), x)
    return x, b.select(vanishes, signed, y)


def _tanh(b: Builder, re: Value, im: Value) -> Pair:
    """Kahan's formula (Branch Cuts for Complex Elementary Functions, 1987), times cos(im)**2: no tangent, no pole."""
    one, none = _const(b, 1.0), _const(b, 0.0)
    limit = _const(b, 22.0)
    size = b.abs(re)
    above = b.lt(limit, size)
    bounded = b.select(above, limit, size)
    minus_one, _ = exponential.expm1_double(b, bounded)
    s = b.mul(_const(b, 0.5), b.add(minus_one, b.div(minus_one, b.add(minus_one, one))))
    sin, cos = trigonometric.sin_cos(b, im)
    below = b.fma(s, s, b.mul(cos, cos))
    x = b.div(b.mul(s, b.sqrt(b.fma(s, s, one))), below)
    y = b.div(b.mul(sin, cos), below)
    # tanh is 1 here, and its imaginary part 4 sin cos exp(-2 |re|).
    fading = exponential.exp(b, b.neg(b.add(size, size)))
    far = b.mul(b.mul(_const(b, 4.0), b.mul(sin, cos)), fading)
    angle_unknown = b.not_(_is_finite(b, im))
    infinite = _is_infinite(b, re)
    far = b.select(b.and_(infinite, angle_unknown), none, far)
    x = b.select(b.and_(above, b.or_(infinite, b.not_(angle_unknown))), one, x)
    y = b.select(above, far, y)
    x = b.select(_is_zero(b, re), none, x)
    y = b.select(_is_zero(b, im), im, y)
    return b.copysign(x, re), y


def _sqrt(b: Builder, re: Value, im: Value) -> Pair:
    x, y = b.abs(re), b.abs(im)
    big = b.select(b.lt(x, y), y, x)
    up, down = b.lt(big, _const(b, 2.0**-500)), b.lt(_const(b, 2.0**500), big)
    one = _const(b, 1.0)
    scale = b.select(up, _const(b, 2.0**600), b.select(down, _const(b, 2.0**-600), one))
    back = b.select(up, _const(b, 2.0**-300), b.select(down, _const(b, 2.0**300), one))
    p, q = b.mul(x, scale), b.mul(y, scale)
    length = b.sqrt(b.fma(p, p, b.mul(q, q)))
    # With the square root of (|re| + length) / 2 in hand the other part is |im| / 2 over it: no cancellation.
    t = b.mul(b.sqrt(b.mul(_const(b, 0.5), b.add(p, length))), back)
    other = b.div(y, b.select(_is_zero(b, t), one, b.add(t, t)))
    backward = b.lt(b.bitcast(re, I64), b.const(0, I64))
    return _sqrt_special(b, re, im, b.select(backward, other, t), b.copysign(b.select(backward, t, other), im))


def _sqrt_special(b: Builder, re: Value, im: Value, x: Value, y: Value) -> Pair:
    infinity, none = _const(b, np.inf), _const(b, 0.0)
    right, left = b.eq(re, infinity), b.eq(re, _const(b, -np.inf))
    unknown = is_nan(b, im)
    x = b.select(right, infinity, b.select(left, b.select(unknown, im, none), x))
    y = b.select(right, b.select(unknown, im, b.copysign(none, im)), y)
    y = b.select(left, b.copysign(infinity, im), y)
    vertical = _is_infinite(b, im)
    return b.select(vertical, infinity, x), b.select(vertical, im, y)


def _exp2(b: Builder, re: Value, im: Value) -> Pair:
    """2**re at the angle im ln(2), with what the product loses where that is a small angle; beyond, as NumPy."""
    large = b.lt(_const(b, 1000.0), re)
    rest = b.select(large, b.sub(re, _const(b, 1000.0)), re)
    parts = exp2_of_real(b, rest), b.select(large, _const(b, 2.0**1000), _const(b, 1.0))
    high, low = (_const(b, v) for v in LN2_DOUBLE)
    angle = b.mul(im, high)
    more = b.fma(im, low, b.fma(im, high, b.neg(angle)))
    more = b.select(b.lt(b.abs(angle), _const(b, 2.0**26)), more, _const(b, 0.0))
    sin, cos = trigonometric.sin_cos(b, angle)
    return _turned(b, re, im, parts, (b.fma(more, cos, sin), b.fma(b.neg(more), sin, cos)))


def _log_to(base: int) -> Callable[[Builder, Value, Value], Pair]:
    def function(b: Builder, re: Value, im: Value) -> Pair:
        inverse = _const(b, BASES[base].inverse[0])
        size, angle = _log(b, re, im)
        return b.mul(size, inverse), b.mul(angle, inverse)

    return function


# C99 states sin, cos and tan by sinh, cosh and tanh of i z; here it is the other way round for the first two.


def _sinh(b: Builder, re: Value, im: Value) -> Pair:
    x, y = _sin(b, im, b.neg(re))
    return b.neg(y), x


def _cosh(b: Builder, re: Value, im: Value) -> Pair:
    return _cos(b, im, b.neg(re))


def _tan(b: Builder, re: Value, im: Value) -> Pair:
    x, y = _tanh(b, b.neg(im), re)
    return y, b.neg(x)


exp = _in_double("complex_exp", _exp)
log = _in_double("complex_log", _log)
sin = _in_double("complex_sin", _sin)
cos = _in_double("complex_cos", _cos)
tanh = _in_double("complex_tanh", _tanh)
sqrt = _in_double("complex_sqrt", _sqrt)
exp2 = _in_double("complex_exp2", _exp2)
log2 = _in_double("complex_log2", _log_to(2))
log10 = _in_double("complex_log10", _log_to(10))
sinh = _in_double("complex_sinh", _sinh)
cosh = _in_double("complex_cosh", _cosh)
tan = _in_double("complex_tan", _tan)
