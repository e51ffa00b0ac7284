"""exp, log and tanh of float32 and float64 values: in goes a value, out comes its function, full range.

Polynomials are minimax fits (Remez exchange in 60 digits, relative error of the whole function); the bounds beside them
are of the fit alone. Measured errors are in ``docs/accuracy.md``.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

import numpy as np

from tenferro.tracer.records import dataclass
from tenferro.tracer.scalar.builder import F32, I32, I64, U32, U64, Builder, Dtype, Value


@dataclass(frozen=True, slots=True)
class Format:
    """What the functions need to know of an IEEE format."""

    dtype: Dtype
    integer: Dtype
    unsigned: Dtype
    mantissa: int  # stored bits
    bias: int
    magic: float  # 1.5 * 2**mantissa: adding it rounds to an integer, which then sits in the low bits


SINGLE = Format(F32, I32, U32, 23, 127, 1.5 * 2.0**23)
DOUBLE = Format(np.dtype("f8"), I64, U64, 52, 1023, 1.5 * 2.0**52)


def format_of(dtype: Dtype) -> Format:
    return SINGLE if dtype == F32 else DOUBLE


def horner(b: Builder, x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial with ``coefficients`` from the constant term up, by fma."""
    result = b.const(coefficients[-1], x.dtype)
    for c in coefficients[-2::-1]:
        result = b.fma(result, x, b.const(c, x.dtype))
    return result


# exp(r) = 1 + r + r**2 q(r), |r| <= ln(2)/2: 2**-28.2
EXP_SINGLE = (0.49999994, 0.16666515171527863, 0.04166845604777336, 0.008369417861104012, 0.0013813128462061286)
# The same for |r| <= ln(2)/32: 2**-56.2
EXP_DOUBLE = (
    0.49999999999999605, 0.16666666664417057, 0.041666666693257125, 0.008333471948790591, 0.0013888594031708507,
)  # fmt: skip
ROOTS = (
    1.0, 1.0442737824274138, 1.0905077326652577, 1.1387886347566916, 1.189207115002721,
    1.241857812073484, 1.2968395546510096, 1.3542555469368927, 1.4142135623730951, 1.4768261459394993,
    1.5422108254079407, 1.6104903319492543, 1.681792830507429, 1.7562521603732995, 1.8340080864093424,
    1.9152065613971474,
)  # fmt: skip
# The bits of 2**(j/16), less j steps of a sixteenth of the exponent: adding n such steps makes 2**(n/16), j = n mod 16.
EXP_TABLE = tuple(struct.unpack("<q", struct.pack("<d", x))[0] - (j << 48) for j, x in enumerate(ROOTS))
# ln 2 as a sum of two numbers of the format; the product of the first with n is exact inside an fma.
LN2_SINGLE = (0.693147182464599609375, -1.904654299957767878541e-9)
LN2_DOUBLE = (0.6931471805599453094172, 2.319046813846299558418e-17)


def steps_of(b: Builder, x: Value, steps: int) -> tuple[Value, Value]:
    """(n, n + magic) for the n with n ln(2)/steps nearest to x, for x that is finite and not huge."""
    magic = b.const(format_of(x.dtype).magic, x.dtype)
    shifted = b.fma(x, b.const(1.4426950408889634074 * steps, x.dtype), magic)
    return b.sub(shifted, magic), shifted


def _reduce(b: Builder, x: Value, steps: int = 1) -> tuple[Value, Value]:
    """(x - n ln(2)/steps, n + magic) for the nearest n; steps is a power of two."""
    high, low = LN2_SINGLE if x.dtype == F32 else LN2_DOUBLE
    n, shifted = steps_of(b, x, steps)
    return b.fma(n, b.const(-low / steps, x.dtype), b.fma(n, b.const(-high / steps, x.dtype), x)), shifted


def _exp_reduced(b: Builder, x: Value) -> tuple[Value, Value]:
    """(exp(x) / 2**n, n as an integer)."""
    form = format_of(x.dtype)
    magic = b.bitcast(b.const(form.magic, x.dtype), form.integer)
    if form is DOUBLE:
        p, sixteenths = _exp_sixteenths(b, x)
        n = b.shr(b.sub(sixteenths, magic), b.const(4, I64))
        scale = b.sub(power_of_sixteenths(b, sixteenths), b.shl(n, b.const(form.mantissa, I64)))
        scale = b.bitcast(scale, x.dtype)
        return b.fma(scale, p, scale), n
    p, shifted = _exp_single(b, x)
    return p, b.sub(b.bitcast(shifted, form.integer), magic)


