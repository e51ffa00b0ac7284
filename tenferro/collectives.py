"""Where the engines of a mesh, or the lanes of ``vmap``, meet: a value of each in, what each of them gets out.

These are called inside a function under ``shard_map`` with the name of a mesh axis, or under ``vmap`` with its
``axis_name``; or with a tuple of names. Engines that differ along these axes only take part in one collective. Values
may be pytrees of arrays. Sums over engines are added in the order of the mesh, so that their bits do not depend on
timing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import index
from typing import Any

import numpy as np

from tenferro import lane_collectives, tree
from tenferro.lane_collectives import lanes_named
from tenferro.mesh import Names, names_of
from tenferro.tracer.api.record import API
from tenferro.tracer.dim import Dim
from tenferro.tracer.dims import mod
from tenferro.tracer.errors import AxisError, DtypeError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import collectives, lanes as rows
from tenferro.tracer.program import Operand
from tenferro.tracer.spread import Spread
from tenferro.tracer.trace import Trace, current_trace
from tenferro.tracer.traced import TracedArray, as_traced, fresh, number

AxisNames = str | Sequence[str]
OVER_LANES = {"sum": rows.lane_sum, "max": rows.lane_max, "min": rows.lane_min}


def _spread(name: str, axis_name: AxisNames) -> tuple[Trace, Spread, Names]:
    """The running trace, its mesh, and the axes that are meant."""
    trace = current_trace()
    if trace is None or trace.spread is None:
        raise TraceError(f"{name}: axis name {axis_name!r} {_where(trace, axis_name)}{at(user_line())}")
    names, known = names_of(axis_name, f"{name}: axis_name"), trace.spread.grid.names
    for n in names:
        if n not in known:
            raise ShapeError(
                f"{name}: axis name {n!r} is none of the mesh's; one of {', '.join(map(repr, known))} is "
                f"needed{at(user_line())}"
            )
    return trace, trace.spread, names


def _where(trace: Trace | None, axis_name: AxisNames) -> str:
    """Why nothing bears an axis's name, and what to do: which lanes have names here, or what would give them one."""
    names = [] if trace is None else [repr(x.name) for x in trace.axes if x.name is not None]
    if names:
        return f"names no axis here; {' or '.join(dict.fromkeys(names))}, of vmap, is needed"
    return f"outside shard_map; a function under tn.shard_map, or under tn.vmap(f, axis_name={axis_name!r}), is needed"


def _each(name: str, x: Any, rule: Callable[[TracedArray], Operand], plain: Callable[[Any], Any] | None = None) -> Any:
    """``rule`` on every array of a pytree, ``plain`` on Python's numbers where they need no meeting."""

    def one(leaf: Any) -> Any:
        if plain is not None and type(leaf) in (bool, int, float, complex, Dim):
            return plain(leaf)
        trace = current_trace()
        assert trace is not None
        traced = as_traced(trace, leaf, name)
        value = rule(traced)
        return number(trace, value) if traced.type.weak and not value.type.shape else fresh(trace, value)

    return tree.map(one, x)


def axis_index(axis_name: AxisNames) -> Any:
    """The number of the engine along the axis; a traced number, that gives way in promotion as a Python int does."""
    lanes = lanes_named(axis_name)
    if lanes is not None:
        return lane_collectives.position(lanes)
    trace, spread, names = _spread("axis_index", axis_name)
    return number(trace, spread.index(names))


def axis_size(axis_name: AxisNames) -> Any:
    """How many engines lie along the axis (of several: their product)."""
    lanes = lanes_named(axis_name)
    if lanes is not None:
        return lane_collectives.size(lanes)
    _, spread, names = _spread("axis_size", axis_name)
    return spread.grid.size(names)


