"""The table of ops: every row, by name.

Families stand side by side: ``pointwise``, ``rounding``, ``elementary``, ``reductions``, ``layout`` (views, windows,
index arrays, updates) and ``library`` (matrix products and NumPy calls at seams).
"""

from __future__ import annotations

from tenferro.tracer.op import Op
from tenferro.tracer.ops import elementary, layout, library, pointwise, reductions, rounding

OPS: dict[str, Op] = {
    row.name: row
    for family in (pointwise, rounding, elementary, reductions, layout, library)
    for row in vars(family).values()
    if isinstance(row, Op)
}
