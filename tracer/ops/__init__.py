"""The table of ops: every row, by name.

Families stand side by side: ``pointwise``, ``rounding`` and their like, ``reductions``, ``layout`` (views, windows,
index arrays, updates) and ``library`` (matrix products and NumPy calls at seams).
"""

from __future__ import annotations

from tenferro.tracer.op import Op
from tenferro.tracer.ops import layout, library, pointwise, reductions, rounding

OPS: dict[str, Op] = {
    row.name: row
    for family in (pointwise, rounding, reductions, layout, library)
    for row in vars(family).values()
    if isinstance(row, Op)
}
