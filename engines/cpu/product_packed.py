"""Large matrix products: both operands are copied block by block into the order in which registers are filled (the
scheme of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.product_packing import SQUARE, PackingWriter
from tenferro.engines.cpu.product_writer import (
    A_DEPTH,
    A_ROW,
    B_COLUMN,
    B_DEPTH,
    BLOCK_DEPTH,
    C_ROW,
    COLUMNS,
    DEPTH,
    HEADER,
    LINE,
    ROWS,
    TALL,
    WIDE,
    Number,
    most_columns,
    most_rows,
    rounds_once,
)
from tenferro.tracer.records import dataclass

A_AHEAD = 256
"""Bytes of A's panel that are asked for ahead of its use: it comes from the second cache (1 % and 2 % of a product)."""


@dataclass(frozen=True, slots=True)
class Side:
    """The lines of an operand that an item has: from ``start`` on, ``count`` of ``total``; (width, begin, end) of the
    panels; which function copies them."""

    pack: str
    start: str
    total: str
    count: str
    panels: Sequence[tuple[int, str, str]]


@dataclass(frozen=True, slots=True)
class Block:
    """Packed operands of ``depth`` steps, and where the sums stand: ``first`` says that they begin."""

    left: str
    right: str
    rows: Side
    columns: Side
    depth: str
    first: str
    to: str
    to_row: str
    spare: str


