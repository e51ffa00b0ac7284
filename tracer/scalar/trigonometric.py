"""sin and cos of float32 and float64 values: in goes an angle in radians, out comes its function, full range.

float32 angles are reduced to |r| <= pi/4, r = high + low, for two polynomials; float64 angles to |r| <= pi/2 for the
polynomial of sin alone, which takes two thirds of the instructions. The reduction is by three constants (Cody and
Waite) below a limit, above it by the digits of 2/pi that matter (Payne and Hanek, ACM SIGNUM Newsletter 18, 1983), as
integers.
"""

from __future__ import annotations

from tenferro.tracer.scalar.builder import F32, F64, I32, I64, U64, Builder, Value
from tenferro.tracer.scalar.exponential import DOUBLE, SINGLE, horner

# The first 1,344 bits of 2/pi after the point; 64 zero bits in front serve angles that start before it.
TWO_OVER_PI = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561b7246e3a424dd2e006492eea09d1921cfe1deb1cb129a73e"
    "e88235f52ebb4484e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980fef2f118b5a0a6d1f6d367ecf27cb09b7"
    "4f463f669e5fea2d7527bac7ebe5f17b3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361da9e391615ee61b08"
    "",
    16,
)
TWO_OVER_PI_BITS = 1344 + 64


def _windows(step: int) -> tuple[int, ...]:
    """64 bits of 2/pi from bit 0, step, 2 step, … on."""
    count = (TWO_OVER_PI_BITS - 64) // step
    return tuple((TWO_OVER_PI >> (TWO_OVER_PI_BITS - 64 - i * step)) % 2**64 for i in range(count))


# Exponents of float32 need the first windows alone.
WINDOWS_SINGLE, WINDOWS_DOUBLE = _windows(32)[:9], _windows(28)


HALF_PI_SINGLE = (1.5707963705062866, -4.371138828673793e-08, -1.7151245100058819e-15)
HALF_PI_DOUBLE = (1.5707963267948966, 6.123233995736766e-17, -1.4973849048591698e-33)
# sin(r) = r + r**3 S(r**2), |r| <= pi/4: 2**-27.9
SIN_SINGLE = (-0.16666653752326965, 0.008332112804055214, -0.00019508739933371544)
# cos(r) = 1 - r**2/2 + r**4 C(r**2), the same range: 2**-32.9
COS_SINGLE = (0.04166664555668831, -0.0013887251261621714, 2.442568620608654e-05)
# sin(r) = r + r**3 S(r**2), |r| <= pi/2: 2**-61.5
SIN_DOUBLE = (
    -0.16666666666666666, 0.008333333333333207, -0.00019841269841212901, 2.755731921165935e-06, -2.505210691382807e-08,
    1.6058941521040383e-10, -7.643033838435534e-13, 2.7215803511395367e-15,
)  # fmt: skip
# Above these the three constants no longer give every bit.
LIMIT_SINGLE, LIMIT_DOUBLE = 65536.0, 67108864.0

Reduced = tuple[Value, Value, Value]  # high, low, quadrant as an integer
HalfTurns = tuple[Value, Value]  # r, an integer whose lowest bit is that of n


def _reduce_single(b: Builder, size: Value) -> Reduced:
    """Cody and Waite: n = the nearest multiple of pi/2, r = size - n pi/2 with its rounding error as ``low``."""
    first, second, third = HALF_PI_SINGLE
    magic = b.const(SINGLE.magic, F32)
    shifted = b.fma(size, b.const(0.63661977236758134308, F32), magic)
    n = b.sub(shifted, magic)
    r = b.fma(n, b.const(-first, F32), size)  # exact: |r| < 1 is a multiple of the last bit of pi/2
    # r and the product lie on one grid of bits, so the two subtractions give the error of the first exactly.
    product = b.mul(n, b.const(second, F32))
    high = b.sub(r, product)
    rest = b.fma(n, b.const(third, F32), b.fma(n, b.const(second, F32), b.neg(product)))
    low = b.sub(b.sub(b.sub(r, high), product), rest)
    return high, low, b.bitcast(shifted, I32)


