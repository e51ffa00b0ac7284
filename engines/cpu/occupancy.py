"""When a native block has made enough: arrays that it is to make go in, one after the other, and whether it should end
before the next one comes out.

A block makes all of its arrays when it is entered, also those that only its last kernels write. Where that takes much
more than is alive at any time, two blocks take less.
"""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import field

from tenferro.engines.cpu.arena import NEVER, Made, lay_out, most_alive
from tenferro.lowering.plan import AdoptStep, CallStep, Plan, RegionStep
from tenferro.tracer.records import dataclass

GIVE_BACK_BYTES = 4 << 20
"""Dead memory that ends a block where more is to be made: an entry more, some 2 µs, against the peak."""


class Ends:
    """Until which step the memory of a plan's slots is needed; NEVER for that of results."""

    def __init__(self, plan: Plan) -> None:
        self._last = {slot: step for step, dead in enumerate(plan.frees) for slot in dead}
        self._last.update(dict.fromkeys(plan.lasting(), NEVER))
        for step in reversed(plan.steps):
            if isinstance(step, RegionStep):
                for store in step.region.stores:
                    if store.over is not None:
                        self._last[store.over] = self.of(store.slot)
            elif isinstance(step, AdoptStep) and step.steal:
                self._last[step.base.index] = self.of(step.target.index)
        self._seams = [k for k, step in enumerate(plan.steps) if isinstance(step, CallStep) and step.is_seam]

    def of(self, slot: int) -> int:
        """The step that is the last to need the slot's memory."""
        return self._last.get(slot, NEVER)

    def in_block(self, slot: int, step: int) -> int:
        """The same, NEVER where the block that step ``step`` is in is not the last to need it."""
        last, place = self.of(slot), bisect_left(self._seams, step)
        return NEVER if place < len(self._seams) and last >= self._seams[place] else last


@dataclass(slots=True)
class Occupancy:
    """What the open block makes so far, in bytes. ``ends``: position → the step after which it is dead, as the plan
    says."""

    ends: dict[int, int] = field(default_factory=dict)
    alive: int = 0
    most_alive: int = 0
    lasting: int = 0
    temporary: int = 0
    most_temporary: int = 0
    accepted: int = 0  # excess that lying in other arrays makes good

    def add(self, position: int, size: int, end: int) -> None:
        """The block is to make an array."""
        self.ends[position] = end
        self.alive += size
        self.most_alive = max(self.most_alive, self.alive)
        if end == NEVER:
            self.lasting += size
        else:
            self.temporary += size
            self.most_temporary = max(self.most_temporary, self.temporary)

    def remove(self, position: int, size: int) -> None:
        """An array of the block is dead."""
        self.alive -= size
        if self.ends[position] != NEVER:
            self.temporary -= size

    def ends_before(
        self, made: Mapping[int, Made], wanted: Sequence[tuple[Made, int]], dead: Sequence[tuple[int, int, int]]
    ) -> bool:
        """Whether the block, which makes ``made``, should end before it makes what is wanted, each with the step until
        which it is needed: it would hold ``GIVE_BACK_BYTES`` more than is alive at any time. ``dead``: position, bytes
        and last step of arrays from before the block that have died in it."""
        if sum(size for _, size, _ in dead) >= GIVE_BACK_BYTES:
            return True
        lasting = sum(m.size for m, end in wanted if end == NEVER)
        temporary = sum(m.size for m, end in wanted if end != NEVER)
        excess = self.lasting + lasting + max(self.most_temporary, self.temporary + temporary)
        excess -= max(self.most_alive, self.alive + lasting + temporary)
        if excess < self.accepted + GIVE_BACK_BYTES:
            return False
        items = [dataclasses.replace(m, last=min(m.last, self.ends[p])) for p, m in made.items()]
        items += [dataclasses.replace(m, last=end) for m, end in wanted]
        layout = lay_out(items, dead)
        held = max(layout.arena, 0) + sum(m.size for m in layout.lasting)
        if held - most_alive(items) >= GIVE_BACK_BYTES:
            return True
        self.accepted = excess
        return False
