"""Floor division and remainder without vector integer division: in go two values, out come NumPy's quotient and rest.

A vector integer division kills the process on 0 and on the least integer by -1, also in lanes that are thrown away.
"""

from __future__ import annotations

import numpy as np

from tenferro.tracer.scalar.arithmetic import zero
from tenferro.tracer.scalar.builder import F16, F32, F64, I32, I64, U64, Builder, Value

Pair = tuple[Value, Value]


def floor_divide(b: Builder, x: Value, y: Value) -> Value:
    """Integers: rounded down, 0 by a zero divisor, the least integer by -1 wraps. Floats: NumPy's ``floor_divide``."""
    return divide_with_rest(b, x, y)[0]


def remainder(b: Builder, x: Value, y: Value) -> Value:
    """The rest with the divisor's sign; integers give 0 by a zero divisor."""
    return divide_with_rest(b, x, y)[1]


def truncated_remainder(b: Builder, x: Value, y: Value) -> Value:
    """C's ``fmod``: the rest with the dividend's sign; integers give 0 by a zero divisor."""
    if x.dtype == F16:
        return b.convert(truncated_remainder(b, b.convert(x, F32), b.convert(y, F32)), F16)
    if x.dtype.kind == "f":
        return b.call("fmod", remainder_toward_zero, x, y)
    rest = divide_with_rest(b, x, y)[1]
    if x.dtype.kind == "u":
        return rest
    none = zero(b, x)
    opposite = b.and_(b.ne(rest, none), b.lt(b.xor(x, rest), none))
    return b.select(opposite, b.sub(rest, y), rest)


def divide_with_rest(b: Builder, x: Value, y: Value) -> Pair:
    if x.dtype == F16:
        q, r = divide_with_rest(b, b.convert(x, F32), b.convert(y, F32))
        return b.convert(q, F16), b.convert(r, F16)
    if x.dtype.kind == "f":
        quotient, rest = b.call("divide_floats", _divide_floats, x, y)
    elif x.dtype.itemsize == 8:
        quotient, rest = b.call("divide_longs", _divide_long_unsigned if x.dtype == U64 else _divide_long, x, y)
    else:
        quotient, rest = b.call("divide_integers", _divide_integers, x, y)
    return quotient, rest


def _safe(b: Builder, y: Value) -> Pair:
    """(whether the divisor is 0, the divisor with 1 in its place)."""
    is_zero = b.eq(y, zero(b, y))
    return is_zero, b.select(is_zero, b.const(1, y.dtype), y)


def _without_zero_divisors(b: Builder, is_zero: Value, quotient: Value, rest: Value) -> Pair:
    nothing = zero(b, quotient)
    return b.select(is_zero, nothing, quotient), b.select(is_zero, nothing, rest)


def _divide_integers(b: Builder, x: Value, y: Value) -> Pair:
    """Up to 32 bits, in a float of at least 8 bits more than the operands.

    x/y = q + k/y with k < y lies below the next integer by at least 1/y, that is by more than the rounding error
    of the quotient (relative 1/(x+1) against 2**-24 or 2**-53), so its floor is exact."""
    wide, whole = (F32, I32) if x.dtype.itemsize <= 2 else (F64, I64)
    is_zero, divisor = _safe(b, y)
    ratio = b.floor(b.div(b.convert(x, wide), b.convert(divisor, wide)))
    quotient = b.convert(b.convert(ratio, whole), x.dtype)
    return _without_zero_divisors(b, is_zero, quotient, b.sub(x, b.mul(quotient, divisor)))


def _divide_long_unsigned(b: Builder, x: Value, y: Value) -> Pair:
    is_zero, divisor = _safe(b, y)
    return _without_zero_divisors(b, is_zero, *_divide_positive(b, x, divisor))


def _divide_long(b: Builder, x: Value, y: Value) -> Pair:
    is_zero, divisor = _safe(b, y)
    none, one = b.const(0, I64), b.const(1, I64)
    q, r = _divide_positive(b, b.bitcast(b.abs(x), U64), b.bitcast(b.abs(divisor), U64))
    quotient, rest = b.bitcast(q, I64), b.bitcast(r, I64)
    rest = b.select(b.lt(x, none), b.neg(rest), rest)
    opposite = b.lt(b.xor(x, divisor), none)
    quotient = b.select(opposite, b.neg(quotient), quotient)
    inexact = b.and_(opposite, b.ne(rest, none))
    quotient = b.select(inexact, b.sub(quotient, one), quotient)
    rest = b.select(inexact, b.add(rest, divisor), rest)
    return _without_zero_divisors(b, is_zero, quotient, rest)


def _divide_positive(b: Builder, x: Value, y: Value) -> Pair:
    """uint64 by a non-zero uint64, by two estimates that are never too large and a last step of one.

    Each estimate loses at most 2**-50 of the quotient and 1. After the first, the rest is below
    (2**14 + 1) y + 2**-50 x; the second quotient is then below 2**15, so its estimate is off by at most 1. Rests
    never leave [0, x], so they need no sign."""
    divisor = b.convert(y, F64)
    quotient, rest = zero(b, x), x
    for _ in range(2):
        # 1 - 2**-50 outweighs the three roundings, and keeps 2**64 - 1 by 1 in range.
        estimate = b.mul(b.div(b.convert(rest, F64), divisor), b.const(1.0 - 2.0**-50, F64))
        step = b.convert(estimate, U64)
        quotient, rest = b.add(quotient, step), b.sub(rest, b.mul(step, y))
    short = b.le(y, rest)
    return (
        b.select(short, b.add(quotient, b.const(1, U64)), quotient),
        b.select(short, b.sub(rest, y), rest),
    )


