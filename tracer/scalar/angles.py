"""tan and the inverse trigonometric functions of float32 and float64 values: in go values, out comes the function.

float32 is computed in float64 with short polynomials. float64 carries what quotients, roots and multiples of pi lose
through the last sum. The fits are printed by ``python tools/minimax.py``.
"""

from __future__ import annotations

import numpy as np

from tenferro.tracer.scalar.arithmetic import is_nan
from tenferro.tracer.scalar.builder import F32, F64, I64, Builder, Value
from tenferro.tracer.scalar.exponential import DOUBLE, horner
from tenferro.tracer.scalar.growth import in_double
from tenferro.tracer.scalar.trigonometric import HALF_PI_DOUBLE, LIMIT_DOUBLE, Reduced, digits_double, reduced_single

Pair = tuple[Value, Value]
# sin(r) = r + r**3 S(r**2), |r| <= pi/4: 2**-57.9, short 2**-37.5
SIN = (
    -0.1666666666666663, 0.008333333333322118, -0.00019841269829589037, 2.7557313621211695e-06,
    -2.5050747736970405e-08, 1.589622875639456e-10,
)  # fmt: skip
SIN_SHORT = (-0.1666666664079867, 0.008333329304999741, -0.00019839312308216138, 2.7181219150644777e-06)
# cos(r) = 1 - r**2/2 + r**4 C(r**2), the same range: 2**-64.0, short 2**-33.0
COS = (
    0.041666666666666595, -0.0013888888888873056, 2.480158728885171e-05, -2.755731417929197e-07,
    2.0875700840752993e-09, -1.1358536437184567e-11,
)  # fmt: skip
COS_SHORT = (0.04166664569152091, -0.0013887316601060512, 2.4433190466780702e-05)
# asin(x) = x + x**3 P(x**2), |x| <= 1/2: 2**-59.9, short 2**-31.8
ASIN = (
    0.1666666666666676, 0.07499999999970791, 0.04464285717461905, 0.03038194270749058, 0.022372214994801246,
    0.017351611900859813, 0.013980821747221865, 0.01139890340903662, 0.010780297705522674, 0.0037062529334438666,
    0.021707797777785195, -0.020999524048152272, 0.03262889324606834,
)  # fmt: skip
ASIN_SHORT = (
    0.16666659992344074, 0.07500504127100659, 0.044516965047059195, 0.03180764415920706, 0.014438860587407345,
    0.03751612004439401,
)  # fmt: skip
# atan(t) = t + t**3 A(t**2), |t| <= tan(pi/8): 2**-59.4, short 2**-35.4
ATAN = (
    -0.333333333333332, 0.1999999999995325, -0.14285714280166573, 0.11111110782153502, -0.09090897725178756,
    0.07692059715833965, -0.06663099183522245, 0.05847859115960046, -0.05039189686757028, 0.0380621206121766,
    -0.017905018034714833,
)  # fmt: skip
ATAN_SHORT = (
    -0.33333332499193175, 0.19999903909598657, -0.14282007757008047, 0.1104469139625209, -0.08476267742297768,
    0.04744045783964077,
)  # fmt: skip
TAN_EIGHTH = 0.41421356237309503


def _const(b: Builder, value: float) -> Value:
    return b.const(value, F64)


def _quotient(b: Builder, x: Value, x_low: Value, y: Value, y_low: Value) -> Pair:
    """(x + x_low) / (y + y_low) as a sum of two values; the reciprocal of y must not leave the normal numbers."""
    inverse = b.div(_const(b, 1.0), y)
    q = b.mul(x, inverse)
    rest = b.fma(b.neg(q), y_low, b.add(b.fma(b.neg(q), y, x), x_low))
    return q, b.mul(rest, inverse)


# -- tan -----------------------------------------------------------------------------------------------------------


def tan(b: Builder, x: Value) -> Value:
    return b.call("tan", _tan_single if x.dtype == F32 else _tan, x)