def _reduce_double(b: Builder, size: Value, quarter: int) -> HalfTurns:
    """n and r with size + quarter pi/2 = n pi + r, for a quarter of 0 or 1."""
    magic, half = b.const(DOUBLE.magic, F64), b.const(0.5, F64)
    inverse = b.const(0.31830988618379067154, F64)
    # 1/2 has no place beside magic: cos adds it before and takes it back after.
    shifted = b.add(b.fma(size, inverse, half), magic) if quarter else b.fma(size, inverse, magic)
    n = b.sub(shifted, magic)
    turns = b.sub(n, half) if quarter else n
    r = size
    for part in HALF_PI_DOUBLE:
        r = b.fma(turns, b.const(-2 * part, F64), r)
    return r, b.bitcast(shifted, I64)


def _is_large(b: Builder, size: Value, limit: Value) -> Value:
    return b.and_(b.lt(limit, size), b.lt(size, b.const(float("inf"), size.dtype)))


def _reduce_single_rare(b: Builder, size: Value) -> Reduced:
    """For every size; equal to ``_reduce_single`` up to the limit. Infinity gives NaN."""
    limit = b.const(LIMIT_SINGLE, F32)
    large = _is_large(b, size, limit)
    by_digits = _digits_single(b, b.select(large, size, limit))
    high, low, quadrant = (b.select(large, x, y) for x, y in zip(by_digits, _reduce_single(b, size), strict=True))
    return high, low, quadrant


def _reduce_double_rare(b: Builder, size: Value, quarter: int) -> HalfTurns:
    """For every size; equal to ``_reduce_double`` up to the limit. Infinity gives NaN."""
    limit = b.const(LIMIT_DOUBLE, F64)
    large = _is_large(b, size, limit)
    high, low, quadrant = digits_double(b, b.select(large, size, limit))
    by_digits = _half_turns(b, high, low, b.add(quadrant, b.const(quarter, I64)))
    r, n = (b.select(large, x, y) for x, y in zip(by_digits, _reduce_double(b, size, quarter), strict=True))
    return r, n


def _half_turns(b: Builder, high: Value, low: Value, quadrant: Value) -> HalfTurns:
    """n and r with quadrant pi/2 + high + low = n pi + r; an odd quadrant goes to the nearer multiple of pi."""
    one, zero = b.const(1, I64), b.const(0.0, F64)
    n = b.shr(b.add(quadrant, b.select(b.lt(zero, high), one, b.const(0, I64))), one)
    first, second = (b.copysign(b.const(-part, F64), b.neg(high)) for part in HALF_PI_DOUBLE[:2])
    r = b.add(first, high)
    rest = b.add(b.sub(high, b.sub(r, first)), b.add(low, second))
    return b.select(_is_odd(b, quadrant), b.add(r, rest), b.add(high, low)), n


def _digits_single(b: Builder, size: Value) -> Reduced:
    """Payne and Hanek with a 24-bit significand M and 96 bits W of 2/pi: size 2/pi = 4 M W modulo 4."""
    bits = b.convert(b.bitcast(size, I32), I64)
    significand = b.bitcast(b.or_(b.and_(bits, b.const(0x7FFFFF, I64)), b.const(0x800000, I64)), U64)
    offset = b.add(b.shr(bits, b.const(23, I64)), b.const(64 - 2 - 150, I64))
    index, shift = b.shr(offset, b.const(5, I64)), b.bitcast(b.and_(offset, b.const(31, I64)), U64)
    first = b.lookup(WINDOWS_SINGLE, U64, index)
    second = b.lookup(WINDOWS_SINGLE, U64, b.add(index, b.const(2, I64)))
    carried = b.shr(b.shr(second, b.const(1, U64)), b.sub(b.const(63, U64), shift))
    upper = b.mul(significand, b.or_(b.shl(first, shift), carried))
    lower = b.mul(significand, b.shr(b.shl(second, shift), b.const(32, U64)))
    turn = b.add(upper, b.shr(lower, b.const(32, U64)))  # 2**64 is one turn
    quadrant = b.shr(b.add(turn, b.const(1 << 61, U64)), b.const(62, U64))
    fraction = b.bitcast(b.sub(turn, b.shl(quadrant, b.const(62, U64))), I64)
    r = b.mul(b.convert(fraction, F64), b.const(1.5707963267948966 * 2.0**-62, F64))
    high = b.convert(r, F32)
    return high, b.convert(b.sub(r, b.convert(high, F64)), F32), b.convert(quadrant, I32)