def _divide_floats(b: Builder, x: Value, y: Value) -> Pair:
    """The rules of NumPy's ``npy_divmod``: the quotient from the exact remainder, signs and infinities as there."""
    nothing, one = zero(b, x), b.const(1.0, x.dtype)
    ratio = b.div(x, y)
    exact = remainder_toward_zero(b, x, y)
    quotient = b.div(b.sub(x, exact), y)
    is_exact = b.eq(exact, nothing)
    opposite = b.and_(b.not_(is_exact), b.xor(b.lt(y, nothing), b.lt(exact, nothing)))
    rest = b.select(opposite, b.add(exact, y), exact)
    rest = b.select(is_exact, b.copysign(nothing, y), rest)
    quotient = b.select(opposite, b.sub(quotient, one), quotient)
    down = b.floor(quotient)
    down = b.select(b.lt(b.const(0.5, x.dtype), b.sub(quotient, down)), b.add(down, one), down)
    down = b.select(b.eq(quotient, nothing), b.copysign(nothing, ratio), down)
    by_zero = b.eq(y, nothing)
    return b.select(by_zero, ratio, down), b.select(by_zero, b.const(np.nan, x.dtype), rest)


def remainder_toward_zero(b: Builder, x: Value, y: Value) -> Value:
    """C's ``fmod``: exact, with the sign of x; NaN for infinite x or zero y."""
    if x.dtype == F32:
        return b.convert(remainder_toward_zero(b, b.convert(x, F64), b.convert(y, F64)), F32)
    size, divisor = b.abs(x), b.abs(y)
    infinity = b.const(np.inf, F64)
    usable = b.and_(b.lt(size, infinity), b.and_(b.lt(b.const(0.0, F64), divisor), b.le(divisor, infinity)))
    size, divisor = b.select(usable, size, b.const(0.0, F64)), b.select(usable, divisor, b.const(1.0, F64))
    # Ordinary lanes: the quotient has at most 52 bits and no scaling is needed. An infinite divisor is ordinary.
    hard = b.or_(b.le(b.const(2.0**52, F64), b.div(size, divisor)), b.lt(divisor, b.const(2.0**-900, F64)))
    rest = b.if_any(
        hard,
        lambda: b.select(
            hard, b.call("fmod_rare", _fmod_rare, size, divisor, size="compact"), _fmod_step(b, size, divisor)
        ),
        lambda: _fmod_step(b, size, divisor),
    )
    return b.select(usable, b.copysign(rest, x), b.const(np.nan, F64))


def _fmod_step(b: Builder, size: Value, divisor: Value) -> Value:
    """size modulo divisor for a quotient below 2**52: the truncated quotient is right or 1 too large."""
    quotient = b.trunc(b.div(size, divisor))
    rest = b.fma(b.neg(quotient), divisor, size)
    rest = b.select(b.eq(quotient, b.const(0.0, F64)), size, rest)  # an infinite divisor times 0 is NaN
    return b.select(b.lt(rest, b.const(0.0, F64)), b.add(rest, divisor), rest)


def _fmod_rare(b: Builder, size: Value, divisor: Value) -> Value:
    """size modulo divisor for all positive operands."""
    # Tiny divisors: first modulo 2**900 divisor, then both scaled out of the subnormals.
    tiny = b.lt(divisor, b.const(2.0**-900, F64))
    multiple = b.select(tiny, b.mul(divisor, b.const(2.0**900, F64)), divisor)
    rest = _fmod_loop(b, size, multiple)
    up, down = (b.select(tiny, b.const(2.0**k, F64), b.const(1.0, F64)) for k in (110, -110))
    return b.mul(_fmod_loop(b, b.mul(rest, up), b.mul(divisor, up)), down)


def _fmod_loop(b: Builder, size: Value, divisor: Value) -> Value:
    """Long division for a normal divisor: each round takes off up to 51 bits of the quotient."""

    def unfinished(rest: Value) -> Value:
        return b.le(divisor, rest)

    def body(rest: Value) -> tuple[Value]:
        bits = b.shr(b.sub(_exponent_bits(b, rest), _exponent_bits(b, divisor)), b.const(52, I64))
        lifted = b.sub(bits, b.const(51, I64))
        lifted = b.select(b.lt(lifted, b.const(0, I64)), b.const(0, I64), lifted)
        scaled = b.bitcast(b.add(b.bitcast(divisor, I64), b.shl(lifted, b.const(52, I64))), F64)
        return (b.select(unfinished(rest), _fmod_step(b, rest, scaled), rest),)

    return b.while_any(unfinished, body, size)[0]


def _exponent_bits(b: Builder, x: Value) -> Value:
    return b.and_(b.bitcast(x, I64), b.const(0x7FF0000000000000, I64))
