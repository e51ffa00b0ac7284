"""Matrix products: a dtype in, the text of kernels that multiply strided matrices out, one for every size.

Each element of a result is one chain of fused multiply-adds along the contracted axis, from the first index to the
last, or the tree of ``dots``; which of both depends on the sizes alone. So its bits depend neither on threads nor on
tiles nor on layouts nor on the vector's width. Entries (``void (ptr params, i64 begin, i64 end)``, items are tiles of
results):

``packed``: both operands are copied block by block into the order in which registers are filled (the scheme of Goto and
van de Geijn, "Anatomy of high-performance matrix multiplication", 2008).
``direct{lanes}x{rows}x{vectors}``: small products and few rows, read where they lie; the right operand's rows are
contiguous, or ``lanes`` is 1.
``triple``: batches of small products with three columns, each row of which is most of a vector of four.
``dots``, ``strided_dots``: one column.
"""

from __future__ import annotations

from tenferro.engines.cpu.product_direct import DirectWriter
from tenferro.engines.cpu.product_packed import PackedWriter
from tenferro.engines.cpu.product_writer import mangled


class ProductText(PackedWriter, DirectWriter):
    """Writes the module of one dtype for machines with vectors of so many bits."""

    def text(self) -> str:
        """The module."""
        functions = self.packed_functions() + self.direct_functions()
        declared = ["declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"]
        declared += [f"declare {t} @llvm.fma.{mangled(t)}({t}, {t}, {t})" for t in sorted(self.used)]
        return "\n".join([*declared, *functions])
