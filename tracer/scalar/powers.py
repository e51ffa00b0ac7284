"""Powers and roots: in go values of one dtype, out comes x**y, the cube root, the inverse square root."""

from __future__ import annotations

import numpy as np

from tenferro.tracer.scalar.arithmetic import is_nan, zero
from tenferro.tracer.scalar.builder import F32, F64, I64, Builder, Value
from tenferro.tracer.scalar.exponential import (
    DOUBLE,
    exp,
    exp_parts,
    horner,
    log,
    power_of_sixteenths,
    power_of_two,
    split,
)
from tenferro.tracer.scalar.growth import in_double

Pair = tuple[Value, Value]
# log((1+s)/(1-s)) = 2s + 2/3 s**3 + s**5 Q(s**2), sqrt(1/2) <= (1+s)/(1-s) < sqrt(2): 2**-73.6
# (printed by tools/minimax.py, as all fits here).
LOG_TAIL = (
    0.3999999999999998, 0.2857142857144507, 0.22222222217546428, 0.18181818869173058, 0.15384556944125105,
    0.13336314765472548, 0.11674869510892565, 0.11988609576985779,
)  # fmt: skip
TWO_THIRDS = (0.6666666666666666, 3.700743415417188e-17)
# ln 2 as a sum; the product of the first, of 41 bits, with an exponent is exact.
LN2_SPLIT = (0.693147180559663, 2.8235290563031577e-13)
# m**(-1/3), 1 <= m <= 2: 2**-14.7
CBRT_START = (1.670007479809047, -1.1728822994015955, 0.6954847734302141, -0.22123880269392773, 0.028591179402980352)
CBRT_STEPS = (1.0, 0.7937005259840998, 0.6299605249474366)  # 2**(-j/3)


# -- integers ------------------------------------------------------------------------------------------------------


def integer_power(b: Builder, x: Value, n: Value) -> Value:
    """x**n by squaring, wrapped; 0 for negative n, which the row's check reports."""
    none, one = zero(b, n), b.const(1, n.dtype)

    def body(result: Value, base: Value, rest: Value) -> tuple[Value, Value, Value]:
        odd = b.ne(b.and_(rest, one), none)
        # Finished lanes stay: their rest is 0.
        base_next = b.select(b.lt(none, rest), b.mul(base, base), base)
        return b.select(odd, b.mul(result, base), result), base_next, b.shr(rest, one)

    negative = b.lt(n, none)
    rest = b.select(negative, none, n) if n.dtype.kind == "i" else n
    result, _, _ = b.while_any(lambda result, base, rest: b.lt(none, rest), body, b.const(1, x.dtype), x, rest)
    return b.select(negative, zero(b, x), result) if n.dtype.kind == "i" else result


# -- floats --------------------------------------------------------------------------------------------------------


def power(b: Builder, x: Value, y: Value) -> Value:
    """x**y of floats; special cases as C99 annex F.9.4.4 has them."""
    return b.call("power", in_double(_power_for_single) if x.dtype == F32 else _power, x, y)


def _power_for_single(b: Builder, x: Value, y: Value) -> Value:
    """In float64, where the exponent's error times the largest |y log(x)| is small against float32."""
    negative, magnitude = b.lt(x, b.const(0.0, F64)), b.abs(x)
    size = exp(b, b.mul(y, log(b, magnitude)))
    special = _is_special(b, x, y)
    return b.if_any(
        b.or_(special, negative), lambda: b.call("power_sign", _with_specials, x, y, size, size="rare"), lambda: size
    )


def _power(b: Builder, x: Value, y: Value) -> Value:
    infinity = b.const(np.inf, F64)
    usual = b.and_(b.le(b.const(2.0**-1022, F64), x), b.lt(x, infinity))
    high, low = _exponent(b, b.select(usual, x, b.const(1.0, F64)), y)
    usual = b.and_(usual, b.lt(b.abs(high), b.const(708.0, F64)))
    return b.if_any(
        b.not_(usual),
        lambda: b.call("power_rare", _power_rare, x, y, size="compact"),
        lambda: _exp_of_sum(b, high, low),
    )


def _exponent(b: Builder, x: Value, y: Value, scaled_by: Value | None = None) -> Pair:
    """y log(x) for positive normal x, as a sum of two values."""
    log_high, log_low = _log_pair(b, x, scaled_by)
    high = b.mul(y, log_high)
    return high, b.fma(y, log_low, b.fma(y, log_high, b.neg(high)))


