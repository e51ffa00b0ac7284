"""Memory taken over within a step: steps and what dies after each go in; the steps come out, with stores of regions
that may write where a dying operand lies.

A region may do so where each of its loads of that operand reads the very element that the store then writes: a lane
reads before it writes, and no other lane comes near. That leaves engines free: they take the memory, or fresh one.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tenferro.lowering.exec_program import Slot
from tenferro.lowering.lifetimes import memory_root
from tenferro.lowering.plan import AdoptStep, CallStep, RegionStep, Step
from tenferro.lowering.references import References
from tenferro.lowering.region import Gather, Load, Region, Store, arguments
from tenferro.tracer.op import Extension, Host
from tenferro.tracer.records import replace


def in_place(references: References, steps: Sequence[Step], frees: Sequence[Sequence[int]]) -> list[Step]:
    """The steps, with ``over`` of stores set where memory of the run's own can be taken over. ``frees``: the slots
    whose memory is dead after each step."""
    adopted = {s.target.index for s in steps if isinstance(s, AdoptStep)}
    seen = shown(references, steps)
    found: list[Step] = []
    for step, dead in zip(steps, frees, strict=True):
        if isinstance(step, RegionStep):
            offered = [s for s in dead if s in step.region.reads() and memory_root(references, s) == s]
            own = [s for s in offered if s in references.producer and s not in seen]
            step = RegionStep(over(references, step.region, own, adopted)) if own else step
        found.append(step)
    return found


def over(references: References, region: Region, offered: Sequence[int], adopted: Collection[int]) -> Region:
    """The region with each offered slot taken over by at most one store, in order."""
    stores = list(region.stores)
    for slot in offered:
        for k, store in enumerate(stores):
            if store.over is None and store.slot not in adopted and fits(references, region, store, slot):
                stores[k] = replace(store, over=slot)
                break
    return replace(region, stores=tuple(stores))


def fits(references: References, region: Region, store: Store, slot: int) -> bool:
    """Whether the store may write where ``slot`` lies, which nothing reads after the region."""
    here, there = references.types[slot], references.types[store.slot]
    if here.dtype != there.dtype or not here.shape == there.shape == region.space or store.views:
        return False
    if region.row_axes and region.outer()[store.node]:
        return False
    needed = _needed(region, store.node)
    for k, node in enumerate(region.nodes):
        if not isinstance(node, Load | Gather) or memory_root(references, node.access.slot) != slot:
            continue
        is_plain = isinstance(node, Load) and not (node.windows or node.outer or node.access.views)
        # A load that the stored value does not need might come after the store.
        if not is_plain or node.access.slot != slot or k not in needed:
            return False
    return True


def _needed(region: Region, node: int) -> set[int]:
    """The nodes that one is computed from, itself included."""
    found, stack = set(), [node]
    while stack:
        k = stack.pop()
        if k not in found:
            found.add(k)
            stack += arguments(region.nodes[k])
    return found


def shown(references: References, steps: Sequence[Step]) -> set[int]:
    """The memory that an executor gets to see: it may keep it."""
    calls = [
        s.instruction for s in steps if isinstance(s, CallStep) and isinstance(s.instruction.op.form, Extension | Host)
    ]
    return {memory_root(references, s.index) for i in calls for s in (*i.inputs, *i.outputs) if isinstance(s, Slot)}