def _tan_single(b: Builder, x: Value) -> Value:
    high, low, quadrant = reduced_single(b, b.abs(x))
    r = b.add(b.convert(high, F64), b.convert(low, F64))
    square = b.mul(r, r)
    sin = b.fma(b.mul(r, square), horner(b, square, SIN_SHORT), r)
    cos = horner(b, square, (1.0, -0.5, *COS_SHORT))
    odd = b.ne(b.and_(b.convert(quadrant, I64), b.const(1, I64)), b.const(0, I64))
    ratio = b.div(b.select(odd, b.neg(cos), sin), b.select(odd, sin, cos))
    return b.convert(_with_sign_of(b, ratio, b.convert(x, F64)), F32)


def _with_sign_of(b: Builder, value: Value, x: Value) -> Value:
    """The value, negated for negative x."""
    sign = b.and_(b.bitcast(x, I64), b.const(-(2**63), I64))
    return b.bitcast(b.xor(b.bitcast(value, I64), sign), F64)


def _reduce_tan(b: Builder, size: Value) -> Reduced:
    """Cody and Waite in three constants: r = size - n pi/2 as high + low, |r| <= pi/4."""
    first, second, third = HALF_PI_DOUBLE
    magic = _const(b, DOUBLE.magic)
    shifted = b.fma(size, _const(b, 0.63661977236758134308), magic)
    n = b.sub(shifted, magic)
    r = b.fma(n, _const(b, -first), size)  # exact: a multiple of the last bit of pi/2 below 1
    product = b.mul(n, _const(b, second))
    high = b.sub(r, product)
    rest = b.fma(n, _const(b, third), b.fma(n, _const(b, second), b.neg(product)))
    low = b.sub(b.sub(b.sub(r, high), product), rest)
    return high, low, b.bitcast(shifted, I64)


def _reduce_tan_rare(b: Builder, size: Value) -> Reduced:
    """For every size; equal to ``_reduce_tan`` up to the limit. Infinity gives NaN."""
    limit = _const(b, LIMIT_DOUBLE)
    large = b.and_(b.lt(limit, size), b.lt(size, _const(b, np.inf)))
    by_digits = digits_double(b, b.select(large, size, limit))
    high, low, quadrant = (b.select(large, x, y) for x, y in zip(by_digits, _reduce_tan(b, size), strict=True))
    return high, low, quadrant


def _tan(b: Builder, x: Value) -> Value:
    """sin/cos, or -cos/sin in odd quadrants, of high + low; both as sums of two values."""
    size = b.abs(x)
    rare = b.not_(b.le(size, _const(b, LIMIT_DOUBLE)))
    high, low, quadrant = b.if_any(
        rare,
        lambda: b.call("reduce_angle_of_tan", _reduce_tan_rare, size, size="compact"),
        lambda: _reduce_tan(b, size),
    )
    one, half = _const(b, 1.0), _const(b, 0.5)
    square = b.mul(high, high)
    series = b.fma(b.mul(high, square), horner(b, square, SIN), low)
    sin = b.add(high, series)
    sin_low = b.sub(series, b.sub(sin, high))
    # cos: 1 - square/2 rounded, what that loses, the series, and what the square and low lack.
    lack = b.fma(high, low, b.mul(half, b.fma(high, high, b.neg(square))))
    start = b.fma(b.neg(half), square, one)
    lost = b.fma(b.neg(half), square, b.sub(one, start))
    series = b.fma(b.mul(square, square), horner(b, square, COS), b.sub(lost, lack))
    cos = b.add(start, series)
    cos_low = b.sub(series, b.sub(cos, start))
    odd = b.ne(b.and_(quadrant, b.const(1, I64)), b.const(0, I64))
    above, above_low = b.select(odd, b.neg(cos), sin), b.select(odd, b.neg(cos_low), sin_low)
    below, below_low = b.select(odd, sin, cos), b.select(odd, sin_low, cos_low)
    # No float64 is nearer than 2**-62 to an odd multiple of pi/2, where sin divides.
    q, rest = _quotient(b, above, above_low, below, below_low)
    return _with_sign_of(b, b.add(q, rest), x)


# -- arctan --------------------------------------------------------------------------------------------------------


def arctan2(b: Builder, y: Value, x: Value) -> Value:
    """The angle of (x, y) in [-pi, pi]."""
    return b.call("arctan2", in_double(_arctan2_short) if x.dtype == F32 else _arctan2, y, x)


def arctan(b: Builder, x: Value) -> Value:
    return b.call("arctan", in_double(_arctan_short) if x.dtype == F32 else _arctan, x)


