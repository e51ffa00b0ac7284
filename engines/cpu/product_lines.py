"""Products of few rows and a matrix whose columns are contiguous: a line of the cache of each of many columns is turned
round in registers, so that a vector holds one step of neighbouring results.
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
    COLUMNS,
    DEPTH,
    HEADER,
    ROWS,
    Number,
    mask,
)

LINE_BYTES = 64
MOST_STEPS = 16
AHEAD_BYTES = 192
"""From what is read of a column to what is asked for: more columns are read at a time than a processor follows by
itself."""


class LinesWriter(PackingWriter):
    """Writes ``lines``."""

    def lines(self, lanes: int, vectors: int, rows: int) -> str:
        """Tiles at the end reach back over their neighbours."""
        code = Code()
        w = self._words(code)
        last, last_row = code.sub(w[COLUMNS], lanes), code.sub(w[ROWS], 1)
        most = min(MOST_STEPS, max(SQUARE, LINE_BYTES // self.size))

        def item(batch: str, i: str, j: str) -> None:
            a, b, c = self._matrices(code, w, batch)
            first = code.mul(j, vectors * lanes)
            starts = [code.minimum(code.add(first, v * lanes), last) for v in range(vectors)]
            blocks = [code.at(b, code.mul(s, w[B_COLUMN])) for s in starts]
            tall = [code.minimum(code.add(code.mul(i, rows), r), last_row) for r in range(rows)]
            left = [code.at(a, code.mul(r, w[A_ROW])) for r in tall]

            def add(sums: list[Number], v: int, k: str, y: Number) -> None:
                """Step k of one vector of columns to all rows."""
                for r, row in enumerate(left):
                    x = self.splat(code, self.load(code, 1, code.at(row, code.mul(k, w[A_DEPTH]))), lanes)
                    sums[v * rows + r] = self.multiply_add(code, x, y, sums[v * rows + r], lanes)

            def whole(k: str, sums: list[Number], steps: int) -> Sequence[Number]:
                for v, block in enumerate(blocks):
                    at = code.at(block, code.mul(k, self.size))
                    for n, y in enumerate(self._turned_lines(code, at, w[B_COLUMN], lanes, steps)):
                        add(sums, v, code.add(k, n), y)
                return sums

            def single(k: str, sums: list[Number]) -> Sequence[Number]:
                for v, block in enumerate(blocks):
                    add(sums, v, k, self._one_step(code, code.at(block, code.mul(k, self.size)), w[B_COLUMN], lanes))
                return sums

            sums, done = [self.zero(lanes)] * (vectors * rows), "0"
            for steps in dict.fromkeys((most, SQUARE)):
                end = code.mul(code.emit(f"udiv i64 {w[DEPTH]}, {steps}"), steps)
                sums = self.loop(code, (done, end, steps), lanes, sums, partial(whole, steps=steps))
                done = end
            sums = self.loop(code, (done, w[DEPTH], 1), lanes, sums, single)
            cells = [(row, start) for start in starts for row in tall]
            for (row, start), value in zip(cells, sums, strict=True):
                self.store_result(code, w, lanes, value, c, row, start, rows)

        self.items(code, w, item)
        code.do("ret void")
        return code.function(f"define void @lines{lanes}x{vectors}x{rows}{HEADER}")

    def _turned_lines(self, code: Code, place: str, stride: str, lanes: int, steps: int) -> list[Number]:
        """So many steps of ``lanes`` columns, a vector each."""
        loaded = []
        for line in range(lanes):  # each address from the one before: so many do not fit into registers
            place = code.at(place, stride) if line else place
            loaded.append(self.units(code, steps, place))
            if steps > SQUARE:
                self.ask(code, code.at(place, AHEAD_BYTES))
        groups = steps // SQUARE
        fours = [self.turned(code, loaded[k : k + SQUARE], groups) for k in range(0, lanes, SQUARE)]
        found = [self._side_by_side(code, [f[n] for f in fours], groups) for n in range(SQUARE)]
        return [self.of_units(code, found[n][g], lanes) for g in range(groups) for n in range(SQUARE)]

    def _side_by_side(self, code: Code, vectors: Sequence[str], groups: int) -> list[str]:
        """Group g of all vectors as one vector, for each g."""
        if len(vectors) == groups == SQUARE:
            return self.turned(code, vectors, 1, SQUARE)
        return [self._joined(code, vectors, groups, g) for g in range(groups)]

    def _joined(self, code: Code, vectors: Sequence[str], groups: int, g: int) -> str:
        """Pairs of groups, then pairs of those."""
        unit, _ = self._unit
        kind, size = f"<{SQUARE * groups} x {unit}>", SQUARE * groups
        own = range(SQUARE * g, SQUARE * (g + 1))
        if len(vectors) == 1:
            return self._some(code, vectors[0], size, own)
        order = [*own, *(k + size for k in own)]
        pairs = zip(vectors[::2], vectors[1::2], strict=True)
        found = [code.emit(f"shufflevector {kind} {x}, {kind} {y}, {mask(order)}") for x, y in pairs]
        size = 2 * SQUARE
        while len(found) > 1:
            kind = f"<{size} x {unit}>"
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [code.emit(f"shufflevector {kind} {x}, {kind} {y}, {mask(range(2 * size))}") for x, y in pairs]
            size *= 2
        return found[0]

    def _some(self, code: Code, vector: str, size: int, order: Sequence[int]) -> str:
        if len(order) == size:
            return vector
        kind = f"<{size} x {self._unit[0]}>"
        return code.emit(f"shufflevector {kind} {vector}, {kind} poison, {mask(order)}")

    def _one_step(self, code: Code, place: str, stride: str, lanes: int) -> Number:
        """One step of ``lanes`` columns."""
        kind = self.vector(lanes)
        found: Number = ("poison",) * self.parts
        for line in range(lanes):
            place = code.at(place, stride) if line else place
            found = tuple(
                code.emit(f"insertelement {kind} {sofar}, {self.scalar} {x}, i32 {line}")
                for sofar, x in zip(found, self.load(code, 1, place), strict=True)
            )
        return found
