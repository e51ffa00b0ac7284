"""expm1, exp2, sinh and cosh of float32 and float64 values: in goes a value, out comes its function, full range.

float32 expm1, sinh and cosh are computed in float64 with short polynomials. The fits are printed by
``python tools/minimax.py``; the bounds beside them are of the fits alone.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tenferro.tracer.scalar.builder import F32, F64, I64, Builder, Value
from tenferro.tracer.scalar.exponential import (
    DOUBLE,
    LN2_DOUBLE,
    SINGLE,
    exp,
    exp_parts,
    expm1_double,
    horner,
    power_of_sixteenths,
    power_of_two,
    steps_of,
)

# expm1(r) = r + r**2 q(r), |r| <= ln(2)/32: 2**-31.6
EXPM1_SHORT = (0.5000000002546212, 0.16666990575636403, 0.04166644022384217)
# 2**r = 1 + r p(r), |r| <= 1/2: 2**-28.9
EXP2_SINGLE = (
    0.6931472028549214, 0.24022647911653097, 0.055503324714492465, 0.009618437582290633, 0.0013398874369010543,
    0.00015353304284316326,
)  # fmt: skip
# The same for |r| <= 1/32: 2**-57.0
EXP2_DOUBLE = (
    0.6931471805599468, 0.24022650695909908, 0.05550410865213363, 0.009618129112170299, 0.001333381852590992,
    0.00015403349798234642,
)  # fmt: skip
# sinh(x) = x + x**3 P(x**2), |x| <= 1: 2**-63.3
SINH_NEAR = (
    0.16666666666666669, 0.008333333333333148, 0.00019841269841431862, 2.755731915707498e-06, 2.5052123136252027e-08,
    1.6057259803965078e-10, 7.758747767767062e-13,
)  # fmt: skip
COSH_LIMIT = 710.4758600739439  # the last float64 whose cosh is finite


def in_double(function: Callable[..., Value]) -> Callable[..., Value]:
    """A function of float64 values for float32 ones: computed in float64, rounded once."""

    def on_single(b: Builder, *values: Value) -> Value:
        return b.convert(function(b, *(b.convert(v, F64) for v in values)), F32)

    return on_single


def _bounded(b: Builder, x: Value, low: float, high: float) -> Value:
    """x within [low, high]; NaN stays."""
    x = b.select(b.lt(b.const(high, x.dtype), x), b.const(high, x.dtype), x)
    return b.select(b.lt(x, b.const(low, x.dtype)), b.const(low, x.dtype), x)


# -- expm1 ---------------------------------------------------------------------------------------------------------


def expm1(b: Builder, x: Value) -> Value:
    return b.call("expm1", in_double(_expm1_for_single) if x.dtype == F32 else _expm1, x)


def _short_parts(b: Builder, x: Value) -> tuple[Value, Value]:
    """(p, the bits of n + magic) with exp(x) = 2**(n/16) (1 + p), good for float32."""
    steps, shifted = steps_of(b, x, 16)
    r = b.fma(steps, b.const(-LN2_DOUBLE[0] / 16, F64), x)
    return b.fma(horner(b, r, EXPM1_SHORT), b.mul(r, r), r), b.bitcast(shifted, I64)


def _expm1_short(b: Builder, x: Value) -> Value:
    p, sixteenths = _short_parts(b, x)
    scale = b.bitcast(power_of_sixteenths(b, sixteenths), F64)
    return b.fma(p, scale, b.sub(scale, b.const(1.0, F64)))


def _expm1_for_single(b: Builder, x: Value) -> Value:
    """Beyond the bounds the result rounds to -1 or overflows."""
    return b.copysign(_expm1_short(b, _bounded(b, x, -30.0, 90.0)), x)


def _expm1(b: Builder, x: Value) -> Value:
    rare = b.not_(b.le(b.abs(x), b.const(40.0, F64)))
    return b.if_any(rare, lambda: b.call("expm1_rare", _expm1_rare, x, size="rare"), lambda: _expm1_near(b, x))


def _expm1_near(b: Builder, x: Value) -> Value:
    return b.copysign(expm1_double(b, x)[0], x)


def _expm1_rare(b: Builder, x: Value) -> Value:
    """For every x: beyond 40 the last bit of exp(x) is above 1, and below -40 the result rounds to -1."""
    far = b.not_(b.le(b.abs(x), b.const(40.0, F64)))
    near = _expm1_near(b, b.select(far, b.const(0.0, F64), x))
    return b.select(far, b.sub(exp(b, x), b.const(1.0, F64)), near)


# -- exp2 ----------------------------------------------------------------------------------------------------------


def exp2(b: Builder, x: Value) -> Value:
    return b.call("exp2", _exp2, x)


def _exp2(b: Builder, x: Value) -> Value:
    rare = b.not_(b.le(b.abs(x), b.const(125.0 if x.dtype == F32 else 1021.0, x.dtype)))
    return b.if_any(rare, lambda: b.call("exp2_rare", _exp2_rare, x, size="rare"), lambda: _exp2_normal(b, x))


def _exp2_single(b: Builder, x: Value) -> tuple[Value, Value]:
    """(2**x / 2**n, n + magic) for float32; x - n is exact, and so are whole powers."""
    magic = b.const(SINGLE.magic, F32)
    shifted = b.add(x, magic)
    r = b.sub(x, b.sub(shifted, magic))
    return b.fma(horner(b, r, EXP2_SINGLE), r, b.const(1.0, F32)), shifted


def _exp2_sixteenths(b: Builder, x: Value) -> tuple[Value, Value]:
    """(2**x / 2**(n/16) - 1, the bits of n/16 + magic) for float64."""
    magic = b.const(DOUBLE.magic / 16, F64)  # the last bit beside it is a sixteenth
    shifted = b.add(x, magic)
    r = b.sub(x, b.sub(shifted, magic))
    return b.mul(horner(b, r, EXP2_DOUBLE), r), b.bitcast(shifted, I64)


def _exp2_normal(b: Builder, x: Value) -> Value:
    if x.dtype == F64:
        p, sixteenths = _exp2_sixteenths(b, x)
        scale = b.bitcast(power_of_sixteenths(b, sixteenths), F64)
        return b.fma(scale, p, scale)
    p, shifted = _exp2_single(b, x)
    n = b.shl(b.bitcast(shifted, SINGLE.integer), b.const(SINGLE.mantissa, SINGLE.integer))
    return b.bitcast(b.add(b.bitcast(p, SINGLE.integer), n), F32)


def _exp2_rare(b: Builder, x: Value) -> Value:
    """For every x: scaled in two steps, so that overflow and subnormal results round once."""
    if x.dtype == F64:
        form = DOUBLE
        p, sixteenths = _exp2_sixteenths(b, _bounded(b, x, -1078.0, 1025.0))
        magic = b.bitcast(b.const(DOUBLE.magic / 16, F64), I64)
        n = b.shr(b.sub(sixteenths, magic), b.const(4, I64))
        scale = b.sub(power_of_sixteenths(b, sixteenths), b.shl(n, b.const(form.mantissa, I64)))
        scale = b.bitcast(scale, F64)
        p = b.fma(scale, p, scale)
    else:
        form = SINGLE
        p, shifted = _exp2_single(b, _bounded(b, x, -152.0, 129.0))
        n = b.sub(b.bitcast(shifted, form.integer), b.bitcast(b.const(form.magic, F32), form.integer))
    half = b.shr(n, b.const(1, form.integer))
    return b.mul(b.mul(p, power_of_two(b, half, form)), power_of_two(b, b.sub(n, half), form))


# -- sinh and cosh -------------------------------------------------------------------------------------------------


def sinh(b: Builder, x: Value) -> Value:
    return b.call("sinh", in_double(_sinh_for_single) if x.dtype == F32 else _sinh, x)


def cosh(b: Builder, x: Value) -> Value:
    return b.call("cosh", in_double(_cosh_for_single) if x.dtype == F32 else _cosh, x)


def _quarter_exp(b: Builder, size: Value) -> tuple[Value, Value, Value]:
    """exp(size)/4 as a sum of two values, and exp(-size)/4, for float64 sizes up to 711."""
    p, sixteenths = exp_parts(b, size)
    quarter = b.bitcast(b.sub(power_of_sixteenths(b, sixteenths), b.const(2 << DOUBLE.mantissa, I64)), F64)
    high = b.fma(quarter, p, quarter)
    return high, b.fma(quarter, p, b.sub(quarter, high)), b.div(b.const(0.0625, F64), high)


def _cosh(b: Builder, x: Value) -> Value:
    size = b.abs(x)
    high, low, inverse = _quarter_exp(b, _bounded(b, size, 0.0, 711.0))
    result = b.mul(b.add(high, b.add(inverse, low)), b.const(2.0, F64))
    return b.select(b.lt(b.const(COSH_LIMIT, F64), size), b.const(np.inf, F64), result)


def _sinh(b: Builder, x: Value) -> Value:
    """exp(|x|)/2 - exp(-|x|)/2 from 1 on, where the second is below a seventh of the first; a polynomial below."""
    size = b.abs(x)
    high, low, inverse = _quarter_exp(b, _bounded(b, size, 0.0, 711.0))
    far = b.mul(b.sub(high, b.sub(inverse, low)), b.const(2.0, F64))
    far = b.select(b.lt(b.const(COSH_LIMIT, F64), size), b.const(np.inf, F64), far)
    square = b.mul(size, size)
    near = b.fma(b.mul(size, square), horner(b, square, SINH_NEAR), size)
    # NaN takes the far side, which keeps it.
    return b.copysign(b.select(b.lt(size, b.const(1.0, F64)), near, far), x)


def _cosh_for_single(b: Builder, x: Value) -> Value:
    """Beyond 90 float32 overflows."""
    p, sixteenths = _short_parts(b, _bounded(b, b.abs(x), 0.0, 90.0))
    scale = b.bitcast(power_of_sixteenths(b, sixteenths), F64)
    e = b.fma(scale, p, scale)
    half = b.const(0.5, F64)
    return b.fma(e, half, b.div(half, e))


def _sinh_for_single(b: Builder, x: Value) -> Value:
    """(e + e / (e + 1)) / 2 with e = expm1(|x|)."""
    e = _expm1_short(b, _bounded(b, b.abs(x), 0.0, 90.0))
    whole = b.add(e, b.div(e, b.add(e, b.const(1.0, F64))))
    return b.copysign(b.mul(whole, b.const(0.5, F64)), x)
