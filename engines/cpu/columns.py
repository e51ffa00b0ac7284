"""Column kernels: vectors run along the last outer loop, and every lane walks down the row by itself.

For reductions over leading axes, where neighbours in memory belong to different rows of the reduction. In: a Region and
a Variant. Out: LLVM text with the entry ``tile`` (``void (ptr params, i64 begin, i64 end)``), whose items are tiles of
columns. Each column follows the reduction tree of ``tenferro.lowering.tree``: element r of a chunk goes to accumulator
row ``r % lanes``, which stays in cache for a whole tile.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from tenferro.engines.cpu import elements
from tenferro.engines.cpu.body import Position
from tenferro.engines.cpu.column_reduce import MAX_CHUNKS, Accumulators, Rows, parts_of
from tenferro.engines.cpu.column_tile import TileEntry
from tenferro.engines.cpu.elements import Value
from tenferro.engines.cpu.layout import Bound, Layout, StrideClass
from tenferro.engines.cpu.phases import arguments, chunk_length
from tenferro.engines.cpu.short_columns import ShortTile, short_tile
from tenferro.engines.cpu.vector_builder import Vec
from tenferro.engines.cpu.writer import KernelWriter
from tenferro.lowering.region import Apply, Iota, Load, Reduce, Region, Uniform
from tenferro.lowering.tree import in_tree_order, lanes as tree_lanes
from tenferro.tracer.records import dataclass, replace
from tenferro.tracer.scalar.builder import Complex

ACCUMULATOR_BYTES = 1 << 17
"""What the accumulators of a tile may take: a part of the second-level cache. Narrower tiles would keep them in the
first, but then every sweep visits each page of the operands once per tile, and translating addresses costs more
(softmax over axis 0 of 4096 x 2048 float32 on two cores: 9.5 ms at 32 kB, 6.8 ms at 128 kB)."""
MAX_TILE = 1024
RUN = 8
MIN_COLUMNS = 16
SHORT_ROW = 32
"""Elements up to which rows are transposed tile by tile and walked down in lanes, whatever their layout: a vector along
so short a row would be mostly empty, and the row's own overhead (about 50 ns) more than its work."""
MIN_SHORT_ROWS = 1024
"""Short rows that must be transposed are walked down in lanes from this many on: fewer take less than 0.1 ms either
way, and a program that meets short and long rows in turn needs one kernel instead of two."""
FEW_SHORT_ROWS = 3
"""The same for kernels that have run for long enough to be compiled for speed: rows of their own take 50 ns each."""


def across(region: Region, layout: Layout, least: int = MIN_COLUMNS) -> Layout | None:
    """The layout with accesses classified along the last outer loop, where a column kernel can serve it: there are at
    least so many columns."""
    if not region.row_axes or not layout.outer or layout.outer[-1].size < least or layout.row_length < 2:
        return None
    if not all(isinstance(n, Load | Iota | Uniform | Apply | Reduce) for n in region.nodes):
        return None
    if len(layout.row) > 1 and any(isinstance(n, Iota) and n.axis in region.row_axes for n in region.nodes):
        return None  # rows are numbered as a whole
    if any(isinstance(n, Load) and n.windows for n in region.nodes):
        return None
    return replace(layout, accesses=tuple(replace(a, kind=_kind_across(a)) for a in layout.accesses))


def goes_across(region: Region, layout: Layout, columns: Layout) -> bool:
    """Whether ``columns``, which is the layout across, is the better direction for rows of any length."""
    packs = any(a.kind == "packed" for a in columns.accesses)
    if len(layout.row) == 1 and layout.row_length <= SHORT_ROW and (not packs or layout.outer_count >= MIN_SHORT_ROWS):
        return True
    if packs or all(a.kind == "unit" for a in layout.accesses if any(a.row)):
        return False
    longest = MAX_CHUNKS * min(
        (chunk_length(region, k) for k, n in enumerate(region.nodes) if isinstance(n, Reduce)), default=1
    )
    return layout.row_length <= longest


