"""What the kernels of matrix products share: parameters, tiles and registers, and arithmetic on numbers of a dtype.

Every function is ``void (ptr params, i64 begin, i64 end)`` over items, which are tiles of results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import numpy as np

from tenferro.engines.cpu.code import Code
from tenferro.tracer.records import dataclass

Number: TypeAlias = tuple[str, ...]
"""A number, or a vector of them: one value, or its real and its imaginary part."""

# Words of the parameters.
(
    LATCH, A, B, C, ROWS, COLUMNS, DEPTH, A_ROW, A_DEPTH, B_DEPTH, B_COLUMN, C_ROW, C_BATCH, ROW_TILES, COLUMN_TILES,
    TALL, WIDE, C_COLUMN, LEVELS, SIZE, A_BATCH, B_BATCH,
) = range(22)  # fmt: skip
"""``TALL`` and ``WIDE``: rows and columns of a tile, for ``packed``. ``LEVELS``: loops over the batch, innermost first,
each with the last three words, one level after the other."""
PARAMS, LEVEL = 22, 3
HEADER = "(ptr %P, i64 %begin, i64 %end) nounwind"
BLOCK_DEPTH = 256
BLOCK_BYTES = 256 << 10
"""Of what ``packed`` copies of A at a time: it fits into the second cache beside B's part, and on a thread's stack. The
taller it is, the fewer times B is copied."""
BLOCK_COLUMN_BYTES = 384
"""Of a row of B's part, all of which is copied before it is used."""
LINE = 64
"""Bytes of a cache's line."""
DIRECT_FORMS = ((1, 8), (4, 4), (4, 2), (4, 1))
"""(rows, vectors) of a tile of ``direct``: eight or sixteen chains hide the latency of a multiply-add; fewer vectors
are for narrow results, of which there are many."""
COLUMN_ROWS = 8
"""Rows of a tile of one column, an element to a chain."""
NARROW = 4
"""Lanes of ``direct`` where a row is shorter than the machine's vector."""
DOT_CHAINS = 4


@dataclass(frozen=True, slots=True)
class Registers:
    """How ``packed`` fills the registers: ``rows`` x ``vectors`` vectors of ``lanes`` numbers; the last rows of a
    tile ``few`` at a time."""

    rows: int
    vectors: int
    few: int
    lanes: int

    @property
    def columns(self) -> int:
        return self.vectors * self.lanes


def registers(dtype: np.dtype[Any], vector_bits: int) -> Registers:
    """Of a machine: 24 accumulators of 32 registers of 512 bits, 12 (complex: 8) of 16 of 256. Rows come in fours, as
    they are copied."""
    lanes = vector_bits // 8 // part_of(dtype)
    rows, vectors, few = {512: (12, 2, 4), 256: (4, 3, 4)}.get(vector_bits, (8, 2, 4))
    return Registers(rows, 1 if dtype.kind == "c" else vectors, few, lanes)


def part_of(dtype: np.dtype[Any]) -> int:
    """Bytes of the real number that a dtype is computed in: float16 in float32, complex numbers in their parts."""
    return 4 if rounds_once(dtype) else dtype.itemsize // (2 if dtype.kind == "c" else 1)


def rounds_once(dtype: np.dtype[Any]) -> bool:
    """Whether sums are kept in a wider dtype until the last step."""
    return dtype == np.float16


def packed_bytes(dtype: np.dtype[Any]) -> int:
    """Bytes of a number where ``packed`` has copied it to."""
    return part_of(dtype) * (2 if dtype.kind == "c" else 1)


