"""astype between all dtypes: in goes a value, out comes NumPy's conversion, with what C leaves open defined.

Floats to integers saturate and NaN gives 0; complex to real drops the imaginary part; every float rounds once.
"""

from __future__ import annotations

import numpy as np

from tenferro.tracer.scalar.arithmetic import zero
from tenferro.tracer.scalar.builder import BOOL, F16, F32, F64, I32, U16, Builder, Complex, Dtype, Value


def astype(b: Builder, x: Value, dtype: Dtype) -> Value:
    if x.dtype == dtype:
        return x
    if isinstance(x, Complex):
        return _from_complex(b, x, dtype)
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        return Complex(astype(b, x, part), b.const(0.0, part))
    if dtype == BOOL:
        return truth(b, x)
    match (x.dtype.kind, dtype.kind):
        case ("f", "f"):
            return _float_to_float(b, x, dtype)
        case ("f", _):
            return _float_to_integer(b, b.convert(x, F32) if x.dtype == F16 else x, dtype)
        case (_, "f") if dtype == F16:
            # Integers that float32 rounds are beyond float16's range either way, so this rounds once.
            return b.convert(b.convert(x, F32), F16)
        case _:
            return b.convert(x, dtype)


def truth(b: Builder, x: Value) -> Value:
    """Whether x is not zero; NaN is true."""
    if x.dtype == BOOL:
        return x
    if x.dtype == F16:
        return b.ne(b.and_(b.bitcast(x, U16), b.const(0x7FFF, U16)), b.const(0, U16))
    return b.ne(x, zero(b, x))


def _from_complex(b: Builder, x: Complex, dtype: Dtype) -> Value:
    if dtype == BOOL:
        return b.or_(truth(b, x.re), truth(b, x.im))
    if dtype.kind != "c":
        return astype(b, x.re, dtype)
    part = np.dtype(f"f{dtype.itemsize // 2}")
    return Complex(astype(b, x.re, part), astype(b, x.im, part))


def _float_to_float(b: Builder, x: Value, dtype: Dtype) -> Value:
    if x.dtype == F64 and dtype == F16:
        return b.convert(_round_to_odd(b, x), F16)
    if x.dtype == F16 and dtype == F64:
        return b.convert(b.convert(x, F32), F64)
    return b.convert(x, dtype)


def _round_to_odd(b: Builder, x: Value) -> Value:
    """float64 to float32, cut off toward zero with a last bit of 1 where that changed the value.

    Rounding the result to at most 22 bits then equals rounding x (Boldo and Melquiond, IEEE Trans. Computers 57,
    2008)."""
    nearest = b.convert(x, F32)
    back = b.convert(nearest, F64)
    one, none = b.const(1, I32), b.const(0, I32)
    up = b.select(b.lt(b.abs(x), b.abs(back)), one, none)
    sticky = b.select(b.ne(back, x), one, none)
    return b.bitcast(b.or_(b.sub(b.bitcast(nearest, I32), up), sticky), F32)


def _float_to_integer(b: Builder, x: Value, dtype: Dtype) -> Value:
    info = np.iinfo(dtype)
    # Both bounds are exact in every float: 0 or a power of two.
    low, high = b.const(float(info.min), x.dtype), b.const(float(int(info.max) + 1), x.dtype)
    inside = b.and_(b.le(low, x), b.lt(x, high))
    safe = b.select(inside, x, zero(b, x))
    result = b.convert(safe, dtype) if dtype.itemsize >= 4 else b.convert(b.convert(safe, I32), dtype)
    result = b.select(b.le(high, x), b.const(int(info.max), dtype), result)
    return b.select(b.lt(x, low), b.const(int(info.min), dtype), result)
