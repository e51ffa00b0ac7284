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
from tenferro.tracer.op import Op
from tenferro.tracer.ops import library, pointwise as p, rounding
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import operand


def _rounded(op: Op) -> Lower:
    """Integers and bools are whole already."""

    def lower(trace: Trace, x: Operand) -> Operand:
        return build.copied(trace, x) if x.type.dtype.kind in "biu" else trace.emit1(op, x)

    return lower


def round_(a: Any, decimals: int = 0, out: Any = None) -> Any:
    """Round half to even, to so many decimal places: as NumPy scaled, rounded and scaled back."""
    trace = running_trace("round")
    value, _ = operand(trace, a, "round")
    places, dtype = integer(decimals, "round", "decimals"), value.type.dtype
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
)

FUNCTIONS: tuple[ApiFunction, ...] = (
    *(of_rows(ufunc, lower) for ufunc, lower in _UFUNCS),
    ApiFunction("round", round_, ("a", "out"), False, np.round),
)
WITH_ROWS: frozenset[np.ufunc] = frozenset(ufunc for ufunc, _ in _UFUNCS)
