"""``psum`` and its like over the lanes of ``vmap(f, axis_name=…)``: values of one lane in, of all lanes out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro import tree
from tenferro.tracer.api.record import API
from tenferro.tracer.dim import make_dim
from tenferro.tracer.dims import floordiv, mod
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Op
from tenferro.tracer.ops import lanes as rows
from tenferro.tracer.trace import Trace, current_trace
from tenferro.tracer.traced import as_traced, fresh, number
from tenferro.tracer.transform.batch import Lanes


def lanes_named(axis_name: str | Sequence[str]) -> list[Lanes] | None:
    """The mappings that run now under these names, the innermost one of each; None where one is not there."""
    trace = current_trace()
    names = list(axis_name) if isinstance(axis_name, tuple | list) else [axis_name]
    if trace is None or not trace.axes or not names or not all(isinstance(n, str) for n in names):
        return None
    found = [next((x for x in reversed(trace.axes) if x.name == n), None) for n in names]
    return None if None in found else found  # type: ignore[return-value]


def _on_arrays(x: Any, name: str, rule: Callable[[Trace, Any], Any]) -> Any:
    trace = current_trace()
    assert trace is not None
    return tree.map(lambda leaf: rule(trace, as_traced(trace, leaf, name)), x)


def reduced(name: str, x: Any, lanes: Sequence[Lanes], op: Op) -> Any:
    """Over all lanes of the mappings."""

    def rule(trace: Trace, v: Any) -> Any:
        value = v.read()
        for one in lanes:
            value = trace.emit1(op, value, axis=one.number)
        return fresh(trace, value)

    return _on_arrays(x, name, rule)


def size(lanes: Sequence[Lanes]) -> Any:
    """How many lanes there are."""
    trace = current_trace()
    assert trace is not None
    total: Any = 1
    for one in lanes:
        total = total * make_dim(trace, one.size)
    return total


def position(lanes: Sequence[Lanes]) -> Any:
    """The lane's number, a traced int."""
    trace = current_trace()
    assert trace is not None
    first, *others = (number(trace, trace.emit1(rows.lane_index, axis=one.number)) for one in lanes)
    found: Any = first
    for one, mine in zip(lanes[1:], others, strict=True):
        found = found * make_dim(trace, one.size) + mine
    return found


def _whole(trace: Trace, v: Any, lanes: Sequence[Lanes]) -> Any:
    """All lanes' values along a new leading axis."""
    count, value = len(lanes), v.read()
    for one in reversed(lanes):
        value = trace.emit1(rows.lane_gather, value, axis=one.number, size=one.size)
    made = fresh(trace, value)
    return made if count == 1 else made.reshape((size(lanes), *v.shape))


def all_gather(x: Any, lanes: Sequence[Lanes], axis: int, tiled: bool) -> Any:
    """Joined along ``axis``: a new axis, or with ``tiled`` the one that is there."""

    def rule(trace: Trace, v: Any) -> Any:
        moved = np.moveaxis(_whole(trace, v, lanes), 0, axis)
        if not tiled:
            return moved
        shape = list(v.shape)
        where = axis % len(shape)
        shape[where] = shape[where] * size(lanes)
        return moved.reshape(tuple(shape))

    return _on_arrays(x, "all_gather", rule)


def psum_scatter(x: Any, lanes: Sequence[Lanes], axis: int, tiled: bool) -> Any:
    """The sum, of which each lane gets its part."""

    def rule(trace: Trace, v: Any) -> Any:
        where, count = axis % v.ndim, size(lanes)
        length, many = v.type.shape[where], getattr(count, "expr", count)
        rest = mod(length, many) if tiled else length
        if not trace.guard("==", rest, 0 if tiled else many):
            raise ShapeError(
                f"psum_scatter: axis {where} of size {trace.describe(length)} over {count} lanes; "
                f"{'a multiple of' if tiled else 'just'} that is needed{at(user_line())}"
            )
        total = reduced("psum_scatter", v, lanes, rows.lane_sum)
        if not tiled:
            return np.take(total, position(lanes), axis=where)
        part = make_dim(trace, floordiv(length, many))
        return np.take(total, position(lanes) * part + API["arange"].function(part), axis=where)

    return _on_arrays(x, "psum_scatter", rule)


def ppermute(x: Any, lanes: Sequence[Lanes], pairs: Sequence[tuple[int, int]]) -> Any:
    """From lane to lane; who is no destination gets zeros."""

    def rule(trace: Trace, v: Any) -> Any:
        whole, mine = _whole(trace, v, lanes), position(lanes)
        result: Any = np.zeros_like(v)
        for source, destination in pairs:
            result = np.where(mine == destination, whole[source], result)
        return result

    return _on_arrays(x, "ppermute", rule)


def pbroadcast(x: Any, lanes: Sequence[Lanes], root: int) -> Any:
    """The value of one lane."""
    return _on_arrays(x, "pbroadcast", lambda trace, v: _whole(trace, v, lanes)[root])
