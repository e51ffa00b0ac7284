"""Reductions down the columns of a tile: what is kept per column, how a chunk ends, how chunks are put together.

In: vectors of the reduced node, row by row. Out: the reduction's values in the tile's cells. The order is that of
``tenferro.lowering.tree``, column by column.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.engines.cpu import elements
from tenferro.engines.cpu.elements import Value
from tenferro.engines.cpu.reduce import combine, identity_of
from tenferro.engines.cpu.vector_builder import Vec
from tenferro.lowering.region import Reduce
from tenferro.lowering.tree import in_tree_order
from tenferro.tracer import scalar
from tenferro.tracer.records import dataclass
from tenferro.tracer.scalar.builder import Complex

if TYPE_CHECKING:
    from tenferro.engines.cpu.columns import TileFunction

F64, INT64 = np.dtype(np.float64), elements.INT64
MAX_CHUNKS = 16
"""Chunks of the longest column: their results wait on the stack, and one step of the tree puts them together."""


@dataclass(slots=True)
class Rows:
    """Rows of values on the stack, as wide as the widest tile: accumulators, results, means. One part per component."""

    bases: list[str]
    dtypes: list[np.dtype[Any]]


def parts_of(value: Value) -> list[Vec]:
    """The components of a value."""
    return [value.re, value.im] if isinstance(value, Complex) else [value]


class Accumulators:
    """One reduction of a tile: its accumulator rows, and its chunks' results. Argument reductions carry a second row of
    indices; moments carry mean and spread in float64."""

    def __init__(self, tile: TileFunction, r: int) -> None:
        self.tile, self.r = tile, r
        self.code, self.builder = tile.code, tile.builder
        self.kind, self.dtype = tile.kernel.kind(r), tile.kernel.reduced(r)
        node = tile.region.nodes[r]
        assert isinstance(node, Reduce)
        self.arg = node.arg
        self.lanes = tile.kernel.accumulator_rows(r)
        self.rows = tile.rows(self.dtype, self.lanes)
        self.centred = False  # whether squared deviations from the chunk's mean are accumulated
        if self.kind in ("argmax", "argmin"):
            self.rows = Rows([*self.rows.bases, tile.rows(INT64, 1).bases[0]], [*self.rows.dtypes, INT64])
        if self.is_tree:
            self.results = tile.rows(self.dtype, MAX_CHUNKS)
        if self.kind == "moments":
            self.mean, self.spread = tile.rows(F64, 1), tile.rows(F64, 1)
            self.centre = tile.rows(self.dtype, 1)

    @property
    def is_tree(self) -> bool:
        return self.kind != "moments" and in_tree_order(self.kind, self.dtype)

    def _identity(self) -> list[Vec]:
        b = self.builder
        values = parts_of(scalar.constant(b, identity_of(self.kind, self.dtype), self.dtype))
        return [*values, b.const(-1, INT64)] if self.kind in ("argmax", "argmin") else values

    def _fill(self, rows: Rows, stop: str, values: Sequence[Vec], start: str = "0") -> None:
        def row(r: str) -> None:
            self.tile.each_column(lambda v, left: self.tile.write(rows, r, v, values))

        self.tile.each_row(stop, start, row)

    def begin(self) -> None:
        """Before the first chunk: reductions that are exact in any order run through all chunks."""
        if self.kind == "moments":
            zero = [self.builder.const(0.0, F64)]
            self._fill(self.mean, "1", zero)
            self._fill(self.spread, "1", zero)
        elif not self.is_tree:
            self._fill(self.rows, "1", self._identity())

    def clear(self, count: str) -> None:
        """Before a sweep over so many rows: lanes that none of them reaches. The others start in ``hold``."""
        if self.is_tree or self.kind == "moments":
            self._fill(self.rows, str(self.lanes), self._identity(), count)

    def hold(self, lane: str, v: str, is_first: str) -> list[tuple[str, str]]:
        """The accumulator of a lane and a vector of columns, to be carried round: types and values. ``is_first``:
        whether these are the lane's first rows of the chunk."""
        if self.centred:
            (self.middle,) = self.tile.read(self.centre, "0", v)
        types = [elements.value_type(self.tile.kernel.lanes, d) for d in self.rows.dtypes]
        if not self.is_tree and self.kind != "moments":
            return [(t, x.text) for t, x in zip(types, self.tile.read(self.rows, "0", v), strict=True)]
        code, before = self.code, self.code.block
        again, go = code.new_label("again"), code.new_label("go")
        code.branch(is_first, go, again)
        code.start(again)
        held = self.tile.read(self.rows, lane, v)
        code.jump(go)
        code.start(go)
        return [
            (t, code.emit(f"phi {t} [ {x.text}, %{before} ], [ {y.text}, %{again} ]"))
            for t, x, y in zip(types, self._identity(), held, strict=True)
        ]

    def step(self, texts: Sequence[str], values: Mapping[int, Value], r: str) -> list[str]:
        """The carried values after row r."""
        value, kind = parts_of(values[self.arg]), self.kind
        if self.centred:
            deviation = self.builder.sub(value[0], self.middle)
            value = [self.builder.mul(deviation, deviation)]
        if kind in ("argmax", "argmin"):
            value = [*value, Vec(elements.splat_text(self.code, r, self.tile.kernel.lanes, "i64"), INT64)]
        return self._combined([Vec(t, d) for t, d in zip(texts, self.rows.dtypes, strict=True)], value)

    def _combine(self, before: Sequence[Vec], value: Sequence[Vec]) -> list[Vec]:
        kind = "sum" if self.kind == "moments" else self.kind
        return combine(self.builder, kind, self.dtype, before, value)

    def _combined(self, before: Sequence[Vec], value: Sequence[Vec]) -> list[str]:
        return [x.text for x in self._combine(before, value)]

    def release(self, lane: str, v: str, texts: Sequence[str]) -> None:
        """Put what was carried back."""
        row = lane if self.lanes > 1 else "0"
        self.tile.write(self.rows, row, v, [Vec(t, d) for t, d in zip(texts, self.rows.dtypes, strict=True)])

    def _halve(self, rows: Rows, lanes: int, target: Rows, row: str) -> None:
        """Lanes to one, for a vector of columns at a time: they are read once and meet in registers."""
        tile = self.tile
        if tile.kernel.compact:
            self._halve_in_place(rows, lanes, target, row)
            return

        def column(v: str, left: str) -> None:
            def lane(j: int, count: int) -> list[Vec]:
                """What lane j holds when so many are left."""
                if count == lanes:
                    return tile.read(rows, str(j), v)
                return self._combine(lane(j, 2 * count), lane(j + count, 2 * count))

            tile.write(target, row, v, lane(0, 1))

        tile.each_column(column)

    def _halve_in_place(self, rows: Rows, lanes: int, target: Rows, row: str) -> None:
        """The same, half of the lanes into the other half."""
        tile, code = self.tile, self.code

        def column(v: str, left: str) -> None:
            def fold(j: str, half: str) -> None:
                tile.write(rows, j, v, self._combine(tile.read(rows, j, v), tile.read(rows, code.add(j, half), v)))

            code.halving(lanes, fold)
            tile.write(target, row, v, tile.read(rows, "0", v))

        tile.each_column(column)

    def close_chunk(self, p: int, c: str, first: str, stop: str) -> None:
        if self.is_tree:
            self._halve(self.rows, self.lanes, self.results, c)
        elif self.kind == "moments":
            self._close_moments(p, first, stop)

    def _close_moments(self, p: int, first: str, stop: str) -> None:
        """Mean of the chunk, then squared deviations from it, then Chan, Golub and LeVeque (1979), eq. 2.1."""
        tile, b, code = self.tile, self.builder, self.code
        self._halve(self.rows, self.lanes, self.rows, "0")
        here = code.sub(stop, first)
        count = b.convert(Vec(elements.splat_text(code, here, tile.kernel.lanes, "i64"), INT64), self.dtype)

        def centre(v: str, left: str) -> None:
            (total,) = tile.read(self.rows, "0", v)
            tile.write(self.centre, "0", v, [b.div(total, count)])

        tile.each_column(centre)
        self.clear(here)

        self.centred = True
        tile.sweep(p, tile.kernel.phases.passes[p].nodes, first, stop, [self], save=False)
        self.centred = False
        self._halve(self.rows, self.lanes, self.rows, "0")
        tile.each_column(lambda v, left: self._merge_moments(v, first, here, stop))

    def _merge_moments(self, v: str, before: str, here: str, after: str) -> None:
        tile, b = self.tile, self.builder

        def number(x: str) -> Vec:
            return b.convert(Vec(elements.splat_text(self.code, x, tile.kernel.lanes, "i64"), INT64), F64)

        def wide(x: Vec) -> Vec:
            return b.convert(x, F64)

        n_a, n_b, n = number(before), number(here), number(after)
        (mean,), (spread,) = tile.read(self.mean, "0", v), tile.read(self.spread, "0", v)
        centre, own = wide(tile.read(self.centre, "0", v)[0]), wide(tile.read(self.rows, "0", v)[0])
        delta = b.sub(centre, mean)
        moved = b.add(mean, b.div(b.mul(delta, n_b), n))
        between = b.div(b.mul(b.mul(b.mul(delta, delta), n_a), n_b), n)
        is_first = b.eq(n_a, b.const(0.0, F64))
        tile.write(self.mean, "0", v, [b.select(is_first, centre, moved)])
        tile.write(self.spread, "0", v, [b.select(is_first, own, b.add(b.add(spread, own), between))])

    def end(self, chunks: str) -> None:
        """The result into the reduction's cell. Chunks of a tree are one more level, of one chunk to a lane: what the
        lanes start from, and hold where there is none, changes nothing. Nor does the level where there is one chunk."""
        tile, b, cell = self.tile, self.builder, self.tile.cells[self.r]
        rows = self.results if self.is_tree else self.rows
        if self.is_tree:

            def level() -> None:
                self._fill(self.results, str(MAX_CHUNKS), self._identity(), chunks)
                self._halve(self.results, MAX_CHUNKS, self.results, "0")

            self.code.when(self.code.compare("sgt", chunks, 1), level)
        node = tile.region.nodes[self.r]

        def column(v: str, left: str) -> None:
            if self.kind == "moments":
                (spread,) = tile.read(self.spread, "0", v)
                tile.write(cell, "0", v, [b.convert(spread, node.dtype)])
                return
            values = tile.read(rows, "0", v)
            tile.write(cell, "0", v, values[1:] if self.kind in ("argmax", "argmin") else values)

        tile.each_column(column)
