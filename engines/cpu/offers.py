"""What native calls may run of an executable: a call that it has run in, its block, chain and views out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tenferro.engines.cpu.actions import BoundPlan, Path
from tenferro.engines.cpu.chains import Asked, chained, with_numbers
from tenferro.engines.cpu.direct import direct
from tenferro.engines.cpu.hinted import hint
from tenferro.engines.cpu.kernel import FAST, GOOD, TIER_FACTOR
from tenferro.engines.engine import Shortcut

if TYPE_CHECKING:
    from tenferro.engines.cpu.engine import CpuExecutable


def shortcut(unit: CpuExecutable, bound: BoundPlan, layouts: Sequence[Any]) -> Shortcut | None:
    """For calls of just the layouts that the plan is bound to."""
    calls = max(1, int(bound.seconds_left / max(bound.seconds, 1e-6))) if bound.seconds_left > 0.0 else -1
    return _offered(unit, Asked(bound, layouts, bound.paths), calls)


def shortcut_of_sizes(unit: CpuExecutable, layouts: Sequence[Any], is_spent: bool) -> Shortcut | None:
    """For calls of any sizes for which the plan would be bound as for these."""
    known = unit.bound_plans()
    level = GOOD if is_spent or unit.tier == "2" or any(b.level == GOOD for b in known) else FAST
    binder = unit.at_layouts(layouts, level)
    bound = binder.bind(0)
    paths: list[Path] = []
    if bound.tail is not None:
        ran = unit.plan_of_layouts([with_numbers(x, hint) for x in layouts])
        paths = [] if ran is None else ran.paths
    asked = Asked(bound, layouts, paths, lambda again: unit.at_layouts(again, level).bind(0))
    made = _offered(unit, asked, -1)
    if made is not None and bound.level == FAST and unit.tier == "auto":
        seconds = max(hint(binder.seconds), 1e-6)
        made = replace(made, calls=max(1, int(TIER_FACTOR * unit.compile_seconds / seconds)))
    return made


def _offered(unit: CpuExecutable, asked: Asked, calls: int) -> Shortcut | None:
    """The plan too: its block holds the numbers that launches read by address."""
    bound = asked.bound
    found = direct(bound, len(asked.layouts)) or chained(asked)
    return None if found is None else found.shortcut((unit, bound), unit.share, calls)
