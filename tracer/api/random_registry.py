"""The functions of ``tenferro.random``, all of them: the families beside this file in, one dict by name out."""

from __future__ import annotations

import tenferro.tracer.api.registry  # noqa: F401 (fills the API, whose functions the families call by name)
from tenferro.tracer.api import (
    random_choice,
    random_continuous,
    random_discrete,
    random_gamma,
    random_keys,
    random_matrices,
    random_uniform,
)
from tenferro.tracer.api.record import TracedFunction

_FAMILIES = (
    random_keys, random_uniform, random_continuous, random_gamma, random_discrete, random_choice, random_matrices,
)  # fmt: skip
RANDOM: dict[str, TracedFunction] = {f.name: f for family in _FAMILIES for f in family.FUNCTIONS}