def _log_pair(b: Builder, x: Value, scaled_by: Value | None = None) -> Pair:
    """log(x) as a sum of two values, within 2**-64 of it.

    s = f/(2+f), s**3 and what multiplies it are sums of two values; Q alone is rounded, and it stands for 2**-12."""
    f, n = split(b, x, scaled_by)
    divisor = b.add(f, b.const(2.0, F64))
    lost = b.sub(f, b.sub(divisor, b.const(2.0, F64)))
    inverse = b.div(b.const(1.0, F64), divisor)
    s = b.mul(f, inverse)
    s_low = b.mul(b.fma(b.neg(s), lost, b.fma(b.neg(s), divisor, f)), inverse)
    z = b.mul(s, s)
    z_low = b.fma(b.add(s, s), s_low, b.fma(s, s, b.neg(z)))
    cube, cube_low = _product(b, s, s_low, z, z_low)
    start, start_low = (b.const(v, F64) for v in TWO_THIRDS)
    tail = horner(b, z, LOG_TAIL)
    factor = b.fma(z, tail, start)
    factor_low = b.fma(z_low, tail, b.add(b.fma(z, tail, b.sub(start, factor)), start_low))
    more, more_low = _product(b, cube, cube_low, factor, factor_low)
    twice, twice_low = b.add(s, s), b.add(s_low, s_low)
    series = b.add(twice, more)
    series_low = b.add(b.sub(more, b.sub(series, twice)), b.add(twice_low, more_low))
    whole = b.mul(n, b.const(LN2_SPLIT[0], F64))
    total = b.add(whole, series)  # |whole| > |series| or whole is 0
    rest = b.fma(n, b.const(LN2_SPLIT[1], F64), b.add(b.sub(series, b.sub(total, whole)), series_low))
    high = b.add(total, rest)
    return high, b.sub(rest, b.sub(high, total))


def _product(b: Builder, x: Value, x_low: Value, y: Value, y_low: Value) -> Pair:
    high = b.mul(x, y)
    return high, b.fma(x, y_low, b.fma(x_low, y, b.fma(x, y, b.neg(high))))


def _exp_of_sum(b: Builder, high: Value, low: Value) -> Value:
    """exp(high + low) where it is normal."""
    p, sixteenths = exp_parts(b, high, low)
    scale = b.bitcast(power_of_sixteenths(b, sixteenths), F64)
    return b.fma(scale, p, scale)


def _exp_of_any_sum(b: Builder, high: Value, low: Value) -> Value:
    """exp(high + low): scaled in two steps, so that overflow and subnormal results round once."""
    outside = b.not_(b.lt(b.abs(high), b.const(746.0, F64)))
    edge = b.copysign(b.const(746.0, F64), high)
    high, low = b.select(outside, edge, high), b.select(outside, b.const(0.0, F64), low)
    p, sixteenths = exp_parts(b, high, low)
    n = b.shr(b.sub(sixteenths, b.bitcast(b.const(DOUBLE.magic, F64), I64)), b.const(4, I64))
    scale = b.sub(power_of_sixteenths(b, sixteenths), b.shl(n, b.const(DOUBLE.mantissa, I64)))
    scale = b.bitcast(scale, F64)
    half = b.shr(n, b.const(1, I64))
    whole = b.fma(scale, p, scale)
    return b.mul(b.mul(whole, power_of_two(b, half, DOUBLE)), power_of_two(b, b.sub(n, half), DOUBLE))


def _power_rare(b: Builder, x: Value, y: Value) -> Value:
    """For every x and y; equal to the usual way where that serves."""
    magnitude, none = b.abs(x), b.const(0.0, F64)
    ordinary = b.and_(b.lt(none, magnitude), b.lt(magnitude, b.const(np.inf, F64)))
    magnitude = b.select(ordinary, magnitude, b.const(1.0, F64))
    tiny = b.lt(magnitude, b.const(2.0**-1022, F64))
    normal = b.select(tiny, b.mul(magnitude, b.const(2.0**54, F64)), magnitude)
    high, low = _exponent(b, normal, y, b.select(tiny, b.const(54.0, F64), none))
    usual = b.lt(b.abs(high), b.const(708.0, F64))
    near = b.select(usual, high, none), b.select(usual, low, none)
    size = b.select(usual, _exp_of_sum(b, *near), _exp_of_any_sum(b, high, low))
    return _with_specials(b, x, y, size)


def _is_special(b: Builder, x: Value, y: Value) -> Value:
    """Whether an operand is 0, infinite or NaN."""
    none, infinity = b.const(0.0, F64), b.const(np.inf, F64)
    x_usual, y_usual = (b.and_(b.lt(none, b.abs(v)), b.lt(b.abs(v), infinity)) for v in (x, y))
    return b.not_(b.and_(x_usual, y_usual))


