"""Column kernels for a short row of one length: no accumulators in memory, the whole row of a vector of columns in
registers.

In: a column kernel whose variant says ``short``. Out: the text of ``@tile``. For every vector of columns the rows are
loaded, reduced in exactly the tree's order (lanes that no element reaches change nothing, so they are left out), what
follows is computed and stored, in one stretch of code without loops. The rows of an operand are either apart in memory,
or the fields of records that are neighbours along the columns (``x.sum(axis=-1)`` of an image), which shuffles take
apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.engines.cpu import elements
from tenferro.engines.cpu.body import Position
from tenferro.engines.cpu.column_reduce import parts_of
from tenferro.engines.cpu.column_tile import TileEntry
from tenferro.engines.cpu.elements import Value
from tenferro.engines.cpu.interleave import Records, load_fields, store_fields
from tenferro.engines.cpu.layout import Bound, Layout, StrideClass
from tenferro.engines.cpu.phases import arguments, cost
from tenferro.engines.cpu.reduce import beats, combine
from tenferro.engines.cpu.vector_builder import Vec
from tenferro.lowering.region import Apply, Iota, Load, Reduce, Region, Uniform
from tenferro.lowering.tree import in_tree_order, lanes as tree_lanes
from tenferro.tracer.op import Pointwise
from tenferro.tracer.scalar.builder import Complex

if TYPE_CHECKING:
    from tenferro.engines.cpu.columns import ColumnKernel

LONGEST, LONGEST_RECORD = 64, 40
"""Elements of the longest row that gets a kernel of its own, and of the longest whose elements are neighbours in
memory: such a row fills vectors by itself."""
MOST_OPERATIONS = 1300
"""Native operations of such a kernel, all rows together, on vectors of a few registers: compilation must stay short,
and the code in cache."""
FIELD_OPERATIONS = 6
"""Instructions that take a field of 8 bytes out of records or put it there."""
TILE = 4096
SCRATCH_BYTES = 1 << 15
"""What the transposed rows of a tile may take: half of the nearest cache."""
SLACK = 64
"""Bytes past the end of a pad that may be read."""
FEW_STREAMS = 8
"""Rows up to which the processor's own prefetchers keep up (with a little help)."""


