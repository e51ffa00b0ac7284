"""log1p, log2, log10, logaddexp and the inverse hyperbolic functions of float32 and float64 values, full range.

All stand on the series of ``exponential.log``, taken as f and what is added to it, so that constants multiply both.
"""

from __future__ import annotations

import numpy as np

from tenferro.tracer.records import dataclass
from tenferro.tracer.scalar.arithmetic import is_nan
from tenferro.tracer.scalar.builder import F32, F64, Builder, Value
from tenferro.tracer.scalar.exponential import (
    LN2_DOUBLE,
    LN2_SINGLE,
    LOG_DOUBLE,
    LOG_SINGLE,
    exp,
    full_range_log,
    horner,
    split,
)
from tenferro.tracer.scalar.growth import exp2, in_double


@dataclass(frozen=True, slots=True)
class Base:
    """A logarithm's constants, each a sum of two float64: 1/ln(base), and log_base(2), whose first number has so few
    bits that its product with an exponent is exact."""

    inverse: tuple[float, float]
    of_two: tuple[float, float]


BASES: dict[int, Base] = {
    2: Base((1.4426950408889634, 2.0355273740931033e-17), (1.0, 0.0)),
    10: Base((0.4342944819032518, 1.098319650216765e-17), (0.30102999566383914, 1.42050232272661e-13)),
}
LN2 = {F32: LN2_SINGLE, F64: LN2_DOUBLE}
LARGE = 2.0**28  # beyond its square 1 does not count


def _tail(b: Builder, f: Value, short: bool = False) -> Value:
    """log(1+f) - f for sqrt(1/2) <= 1+f < sqrt(2); ``short``: good for float32."""
    if short or f.dtype == F32:
        return b.mul(horner(b, f, LOG_SINGLE), b.mul(f, f))
    s = b.div(f, b.add(f, b.const(2.0, F64)))
    z = b.mul(s, s)
    return b.neg(b.mul(s, b.fma(b.neg(z), horner(b, z, LOG_DOUBLE), f)))


def _log_to(b: Builder, x: Value, base: int, scaled_by: Value | None = None) -> Value:
    """The logarithm of positive normal x to the base, less ``scaled_by`` times that of 2."""
    if x.dtype == F32:
        return _log_to_for_single(b, x, base, scaled_by)
    constants = BASES[base]
    (high, low), (of_two, of_two_low) = ([b.const(v, F64) for v in p] for p in (constants.inverse, constants.of_two))
    f, n = split(b, x, scaled_by)
    whole = n if base == 2 else b.mul(n, of_two)
    part = b.mul(f, high)
    rest = b.add(b.fma(f, high, b.neg(part)), b.fma(f, low, b.mul(_tail(b, f), high)))
    if base != 2:
        rest = b.fma(n, of_two_low, rest)
    total = b.add(whole, part)  # |whole| > |part| or whole is 0, so that the next line is exact
    return b.add(total, b.add(b.sub(part, b.sub(total, whole)), rest))


def _log_to_for_single(b: Builder, x: Value, base: int, scaled_by: Value | None) -> Value:
    """In float64, with the series of float32."""
    f, n = split(b, x, scaled_by)
    f, n = b.convert(f, F64), b.convert(n, F64)
    part = b.mul(b.add(f, _tail(b, f, short=True)), b.const(BASES[base].inverse[0], F64))
    return b.convert(b.fma(n, b.const(sum(BASES[base].of_two), F64), part), F32)


def log2(b: Builder, x: Value) -> Value:
    return b.call("log2", lambda inner, v: full_range_log(inner, v, "log2_rare", _log2_normal), x)


def _log2_normal(b: Builder, x: Value, scaled_by: Value | None = None) -> Value:
    return _log_to(b, x, 2, scaled_by)


def log10(b: Builder, x: Value) -> Value:
    return b.call("log10", lambda inner, v: full_range_log(inner, v, "log10_rare", _log10_normal), x)


def _log10_normal(b: Builder, x: Value, scaled_by: Value | None = None) -> Value:
    return _log_to(b, x, 10, scaled_by)


# -- log1p ---------------------------------------------------------------------------------------------------------


def _log_of_sum(b: Builder, u: Value, lost: Value, doublings: Value | None = None) -> Value:
    """log(u + lost) + doublings ln(2) for positive normal u and a small ``lost``."""
    f, n = split(b, u)
    if doublings is not None:
        n = b.add(n, doublings)
    high, low = (b.const(v, u.dtype) for v in LN2[u.dtype])
    rest = b.add(b.fma(n, low, b.div(lost, u)), _tail(b, f))
    return b.fma(n, high, b.add(f, rest))


def _one_plus(b: Builder, x: Value) -> tuple[Value, Value]:
    """1 + x as a sum of two values (Knuth)."""
    one = b.const(1.0, x.dtype)
    total = b.add(one, x)
    part = b.sub(total, one)
    return total, b.add(b.sub(one, b.sub(total, part)), b.sub(x, part))


def log1p(b: Builder, x: Value) -> Value:
    return b.call("log1p", _log1p, x)


def _log1p(b: Builder, x: Value) -> Value:
    minus_one, infinity = b.const(-1.0, x.dtype), b.const(np.inf, x.dtype)
    rare = b.not_(b.and_(b.lt(minus_one, x), b.lt(x, infinity)))
    return b.if_any(rare, lambda: b.call("log1p_rare", _log1p_rare, x, size="rare"), lambda: _log1p_normal(b, x))


