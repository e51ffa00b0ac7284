"""Matrix products: a dtype in, the text of kernels that multiply strided matrices out, one for every size.

Each element of a result is one chain of fused multiply-adds along the contracted axis, from the first index to the
last, or the tree of ``dots``; which of both depends on sizes and strides alone. So its bits depend neither on threads
nor on tiles nor on the vector's width. Entries (``void (ptr params, i64 begin, i64 end)``, items are tiles of results):

``packed``: both operands are copied block by block into the order in which registers are filled (the scheme of Goto and
van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
``direct{lanes}x{rows}``: small products and few rows, read where they lie; the right operand's rows are contiguous, or
``lanes`` is 1.
``dots``: few columns; both operands are contiguous along the contracted axis.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np

from tenferro.engines.cpu.code import Code

# Words of the parameters.
(
    LATCH, A, B, C, ROWS, COLUMNS, DEPTH, A_ROW, A_DEPTH, B_DEPTH, B_COLUMN, C_ROW, A_BATCH, B_BATCH, C_BATCH,
    ROW_TILES, COLUMN_TILES,
) = range(17)  # fmt: skip
PARAMS = 17
HEADER = "(ptr %P, i64 %begin, i64 %end) nounwind"
BLOCK_DEPTH = 256
BLOCK_ROWS = 96
"""A multiple of every ``Registers.rows``."""
BLOCK_COLUMN_BYTES = 1024
DIRECT_FORMS = ((1, 8), (4, 4))
"""(rows, vectors) of a tile of ``direct``: eight or sixteen chains hide the latency of a multiply-add."""
NARROW = 4
"""Lanes of ``direct`` where a row is shorter than the machine's vector."""
DOT_CHAINS = 4


@dataclass(frozen=True, slots=True)
class Registers:
    """How ``packed`` fills the registers: ``rows`` x 2 vectors of ``lanes`` elements."""

    rows: int
    lanes: int

    @property
    def columns(self) -> int:
        return 2 * self.lanes


def registers(dtype: np.dtype[np.generic], vector_bits: int) -> Registers:
    """Of a machine: 24 of 32 registers of 512 bits, 12 of 16 of 256."""
    lanes = vector_bits // 8 // dtype.itemsize
    return Registers({512: 12, 256: 6}.get(vector_bits, 6), lanes)


def is_served(dtype: np.dtype[np.generic]) -> bool:
    """Whether there are kernels for the dtype: float32, float64 and integers."""
    return dtype.kind in "iu" or (dtype.kind == "f" and dtype.itemsize >= 4)


def block_columns(dtype: np.dtype[np.generic]) -> int:
    """Columns of a tile of ``packed``."""
    return BLOCK_COLUMN_BYTES // dtype.itemsize


def dot_lanes(dtype: np.dtype[np.generic]) -> int:
    """Lanes of the tree of ``dots``: the same on every machine."""
    return 128 // dtype.itemsize


