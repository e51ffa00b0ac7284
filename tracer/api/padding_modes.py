"""Borders made of the array itself: an operand and one axis's border in, the operand with the border out.

Where a border is no wider than what it repeats, it is a slice joined to the array; a wider one is gathered by an index
that runs back and forth. The answer to which of the two it is becomes a guard.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.layout import axes_of
from tenferro.tracer.api.library import median
from tenferro.tracer.api.promotion import converted, result_type, strong
from tenferro.tracer.api.reductions import INT64, MAX, MIN, Extreme, mean, number
from tenferro.tracer.dim import as_extent
from tenferro.tracer.dims import Extent, add, maximum, minimum, mul, sub
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout, pointwise as p, rounding
from tenferro.tracer.program import Operand
from tenferro.tracer.records import dataclass
from tenferro.tracer.trace import Trace
from tenferro.tracer.traced import operand

DOUBLE = np.dtype(np.float64)
_EXTREMES: dict[str, Extreme] = {"maximum": MAX, "minimum": MIN}


@dataclass(frozen=True, slots=True)
class Border:
    """The border of one axis: ``low`` elements before and ``high`` behind. ``ends``: the outermost values of ramps;
    ``lengths``: how many elements a statistic is taken of, None for all; ``is_odd``: reflections are mirrored at the
    edge's value, too."""

    mode: str
    axis: int
    low: Extent
    high: Extent
    ends: tuple[Any, Any]
    lengths: tuple[Any, Any]
    is_odd: bool


def check_lengths(mode: str, lengths: list[tuple[Any, Any]]) -> None:
    """ShapeError where a largest or smallest element of none is asked for."""
    if mode in _EXTREMES and any(length == 0 and length is not None for pair in lengths for length in pair):
        raise ShapeError(f"pad: stat_length 0 with mode {mode!r}; 1 or more is needed{at(user_line())}")


def bordered(trace: Trace, value: Operand, border: Border) -> Operand:
    """The operand with its border along the axis."""
    n = value.type.shape[border.axis]
    if trace.guard("==", n, 0):
        raise ShapeError(
            f"pad: mode {border.mode!r} on axis {border.axis} of size 0; an element is needed{at(user_line())}"
        )
    match border.mode:
        case "edge":
            parts = _edges(trace, value, border)
        case "wrap":
            if not _fits(trace, border, n):
                return _gathered(trace, value, border, n)
            parts = (_part(trace, value, border, sub(n, border.low), border.low, 1),
                     _part(trace, value, border, 0, border.high, 1))  # fmt: skip
        case "reflect" | "symmetric":
            if trace.guard("==", n, 1):
                parts = _edges(trace, value, border)
            elif not _fits(trace, border, n if border.mode == "symmetric" else sub(n, 1)):
                return _reflected_often(trace, value, border, n)
            else:
                parts = _reflected(trace, value, border, n)
        case "linear_ramp":
            parts = _ramps(trace, value, border)
        case _:
            parts = _statistics(trace, value, border, n)
    return _joined(trace, value, border, parts)


def _joined(trace: Trace, value: Operand, border: Border, parts: tuple[Operand, Operand]) -> Operand:
    low, high = parts
    pieces = [low] * (border.low != 0) + [value] + [high] * (border.high != 0)
    return trace.emit1(layout.concatenate, *pieces, axis=border.axis)


def _fits(trace: Trace, border: Border, most: Extent) -> bool:
    return trace.guard("<=", border.low, most) and trace.guard("<=", border.high, most)


def _part(trace: Trace, value: Operand, border: Border, start: Extent, size: Extent, step: int) -> Operand:
    """Elements along the axis."""
    shape = value.type.shape
    starts = tuple(start if k == border.axis else 0 for k in range(len(shape)))
    steps = tuple(step if k == border.axis else 1 for k in range(len(shape)))
    return build.cut(trace, value, starts, steps, _sized(shape, border.axis, size))


def _sized(shape: tuple[Extent, ...], axis: int, size: Extent) -> tuple[Extent, ...]:
    return (*shape[:axis], size, *shape[axis + 1 :])


def _wide(trace: Trace, one: Operand, border: Border, size: Extent) -> Operand:
    """One element along the axis repeated."""
    return build.broadcast(trace, one, _sized(one.type.shape, border.axis, size))


def _edge(trace: Trace, value: Operand, border: Border, side: int) -> Operand:
    last = sub(value.type.shape[border.axis], 1)
    return _part(trace, value, border, last if side else 0, 1, 1)


def _edges(trace: Trace, value: Operand, border: Border) -> tuple[Operand, Operand]:
    widths = (border.low, border.high)
    first, last = (_wide(trace, _edge(trace, value, border, k), border, widths[k]) for k in (0, 1))
    return first, last


# -- reflections -----------------------------------------------------------------------------------------------------


def _reflected(trace: Trace, value: Operand, border: Border, n: Extent) -> tuple[Operand, Operand]:
    beside = 0 if border.mode == "symmetric" else 1  # whether the edge itself is repeated
    low = _part(trace, value, border, sub(add(border.low, beside), 1), border.low, -1)
    high = _part(trace, value, border, sub(n, 1 + beside), border.high, -1)
    if not border.is_odd:
        return low, high
    return _mirrored(trace, low, _edge(trace, value, border, 0)), _mirrored(trace, high, _edge(trace, value, border, 1))


def _mirrored(trace: Trace, part: Operand, edge: Operand) -> Operand:
    """``2 edge - part``."""
    double = trace.emit1(p.multiply, build.literal(2, edge.type.dtype), edge)
    return trace.emit1(p.subtract, build.broadcast(trace, double, part.type.shape), part)