def short_layout(region: Region, layout: Layout, vector_bits: int) -> Layout | None:
    """The layout for a kernel of this row length on a machine of this width, where that is worth having. ``layout`` has
    accesses classified along the last outer loop."""
    n = layout.row_length
    if len(layout.row) != 1 or n > LONGEST:
        return None
    accesses = tuple(replace(a, kind=_kind(a, n)) for a in layout.accesses)
    if n > LONGEST_RECORD and any(a.kind in ("packed", "interleaved", "gapped") for a in accesses):
        return None
    fields = sum(max(1, a.itemsize // 8) for a in accesses if a.kind in ("interleaved", "gapped"))
    operations = sum(cost(x) * (2 if x.dtype.kind == "c" else 1) for x in region.nodes)
    if n * (operations + FIELD_OPERATIONS * fields) > MOST_OPERATIONS * min(1.0, vector_bits / 256):
        return None
    return replace(layout, accesses=accesses)


def _kind(access: Bound, n: int) -> StrideClass:
    """Records of n neighbours each: *interleaved* without gaps between them, *gapped* with some."""
    if access.kind != "packed" or access.row != (access.itemsize,):
        return access.kind
    size = n * access.itemsize
    return "interleaved" if access.outer[-1] == size else "gapped" if access.outer[-1] > size else "packed"


def short_tile(kernel: ColumnKernel) -> int:
    """Columns of a tile."""
    sizes = [kernel.itemsize(a) for a in transposed(kernel)]
    if not sizes:
        return TILE
    return max(1, SCRATCH_BYTES // (sum(sizes) * kernel.variant.short) // kernel.lanes) * kernel.lanes


def transposed(kernel: ColumnKernel) -> list[int]:
    """The accesses that go through scratch memory: those whose rows are no records."""
    return [a for a, kind in enumerate(kernel.variant.kinds) if kind == "packed"]


class ShortTile(TileEntry):
    """Writes ``@tile``. A tile is walked twice: all whole vectors where they lie, then what is left as one vector on
    padded copies, by the same code."""

    def __init__(self, kernel: ColumnKernel) -> None:
        super().__init__(kernel)
        self.n = kernel.variant.short
        self.pads: dict[int, str] = {}
        self.bases: dict[int, str] = {}  # access → address of the stretch's first column in row 0
        self.offsets: dict[int, list[str]] = {}  # access → bytes from row 0 to every row
        self.strides: dict[int, str] = {}  # access that shuffles take apart → bytes from record to record
        self.known: dict[tuple[int, int], Value] = {}  # (node, row) → value on this vector; row −1 for the outer level
        self.pending: dict[int, list[Value]] = {}  # interleaved store → its rows so far
        self.moved: list[int] = []
        self.streams = 0  # rows of all loads that are apart in memory
        self.column = self.left = ""
        self.before: list[str] = []  # columns of the tile before this stretch, where some node counts them

    def allocate(self) -> None:
        code, kernel = self.code, self.kernel
        self.moved = transposed(kernel)
        loads = [a for a, kind in enumerate(kernel.variant.kinds) if kind == "unit" and kernel.keys[a][0] == "node"]
        self.streams = sum(self._rows_of(a) for a in loads)
        for a, kind in enumerate(kernel.variant.kinds):
            size = kernel.itemsize(a)
            if a in self.moved:
                self.scratch[a] = code.alloca(self.n * kernel.widest_tile * size)
            elif kind != "uniform":
                room = SLACK if self._is_recorded(a) else 0
                self.pads[a] = code.alloca(self._rows_of(a) * kernel.lanes * size + room)

    def _rows_of(self, access: int) -> int:
        """Rows of an access: one at the outer level."""
        kind, k = self.kernel.keys[access]
        node = k if kind == "node" else self.region.stores[k].node
        return 1 if self.kernel.outer_level[node] else self.n

    def _is_recorded(self, access: int) -> bool:
        """Whether shuffles take an access apart."""
        return self.kernel.variant.kinds[access] in ("interleaved", "gapped") and access not in self.moved

    def _records(self, access: int) -> Records:
        """A complex number is two elements of a record."""
        kind, k = self.kernel.keys[access]
        dtype = self.region.nodes[k if kind == "node" else self.region.stores[k].node].dtype
        part = elements.component(dtype).itemsize
        has_gaps = self.kernel.variant.kinds[access] == "gapped"
        count = self.n * dtype.itemsize // part
        return Records(count, part, self.kernel.lanes, self.kernel.module.permutes, has_gaps)

    # The two stretches of a tile.

    def tile(self) -> None:
        code, lanes = self.code, self.kernel.lanes
        # A last record that is read past its end must lie in a pad.
        past = any(self._is_recorded(a) and self._records(a).reads_past for a in range(len(self.kernel.keys)))
        whole = code.emit(f"and i64 {code.sub(self.width, int(past))}, {-lanes}")
        rest = code.sub(self.width, whole)
        some = code.compare("sgt", rest, 0)
        stretches = code.emit(f"select i1 {some}, i64 2, i64 1")
        moving = [a for a, kind in enumerate(self.kernel.variant.kinds) if kind != "uniform"]
        pitches = {a: self._pitch(a) for a in range(len(self.kernel.keys))}
        starts = {a: self.scratch.get(a, self.pointers[a]) for a in range(len(self.kernel.keys))}
        counts = [whole] if self.counts else []
        carried = [("i64", whole), ("i64", self.width), *(("i64", "0") for _ in counts)]
        carried += [pair for a in moving for pair in (("ptr", starts[a]), ("i64", pitches[a]))]

        def stretch(s: str, values: list[str]) -> list[str]:
            stop, end = values[:2]
            self.before, values = values[2 : 2 + len(counts)], values[2 + len(counts) :]
            self.bases, current = dict(starts), dict(pitches)
            for a, base, pitch in zip(moving, values[::2], values[1::2], strict=True):
                self.bases[a], current[a] = base, pitch
            self.offsets = {
                a: [code.mul(r, pitch) for r in range(self._rows_of(a))]
                for a, pitch in current.items()
                if not self._is_recorded(a)
            }
            self.strides = {a: self._stride(a, pitch) for a, pitch in current.items() if self._is_recorded(a)}

            def vector(v: str, _: list[str]) -> list[str]:
                self._vector(v, code.sub(end, v))
                return []

            code.loop(0, stop, lanes, [], vector)
            is_first = code.compare("eq", s, 0)
            code.when(code.emit(f"and i1 {is_first}, {some}"), lambda: self._pad("node", starts, pitches, whole, rest))
            code.when(code.emit(f"xor i1 {is_first}, true"), lambda: self._pad("store", starts, pitches, whole, rest))
            following = [str(lanes), rest, *counts]
            for a in moving:
                size = self.kernel.itemsize(a)
                if a in self.scratch:
                    following += [code.at(starts[a], code.mul(whole, size)), pitches[a]]
                else:
                    following += [self.pads[a], str((self.n if self._is_recorded(a) else lanes) * size)]
            return following

        code.loop(0, stretches, 1, carried, stretch)

    def _stride(self, access: int, pitch: str) -> str:
        """Without gaps it is known now."""
        is_known = self.kernel.variant.kinds[access] == "interleaved"
        return str(self.n * self.kernel.itemsize(access)) if is_known else pitch

    def _pitch(self, access: int) -> str:
        """Bytes from a row to the next; of what shuffles take apart, from a record to the next."""
        code, stride = self.code, self.row_strides[access][0]
        if self._is_recorded(access):
            return code.word("%P", self.kernel.params["po", access, self.kernel.variant.outer_rank - 1])
        if access not in self.scratch:
            return stride
        still = code.compare("eq", stride, 0)
        return code.emit(f"select i1 {still}, i64 0, i64 {self.kernel.widest_tile * self.kernel.itemsize(access)}")

    def _pad(self, kind: str, starts: dict[int, str], pitches: dict[int, str], whole: str, rest: str) -> None:
        """Copy what is left of loads into the pads, or of stores out of them."""
        code, lanes = self.code, self.kernel.lanes
        for a, pad in self.pads.items():
            if self.kernel.keys[a][0] != kind:
                continue
            # Lines to copy, the bytes of each, and how far they are apart in the pad.
            size, lines, step = self.kernel.itemsize(a), str(self._rows_of(a)), lanes * self.kernel.itemsize(a)
            count, real = code.mul(rest, size), code.at(starts[a], code.mul(whole, size))
            if kind == "node":
                elements.clear(self.kernel.module, code, pad, self._rows_of(a) * step)
            if self._is_recorded(a):
                lines, step, count = rest, self.n * size, str(self.n * size)
                real = code.at(starts[a], code.mul(whole, pitches[a]))

            def line(
                r: str, _: list[str], pad: str = pad, real: str = real, step: int = step, count: str = count, a: int = a
            ) -> list[str]:
                near, far = code.at(pad, code.mul(r, step)), code.at(real, code.mul(r, pitches[a]))
                target, source = (near, far) if kind == "node" else (far, near)
                self.copy(target, source, count)
                return []

            if self.kernel.variant.kinds[a] == "interleaved":
                line("0", [], count=code.mul(rest, self.n * size))
            else:
                code.loop(0, lines, 1, [], line)

    # One vector of columns.

    def _vector(self, v: str, left: str) -> None:
        self.column, self.left = v, left
        self.known, self.pending = {}, {}
        for s in self.kernel.phases.outer_stores:
            self._put(s, 0)
        for s in self.kernel.phases.passes[-1].stores:
            for r in range(self.n):
                self._put(s, r)

    def value(self, k: int, r: int) -> Value:
        """Node k at row r, computed when it is first asked for."""
        node = self.region.nodes[k]
        if self.kernel.outer_level[k] or isinstance(node, Uniform):
            r = -1
        found = self.known.get((k, r))
        if found is None:
            found = self.known[k, r] = self._computed(k, r)
        return found

    def _computed(self, k: int, r: int) -> Value:
        match node := self.region.nodes[k]:
            case Uniform():
                return self.body.uniform(k, node)
            case Reduce():
                return self._reduced(k, node)
            case Load():
                return self._fetch(k, max(r, 0), node.dtype)
            case Apply():
                values = {a: self.value(a, r) for a in arguments(node)}
                checks = isinstance(node.op.form, Pointwise) and node.op.form.check is not None
                active = elements.lanes_below(self.code, self.left, self.kernel.lanes) if checks else None
                return self.body.node(k, values, {}, self._position(r, active))
            case Iota():
                return self.body.node(k, {}, {}, self._position(r, None))
            case _:
                raise AssertionError(f"v{k} is no part of a column kernel")

    def _position(self, r: int, active: str | None) -> Position:
        row = str(max(r, 0))
        column = self.column_index(self.code.add(self.before[0], self.column)) if self.before else None
        return Position(self.scalars, lambda j: row, active, row, column=column)

    # Memory.

    def _place(self, access: int, r: int, size: int) -> str:
        row = self.code.at(self.bases[access], self.offsets[access][r])
        return self.code.at(row, self.code.mul(self.column, size))

    def _fetch(self, k: int, r: int, dtype: np.dtype[Any]) -> Value:
        code, lanes = self.code, self.kernel.lanes
        access = self.kernel.keys.index(("node", k))
        if self.kernel.variant.kinds[access] == "uniform":
            place = code.at(self.bases[access], self.offsets[access][r])
            return elements.splat(code, elements.load(code, place, 1, dtype), lanes)
        if not self._is_recorded(access):
            place = self._place(access, r, dtype.itemsize)
            if access in self.pads:
                self._ask_ahead(place, lanes * dtype.itemsize)
            return elements.load(code, place, lanes, dtype)
        rows = self._split(access, dtype)
        for row, value in enumerate(rows):
            self.known[k, row] = value
        return rows[r]

    def _ask_ahead(self, place: str, size: int) -> None:
        """Ask for what the row holds further on. A few rows come into the nearest cache in time; of many rows the
        processor's own prefetchers lose track (x.sum(axis=0) of 32 x 200000 float64: 12 GB/s without, 34 GB/s with)."""
        ahead, level = (512, 3) if self.streams <= FEW_STREAMS else (4096, 2)
        self.kernel.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for line in range(0, size, 64):
            there = self.code.at(place, ahead + line)
            self.code.do(f"call void @llvm.prefetch.p0(ptr {there}, i32 0, i32 {level}, i32 1)")

    def _split(self, access: int, dtype: np.dtype[Any]) -> list[Value]:
        """The rows of an access that shuffles take apart."""
        code, stride = self.code, self.strides[access]
        place = code.at(self.bases[access], code.mul(self.column, stride))
        found = [
            self._from_bits(x, elements.component(dtype))
            for x in load_fields(code, place, stride, self._records(access))
        ]
        return [Complex(*pair) for pair in zip(found[::2], found[1::2], strict=True)] if dtype.kind == "c" else found

    def _from_bits(self, text: str, part: np.dtype[Any]) -> Vec:
        code, lanes = self.code, self.kernel.lanes
        kind = elements.vector(lanes, f"i{8 * part.itemsize}")
        if part == elements.BOOL:
            return Vec(code.emit(f"icmp ne {kind} {text}, zeroinitializer"), part)
        if part.kind != "f":
            return Vec(text, part)
        return Vec(code.emit(f"bitcast {kind} {text} to {elements.value_type(lanes, part)}"), part)

    def _to_bits(self, value: Vec) -> str:
        code, lanes, part = self.code, self.kernel.lanes, value.dtype
        kind = elements.vector(lanes, f"i{8 * part.itemsize}")
        if part == elements.BOOL:
            return code.emit(f"zext {elements.value_type(lanes, part)} {value.text} to {kind}")
        if part.kind != "f":
            return value.text
        return code.emit(f"bitcast {elements.value_type(lanes, part)} {value.text} to {kind}")

    def _put(self, s: int, r: int) -> None:
        """Store s at row r; the rows of an interleaved one go out together, with the last."""
        code, lanes, k = self.code, self.kernel.lanes, self.region.stores[s].node
        dtype, access = self.region.nodes[k].dtype, self.kernel.keys.index(("store", s))
        value = self.value(k, r)
        if not self._is_recorded(access):
            elements.store(code, self._place(access, r, dtype.itemsize), value, lanes, dtype)
            return
        rows = self.pending.setdefault(access, [])
        rows.append(value)
        if len(rows) == self.n:
            texts = [self._to_bits(x) for row in rows for x in parts_of(row)]
            place = code.at(self.bases[access], code.mul(self.column, self.strides[access]))
            store_fields(code, place, self.strides[access], texts, self._records(access))

    # Reductions.

    def _reduced(self, k: int, node: Reduce) -> Value:
        dtype, b = self.region.nodes[node.arg].dtype, self.builder
        if node.kind == "moments":
            return self._moments(node, dtype)
        if node.kind in ("argmax", "argmin"):
            index = np.dtype(f"i{dtype.itemsize}")

            def indexed(r: int) -> list[Vec]:
                return [self.value(node.arg, r), b.const(r, index)]

            def better(x: Sequence[Vec], y: Sequence[Vec]) -> list[Vec]:
                """All of x comes before all of y, so that y has to beat it."""
                wins = beats(b, node.kind, y[0], x[0])
                return [b.select(wins, q, p) for p, q in zip(x, y, strict=True)]

            return b.convert(_in_pairs(indexed, better, 0, self.n)[1], node.dtype)

        def element(r: int) -> list[Vec]:
            return parts_of(self.value(node.arg, r))

        if in_tree_order(node.kind, dtype):
            parts = self._tree(node.kind, dtype, element)
        else:
            parts = _in_pairs(element, lambda x, y: combine(b, node.kind, dtype, x, y), 0, self.n)
        return Complex(*parts) if dtype.kind == "c" else parts[0]

    def _tree(self, kind: str, dtype: np.dtype[Any], element: Callable[[int], list[Vec]]) -> list[Vec]:
        """The one chunk of a row along the tree, depth first: as many values wait as the tree has levels."""
        b, width = self.builder, tree_lanes(dtype)

        def lane(j: int, lanes: int) -> list[Vec]:
            """What lane j holds when so many are left."""
            if lanes < width:
                low = lane(j, 2 * lanes)
                return low if j + lanes >= self.n else combine(b, kind, dtype, low, lane(j + lanes, 2 * lanes))
            found = element(j)
            for r in range(j + width, self.n, width):
                found = combine(b, kind, dtype, found, element(r))
            return found

        total = lane(0, 1)
        if kind != "sum":
            return total
        # Lanes start from +0.0: that shows only where all elements are -0.0, and then as well at the end.
        return [b.add(x, b.const(0.0, x.dtype)) for x in total]

    def _moments(self, node: Reduce, dtype: np.dtype[Any]) -> Value:
        b = self.builder
        (total,) = self._tree("sum", dtype, lambda r: [self.value(node.arg, r)])
        mean = b.div(total, b.const(self.n, dtype))

        def squared(r: int) -> Sequence[Vec]:
            deviation = b.sub(self.value(node.arg, r), mean)
            return [b.mul(deviation, deviation)]

        (spread,) = self._tree("sum", dtype, lambda r: list(squared(r)))
        return b.convert(spread, node.dtype)


def _in_pairs(
    element: Callable[[int], list[Vec]], join: Callable[[list[Vec], list[Vec]], list[Vec]], first: int, stop: int
) -> list[Vec]:
    """Neighbours in pairs, and pairs of those: for what is exact in any order; the first of equals stays first."""
    if stop - first == 1:
        return element(first)
    middle = first + (1 << (stop - first - 1).bit_length() - 1)
    return join(_in_pairs(element, join, first, middle), _in_pairs(element, join, middle, stop))
