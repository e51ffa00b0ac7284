"""Large matrix products: both operands are copied block by block into the order in which registers are filled (the
scheme of Goto and van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
"""

from __future__ import annotations

from collections.abc import Sequence

from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.product_writer import (
    A_DEPTH,
    A_ROW,
    B_COLUMN,
    B_DEPTH,
    BLOCK_DEPTH,
    BLOCK_ROWS,
    C_ROW,
    COLUMNS,
    DEPTH,
    HEADER,
    ROWS,
    ProductWriter,
    block_columns,
)


class PackedWriter(ProductWriter):
    """Writes ``packed`` and its parts."""

    def packed_functions(self) -> list[str]:
        """All of them."""
        return [self._micro(), self._pack_a(), self._pack_b(), self._copy_tile(), self._packed()]

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
        w = self._words(code)
        rows_all, columns_all, depth_all = w[ROWS], w[COLUMNS], w[DEPTH]

        def item(index: str, _: list[str]) -> Sequence[str]:
            batch, i, j = self._place(code, w, index)
            a, b, c = self._matrices(code, w, batch)
            row, column = code.mul(i, BLOCK_ROWS), code.mul(j, columns)
            count_rows = code.minimum(code.sub(rows_all, row), BLOCK_ROWS)
            count_columns = code.minimum(code.sub(columns_all, column), columns)

            def block(k: str, _: list[str]) -> Sequence[str]:
                depth = code.minimum(code.sub(depth_all, k), BLOCK_DEPTH)
                from_a, from_b = code.at(a, code.mul(k, w[A_DEPTH])), code.at(b, code.mul(k, w[B_DEPTH]))
                code.do(
                    f"call void @pack_a(ptr {left}, ptr {from_a}, i64 {w[A_ROW]}, i64 {w[A_DEPTH]}, i64 {row}, "
                    f"i64 {count_rows}, i64 {rows_all}, i64 {depth})"
                )
                code.do(
                    f"call void @pack_b(ptr {right}, ptr {from_b}, i64 {w[B_DEPTH]}, i64 {w[B_COLUMN]}, i64 {column}, "
                    f"i64 {count_columns}, i64 {columns_all}, i64 {depth})"
                )
                first = code.compare("eq", k, 0)

                def tiles(p: str, _: list[str]) -> Sequence[str]:
                    def tile(q: str, _: list[str]) -> Sequence[str]:
                        at = code.at(c, code.mul(code.add(row, q), w[C_ROW]))
                        at = code.at(at, code.mul(code.add(column, p), self.size))
                        packed = [
                            code.at(x, code.mul(code.mul(t, depth), self.size)) for x, t in ((left, q), (right, p))
                        ]
                        extent = (
                            code.minimum(code.sub(count_rows, q), form.rows),
                            code.minimum(code.sub(count_columns, p), form.columns),
                        )
                        self._tile(code, w[C_ROW], packed, at, depth, first, extent, spare)
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
        self, code: Code, c_row: str, packed: Sequence[str], at: str, depth: str, first: str, extent: tuple[str, str],
        spare: str,
    ) -> None:  # fmt: skip
        """One register tile: straight into C where it is whole, else by way of the stack."""
        form = self.registers
        rows, columns = extent
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
