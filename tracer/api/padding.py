"""Padding: an array and widths in, the array with borders out, of constants or as ``padding_modes`` fills them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import extents_of
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.layout import axis_of
from tenferro.tracer.api.padding_modes import Border, bordered, check_lengths
from tenferro.tracer.api.promotion import chosen, converted
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.api.reductions import NOTHING
from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced, operand


def pad(
    array: Any, pad_width: Any, mode: Any = "constant", *, constant_values: Any = NOTHING, end_values: Any = NOTHING,
    stat_length: Any = NOTHING, reflect_type: Any = NOTHING,
) -> Any:  # fmt: skip
    """Borders around an array; widths and values as in NumPy (one, (before, after), or a pair for each axis)."""
    trace = running_trace("pad")
    x = as_traced(trace, array, "pad")
    options = {
        "constant_values": constant_values, "end_values": end_values, "stat_length": stat_length,
        "reflect_type": reflect_type,
    }  # fmt: skip
    _check_mode(mode, [k for k, v in options.items() if v is not NOTHING])
    rank = x.ndim
    widths = [extents_of(pair, "pad") for pair in _pairs(_by_axis(pad_width, rank), rank, "pad_width")]
    if mode in ("constant", "empty"):
        return _constant(trace, x, widths, 0 if constant_values is NOTHING else constant_values)
    value = x.read()
    ends = _pairs(0 if end_values is NOTHING else end_values, rank, "end_values")
    lengths = _pairs(None if stat_length is NOTHING else stat_length, rank, "stat_length")
    check_lengths(mode, lengths)
    is_odd = reflect_type is not NOTHING and reflect_type != "even"
    for axis, (low, high) in enumerate(widths):
        if not (low == 0 and high == 0):
            more = Border(mode, axis, low, high, ends[axis], lengths[axis], is_odd)
            value = bordered(trace, value, more)
    return new(trace, value if value is not x.read() else build.copied(trace, value))


_OPTIONS: dict[str, tuple[str, ...]] = {
    "constant": ("constant_values",), "empty": (), "edge": (), "wrap": (), "linear_ramp": ("end_values",),
    "maximum": ("stat_length",), "minimum": ("stat_length",), "mean": ("stat_length",), "median": ("stat_length",),
    "reflect": ("reflect_type",), "symmetric": ("reflect_type",),
}  # fmt: skip


def _check_mode(mode: Any, given: list[str]) -> None:
    if callable(mode):
        raise TraceError(f"pad: a function as mode; the name of a mode is needed{at(user_line())}")
    if mode not in _OPTIONS:
        raise ShapeError(f"pad: mode {mode!r}; one of {', '.join(_OPTIONS)} is needed{at(user_line())}")
    refused = [name for name in given if name not in _OPTIONS[mode]]
    if refused:
        raise ShapeError(f"pad: {', '.join(refused)} with mode {mode!r}, which takes none{at(user_line())}")


def _by_axis(given: Any, rank: int) -> Any:
    """Widths given by axis, (0, 0) for the others; arrays as lists."""
    if isinstance(given, dict):
        pairs: list[Any] = [(0, 0)] * rank
        for axis, width in given.items():
            pairs[axis_of(axis, rank, "pad")] = tuple(width) if isinstance(width, tuple | list) else (width, width)
        return pairs
    return given


def _constant(trace: Trace, x: TracedArray, widths: list[Any], constant_values: Any) -> Any:
    rank, value = x.ndim, x.read()
    values = _pairs(constant_values, rank, "constant_values")
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
    # NumPy stores what its int64 holds: unsigned integers wrap around, signed ones must fit.
    return chosen(trace, found, dtype) if dtype.kind == "u" else converted(trace, found, dtype, "pad")


def _padded(trace: Trace, value: Operand, widths: list[Any], fill: Operand) -> Operand:
    low: tuple[Extent, ...] = tuple(w[0] for w in widths)
    high: tuple[Extent, ...] = tuple(w[1] for w in widths)
    if not any(n != 0 for n in (*low, *high)):
        return build.copied(trace, value)
    return trace.emit1(layout.pad, value, fill, low=low, high=high)


def _pairs(given: Any, rank: int, what: str) -> list[tuple[Any, Any]]:
    """NumPy's shorthands: one for all, (one,), (before, after), or a pair for each axis."""
    if isinstance(given, np.ndarray) and given.ndim:
        given = np.asarray(given).tolist()
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


FUNCTIONS: tuple[ApiFunction, ...] = (
    ApiFunction("pad", pad, ("array", "constant_values", "end_values"), False, np.pad),
)