def _with_specials(b: Builder, x: Value, y: Value, size: Value) -> Value:
    """x**y from |x|**y of finite operands that are not 0: signs of negative x, and every case of annex F."""
    none, one, infinity = b.const(0.0, F64), b.const(1.0, F64), b.const(np.inf, F64)
    magnitude, negative_y = b.abs(x), b.lt(y, none)
    half = b.mul(y, b.const(0.5, F64))
    whole = b.eq(b.trunc(y), y)  # infinities too; they are even
    odd = b.and_(whole, b.ne(b.trunc(half), half))
    # Zero and infinite |x|, infinite y: 0 or infinity by whether the power shrinks.
    shrinks = b.lt(magnitude, one)
    is_edge = b.or_(b.or_(b.eq(magnitude, none), b.eq(magnitude, infinity)), b.eq(b.abs(y), infinity))
    grows = b.xor(shrinks, b.not_(negative_y))
    result = b.select(is_edge, b.select(grows, infinity, none), size)
    below = b.lt(b.bitcast(x, I64), b.const(0, I64))
    result = b.select(b.and_(below, odd), b.neg(result), result)
    fractional = b.and_(b.lt(x, none), b.and_(b.not_(whole), b.lt(magnitude, infinity)))
    unknown = b.or_(fractional, b.or_(is_nan(b, x), is_nan(b, y)))
    result = b.select(unknown, b.const(np.nan, F64), result)
    steady = b.and_(b.eq(magnitude, one), b.or_(b.eq(x, one), b.eq(b.abs(y), infinity)))
    return b.select(b.or_(steady, b.eq(y, none)), one, result)


# -- roots ---------------------------------------------------------------------------------------------------------


def rsqrt(b: Builder, x: Value) -> Value:
    """1 / sqrt(x)."""
    return b.call("rsqrt", in_double(_rsqrt) if x.dtype == F32 else _rsqrt, x)


def _rsqrt(b: Builder, x: Value) -> Value:
    return b.div(b.const(1.0, F64), b.sqrt(x))


def cbrt(b: Builder, x: Value) -> Value:
    return b.call("cbrt", in_double(_cbrt_for_single) if x.dtype == F32 else _cbrt, x)


def _reduced_root(b: Builder, size: Value) -> tuple[Value, Value, Value]:
    """(m, y, k) with size = m 8**k, 1 <= m < 8, y within 2**-40 of m**(-1/3), for positive normal float64 sizes."""
    bits = b.bitcast(size, I64)
    exponent = b.shr(bits, b.const(52, I64))  # biased by 1023 = 3 * 341
    k = b.shr(b.mul(exponent, b.const(21846, I64)), b.const(16, I64))  # a third, exact below 2**15
    j = b.sub(exponent, b.mul(k, b.const(3, I64)))
    digits = b.and_(bits, b.const(2**52 - 1, I64))
    unit = b.bitcast(b.or_(digits, b.const(1023 << 52, I64)), F64)
    m = b.bitcast(b.or_(digits, b.shl(b.add(j, b.const(1023, I64)), b.const(52, I64))), F64)
    steps = [b.const(v, F64) for v in CBRT_STEPS]
    step = b.select(b.eq(j, b.const(0, I64)), steps[0], b.select(b.eq(j, b.const(1, I64)), steps[1], steps[2]))
    y = b.mul(horner(b, unit, CBRT_START), step)
    # Halley's step for y**-3 = m.
    h = b.fma(b.neg(b.mul(m, y)), b.mul(y, y), b.const(1.0, F64))
    y = b.fma(b.mul(y, h), b.fma(h, b.const(2 / 9, F64), b.const(1 / 3, F64)), y)
    return m, y, b.sub(k, b.const(341, I64))


def _without_edges(b: Builder, x: Value, root: Value) -> Value:
    """The root with the sign of x; zeros, infinities and NaN are their own."""
    size = b.abs(x)
    usual = b.and_(b.lt(b.const(0.0, F64), size), b.lt(size, b.const(np.inf, F64)))
    return b.select(usual, b.copysign(root, x), x)


def _cbrt_for_single(b: Builder, x: Value) -> Value:
    m, y, k = _reduced_root(b, b.abs(x))
    return _without_edges(b, x, b.mul(b.mul(m, b.mul(y, y)), power_of_two(b, k, DOUBLE)))


def _cbrt(b: Builder, x: Value) -> Value:
    size = b.abs(x)
    tiny = b.lt(size, b.const(2.0**-1022, F64))
    normal = b.select(tiny, b.mul(size, b.const(2.0**54, F64)), size)
    m, y, k = _reduced_root(b, normal)
    # One step of Newton with the exact residual.
    square = b.mul(y, y)
    root = b.mul(m, square)
    power = b.mul(root, root)
    lost = b.fma(root, root, b.neg(power))
    rest = b.fma(b.neg(lost), root, b.fma(b.neg(power), root, m))
    root = b.fma(b.mul(rest, square), b.const(1 / 3, F64), root)
    k = b.select(tiny, b.sub(k, b.const(18, I64)), k)
    return _without_edges(b, x, b.mul(root, power_of_two(b, k, DOUBLE)))