class PackedWriter(PackingWriter):
    """Writes ``packed`` and its parts."""

    def packed_functions(self) -> list[str]:
        """All of them."""
        micros = [self._micro(rows, vectors) for rows in self._heights for vectors in self._widths]
        return [*micros, *self.packing_functions(), self._copy_tile(), self._packed()]

    @property
    def _heights(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys((self.registers.rows, self.registers.few)))

    @property
    def _panels(self) -> tuple[int, ...]:
        return tuple(v * self.registers.lanes for v in self._widths)

    @property
    def _widths(self) -> tuple[int, ...]:
        """In vectors. Four rows by one vector would take as long as four by two: a multiply-add takes four cycles."""
        whole = self.registers.vectors
        less = max(1, whole - 1)
        return tuple(dict.fromkeys((whole, less if less * self.registers.lanes >= SQUARE else whole)))

    @property
    def rounds_once(self) -> bool:
        return rounds_once(self.dtype)

    def _micro(self, rows: int, vectors: int) -> str:
        """A register tile over ``depth`` steps: starts from zero or from what stands in C."""
        code, lanes = Code(), self.registers.lanes
        cells = [(r, v) for r in range(rows) for v in range(vectors)]
        width = lanes * self.packed_size
        pointers = [code.at(code.at("%c", code.mul(r, "%row")), v * width) for r, v in cells]
        fresh, old, start = code.new_label("fresh"), code.new_label("old"), code.new_label("start")
        code.branch("%first", fresh, old)
        code.start(old)
        loaded = [value for p in pointers for value in self.load_packed(code, lanes, p)]
        code.jump(start)
        code.start(fresh)
        code.jump(start)
        code.start(start)
        kind = self.vector(lanes)
        begun = [code.emit(f"phi {kind} [ {self.zero(lanes)[0]}, %{fresh} ], [ {x}, %{old} ]") for x in loaded]

        def body(k: str, sums: list[Number]) -> Sequence[Number]:
            at_b = code.at("%b", code.mul(k, vectors * width))
            parts = [
                code.emit(f"load {kind}, ptr {code.at(at_b, n * lanes * self.part_size)}, align 64")
                for n in range(vectors * self.parts)
            ]
            right = [tuple(parts[v::vectors]) for v in range(vectors)]
            at_a = code.at("%a", code.mul(k, rows * self.packed_size))
            self.ask(code, code.at(at_a, A_AHEAD))
            found: list[Number] = []
            for r in range(rows):  # each just before its use: there are no registers for all of them
                left = self.splat(code, self.load_packed(code, 1, code.at(at_a, r * self.packed_size)), lanes)
                found += [self.multiply_add(code, left, y, sums[vectors * r + v], lanes) for v, y in enumerate(right)]
            return found

        numbers = [tuple(begun[k : k + self.parts]) for k in range(0, len(begun), self.parts)]
        sums = self.loop(code, (0, "%depth", 1), lanes, numbers, body)
        for value, pointer in zip(sums, pointers, strict=True):
            self.store_packed(code, lanes, value, pointer)
        code.do("ret void")
        return code.function(
            f"define internal void @micro{rows}x{vectors}(ptr %a, ptr %b, ptr %c, i64 %row, i64 %depth, i1 %first) "
            "noinline nounwind"
        )

    def _copy_tile(self) -> str:
        """The part of a register tile that exists, between C and the stack."""
        code = Code()

        def row(r: str, _: list[str]) -> Sequence[str]:
            to, source = code.at("%to", code.mul(r, "%to_row")), code.at("%from", code.mul(r, "%from_row"))
            code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {source}, i64 {length}, i1 false)")
            return []

        length = code.mul("%columns", self.packed_size)
        code.loop(0, "%rows", 1, [], row)
        code.do("ret void")
        return code.function(
            "define internal void @copy_tile(ptr noalias %to, i64 %to_row, ptr noalias %from, i64 %from_row, "
            "i64 %rows, i64 %columns) noinline nounwind"
        )

    def _packed(self) -> str:
        code, form = Code(), self.registers
        tall, wide = most_rows(self.dtype, form), most_columns(self.dtype, form)
        left, right = (code.alloca(n * BLOCK_DEPTH * self.packed_size) for n in (tall, wide))
        spare = code.alloca((tall * wide if self.rounds_once else form.rows * form.columns) * self.packed_size)
        w = self._words(code)

        def item(batch: str, i: str, j: str) -> None:
            a, b, c = self._matrices(code, w, batch)
            row, column = code.mul(i, w[TALL]), code.mul(j, w[WIDE])
            end = code.minimum(code.add(column, w[WIDE]), w[COLUMNS])
            rows = self._side(code, "pack_a", row, w[ROWS], w[TALL], self._heights)
            corner = code.at(code.at(c, code.mul(row, w[C_ROW])), code.mul(column, self.size))
            to, to_row = (spare, str(wide * self.packed_size)) if self.rounds_once else (corner, w[C_ROW])

            steps = self._equal_steps(code, w[DEPTH])

            def block(k: str, _: list[str]) -> Sequence[str]:
                depth = code.minimum(code.sub(w[DEPTH], k), steps)
                from_a, from_b = code.at(a, code.mul(k, w[A_DEPTH])), code.at(b, code.mul(k, w[B_DEPTH]))
                self._pack_side(code, rows, left, from_a, (w[A_ROW], w[A_DEPTH]), depth)
                first = code.compare("eq", k, 0)

                def part(start: str, _: list[str]) -> Sequence[str]:
                    columns = self._side(code, "pack_b", start, end, str(wide), self._panels)
                    self._pack_side(code, columns, right, from_b, (w[B_COLUMN], w[B_DEPTH]), depth)
                    there = code.at(to, code.mul(code.sub(start, column), self.packed_size))
                    self._tiles(code, Block(left, right, rows, columns, depth, first, there, to_row, spare))
                    return []

                code.loop(column, end, wide, [], part)
                return []

            code.loop(0, w[DEPTH], steps, [], block)
            if self.rounds_once:
                self._rounded(code, (corner, w[C_ROW]), (to, to_row), rows.count, code.sub(end, column))

        self.items(code, w, item)
        code.do("ret void")
        return code.function(f"define void @packed{HEADER}")

    def _equal_steps(self, code: Code, depth: str) -> str:
        """Steps of a block: as many as may be, or fewer so that the last block has no few."""
        blocks = code.maximum(1, code.emit(f"udiv i64 {code.add(depth, BLOCK_DEPTH - 1)}, {BLOCK_DEPTH}"))
        return code.emit(f"udiv i64 {code.sub(code.add(depth, blocks), 1)}, {blocks}")

    def _side(self, code: Code, name: str, start: str, total: str, most: str, widths: tuple[int, ...]) -> Side:
        """Whole panels, then narrow ones where these are fewer lines than one more whole panel."""
        count = code.minimum(code.sub(total, start), most)
        whole = widths[0]
        full = code.mul(code.emit(f"udiv i64 {count}, {whole}"), whole)
        fits = code.compare("sle", code.sub(count, full), (whole - 1) // widths[-1] * widths[-1])
        split = code.emit(f"select i1 {fits}, i64 {full}, i64 {code.add(full, whole)}")
        rest = widths[-1], code.minimum(split, count), count
        return Side(name, start, total, count, [(whole, "0", split), rest][: len(widths)])

    def _pack_side(
        self, code: Code, side: Side, to: str, source: str, strides: tuple[str, str], depth: str
    ) -> None:  # fmt: skip
        for width, begin, end in side.panels:
            target = code.at(to, code.mul(code.mul(begin, depth), self.packed_size))
            code.do(
                f"call void @{side.pack}(ptr {target}, ptr {source}, i64 {strides[0]}, i64 {strides[1]}, "
                f"i64 {code.add(side.start, begin)}, i64 {code.sub(end, begin)}, i64 {side.total}, i64 {width}, "
                f"i64 {depth})"
            )

    def _tiles(self, code: Code, block: Block) -> None:
        """A panel of B stays in the first cache while those of A go by."""
        for wide, first_column, end_column in block.columns.panels:

            def columns(p: str, _: list[str], wide: int = wide) -> Sequence[str]:
                for tall, first_row, end_row in block.rows.panels:

                    def rows(q: str, _: list[str], tall: int = tall) -> Sequence[str]:
                        self._tile(code, block, (q, tall), (p, wide))
                        return []

                    code.loop(first_row, end_row, tall, [], rows)
                return []

            code.loop(first_column, end_column, wide, [], columns)

    def _tile(self, code: Code, block: Block, row: tuple[str, int], column: tuple[str, int]) -> None:
        """One register tile: straight to where it belongs if it is whole, else by way of the stack."""
        (q, tall), (p, wide) = row, column
        at = code.at(code.at(block.to, code.mul(q, block.to_row)), code.mul(p, self.packed_size))
        a, b = (
            code.at(x, code.mul(code.mul(t, block.depth), self.packed_size))
            for x, t in ((block.left, q), (block.right, p))
        )
        micro = f"call void @micro{tall}x{wide // self.registers.lanes}(ptr {a}, ptr {b}, "

        following = code.at(at, code.mul(block.to_row, tall))
        for r in range(tall):  # the rows of the next tile: where they are far, the sums that stand there come late
            for line in range(0, wide * self.packed_size, LINE):
                self.ask(code, code.at(code.at(following, code.mul(block.to_row, r)), line))

        def run(c: str, c_row: str | int) -> None:
            code.do(f"{micro}ptr {c}, i64 {c_row}, i64 {block.depth}, i1 {block.first})")

        if self.rounds_once:  # where sums are kept every tile is whole
            run(at, block.to_row)
            return
        rows, columns = (
            code.minimum(code.sub(side.count, t), n) for side, t, n in ((block.rows, q, tall), (block.columns, p, wide))
        )
        whole_rows, whole_columns = code.compare("eq", rows, tall), code.compare("eq", columns, wide)
        whole = code.emit(f"and i1 {whole_rows}, {whole_columns}")
        straight, around, done = code.new_label("straight"), code.new_label("around"), code.new_label("stored")
        code.branch(whole, straight, around)
        code.start(straight)
        run(at, block.to_row)
        code.jump(done)
        code.start(around)
        spare, spare_row = block.spare, wide * self.packed_size
        extents = f"i64 {rows}, i64 {columns}"
        again = code.emit(f"xor i1 {block.first}, true")
        fetch = f"call void @copy_tile(ptr {spare}, i64 {spare_row}, ptr {at}, i64 {block.to_row}, {extents})"
        code.when(again, lambda: code.do(fetch))
        run(spare, spare_row)
        code.do(f"call void @copy_tile(ptr {at}, i64 {block.to_row}, ptr {spare}, i64 {spare_row}, {extents})")
        code.jump(done)
        code.start(done)

    def _rounded(self, code: Code, to: tuple[str, str], source: tuple[str, str], rows: str, columns: str) -> None:
        """Sums to results, in the dtype of these."""
        lanes = self.registers.lanes
        whole = code.mul(code.emit(f"udiv i64 {columns}, {lanes}"), lanes)

        def row(r: str, _: list[str]) -> Sequence[str]:
            there, here = (code.at(base, code.mul(r, stride)) for base, stride in (to, source))

            def piece(n: str, _: list[str], lanes: int) -> Sequence[str]:
                value = self.load_packed(code, lanes, code.at(here, code.mul(n, self.packed_size)))
                self.store(code, lanes, value, code.at(there, code.mul(n, self.size)))
                return []

            code.loop(0, whole, lanes, [], partial(piece, lanes=lanes))
            code.loop(whole, columns, 1, [], partial(piece, lanes=1))
            return []

        code.loop(0, rows, 1, [], row)
