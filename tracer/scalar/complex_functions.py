"""exp, log, sin, cos, tanh and sqrt of complex numbers: in goes a ``Complex``, out comes its function.

All are computed in float64; complex64 is widened, which leaves each part within 1 ulp. For complex128 the bound is on
the error relative to |result| (``docs/accuracy.md``). Special values follow C99 annex G.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenferro.tracer.scalar import exponential, trigonometric
from tenferro.tracer.scalar.arithmetic import is_nan
from tenferro.tracer.scalar.builder import F32, F64, I64, Builder, Complex, Value
from tenferro.tracer.scalar.exponential import LN2_DOUBLE, horner

Pair = tuple[Value, Value]
PI, PI_LOW = 3.141592653589793, 1.2246467991473532e-16
# atan(t) = t + t**3 A(t**2), |t| <= tan(pi/8): 2**-59.4
ATAN = (
    -0.333333333333332, 0.19999999999953164, -0.14285714280157585, 0.1111111078168639, -0.09090897711276572,
    0.07692059460874175, -0.06663096205061612, 0.058478369015717936, -0.05039087308572342, 0.0380594649354014,
    -0.01790205331807622,
)  # fmt: skip


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
    size, factor = _exp_parts(b, re)
    s, c = (b.mul(b.mul(size, v), factor) for v in trigonometric.sin_cos(b, im))
    # A zero imaginary part stays what it is beside any real part.
    s, c = b.select(_is_zero(b, im), im, s), b.select(_is_zero(b, im), b.mul(size, factor), c)
    # exp(-inf) is 0 and exp(inf) infinite whatever the angle.
    vanishes = b.and_(b.eq(re, _const(b, -np.inf)), b.not_(_is_finite(b, im)))
    explodes = b.and_(b.eq(re, _const(b, np.inf)), b.not_(_is_finite(b, im)))
    none = _const(b, 0.0)
    c = b.select(vanishes, none, b.select(explodes, re, c))
    return c, b.select(vanishes, none, s)


def atan2(b: Builder, y: Value, x: Value) -> Value:
    """The angle of (x, y) in [-pi, pi], float64: m pi/4 plus or minus the arctangent of at most tan(pi/8)."""
    across, up = b.abs(x), b.abs(y)
    steep = b.lt(across, up)
    backward = b.lt(b.bitcast(x, I64), b.const(0, I64))
    big, small = b.select(steep, up, across), b.select(steep, across, up)
    # Both infinite: 45 degrees. The quarter keeps the sum below finite.
    both = b.and_(_is_infinite(b, across), _is_infinite(b, up))
    none, one, quarter = _const(b, 0.0), _const(b, 1.0), _const(b, 0.25)
    huge = b.lt(_const(b, 2.0**1000), big)
    big, small = b.select(huge, b.mul(big, quarter), big), b.select(huge, b.mul(small, quarter), small)
    big, small = b.select(both, one, big), b.select(both, one, small)
    big = b.select(_is_zero(b, big), one, big)
    # Above tan(pi/8): atan(t) = pi/4 + atan((t - 1) / (t + 1)).
    over = b.lt(b.mul(big, _const(b, 0.41421356237309503)), small)
    t = b.div(b.select(over, b.sub(small, big), small), b.select(over, b.add(small, big), big))
    square = b.mul(t, t)
    angle = b.fma(b.mul(t, square), horner(b, square, ATAN), t)
    m = b.select(over, one, none)
    m, angle = b.select(steep, b.sub(_const(b, 2.0), m), m), b.select(steep, b.neg(angle), angle)
    m, angle = b.select(backward, b.sub(_const(b, 4.0), m), m), b.select(backward, b.neg(angle), angle)
    high = b.mul(m, _const(b, PI / 4))
    low = b.fma(m, _const(b, PI_LOW / 4), b.fma(m, _const(b, PI / 4), b.neg(high)))
    angle = b.add(high, b.add(low, angle))
    angle = b.select(b.or_(is_nan(b, x), is_nan(b, y)), _const(b, np.nan), angle)
    return b.copysign(angle, y)


def _log(b: Builder, re: Value, im: Value) -> Pair:
    x, y = b.abs(re), b.abs(im)
    swapped = b.lt(x, y)
    big, small = b.select(swapped, y, x), b.select(swapped, x, y)
    size = b.select(b.or_(is_nan(b, re), is_nan(b, im)), _const(b, np.nan), _log_of_size(b, big, small))
    infinite = b.or_(_is_infinite(b, re), _is_infinite(b, im))
    size = b.select(infinite, _const(b, np.inf), size)
    return size, atan2(b, im, re)


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


exp = _in_double("complex_exp", _exp)
log = _in_double("complex_log", _log)
sin = _in_double("complex_sin", _sin)
cos = _in_double("complex_cos", _cos)
tanh = _in_double("complex_tanh", _tanh)
sqrt = _in_double("complex_sqrt", _sqrt)
