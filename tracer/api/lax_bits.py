"""Bits, parts and special functions of ``tenferro.lax``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.lax_common import function
from tenferro.tracer.api.lax_elementwise import named
from tenferro.tracer.api.parts import of_parts
from tenferro.tracer.api.promotion import converted, result_type
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.api.special import SPECIAL
from tenferro.tracer.errors import DtypeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import pointwise as p, rounding
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import as_traced, operand

_MASKS = (0x5555555555555555, 0x3333333333333333, 0x0F0F0F0F0F0F0F0F, 0x00FF00FF00FF00FF, 0x0000FFFF0000FFFF,
          0x00000000FFFFFFFF)  # fmt: skip
"""Every other field of 1, 2, 4, … bits."""


def _unsigned(trace: Trace, name: str, x: Any) -> tuple[Operand, np.dtype[Any]]:
    """The bits of integers as an unsigned dtype, and their own dtype."""
    value = as_traced(trace, x, name).read()
    dtype = value.type.dtype
    if dtype.kind not in "iu":
        raise DtypeError(f"{name}: dtype {dtype.name}; integers are needed{at(user_line())}")
    target = np.dtype(f"u{dtype.itemsize}")
    return (value if target == dtype else trace.emit1(p.bitcast, value, dtype=target)), dtype


def _shifted(trace: Trace, x: Operand, count: int) -> Operand:
    return trace.emit1(rounding.right_shift, x, build.literal(count, x.type.dtype))


def _counted(trace: Trace, x: Operand) -> Operand:
    """How many bits are 1: neighbouring fields are added, which are twice as wide each time."""
    dtype = x.type.dtype
    width = 8 * dtype.itemsize
    for k, mask in enumerate(_MASKS):
        if 1 << k >= width:
            break
        field = build.literal(mask & ((1 << width) - 1), dtype)
        halves = (trace.emit1(p.bitwise_and, v, field) for v in (x, _shifted(trace, x, 1 << k)))
        x = trace.emit1(p.add, *halves)
    return x


def population_count(x: Any) -> Any:
    """How many bits of each integer are 1, in its own dtype."""
    trace = running_trace("population_count")
    value, dtype = _unsigned(trace, "population_count", x)
    return new(trace, build.convert(trace, _counted(trace, value), dtype))


def clz(x: Any) -> Any:
    """How many zeros stand before each integer's highest 1, in its own dtype."""
    trace = running_trace("clz")
    value, dtype = _unsigned(trace, "clz", x)
    width, count = 8 * dtype.itemsize, 1
    while count < width:
        value = trace.emit1(p.bitwise_or, value, _shifted(trace, value, count))
        count *= 2
    zeros = trace.emit1(p.subtract, build.literal(width, value.type.dtype), _counted(trace, value))
    return new(trace, build.convert(trace, zeros, dtype))


def complex_(x: Any, y: Any) -> Any:
    """x + i y, of real numbers: complex64 of float32, else complex128; zeros keep their signs."""
    trace = running_trace("complex")
    pairs = [operand(trace, v, "complex") for v in (x, y)]
    dtype = result_type([key for _, key in pairs])
    if dtype.kind == "c":
        raise DtypeError(f"complex: dtype {dtype.name}; real numbers are needed{at(user_line())}")
    part = np.dtype(np.float32 if dtype in (np.dtype(np.float32), np.dtype(np.float16)) else np.float64)
    return of_parts(*(new(trace, converted(trace, v, part, "complex")) for v, _ in pairs))


def _alias(name: str, of_special: str) -> TracedFunction:
    record = SPECIAL[of_special]
    call: Callable[..., Any] = record.function

    def of_one(x: Any) -> Any:
        return call(x)

    def of_two(x: Any, y: Any) -> Any:
        return call(x, y)

    arrays = ("x",) if len(record.arrays) == 1 else ("x", "y")
    return named(name, of_one if len(arrays) == 1 else of_two, f"``tn.special.{of_special}``.", *arrays)


FUNCTIONS: tuple[TracedFunction, ...] = (
    function("population_count", population_count, "x"),
    function("clz", clz, "x"),
    function("complex", complex_, "x", "y"),
    *(
        _alias(*names)
        for names in (
            ("erf", "erf"), ("erfc", "erfc"), ("erf_inv", "erfinv"), ("lgamma", "gammaln"), ("digamma", "digamma"),
            ("zeta", "zeta"), ("polygamma", "polygamma"),
        )
    ),
)  # fmt: skip
