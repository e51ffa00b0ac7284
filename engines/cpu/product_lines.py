"""Products of one row and a matrix whose columns are contiguous: four steps of many columns are turned round in
registers, so that a vector holds one step of neighbouring results.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.product_packing import SQUARE, PackingWriter
from tenferro.engines.cpu.product_writer import (
    A_DEPTH,
    B_COLUMN,
    COLUMNS,
    DEPTH,
    HEADER,
    Number,
    mask,
)


class LinesWriter(PackingWriter):
    """Writes ``lines``."""

    def lines(self, lanes: int, vectors: int) -> str:
        """Tiles at the end reach back over their neighbours."""
        code = Code()
        w = self._words(code)
        last = code.sub(w[COLUMNS], lanes)
        whole = code.mul(code.emit(f"udiv i64 {w[DEPTH]}, {SQUARE}"), SQUARE)

        def item(index: str, _: list[str]) -> Sequence[str]:
            batch, _one_row, j = self._place(code, w, index)
            a, b, c = self._matrices(code, w, batch)
            first = code.mul(j, vectors * lanes)
            starts = [code.minimum(code.add(first, v * lanes), last) for v in range(vectors)]
            blocks = [code.at(b, code.mul(s, w[B_COLUMN])) for s in starts]

            def squares(k: str, sums: list[Number]) -> Sequence[Number]:
                columns = [self._turned_lines(code, p, k, w[B_COLUMN], lanes) for p in blocks]
                for n in range(SQUARE):
                    x = self._spread(code, a, code.add(k, n), w, lanes)
                    sums = [self.multiply_add(code, x, y[n], s, lanes) for y, s in zip(columns, sums, strict=True)]
                return sums

            def single(k: str, sums: list[Number]) -> Sequence[Number]:
                x = self._spread(code, a, k, w, lanes)
                columns = [self._one_step(code, p, k, w[B_COLUMN], lanes) for p in blocks]
                return [self.multiply_add(code, x, y, s, lanes) for y, s in zip(columns, sums, strict=True)]

            sums = self.loop(code, (0, whole, SQUARE), lanes, [self.zero(lanes)] * vectors, squares)
            sums = self.loop(code, (whole, w[DEPTH], 1), lanes, sums, single)
            for start, value in zip(starts, sums, strict=True):
                self.store(code, lanes, value, code.at(c, code.mul(start, self.size)))
            return []

        code.loop("%begin", "%end", 1, [], item)
        code.do("ret void")
        return code.function(f"define void @lines{lanes}x{vectors}{HEADER}")

    def _spread(self, code: Code, a: str, k: str, w: Sequence[str], lanes: int) -> Number:
        return self.splat(code, self.load(code, 1, code.at(a, code.mul(k, w[A_DEPTH]))), lanes)

    def _turned_lines(self, code: Code, block: str, k: str, stride: str, lanes: int) -> list[Number]:
        """Four steps of ``lanes`` lines, a vector each."""
        place, loaded = code.at(block, code.mul(k, self.size)), []
        for line in range(lanes):  # each address from the one before: so many do not fit into registers
            place = code.at(place, stride) if line else place
            loaded.append(self.units(code, SQUARE, place))
        rows = [self._side_by_side(code, loaded[r::SQUARE]) for r in range(SQUARE)]
        return [self.of_units(code, x, lanes) for x in self.turned(code, rows, lanes // SQUARE)]

    def _side_by_side(self, code: Code, pieces: Sequence[str]) -> str:
        """Vectors of four, in pairs until one is left."""
        unit, _ = self._unit
        found, size = list(pieces), SQUARE
        while len(found) > 1:
            kind = f"<{size} x {unit}>"
            pairs = zip(found[::2], found[1::2], strict=True)
            found = [code.emit(f"shufflevector {kind} {x}, {kind} {y}, {mask(range(2 * size))}") for x, y in pairs]
            size *= 2
        return found[0]

    def _one_step(self, code: Code, block: str, k: str, stride: str, lanes: int) -> Number:
        """One step of ``lanes`` lines."""
        place, kind = code.at(block, code.mul(k, self.size)), self.vector(lanes)
        found: Number = ("poison",) * self.parts
        for line in range(lanes):
            place = code.at(place, stride) if line else place
            found = tuple(
                code.emit(f"insertelement {kind} {sofar}, {self.scalar} {x}, i32 {line}")
                for sofar, x in zip(found, self.load(code, 1, place), strict=True)
            )
        return found
