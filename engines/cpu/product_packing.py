"""Copies of blocks of matrices in the order in which registers are filled, whatever the layout they come from.

A *line* is a row of A or a column of B, a *panel* so many neighbouring lines. A panel is written step by step along the
contracted axis: its lines' elements of the first step, then those of the next one. Lines beyond the last repeat it.
What is copied is widened to what is computed with.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.product_writer import Number, ProductWriter, mask

SQUARE = 4
"""Lines and steps that are turned round in registers at a time."""
STEPS = 8
"""Steps that are copied of one panel before the next one has its turn."""
AHEAD = 8
"""Steps that are asked for ahead: rows of B lie pages apart, where no processor follows by itself (a product of 1000 x
1000 float64 matrices: 15 % of its time was spent here)."""
_EVEN, _ODD = (0, 4, 1, 5), (2, 6, 3, 7)
_LOW, _HIGH = (0, 1, 4, 5), (2, 3, 6, 7)


class PackingWriter(ProductWriter):
    """Writes ``pack_a`` and ``pack_b``."""

    def packing_functions(self) -> list[str]:
        """Both. B is read by vectors: it is copied so many lines at a time where these are neighbours in memory, and
        the real parts of a step stand before its imaginary ones."""
        return [self._pack("pack_a", SQUARE, 1), self._pack("pack_b", self.registers.lanes, self.parts)]

    def _pack(self, name: str, piece: int, rows: int) -> str:
        """``count`` lines from ``first`` on, of ``all``, in panels of ``width``. ``line`` and ``step``: byte strides.
        ``rows``: 2 where the parts of complex numbers stand in rows of their own."""
        code = Code()
        last = code.sub("%all", 1)
        along = code.compare("eq", "%step", self.size)
        whole = self._beside(code, piece, rows)

        def panel(p: str, _: list[str]) -> Sequence[str]:
            start = code.add("%first", p)
            target = code.at("%to", code.mul(code.mul(p, "%depth"), self.packed_size))
            if self.size < 16:  # larger elements are vectors themselves
                one, two, done = code.new_label("along"), code.new_label("each"), code.new_label("packed")
                code.branch(along, one, two)
                code.start(one)
                self._along(code, target, start, last, rows)
                code.jump(done)
                code.start(two)
            self._each(code, target, start, last, rows)
            if self.size < 16:
                code.jump(done)
                code.start(done)
            return []

        code.loop(whole, "%count", "%width", [], panel)
        code.do("ret void")
        return code.function(
            f"define internal void @{name}(ptr noalias %to, ptr noalias %from, i64 %line, i64 %step, i64 %first, "
            "i64 %count, i64 %all, i64 %width, i64 %depth) noinline nounwind"
        )

    def _beside(self, code: Code, piece: int, rows: int) -> str:
        """Whole panels of lines that are neighbours in memory, ``piece`` lines at a time. Some steps of all panels come
        before the next steps: what is read lies in long rows, which a processor fetches ahead, and of the panels, which
        lie where the first cache keeps few of them, whole lines are written. Returns how many lines that are."""
        there = code.minimum("%count", code.sub("%all", "%first"))
        found = code.mul(code.emit(f"udiv i64 {there}, %width"), "%width")
        whole = code.emit(f"select i1 {code.compare('eq', '%line', self.size)}, i64 {found}, i64 0")
        source = code.at("%from", code.mul("%first", self.size))
        pitch = code.mul("%depth", self.packed_size)

        def steps(first: str, _: list[str]) -> Sequence[str]:
            end = code.minimum(code.add(first, STEPS), "%depth")

            def panel(p: str, _: list[str]) -> Sequence[str]:
                at, to = code.at(source, code.mul(p, self.size)), code.at("%to", code.mul(p, pitch))

                def step(k: str, _: list[str]) -> Sequence[str]:
                    here, place = code.at(at, code.mul(k, "%step")), self._step_place(code, to, k)

                    def copy(n: str, _: list[str]) -> Sequence[str]:
                        self.ask(code, code.at(code.at(here, code.mul("%step", AHEAD)), code.mul(n, self.size)))
                        units = self.units(code, piece, code.at(here, code.mul(n, self.size)))
                        self._put(code, piece, units, code.at(place, code.mul(n, self.packed_size // rows)), rows)
                        return []

                    code.loop(0, "%width", piece, [], copy)
                    return []

                code.loop(first, end, 1, [], step)
                return []

            code.loop(0, whole, "%width", [], panel)
            return []

        code.loop(0, code.emit(f"select i1 {code.compare('sgt', whole, 0)}, i64 %depth, i64 0"), STEPS, [], steps)
        return whole

    def _along(self, code: Code, target: str, start: str, last: str, rows: int) -> None:
        """Lines whose own elements are neighbours: squares of them are turned round."""
        whole, pitch = code.mul(code.emit(f"udiv i64 %depth, {SQUARE}"), SQUARE), self.packed_size // rows

        def group(g: str, _: list[str]) -> Sequence[str]:
            lines = [code.minimum(code.add(code.add(start, g), r), last) for r in range(SQUARE)]
            sources = [code.at("%from", code.mul(r, "%line")) for r in lines]
            here = code.at(target, code.mul(g, pitch))

            def square(k: str, _: list[str]) -> Sequence[str]:
                loaded = [self.units(code, SQUARE, code.at(x, code.mul(k, self.size))) for x in sources]
                for n, column in enumerate(self.turned(code, loaded)):
                    self._put(code, SQUARE, column, self._step_place(code, here, code.add(k, n)), rows)
                return []

            code.loop(0, whole, SQUARE, [], square)

            def single(k: str, _: list[str]) -> Sequence[str]:
                place = self._step_place(code, here, k)
                for r, source in enumerate(sources):
                    self._one(code, code.at(source, code.mul(k, self.size)), code.at(place, r * pitch), rows)
                return []

            code.loop(whole, "%depth", 1, [], single)
            return []

        code.loop(0, "%width", SQUARE, [], group)

    def _each(self, code: Code, target: str, start: str, last: str, rows: int) -> None:
        """Any other layout, an element at a time."""

        def line(n: str, _: list[str]) -> Sequence[str]:
            source = code.at("%from", code.mul(code.minimum(code.add(start, n), last), "%line"))
            place = code.at(target, code.mul(n, self.packed_size // rows))

            def step(k: str, _: list[str]) -> Sequence[str]:
                self._one(code, code.at(source, code.mul(k, "%step")), self._step_place(code, place, k), rows)
                return []

            code.loop(0, "%depth", 1, [], step)
            return []

        code.loop(0, "%width", 1, [], line)

    def _step_place(self, code: Code, panel: str, k: str) -> str:
        return code.at(panel, code.mul(code.mul(k, "%width"), self.packed_size))

    def _one(self, code: Code, source: str, place: str, rows: int) -> None:
        number = self.load(code, 1, source)
        if rows == 1:
            self.store_packed(code, 1, number, place)
        else:
            self._store_rows(code, 1, number, place)

    def _put(self, code: Code, lanes: int, units: str, place: str, rows: int) -> None:
        """Elements to where they are computed with."""
        if rows == 2 or self.parts == 1:
            self._store_rows(code, lanes, self.of_units(code, units, lanes), place)
            return
        unit, count = self._unit
        code.do(f"store <{count * lanes} x {unit}> {units}, ptr {place}, align {self.part_size}")

    def _store_rows(self, code: Code, lanes: int, number: Number, place: str) -> None:
        """The parts of numbers, a row of the panel apart."""
        for k, value in enumerate(number):
            at = code.at(place, code.mul("%width", self.part_size)) if k else place
            code.do(f"store {self.vector(lanes)} {value}, ptr {at}, align {self.part_size}")

    # Elements as units: what is only moved is not taken apart.

    @property
    def _unit(self) -> tuple[str, int]:
        """The LLVM type by which elements are moved, and how many of them make an element."""
        if self.parts == 1:
            return self.stored, 1
        return "double", self.size // 8

    def units(self, code: Code, lanes: int, pointer: str) -> str:
        """``lanes`` neighbouring elements, as they stand in memory."""
        unit, count = self._unit
        return code.emit(f"load <{count * lanes} x {unit}>, ptr {pointer}, align {self.size // self.parts}")

    def of_units(self, code: Code, units: str, lanes: int) -> Number:
        """Units as numbers."""
        if self.parts == 1:
            return self.widened(code, (units,), lanes)
        if self.part_size == 4:
            units = code.emit(f"bitcast <{lanes} x double> {units} to <{2 * lanes} x float>")
        return self.taken_apart(code, units, lanes, self.scalar)

    def turned(self, code: Code, rows: Sequence[str], groups: int = 1, pieces: int = 1) -> list[str]:
        """The transposes of squares that stand side by side in four rows: of each group of four elements in a row, the
        first ones of all rows in the first result, and so on. An element is so many ``pieces`` of a unit."""
        unit, _ = self._unit
        size = SQUARE * groups
        kind = f"<{size * pieces} x {unit}>"

        def mixed(a: str, b: str, order: Sequence[int]) -> str:
            """``order`` counts the elements of both groups."""
            places = [SQUARE * g + k % SQUARE + (size if k >= SQUARE else 0) for g in range(groups) for k in order]
            picked = [pieces * k + n for k in places for n in range(pieces)]
            return code.emit(f"shufflevector {kind} {a}, {kind} {b}, {mask(picked)}")

        first = [mixed(rows[0], rows[1], order) for order in (_EVEN, _ODD)]
        second = [mixed(rows[2], rows[3], order) for order in (_EVEN, _ODD)]
        return [mixed(a, b, order) for a, b in zip(first, second, strict=True) for order in (_LOW, _HIGH)]