def _reduced(name: str, x: Any, axis_name: AxisNames, reduction: str, plain: Callable[[Any, int], Any]) -> Any:
    lanes = lanes_named(axis_name)
    if lanes is not None:
        return lane_collectives.reduced(name, x, lanes, OVER_LANES[reduction])
    _, spread, names = _spread(name, axis_name)

    def rule(v: TracedArray) -> Operand:
        if v.dtype.kind not in collectives.REDUCTIONS[reduction]:
            cure = "x.astype(int) is needed" if v.dtype.kind == "b" else "real numbers are needed"
            raise DtypeError(f"{name}: dtype {v.dtype.name}; {cure}{at(user_line())}")
        return spread.meet(collectives.all_reduce, v.read(), names, False, reduction=reduction)

    return _each(name, x, rule, lambda v: plain(v, spread.grid.size(names)))


def psum(x: Any, axis_name: AxisNames) -> Any:
    """The sum over the engines; each of them gets it. dtypes stay; of a Python number, the number times the engines.

    DtypeError for bool."""
    return _reduced("psum", x, axis_name, "sum", lambda v, count: v * count)


def pmean(x: Any, axis_name: AxisNames) -> Any:
    """The mean over the engines: ``psum(x, axis_name) / axis_size(axis_name)``."""
    count = axis_size(axis_name)
    return tree.map(lambda v: API["divide"].function(v, count), psum(x, axis_name))


def pmax(x: Any, axis_name: AxisNames) -> Any:
    """The largest over the engines, element by element; NaN wins."""
    return _reduced("pmax", x, axis_name, "max", lambda v, count: v)


def pmin(x: Any, axis_name: AxisNames) -> Any:
    """The smallest over the engines, element by element; NaN wins."""
    return _reduced("pmin", x, axis_name, "min", lambda v, count: v)


def _axis(name: str, axis: Any, rank: int) -> int:
    found = index(axis)
    if not -rank <= found < rank:
        raise AxisError(f"{name}: axis {found} for rank {rank}; it must be in [{-rank}, {rank}){at(user_line())}")
    return found % rank


def all_gather(x: Any, axis_name: AxisNames, *, axis: int = 0, tiled: bool = False) -> Any:
    """Everyone's arrays, joined along ``axis``: a new axis, or with ``tiled`` the one that is there."""
    lanes = lanes_named(axis_name)
    if lanes is not None:
        return lane_collectives.all_gather(x, lanes, index(axis), tiled)
    _, spread, names = _spread("all_gather", axis_name)

    def rule(v: TracedArray) -> Operand:
        where = _axis("all_gather", axis, v.ndim + (not tiled))
        return spread.meet(collectives.all_gather, v.read(), names, False, axis=where, tiled=bool(tiled))

    return _each("all_gather", x, rule)


def psum_scatter(x: Any, axis_name: AxisNames, *, scatter_dimension: int = 0, tiled: bool = False) -> Any:
    """The sum over the engines, each of which gets its part along ``scatter_dimension``: one element, and the axis
    goes; or with ``tiled`` the engine's share of the axis, whose size must be a multiple of the engines."""
    lanes = lanes_named(axis_name)
    if lanes is not None:
        return lane_collectives.psum_scatter(x, lanes, index(scatter_dimension), tiled)
    trace, spread, names = _spread("psum_scatter", axis_name)
    count = spread.grid.size(names)

    def rule(v: TracedArray) -> Operand:
        where = _axis("psum_scatter", scatter_dimension, v.ndim)
        size = v.type.shape[where]
        rest, needed = (mod(size, count), 0) if tiled else (size, count)
        if not trace.guard("==", rest, needed):
            raise ShapeError(
                f"psum_scatter: axis {where} of size {trace.describe(size)} over {count} engines; "
                f"{'a multiple of' if tiled else 'just'} {count} is needed{at(user_line())}"
            )
        return spread.meet(
            collectives.reduce_scatter, v.read(), names, True, reduction="sum", axis=where, tiled=bool(tiled)
        )

    return _each("psum_scatter", x, rule)