def _exp_single(b: Builder, x: Value) -> tuple[Value, Value]:
    """(exp(x) / 2**n, n + magic) for float32."""
    r, shifted = _reduce(b, x)
    q = horner(b, r, (1.0, *EXP_SINGLE))
    return b.fma(q, r, b.const(1.0, x.dtype)), shifted


def _exp_sixteenths(b: Builder, x: Value) -> tuple[Value, Value]:
    """(exp(x) / 2**(n/16) - 1, the bits of n + magic) for float64."""
    r, shifted = _reduce(b, x, 16)
    return b.mul(horner(b, r, (1.0, *EXP_DOUBLE)), r), b.bitcast(shifted, I64)


def power_of_sixteenths(b: Builder, shifted: Value) -> Value:
    """The bits of 2**(n/16) for the bits of n + magic, where that power is normal: magic leaves at the top."""
    part = b.lookup(EXP_TABLE, I64, b.and_(shifted, b.const(15, I64)))
    return b.add(part, b.shl(shifted, b.const(48, I64)))


def _exp_normal(b: Builder, x: Value) -> Value:
    """exp(x) where the result is normal and finite: the exponent is added as an integer."""
    form = format_of(x.dtype)
    if form is DOUBLE:
        # A table saves five steps of the polynomial; its rounding adds half an ulp to the error.
        p, sixteenths = _exp_sixteenths(b, x)
        scale = b.bitcast(power_of_sixteenths(b, sixteenths), x.dtype)
        return b.fma(scale, p, scale)
    p, shifted = _exp_single(b, x)
    n = b.shl(b.bitcast(shifted, form.integer), b.const(form.mantissa, form.integer))
    return b.bitcast(b.add(b.bitcast(p, form.integer), n), x.dtype)


def _exp_rare(b: Builder, x: Value) -> Value:
    """exp(x) for every x: scaled in two steps, so that overflow and subnormal results round once."""
    form = format_of(x.dtype)
    highest, lowest = (89.0, -104.5) if form is SINGLE else (710.0, -746.0)
    # Written so that NaN stays.
    x = b.select(b.lt(b.const(highest, x.dtype), x), b.const(highest, x.dtype), x)
    x = b.select(b.lt(x, b.const(lowest, x.dtype)), b.const(lowest, x.dtype), x)
    p, n = _exp_reduced(b, x)
    half = b.shr(n, b.const(1, form.integer))
    return b.mul(b.mul(p, power_of_two(b, half, form)), power_of_two(b, b.sub(n, half), form))


def power_of_two(b: Builder, n: Value, form: Format) -> Value:
    """2**n for an integer n whose power is normal."""
    biased = b.add(n, b.const(form.bias, form.integer))
    return b.bitcast(b.shl(biased, b.const(form.mantissa, form.integer)), form.dtype)


def exp(b: Builder, x: Value) -> Value:
    return b.call("exp", _exp, x)


def _exp(b: Builder, x: Value) -> Value:
    limit = 87.0 if x.dtype == F32 else 708.0
    rare = b.not_(b.le(b.abs(x), b.const(limit, x.dtype)))
    return b.if_any(rare, lambda: b.call("exp_rare", _exp_rare, x, size="rare"), lambda: _exp_normal(b, x))


# log(1+f) = f + f**2 p(f), sqrt(1/2) <= 1+f < sqrt(2): 2**-27.9
LOG_SINGLE = (
    -0.4999998834708415, 0.3333332569730428, -0.2500158288041395, 0.2000197350710633, -0.16609084147743333,
    0.1418183510834099, -0.13242985970576468, 0.12904366111407137, -0.07621696376263047,
)  # fmt: skip
# log((1+s)/(1-s)) = 2s + s**3 R(s**2), the same range of (1+s)/(1-s): 2**-59.5
LOG_DOUBLE = (
    0.6666666666666734, 0.3999999999941466, 0.2857142874238922, 0.22222198573170318, 0.1818356432073667,
    0.15314050822906775, 0.14795945829544305,
)  # fmt: skip
Logarithm = Callable[..., Value]  # (b, x, scaled_by | None)
SQRT_HALF_BITS = {SINGLE.dtype: 0x3F3504F3, DOUBLE.dtype: 0x3FE6A09E667F3BCD}


