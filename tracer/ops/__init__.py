"""The table of ops: every row, by name.

Families stand side by side: ``pointwise``, ``rounding``, ``elementary``, ``random``, ``reductions``, ``layout`` (views,
windows, index arrays, updates), ``library`` (matrix products and NumPy calls at seams), ``control`` and ``collectives``
(where engines meet).
"""

from __future__ import annotations

from tenferro.tracer.op import Op
from tenferro.tracer.ops import (
    collectives,
    control,
    decompositions,
    elementary,
    lanes,
    layout,
    library,
    pointwise,
    random,
    reductions,
    rounding,
)

FAMILIES = (
    pointwise, rounding, elementary, random, reductions, layout, library, decompositions, control, lanes, collectives,
)  # fmt: skip
OPS: dict[str, Op] = {row.name: row for family in FAMILIES for row in vars(family).values() if isinstance(row, Op)}
