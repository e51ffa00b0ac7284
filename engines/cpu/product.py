"""Matrix products: a dtype and the name of a kernel in, its text out; one kernel serves every size.

Each element of a result is one chain of fused multiply-adds along the contracted axis, from the first index to the
last, or the tree of ``dots``; which of both depends on the sizes alone. So its bits depend neither on threads nor on
tiles nor on layouts nor on the vector's width. float16 is computed in float32 and rounded once, at the end; complex
numbers take two chains of real multiply-adds. Kernels (``void (ptr params, i64 begin, i64 end)``, items are tiles of
results):

``packed``: both operands are copied block by block into the order in which registers are filled (the scheme of Goto and
van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
``direct{lanes}x{rows}x{vectors}``: small products and few rows, read where they lie; the right operand's rows are
contiguous, or ``lanes`` is 1.
``lines{lanes}x{vectors}x{rows}``: few rows by a matrix whose columns are contiguous.
``triple``: batches of small products with three columns, each row of which is most of a vector of four.
``dots``, ``strided_dots``: one column.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.engines.cpu.product_direct import DirectWriter
from tenferro.engines.cpu.product_lines import LinesWriter
from tenferro.engines.cpu.product_packed import PackedWriter
from tenferro.engines.cpu.product_writer import mangled
from tenferro.tracer.records import dataclass


class ProductText(PackedWriter, LinesWriter, DirectWriter):
    """Writes the module of one kernel, for one dtype and machines with vectors of so many bits."""

    def text(self, entry: str) -> str:
        """The module that defines ``entry``."""
        functions = self._functions(entry)
        declared = [
            "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
            "declare void @llvm.prefetch.p0(ptr, i32, i32, i32)",
        ]
        declared += [f"declare {t} @llvm.fma.{mangled(t)}({t}, {t}, {t})" for t in sorted(self.used)]
        return "\n".join([*declared, *functions])

    def _functions(self, entry: str) -> list[str]:
        match entry:
            case "packed":
                return self.packed_functions()
            case "triple":
                return [self.triple()]
            case "dots" | "strided_dots":
                return [self.dots(entry == "strided_dots")]
        kind = entry.rstrip("0123456789x")
        lanes, second, third = (int(n) for n in entry.removeprefix(kind).split("x"))
        if kind == "lines":
            return [self.lines(lanes, second, third)]
        return [self.direct(lanes, second, third)]


@dataclass(frozen=True, slots=True)
class Entry:
    """A kernel: its dtype, its name, and whether its operands have changed places."""

    dtype: np.dtype[Any]
    name: str
    is_turned: bool = False

    def __str__(self) -> str:
        return f"product of {self.dtype.name}, {self.name}{', turned' if self.is_turned else ''}"

    def text(self, vector_bits: int) -> str:
        """Its module for machines with vectors of so many bits."""
        return ProductText(self.dtype, vector_bits, self.is_turned).text(self.name)