def split(b: Builder, x: Value, scaled_by: Value | None = None) -> tuple[Value, Value]:
    """(f, n) with x = 2**n (1+f), sqrt(1/2) <= 1+f < sqrt(2), for positive normal x; ``scaled_by`` is taken off n."""
    form = format_of(x.dtype)
    bits = b.bitcast(x, form.integer)
    over = b.sub(bits, b.const(SQRT_HALF_BITS[x.dtype], form.integer))
    exponent = b.shr(over, b.const(form.mantissa, form.integer))
    n = b.convert(exponent, x.dtype)
    if scaled_by is not None:
        n = b.sub(n, scaled_by)
    m = b.bitcast(b.sub(bits, b.shl(exponent, b.const(form.mantissa, form.integer))), x.dtype)
    return b.sub(m, b.const(1.0, x.dtype)), n


def _log_normal(b: Builder, x: Value, scaled_by: Value | None = None) -> Value:
    """log(x) - scaled_by * log(2) for positive normal x."""
    f, n = split(b, x, scaled_by)
    return _log_single(b, f, n) if x.dtype == F32 else _log_double(b, f, n)


def _log_single(b: Builder, f: Value, n: Value) -> Value:
    series = b.fma(horner(b, f, LOG_SINGLE), b.mul(f, f), f)
    return b.fma(n, b.const(LN2_SINGLE[0], f.dtype), series)


def _log_double(b: Builder, f: Value, n: Value) -> Value:
    """log(1+f) = f - s (f - s**2 R), s = f / (2+f): what carries the rounding errors is a fifth of the result at most.

    The arrangement is one of those in fdlibm's e_log.c (Sun Microsystems, 1993)."""
    s = b.div(f, b.add(f, b.const(2.0, f.dtype)))
    z = b.mul(s, s)
    inner = b.fma(b.neg(z), horner(b, z, LOG_DOUBLE), f)
    low = b.fma(s, inner, b.mul(n, b.const(-LN2_DOUBLE[1], f.dtype)))
    return b.fma(n, b.const(LN2_DOUBLE[0], f.dtype), b.sub(f, low))


def _log_rare(b: Builder, x: Value, normal_log: Logarithm) -> Value:
    """A logarithm of every x."""
    form = format_of(x.dtype)
    zero, scale = b.const(0.0, x.dtype), form.mantissa + 2
    tiny = b.lt(x, b.const(2.0 ** (1 - form.bias), x.dtype))
    normal = b.select(tiny, b.mul(x, b.const(2.0**scale, x.dtype)), x)
    result = normal_log(b, normal, b.select(tiny, b.const(float(scale), x.dtype), zero))
    # +inf and NaN give themselves.
    result = b.select(b.lt(x, b.const(np.inf, x.dtype)), result, b.abs(x))
    result = b.select(b.lt(x, zero), b.const(np.nan, x.dtype), result)
    return b.select(b.eq(x, zero), b.const(-np.inf, x.dtype), result)


def log(b: Builder, x: Value) -> Value:
    return b.call("log", lambda inner, v: full_range_log(inner, v, "log_rare", _log_normal), x)


def full_range_log(b: Builder, x: Value, name: str, normal_log: Logarithm) -> Value:
    """A logarithm of every x from ``normal_log(b, x, scaled_by)`` of positive normal x; ``name`` is that of its rare
    part."""
    form = format_of(x.dtype)
    smallest, infinity = 1 << form.mantissa, ((2 * form.bias + 1) << form.mantissa)
    above = b.sub(b.bitcast(x, form.unsigned), b.const(smallest, form.unsigned))
    rare = b.le(b.const(infinity - smallest, form.unsigned), above)
    return b.if_any(
        rare,
        lambda: b.call(name, lambda inner, v: _log_rare(inner, v, normal_log), x, size="rare"),
        lambda: normal_log(b, x),
    )


# tanh(x) = x + x**3 P(x**2), |x| <= 0.92: 2**-29.3. Beyond it 1 - 2 / (exp(2x) + 1) subtracts less than 0.28, so that
# the errors of that term stay below half a unit in the last place of the result.
TANH_NEAR = 0.925
TANH_SINGLE = (
    -0.3333331897584219, 0.1333289226171358, -0.05392188800861238, 0.021634411313071242, -0.008207084287231206,
    0.0025272537139135478, -0.00043467264122173585,
)  # fmt: skip
# expm1(r) = r + r**2 q(r), |r| <= ln(2)/32: 2**-60.0
EXPM1_DOUBLE = (
    0.5000000000000003, 0.1666666666666665, 0.041666666661893975, 0.00833333333416519, 0.0013889092473905738,
    0.0001984129201342683,
)  # fmt: skip
# What the roots above lack, relative to them: exp(x) - 1 near 0 needs it.
ROOTS_LACK = (
    0.0, 8.189317638195515e-17, -2.7939114859515733e-17, 7.826573258636076e-17, 3.3484623336251524e-17,
    3.750854201303127e-17, 1.9572585293112036e-17, 5.68648095791174e-17, -6.835808657661922e-17,
    -2.3591094770850053e-17, 5.1548301170786783e-17, 1.5341410053603723e-17, 4.875160526227062e-17,
    1.685487290628973e-17, 1.790126907604513e-17, -5.545065618639427e-17,
)  # fmt: skip


