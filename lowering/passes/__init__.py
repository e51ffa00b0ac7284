"""The passes: SemanticProgram in, SemanticProgram of the same meaning out, in the order of ``PASSES``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tenferro.lowering.passes.dead import drop_dead
from tenferro.lowering.passes.share import share_equal
from tenferro.tracer.program import SemanticProgram

Pass: TypeAlias = Callable[[SemanticProgram], SemanticProgram]

PASSES: list[tuple[str, Pass]] = [
    ("drop dead operations", drop_dead),
    ("share equal operations", share_equal),
]
