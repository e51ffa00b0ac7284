"""Ufuncs that are one row of the families beside ``tracer/ops/pointwise``, and ``round``.

In: traced arrays, numbers, Dims, arrays from outside. Out: one traced array.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.deliver import deliver
from tenferro.tracer.api.elementwise import Lower, of_rows, row
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.dim import integer
from tenferro.tracer.errors import DtypeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Op
from tenferro.tracer.ops import elementary as e, library, pointwise as p, rounding
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import operand

HALF = np.dtype(np.float16)


def _rounded(op: Op) -> Lower:
    """Integers and bools are whole already."""

    def lower(trace: Trace, x: Operand) -> Operand:
        return build.copied(trace, x) if x.type.dtype.kind in "biu" else trace.emit1(op, x)

    return lower


def _real_row(op: Op) -> Lower:
    """The row for real operands, a call of NumPy for complex ones."""

    def lower(trace: Trace, *operands: Operand) -> Operand:
        dtype = operands[0].type.dtype
        if dtype.kind != "c":
            return trace.emit1(op, *operands)
        shape = max((x.type.shape for x in operands), key=len)
        return trace.emit1(library.numpy_call, *operands, function=op.name, static=(), shape=shape, dtype=dtype)

    return lower


general_power = _real_row(e.power)


def _scaled(numerator: float, divisor: float) -> Lower:
    """x times a quotient that NumPy computes in the dtype; float16 in float32."""

    def lower(trace: Trace, x: Operand) -> Operand:
        dtype = x.type.dtype
        wide = np.dtype(np.float32) if dtype.itemsize == 2 else dtype
        factor = float(wide.type(numerator) / wide.type(divisor))
        product = trace.emit1(p.multiply, build.convert(trace, x, wide), build.literal(factor, wide))
        return build.convert(trace, product, dtype)

    return lower


def round_(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """Round half to even, to so many decimal places: as NumPy scaled, rounded and scaled back."""
    trace = running_trace("round")
    value, _ = operand(trace, a, "round")
    places, dtype = integer(decimals, "round", "decimals"), value.type.dtype
    if dtype.kind == "b":
        if places:
            raise DtypeError(f"round: dtype bool to {places} places; x.astype(float) is needed{at(user_line())}")
        value, dtype = build.convert(trace, value, HALF), HALF  # as NumPy's rint
    if dtype.kind in "biu" and places >= 0:
        return deliver(trace, "round", build.copied(trace, value), out)
    if places == 0:
        return deliver(trace, "round", trace.emit1(rounding.rint, value), out)
    if dtype.kind != "f" or abs(places) > 300:
        return deliver(trace, "round", _round_by_numpy(trace, value, places), out)
    with np.errstate(over="ignore"):
        scale = build.literal(float(np.asarray(10.0 ** abs(places), dtype)), dtype)
    there, back = (p.multiply, p.divide) if places > 0 else (p.divide, p.multiply)
    whole = trace.emit1(rounding.rint, trace.emit1(there, value, scale))
    return deliver(trace, "round", trace.emit1(back, whole, scale), out)


def _round_by_numpy(trace: Trace, value: Operand, places: int) -> Operand:
    """Complex numbers, and integers to tens, hundreds, …"""
    dtype = value.type.dtype
    result = np.round(np.ones((), dtype), places).dtype
    static = (("decimals", places),)
    return trace.emit1(library.numpy_call, value, function="round", static=static, shape=value.type.shape, dtype=result)


_OF_REAL = (e.expm1, e.log1p, e.arcsin, e.arccos, e.arctan, e.arcsinh, e.arccosh, e.arctanh)
_OF_BOTH = (e.exp2, e.log2, e.log10, e.sinh, e.cosh, e.tan)
_UFUNCS: tuple[tuple[np.ufunc, Lower], ...] = (
    (np.floor, _rounded(rounding.floor)),
    (np.ceil, _rounded(rounding.ceil)),
    (np.trunc, _rounded(rounding.trunc)),
    (np.rint, row(rounding.rint)),
    (np.sign, row(rounding.sign)),
    (np.signbit, row(rounding.signbit)),
    (np.copysign, row(rounding.copysign)),
    (np.heaviside, row(rounding.heaviside)),
    (np.nextafter, row(rounding.nextafter)),
    (np.left_shift, row(rounding.left_shift)),
    (np.right_shift, row(rounding.right_shift)),
    (np.fmod, row(e.fmod)),
    (np.float_power, general_power),
    (np.cbrt, row(e.cbrt)),
    (np.hypot, row(e.hypot)),
    (np.arctan2, row(e.arctan2)),
    (np.logaddexp, row(e.logaddexp)),
    (np.logaddexp2, row(e.logaddexp2)),
    *((getattr(np, op.name), _real_row(op)) for op in _OF_REAL),
    *((getattr(np, op.name), row(op)) for op in _OF_BOTH),
    (np.deg2rad, _scaled(np.pi, 180.0)),
    (np.radians, _scaled(np.pi, 180.0)),
    (np.rad2deg, _scaled(180.0, np.pi)),
    (np.degrees, _scaled(180.0, np.pi)),
)

FUNCTIONS: tuple[ApiFunction, ...] = (
    *(of_rows(ufunc, lower) for ufunc, lower in _UFUNCS),
    ApiFunction("round", round_, ("a", "out"), False, np.round),
)
WITH_ROWS: frozenset[np.ufunc] = frozenset(ufunc for ufunc, _ in _UFUNCS)
