"""A tile of columns: what every column kernel's entry does round the work itself.

In: a column kernel. Out: ``@tile(params, begin, end)``: for each item the addresses of its tile, packed loads
transposed into scratch memory, the work (in the subclasses), packed stores taken out again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from tenferro.engines.cpu.body import Body, CodeBuilder
from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.params import BLOCKS, LENGTH, TILE
from tenferro.engines.cpu.tiles import Lines, transpose_function, zero_tails
from tenferro.lowering.region import Iota

if TYPE_CHECKING:
    from tenferro.engines.cpu.columns import ColumnKernel


class TileEntry(ABC):
    """Writes ``@tile``. ``scratch``: packed access → its tile, row after row."""

    def __init__(self, kernel: ColumnKernel) -> None:
        self.kernel = kernel
        self.region = kernel.region
        self.code = Code()
        self.builder = CodeBuilder(kernel.module, kernel.lanes, kernel.outline, self.code)
        self.body = Body(kernel.region, kernel.variant, kernel.params, self.code, self.builder, "%P", kernel.axis_loops)
        self.counts = any(isinstance(n, Iota) for n in self.region.nodes)
        self.pointers: list[str] = []
        self.scratch: dict[int, str] = {}
        self.width = ""
        self.scalars: list[str] = []
        self.row_strides: list[list[str]] = []

    @abstractmethod
    def allocate(self) -> None:
        """Stack memory, before the loop over items."""

    @abstractmethod
    def tile(self) -> None:
        """The work on one tile: ``width`` columns at ``pointers``."""

    def text(self) -> str:
        code, kernel = self.code, self.kernel
        self.allocate()
        ranks = range(kernel.variant.row_rank)
        self.row_strides = [
            [code.word("%P", kernel.params["pr", a, j]) for j in ranks] for a in range(len(kernel.keys))
        ]
        columns = code.word("%P", kernel.params["o", kernel.variant.outer_rank - 1])
        self.length = code.word("%P", LENGTH)

        def item(i: str, _: list[str]) -> list[str]:
            tiles, tile = code.word("%P", BLOCKS), code.word("%P", TILE)
            outer = code.emit(f"udiv i64 {i}, {tiles}")
            first = code.mul(code.sub(i, code.mul(outer, tiles)), tile)
            self.width = code.minimum(tile, code.sub(columns, first))
            self._locate(outer, first)
            self._transpose("node")
            self.tile()
            self._transpose("store")
            return []

        code.loop("%begin", "%end", 1, [], item)
        code.do("ret void")
        return code.function("define void @tile(ptr noalias %P, i64 %begin, i64 %end) nounwind")

    def _locate(self, outer: str, first: str) -> None:
        """Addresses of every access at the tile's first column and the row's first element."""
        code, rank = self.code, self.kernel.variant.outer_rank
        indices = [first]
        rest = outer
        for j in reversed(range(rank - 1)):
            if j == 0:
                indices.insert(0, rest)
                continue
            size = code.word("%P", self.kernel.params["o", j])
            indices.insert(0, code.emit(f"urem i64 {rest}, {size}"))
            rest = code.emit(f"udiv i64 {rest}, {size}")
        self.scalars = indices
        self.pointers = []
        for a in range(len(self.kernel.keys)):
            place = code.pointer("%P", self.kernel.params["p", a])
            for j, index in enumerate(indices):
                place = code.at(place, code.mul(index, code.word("%P", self.kernel.params["po", a, j])))
            self.pointers.append(place)

    def _transpose(self, kind: str) -> None:
        """Bring packed loads into scratch memory, or take packed stores out of it."""
        code, params = self.code, self.kernel.params
        for a, scratch in self.scratch.items():
            if self.kernel.keys[a][0] != kind:
                continue
            size = self.kernel.itemsize(a)
            name = transpose_function(self.kernel.module, size, out=kind == "store")
            stride = code.word("%P", params["po", a, self.kernel.variant.outer_rank - 1])
            step = code.word("%P", params["pr", a, 0])
            # A store of the outer level, and a load that stands still along the row, have one row.
            still = code.compare("eq", step, 0)
            rows = code.emit(f"select i1 {still}, i64 1, i64 {self.length}")
            code.do(
                f"call void {name}(ptr {scratch}, i64 {self.kernel.widest_tile * size}, ptr {self.pointers[a]}, "
                f"i64 {stride}, i64 {step}, i64 {rows}, i64 {self.width})"
            )
            if kind == "node":
                pitch = self.kernel.widest_tile * size
                zero_tails(self.kernel.module, code, Lines(scratch, pitch, rows, self.width), self.kernel.lanes, size)

    def column_index(self, v: str) -> str | None:
        """The index of column v of the tile along the last outer loop, where some node asks for it."""
        return self.code.add(self.scalars[-1], v) if self.counts else None

    def copy(self, target: str, source: str, count: str) -> None:
        self.kernel.module.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        self.code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {target}, ptr {source}, i64 {count}, i1 false)")
