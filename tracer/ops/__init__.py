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
    elementary,
    lanes,
    layout,
    library,
    pointwise,
    random,
    reductions,
    rounding,
)

OPS: dict[str, Op] = {
    row.name: row
    for family in (pointwise, rounding, elementary, random, reductions, layout, library, control, lanes, collectives)
    for row in vars(family).values()
    if isinstance(row, Op)
}