def _places(trace: Trace, border: Border, n: Extent) -> Operand:
    """The index that each element would have in an array that goes on for ever."""
    total = add(add(border.low, n), border.high)
    place = trace.emit1(layout.iota, shape=(total,), axis=0)
    return trace.emit1(p.subtract, place, number(trace, border.low, INT64))


def _gathered(trace: Trace, value: Operand, border: Border, n: Extent) -> Operand:
    place = trace.emit1(p.remainder, _places(trace, border, n), number(trace, n, INT64))
    return trace.emit1(layout.take, value, place, axis=border.axis)


def _reflected_often(trace: Trace, value: Operand, border: Border, n: Extent) -> Operand:
    """Back and forth with a period of twice the array; odd reflections rise by twice its span each time."""
    beside = 0 if border.mode == "symmetric" else 1
    period = number(trace, mul(sub(n, beside), 2), INT64)
    place = _places(trace, border, n)
    phase = trace.emit1(p.remainder, place, period)
    back = trace.emit1(p.subtract, number(trace, sub(mul(sub(n, beside), 2), 1 - beside), INT64), phase)
    index = trace.emit1(p.minimum, phase, back)
    found: Operand = trace.emit1(layout.take, value, index, axis=border.axis)
    if not border.is_odd:
        return found
    rank, dtype, shape = len(value.type.shape), value.type.dtype, found.type.shape

    def along(x: Operand) -> Operand:
        return build.broadcast(trace, build.expand(trace, x, (border.axis,), rank), shape)

    first, last = (_edge(trace, value, border, k) for k in (0, 1))
    is_back = along(trace.emit1(p.less, back, phase))
    found = trace.emit1(p.where, is_back, _mirrored(trace, found, last), found)
    turns = trace.emit1(p.multiply, build.literal(2, INT64), trace.emit1(p.floor_divide, place, period))
    rise = build.broadcast(trace, trace.emit1(p.subtract, last, first), shape)
    rise = trace.emit1(p.multiply, along(build.convert(trace, turns, dtype)), rise)
    return trace.emit1(p.add, found, rise)


# -- ramps and statistics --------------------------------------------------------------------------------------------


def _ramps(trace: Trace, value: Operand, border: Border) -> tuple[Operand, Operand]:
    first, last = (
        _ramp(trace, value, border, side, width) for side, width in ((0, border.low), (1, border.high))
    )  # fmt: skip
    return first, last


def _ramp(trace: Trace, value: Operand, border: Border, side: int, width: Extent) -> Operand:
    """``end + i (edge - end) / width`` for i = 0, 1, …, outermost first; rounded down among integers."""
    dtype, edge = value.type.dtype, _edge(trace, value, border, side)
    end, key = operand(trace, border.ends[side], "pad")
    if end.type.shape:
        raise ShapeError(f"pad: an end value of rank {len(end.type.shape)}; a number is needed{at(user_line())}")
    working = result_type([dtype, strong(key)])
    working = working if working.kind in "fc" else DOUBLE
    end, edge = converted(trace, end, working, "pad"), build.convert(trace, edge, working)
    rank, shape = len(value.type.shape), _sized(value.type.shape, border.axis, width)
    step = trace.emit1(p.divide, trace.emit1(p.subtract, edge, end), number(trace, maximum(width, 1), working))
    place: Operand = trace.emit1(layout.iota, shape=(width,), axis=0)
    if side:
        place = trace.emit1(p.subtract, number(trace, sub(width, 1), INT64), place)
    place = build.broadcast(
        trace, build.expand(trace, build.convert(trace, place, working), (border.axis,), rank), shape
    )
    ramp = trace.emit1(p.multiply, place, build.broadcast(trace, step, shape))
    ramp = trace.emit1(p.add, ramp, end)
    if dtype.kind in "iu":
        ramp = trace.emit1(rounding.floor, ramp)
    return build.convert(trace, ramp, dtype)


def _statistics(trace: Trace, value: Operand, border: Border, n: Extent) -> tuple[Operand, Operand]:
    lengths = [_length(trace, given, n) for given in border.lengths]
    low = _statistic(trace, value, border, 0, lengths[0])
    is_whole = all(trace.canonical(length) == trace.canonical(n) for length in lengths)
    high = low if is_whole else _statistic(trace, value, border, sub(n, lengths[1]), lengths[1])
    return _wide(trace, low, border, border.low), _wide(trace, high, border, border.high)


def _length(trace: Trace, given: Any, n: Extent) -> Extent:
    """How many elements a statistic is taken of, at most all."""
    if given is None:
        return n
    length = as_extent(given)
    if length is None or not trace.guard("<=", 0, length):
        raise ShapeError(f"pad: stat_length {given!r}; an integer of 0 or more is needed{at(user_line())}")
    return minimum(length, n)


def _statistic(trace: Trace, value: Operand, border: Border, start: Extent, length: Extent) -> Operand:
    """The statistic of a stretch, with size 1 along the axis, in the array's dtype; means of integers are rounded."""
    part, dtype = _part(trace, value, border, start, length, 1), value.type.dtype
    axes = axes_of(border.axis, len(value.type.shape), "pad")
    if border.mode in _EXTREMES:
        return trace.emit1(_EXTREMES[border.mode].row, part, axes=axes, keepdims=True)
    function = mean if border.mode == "mean" else median
    found = function(new(trace, part), border.axis, keepdims=True).read()
    if dtype.kind in "iu":
        found = trace.emit1(rounding.rint, found)
    return build.convert(trace, found, dtype)
