"""Multiplication and addition rounded once: x y + z of floats."""

from __future__ import annotations

from tenferro.tracer.scalar.builder import F16, F32, F64, U64, Builder, Value

UNUSED = 52 - 23
"""Bits by which a float64 fraction is longer than that of float32."""


def fma(b: Builder, x: Value, y: Value, z: Value) -> Value:
    """x y + z as if with unlimited range and precision, then rounded to nearest even."""
    if x.dtype != F16:
        return b.fma(x, y, z)
    wide = b.fma(*(b.convert(b.convert(v, F32), F64) for v in (x, y, z)))
    return b.convert(_odd(b, wide), F16)


def _odd(b: Builder, x: Value) -> Value:
    """A float64 in the range of float32 rounded to odd there, so that the next rounding is the only one.

    The sum of float16 numbers and products is exact in float64, but for what is too small to tell."""
    bits = b.bitcast(x, U64)
    lost = b.and_(bits, b.const(2**UNUSED - 1, U64))
    sticky = b.select(b.eq(lost, b.const(0, U64)), b.const(0, U64), b.const(2**UNUSED, U64))
    return b.convert(b.bitcast(b.or_(b.xor(bits, lost), sticky), F64), F32)