def tanh(b: Builder, x: Value) -> Value:
    return b.call("tanh", _tanh_single if x.dtype == F32 else _tanh_double, x)


def _tanh_single(b: Builder, x: Value) -> Value:
    size, one = b.abs(x), b.const(1.0, x.dtype)
    limit = b.const(9.5, x.dtype)  # from here on the result is 1
    bounded = b.select(b.lt(limit, size), limit, size)
    r, shifted = _reduce(b, b.add(bounded, bounded))
    scale = _power_of_shifted(b, shifted)
    # exp(2x) + 1 without rounding exp(2x) first.
    minus_one = b.mul(horner(b, r, (1.0, *EXP_SINGLE)), r)
    far = b.sub(one, b.div(b.const(2.0, x.dtype), b.fma(minus_one, scale, b.add(scale, one))))
    square = b.mul(size, size)
    near = b.fma(b.mul(size, square), horner(b, square, TANH_SINGLE), size)
    # NaN takes the near side, which keeps it.
    result = b.select(b.le(b.const(TANH_NEAR, x.dtype), size), far, near)
    return b.copysign(result, x)


def _power_of_shifted(b: Builder, shifted: Value) -> Value:
    """2**n for n + magic, where that power is normal: the bits of magic leave at the top."""
    form = format_of(shifted.dtype)
    n = b.shl(b.bitcast(shifted, form.integer), b.const(form.mantissa, form.integer))
    return b.bitcast(b.add(n, b.const(form.bias << form.mantissa, form.integer)), form.dtype)


def exp_parts(b: Builder, x: Value, more: Value | None = None, far: bool = True) -> tuple[Value, Value]:
    """(p, the bits of n + magic) with exp(x + more) = 2**(n/16) (1 + p), where 2**(n/16) is the power as rounded: p
    makes up for that too. For float64 x whose power is normal, a small ``more``; not ``far``: |x| up to 44."""
    steps, shifted = steps_of(b, x, 16)
    sixteenths = b.bitcast(shifted, I64)
    lack = b.lookup(ROOTS_LACK, x.dtype, b.and_(sixteenths, b.const(15, I64)))
    # r is exact where the result is small, so that p is rounded once there.
    high, low = (b.const(-part / 16, x.dtype) for part in LN2_DOUBLE)
    r = b.fma(steps, high, x)
    if far:
        rest = b.mul(steps, low) if more is None else b.fma(steps, low, more)
        tail = b.fma(rest, r, b.add(rest, lack))
    else:
        tail = b.fma(steps, low, lack)
    return b.add(r, b.fma(horner(b, r, EXPM1_DOUBLE), b.mul(r, r), tail)), sixteenths


def expm1_double(b: Builder, x: Value) -> tuple[Value, Value]:
    """exp(x) - 1 and the rounding error of its last step, for float64 x from -40 to 44, where 2**(n/16) - 1 is exact,
    or what it lacks is below half a unit in the last place of the result."""
    p, sixteenths = exp_parts(b, x, far=False)
    scale = b.bitcast(power_of_sixteenths(b, sixteenths), x.dtype)
    base = b.sub(scale, b.const(1.0, x.dtype))
    result = b.fma(p, scale, base)
    return result, b.fma(p, scale, b.sub(base, result))


def _tanh_double(b: Builder, x: Value) -> Value:
    """e / (e + 2) with e = expm1(2x), and one step that takes back the rounding of e, the sum and the quotient."""
    size = b.abs(x)
    limit, two = b.const(20.0, x.dtype), b.const(2.0, x.dtype)  # from the limit on the result is 1
    near = b.select(b.lt(limit, size), limit, size)
    e, more = expm1_double(b, b.add(near, near))
    total = b.add(e, two)
    # total - 2 is exact up to 2**54, where tanh is within an ulp of 1: 2 is a multiple of the last bit of total.
    lost = b.add(b.sub(e, b.sub(total, two)), more)
    inverse = b.div(b.const(1.0, x.dtype), total)
    q = b.mul(e, inverse)
    rest = b.fma(b.neg(q), lost, b.add(b.fma(b.neg(q), total, e), more))
    return b.copysign(b.fma(rest, inverse, q), x)