def _log1p_normal(b: Builder, x: Value) -> Value:
    return b.copysign(_log_of_sum(b, *_one_plus(b, x)), x)


def _log1p_rare(b: Builder, x: Value) -> Value:
    minus_one, infinity = b.const(-1.0, x.dtype), b.const(np.inf, x.dtype)
    usual = b.and_(b.lt(minus_one, x), b.lt(x, infinity))
    result = _log1p_normal(b, b.select(usual, x, b.const(0.0, x.dtype)))
    # +inf and NaN give themselves.
    special = b.select(b.lt(x, minus_one), b.const(np.nan, x.dtype), x)
    special = b.select(b.eq(x, minus_one), b.neg(infinity), special)
    return b.select(usual, result, special)


def logaddexp(b: Builder, x: Value, y: Value) -> Value:
    """log(exp(x) + exp(y)): the larger and log1p of the exponential of the negative distance."""
    return b.call("logaddexp", in_double(_logaddexp) if x.dtype == F32 else _logaddexp, x, y)


def _logaddexp(b: Builder, x: Value, y: Value) -> Value:
    larger, distance = _larger(b, x, y)
    return b.add(larger, log1p(b, exp(b, distance)))


def logaddexp2(b: Builder, x: Value, y: Value) -> Value:
    """log2(2**x + 2**y)."""
    return b.call("logaddexp2", in_double(_logaddexp2) if x.dtype == F32 else _logaddexp2, x, y)


def _logaddexp2(b: Builder, x: Value, y: Value) -> Value:
    larger, distance = _larger(b, x, y)
    more = b.mul(log1p(b, exp2(b, distance)), b.const(BASES[2].inverse[0], F64))
    return b.add(larger, b.select(b.eq(x, y), b.const(1.0, F64), more))


def _larger(b: Builder, x: Value, y: Value) -> tuple[Value, Value]:
    """(the larger, -|x - y|); equal infinities are at no distance; a NaN on either side is in both."""
    none = b.const(0.0, x.dtype)
    distance = b.select(b.eq(x, y), none, b.neg(b.abs(b.sub(x, y))))
    return b.select(b.or_(b.lt(x, y), is_nan(b, y)), y, x), distance


# -- inverse hyperbolic functions ----------------------------------------------------------------------------------


def arcsinh(b: Builder, x: Value) -> Value:
    return b.call("arcsinh", in_double(_arcsinh) if x.dtype == F32 else _arcsinh, x)


def arccosh(b: Builder, x: Value) -> Value:
    return b.call("arccosh", in_double(_arccosh) if x.dtype == F32 else _arccosh, x)


def arctanh(b: Builder, x: Value) -> Value:
    return b.call("arctanh", in_double(_arctanh) if x.dtype == F32 else _arctanh, x)


def _log1p_of_sum(b: Builder, high: Value, low: Value, size: Value) -> Value:
    """log(1 + high + low), or log(2 size) where the size is large."""
    total, lost = _one_plus(b, high)
    large = b.lt(b.const(LARGE, F64), size)
    none, one = b.const(0.0, F64), b.const(1.0, F64)
    u, lost = b.select(large, size, total), b.select(large, none, b.add(lost, low))
    result = _log_of_sum(b, u, lost, b.select(large, one, none))
    infinity = b.const(np.inf, F64)
    return b.select(b.eq(size, infinity), infinity, result)


def _arcsinh(b: Builder, x: Value) -> Value:
    """log1p(|x| + x**2 / (1 + sqrt(1 + x**2)))."""
    size, one = b.abs(x), b.const(1.0, F64)
    bounded = b.select(b.lt(b.const(LARGE, F64), size), one, size)
    square = b.mul(bounded, bounded)
    more = b.div(square, b.add(one, b.sqrt(b.add(one, square))))
    high = b.add(bounded, more)
    return b.copysign(_log1p_of_sum(b, high, b.sub(more, b.sub(high, bounded)), size), x)


def _arccosh(b: Builder, x: Value) -> Value:
    """log1p(t + sqrt(2t + t**2)) with t = x - 1, which is exact up to where 1 does not count."""
    one = b.const(1.0, F64)
    bounded = b.select(b.lt(b.const(LARGE, F64), x), one, x)
    t = b.sub(bounded, one)
    root = b.sqrt(b.fma(t, t, b.add(t, t)))
    high = b.add(t, root)
    result = _log1p_of_sum(b, high, b.sub(t, b.sub(high, root)), x)
    return b.select(b.lt(x, one), b.const(np.nan, F64), result)


def _arctanh(b: Builder, x: Value) -> Value:
    """log1p(2|x| / (1 - |x|)) / 2, the quotient as a sum of two values."""
    size, one = b.abs(x), b.const(1.0, F64)
    below = b.lt(size, one)
    bounded = b.select(below, size, b.const(0.0, F64))
    twice, divisor = b.add(bounded, bounded), b.sub(one, bounded)
    lost = b.sub(b.sub(one, divisor), bounded)
    inverse = b.div(one, divisor)
    high = b.mul(twice, inverse)
    low = b.mul(b.fma(b.neg(high), lost, b.fma(b.neg(high), divisor, twice)), inverse)
    total, error = _one_plus(b, high)
    result = b.mul(_log_of_sum(b, total, b.add(error, low)), b.const(0.5, F64))
    edge = b.select(b.eq(size, one), b.const(np.inf, F64), b.const(np.nan, F64))
    return b.copysign(b.select(below, result, edge), x)