def digits_double(b: Builder, size: Value) -> Reduced:
    """Payne and Hanek with a 53-bit significand and 196 bits of 2/pi, both in digits of 28 bits."""
    bits, mask, width = b.bitcast(size, I64), b.const(2**28 - 1, I64), b.const(28, I64)
    significand = b.or_(b.and_(bits, b.const(2**52 - 1, I64)), b.const(2**52, I64))
    m_high, m_low = b.shr(significand, width), b.and_(significand, mask)
    offset = b.add(b.shr(bits, b.const(52, I64)), b.const(64 - 2 - 1075, I64))
    # offset / 28 by multiplication: exact below 2**11.
    index = b.shr(b.mul(offset, b.const(37450, I64)), b.const(20, I64))
    shift = b.bitcast(b.sub(offset, b.mul(index, width)), U64)
    w = []
    for i in range(7):
        window = b.lookup(WINDOWS_DOUBLE, U64, b.add(index, b.const(i, I64)))
        w.append(b.bitcast(b.shr(b.shl(window, shift), b.const(36, U64)), I64))
    columns = [b.add(b.mul(m_low, w[i]), b.mul(m_high, w[i + 1])) for i in range(6)]
    carry = b.shr(b.mul(m_low, w[6]), width)
    d: list[Value] = []
    for column in columns[::-1]:
        total = b.add(column, carry)
        carry = b.shr(total, width)
        d.insert(0, b.and_(total, mask))
    # 2**28 units of d[0] are one turn.
    quadrant = b.shr(b.add(d[0], b.const(2**25, I64)), b.const(26, I64))
    top = b.sub(d[0], b.shl(quadrant, b.const(26, I64)))
    a = b.add(b.shl(top, width), d[1])
    middle = b.add(b.shl(d[2], b.const(24, I64)), b.shr(d[3], b.const(4, I64)))
    c = b.add(b.shl(b.and_(d[3], b.const(15, I64)), width), d[4])
    return *_quarter_turns(b, a, middle, c), quadrant


def _quarter_turns(b: Builder, a: Value, middle: Value, c: Value) -> tuple[Value, Value]:
    """(a 2**-54 + middle 2**-106 + c 2**-138) pi/2 as high + low."""
    x = b.mul(b.convert(a, F64), b.const(2.0**-54, F64))
    y = b.mul(b.convert(middle, F64), b.const(2.0**-106, F64))
    s = b.add(x, y)
    rest = b.fma(b.convert(c, F64), b.const(2.0**-138, F64), b.sub(y, b.sub(s, x)))
    first, second = (b.const(v, F64) for v in HALF_PI_DOUBLE[:2])
    high = b.mul(s, first)
    return high, b.fma(rest, first, b.fma(s, second, b.fma(s, first, b.neg(high))))


def _sine_and_cosine(b: Builder, high: Value, low: Value) -> tuple[Value, Value]:
    """float32 sin and cos of high + low, |high| <= pi/4 and a little."""
    # The square of high + low, rounded once: cos then needs no term of its own for low.
    square = b.fma(high, high, b.mul(b.add(high, high), low))
    sin = b.add(high, b.fma(b.mul(high, square), horner(b, square, SIN_SINGLE), low))
    return sin, horner(b, square, (1.0, -0.5, *COS_SINGLE))


def reduced_single(b: Builder, size: Value) -> Reduced:
    rare = b.not_(b.le(size, b.const(LIMIT_SINGLE, F32)))
    high, low, quadrant = b.if_any(
        rare, lambda: b.call("reduce_angle", _reduce_single_rare, size, size="compact"), lambda: _reduce_single(b, size)
    )
    return high, low, quadrant


