"""One pass over a stretch of a row: the loop that does the work.

``@pass{p}(P, ctx, e0, e1, part, pitch)`` computes pass p on elements [e0, e1) of the row that ``ctx`` describes, and
leaves the words of its reductions at ``part``, ``part + pitch``, …

The loop has one body. Its last turn, when fewer elements are left than a vector holds, reads from and writes to padded
copies on the stack, so that body and tail are the same instructions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tenferro.engines.cpu import elements
from tenferro.engines.cpu.body import Body, CodeBuilder, Position
from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.elements import Value
from tenferro.engines.cpu.extremes import place_of
from tenferro.engines.cpu.pack import copy_function, padding_function
from tenferro.engines.cpu.params import LENGTH
from tenferro.engines.cpu.phases import arguments, cost
from tenferro.engines.cpu.reduce import Accumulator, store_word
from tenferro.engines.cpu.stored import StoredAccumulator
from tenferro.engines.cpu.vector_builder import Vec
from tenferro.engines.cpu.writer import is_checked, needs_mask
from tenferro.lowering.region import Apply, Gather, Load, Reduce, Uniform
from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.engines.cpu.rows import RowKernel

F64 = np.dtype(np.float64)
PEELED = 24
"""Native operations of a turn up to which whole vectors have a loop of their own, without masks and tests for the last
one: of a maximum they are half of the work. Not in compact texts: both loops take LLVM twice as long."""
FEW_STREAMS, AHEAD = 16, 1024
"""Arrays read at a time up to which the processor's own prefetchers keep up, and bytes to ask for ahead of more."""


@dataclass(slots=True)
class Stream:
    """An access whose vectors are neighbours in memory: the row itself or its packed copy. ``pad`` is stack memory for
    the last turn; a packed copy has room past its end and needs none."""

    base: str  # address of element e0
    itemsize: int
    pad: str | None


