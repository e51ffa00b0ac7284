"""The passes: SemanticProgram in, SemanticProgram of the same meaning out, in the order of ``PASSES``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tenferro.lowering.passes.algebra import simplify_algebra
from tenferro.lowering.passes.barriers import open_barriers
from tenferro.lowering.passes.conjugates import sink_conjugates
from tenferro.lowering.passes.constants import fold_constants
from tenferro.lowering.passes.dead import drop_dead
from tenferro.lowering.passes.hoist import hoist_invariants
from tenferro.lowering.passes.layout import simplify_layout
from tenferro.lowering.passes.push import push_views
from tenferro.lowering.passes.share import share_equal
from tenferro.lowering.passes.sizes import unify_sizes
from tenferro.lowering.passes.windows import push_windows
from tenferro.tracer.program import SemanticProgram

Pass: TypeAlias = Callable[[SemanticProgram], SemanticProgram]

PASSES: list[tuple[str, Pass]] = [
    ("drop dead operations", drop_dead),
    ("unify equal sizes", unify_sizes),
    ("simplify algebra", simplify_algebra),
    ("fold constants", fold_constants),
    ("simplify layout", simplify_layout),
    ("share equal operations", share_equal),
    ("push views to loads", push_views),
    ("push windows to loads", push_windows),
    ("simplify layout again", simplify_layout),
    ("sink conjugates", sink_conjugates),
    ("simplify algebra again", simplify_algebra),
    ("hoist what turns compute alike", hoist_invariants),
    ("share equal operations again", share_equal),
    ("open barriers", open_barriers),
    ("drop what that left dead", drop_dead),
]