def most_columns(dtype: np.dtype[Any], form: Registers) -> int:
    """Columns of a tile of ``packed`` at most."""
    return max(1, BLOCK_COLUMN_BYTES // packed_bytes(dtype) // form.columns) * form.columns


def most_rows(dtype: np.dtype[Any], form: Registers) -> int:
    """Rows of a tile of ``packed`` at most."""
    return BLOCK_BYTES // BLOCK_DEPTH // packed_bytes(dtype) // form.rows * form.rows


def dot_lanes(dtype: np.dtype[Any]) -> int:
    """Lanes of the tree of ``dots``: the same on every machine."""
    return 128 // packed_bytes(dtype)


class ProductWriter:
    """Writes functions of one dtype for machines with vectors of so many bits. ``is_turned``: the operands have changed
    places (a product is then that of the transposes): results of several rows lie apart, and a complex number's bits
    must not show it."""

    def __init__(self, dtype: np.dtype[Any], vector_bits: int, is_turned: bool = False) -> None:
        self.dtype = dtype
        self.is_turned = is_turned
        self.size = dtype.itemsize
        self.packed_size = packed_bytes(dtype)
        self.parts = 2 if dtype.kind == "c" else 1
        self.is_float = dtype.kind in "fc"
        self.part_size = part_of(dtype)
        self.scalar = {4: "float", 8: "double"}[self.part_size] if self.is_float else f"i{8 * self.part_size}"
        self.stored = "half" if rounds_once(dtype) else self.scalar
        self.registers = registers(dtype, vector_bits)
        self.used: set[str] = set()

    # Types.

    def vector(self, lanes: int) -> str:
        return _vector(lanes, self.scalar)

    def kinds(self, lanes: int, count: int = 1) -> list[str]:
        """The types of the values of ``count`` numbers."""
        return [self.vector(lanes)] * (self.parts * count)

    def zero(self, lanes: int) -> Number:
        return ("zeroinitializer" if lanes > 1 else "0.0" if self.is_float else "0",) * self.parts

    # Arithmetic.

    def multiply_add(self, code: Code, a: Number, b: Number, c: Number, lanes: int) -> Number:
        """a b + c. Complex: first what the real part of A takes part in, then what its imaginary part does."""
        if self.parts == 1:
            return (self._multiply_add(code, a[0], b[0], c[0], lanes),)
        (a_re, a_im), (b_re, b_im), (c_re, c_im) = a, b, c
        minus = code.emit(f"fneg {self.vector(lanes)} {a_im}")
        real = self._multiply_add(code, minus, b_im, self._multiply_add(code, a_re, b_re, c_re, lanes), lanes)
        pairs = [(a_re, b_im), (a_im, b_re)]
        for x, y in reversed(pairs) if self.is_turned else pairs:
            c_im = self._multiply_add(code, x, y, c_im, lanes)
        return real, c_im

    def _multiply_add(self, code: Code, a: str, b: str, c: str, lanes: int) -> str:
        kind = self.vector(lanes)
        if self.is_float:
            self.used.add(kind)
            return code.emit(f"call {kind} @llvm.fma.{mangled(kind)}({kind} {a}, {kind} {b}, {kind} {c})")
        times, plus = ("and", "or") if self.dtype.kind == "b" else ("mul", "add")
        return code.emit(f"{plus} {kind} {code.emit(f'{times} {kind} {a}, {b}')}, {c}")

    def add(self, code: Code, a: Number, b: Number, lanes: int) -> Number:
        plus = "fadd" if self.is_float else "or" if self.dtype.kind == "b" else "add"
        return tuple(code.emit(f"{plus} {self.vector(lanes)} {x}, {y}") for x, y in zip(a, b, strict=True))

    def loop(
        self, code: Code, bounds: tuple[str | int, str | int, int], lanes: int, sums: Sequence[Number],
        body: Callable[[str, list[Number]], Sequence[Number]],
    ) -> list[Number]:  # fmt: skip
        """A loop that carries numbers round."""
        flat = [v for number in sums for v in number]

        def turn(k: str, values: list[str]) -> Sequence[str]:
            return [v for number in body(k, self._numbers(values)) for v in number]

        carried = list(zip(self.kinds(lanes, len(sums)), flat, strict=True))
        return self._numbers(code.loop(*bounds, carried, turn))

    def _numbers(self, values: Sequence[str]) -> list[Number]:
        return [tuple(values[k : k + self.parts]) for k in range(0, len(values), self.parts)]

    # Memory.

    def ask(self, code: Code, place: str) -> None:
        """Ask for a line before it is used."""
        code.do(f"call void @llvm.prefetch.p0(ptr {place}, i32 0, i32 3, i32 1)")

    def load(self, code: Code, lanes: int, pointer: str) -> Number:
        """``lanes`` neighbouring elements of an array."""
        return self.widened(code, self._load(code, lanes, pointer, self.stored, self.size // self.parts), lanes)

    def store(self, code: Code, lanes: int, number: Number, pointer: str) -> None:
        """The reverse of ``load``."""
        if self.stored != self.scalar:
            number = (code.emit(f"fptrunc {self.vector(lanes)} {number[0]} to {_vector(lanes, self.stored)}"),)
        self._store(code, lanes, number, pointer, self.stored, self.size // self.parts)

    def load_packed(self, code: Code, lanes: int, pointer: str, align: int = 0) -> Number:
        """``lanes`` neighbouring numbers as they are computed with."""
        return self._load(code, lanes, pointer, self.scalar, align or self.part_size)

    def store_packed(self, code: Code, lanes: int, number: Number, pointer: str) -> None:
        """The reverse of ``load_packed``."""
        self._store(code, lanes, number, pointer, self.scalar, self.part_size)

    def splat(self, code: Code, number: Number, lanes: int) -> Number:
        """A number in every lane."""
        return tuple(self._splat(code, value, lanes) for value in number)

    def widened(self, code: Code, number: Number, lanes: int) -> Number:
        """What stands in memory as what is computed with. A byte of a bool array that is not 0 is true."""
        if self.dtype.kind == "b":
            zero = "0" if lanes == 1 else "zeroinitializer"
            truth = code.emit(f"icmp ne {self.vector(lanes)} {number[0]}, {zero}")
            return (code.emit(f"zext {_vector(lanes, 'i1')} {truth} to {self.vector(lanes)}"),)
        if self.stored == self.scalar:
            return number
        return (code.emit(f"fpext {_vector(lanes, self.stored)} {number[0]} to {self.vector(lanes)}"),)

    def taken_apart(self, code: Code, both: str, lanes: int, scalar: str) -> Number:
        """Neighbouring complex numbers as their real and their imaginary parts."""
        kind = _vector(2 * lanes, scalar)
        return tuple(
            code.emit(f"shufflevector {kind} {both}, {kind} poison, {mask(range(first, 2 * lanes, 2))}")
            for first in (0, 1)
        )

    def _load(self, code: Code, lanes: int, pointer: str, scalar: str, align: int) -> Number:
        if self.parts == 1 or lanes == 1:
            kind = _vector(lanes, scalar)
            places = [code.at(pointer, k * self.part_size) for k in range(self.parts)]
            return tuple(code.emit(f"load {kind}, ptr {place}, align {align}") for place in places)
        both = code.emit(f"load {_vector(2 * lanes, scalar)}, ptr {pointer}, align {align}")
        return self.taken_apart(code, both, lanes, scalar)

    def _store(self, code: Code, lanes: int, number: Number, pointer: str, scalar: str, align: int) -> None:
        if self.parts == 1 or lanes == 1:
            for k, value in enumerate(number):
                place = code.at(pointer, k * self.part_size)
                code.do(f"store {_vector(lanes, scalar)} {value}, ptr {place}, align {align}")
            return
        kind = _vector(lanes, scalar)
        order = [k // 2 + (k % 2) * lanes for k in range(2 * lanes)]
        both = code.emit(f"shufflevector {kind} {number[0]}, {kind} {number[1]}, {mask(order)}")
        code.do(f"store {_vector(2 * lanes, scalar)} {both}, ptr {pointer}, align {align}")

    def _splat(self, code: Code, value: str, lanes: int) -> str:
        if lanes == 1:
            return value
        kind = self.vector(lanes)
        first = code.emit(f"insertelement {kind} poison, {self.scalar} {value}, i32 0")
        return code.emit(f"shufflevector {kind} {first}, {kind} poison, <{lanes} x i32> zeroinitializer")

    def store_result(
        self, code: Code, w: Sequence[str], lanes: int, number: Number, c: str, row: str, column: str, rows: int
    ) -> None:  # fmt: skip
        """``lanes`` results of one of ``rows`` rows of a tile, from a column on."""
        at = code.at(code.at(c, code.mul(row, w[C_ROW])), code.mul(column, w[C_COLUMN]))
        if not self.is_turned or rows == 1 or lanes == 1:
            self.store(code, lanes, number, at)
            return
        kind = self.vector(lanes)
        for lane in range(lanes):
            one = tuple(code.emit(f"extractelement {kind} {x}, i32 {lane}") for x in number)
            self.store(code, 1, one, code.at(at, code.mul(lane, w[C_COLUMN])))

    # Parameters.

    def _words(self, code: Code) -> list[str]:
        """The parameters, read before the loop: what it stores might be they, as far as LLVM knows."""
        pointers = (A, B, C)
        return [code.pointer("%P", k) if k in pointers else code.word("%P", k) for k in range(PARAMS)]

    def items(self, code: Code, w: Sequence[str], item: Callable[[str, str, str], None]) -> None:
        """``item(batch, i, j)`` for each item: its matrix of the batch, its tile's row and column. They are counted on:
        a division for each would take longer than a small product."""
        tiles = code.mul(w[ROW_TILES], w[COLUMN_TILES])
        batch = code.emit(f"udiv i64 %begin, {tiles}")
        rest = code.sub("%begin", code.mul(batch, tiles))
        row = code.emit(f"udiv i64 {rest}, {w[COLUMN_TILES]}")
        column = code.sub(rest, code.mul(row, w[COLUMN_TILES]))

        def turn(_: str, place: list[str]) -> Sequence[str]:
            item(place[0], place[1], place[2])
            j, is_next = self._counted(code, place[2], "true", w[COLUMN_TILES])
            i, is_last = self._counted(code, place[1], is_next, w[ROW_TILES])
            return [code.add(place[0], code.emit(f"zext i1 {is_last} to i64")), i, j]

        code.loop("%begin", "%end", 1, [("i64", batch), ("i64", row), ("i64", column)], turn)

    def _counted(self, code: Code, number: str, is_on: str, end: str) -> tuple[str, str]:
        """One more where ``is_on``; 0 at the end, and whether that is come to."""
        following = code.add(number, code.emit(f"zext i1 {is_on} to i64"))
        is_end = code.compare("eq", following, end)
        return code.emit(f"select i1 {is_end}, i64 0, i64 {following}"), is_end

    def _matrices(self, code: Code, w: Sequence[str], batch: str) -> tuple[str, str, str]:
        """Where a batch's matrices stand. One loop over the batch is the usual case."""
        many, found = code.new_label("many"), code.new_label("matrices")
        easy = [code.mul(batch, w[stride]) for stride in (A_BATCH, B_BATCH)]
        before = code.block
        code.branch(code.compare("eq", w[LEVELS], 1), found, many)
        code.start(many)

        def level(n: str, values: list[str]) -> Sequence[str]:
            rest, *offsets = values
            place = code.at("%P", code.mul(n, 8 * LEVEL))
            size, *strides = (code.word(place, k) for k in (SIZE, A_BATCH, B_BATCH))
            quotient = code.emit(f"udiv i64 {rest}, {size}")
            index = code.sub(rest, code.mul(quotient, size))
            return [quotient, *(code.add(o, code.mul(index, s)) for o, s in zip(offsets, strides, strict=True))]

        _, *hard = code.loop(0, w[LEVELS], 1, [("i64", batch), ("i64", "0"), ("i64", "0")], level)
        after = code.block
        code.jump(found)
        code.start(found)
        of_a, of_b = (
            code.emit(f"phi i64 [ {x}, %{before} ], [ {y}, %{after} ]") for x, y in zip(easy, hard, strict=True)
        )
        return code.at(w[A], of_a), code.at(w[B], of_b), code.at(w[C], code.mul(batch, w[C_BATCH]))


def _vector(lanes: int, scalar: str) -> str:
    return scalar if lanes == 1 else f"<{lanes} x {scalar}>"


def mask(order: Sequence[int]) -> str:
    """The mask of a shuffle that picks these lanes, in order."""
    return f"<{len(order)} x i32> <{', '.join(f'i32 {k}' for k in order)}>"


def mangled(kind: str) -> str:
    """An LLVM type as it stands in the name of an intrinsic."""
    short = {"float": "f32", "double": "f64"}
    if not kind.startswith("<"):
        return short.get(kind, kind)
    lanes, _, scalar = kind[1:-1].split(" ")
    return f"v{lanes}{short.get(scalar, scalar)}"