class PassFunction:
    """Writes ``@pass{p}``."""

    def __init__(self, kernel: RowKernel, p: int) -> None:
        self.kernel = kernel
        self.one = kernel.phases.passes[p]
        self.p = p
        self.region = kernel.region
        self.code = Code()
        self.builder = CodeBuilder(kernel.module, kernel.lanes, kernel.outline, self.code)
        self.body = Body(kernel.region, kernel.variant, kernel.params, self.code, self.builder, "%P", kernel.axis_loops)
        self.masked = bool(self.one.reduces) or needs_mask(self.region.nodes[k] for k in self.one.nodes)
        self.scalars: list[str] = []
        self.number = ""  # of the row's first element, where something may be reported of one
        self.fixed: dict[int, Value] = {}  # values that do not change along the row
        self.streams: dict[int, Stream] = {}  # access → stream
        self.unpacks: list[tuple[int, str]] = []  # stores to copy back: (access, scratch)

    def text(self) -> str:
        code, length = self.code, self._begin()
        reduces = list(self.one.reduces)
        accumulators = {r: self._accumulator(r) for r in reduces}
        finals = self._sweep(self.one.nodes, accumulators, length, stores=True)
        part_words: dict[int, list[Vec]] = {r: a.finish(finals[r]) for r, a in accumulators.items()}
        moments = [r for r in reduces if self._node(r).kind == "moments"]
        if moments:
            part_words.update(self._second_moments(moments, part_words, length))
        self._write_words(reduces, part_words)
        for access, scratch in self.unpacks:
            self._copy_packed(access, scratch, length, pack=False)
        code.do("ret void")
        return code.function(
            f"define internal void @pass{self.p}(ptr noalias %P, ptr noalias %ctx, i64 %e0, i64 %e1, "
            "ptr noalias %part, i64 %pitch) nounwind"
        )

    def _begin(self) -> str:
        """What stands before the loop; the stretch's length."""
        code = self.code
        length = code.sub("%e1", "%e0")
        first = len(self.kernel.keys)
        self.scalars = [code.word("%ctx", first + j) for j in range(self.kernel.variant.outer_rank)]
        if any(is_checked(self.region.nodes[k]) for k in self.one.nodes):
            row_number = code.word("%ctx", first + self.kernel.variant.outer_rank)
            self.number = code.mul(row_number, code.word("%P", LENGTH))
        self._open_streams(length)
        self._fix_values()
        return length

    def _node(self, r: int) -> Reduce:
        node = self.region.nodes[r]
        assert isinstance(node, Reduce)
        return node

    # What the loop reads and writes.

    def _open_streams(self, length: str) -> None:
        for k in self.one.nodes:
            if isinstance(self.region.nodes[k], Load | Gather) and k not in self.one.loads:
                self._open(self.kernel.keys.index(("node", k)), load=True, length=length)
        written = {*self.one.stores, *self.one.saves.values()}
        for s in sorted(written | {*self.one.loads.values()}):
            access = self.kernel.keys.index(("store", s))
            self._open(access, load=s in self.one.loads.values(), length=length)
            if s in written and self.kernel.variant.kinds[access] == "packed":
                self.unpacks.append((access, self.streams[access].base))

    def _open(self, access: int, load: bool, length: str) -> None:
        kind, itemsize = self.kernel.variant.kinds[access], self.kernel.itemsize(access)
        if kind in ("masked", "windowed", "gathered") or (kind == "uniform" and self.kernel.keys[access][0] == "node"):
            return
        base = self.code.pointer("%ctx", access)
        lanes = self.kernel.lanes
        if kind == "tiled":
            self.streams[access] = Stream(base, itemsize, None)  # the tile's scratch row, which starts at e0
            return
        if kind in ("unit", "uniform"):
            # A store that stands still along a row of one element is as good as contiguous.
            pad = self.code.alloca(lanes * itemsize)
            self.streams[access] = Stream(self.code.at(base, self.code.mul("%e0", itemsize)), itemsize, pad)
            return
        scratch = self.code.alloca((self.kernel.chunk(self.p) + lanes) * itemsize)
        self.streams[access] = Stream(scratch, itemsize, None)
        if load:
            self._copy_packed(access, scratch, length, pack=True)
            self._intrinsics()
            end = self.code.at(scratch, self.code.mul(length, itemsize))
            elements.clear(self.kernel.module, self.code, end, lanes * itemsize)

    def _copy_packed(self, access: int, scratch: str, length: str, pack: bool) -> None:
        code, rank = self.code, self.kernel.variant.row_rank
        name = copy_function(self.kernel.module, self.kernel.itemsize(access), rank, pack)
        base = code.pointer("%ctx", access)
        sizes = code.at("%P", 8 * self.kernel.params["r", 0])
        strides = code.at("%P", 8 * self.kernel.params["pr", access, 0])
        code.do(f"call void {name}(ptr {scratch}, ptr {base}, ptr {sizes}, ptr {strides}, i64 %e0, i64 {length})")

    def _fix_values(self) -> None:
        """Values that are the same all along the row, computed before the loop; but for those that an earlier pass has
        kept, perhaps where their operands were."""
        wanted = set(self.one.nodes)
        for k in self.one.nodes:
            wanted |= set(arguments(self.region.nodes[k]))
        for r in self.one.reduces:
            wanted |= set(arguments(self.region.nodes[r]))
        for s in self.one.stores:
            wanted.add(self.region.stores[s].node)
        for k in sorted(wanted):
            node = self.region.nodes[k]
            if isinstance(node, Uniform):
                self.fixed[k] = self.body.uniform(k, node)
            elif self.kernel.outer_level[k]:
                cell = self.code.at("%ctx", 8 * self.kernel.cells[k])
                scalar = elements.load(self.code, cell, 1, node.dtype)
                self.fixed[k] = self._everywhere(scalar)
            elif isinstance(node, Load) and not node.windows and self._kind_of(k) == "uniform":
                scalar = elements.load(self.code, self.code.pointer("%ctx", self._access_of(k)), 1, node.dtype)
                self.fixed[k] = self._everywhere(scalar)
            elif isinstance(node, Apply) and k not in self.one.loads and self._stands_still(node):
                self.fixed[k] = self.body.node(k, self.fixed, {}, Position(self.scalars, lambda j: "0", None, "0"))

    def _everywhere(self, scalar: Value) -> Value:
        if self.kernel.compact and self.kernel.lanes > 1:
            return elements.spread(self.kernel.module, self.code, scalar, self.kernel.lanes)
        return elements.splat(self.code, scalar, self.kernel.lanes)

    def _stands_still(self, node: Apply) -> bool:
        """Whether an operation has the same value all along the row, and nothing to report."""
        return not is_checked(node) and all(a in self.fixed for a in node.args)

    def _access_of(self, k: int) -> int:
        return self.kernel.keys.index(("node", k))

    def _kind_of(self, k: int) -> str:
        return self.kernel.variant.kinds[self._access_of(k)]

    # The loop.

    def _accumulator(self, r: int) -> Accumulator:
        node = self._node(r)
        kind = "sum" if node.kind == "moments" else node.kind
        made = StoredAccumulator if self.kernel.compact else Accumulator
        return made(kind, self.region.nodes[node.arg].dtype, self.builder)

    def _sweep(
        self,
        nodes: Sequence[int],
        accumulators: Mapping[int, Accumulator],
        length: str,
        stores: bool,
        centres: Mapping[int, Value] | None = None,
    ) -> dict[int, list[str]]:
        """The loop over the stretch; returns what each reduction carried to the end. With ``centres`` the squared
        deviations from them are accumulated instead of the values."""
        code, lanes = self.code, self.kernel.lanes
        carried = {r: a.carried() for r, a in accumulators.items()}
        flat = [c for group in carried.values() for c in group]
        writes = {*self.one.stores, *self.one.saves.values()} if stores else set()
        used = self._used_streams(nodes, writes)

        def turn(i: str, accs: list[str], is_whole: bool = False) -> list[str]:
            left = code.sub(length, i)
            if centres is not None:
                self._ask_ahead(i, used, self.kernel.chunk(self.p))
            elif sum(used.values()) > FEW_STREAMS:
                self._ask_ahead(i, {a: True for a, is_read in used.items() if is_read}, AHEAD // self._narrowest(used))
            places = self._straight(i, used) if is_whole else self._places(i, left, used)
            active = elements.lanes_below(code, left, lanes) if self.masked and not is_whole else None
            values = self._values(nodes, places, self._position(i, active))
            if stores:
                self._store_all(values, places)
            result: list[str] = []
            mine = list(accs)
            for r, a in accumulators.items():
                held, mine = mine[: len(carried[r])], mine[len(carried[r]) :]
                value = values[self._node(r).arg]
                if centres is not None:
                    deviation = self.builder.sub(value, centres[r])
                    value = self.builder.mul(deviation, deviation)
                result += a.step(held, value, active, i)
            if not is_whole:
                self._copy_out(i, left, writes)
            return result

        if accumulators and not self.kernel.compact and sum(cost(self.region.nodes[k]) for k in nodes) <= PEELED:
            whole = code.emit(f"and i64 {length}, {-lanes}")
            after = code.loop(0, whole, lanes, flat, partial(turn, is_whole=True))
            flat = [(kind, value) for (kind, _), value in zip(flat, after, strict=True)]
            after = code.loop(whole, length, lanes, flat, turn)
        else:
            after = code.loop(0, length, lanes, flat, turn)
        finals: dict[int, list[str]] = {}
        for r, group in carried.items():
            finals[r], after = after[: len(group)], after[len(group) :]
        return finals

    def _narrowest(self, used: Mapping[int, bool]) -> int:
        return min(self.streams[a].itemsize for a in used)

    def _ask_ahead(self, i: str, used: Mapping[int, bool], distance: int) -> None:
        """Ask for what lies so many elements ahead. For a second sweep that is the next chunk, while this one lies in
        the first-level cache: memory would stand still meanwhile (variance of 16M float32 on two cores: 2.9 ms without,
        1.75 ms with). For many streams at once, which the processor's own prefetchers lose track of, a little."""
        code = self.code
        self.kernel.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        for access in used:
            stream = self.streams[access]
            if stream.pad is None:
                continue
            ahead = code.at(stream.base, code.mul(code.add(i, distance), stream.itemsize))
            for line in range(0, self.kernel.lanes * stream.itemsize, 64):
                code.do(f"call void @llvm.prefetch.p0(ptr {code.at(ahead, line)}, i32 0, i32 3, i32 1)")

    def _used_streams(self, nodes: Sequence[int], writes: set[int]) -> dict[int, bool]:
        """Access → whether the loop reads it."""
        used: dict[int, bool] = {}
        for k in nodes:
            if k in self.one.loads:
                used[self.kernel.keys.index(("store", self.one.loads[k]))] = True
            elif isinstance(self.region.nodes[k], Load | Gather) and self._access_of(k) in self.streams:
                used[self._access_of(k)] = True
        for s in writes:
            used.setdefault(self.kernel.keys.index(("store", s)), False)
        return used

    def _places(self, i: str, left: str, used: Mapping[int, bool]) -> dict[int, str]:
        """The address of this turn's vector in every stream; on the last turn, padded copies of what is left."""
        code, lanes = self.code, self.kernel.lanes
        straight = self._straight(i, used)
        padded = [a for a in used if self.streams[a].pad is not None]
        if not padded:
            return straight
        tail, go = code.new_label("tail"), code.new_label("go")
        before = code.block
        code.branch(code.compare("sge", left, lanes), go, tail)
        code.start(tail)
        for a in padded:
            if used[a]:
                self._fill_pad(self.streams[a], straight[a], left)
        code.jump(go)
        code.start(go)
        for a in padded:
            straight[a] = code.emit(f"phi ptr [ {straight[a]}, %{before} ], [ {self.streams[a].pad}, %{tail} ]")
        return straight

    def _straight(self, i: str, used: Mapping[int, bool]) -> dict[int, str]:
        """The address of a whole vector in every stream."""
        code = self.code
        return {a: code.at(self.streams[a].base, code.mul(i, self.streams[a].itemsize)) for a in used}

    def _fill_pad(self, stream: Stream, source: str, left: str) -> None:
        assert stream.pad is not None
        name = padding_function(self.kernel.module, self.kernel.lanes * stream.itemsize)
        self.code.do(f"call void {name}(ptr {stream.pad}, ptr {source}, i64 {self.code.mul(left, stream.itemsize)})")

    def _intrinsics(self) -> None:
        self.kernel.module.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")

    def _copy_out(self, i: str, left: str, writes: set[int]) -> None:
        code = self.code
        accesses = [self.kernel.keys.index(("store", s)) for s in writes]
        padded = [self.streams[a] for a in accesses if self.streams[a].pad is not None]
        if not padded:
            return
        self._intrinsics()

        def copy() -> None:
            for stream in padded:
                target = code.at(stream.base, code.mul(i, stream.itemsize))
                count = code.mul(left, stream.itemsize)
                code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {stream.pad}, i64 {count}, i1 false)")

        code.when(code.compare("slt", left, self.kernel.lanes), copy)

    def _lane_index(self, i: str) -> str:
        """Row index per lane."""
        code, lanes = self.code, self.kernel.lanes
        start = elements.splat_text(code, code.add("%e0", i), lanes, "i64")
        kind = elements.vector(lanes, "i64")
        return code.emit(f"add {kind} {start}, {elements.lane_numbers(lanes)}")

    def _position(self, i: str, active: str | None) -> Position:
        first = self.code.add("%e0", i)
        number = self.code.add(self.number, first) if self.number else "0"
        return Position(self.scalars, lambda j: self._row_index(i, j), active, number, first)

    def _row_index(self, i: str, j: int) -> str:
        """Index along row loop j per lane. Exact in float64 for indices below 2**53: a rounded quotient reaches the
        next integer only if 1/size < 2**-53 * quotient, that is beyond them."""
        code, lanes, rank = self.code, self.kernel.lanes, self.kernel.variant.row_rank
        index = self._lane_index(i)
        if rank == 1:
            return index
        kind, real = elements.vector(lanes, "i64"), elements.vector(lanes, "double")
        for inner in reversed(range(j, rank)):
            size = elements.splat_text(code, code.word("%P", self.kernel.params["r", inner]), lanes, "i64")
            quotient = code.emit(
                f"fdiv {real} {code.emit(f'sitofp {kind} {index} to {real}')}, "
                f"{code.emit(f'sitofp {kind} {size} to {real}')}"
            )
            whole = code.emit(f"fptosi {real} {quotient} to {kind}")
            if inner == j:
                return code.emit(f"sub {kind} {index}, {code.emit(f'mul {kind} {whole}, {size}')}")
            index = whole
        raise AssertionError("row loop out of range")

    def _values(self, nodes: Sequence[int], places: Mapping[int, str], at: Position) -> dict[int, Value]:
        values: dict[int, Value] = dict(self.fixed)
        keys = self.kernel.keys
        for k in nodes:
            if k in values:
                continue
            node = self.region.nodes[k]
            if k in self.one.loads:
                place = places[keys.index(("store", self.one.loads[k]))]
                values[k] = elements.load(self.code, place, self.kernel.lanes, node.dtype)
                continue
            pointers: dict[int, str] = {}
            if isinstance(node, Load | Gather):
                access = self._access_of(k)
                pointers[k] = places.get(access) or self.code.pointer("%ctx", access)
            values[k] = self.body.node(k, values, pointers, at)
        return values

    def _store_all(self, values: Mapping[int, Value], places: Mapping[int, str]) -> None:
        targets = [(s, self.region.stores[s].node) for s in self.one.stores]
        targets += [(s, k) for k, s in self.one.saves.items()]
        for s, k in targets:
            place = places[self.kernel.keys.index(("store", s))]
            elements.store(self.code, place, values[k], self.kernel.lanes, self.region.nodes[k].dtype)

    # Reductions that need a second look at the chunk, and the words.

    def _second_moments(
        self, moments: Sequence[int], sums: Mapping[int, list[Vec]], length: str
    ) -> dict[int, list[Vec]]:
        """Per reduction the words (mean, squared deviations) of the chunk, as float64."""
        code = self.code
        scalar = CodeBuilder(self.kernel.module, 1, False, code)
        centres: dict[int, Value] = {}
        for r in moments:
            dtype = self.region.nodes[self._node(r).arg].dtype
            count = Vec(code.emit(f"sitofp i64 {length} to {elements.memory_type(dtype)}"), dtype)
            centres[r] = scalar.div(sums[r][0], count)
        spread = {r: elements.splat(code, c, self.kernel.lanes) for r, c in centres.items()}
        accumulators = {r: self._accumulator(r) for r in moments}
        needed = self._needed_for(moments)
        finals = self._sweep(needed, accumulators, length, stores=False, centres=spread)
        found: dict[int, list[Vec]] = {}
        for r in moments:
            pair = [centres[r], accumulators[r].finish(finals[r])[0]]
            found[r] = [v if v.dtype == F64 else scalar.convert(v, F64) for v in pair]
        return found

    def _needed_for(self, reduces: Sequence[int]) -> list[int]:
        stack = [a for r in reduces for a in arguments(self.region.nodes[r])]
        found: set[int] = set()
        while stack:
            k = stack.pop()
            if k in found or k not in self.one.nodes:
                continue
            found.add(k)
            if k not in self.one.loads:
                stack += arguments(self.region.nodes[k])
        return sorted(found)

    def _write_words(self, reduces: Sequence[int], part_words: Mapping[int, list[Vec]]) -> None:
        place = "%part"
        for r in reduces:
            for word in part_words[r]:
                store_word(self.code, word, place)
                place = self.code.at(place, "%pitch")