def ppermute(x: Any, axis_name: AxisNames, perm: Sequence[tuple[int, int]]) -> Any:
    """Arrays go from engine to engine: ``perm`` holds pairs of source and destination. Who is no destination gets
    zeros."""
    pairs = tuple((index(source), index(destination)) for source, destination in perm)
    lanes = lanes_named(axis_name)
    if lanes is not None:
        return lane_collectives.ppermute(x, lanes, pairs)
    _, spread, names = _spread("ppermute", axis_name)
    count = spread.grid.size(names)
    for k, what in enumerate(("source", "destination")):
        found = [pair[k] for pair in pairs]
        if len(set(found)) != len(found) or any(not 0 <= n < count for n in found):
            raise ShapeError(
                f"ppermute: perm has {what}s {found}; numbers from 0 to {count - 1}, each at most once, are "
                f"needed{at(user_line())}"
            )

    def rule(v: TracedArray) -> Operand:
        return spread.meet(collectives.permute, v.read(), names, True, pairs=pairs)

    return _each("ppermute", x, rule)


def pbroadcast(x: Any, axis_name: AxisNames, source: int) -> Any:
    """The array of one engine; each of them gets it. ``source``: the engine's number along the axis."""
    lanes = lanes_named(axis_name)
    if lanes is not None:
        return lane_collectives.pbroadcast(x, lanes, index(source))
    _, spread, names = _spread("pbroadcast", axis_name)
    root, count = index(source), spread.grid.size(names)
    if not 0 <= root < count:
        raise ShapeError(f"pbroadcast: source {root} of {count} engines; 0 to {count - 1} is needed{at(user_line())}")

    def rule(v: TracedArray) -> Operand:
        return spread.meet(collectives.broadcast, v.read(), names, False, root=root)

    return _each("pbroadcast", x, rule, lambda v: v)


def all_to_all(x: Any, axis_name: AxisNames, split_axis: int, concat_axis: int, *, tiled: bool = False) -> Any:
    """Each engine's array is cut along ``split_axis``, and each engine gets its part of everyone's, joined along
    ``concat_axis``. The cut axis has an element for each engine and goes, and a new one comes; or with ``tiled`` its
    size is a multiple of the engines and both stay. Everyone's whole arrays travel."""
    count, mine = axis_size(axis_name), axis_index(axis_name)

    def one(leaf: Any) -> Any:
        trace = current_trace()
        assert trace is not None
        v = as_traced(trace, leaf, "all_to_all")
        cut = _axis("all_to_all", split_axis, v.ndim)
        joined = _axis("all_to_all", concat_axis, v.ndim)
        size, many = v.type.shape[cut], getattr(count, "expr", count)
        rest, needed = (mod(size, many), 0) if tiled else (size, many)
        if not trace.guard("==", rest, needed):
            raise ShapeError(
                f"all_to_all: axis {cut} of size {trace.describe(size)} over {count} engines; "
                f"{'a multiple of' if tiled else 'just'} that is needed{at(user_line())}"
            )
        whole = all_gather(v, axis_name)
        if not tiled:
            return np.moveaxis(np.take(whole, mine, axis=cut + 1), 0, joined)
        part = v.shape[cut] // count
        parts = np.take(whole, mine * part + API["arange"].function(part), axis=cut + 1)
        moved = np.moveaxis(parts, 0, joined)
        shape = [part * 1 if k == cut else n for k, n in enumerate(v.shape)]
        shape[joined] = shape[joined] * count
        return moved.reshape(tuple(shape))

    return tree.map(one, x)


def pswapaxes(x: Any, axis_name: AxisNames, axis: int) -> Any:
    """``all_to_all`` of one axis: element k of engine j goes to place j of engine k."""
    return all_to_all(x, axis_name, axis, axis)


def pshuffle(x: Any, axis_name: AxisNames, perm: Sequence[int]) -> Any:
    """``ppermute`` by a permutation: engine k gets the array of engine ``perm[k]``."""
    return ppermute(x, axis_name, [(index(source), k) for k, source in enumerate(perm)])
