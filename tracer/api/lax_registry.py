"""The functions of ``tenferro.lax``, all of them: the families beside this file in, one dict by name out."""

from __future__ import annotations

import tenferro.tracer.api.registry  # noqa: F401 (fills the API, whose functions the families call by name)
from tenferro.tracer.api import (
    lax_bits,
    lax_contraction,
    lax_convolution,
    lax_elementwise,
    lax_gather,
    lax_layout,
    lax_order,
    lax_slicing,
)
from tenferro.tracer.api.record import TracedFunction

LAX: dict[str, TracedFunction] = {
    f.name: f
    for family in (
        lax_slicing, lax_gather, lax_layout, lax_contraction, lax_elementwise, lax_convolution, lax_order, lax_bits,
    )
    for f in family.FUNCTIONS
}  # fmt: skip