def _arctan(b: Builder, x: Value) -> Value:
    size = b.abs(x)
    limit = _const(b, 2.0**200)  # from here on the result is pi/2
    bounded = b.select(b.lt(limit, size), limit, size)
    angle = _angle(b, bounded, _const(b, 1.0), b.const(False, np.dtype(np.bool_)))
    return b.copysign(angle, x)


def _arctan_short(b: Builder, x: Value) -> Value:
    size = b.abs(x)
    limit = _const(b, 2.0**200)
    bounded = b.select(b.lt(limit, size), limit, size)
    return b.copysign(_angle_short(b, bounded, _const(b, 1.0), b.const(False, np.dtype(np.bool_))), x)


def _finite_pair(b: Builder, y: Value, x: Value) -> tuple[Value, Value, Value]:
    """(|y|, |x|, whether x lies to the left): an infinite one as 1 beside 0, two as both 1, two zeros as (0, 1)."""
    across, up, none, one = b.abs(x), b.abs(y), _const(b, 0.0), _const(b, 1.0)
    far_across, far_up = (b.eq(v, _const(b, np.inf)) for v in (across, up))
    empty = b.and_(b.eq(across, none), b.eq(up, none))
    width = b.select(b.or_(far_across, empty), one, b.select(far_up, none, across))
    return b.select(far_up, one, b.select(far_across, none, up)), width, b.lt(b.bitcast(x, I64), b.const(0, I64))


def _with_nan(b: Builder, angle: Value, y: Value, x: Value) -> Value:
    unknown = b.or_(is_nan(b, x), is_nan(b, y))
    return b.copysign(b.select(unknown, _const(b, np.nan), angle), y)


def _arctan2_short(b: Builder, y: Value, x: Value) -> Value:
    return _with_nan(b, _angle_short(b, *_finite_pair(b, y, x)), y, x)


def _arctan2(b: Builder, y: Value, x: Value) -> Value:
    up, across, backward = _finite_pair(b, y, x)
    big = b.select(b.lt(across, up), up, across)
    # Scaled, so that the reciprocal of their sum is normal; what then vanishes would vanish in the quotient.
    huge, tiny = b.lt(_const(b, 2.0**1000), big), b.lt(big, _const(b, 2.0**-500))
    scale = b.select(huge, _const(b, 2.0**-30), b.select(tiny, _const(b, 2.0**600), _const(b, 1.0)))
    return _with_nan(b, _angle(b, b.mul(up, scale), b.mul(across, scale), backward), y, x)


def _angle_terms(b: Builder, up: Value, across: Value, backward: Value) -> tuple[Value, Value, Value, Value, Value]:
    """(big, small, whether small/big is above tan(pi/8), m, whether the arctangent is taken off): the angle is
    m pi/4 plus or minus that of at most tan(pi/8)."""
    steep = b.lt(across, up)
    big, small = b.select(steep, up, across), b.select(steep, across, up)
    over = b.lt(b.mul(big, _const(b, TAN_EIGHTH)), small)
    m = b.select(over, _const(b, 1.0), _const(b, 0.0))
    m = b.select(steep, b.sub(_const(b, 2.0), m), m)
    m = b.select(backward, b.sub(_const(b, 4.0), m), m)
    return big, small, over, m, b.xor(steep, backward)


def _angle_short(b: Builder, up: Value, across: Value, backward: Value) -> Value:
    big, small, over, m, minus = _angle_terms(b, up, across, backward)
    t = b.div(b.select(over, b.sub(small, big), small), b.select(over, b.add(small, big), big))
    square = b.mul(t, t)
    angle = b.fma(b.mul(t, square), horner(b, square, ATAN_SHORT), t)
    return b.fma(m, _const(b, HALF_PI_DOUBLE[0] / 2), b.select(minus, b.neg(angle), angle))


