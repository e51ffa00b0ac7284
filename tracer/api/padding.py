"""Padding: an array and widths in, the array with constant borders out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import extents_of
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.promotion import converted
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import as_traced, operand


def pad(array: Any, pad_width: Any, mode: str = "constant", *, constant_values: Any = 0) -> Any:
    """Borders of constant values; widths and values as in NumPy (one, (before, after), or a pair for each axis)."""
    trace = running_trace("pad")
    x = as_traced(trace, array, "pad")
    if mode != "constant":
        raise TraceError(
            f"pad: mode {mode!r}; 'constant' is available yet, slices and concatenate make others{at(user_line())}"
        )
    rank = x.ndim
    widths = [extents_of(pair, "pad") for pair in _pairs(pad_width, rank, "pad_width")]
    values = _pairs(constant_values, rank, "constant_values")
    value = x.read()
    first = values[0][0] if values else 0
    if all(v is first or (type(v) is type(first) and v == first) for pair in values for v in pair):
        return new(trace, _padded(trace, value, widths, _fill(trace, first, x.dtype)))
    for axis, (low, high) in enumerate(widths):
        for side, width in ((0, (low, 0)), (1, (0, high))):
            one = [width if k == axis else (0, 0) for k in range(rank)]
            value = _padded(trace, value, one, _fill(trace, values[axis][side], x.dtype))
    return new(trace, value)


def _fill(trace: Trace, value: Any, dtype: np.dtype[Any]) -> Operand:
    found, _ = operand(trace, value, "pad")
    if found.type.shape:
        raise ShapeError(f"pad: a constant value of rank {len(found.type.shape)}; a number is needed{at(user_line())}")
    return converted(trace, found, dtype, "pad")


def _padded(trace: Trace, value: Operand, widths: list[Any], fill: Operand) -> Operand:
    low: tuple[Extent, ...] = tuple(w[0] for w in widths)
    high: tuple[Extent, ...] = tuple(w[1] for w in widths)
    if not any(n != 0 for n in (*low, *high)):
        return build.copied(trace, value)
    return trace.emit1(layout.pad, value, fill, low=low, high=high)


def _pairs(given: Any, rank: int, what: str) -> list[tuple[Any, Any]]:
    """NumPy's shorthands: one for all, (one,), (before, after), or a pair for each axis."""
    if not isinstance(given, tuple | list):
        return [(given, given)] * rank
    items = list(given)
    if items and not isinstance(items[0], tuple | list):
        if len(items) == 1:
            return [(items[0], items[0])] * rank
        if len(items) == 2:
            return [(items[0], items[1])] * rank
    elif len(items) == 1 or len(items) == rank:
        pairs = [tuple(i) * (2 if len(i) == 1 else 1) for i in items]
        if all(len(pair) == 2 for pair in pairs):
            found = [(pair[0], pair[1]) for pair in pairs]
            return found if len(found) == rank else found * rank
    raise ShapeError(
        f"pad: {what} {given!r} for rank {rank}; one pair, or one for each axis, is needed{at(user_line())}"
    )


FUNCTIONS: tuple[ApiFunction, ...] = (ApiFunction("pad", pad, ("array", "constant_values"), False, np.pad),)
