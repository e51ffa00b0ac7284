"""Where memory begins and ends: steps in order go in, what each reads, and what is dead after it, come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tenferro.lowering.exec_program import ExecProgram, Slot
from tenferro.lowering.plan import AdoptStep, CallStep, RegionStep, Step, ViewStep
from tenferro.lowering.references import References
from tenferro.lowering.region import Gather, Load


def memory_root(references: References, slot: int) -> int:
    """The slot whose memory ``slot`` shares: itself, unless it is a view. A view of a scalar is its own."""
    while True:
        source = references.of(slot).source
        if not isinstance(source, Slot):
            return slot
        if source.index not in references.own_view:
            return source.index
        instruction = references.instruction(source.index)
        assert instruction is not None
        inner = instruction.inputs[0]
        if not isinstance(inner, Slot):
            return source.index
        slot = inner.index


def memory_read(references: References, step: Step) -> set[int]:
    """The memory that a step reads."""
    match step:
        case RegionStep(region=region):
            slots = list(region.reads())
        case AdoptStep(base=base):
            slots = [base.index]
        case ViewStep(instruction=instruction) | CallStep(instruction=instruction):
            slots = [s.index for s in instruction.inputs if isinstance(s, Slot)]
    return {memory_root(references, s) for s in slots}


def _writes(step: Step) -> tuple[int, ...]:
    match step:
        case RegionStep(region=region):
            return tuple(s.slot for s in region.stores)
        case AdoptStep(target=target):
            return (target.index,)
        case ViewStep(instruction=instruction) | CallStep(instruction=instruction):
            return tuple(s.index for s in instruction.outputs)


def steal(references: References, program: ExecProgram, steps: Sequence[Step]) -> list[Step]:
    """Let an update take its base's memory where the run owns it and nothing reads it later. An element-by-element
    update that reads the very box it writes (``a[s] += v``) may steal too: each lane reads before it writes."""
    last: dict[int, int] = {}
    for position, step in enumerate(steps):
        last.update((root, position) for root in memory_read(references, step))
    given = {i.slot.index for i in program.inputs}
    kept = {memory_root(references, o.index) for o in program.outputs if isinstance(o, Slot)}
    updaters = updaters_of(steps)
    found = list(steps)
    for position, step in enumerate(steps):
        if isinstance(step, AdoptStep) and memory_root(references, step.base.index) not in given | kept:
            update_in_place(references, found, position, last, updaters[step.target.index])
    return found


def updaters_of(steps: Sequence[Step]) -> dict[int, int]:
    """For each slot that a region stores, the step."""
    return {s.slot: k for k, step in enumerate(steps) if isinstance(step, RegionStep) for s in step.region.stores}


def update_in_place(
    references: References, steps: list[Step], position: int, last: Mapping[int, int], updater: int
) -> bool:
    """Have the AdoptStep at ``position`` take its base's memory, unless something would still read what is overwritten.
    ``last``: the last step that reads each memory; ``updater``: the step that writes the target."""
    step = steps[position]
    assert isinstance(step, AdoptStep)
    base, target = step.base.index, step.target.index
    if memory_root(references, base) != base or last[base] not in (position, updater):
        return False
    if last[base] == updater:
        if any(base in memory_read(references, steps[k]) for k in range(position + 1, updater)):
            return False
        renamed = _in_place(references, steps[updater], base, target)
        if renamed is None:
            return False
        steps[updater] = renamed
    steps[position] = replace(step, steal=True)
    return True


def _in_place(references: References, step: Step, base: int, target: int) -> Step | None:
    """The update's region with its loads of ``base`` renamed to ``target``, if they all are of the box it writes."""
    if not isinstance(step, RegionStep) or step.region.row_axes:
        return None
    region = step.region
    (store,) = [s for s in region.stores if s.slot == target]
    nodes = []
    for node in region.nodes:
        if isinstance(node, Load) and node.access.slot == base:
            if node.windows or node.access.views != store.views:
                return None
            node = replace(node, access=replace(node.access, slot=target))
        elif isinstance(node, Load | Gather) and memory_root(references, node.access.slot) == base:
            return None
        nodes.append(node)
    return RegionStep(replace(region, nodes=tuple(nodes)))


def frees(references: References, program: ExecProgram, steps: Sequence[Step]) -> list[tuple[int, ...]]:
    """After each step, the slots whose memory nothing reads any more; views of it are listed with it, and so is a base
    whose memory an update took."""
    given = {i.slot.index for i in program.inputs}
    kept = {memory_root(references, o.index) for o in program.outputs if isinstance(o, Slot)}
    last: dict[int, int] = {}
    views: dict[int, list[int]] = {}
    for position, step in enumerate(steps):
        for root in memory_read(references, step):
            last[root] = position
        for slot in _writes(step):
            root = memory_root(references, slot)
            last[root] = position
            if root != slot:
                views.setdefault(root, []).append(slot)
    for step in steps:
        if isinstance(step, AdoptStep) and step.steal:
            base, target = step.base.index, step.target.index
            last.pop(base, None)
            views.setdefault(target, []).extend((base, *views.pop(base, ())))
    found: list[list[int]] = [[] for _ in steps]
    for root, position in last.items():
        if root not in given and root not in kept:
            found[position] += [root, *views.get(root, [])]
    return [tuple(sorted(f)) for f in found]
