"""Donated inputs on real layouts: a plan, what a call gives up and its arrays go in, a bound plan comes out.

What the plan may use need not be usable here: an array that lies over itself, a result that another step makes in C
order, a step that Python does after the first write. Then the plan is bound again without it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.engines.cpu.launch import SECONDS_PER_BYTE
from tenferro.engines.cpu.layout import Strided, contiguous
from tenferro.engines.values import input_sizes
from tenferro.lowering.donation import Donation, RefusedError, donated
from tenferro.lowering.plan import Plan
from tenferro.tracer.dims import evaluate_shape
from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.engines.cpu.binding import Binder, BoundPlan

Array = np.ndarray[Any, Any]

LONGEST_SECONDS, MOST_TURNS = 0.5, 16
"""Estimated time on one thread for which interrupts may wait while donated memory is written: so long, or as often as
it takes to go through that memory."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a slot's elements are: an array of the run, and the slot's layout in bytes from that array's first
    element."""

    position: int
    strided: Strided


@dataclass
class Lending:
    """The donated inputs that results of a plan are written to, by their positions, and the ``first`` step that does
    so."""

    positions: frozenset[int] = frozenset()
    first: int = -1
    has_begun: bool = False
    before: float = 0.0  # seconds of the block until then

    def begin(self, binder: Binder) -> None:
        """From here on they are written: what may raise has done so, and no interrupt comes between."""
        if binder.checked:
            binder.close_block()
        self.has_begun = True
        binder.open_block().hold_interrupts()
        self.before = binder.block_seconds

    def check_end(self, binder: Binder, is_last: bool) -> None:
        """RefusedError where the block that writes must not end so: a next one might not get its memory, or an
        interrupt would wait for much longer than writing takes."""
        if not is_last:
            raise RefusedError(-1, "something that Python or NumPy does afterwards may fail")
        given = [self._given(binder, p) for p in self.positions]
        types = [binder.plan.program.inputs[p].type.dtype for p in self.positions]
        moved = sum(math.prod(x.shape) * t.itemsize for x, t in zip(given, types, strict=True))
        if binder.block_seconds - self.before > max(LONGEST_SECONDS, MOST_TURNS * moved * SECONDS_PER_BYTE):
            raise RefusedError(-1, "what is computed meanwhile would hold back an interrupt for too long")

    def place(self, binder: Binder, slot: int) -> Place:
        """Put a slot into the memory of the input that it was granted."""
        position = binder.plan.granted[slot]
        given = self._given(binder, position)
        shape, itemsize = evaluate_shape(binder.types[slot].shape, binder.env), binder.types[slot].dtype.itemsize
        if given.shape != shape:
            if given.strides != contiguous(given.shape, itemsize):
                raise RefusedError(position, "its elements are not in C order")
            given = Strided(0, shape, contiguous(shape, itemsize))
        binder.put(slot, Place(position, given))
        return binder.places[slot]

    def check_order(self, binder: Binder, slot: int) -> None:
        """RefusedError where a product, which is written in C order, was put among other strides."""
        place = binder.places[slot]
        if place.strided.strides != contiguous(place.strided.shape, binder.types[slot].dtype.itemsize):
            raise RefusedError(place.position, "a product is written in C order")

    def output(self, binder: Binder, slot: int) -> int | None:
        """The input that the slot is now, None where it is none."""
        place = binder.places[slot]
        is_whole = place.position in self.positions and place.strided == self._given(binder, place.position)
        return place.position if is_whole else None

    def _given(self, binder: Binder, position: int) -> Strided:
        return binder.places[binder.plan.program.inputs[position].slot.index].strided


def bind_donated(
    plan: Plan, donation: Donation, inputs: Sequence[Array | int], binder: Callable[[Plan], Binder]
) -> BoundPlan:
    """The plan bound by what ``binder`` makes, with as much of the donated memory used as can be."""
    refused: dict[int, str] = {}

    def refuse(k: int, reason: str) -> None:
        nonlocal donation
        refused[k], donation = reason, donation.without(k)

    for k in donation.inputs:
        if lies_over_itself(inputs[k]):
            refuse(k, "several of its elements lie in one place")
    while True:
        found = donated(plan, donation, input_sizes(inputs))
        made = binder(found.plan)
        first = min((g.step for g in found.grants), default=-1)
        made.lending = Lending(frozenset(g.input for g in found.grants), first)
        try:
            bound = made.bind(0)
        except RefusedError as error:
            for k in (error.refused,) if error.refused >= 0 else [g.input for g in found.grants]:
                refuse(k, error.reason)
            continue
        bound.refused = {**found.refused, **refused}
        return bound


def lies_over_itself(x: Array | int) -> bool:
    """Whether two elements may share memory; it may say so of some odd strides where none do."""
    if isinstance(x, int):
        return False
    reach = x.itemsize
    for stride, n in sorted((abs(s), n) for s, n in zip(x.strides, x.shape, strict=True) if n > 1):
        if stride < reach:
            return x.size > 0
        reach += (n - 1) * stride
    return False