def _sine_double(b: Builder, size: Value, quarter: int, sign: Value | None = None) -> Value:
    """float64 sin of size + quarter pi/2, with the sign bit of ``sign`` put to it."""
    name = "reduce_angle_of_cos" if quarter else "reduce_angle_of_sin"
    rare = b.not_(b.le(size, b.const(LIMIT_DOUBLE, F64)))
    r, n = b.if_any(
        rare,
        lambda: b.call(name, lambda inner, v: _reduce_double_rare(inner, v, quarter), size, size="compact"),
        lambda: _reduce_double(b, size, quarter),
    )
    square = b.mul(r, r)
    result = b.fma(b.mul(r, square), horner(b, square, SIN_DOUBLE), r)
    # Rounding errors could carry it beyond 1, two in ten thousand times where the true value rounds to 1.
    one, minus_one = b.const(1.0, F64), b.const(-1.0, F64)
    result = b.select(b.lt(one, result), one, result)
    result = b.select(b.lt(result, minus_one), minus_one, result)
    change = b.shl(n, b.const(63, I64))
    if sign is not None:
        change = b.xor(change, b.and_(b.bitcast(sign, I64), b.const(-(2**63), I64)))
    return _with_sign(b, result, change)


def sin_cos(b: Builder, x: Value) -> tuple[Value, Value]:
    """Both, with the bits of ``sin`` and ``cos``; float32 from one reduction."""
    if x.dtype == F64:
        size = b.abs(x)
        return _sine_double(b, size, 0, x), _sine_double(b, size, 1)
    # The sign is put back at the end: sin(-0.0) is -0.0.
    high, low, quadrant = reduced_single(b, b.abs(x))
    parts = _sine_and_cosine(b, high, low)
    return _sin_of_quadrant(b, x, *parts, quadrant), _cos_of_quadrant(b, *parts, quadrant)


def _sin_of_quadrant(b: Builder, x: Value, sin: Value, cos: Value, quadrant: Value) -> Value:
    integer = quadrant.dtype
    top = b.const(-(2 ** (8 * integer.itemsize - 1)), integer)
    sign = b.xor(_sign_of_second_bit(b, quadrant), b.and_(b.bitcast(x, integer), top))
    return _with_sign(b, b.select(_is_odd(b, quadrant), cos, sin), sign)


def _cos_of_quadrant(b: Builder, sin: Value, cos: Value, quadrant: Value) -> Value:
    sign = _sign_of_second_bit(b, b.add(quadrant, b.const(1, quadrant.dtype)))
    return _with_sign(b, b.select(_is_odd(b, quadrant), sin, cos), sign)


def _is_odd(b: Builder, quadrant: Value) -> Value:
    return b.ne(b.and_(quadrant, b.const(1, quadrant.dtype)), b.const(0, quadrant.dtype))


def _sign_of_second_bit(b: Builder, quadrant: Value) -> Value:
    second = b.and_(quadrant, b.const(2, quadrant.dtype))
    return b.shl(second, b.const(8 * quadrant.dtype.itemsize - 2, quadrant.dtype))


def _with_sign(b: Builder, x: Value, sign: Value) -> Value:
    return b.bitcast(b.xor(b.bitcast(x, sign.dtype), sign), x.dtype)


def sin(b: Builder, x: Value) -> Value:
    return b.call("sin", _sin, x)


def _sin(b: Builder, x: Value) -> Value:
    if x.dtype == F64:
        return _sine_double(b, b.abs(x), 0, x)
    high, low, quadrant = reduced_single(b, b.abs(x))
    return _sin_of_quadrant(b, x, *_sine_and_cosine(b, high, low), quadrant)


def cos(b: Builder, x: Value) -> Value:
    return b.call("cos", _cos, x)


def _cos(b: Builder, x: Value) -> Value:
    if x.dtype == F64:
        return _sine_double(b, b.abs(x), 1)
    high, low, quadrant = reduced_single(b, b.abs(x))
    return _cos_of_quadrant(b, *_sine_and_cosine(b, high, low), quadrant)
