"""One function for every engine of a mesh: an operation of the trace in, the same operation once for each engine out.

While a trace is *spread* over a ``Grid``, each operation is recorded for every position of the grid, on that position's
engine. What the function sees is the first position's value; the others' stand beside it. Collectives are where the
positions meet: one operation for each group of positions that differ along the named axes only.

For each value the axes along which it may differ are known: what differs is never asked for its elements, and may not
leave the function as if it were the same everywhere.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import product
from math import prod
from typing import Any, Literal as OneOf, TypeAlias

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.dims import DimExpr, Extent, Leaf, add, floordiv, leaf, leaves, mul, substitute
from tenferro.tracer.errors import ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Op
from tenferro.tracer.ops import collectives, layout, pointwise
from tenferro.tracer.program import ArrayType, DimScalar, Literal, Operand, Params, Value
from tenferro.tracer.records import dataclass
from tenferro.tracer.trace import Trace

INT64 = np.dtype(np.int64)
NOWHERE: frozenset[str] = frozenset()
Edge: TypeAlias = OneOf["entered", "left"]
Remote: TypeAlias = Callable[[Op | str, tuple[str, ...], dict[str, Hashable]], tuple[Op, dict[str, Hashable]]]
"""A collective row, the axes it is over and its parameters → the operation of one operand that does it from here. Of
"entered" and "left" the operation that hands an array on, and back in derivatives: to what is the same along the axes
outside the sum, to what is the same inside once."""


@dataclass(frozen=True)
class Grid:
    """Named axes. ``positions``: those that this process runs, by row-major number, each on its engine in ``places``.

    Where that is not all of them, ``remote`` makes the collectives; ``is_whole`` then says that arrays outside are
    whole in every process, and not its own shards."""

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    places: tuple[str, ...]
    positions: tuple[int, ...]
    remote: Remote | None = None
    is_whole: bool = True

    def size(self, names: Sequence[str]) -> int:
        """How many positions differ along these axes only."""
        return prod(self.sizes[self.names.index(n)] for n in names)

    def index(self, position: int, names: Sequence[str]) -> int:
        """The row-major number of a position among those that differ along these axes only."""
        where, found = np.unravel_index(position, self.sizes), 0
        for name in names:
            axis = self.names.index(name)
            found = found * self.sizes[axis] + int(where[axis])
        return found

    def at(self, coordinates: dict[str, int]) -> int:
        """The row-major number of a position; axes that are not named are at 0."""
        return int(np.ravel_multi_index([coordinates.get(n, 0) for n in self.names], self.sizes))

    def groups(self, names: Sequence[str]) -> list[list[int]]:
        """The positions, together where they differ along these axes only, in the order of ``index``."""
        others = [n for n in self.names if n not in names]
        found: dict[int, list[int]] = {}
        for position in sorted(range(prod(self.sizes)), key=lambda p: self.index(p, names)):
            found.setdefault(self.index(position, others), []).append(position)
        return list(found.values())


def _sums(sizes: Sequence[Extent]) -> list[Extent]:
    """0, the first, the first two together, and so on."""
    found: list[Extent] = [0]
    for n in sizes:
        found.append(add(found[-1], n))
    return found


Spec: TypeAlias = tuple[tuple[str, ...], ...]
"""For each axis of an array the mesh axes that it is cut along."""


class Spread:
    """The state of one trace while it is spread. ``copies``: by the id of the first position's value, everyone's."""

    def __init__(self, trace: Trace, grid: Grid) -> None:
        self.grid = grid
        self._trace = trace
        self._scope = trace.scope  # what runs to be taken out again around all of it
        self._copies: dict[int, tuple[Operand, ...]] = {}
        self._axes: dict[int, frozenset[str]] = {}
        self._sizes: dict[Leaf, tuple[tuple[Leaf, ...], frozenset[str]]] = {}  # run-time extents
        self._whole: dict[tuple[Extent, int], Extent] = {}  # (size of a shard, number of shards) → size of the array

    # -- values ------------------------------------------------------------------------------------------------------

    def operands(self, x: Operand) -> tuple[Operand, ...]:
        """What ``x`` is at each position."""
        if isinstance(x, Value):
            return self._copies.get(x.id) or (x,) * len(self.grid.positions)
        if isinstance(x, DimScalar) and self._sizes:
            return tuple([self._number(x, k) for k in range(len(self.grid.positions))])
        return (x,) * len(self.grid.positions)

    def axes(self, x: Operand) -> frozenset[str]:
        """The mesh axes along which ``x`` may differ."""
        if isinstance(x, Value):
            return self._axes.get(x.id, NOWHERE)
        return self._axes_of(x.expr) if isinstance(x, DimScalar) else NOWHERE

    def differs(self, x: Operand) -> bool:
        """Whether ``x`` may be another value at another position."""
        return bool(self.axes(x))

    def _axes_of(self, value: Any) -> frozenset[str]:
        """Of sizes in an extent, or in a parameter."""
        if isinstance(value, DimExpr):
            return NOWHERE.union(*(self._sizes[s][1] for s in leaves(value) if s in self._sizes))
        return NOWHERE.union(*map(self._axes_of, value)) if isinstance(value, tuple) else NOWHERE

    def _number(self, x: DimScalar, k: int) -> DimScalar:
        expr = self._extent(x.expr, k)
        assert isinstance(expr, DimExpr)  # a leaf becomes a leaf
        return DimScalar(expr, x.dtype)

    def _extent(self, extent: Extent, k: int) -> Extent:
        def renamed(symbol: Leaf) -> Extent:
            mine = self._sizes[symbol][0][k] if symbol in self._sizes else symbol
            return leaf(mine.kind, mine.index, mine.axis)

        return substitute(extent, renamed)

    def _renamed(self, value: Any, k: int) -> Any:
        """A parameter with the run-time extents of position k."""
        if isinstance(value, DimExpr):
            return self._extent(value, k)
        return tuple(self._renamed(v, k) for v in value) if isinstance(value, tuple) else value

    def _type(self, old: ArrayType, k: int) -> ArrayType:
        return ArrayType(old.dtype, self._renamed(old.shape, k), old.weak) if self._sizes else old

    def standing(self, copies: Sequence[Value], axes: frozenset[str]) -> Value:
        """The first position's value, which stands for everyone's; ``axes`` are those along which they may differ."""
        self._copies[copies[0].id] = tuple(copies)
        self._axes[copies[0].id] = axes
        return copies[0]

    # -- operations --------------------------------------------------------------------------------------------------

    def record(
        self, op: Op, inputs: tuple[Operand, ...], params: Params, types: Sequence[ArrayType]
    ) -> tuple[Value, ...]:
        """The operation at every position; the results of the first."""
        axes = NOWHERE.union(*map(self.axes, inputs))
        axes |= NOWHERE.union(*map(self._axes_of, params.values()))
        self._note_sizes(params, axes)
        spread = [self.operands(x) for x in inputs]
        results = []
        for k, place in enumerate(self.grid.places):
            mine = Params(**{n: self._renamed(v, k) for n, v in params.items()}) if self._sizes else params
            operands = tuple([x[k] for x in spread])
            results.append(self._trace.append(op, operands, mine, [self._type(t, k) for t in types], place))
        return tuple([self.standing(copies, axes) for copies in zip(*results, strict=True)])

    def _note_sizes(self, params: Params, axes: frozenset[str]) -> None:
        """The run-time extents that the next operation measures, one at each position."""
        number = len(self._trace.operations)
        for extent in params.values():
            own = leaves(extent) if isinstance(extent, DimExpr) else ()
            for symbol in (s for s in own if s.kind == "runtime" and s.index == number):
                each = tuple(Leaf("runtime", number + k, symbol.axis) for k in range(len(self.grid.places)))
                self._sizes[symbol] = each, axes

    def _check_meets(self) -> None:
        """TraceError inside of what runs on one engine: lanes of ``vmap`` go on together, turns of a loop do not."""
        scope = self._trace.scope
        while scope is not None and scope is not self._scope:
            if scope.what != "vmap":
                raise TraceError(
                    f"{scope.what}: engines of a mesh are told apart or meet inside of it; a collective or axis_index "
                    f"outside of it is needed{at(user_line())}"
                )
            scope = scope.around

    def index(self, names: tuple[str, ...]) -> Value:
        """The position's number along the axes."""
        self._check_meets()
        copies = []
        for place, position in zip(self.grid.places, self.grid.positions, strict=True):
            number = Literal(self.grid.index(position, names), INT64)
            copies.append(self._alone(place, pointwise.copy, number)[0])
        return self.standing(copies, frozenset(names))

    def meet(self, op: Op, x: Operand, names: tuple[str, ...], varies: bool, **params: Hashable) -> Value:
        """A collective over the axes. ``varies``: whether its results differ along them; other axes stay."""
        self._check_meets()
        axes = self.axes(x) - frozenset(names) | (frozenset(names) if varies else NOWHERE)
        if self.grid.remote is not None:
            remote, more = self.grid.remote(op, names, params)
            return self.standing(self._alone(self.grid.places[0], remote, *self.operands(x), **more), axes)
        copies = self.operands(x)
        found: dict[int, Value] = {}
        for group in self.grid.groups(names):
            places = tuple(self.grid.places[p] for p in group)
            results = self._alone("", op, *(copies[p] for p in group), places=places, **params)
            found.update(zip(group, results, strict=True))
        return self.standing([found[p] for p in self.grid.positions], axes)

    def _alone(self, place: str, op: Op, *inputs: Operand, **params: Hashable) -> tuple[Value, ...]:
        """One operation, recorded once."""
        with self.paused(place):
            return self._trace.emit(op, inputs, **params)

    @contextmanager
    def paused(self, place: str) -> Iterator[None]:
        """Operations recorded inside are recorded once, on ``place``."""
        trace = self._trace
        before = trace.spread, trace.place
        trace.spread, trace.place = None, place
        try:
            yield
        finally:
            trace.spread, trace.place = before

    # -- in and out --------------------------------------------------------------------------------------------------

    def cut(self, x: Operand, spec: Spec) -> Operand:
        """The shards of an array from outside. Its sizes are multiples of the numbers of shards."""
        names = frozenset(n for part in spec for n in part)
        if not names:
            return x
        counts = [self.grid.size(part) for part in spec] + [1] * (x.type.rank - len(spec))
        sizes = tuple(floordiv(n, c) for n, c in zip(x.type.shape, counts, strict=True))
        self._whole.update({(s, c): n for s, c, n in zip(sizes, counts, x.type.shape, strict=True) if c > 1})
        producer = self._trace.producer(x.id) if isinstance(x, Value) else None
        copies = []
        for place, position in zip(self.grid.places, self.grid.positions, strict=True):
            numbers = [self.grid.index(position, part) for part in spec] + [0] * (x.type.rank - len(spec))
            starts = tuple(mul(s, k) for s, k in zip(sizes, numbers, strict=True))
            # Where the array is made: only the shard crosses to another engine then.
            where = place if producer is None else producer.place
            box = {"starts": starts, "steps": (1,) * x.type.rank, "sizes": sizes}
            copies.append(self._alone(where, layout.slice_, x, **box)[0])
        return self.standing(copies, names)

    def at_edge(self, edge: Edge, x: Operand, apart: frozenset[str]) -> Operand:
        """An array that goes in or out where other processes are concerned: its derivative counts what theirs do.
        ``apart``: the axes along which processes have arrays of their own."""
        names = tuple(n for n in self.grid.names if n not in apart or self.grid.is_whole)
        if self.grid.remote is None or not self._trace.depth or x.type.dtype.kind not in "fc" or not names:
            return x
        op, params = self.grid.remote(edge, names, {})
        return self.standing(self._alone(self.grid.places[0], op, x, **params), self.axes(x))

    def own(self, x: Operand, names: frozenset[str]) -> Operand:
        """An array from outside that is this process's own shard."""
        return self.standing([self._alone(p, pointwise.copy, x)[0] for p in self.grid.places], names)

    def join(self, x: Operand, spec: Spec) -> Operand:
        """The array that has these shards, outside; of one that is the same everywhere, the first."""
        if self.grid.remote is None:
            return self._joined(x, spec)
        for axis, names in enumerate(spec if self.grid.is_whole else ()):
            if names:
                x = self.meet(collectives.all_gather, x, names, False, axis=axis, tiled=True)
        return x

    def _joined(self, x: Operand, spec: Spec) -> Operand:
        """The shards, each put in its place of one array."""
        copies, rank = self.operands(x), x.type.rank
        cut = [*spec, *((),) * (rank - len(spec))]
        ranges = [range(self.grid.size(names)) for names in cut]
        parts = {k: copies[self._position(cut, k)] for k in product(*ranges)}
        if len(parts) == 1:
            return copies[0]
        origin = (0,) * rank
        sizes = [[parts[(*origin[:a], k, *origin[a + 1 :])].type.shape[a] for k in ranges[a]] for a in range(rank)]
        starts = [_sums(each) for each in sizes]
        # The sum of the shards' sizes is the size that was cut; who compares shapes can see it then.
        shape = tuple(
            self._whole.get((each[0], len(each)), begin[-1]) if len(set(each)) == 1 else begin[-1]
            for each, begin in zip(sizes, starts, strict=True)
        )
        axes: tuple[int, ...] = ()
        joined = self._alone("", layout.broadcast_to, build.literal(0, x.type.dtype), shape=shape, axes=axes)[0]
        # The first engine's own shard comes last: then all are written in place, in one part of the schedule.
        for k, part in reversed(parts.items()):
            box = tuple(sizes[a][n] for a, n in enumerate(k))
            self._check_box(part.type.shape, box)
            where = tuple(starts[a][n] for a, n in enumerate(k))
            joined = self._alone(
                "", layout.slice_update, joined, part, starts=where, steps=(1,) * rank, sizes=box
            )[0]  # fmt: skip
        return joined

    def _position(self, cut: Sequence[tuple[str, ...]], numbers: Sequence[int]) -> int:
        """The position of the shard that has these numbers along the array's axes."""
        where: dict[str, int] = {}
        for names, number in zip(cut, numbers, strict=True):
            if names:
                sizes = [self.grid.size((n,)) for n in names]
                where.update(zip(names, map(int, np.unravel_index(number, sizes)), strict=True))
        return self.grid.at(where)

    def _check_box(self, shape: tuple[Extent, ...], box: tuple[Extent, ...]) -> None:
        for axis, (found, needed) in enumerate(zip(shape, box, strict=True)):
            if found != needed:
                raise ShapeError(
                    f"shard_map: axis {axis} of a result has sizes known only when it has run, which may differ; "
                    f"a spec that cuts no other axis is needed{at(user_line())}"
                )

    def partial(self) -> set[int]:
        """The ids of the values that may differ."""
        return {
            v.id for first, copies in self._copies.items() if self._axes[first] for v in copies if isinstance(v, Value)
        }
