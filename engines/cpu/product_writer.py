"""What the kernels of matrix products share: parameters, tiles and registers, and arithmetic on elements of a dtype.

Every function is ``void (ptr params, i64 begin, i64 end)`` over items, which are tiles of results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
DIRECT_FORMS = ((1, 8), (4, 4), (4, 2), (4, 1))
TALL = 8
"""Rows of a tile of one column, an element to a chain."""
"""(rows, vectors) of a tile of ``direct``: eight or sixteen chains hide the latency of a multiply-add; fewer vectors
are for narrow results, of which there are many."""
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


class ProductWriter:
    """Writes functions of one dtype for machines with vectors of so many bits."""

    def __init__(self, dtype: np.dtype[np.generic], vector_bits: int) -> None:
        self.size = dtype.itemsize
        self.is_float = dtype.kind == "f"
        self.scalar = {("f", 4): "float", ("f", 8): "double"}.get((dtype.kind, self.size), f"i{8 * self.size}")
        self.dtype = dtype
        self.registers = registers(dtype, vector_bits)
        self.used: set[str] = set()

    def vector(self, lanes: int) -> str:
        return self.scalar if lanes == 1 else f"<{lanes} x {self.scalar}>"

    def multiply_add(self, code: Code, a: str, b: str, c: str, kind: str) -> str:
        if self.is_float:
            self.used.add(kind)
            return code.emit(f"call {kind} @llvm.fma.{mangled(kind)}({kind} {a}, {kind} {b}, {kind} {c})")
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

    def _words(self, code: Code) -> list[str]:
        """The parameters, read before the loop: what it stores might be they, as far as LLVM knows."""
        pointers = (A, B, C)
        return [code.pointer("%P", k) if k in pointers else code.word("%P", k) for k in range(PARAMS)]

    def _place(self, code: Code, w: Sequence[str], index: str) -> tuple[str, str, str]:
        """The matrix of the batch, the tile's row and column of an item."""
        tiles = code.mul(w[ROW_TILES], w[COLUMN_TILES])
        batch, rest = self._divided(code, index, tiles, code.compare("slt", index, tiles), ("0", index))
        i, j = self._divided(code, rest, w[COLUMN_TILES], code.compare("eq", w[COLUMN_TILES], 1), (rest, "0"))
        return batch, i, j

    def _divided(self, code: Code, number: str, divisor: str, is_easy: str, easy: tuple[str, str]) -> tuple[str, str]:
        """Quotient and remainder, without a division (some 15 cycles) where they are known."""
        hard, found = code.new_label("hard"), code.new_label("found")
        before = code.block
        code.branch(is_easy, found, hard)
        code.start(hard)
        quotient = code.emit(f"udiv i64 {number}, {divisor}")
        rest = code.sub(number, code.mul(quotient, divisor))
        code.jump(found)
        code.start(found)
        q, r = (
            code.emit(f"phi i64 [ {a}, %{before} ], [ {b}, %{hard} ]")
            for a, b in zip(easy, (quotient, rest), strict=True)
        )
        return q, r

    def _matrices(self, code: Code, w: Sequence[str], batch: str) -> tuple[str, str, str]:
        a, b, c = (
            code.at(w[base], code.mul(batch, w[stride])) for base, stride in ((A, A_BATCH), (B, B_BATCH), (C, C_BATCH))
        )
        return a, b, c


def mangled(kind: str) -> str:
    """An LLVM type as it stands in the name of an intrinsic."""
    short = {"float": "f32", "double": "f64"}
    if not kind.startswith("<"):
        return short.get(kind, kind)
    lanes, _, scalar = kind[1:-1].split(" ")
    return f"v{lanes}{short.get(scalar, scalar)}"
