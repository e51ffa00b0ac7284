"""What a bound plan does, told: its actions go in, segments and seams with their reasons come out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from tenferro.engines.cpu.actions import Action, Call, Drop, Enter, Recheck, Select, ViewOf
from tenferro.lowering.plan import Plan, Stretch, seam_of
from tenferro.tracer.ops import library

SCATTERED = "a run-time extent, of a mask or of rows that do not lie at equal distances"


def stretches(plan: Plan, actions: Sequence[Action]) -> tuple[Stretch, ...]:
    """A segment is one native call, selections included where nothing beside them needs Python (``chains``). Views, and
    steps that have nothing to do, stand with the steps before them."""
    if not any(isinstance(action, Call | Recheck) for action in actions):
        launched = [step for action in actions for step in _launched(action)]
        return tuple(plan.segment(range(len(plan.steps)), launched))
    found: list[Stretch] = []
    told = 0

    def tell(end: int, launched: Sequence[int] = ()) -> None:
        nonlocal told
        found.extend(plan.segment(range(told, end), launched))
        told = max(told, end)

    for action in actions:
        match action:
            case Enter(steps=steps):
                tell(max(steps, default=-1) + 1, steps)
            case Call(instruction=instruction, step=step) | Select(instruction=instruction, step=step):
                tell(step)
                is_scattered = isinstance(action, Call) and instruction.op is library.mask_select
                found.append(seam_of(step, instruction, SCATTERED if is_scattered else ""))
                told = step + 1
            case ViewOf() | Drop() | Recheck():
                pass
            case _:
                assert_never(action)
    tell(len(plan.steps))
    return tuple(found)


def _launched(action: Action) -> tuple[int, ...]:
    """The steps that native code carries out in an action."""
    match action:
        case Enter(steps=steps):
            return steps
        case Select(step=step):
            return (step,)
        case _:
            return ()
