"""Fusion: an ExecProgram goes in, the Plan that runs it comes out.

Instructions are clustered (``clusters``), it is decided which values need arrays (``needs``), every cluster becomes a
region (``emission``), and the steps are put in an order that follows the program's wherever dependencies allow.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import pairwise

from tenferro.lowering.clusters import Cluster, Clusters, fuses, is_iota
from tenferro.lowering.emission import Context, RegionBuilder, fill_region
from tenferro.lowering.exec_program import ExecProgram, Instruction, Slot
from tenferro.lowering.in_place import in_place
from tenferro.lowering.lifetimes import frees, memory_root, steal
from tenferro.lowering.masks import lane_conditions
from tenferro.lowering.needs import is_inside, needs
from tenferro.lowering.plan import AdoptStep, CallStep, Plan, RegionStep, Step, ViewStep
from tenferro.lowering.references import References
from tenferro.lowering.region import Region
from tenferro.tracer.op import Update, View
from tenferro.tracer.records import dataclass


def plan(program: ExecProgram, prefix: str = "") -> Plan:
    """The steps of ``program``, and the slots whose memory is dead after each. ``prefix``: of the regions' names, which
    tell the parts of a program apart."""
    references = References(program)
    clusters = Clusters(program, references)
    context = Context(
        program, references, clusters, needs(program, references, clusters), lane_conditions(program)
    )  # fmt: skip
    scheduler = _Scheduler(context, _drafts(context, prefix))
    steps = steal(references, program, scheduler.run())
    dead = frees(references, program, steps)
    return Plan(program, tuple(in_place(references, steps, dead)), tuple(dead))


@dataclass(frozen=True, slots=True)
class _Draft:
    """A step with what it reads and writes, before the order is known. ``key`` is its place in the program."""

    key: float
    step: Step
    reads: tuple[int, ...]
    writes: tuple[int, ...]


# Drafts


def _drafts(context: Context, prefix: str) -> list[_Draft]:
    found = _region_drafts(context, prefix)
    for slot in sorted(context.needs.fills):
        number = context.references.producer[slot]
        found.append(_Draft(number, RegionStep(fill_region(context, slot, f"{prefix}fill{slot}")), (), (slot,)))
    for number, instruction in enumerate(context.program.instructions):
        if not fuses(instruction) and not isinstance(instruction.op.form, View):
            reads = tuple(s.index for s in instruction.inputs if isinstance(s, Slot))
            writes = tuple(s.index for s in instruction.outputs)
            found.append(_Draft(number, CallStep(instruction), reads, writes))
    return found


def _region_drafts(context: Context, prefix: str) -> list[_Draft]:
    found: list[_Draft] = []
    n_regions = 0
    clusters = context.clusters.all()
    for slot in sorted(context.needs.memory):
        number = context.references.producer.get(slot)
        if number is not None and is_iota(context.program.instructions[number]):
            shape = context.references.types[slot].shape
            clusters.append(Cluster(shape, 1, members=[number]))
    clusters.sort(key=lambda c: max(c.members))
    for cluster in clusters:
        members = _needed(context, cluster)
        if not members:
            continue
        region = _region(context, cluster, members, f"{prefix}r{n_regions}")
        n_regions += 1
        updates = [n for n in members if isinstance(context.program.instructions[n].op.form, Update)]
        adopted = tuple(context.program.instructions[n].outputs[0].index for n in updates)
        stored = tuple(s.slot for s in region.stores if s.slot not in adopted)
        found.append(_Draft(max(members), RegionStep(region), (*region.reads(), *(-1 - t for t in adopted)), stored))
        found += [_adoption(context.program.instructions[n], max(members)) for n in updates]
    return found


def _adoption(instruction: Instruction, key: float) -> _Draft:
    base, target = instruction.inputs[0], instruction.outputs[0]
    assert isinstance(base, Slot)
    return _Draft(key - 0.5, AdoptStep(base, target, False, instruction), (base.index,), (-1 - target.index,))


def _needed(context: Context, cluster: Cluster) -> list[int]:
    """The members that a stored value depends on, in program order."""
    members = sorted(cluster.members)
    wanted: set[int] = set()
    kept: list[int] = []
    for number in reversed(members):
        instruction = context.program.instructions[number]
        slot = instruction.outputs[0].index
        is_update = isinstance(instruction.op.form, Update)
        if not (is_update or slot in wanted or slot in context.needs.memory):
            continue
        kept.append(number)
        for source in instruction.inputs:
            if isinstance(source, Slot) and is_inside(context.clusters, number, source.index):
                wanted.add(context.clusters.same_as.get(source.index, source.index))
    return kept[::-1]


def _region(context: Context, cluster: Cluster, members: Sequence[int], name: str) -> Region:
    builder = RegionBuilder(context, cluster)
    if any(context.conditions.get(n) for n in members):
        sources = [s for n in members for s in context.program.instructions[n].inputs]
        builder.loaded = frozenset(s.index for s in sources if isinstance(s, Slot))
    for number in _in_mask_order(context, members):
        builder.member(number)
    for number in members:
        slot = context.program.instructions[number].outputs[0].index
        if slot in context.needs.memory and not isinstance(context.program.instructions[number].op.form, Update):
            builder.store(slot)
    return builder.finish(name, members)


def _in_mask_order(context: Context, members: Sequence[int]) -> Sequence[int]:
    """Program order, except that a checked instruction waits for the conditions that decide which of its lanes count.
    A condition that hangs on the checked value itself is not waited for."""
    if not any(context.conditions.get(n) for n in members):
        return members
    same_as = context.clusters.same_as
    writer = {context.program.instructions[n].outputs[0].index: n for n in members}
    waits: dict[int, set[int]] = {}
    for n in members:
        sources = [s.index for s in context.program.instructions[n].inputs if isinstance(s, Slot)]
        waits[n] = {writer[same_as.get(s, s)] for s in sources if same_as.get(s, s) in writer}
    for n in members:
        wanted = {same_as.get(c.slot, c.slot) for c in context.conditions.get(n, ())}
        hanging = _followers(n, members, waits) if wanted else set()
        waits[n] |= {writer[s] for s in wanted if s in writer} - hanging
    return _by_waits(members, waits)


def _followers(first: int, members: Sequence[int], waits: dict[int, set[int]]) -> set[int]:
    """``first`` and the members that depend on it."""
    found = {first}
    for n in members:
        if not found.isdisjoint(waits[n]):
            found.add(n)
    return found


def _by_waits(members: Sequence[int], waits: dict[int, set[int]]) -> list[int]:
    followers: dict[int, list[int]] = {n: [] for n in members}
    for n, others in waits.items():
        for other in others:
            followers[other].append(n)
    left = {n: len(others) for n, others in waits.items()}
    ready = [n for n in members if not left[n]]
    order: list[int] = []
    while ready:
        n = heapq.heappop(ready)
        order.append(n)
        for follower in followers[n]:
            left[follower] -= 1
            if not left[follower]:
                heapq.heappush(ready, follower)
    return order if len(order) == len(members) else list(members)


# Order


def _is_ordered(instruction: Instruction) -> bool:
    return instruction.op.is_ordered(instruction.params)


class _Scheduler:
    """Kahn's algorithm with the program's order as tie break; views are made just before what needs them."""

    def __init__(self, context: Context, drafts: list[_Draft]) -> None:
        self.context = context
        self.drafts = drafts
        self.steps: list[Step] = []
        self.made: set[int] = set()

    def run(self) -> list[Step]:
        writer = {slot: k for k, d in enumerate(self.drafts) for slot in d.writes}
        for k, d in enumerate(self.drafts):
            # What an adopted slot holds is complete when the region that updates it has run.
            writer.update((-1 - slot, k) for slot in d.reads if slot < 0)
        waits = [
            {writer[root] for slot in d.reads for root in self._memory(slot) if root in writer} - {k}
            for k, d in enumerate(self.drafts)
        ]
        for k, d in enumerate(self.drafts):
            waits[k] |= {writer[slot] for slot in (*(s for s in d.reads if s < 0), *self._size_slots(d))} - {k}
        ordered = [
            k for k, d in enumerate(self.drafts) if isinstance(d.step, CallStep) and _is_ordered(d.step.instruction)
        ]
        for before, after in pairwise(ordered):
            waits[after].add(before)
        followers: list[list[int]] = [[] for _ in self.drafts]
        for k, others in enumerate(waits):
            for other in others:
                followers[other].append(k)
        left = [len(w) for w in waits]
        ready = [(d.key, k) for k, d in enumerate(self.drafts) if not left[k]]
        heapq.heapify(ready)
        while ready:
            _, k = heapq.heappop(ready)
            self._emit(self.drafts[k])
            for follower in followers[k]:
                left[follower] -= 1
                if not left[follower]:
                    heapq.heappush(ready, (self.drafts[follower].key, follower))
        if any(left):
            raise AssertionError(f"plan of {self.context.program.name}: the steps depend on one another in a circle")
        for o in self.context.program.outputs:
            if isinstance(o, Slot):
                self._make_view(o.index)
        return self.steps

    def _size_slots(self, draft: _Draft) -> Iterable[int]:
        """The slots that must be made before the draft's sizes are known."""
        match draft.step:
            case RegionStep(region=region):
                instructions = [self.context.program.instructions[n] for n in region.instructions or (int(draft.key),)]
            case (
                AdoptStep(instruction=instruction)
                | CallStep(instruction=instruction)
                | ViewStep(instruction=instruction)
            ):
                instructions = [instruction]
        return [slot for i in instructions for slot in self.context.references.size_slots(i)]

    def _memory(self, slot: int) -> Iterable[int]:
        """The slot whose step makes the memory behind ``slot``."""
        if slot < 0:
            return ()
        return (memory_root(self.context.references, slot),)

    def _emit(self, draft: _Draft) -> None:
        for slot in draft.reads:
            if slot >= 0:
                self._make_view(slot)
        self.steps.append(draft.step)

    def _make_view(self, slot: int) -> None:
        """Append the ViewSteps that give ``slot`` an array, base first."""
        pending: list[Instruction] = []
        while True:
            instruction = self.context.references.instruction(slot)
            if instruction is None or not isinstance(instruction.op.form, View):
                break
            if slot in self.made or slot in self.context.needs.fills:
                break
            self.made.add(slot)
            pending.append(instruction)
            (source,) = instruction.inputs
            if not isinstance(source, Slot):
                break
            slot = source.index
        self.steps += [ViewStep(i) for i in reversed(pending)]