class ProductText:
    """Writes the module of one dtype for machines with vectors of so many bits."""

    def __init__(self, dtype: np.dtype[np.generic], vector_bits: int) -> None:
        self.size = dtype.itemsize
        self.is_float = dtype.kind == "f"
        self.scalar = {("f", 4): "float", ("f", 8): "double"}.get((dtype.kind, self.size), f"i{8 * self.size}")
        self.dtype = dtype
        self.registers = registers(dtype, vector_bits)
        self.used: set[str] = set()

    def text(self) -> str:
        """The module."""
        functions = [self._micro(), self._pack_a(), self._pack_b(), self._copy_tile(), self._packed(), self._dots()]
        for lanes in sorted({self.registers.lanes, NARROW, 1}):
            functions += [self._direct(lanes, rows, vectors) for rows, vectors in DIRECT_FORMS]
        declared = ["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"]
        declared += [f"declare {t} @llvm.fma.{_mangled(t)}({t}, {t}, {t})" for t in sorted(self.used)]
        return "\n".join([*declared, *functions])

    # -- elements ------------------------------------------------------------------------------------------------------

    def vector(self, lanes: int) -> str:
        return self.scalar if lanes == 1 else f"<{lanes} x {self.scalar}>"

    def multiply_add(self, code: Code, a: str, b: str, c: str, kind: str) -> str:
        if self.is_float:
            self.used.add(kind)
            return code.emit(f"call {kind} @llvm.fma.{_mangled(kind)}({kind} {a}, {kind} {b}, {kind} {c})")
        return code.emit(f"add {kind} {code.emit(f'mul {kind} {a}, {b}')}, {c}")

    def add(self, code: Code, a: str, b: str, kind: str) -> str:
        return code.emit(f"{'fadd' if self.is_float else 'add'} {kind} {a}, {b}")

    def load(self, code: Code, kind: str, pointer: str, align: int = 0) -> str:
        return code.emit(f"load {kind}, ptr {pointer}, align {align or self.size}")

    def store(self, code: Code, kind: str, value: str, pointer: str) -> None:
        code.do(f"store {kind} {value}, ptr {pointer}, align {self.size}")

    def splat(self, code: Code, value: str, lanes: int) -> str:
        if lanes == 1:
            return value
        kind = self.vector(lanes)
        first = code.emit(f"insertelement {kind} poison, {self.scalar} {value}, i32 0")
        return code.emit(f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def zero(self, lanes: int) -> str:
        return "zeroinitializer" if lanes > 1 else "0.0" if self.is_float else "0"

    # -- packed --------------------------------------------------------------------------------------------------------

    def _micro(self) -> str:
        """A register tile over ``depth`` steps: starts from zero or from what stands in C."""
        code, form = Code(), self.registers
        kind = self.vector(form.lanes)
        cells = [(r, v) for r in range(form.rows) for v in range(2)]
        pointers = [code.at(code.at("%c", code.mul(r, "%row")), v * form.lanes * self.size) for r, v in cells]
        fresh, old, start = code.new_label("fresh"), code.new_label("old"), code.new_label("start")
        code.branch("%first", fresh, old)
        code.start(old)
        loaded = [self.load(code, kind, p) for p in pointers]
        code.jump(start)
        code.start(fresh)
        code.jump(start)
        code.start(start)
        zero = self.zero(form.lanes)
        begun = [code.emit(f"phi {kind} [ {zero}, %{fresh} ], [ {x}, %{old} ]") for x in loaded]

        def body(k: str, sums: list[str]) -> Sequence[str]:
            at_b = code.at("%b", code.mul(k, form.columns * self.size))
            right = [self.load(code, kind, code.at(at_b, v * form.lanes * self.size), 64) for v in range(2)]
            at_a = code.at("%a", code.mul(k, form.rows * self.size))
            left = [self.load(code, self.scalar, code.at(at_a, r * self.size)) for r in range(form.rows)]
            spread = [self.splat(code, x, form.lanes) for x in left]
            return [
                self.multiply_add(code, spread[r], right[v], s, kind) for (r, v), s in zip(cells, sums, strict=True)
            ]

        sums = code.loop(0, "%depth", 1, [(kind, x) for x in begun], body)
        for value, pointer in zip(sums, pointers, strict=True):
            self.store(code, kind, value, pointer)
        code.do("ret void")
        return code.function(
            "define internal void @micro(ptr %a, ptr %b, ptr %c, i64 %row, i64 %depth, i1 %first) noinline nounwind"
        )

    def _pack_a(self) -> str:
        """Rows ``first`` to ``stop`` in panels, each step by step; rows beyond the last repeat it."""
        code, form = Code(), self.registers
        last = code.sub("%rows", 1)

        def panel(q: str, _: list[str]) -> Sequence[str]:
            sources = []
            for r in range(form.rows):
                row = code.minimum(code.add(code.add("%first", q), r), last)
                sources.append(code.at("%a", code.mul(row, "%row")))
            target = code.at("%to", code.mul(code.mul(q, "%depth"), self.size))

            def step(k: str, _: list[str]) -> Sequence[str]:
                offset, place = code.mul(k, "%step"), code.at(target, code.mul(k, form.rows * self.size))
                for r, source in enumerate(sources):
                    value = self.load(code, self.scalar, code.at(source, offset))
                    self.store(code, self.scalar, value, code.at(place, r * self.size))
                return []

            code.loop(0, "%depth", 1, [], step)
            return []

        code.loop(0, "%count", form.rows, [], panel)
        code.do("ret void")
        return code.function(
            "define internal void @pack_a(ptr noalias %to, ptr noalias %a, i64 %row, i64 %step, i64 %first, "
            "i64 %count, i64 %rows, i64 %depth) noinline nounwind"
        )

    def _pack_b(self) -> str:
        """Columns ``first`` on in panels, each step by step; columns beyond the last repeat it."""
        code, form = Code(), self.registers
        last = code.sub("%columns", 1)
        kind = self.vector(form.lanes)
        is_unit = code.compare("eq", "%column", self.size)

        def panel(p: str, _: list[str]) -> Sequence[str]:
            start = code.add("%first", p)
            target = code.at("%to", code.mul(code.mul(p, "%depth"), self.size))
            is_whole = code.compare("sle", code.add(start, form.columns), "%columns")
            fast = code.emit(f"and i1 {is_unit}, {is_whole}")
            quick, slow, done = code.new_label("quick"), code.new_label("slow"), code.new_label("packed")
            code.branch(fast, quick, slow)
            code.start(quick)
            source = code.at("%b", code.mul(start, self.size))

            def whole(k: str, _: list[str]) -> Sequence[str]:
                here, place = (
                    code.at(source, code.mul(k, "%step")),
                    code.at(target, code.mul(k, form.columns * self.size)),
                )
                for v in range(2):
                    offset = v * form.lanes * self.size
                    value = self.load(code, kind, code.at(here, offset))
                    self.store(code, kind, value, code.at(place, offset))
                return []

            code.loop(0, "%depth", 1, [], whole)
            code.jump(done)
            code.start(slow)

            def column(c: str, _: list[str]) -> Sequence[str]:
                there = code.minimum(code.add(start, c), last)
                source, place = code.at("%b", code.mul(there, "%column")), code.at(target, code.mul(c, self.size))

                def step(k: str, _: list[str]) -> Sequence[str]:
                    value = self.load(code, self.scalar, code.at(source, code.mul(k, "%step")))
                    self.store(code, self.scalar, value, code.at(place, code.mul(k, form.columns * self.size)))
                    return []

                code.loop(0, "%depth", 1, [], step)
                return []

            code.loop(0, form.columns, 1, [], column)
            code.jump(done)
            code.start(done)
            return []

        code.loop(0, "%count", form.columns, [], panel)
        code.do("ret void")
        return code.function(
            "define internal void @pack_b(ptr noalias %to, ptr noalias %b, i64 %step, i64 %column, i64 %first, "
            "i64 %count, i64 %columns, i64 %depth) noinline nounwind"
        )

    def _copy_tile(self) -> str:
        """The part of a register tile that exists, between C and the stack."""
        code = Code()

        def row(r: str, _: list[str]) -> Sequence[str]:
            to, source = code.at("%to", code.mul(r, "%to_row")), code.at("%from", code.mul(r, "%from_row"))
            code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {length}, i1 false)")
            return []

        length = code.mul("%columns", self.size)
        code.loop(0, "%rows", 1, [], row)
        code.do("ret void")
        return code.function(
            "define internal void @copy_tile(ptr noalias %to, i64 %to_row, ptr noalias %from, i64 %from_row, "
            "i64 %rows, i64 %columns) noinline nounwind"
        )

    def _packed(self) -> str:
        code, form = Code(), self.registers
        columns = block_columns(self.dtype)
        left = code.alloca(BLOCK_ROWS * BLOCK_DEPTH * self.size)
        right = code.alloca(columns * BLOCK_DEPTH * self.size)
        spare = code.alloca(form.rows * form.columns * self.size)
        w = partial(code.word, "%P")
        rows_all, columns_all, depth_all = w(ROWS), w(COLUMNS), w(DEPTH)

        def item(index: str, _: list[str]) -> Sequence[str]:
            batch, i, j = self._place(code, index)
            a, b, c = self._matrices(code, batch)
            row, column = code.mul(i, BLOCK_ROWS), code.mul(j, columns)
            count_rows = code.minimum(code.sub(rows_all, row), BLOCK_ROWS)
            count_columns = code.minimum(code.sub(columns_all, column), columns)

            def block(k: str, _: list[str]) -> Sequence[str]:
                depth = code.minimum(code.sub(depth_all, k), BLOCK_DEPTH)
                from_a, from_b = code.at(a, code.mul(k, w(A_DEPTH))), code.at(b, code.mul(k, w(B_DEPTH)))
                code.do(
                    f"call void @pack_a(ptr {left}, ptr {from_a}, i64 {w(A_ROW)}, i64 {w(A_DEPTH)}, i64 {row}, "
                    f"i64 {count_rows}, i64 {rows_all}, i64 {depth})"
                )
                code.do(
                    f"call void @pack_b(ptr {right}, ptr {from_b}, i64 {w(B_DEPTH)}, i64 {w(B_COLUMN)}, i64 {column}, "
                    f"i64 {count_columns}, i64 {columns_all}, i64 {depth})"
                )
                first = code.compare("eq", k, 0)

                def tiles(p: str, _: list[str]) -> Sequence[str]:
                    def tile(q: str, _: list[str]) -> Sequence[str]:
                        at = code.at(c, code.mul(code.add(row, q), w(C_ROW)))
                        at = code.at(at, code.mul(code.add(column, p), self.size))
                        packed = [
                            code.at(x, code.mul(code.mul(t, depth), self.size)) for x, t in ((left, q), (right, p))
                        ]
                        extent = (
                            code.minimum(code.sub(count_rows, q), form.rows),
                            code.minimum(code.sub(count_columns, p), form.columns),
                        )
                        self._tile(code, packed, at, depth, first, extent, spare)
                        return []

                    code.loop(0, count_rows, form.rows, [], tile)
                    return []

                code.loop(0, count_columns, form.columns, [], tiles)
                return []

            code.loop(0, depth_all, BLOCK_DEPTH, [], block)
            return []

        code.loop("%begin", "%end", 1, [], item)
        code.do("ret void")
        return code.function(f"define void @packed{HEADER}")

    def _tile(
        self, code: Code, packed: Sequence[str], at: str, depth: str, first: str, extent: tuple[str, str], spare: str
    ) -> None:
        """One register tile: straight into C where it is whole, else by way of the stack."""
        form = self.registers
        rows, columns = extent
        c_row = code.word("%P", C_ROW)
        whole_rows, whole_columns = code.compare("eq", rows, form.rows), code.compare("eq", columns, form.columns)
        whole = code.emit(f"and i1 {whole_rows}, {whole_columns}")
        straight, around, done = code.new_label("straight"), code.new_label("around"), code.new_label("stored")

        def run(c: str, row: str | int) -> None:
            code.do(f"call void @micro(ptr {packed[0]}, ptr {packed[1]}, ptr {c}, i64 {row}, i64 {depth}, i1 {first})")

        code.branch(whole, straight, around)
        code.start(straight)
        run(at, c_row)
        code.jump(done)
        code.start(around)
        spare_row = form.columns * self.size
        extents = f"i64 {rows}, i64 {columns}"
        again = code.emit(f"xor i1 {first}, true")
        code.when(
            again,
            lambda: code.do(f"call void @copy_tile(ptr {spare}, i64 {spare_row}, ptr {at}, i64 {c_row}, {extents})"),
        )
        run(spare, spare_row)
        code.do(f"call void @copy_tile(ptr {at}, i64 {c_row}, ptr {spare}, i64 {spare_row}, {extents})")
        code.jump(done)
        code.start(done)

    # -- direct --------------------------------------------------------------------------------------------------------

    def _place(self, code: Code, index: str) -> tuple[str, str, str]:
        """The matrix of the batch, the tile's row and column of an item."""
        row_tiles, column_tiles = code.word("%P", ROW_TILES), code.word("%P", COLUMN_TILES)
        tiles = code.mul(row_tiles, column_tiles)
        batch = code.emit(f"udiv i64 {index}, {tiles}")
        rest = code.sub(index, code.mul(batch, tiles))
        i = code.emit(f"udiv i64 {rest}, {column_tiles}")
        return batch, i, code.sub(rest, code.mul(i, column_tiles))

    def _matrices(self, code: Code, batch: str) -> tuple[str, str, str]:
        a, b, c = (
            code.at(code.pointer("%P", base), code.mul(batch, code.word("%P", stride)))
            for base, stride in ((A, A_BATCH), (B, B_BATCH), (C, C_BATCH))
        )
        return a, b, c

    def _direct(self, lanes: int, rows: int, vectors: int) -> str:
        """Tiles at the end reach back over their neighbours: the same chains give the same bits twice."""
        code = Code()
        kind = self.vector(lanes)
        w = partial(code.word, "%P")
        depth, a_step, b_step, column = w(DEPTH), w(A_DEPTH), w(B_DEPTH), w(B_COLUMN)
        last_row, last_column = code.sub(w(ROWS), 1), code.sub(w(COLUMNS), lanes)
        cells = [(r, v) for r in range(rows) for v in range(vectors)]

        def item(index: str, _: list[str]) -> Sequence[str]:
            batch, i, j = self._place(code, index)
            a, b, c = self._matrices(code, batch)
            tall = [code.minimum(code.add(code.mul(i, rows), r), last_row) for r in range(rows)]
            start = code.mul(j, vectors * lanes)
            wide = [code.minimum(code.add(start, v * lanes), last_column) for v in range(vectors)]
            left = [code.at(a, code.mul(r, w(A_ROW))) for r in tall]
            right = [code.at(b, code.mul(n, column)) for n in wide]

            def step(k: str, sums: list[str]) -> Sequence[str]:
                at_a, at_b = code.mul(k, a_step), code.mul(k, b_step)
                ys = [self.load(code, kind, code.at(p, at_b)) for p in right]
                xs = [self.splat(code, self.load(code, self.scalar, code.at(p, at_a)), lanes) for p in left]
                return [self.multiply_add(code, xs[r], ys[v], s, kind) for (r, v), s in zip(cells, sums, strict=True)]

            sums = code.loop(0, depth, 1, [(kind, self.zero(lanes))] * len(cells), step)
            for (r, v), value in zip(cells, sums, strict=True):
                at = code.at(code.at(c, code.mul(tall[r], w(C_ROW))), code.mul(wide[v], self.size))
                self.store(code, kind, value, at)
            return []

        code.loop("%begin", "%end", 1, [], item)
        code.do("ret void")
        return code.function(f"define void @direct{lanes}x{rows}{HEADER}")

    # -- dots ----------------------------------------------------------------------------------------------------------

    def _dots(self) -> str:
        """Four chains of vectors, then pairs of chains, then halves of the lanes; what is left at the end is filled up
        with zeros."""
        code, lanes = Code(), dot_lanes(self.dtype)
        kind, width = self.vector(lanes), lanes * self.size
        spare = [code.alloca(width) for _ in range(2)]
        w = partial(code.word, "%P")
        depth = w(DEPTH)
        whole = code.mul(code.emit(f"udiv i64 {depth}, {DOT_CHAINS * lanes}"), DOT_CHAINS * lanes)
        most = code.mul(code.emit(f"udiv i64 {depth}, {lanes}"), lanes)

        def item(index: str, _: list[str]) -> Sequence[str]:
            batch, i, j = self._place(code, index)
            a, b, c = self._matrices(code, batch)
            x, y = code.at(a, code.mul(i, w(A_ROW))), code.at(b, code.mul(j, w(B_COLUMN)))

            def chained(k: str, sums: list[str], chains: int) -> Sequence[str]:
                offset = code.mul(k, self.size)
                at = [[code.at(code.at(p, offset), n * width) for n in range(chains)] for p in (x, y)]
                loaded = [[self.load(code, kind, p) for p in side] for side in at]
                return [self.multiply_add(code, *pair, s, kind) for *pair, s in zip(*loaded, sums, strict=True)]

            four: Callable[[str, list[str]], Sequence[str]] = partial(chained, chains=DOT_CHAINS)
            sums = code.loop(0, whole, DOT_CHAINS * lanes, [(kind, self.zero(lanes))] * DOT_CHAINS, four)
            one: Callable[[str, list[str]], Sequence[str]] = partial(chained, chains=1)
            (sums[0],) = code.loop(whole, most, lanes, [(kind, sums[0])], one)
            rest = code.mul(code.sub(depth, most), self.size)
            for p, side in zip(spare, (x, y), strict=True):
                code.do(f"store {kind} zeroinitializer, ptr {p}, align 64")
                source = code.at(side, code.mul(most, self.size))
                code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {p}, ptr {source}, i64 {rest}, i1 false)")
            sums[1] = self.multiply_add(code, *[self.load(code, kind, p) for p in spare], sums[1], kind)
            total = self.add(code, self.add(code, sums[0], sums[1], kind), self.add(code, sums[2], sums[3], kind), kind)
            at = code.at(code.at(c, code.mul(i, w(C_ROW))), code.mul(j, self.size))
            self.store(code, self.scalar, self._folded(code, total, lanes), at)
            return []

        code.loop("%begin", "%end", 1, [], item)
        code.do("ret void")
        return code.function(f"define void @dots{HEADER}")

    def _folded(self, code: Code, total: str, lanes: int) -> str:
        while lanes > 1:
            half = lanes // 2
            kind = self.vector(lanes)
            low, high = (
                code.emit(
                    f"shufflevector {kind} {total}, {kind} poison, <{half} x i32> "
                    f"<{', '.join(f'i32 {n}' for n in range(start, start + half))}>"
                )
                for start in (0, half)
            )
            lanes = half
            if half == 1:
                low, high = (code.emit(f"extractelement <1 x {self.scalar}> {x}, i32 0") for x in (low, high))
            total = self.add(code, low, high, self.vector(lanes))
        return total


def _mangled(kind: str) -> str:
    """An LLVM type as it stands in the name of an intrinsic."""
    short = {"float": "f32", "double": "f64"}
    if not kind.startswith("<"):
        return short.get(kind, kind)
    lanes, _, scalar = kind[1:-1].split(" ")
    return f"v{lanes}{short.get(scalar, scalar)}"
