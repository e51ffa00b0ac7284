"""Small and narrow matrix products, read where they lie."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.product_writer import (
    A_DEPTH,
    A_ROW,
    B_COLUMN,
    B_DEPTH,
    C_ROW,
    COLUMNS,
    DEPTH,
    DOT_CHAINS,
    HEADER,
    ROWS,
    Number,
    ProductWriter,
    dot_lanes,
    mask,
)


class DirectWriter(ProductWriter):
    """Writes ``direct``, ``triple``, ``dots`` and ``strided_dots``."""

    def direct(self, lanes: int, rows: int, vectors: int) -> str:
        """Tiles at the end reach back over their neighbours: the same chains give the same bits twice."""
        code = Code()
        w = self._words(code)
        last_column = code.sub(w[COLUMNS], lanes)

        def item(batch: str, i: str, j: str) -> None:
            start = code.mul(j, vectors * lanes)
            wide = [code.minimum(code.add(start, v * lanes), last_column) for v in range(vectors)]
            self._chains(code, w, self._matrices(code, w, batch), code.mul(i, rows), rows, wide, lanes)

        self.items(code, w, item)
        code.do("ret void")
        return code.function(f"define void @direct{lanes}x{rows}x{vectors}{HEADER}")

    def _chains(
        self, code: Code, w: Sequence[str], matrices: tuple[str, str, str], row: str, rows: int, wide: Sequence[str],
        lanes: int,
    ) -> None:  # fmt: skip
        """Rows from ``row`` on, the last one repeated, by the vectors that start at these columns. Stores go in order
        of rows."""
        a, b, c = matrices
        last = code.sub(w[ROWS], 1)
        tall = [code.minimum(code.add(row, r), last) for r in range(rows)]
        left = [code.at(a, code.mul(r, w[A_ROW])) for r in tall]
        right = [code.at(b, code.mul(n, w[B_COLUMN])) for n in wide]
        cells = [(r, v) for r in range(rows) for v in range(len(wide))]

        def step(k: str, sums: list[Number]) -> Sequence[Number]:
            at_a, at_b = code.mul(k, w[A_DEPTH]), code.mul(k, w[B_DEPTH])
            ys = [self.load(code, lanes, code.at(p, at_b)) for p in right]
            xs = [self.splat(code, self.load(code, 1, code.at(p, at_a)), lanes) for p in left]
            return [self.multiply_add(code, xs[r], ys[v], s, lanes) for (r, v), s in zip(cells, sums, strict=True)]

        sums = self.loop(code, (0, w[DEPTH], 1), lanes, [self.zero(lanes)] * len(cells), step)
        for (r, v), value in zip(cells, sums, strict=True):
            self.store_result(code, w, lanes, value, c, tall[r], wide[v], rows)

    def triple(self) -> str:
        """Items are matrices. The fourth lane reads and writes what stands behind a row, which is written after it; the
        last matrix that a thread has, behind which others write, goes element by element."""
        code = Code()
        w = self._words(code)
        last = code.sub("%end", 1)

        def item(index: str, _: list[str]) -> Sequence[str]:
            matrices = self._matrices(code, w, index)
            inside, final, done = code.new_label("inside"), code.new_label("final"), code.new_label("next")
            code.branch(code.compare("slt", index, last), inside, final)
            for label, columns, lanes in ((inside, ["0"], 4), (final, ["0", "1", "2"], 1)):
                code.start(label)

                def rows(i: str, _: list[str], columns: list[str] = columns, lanes: int = lanes) -> Sequence[str]:
                    self._chains(code, w, matrices, i, 4, columns, lanes)
                    return []

                code.loop(0, w[ROWS], 4, [], rows)
                code.jump(done)
            code.start(done)
            return []

        code.loop("%begin", "%end", 1, [], item)
        code.do("ret void")
        return code.function(f"define void @triple{HEADER}")

    def dots(self, strided: bool) -> str:
        """Four chains of vectors, then pairs of chains, then halves of the lanes; what is left at the end is filled up
        with zeros. Strided operands are copied to the stack, a turn of the chains at a time."""
        code, lanes = Code(), dot_lanes(self.dtype)
        width, turn = lanes * self.size, DOT_CHAINS * lanes
        spare = [code.alloca(DOT_CHAINS * width) for _ in range(2)]
        w = self._words(code)
        depth, steps = w[DEPTH], (w[A_DEPTH], w[B_DEPTH])
        whole = code.mul(code.emit(f"udiv i64 {depth}, {turn}"), turn)
        most = code.mul(code.emit(f"udiv i64 {depth}, {lanes}"), lanes)

        def item(batch: str, i: str, j: str) -> None:
            a, b, c = self._matrices(code, w, batch)
            sides = code.at(a, code.mul(i, w[A_ROW])), code.at(b, code.mul(j, w[B_COLUMN]))

            def brought(k: str, count: int | str) -> list[str]:
                """Where ``count`` elements from k on lie side by side."""
                if not strided:
                    return [code.at(side, code.mul(k, self.size)) for side in sides]
                for to, side, step in zip(spare, sides, steps, strict=True):
                    self._gathered(code, to, code.at(side, code.mul(k, step)), step, count)
                return spare

            def chained(k: str, sums: list[Number], chains: int) -> Sequence[Number]:
                at = [[code.at(p, n * width) for n in range(chains)] for p in brought(k, chains * lanes)]
                loaded = [[self.load(code, lanes, p) for p in side] for side in at]
                return [self.multiply_add(code, x, y, s, lanes) for x, y, s in zip(*loaded, sums, strict=True)]

            four: Callable[[str, list[Number]], Sequence[Number]] = partial(chained, chains=DOT_CHAINS)
            sums = self.loop(code, (0, whole, turn), lanes, [self.zero(lanes)] * DOT_CHAINS, four)
            one: Callable[[str, list[Number]], Sequence[Number]] = partial(chained, chains=1)
            (sums[0],) = self.loop(code, (whole, most, lanes), lanes, [sums[0]], one)
            for p in spare:
                code.do(f"store <{width} x i8> zeroinitializer, ptr {p}, align 64")
            for to, side, step in zip(spare, sides, steps, strict=True):
                self._gathered(code, to, code.at(side, code.mul(most, step)), step, code.sub(depth, most))
            x, y = (self.load(code, lanes, p) for p in spare)
            sums[1] = self.multiply_add(code, x, y, sums[1], lanes)
            low, high = (self.add(code, sums[k], sums[k + 1], lanes) for k in (0, 2))
            at = code.at(code.at(c, code.mul(i, w[C_ROW])), code.mul(j, self.size))
            self.store(code, 1, self._folded(code, self.add(code, low, high, lanes), lanes), at)

        self.items(code, w, item)
        code.do("ret void")
        return code.function(f"define void @{'strided_' if strided else ''}dots{HEADER}")

    def _gathered(self, code: Code, to: str, source: str, step: str, count: int | str) -> None:
        """Copy elements that lie ``step`` bytes apart."""
        kind = f"i{8 * self.size}"

        def body(k: str, _: list[str]) -> Sequence[str]:
            align = self.size // self.parts
            value = code.emit(f"load {kind}, ptr {code.at(source, code.mul(k, step))}, align {align}")
            code.do(f"store {kind} {value}, ptr {code.at(to, code.mul(k, self.size))}, align {align}")
            return []

        code.loop(0, count, 1, [], body)

    def _folded(self, code: Code, total: Number, lanes: int) -> Number:
        """Halves of the lanes added until one is left."""
        while lanes > 1:
            half, kind = lanes // 2, self.vector(lanes)
            low, high = (
                tuple(
                    code.emit(f"shufflevector {kind} {x}, {kind} poison, {mask(range(start, start + half))}")
                    for x in total
                )
                for start in (0, half)
            )
            if half == 1:
                low, high = (
                    tuple(code.emit(f"extractelement <1 x {self.scalar}> {x}, i32 0") for x in side)
                    for side in (low, high)
                )
            lanes = half
            total = self.add(code, low, high, lanes)
        return total
