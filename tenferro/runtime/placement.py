"""Placement: a program and target engines go in, an engine for each instruction comes out.

Each instruction has *candidates*: the targets that have its capability (or its family's executor), or the one that it
was put on. First each target in turn is preferred everywhere; where no such placement can be routed, every combination
is tried, the last instruction varying fastest, within a budget.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar, assert_never

from tenferro.engines.engine import Capability, Engine
from tenferro.engines.errors import (
    InputIngressError,
    MissingExtensionError,
    MissingTransferError,
    NoEligibleEngineError,
    PlacementBudgetError,
    UnknownEngineError,
)
from tenferro.lowering.exec_program import ExecProgram, Instruction
from tenferro.runtime.extensions import Families
from tenferro.tracer.lines import at
from tenferro.tracer.op import (
    Collective,
    Contraction,
    Control,
    Extension,
    Host,
    Indexed,
    Library,
    Pointwise,
    Reduction,
    Update,
    View,
)

R = TypeVar("R")


def capability(instruction: Instruction) -> Capability | None:
    """What an engine must be able to do for it; None for what needs a family, or no engine at all."""
    match instruction.op.form:
        case Pointwise():
            return "elementwise"
        case Reduction():
            return "reduction"
        case View():
            return "layout"
        case Indexed() | Update():
            return "indexing"
        case Contraction():
            return "dot_general"
        case Library() | Control() | Host():
            return "library"
        case Extension() | Collective():
            return None
        case _:
            assert_never(instruction.op.form)


def candidates(
    program: ExecProgram, engines: Sequence[Engine], families: Families, storage: str | None
) -> list[tuple[int, ...]]:
    """For each instruction the targets that may run it, by position. Raises NoEligibleEngineError,
    MissingExtensionError, UnknownEngineError (for a place that is no target) with the user's line."""
    known: dict[tuple[object, ...], tuple[int, ...]] = {}
    found = []
    for instruction in program.instructions:
        form = instruction.op.form
        key = (instruction.place, form.family if isinstance(form, Extension) else capability(instruction))
        if key not in known:
            known[key] = _eligible(instruction, engines, families, storage)
        found.append(known[key])
    return found


def _eligible(
    instruction: Instruction, engines: Sequence[Engine], families: Families, storage: str | None
) -> tuple[int, ...]:
    where = at(instruction.line)
    names = ", ".join(e.id for e in engines)
    allowed = range(len(engines))
    if instruction.place:
        allowed = [k for k, e in enumerate(engines) if e.id == instruction.place]  # type: ignore[assignment]
        if not allowed:
            raise UnknownEngineError(
                f"{instruction.op.name}: it is put on {instruction.place}, which is no target; {names} are{where}"
            )
    form = instruction.op.form
    if isinstance(form, Extension):
        able = [k for k in allowed if families.serves(form.family, engines[k])]
        if not able:
            raise MissingExtensionError(f"{instruction.op.name}: {families.missing(form.family, names)}{where}")
    else:
        need = capability(instruction)
        able = [k for k in allowed if need is None or need in engines[k].capabilities]
    able = [k for k in able if storage in (None, engines[k].storage_classes[0])]
    if not able:
        what = capability(instruction) or "it"
        in_storage = f" with results in {storage} memory" if storage is not None else ""
        raise NoEligibleEngineError(
            f"{instruction.op.name}: none of {names} has {what}{in_storage}; one that has is needed{where}"
        )
    return tuple(able)


def _placements(choices: Sequence[tuple[int, ...]], engines: int) -> Iterator[tuple[int, ...]]:
    seen = set()
    for preferred in range(engines):
        placement = tuple([preferred if preferred in c else c[0] for c in choices])
        if placement not in seen:
            seen.add(placement)
            yield placement
    for placement in itertools.product(*choices):
        if placement not in seen:
            yield placement


def search(choices: Sequence[tuple[int, ...]], engines: int, budget: int, route: Callable[[Sequence[int]], R]) -> R:
    """The first placement that ``route`` accepts. Where it raises MissingTransferError or InputIngressError the next
    one is tried; where none is left the first of these is raised, that of the preferred placement. PlacementBudgetError
    after ``budget`` attempts."""
    first: Exception | None = None
    for attempt, placement in enumerate(_placements(choices, engines)):
        if attempt == budget:
            raise PlacementBudgetError(
                f"prepare: {budget} placements were tried and none can be routed; the first: {first}"
            )
        try:
            return route(placement)
        except (MissingTransferError, InputIngressError) as error:
            first = first or error
    assert first is not None  # there is at least one placement
    raise first