class SeekFunction(PassFunction):
    """Writes ``@seek{r}(P, ctx, e0, e1, best)``: the first element of the stretch where what argument reduction r
    reduces is ``best``, as its number in the row. Its values are computed again, of one chunk of a row."""

    def __init__(self, kernel: RowKernel, p: int, r: int) -> None:
        super().__init__(kernel, p)
        self.r = r
        needed = self._needed_for([r])
        loads = {n: s for n, s in self.one.loads.items() if n in needed}
        self.one = replace(self.one, nodes=tuple(needed), reduces=(r,), stores=(), saves={}, loads=loads)

    def text(self) -> str:
        code, lanes, arg = self.code, self.kernel.lanes, self._node(self.r).arg
        dtype, length = self.region.nodes[arg].dtype, self._begin()
        best = elements.splat(code, Vec("%best", dtype), lanes)
        used = self._used_streams(self.one.nodes, set())
        place = "-1"
        for is_nan in (False, True) if dtype.kind == "f" else (False,):  # a NaN is not found by comparing

            def turn(i: str, _: list[str], is_nan: bool = is_nan) -> list[str]:
                left = code.sub(length, i)
                active = elements.lanes_below(code, left, lanes) if self.masked else None
                values = self._values(self.one.nodes, self._places(i, left, used), self._position(i, active))
                # Lanes past the end are behind the first place, which there is.
                return [place_of(self.builder, values[arg], best, code.add(i, "%e0"), is_nan)]

            stop = (
                length if not is_nan else code.emit(f"select i1 {code.compare('slt', place, 0)}, i64 {length}, i64 0")
            )
            (place,) = code.loop(0, stop, lanes, [("i64", place)], turn, lambda p: code.compare("slt", p[0], 0))
        code.do(f"ret i64 {place}")
        return code.function(
            f"define internal i64 @seek{self.r}(ptr noalias %P, ptr noalias %ctx, i64 %e0, i64 %e1, "
            f"{elements.value_type(1, dtype)} %best) nounwind"
        )