def _angle(b: Builder, up: Value, across: Value, backward: Value) -> Value:
    """The same with what the quotient and pi lose."""
    big, small, over, m, minus = _angle_terms(b, up, across, backward)
    none = _const(b, 0.0)
    # small - big and small + big with their errors; |small| <= |big|.
    difference, total = b.sub(small, big), b.add(small, big)
    difference_low = b.sub(small, b.add(difference, big))
    total_low = b.sub(small, b.sub(total, big))
    above, above_low = b.select(over, difference, small), b.select(over, difference_low, none)
    below, below_low = b.select(over, total, big), b.select(over, total_low, none)
    t, t_low = _quotient(b, above, above_low, below, below_low)
    square = b.mul(t, t)
    rest = b.fma(b.mul(t, square), horner(b, square, ATAN), t_low)
    t, rest = b.select(minus, b.neg(t), t), b.select(minus, b.neg(rest), rest)
    first, second = (_const(b, v / 2) for v in HALF_PI_DOUBLE[:2])
    high = b.mul(m, first)
    low = b.fma(m, second, b.fma(m, first, b.neg(high)))
    angle = b.add(high, t)  # |high| > |t| or high is 0
    return b.add(angle, b.add(b.sub(t, b.sub(angle, high)), b.add(low, rest)))


# -- arcsin and arccos ---------------------------------------------------------------------------------------------


def arcsin(b: Builder, x: Value) -> Value:
    return b.call("arcsin", in_double(_arcsin_short) if x.dtype == F32 else _arcsin, x)


def arccos(b: Builder, x: Value) -> Value:
    return b.call("arccos", in_double(_arccos_short) if x.dtype == F32 else _arccos, x)


def _half_angle(b: Builder, x: Value, short: bool) -> tuple[Value, Value, Value]:
    """(s, rest, whether |x| > 1/2): s + rest is asin(|x|) up to 1/2, above it asin(sqrt((1 - |x|)/2)), which is half
    of acos(|x|). |x| > 1 gives NaN."""
    size, half = b.abs(x), _const(b, 0.5)
    over = b.lt(half, size)
    z = b.select(over, b.fma(b.neg(half), size, half), b.mul(size, size))
    s = b.select(over, b.sqrt(z), size)
    if short:
        return s, b.mul(b.mul(s, z), horner(b, z, ASIN_SHORT)), over
    divisor = b.select(b.eq(s, _const(b, 0.0)), _const(b, 1.0), b.add(s, s))
    lost = b.select(over, b.div(b.fma(b.neg(s), s, z), divisor), _const(b, 0.0))
    return s, b.fma(b.mul(s, z), horner(b, z, ASIN), lost), over


def _minus(b: Builder, high: Value, low: Value, x: Value, rest: Value) -> Value:
    """high + low - x - rest, |high| >= |x| or high 0."""
    total = b.sub(high, x)
    return b.add(total, b.sub(b.add(b.sub(b.sub(high, total), x), low), rest))


def _arcsin_of(b: Builder, x: Value, short: bool) -> Value:
    s, rest, over = _half_angle(b, x, short)
    first, second = (_const(b, v) for v in HALF_PI_DOUBLE[:2])
    far = _minus(b, first, second, b.add(s, s), b.add(rest, rest))
    return b.copysign(b.select(over, far, b.add(s, rest)), x)


def _arccos_of(b: Builder, x: Value, short: bool) -> Value:
    s, rest, over = _half_angle(b, x, short)
    none, below = _const(b, 0.0), b.lt(x, _const(b, 0.0))
    (half_pi, half_pi_low), (pi, pi_low) = ([_const(b, k * v) for v in HALF_PI_DOUBLE[:2]] for k in (1, 2))
    # pi/2 - asin(x); acos of positive x above 1/2; pi less it for negative.
    high = b.select(over, b.select(below, pi, none), half_pi)
    low = b.select(over, b.select(below, pi_low, none), half_pi_low)
    s, rest = b.select(over, b.add(s, s), s), b.select(over, b.add(rest, rest), rest)
    plus = b.xor(below, over)  # x below -1/2 is taken off, and so is x from 0 to 1/2
    return _minus(b, high, low, b.select(plus, b.neg(s), s), b.select(plus, b.neg(rest), rest))


def _arcsin(b: Builder, x: Value) -> Value:
    return _arcsin_of(b, x, short=False)


def _arcsin_short(b: Builder, x: Value) -> Value:
    return _arcsin_of(b, x, short=True)


def _arccos(b: Builder, x: Value) -> Value:
    return _arccos_of(b, x, short=False)


def _arccos_short(b: Builder, x: Value) -> Value:
    return _arccos_of(b, x, short=True)