def _kind_across(access: Bound) -> StrideClass:
    stride = access.outer[-1]
    return "uniform" if stride == 0 else "unit" if stride == access.itemsize else "packed"


def tile_columns(kernel: ColumnKernel, columns: int) -> int:
    """Columns of a tile for this many columns: a multiple of the vector."""
    return min(kernel.widest_tile, -(-columns // kernel.step) * kernel.step)


@dataclass
class ColumnKernel(KernelWriter):
    """Writes a column kernel."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.step = self.lanes  # of whose multiples tiles are wide, whatever the text's vectors
        if self.variant.short:
            self.widest_tile = short_tile(self)
            return
        reduces = [k for k, n in enumerate(self.region.nodes) if isinstance(n, Reduce)]
        most = max((self._bytes(k) for k in reduces), default=1)
        # A whole tile's accumulators stay in cache; rows lie tile after tile, for a power of two as
        # pitch would put them all into the same cache sets.
        self.widest_tile = min(MAX_TILE, max(1, ACCUMULATOR_BYTES // most // self.step) * self.step)
        self.narrow()

    def accumulator_rows(self, r: int) -> int:
        """Accumulator rows of a reduction: the tree's lanes where order matters, one for what is exact in any order."""
        dtype = self.reduced(r)
        return tree_lanes(dtype) if in_tree_order(self.kind(r), dtype) else 1

    def _bytes(self, r: int) -> int:
        index = 8 if self.kind(r) in ("argmax", "argmin") else 0
        return self.accumulator_rows(r) * (self.reduced(r).itemsize + index)

    def text(self) -> str:
        entry = ShortTile(self) if self.variant.short else TileFunction(self)
        return self.module.text([entry.text()])


@dataclass(frozen=True, slots=True)
class Stretch:
    """Rows start, start + lanes, … below ``end``, on which nodes are computed for one lane of the tree. ``is_first``:
    they are the chunk's first."""

    nodes: Sequence[int]
    start: str
    end: str
    lane: str
    is_first: str


class TileFunction(TileEntry):
    """The general kernel: any row length, accumulators in memory."""

    def __init__(self, kernel: ColumnKernel) -> None:
        super().__init__(kernel)
        self.pads: dict[int, str] = {}
        self.cells: dict[int, Rows] = {}
        self.row_places: dict[tuple[int, str], str] = {}
        self.row_values: dict[tuple[int, str], Value] = {}

    def allocate(self) -> None:
        code, kernel = self.code, self.kernel
        for a, kind in enumerate(kernel.variant.kinds):
            self.pads[a] = code.alloca(kernel.lanes * 16)
            elements.clear(kernel.module, code, self.pads[a], kernel.lanes * kernel.itemsize(a))
            if kind == "packed":
                self.scratch[a] = code.alloca(SHORT_ROW * kernel.widest_tile * kernel.itemsize(a))
        for k, node in enumerate(self.region.nodes):
            if kernel.outer_level[k] and not isinstance(node, Uniform):
                self.cells[k] = self.rows(node.dtype, 1)

    def tile(self) -> None:
        self._outer_nodes(self.kernel.phases.prologue)
        for p, one in enumerate(self.kernel.phases.passes):
            if one.reduces:
                self._reduce(p)
                self._outer_nodes([k for k in one.outer if not isinstance(self.region.nodes[k], Reduce)])
            else:
                self.each_row(self.length, "0", partial(self._store_row, p))
        self._outer_stores()

    # Loops.

    def each_column(self, body: Callable[[str, str], None]) -> None:
        """``body(column, columns left)`` for every vector of the tile."""

        def turn(v: str, _: list[str]) -> list[str]:
            body(v, self.code.sub(self.width, v))
            return []

        self.code.loop(0, self.width, self.kernel.lanes, [], turn)

    def each_row(self, stop: str, start: str, body: Callable[[str], None]) -> None:
        def turn(r: str, _: list[str]) -> list[str]:
            body(r)
            self.row_places, self.row_values = {}, {}
            return []

        self.code.loop(start, stop, 1, [], turn)

    def _hoist(self, accesses: Sequence[int], r: str) -> None:
        """Addresses, and values that are the same all along the tile, before the loop over columns of row r: code
        generation does not move them out of it."""
        for access in accesses:
            self.row_places[access, r] = place = self._row_address(access, r)
            if self.kernel.variant.kinds[access] == "uniform" and self.kernel.keys[access][0] == "node":
                dtype = self.region.nodes[self.kernel.keys[access][1]].dtype
                scalar = elements.load(self.code, place, 1, dtype)
                self.row_values[access, r] = elements.splat(self.code, scalar, self.kernel.lanes)

    def _accesses(self, nodes: Sequence[int], loads: Mapping[int, int], stores: Sequence[int]) -> list[int]:
        keys = self.kernel.keys
        found = [keys.index(("store", loads[k])) for k in nodes if k in loads]
        found += [keys.index(("node", k)) for k in nodes if k not in loads and isinstance(self.region.nodes[k], Load)]
        return [*dict.fromkeys([*found, *(keys.index(("store", s)) for s in stores)])]

    # Memory.

    def rows(self, dtype: np.dtype[Any], count: int) -> Rows:
        parts = [elements.component(dtype)] * (2 if dtype.kind == "c" else 1)
        return Rows([self.code.alloca(count * self.kernel.widest_tile * d.itemsize) for d in parts], list(parts))

    def _row_place(self, rows: Rows, part: int, row: str, column: str) -> str:
        offset = self.code.add(self.code.mul(row, self.kernel.widest_tile), column)
        return self.code.at(rows.bases[part], self.code.mul(offset, rows.dtypes[part].itemsize))

    def read(self, rows: Rows, row: str, column: str) -> list[Vec]:
        return [
            elements.load(self.code, self._row_place(rows, k, row, column), self.kernel.lanes, d)
            for k, d in enumerate(rows.dtypes)
        ]

    def write(self, rows: Rows, row: str, column: str, values: Sequence[Vec]) -> None:
        for k, (value, d) in enumerate(zip(values, rows.dtypes, strict=True)):
            elements.store(self.code, self._row_place(rows, k, row, column), value, self.kernel.lanes, d)

    def _fetch(self, access: int, r: str, v: str, left: str, dtype: np.dtype[Any]) -> Value:
        """The vector of an access at row r and column v; past the tile's end from a padded copy."""
        code, lanes, itemsize = self.code, self.kernel.lanes, dtype.itemsize
        if (access, r) in self.row_values:
            return self.row_values[access, r]
        place = self.row_places.get((access, r)) or self._row_address(access, r)
        if self.kernel.variant.kinds[access] == "uniform":
            return elements.splat(code, elements.load(code, place, 1, dtype), lanes)
        place = code.at(place, code.mul(v, itemsize))
        if self.kernel.variant.row_rank == 1 and access not in self.scratch:
            self._ask_ahead(code.at(place, self.row_strides[access][0]), lanes * itemsize)
        tail, go = code.new_label("tail"), code.new_label("go")
        before = code.block
        code.branch(code.compare("sge", left, lanes), go, tail)
        code.start(tail)
        self.copy(self.pads[access], place, code.mul(left, itemsize))
        code.jump(go)
        code.start(go)
        chosen = code.emit(f"phi ptr [ {place}, %{before} ], [ {self.pads[access]}, %{tail} ]")
        return elements.load(code, chosen, lanes, dtype)

    def _ask_ahead(self, place: str, size: int) -> None:
        """Ask for the next row, which is wanted when this one's tile has been walked along: of as many rows at a time
        the processor's own prefetchers lose track (x.sum(axis=0) of 64 x 200000 float32: 3.6 ms; so 2.8)."""
        self.kernel.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for line in range(0, size, 128):  # every other line: the processor brings pairs
            self.code.do(f"call void @llvm.prefetch.p0(ptr {self.code.at(place, line)}, i32 0, i32 2, i32 1)")

    def _put(self, access: int, r: str, v: str, left: str, value: Value, dtype: np.dtype[Any]) -> None:
        code, lanes = self.code, self.kernel.lanes
        row = self.row_places.get((access, r)) or self._row_address(access, r)
        place = code.at(row, code.mul(v, dtype.itemsize))
        whole, part, done = code.new_label("whole"), code.new_label("part"), code.new_label("done")
        code.branch(code.compare("sge", left, lanes), whole, part)
        code.start(part)
        elements.store(code, self.pads[access], value, lanes, dtype)
        self.copy(place, self.pads[access], code.mul(left, dtype.itemsize))
        code.jump(done)
        code.start(whole)
        elements.store(code, place, value, lanes, dtype)
        code.jump(done)
        code.start(done)

    def _row_address(self, access: int, r: str) -> str:
        """The first column at row r: row loops decomposed from the row-major number."""
        code, place, rest = self.code, self.pointers[access], r
        strides = self.row_strides[access]
        if access in self.scratch:
            row = code.emit(f"select i1 {code.compare('ne', strides[0], 0)}, i64 {r}, i64 0")
            return code.at(self.scratch[access], code.mul(row, self.kernel.widest_tile * self.kernel.itemsize(access)))
        for j in reversed(range(len(strides))):
            index = rest
            if j:
                extent = code.word("%P", self.kernel.params["r", j])
                index = code.emit(f"urem i64 {rest}, {extent}")
                rest = code.emit(f"udiv i64 {rest}, {extent}")
            place = code.at(place, code.mul(index, strides[j]))
        return place

    # Nodes.

    def _values(self, nodes: Sequence[int], loads: Mapping[int, int], r: str, v: str, left: str) -> dict[int, Value]:
        """Row-level nodes at row r; outer-level arguments come from their rows on the stack."""
        values: dict[int, Value] = {}
        active = elements.lanes_below(self.code, left, self.kernel.lanes) if self.kernel.masked else None
        at = Position(self.scalars, lambda j: r, active, r, column=self.column_index(v))
        wanted = sorted({*nodes, *(a for k in nodes for a in arguments(self.region.nodes[k]))})
        for k in wanted:
            node = self.region.nodes[k]
            if isinstance(node, Uniform):
                values[k] = self.body.uniform(k, node)
            elif self.kernel.outer_level[k] and k not in nodes:
                values[k] = self._cell(k, v)
            elif k in loads:
                values[k] = self._fetch(self.kernel.keys.index(("store", loads[k])), r, v, left, node.dtype)
            elif isinstance(node, Load):
                values[k] = self._fetch(self.kernel.keys.index(("node", k)), r, v, left, node.dtype)
            elif k in nodes:
                values[k] = self.body.node(k, values, {}, at)
        return values

    def _cell(self, k: int, v: str) -> Value:
        parts = self.read(self.cells[k], "0", v)
        return Complex(*parts) if len(parts) == 2 else parts[0]

    def _outer_nodes(self, nodes: Sequence[int]) -> None:
        nodes = [k for k in nodes if not isinstance(self.region.nodes[k], Uniform)]
        if not nodes:
            return

        def column(v: str, left: str) -> None:
            values = self._values(nodes, {}, "0", v, left)
            for k in nodes:
                self.write(self.cells[k], "0", v, parts_of(values[k]))

        self.each_column(column)

    def _store_row(self, p: int, r: str) -> None:
        one = self.kernel.phases.passes[p]
        self._hoist(self._accesses(one.nodes, one.loads, one.stores), r)

        def column(v: str, left: str) -> None:
            nodes = sorted({*one.nodes, *(self.region.stores[s].node for s in one.stores)})
            values = self._values([k for k in nodes if not self.kernel.outer_level[k]], one.loads, r, v, left)
            for s in one.stores:
                k = self.region.stores[s].node
                self._put(self.kernel.keys.index(("store", s)), r, v, left, values[k], self.region.nodes[k].dtype)

        self.each_column(column)

    def _outer_stores(self) -> None:
        if not self.kernel.phases.outer_stores:
            return

        def column(v: str, left: str) -> None:
            for s in self.kernel.phases.outer_stores:
                k = self.region.stores[s].node
                node = self.region.nodes[k]
                value = self.body.uniform(k, node) if isinstance(node, Uniform) else self._cell(k, v)
                self._put(self.kernel.keys.index(("store", s)), "0", v, left, value, node.dtype)

        self.each_column(column)

    # Reductions.

    def _reduce(self, p: int) -> None:
        """Every reduction of pass p, chunk by chunk down the columns."""
        code, one = self.code, self.kernel.phases.passes[p]
        size = chunk_length(self.region, one.reduces[0])
        accumulators = {r: Accumulators(self, r) for r in one.reduces}
        for a in accumulators.values():
            a.begin()

        def one_chunk(c: str, _: list[str]) -> list[str]:
            first = code.mul(c, size)
            stop = code.minimum(code.add(first, size), self.length)
            for a in accumulators.values():
                a.clear(code.sub(stop, first))

            self.sweep(p, one.nodes, first, stop, list(accumulators.values()))
            for a in accumulators.values():
                a.close_chunk(p, c, first, stop)
            return []

        chunks = code.emit(f"udiv i64 {code.add(self.length, size - 1)}, {size}")
        code.loop(0, chunks, 1, [], one_chunk)
        for a in accumulators.values():
            a.end(chunks)

    def sweep(
        self,
        p: int,
        nodes: Sequence[int],
        first: str,
        stop: str,
        accumulators: Sequence[Accumulators],
        save: bool = True,
    ) -> None:
        """Rows [first, stop) of a chunk into accumulators. A vector of columns takes ``RUN`` rows of one lane of the
        tree at a time, with its accumulator in a register: ``RUN`` streams through memory, which the prefetcher
        follows, and one visit of the accumulator for all of them."""
        code = self.code
        lanes = max(a.lanes for a in accumulators)

        def block(b: str, _: list[str]) -> list[str]:
            end = code.minimum(code.add(b, lanes * RUN), stop)

            def lane(j: str, _: list[str]) -> list[str]:
                stretch = Stretch(nodes, code.add(b, j), end, j, code.compare("eq", b, first))
                self.each_column(lambda v, left: self._run(p, stretch, v, left, accumulators, save))
                return []

            code.loop(0, code.minimum(lanes, code.sub(end, b)), 1, [], lane)
            return []

        code.loop(first, stop, lanes * RUN, [], block)

    def _run(self, p: int, rows: Stretch, v: str, left: str, accumulators: Sequence[Accumulators], save: bool) -> None:
        """A stretch of rows of one vector of columns."""
        code, one = self.code, self.kernel.phases.passes[p]
        lanes = max(a.lanes for a in accumulators)
        held = [a.hold(rows.lane, v, rows.is_first) for a in accumulators]
        counts = [len(h) for h in held]

        def row(r: str, texts: list[str]) -> list[str]:
            values = self._values(rows.nodes, one.loads, r, v, left)
            for k, s in one.saves.items() if save else ():
                access = self.kernel.keys.index(("store", s))
                self._put(access, r, v, left, values[k], self.region.nodes[k].dtype)
            result: list[str] = []
            for a, count in zip(accumulators, counts, strict=True):
                mine, texts = texts[:count], texts[count:]
                result += a.step(mine, values, r)
            return result

        after = code.loop(rows.start, rows.end, lanes, [c for h in held for c in h], row)
        for a, count in zip(accumulators, counts, strict=True):
            mine, after = after[:count], after[count:]
            a.release(rows.lane, v, mine)
