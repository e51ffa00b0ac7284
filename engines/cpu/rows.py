"""Row kernels: vectors run along the row, in one of three schedules with one tree.

In: a Region and a Variant. Out: LLVM text with these entries, each ``void (ptr params, i64 begin, i64 end)``:

``row``       items are rows (or, without row axes, blocks of rows); each is finished before the next.
``sweep{p}``  items are chunks of rows: pass p over one chunk leaves its words in the partial buffer.
``close{p}``  items are rows: combine pass p's words, compute the outer level, keep it for the next sweep.

``tiles``     instead of ``row``, where an operand is contiguous along the last outer loop: see ``tiles``.

``sweep`` and ``close`` together are the *split* schedule: one long row on all threads. The variant says which.

A row's context is an array of words on the stack: addresses of each access's first element, outer indices, the row's
number, then two words for each outer-level node.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenferro.engines.cpu import elements
from tenferro.engines.cpu.body import Body, CodeBuilder, Position
from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.elements import Value
from tenferro.engines.cpu.extremes import ARGUMENT
from tenferro.engines.cpu.params import BLOCK, BLOCKS, CELLS_POINTER, LENGTH, PART_POINTER, TILE
from tenferro.engines.cpu.phases import arguments, chunk_length
from tenferro.engines.cpu.records import AHEAD, RecordReader
from tenferro.engines.cpu.reduce import Chunks, words
from tenferro.engines.cpu.sweep import PassFunction, SeekFunction
from tenferro.engines.cpu.tiles import tile_entry, tile_rows
from tenferro.engines.cpu.vector_builder import Vec
from tenferro.engines.cpu.writer import KernelWriter
from tenferro.lowering.region import Gather, Load, Reduce, Uniform
from tenferro.tracer.records import dataclass

MAX_ROW_CHUNKS = 64
"""Chunks of the longest row that the ``row`` schedule takes: their words lie on the stack."""
PACKED_BLOCK = 2048
"""Elements copied at a time for an access that is not contiguous along the row."""


@dataclass
class RowKernel(KernelWriter):
    """Writes a row kernel."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.narrow()
        cells = [k for k in range(len(self.region.nodes)) if self.outer_level[k] and not self._is_uniform(k)]
        base = len(self.keys) + self.variant.outer_rank + 1
        self.cells = {k: base + 2 * i for i, k in enumerate(cells)}
        self.context_words = base + 2 * len(cells)

    def _is_uniform(self, k: int) -> bool:
        return isinstance(self.region.nodes[k], Uniform)

    @property
    def last_reducing(self) -> int:
        """The last pass with reductions; after it every outer-level node is known."""
        return max(p for p, one in enumerate(self.phases.passes) if one.reduces)

    @property
    def cell_words(self) -> int:
        """Words of a row that the split schedule keeps between its launches."""
        return 2 * len(self.cells)

    def part_words(self, p: int) -> int:
        """Words of one chunk of pass p."""
        return sum(words(self.kind(r), self.reduced(r)) for r in self.phases.passes[p].reduces)

    def chunk(self, p: int) -> int:
        """Elements of a chunk of pass p (of a work item, for a pass without reductions)."""
        reduces = self.phases.passes[p].reduces
        return chunk_length(self.region, reduces[0]) if reduces else PACKED_BLOCK

    @property
    def gathered(self) -> list[int]:
        """Gathers of a row of neighbours for each index."""
        kinds = zip(self.keys, self.variant.kinds, strict=True)
        return [k for (what, k), kind in kinds if what == "node" and kind == "gathered"]

    @property
    def tile_rows(self) -> int:
        """Rows of a tile: those of the widest tiled element."""
        return min(tile_rows(self.itemsize(a)) for a, kind in enumerate(self.variant.kinds) if kind == "tiled")

    def text(self) -> str:
        functions = [self._prologue()]
        for p in range(len(self.phases.passes)):
            functions.append(PassFunction(self, p).text())
            functions += [
                SeekFunction(self, p, r).text() for r in self.phases.passes[p].reduces if self.kind(r) in ARGUMENT
            ]
        for p, one in enumerate(self.phases.passes):
            if one.reduces:
                functions.append(self._close(p))
        if self.phases.outer_stores:
            functions.append(self._finish())
        match self.variant.schedule:
            case "tile":
                functions.append(tile_entry(self))
            case "split":
                functions += [self._split_sweep(p) for p in range(len(self.phases.passes))]
                functions += [self._split_close(p) for p, one in enumerate(self.phases.passes) if one.reduces]
            case _:
                functions.append(self._row())
        return self.module.text(functions)

    # Functions of the outer level: scalar code.

    def _outer_nodes(self, code: Code, nodes: Sequence[int], values: dict[int, Value]) -> None:
        """Compute outer-level nodes that are no reductions and put all of ``nodes`` into their cells."""
        builder = CodeBuilder(self.module, 1, False, code)
        body = Body(self.region, self.variant, self.params, code, builder, "%P", self.axis_loops)
        at = self._outer_position(code)
        for k in nodes:
            node = self.region.nodes[k]
            if not isinstance(node, Reduce):
                for a in arguments(node):
                    values.setdefault(a, self._cell_value(code, body, a))
                values[k] = body.node(k, values, self._pointers(code, k), at)
            if k in self.cells:
                elements.store(code, code.at("%ctx", 8 * self.cells[k]), values[k], 1, node.dtype)

    def _outer_position(self, code: Code) -> Position:
        first = len(self.keys)
        scalars = [code.word("%ctx", first + j) for j in range(self.variant.outer_rank)]
        number = code.mul(code.word("%ctx", first + self.variant.outer_rank), code.word("%P", LENGTH))
        return Position(scalars, lambda j: "0", None, number)

    def _cell_value(self, code: Code, body: Body, k: int) -> Value:
        node = self.region.nodes[k]
        if isinstance(node, Uniform):
            return body.uniform(k, node)
        return elements.load(code, code.at("%ctx", 8 * self.cells[k]), 1, node.dtype)

    def _pointers(self, code: Code, k: int) -> dict[int, str]:
        node = self.region.nodes[k]
        if not isinstance(node, Load | Gather):
            return {}
        return {k: code.pointer("%ctx", self.keys.index(("node", k)))}

    def _prologue(self) -> str:
        """Fill a row's context from its number: addresses, outer indices, outer nodes that need no reduction."""
        code = Code()
        rest = "%row"
        scalars: list[str] = []
        for j in reversed(range(self.variant.outer_rank)):
            if j == 0:
                scalars.insert(0, rest)
                continue
            size = code.word("%P", self.params["o", j])
            scalars.insert(0, code.emit(f"urem i64 {rest}, {size}"))
            rest = code.emit(f"udiv i64 {rest}, {size}")
        for a in range(len(self.keys)):
            place = code.pointer("%P", self.params["p", a])
            for j, index in enumerate(scalars):
                place = code.at(place, code.mul(index, code.word("%P", self.params["po", a, j])))
            code.do(f"store ptr {place}, ptr {code.at('%ctx', 8 * a)}, align 8")
        for j, index in enumerate([*scalars, "%row"]):
            code.do(f"store i64 {index}, ptr {code.at('%ctx', 8 * (len(self.keys) + j))}, align 8")
        if self.region.row_axes:
            self._outer_nodes(code, [k for k in self.phases.prologue if not self._is_uniform(k)], {})
        code.do("ret void")
        return code.function("define internal void @prologue(ptr noalias %P, ptr noalias %ctx, i64 %row) nounwind")

    def _close(self, p: int) -> str:
        """From the words of pass p's chunks to its reductions and what follows from them at the outer level."""
        one, code = self.phases.passes[p], Code()
        chunks = Chunks(self.module, code)
        length = code.word("%P", LENGTH)
        values: dict[int, Value] = {}
        base = "%parts"
        for r in one.reduces:
            node = self.region.nodes[r]
            assert isinstance(node, Reduce)
            if node.kind in ARGUMENT:
                values[r] = self._sought(chunks, r, base, length, self.chunk(p))
            else:
                values[r] = chunks.result(node, self.reduced(r), base, "%count", length, self.chunk(p))
            base = code.at(base, code.mul("%count", 8 * words(node.kind, self.reduced(r))))
        self._outer_nodes(code, [k for k in one.outer if not self._is_uniform(k)], values)
        code.do("ret void")
        return code.function(
            f"define internal void @closing{p}(ptr noalias %P, ptr noalias %ctx, ptr noalias %parts, i64 %count) "
            "nounwind"
        )

    def _sought(self, chunks: Chunks, r: int, base: str, length: str, size: int) -> Vec:
        """Where the best value of argument reduction r stands: in the first chunk that has it."""
        code, dtype = chunks.code, self.reduced(r)
        chunk, best = chunks.best_chunk(self.kind(r), dtype, base, "%count")
        first = code.mul(chunk, size)
        stop = code.minimum(code.add(first, size), length)
        value = f"{elements.value_type(1, dtype)} {best.text}"
        return Vec(code.emit(f"call i64 @seek{r}(ptr %P, ptr %ctx, i64 {first}, i64 {stop}, {value})"), elements.INT64)

    def _finish(self) -> str:
        """Write the outer-level stores of a row."""
        code = Code()
        body = Body(
            self.region,
            self.variant,
            self.params,
            code,
            CodeBuilder(self.module, 1, False, code),
            "%P",
            self.axis_loops,
        )
        for k in self.phases.outer_stores:
            node = self.region.stores[k].node
            place = code.pointer("%ctx", self.keys.index(("store", k)))
            elements.store(code, place, self._cell_value(code, body, node), 1, self.region.nodes[node].dtype)
        code.do("ret void")
        return code.function("define internal void @finish(ptr noalias %P, ptr noalias %ctx) nounwind")

    # Entries.

    def _row(self) -> str:
        code = Code()
        context = code.alloca(8 * self.context_words)
        if not self.region.row_axes:
            return self._row_of_blocks(code, context)
        room = max((self.part_words(p) for p in range(len(self.phases.passes))), default=0)
        parts = code.alloca(8 * max(1, room) * MAX_ROW_CHUNKS)
        length = code.word("%P", LENGTH)

        def one_row(row: str, _: list[str]) -> list[str]:
            code.do(f"call void @prologue(ptr %P, ptr {context}, i64 {row})")
            for p, one in enumerate(self.phases.passes):
                self._all_chunks(code, p, context, parts, length)
                if one.reduces:
                    count = self._chunk_count(code, p, length)
                    code.do(f"call void @closing{p}(ptr %P, ptr {context}, ptr {parts}, i64 {count})")
            if self.phases.outer_stores:
                code.do(f"call void @finish(ptr %P, ptr {context})")
            return []

        code.loop("%begin", "%end", 1, [], one_row)
        code.do("ret void")
        return code.function("define void @row(ptr noalias %P, i64 %begin, i64 %end) nounwind")

    def _chunk_count(self, code: Code, p: int, length: str) -> str:
        """Chunks of a row; a row without elements has one, which is empty."""
        size = self.chunk(p)
        return code.maximum(code.emit(f"udiv i64 {code.add(length, size - 1)}, {size}"), 1)

    def _all_chunks(self, code: Code, p: int, context: str, parts: str, length: str) -> None:
        size = self.chunk(p)
        pitch = code.mul(self._chunk_count(code, p, length), 8)

        def one_chunk(c: str, _: list[str]) -> list[str]:
            first = code.mul(c, size)
            stop = code.minimum(code.add(first, size), length)
            part = code.at(parts, code.mul(c, 8))
            code.do(f"call void @pass{p}(ptr %P, ptr {context}, i64 {first}, i64 {stop}, ptr {part}, i64 {pitch})")
            return []

        code.loop(0, self._chunk_count(code, p, length), 1, [], one_chunk)

    def _row_of_blocks(self, code: Code, context: str) -> str:
        """Without row axes an item is a block of a row: ``BLOCKS`` of them to a row."""
        length, block, blocks = (code.word("%P", w) for w in (LENGTH, BLOCK, BLOCKS))
        readers = [RecordReader(self, code, k) for k in self.gathered]
        lines = code.word("%P", TILE) if readers else "0"
        last = code.emit(f"udiv i64 {code.sub('%end', 1)}, {blocks}") if readers else "0"

        def ask(row: str) -> None:
            for reader in readers:
                reader.ask_for(code.minimum(code.add(row, AHEAD), last), lines)

        def item(i: str, _: list[str]) -> list[str]:
            row = code.emit(f"udiv i64 {i}, {blocks}")
            if readers:
                code.when(code.compare("sgt", lines, 0), lambda: ask(row))
            first = code.mul(code.sub(i, code.mul(row, blocks)), block)
            stop = code.minimum(code.add(first, block), length)
            code.do(f"call void @prologue(ptr %P, ptr {context}, i64 {row})")
            code.do(f"call void @pass0(ptr %P, ptr {context}, i64 {first}, i64 {stop}, ptr null, i64 0)")
            return []

        code.loop("%begin", "%end", 1, [], item)
        code.do("ret void")
        return code.function("define void @row(ptr noalias %P, i64 %begin, i64 %end) nounwind")

    def _copy_cells(self, code: Code, context: str, row: str, back: bool) -> None:
        """Between the context and the buffer that keeps outer values from launch to launch."""
        if not self.cells:
            return
        size = 8 * self.cell_words
        kept = code.at(code.pointer("%P", CELLS_POINTER), code.mul(row, size))
        here = code.at(context, 8 * (self.context_words - self.cell_words))
        source, target = (here, kept) if back else (kept, here)
        self.module.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {size}, i1 false)")

    def _split_sweep(self, p: int) -> str:
        code = Code()
        context = code.alloca(8 * self.context_words)
        length = code.word("%P", LENGTH)
        count = self._chunk_count(code, p, length)
        parts, size = code.pointer("%P", PART_POINTER), self.chunk(p)

        def item(i: str, _: list[str]) -> list[str]:
            row = code.emit(f"udiv i64 {i}, {count}")
            c = code.sub(i, code.mul(row, count))
            code.do(f"call void @prologue(ptr %P, ptr {context}, i64 {row})")
            if p:
                self._copy_cells(code, context, row, back=False)
            first = code.mul(c, size)
            stop = code.minimum(code.add(first, size), length)
            start = code.mul(code.mul(row, count), 8 * max(1, self.part_words(p)))
            part = code.at(parts, code.add(start, code.mul(c, 8)))
            pitch = code.mul(count, 8)
            code.do(f"call void @pass{p}(ptr %P, ptr {context}, i64 {first}, i64 {stop}, ptr {part}, i64 {pitch})")
            return []

        code.loop("%begin", "%end", 1, [], item)
        code.do("ret void")
        return code.function(f"define void @sweep{p}(ptr noalias %P, i64 %begin, i64 %end) nounwind")

    def _split_close(self, p: int) -> str:
        code = Code()
        context = code.alloca(8 * self.context_words)
        count = self._chunk_count(code, p, code.word("%P", LENGTH))
        parts = code.pointer("%P", PART_POINTER)

        def item(row: str, _: list[str]) -> list[str]:
            code.do(f"call void @prologue(ptr %P, ptr {context}, i64 {row})")
            if p:
                self._copy_cells(code, context, row, back=False)
            part = code.at(parts, code.mul(code.mul(row, count), 8 * self.part_words(p)))
            code.do(f"call void @closing{p}(ptr %P, ptr {context}, ptr {part}, i64 {count})")
            if p == self.last_reducing and self.phases.outer_stores:
                code.do(f"call void @finish(ptr %P, ptr {context})")
            self._copy_cells(code, context, row, back=True)
            return []

        code.loop("%begin", "%end", 1, [], item)
        code.do("ret void")
        return code.function(f"define void @close{p}(ptr noalias %P, i64 %begin, i64 %end) nounwind")
