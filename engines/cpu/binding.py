"""A plan on the layouts of one call: everything that can be decided once per shape is decided here.

In: a Plan, the shapes and strides of a call's inputs, its sizes. Out: a ``BoundPlan``: actions over *positions*
(arrays of one run: the inputs first, then what the run makes). Kernels between two actions that need Python lie in one
native block, which ``native.enter`` runs in a single call.

A call whose result has a run-time extent ends the binding; what follows is bound when the extent is known, once per
value.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from tenferro.engines.cpu import layout as lay, memory
from tenferro.engines.cpu.kernel import FAST, GOOD, KernelTable
from tenferro.engines.cpu.launch import add_region
from tenferro.engines.cpu.layout import NeedsCopyError, Strided, contiguous
from tenferro.engines.cpu.native import Block
from tenferro.engines.cpu.products import add_product
from tenferro.engines.cpu.traffic import Stage
from tenferro.lowering.exec_program import Instruction, Slot, Source
from tenferro.lowering.plan import AdoptStep, CallStep, Plan, RegionStep, Step, ViewStep
from tenferro.lowering.region import Access, Gather, Load, Region, Store, ViewStep as View
from tenferro.tracer import op
from tenferro.tracer.dims import Environment, Leaf, evaluate_shape
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.op import Library
from tenferro.tracer.program import ArrayType, Params

HEAVY_SECONDS = 50e-6
"""Estimated work from which on a block gives up the GIL (taking it back costs a switch of threads at worst)."""


@dataclass(frozen=True, slots=True)
class ViewOf:
    """A view of the array at ``source``; with ``copy_reshape`` a C-ordered copy of it under that shape."""

    position: int
    source: int
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]
    dtype: np.dtype[Any]
    copy_reshape: tuple[int, ...] | None
    lines: tuple[SourceLine, ...]


@dataclass(slots=True)
class Enter:
    """Run a native block on the arrays at ``positions``; it makes those at ``made``."""

    block: Block
    positions: tuple[int, ...]
    made: tuple[int, ...]
    address: int = 0  # once the block is sealed


@dataclass(frozen=True, slots=True)
class Call:
    """An instruction by its row's NumPy function; ``dynamic`` when the result's shape is known only then."""

    instruction: Instruction
    sources: tuple[int | Source, ...]
    outputs: tuple[int, ...]
    dynamic: bool


@dataclass(frozen=True, slots=True)
class Drop:
    """The arrays at ``positions`` are dead."""

    positions: tuple[int, ...]


Action: TypeAlias = ViewOf | Enter | Call | Drop


@dataclass(frozen=True, slots=True)
class Place:
    """Where a slot's elements are: an array of the run, and the slot's layout in bytes from that array's first
    element."""

    position: int
    strided: Strided


@dataclass
class BoundPlan:
    actions: list[Action]
    positions: int  # arrays of a run, inputs included
    outputs: tuple[int | Source, ...]
    tail: Tail | None = None  # what follows a call with a run-time extent
    level: int = FAST
    seconds_left: float = 0.0  # of running until level 2 pays; 0 when there is nothing to wait for
    seconds: float = 0.0  # that the last run before then took
    only: Enter | None = None  # the block of a plan that is nothing but it
    picks: tuple[int, ...] = ()  # which of that block's arrays are the outputs

    def __post_init__(self) -> None:
        if len(self.actions) != 1 or not isinstance(self.actions[0], Enter) or self.tail is not None:
            return
        made = self.actions[0].made
        if self.outputs and all(o in made for o in self.outputs):
            self.only = self.actions[0]
            self.picks = tuple(1 + made.index(o) for o in self.outputs if isinstance(o, int))


@dataclass
class Tail:
    """The rest of a plan from step ``next_step`` on, to be bound under the extents that the call before it had."""

    next_step: int
    before: Binder
    slots: tuple[int, ...]  # the call's results
    leaves: tuple[tuple[Leaf, int, int], ...]  # (leaf, position, axis)
    bound: dict[tuple[int, ...], BoundPlan] = field(default_factory=dict)

    def bind(self, extents: tuple[int, ...]) -> BoundPlan:
        """The rest under these extents."""
        old = self.before
        env = {**old.env, **{leaf: n for (leaf, _, _), n in zip(self.leaves, extents, strict=True)}}
        binder = Binder(old.plan, old.kernels, env, dict(old.places), old.positions, old.level)
        binder.types, binder.virtual = dict(old.types), old.virtual
        binder.owned, binder.sizes, binder.declared = set(old.owned), dict(old.sizes), dict(old.declared)
        for slot in self.slots:
            shape, dtype = evaluate_shape(binder.types[slot].shape, env), binder.types[slot].dtype
            position = binder.places[slot].position
            binder.places[slot] = Place(position, Strided(0, shape, contiguous(shape, dtype.itemsize)))
            binder.declared[position] = (shape, dtype)
            binder.sizes[position] = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        # The call's own step ends here: what was last used by it dies now.
        binder._free(old.plan.frees[self.next_step - 1])
        return binder.bind(self.next_step)


@dataclass
class Binder:
    """Binds steps from ``start`` on. One use."""

    plan: Plan
    kernels: KernelTable
    env: dict[Leaf, int]
    places: dict[int, Place]
    positions: int
    level: int
    good_from: float = math.inf  # estimated seconds of a run from which on level 2 is taken whatever ``level`` says
    types: dict[int, ArrayType] = field(init=False)
    actions: list[Action] = field(default_factory=list)
    block: Block | None = None
    block_positions: dict[int, int] = field(default_factory=dict)
    block_made: dict[int, int] = field(default_factory=dict)
    block_seconds: float = 0.0
    seconds: float = 0.0
    owned: set[int] = field(default_factory=set)  # positions that this run allocated and may overwrite
    users: dict[int, int] = field(default_factory=dict)  # position → live slots in it
    free: dict[int, list[int]] = field(default_factory=dict)  # bytes → positions of dead temporaries of this block
    sizes: dict[int, int] = field(default_factory=dict)
    declared: dict[int, tuple[tuple[int, ...], np.dtype[Any]]] = field(default_factory=dict)
    virtual: int = -1
    python_slots: frozenset[int] = frozenset()
    stage: Stage = field(default_factory=Stage)  # what launches are a part of

    def __post_init__(self) -> None:
        self.types = self.plan.program.slot_types()
        self.python_slots = python_slots(self.plan)
        for place in self.places.values():
            self.users[place.position] = self.users.get(place.position, 0) + 1

    def bind(self, start: int) -> BoundPlan:
        """The actions of the steps from ``start`` on. Kernels are compiled last, when the level is known."""
        tail = None
        for number in range(start, len(self.plan.steps)):
            tail = self._step(self.plan.steps[number], number)
            if tail is not None:
                break
            self._free(self.plan.frees[number])
        self.close_block()
        if self.good_from < self.seconds:
            self.level = GOOD
        for action in self.actions:
            if isinstance(action, Enter):
                action.address = action.block.seal(self.level)
        outputs: tuple[int | Source, ...] = ()
        if tail is None:
            outputs = tuple(self._output(o) for o in self.plan.program.outputs)
        return BoundPlan(self.actions, self.positions, outputs, tail, self.level)

    def _step(self, step: Step, number: int) -> Tail | None:
        self.stage = Stage.of(step)
        match step:
            case RegionStep(region=region):
                self._region(region)
            case ViewStep(instruction=instruction):
                self._view(instruction)
            case AdoptStep():
                self._adopt(step)
            case CallStep(instruction=instruction):
                return self._call(instruction, number)
        return None

    # Positions.

    def new_position(self) -> int:
        self.positions += 1
        return self.positions - 1

    def allocate(
        self, shape: tuple[int, ...], dtype: np.dtype[Any], line: SourceLine | None, reuse: bool = False
    ) -> int:
        """A position for a fresh array. ``reuse``: only kernels of the current block see it, so dead memory will do."""
        size = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
        if reuse and self.block is not None and self.free.get(size):
            position = self.free[size].pop()
            self.owned.add(position)
            return position
        position = self.new_position()
        self.block_made[position] = self.open_block().add_output(shape, dtype, memory.line_tag(line))
        self.owned.add(position)
        self.sizes[position] = size
        self.declared[position] = (shape, dtype)
        return position

    def _kept(self, slot: int) -> bool:
        """Whether a slot's array leaves the blocks: it is an output, or Python reads it."""
        return slot in self.python_slots

    def put(self, slot: int, place: Place) -> None:
        self.places[slot] = place
        self.users[place.position] = self.users.get(place.position, 0) + 1

    def _shape(self, slot: int) -> tuple[int, ...]:
        return evaluate_shape(self.types[slot].shape, self.env)

    def fresh(self, slot: int, line: SourceLine | None) -> Place:
        """A contiguous array for a slot that a kernel will write."""
        shape, dtype = self._shape(slot), self.types[slot].dtype
        position = self.allocate(shape, dtype, line, reuse=not self._kept(slot))
        place = Place(position, Strided(0, shape, contiguous(shape, dtype.itemsize)))
        self.put(slot, place)
        return place

    def _free(self, slots: Sequence[int]) -> None:
        dead = []
        for slot in slots:
            place = self.places.pop(slot, None)
            if place is None:
                continue
            self.users[place.position] -= 1
            if self.users[place.position] or place.position not in self.owned:
                continue
            self.owned.discard(place.position)
            if self.block is None:
                dead.append(place.position)
            elif not self._kept(slot):
                self.free.setdefault(self.sizes[place.position], []).append(place.position)
        if dead:
            self.actions.append(Drop(tuple(dead)))

    # Blocks.

    def open_block(self) -> Block:
        if self.block is None:
            self.block = Block()
            self.block_positions, self.block_made = {}, {}
            self.block_seconds = 0.0
        return self.block

    def patch(self, position: int) -> int:
        """How the current block names a position: by its place among the arrays handed in, or as one that it makes."""
        made = self.block_made.get(position)
        if made is not None:
            return made
        return self.block_positions.setdefault(position, len(self.block_positions))

    def close_block(self) -> None:
        if self.block is None:
            return
        self.block.heavy = self.block_seconds > HEAVY_SECONDS
        self.seconds += self.block_seconds
        made = tuple(self.block_made)
        self.actions.append(Enter(self.block, tuple(self.block_positions), made))
        self.block = None
        self.free = {}

    # Steps.

    def _region(self, region: Region) -> None:
        line = region.lines[-1] if region.lines else None
        for store in region.stores:
            if store.slot not in self.places:
                self.fresh(store.slot, line)
        self.block_seconds += add_region(self, self._with_copies(region), region)

    def _with_copies(self, region: Region) -> Region:
        """The region with every access that has no strided form replaced by an access to a copy."""
        nodes = list(region.nodes)
        for k, node in enumerate(nodes):
            if not isinstance(node, Load | Gather):
                continue
            access = node.access
            while True:
                try:
                    lay.apply_views(self.places[access.slot].strided, access.views, self.env)
                    break
                except NeedsCopyError as error:
                    access = self._copied(access, error.steps)
            if access is not node.access:
                nodes[k] = dataclasses.replace(node, access=access)
        return (
            region
            if all(a is b for a, b in zip(nodes, region.nodes, strict=True))
            else dataclasses.replace(region, nodes=tuple(nodes))
        )

    def _copied(self, access: Access, steps: int) -> Access:
        """Copy the array in front of the reshape ``views[steps]`` and reshape the copy."""
        dtype = self.types[access.slot].dtype
        place = self.places[access.slot]
        before = lay.apply_views(place.strided, access.views[:steps], self.env)
        shape = evaluate_shape(access.views[steps].params["shape"], self.env)
        position = self._python_view(place.position, before, dtype, shape)
        slot = self.virtual
        self.virtual -= 1
        self.types[slot] = ArrayType(dtype, shape)
        self.put(slot, Place(position, Strided(0, shape, contiguous(shape, dtype.itemsize))))
        return Access(slot, access.views[steps + 1 :])

    def _python_view(
        self, source: int, strided: Strided, dtype: np.dtype[Any], copy_reshape: tuple[int, ...] | None
    ) -> int:
        self.close_block()
        position = self.new_position()
        shape, offset, strides = strided.shape, strided.offset, strided.strides
        self.actions.append(ViewOf(position, source, shape, offset, strides, dtype, copy_reshape, self.stage.lines))
        return position

    def _view(self, instruction: Instruction) -> None:
        (source,) = (s for s in instruction.inputs if isinstance(s, Slot))
        target = instruction.outputs[0].index
        place, dtype = self.places[source.index], self.types[target].dtype
        form = instruction.op.form
        assert isinstance(form, op.View)
        step = View(form.kind, instruction.params)
        try:
            strided = lay.apply_views(place.strided, (step,), self.env)
        except NeedsCopyError:
            shape = self._shape(target)
            position = self._python_view(place.position, place.strided, dtype, shape)
            self.put(target, Place(position, Strided(0, shape, contiguous(shape, dtype.itemsize))))
            return
        self.put(target, Place(place.position, strided))

    def _adopt(self, step: AdoptStep) -> None:
        base, target = self.places[step.base.index], step.target.index
        if step.steal and base.position in self.owned:
            self.put(target, base)
            return
        place = self.fresh(target, step.instruction.line)
        dtype = self.types[target].dtype
        prototype = copy_region(dtype, len(place.strided.shape))
        for starts, sizes in kept_slabs(step, self._shape(step.base.index), self.env):
            slab = slab_copy(prototype, step.base.index, target, starts, sizes)
            self.block_seconds += add_region(self, slab, prototype)

    def array_of(self, slot: int) -> int:
        """A position whose array is exactly the slot: its own, or a view that Python makes."""
        place, dtype = self.places[slot], self.types[slot].dtype
        whole = Strided(0, place.strided.shape, contiguous(place.strided.shape, dtype.itemsize))
        if place.strided == whole and self.declared.get(place.position) == (whole.shape, dtype):
            return place.position
        inputs = self.plan.program.inputs
        if place.position < len(inputs) and slot == inputs[place.position].slot.index:
            return place.position
        return self._python_view(place.position, place.strided, dtype, None)

    def _call(self, instruction: Instruction, number: int) -> Tail | None:
        if isinstance(instruction.op.form, op.Contraction) and add_product(self, instruction):
            return None
        sources: list[int | Source] = []
        for s in instruction.inputs:
            sources.append(self.array_of(s.index) if isinstance(s, Slot) else s)
        self.close_block()
        outputs = tuple(self.new_position() for _ in instruction.outputs)
        form = instruction.op.form
        dynamic = form.runtime_extents if isinstance(form, Library) else ()
        self.actions.append(Call(instruction, tuple(sources), outputs, bool(dynamic)))
        self.owned |= set(outputs)
        leaves = tuple((_leaf(instruction, o, axis), outputs[o], axis) for o, axis in dynamic)
        for slot, position, kind in zip(instruction.outputs, outputs, instruction.types, strict=True):
            if dynamic:
                self.put(slot.index, Place(position, Strided(0, (), ())))
                continue
            shape = evaluate_shape(kind.shape, self.env)
            self.put(slot.index, Place(position, Strided(0, shape, contiguous(shape, kind.dtype.itemsize))))
            self.sizes[position] = int(np.prod(shape, dtype=np.int64)) * kind.dtype.itemsize
            self.declared[position] = (shape, kind.dtype)
        if not dynamic:
            return None
        return Tail(number + 1, self, tuple(s.index for s in instruction.outputs), leaves)

    def _output(self, source: Source) -> int | Source:
        return self.array_of(source.index) if isinstance(source, Slot) else source


def _leaf(instruction: Instruction, output: int, axis: int) -> Leaf:
    expr = instruction.types[output].shape[axis]
    if isinstance(expr, int):
        raise LoweringError(f"{instruction.op.name}: axis {axis} of the result has no run-time extent")
    leaf = expr.terms[0][0][0].leaf
    if leaf is None:
        raise LoweringError(f"{instruction.op.name}: axis {axis} of the result is {expr}; a single leaf is needed")
    return leaf


def _slice(starts: tuple[int, ...], sizes: tuple[int, ...]) -> tuple[View, ...]:
    return (View("slice", Params(starts=starts, steps=(1,) * len(starts), sizes=sizes)),)


def kept_slabs(
    step: AdoptStep, shape: tuple[int, ...], env: Environment
) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """The parts of the base that the update leaves, as starts and sizes: the slabs round it; the whole for a box with
    gaps, and where the memory was to be taken over, since the update then reads the target itself."""
    p = step.instruction.params
    starts, steps, sizes = (evaluate_shape(p[k], env) for k in ("starts", "steps", "sizes"))
    if 0 in shape:
        return []
    if step.steal or any(s != 1 for s in steps) or 0 in sizes:
        return [((0,) * len(shape), shape)]
    slabs = []
    low, high = [0] * len(shape), list(shape)
    for axis in range(len(shape)):
        for first, stop in ((0, starts[axis]), (starts[axis] + sizes[axis], shape[axis])):
            if first < stop:
                slab_low, slab_high = list(low), list(high)
                slab_low[axis], slab_high[axis] = first, stop
                slabs.append((tuple(slab_low), tuple(b - a for a, b in zip(slab_low, slab_high, strict=True))))
        low[axis], high[axis] = starts[axis], starts[axis] + sizes[axis]
    return slabs


@cache
def copy_region(dtype: np.dtype[Any], rank: int) -> Region:
    """What the kernel of a plain copy is made from."""
    sizes = tuple(1 for _ in range(rank))
    return Region("copy", sizes, (), (Load(Access(0, ()), (), dtype, False),), (Store(1, 0),), ())


def slab_copy(prototype: Region, source: int, target: int, starts: tuple[int, ...], sizes: tuple[int, ...]) -> Region:
    """The copy of a part of ``source`` to the same place of ``target``, from a ``copy_region``."""
    views = _slice(starts, sizes)
    (load,) = prototype.nodes
    assert isinstance(load, Load)
    node = dataclasses.replace(load, access=Access(source, views))
    return dataclasses.replace(prototype, space=sizes, nodes=(node,), stores=(Store(target, 0, views),))


def python_slots(plan: Plan) -> frozenset[int]:
    """Slots whose arrays Python sees: outputs and operands of calls, and what these are views or updates of."""
    calls = [s.instruction for s in plan.steps if isinstance(s, CallStep)]
    return with_parents(plan, {s.index for c in calls for s in c.inputs if isinstance(s, Slot)} | output_slots(plan))


def output_slots(plan: Plan) -> set[int]:
    return {o.index for o in plan.program.outputs if isinstance(o, Slot)}


def with_parents(plan: Plan, slots: set[int]) -> frozenset[int]:
    """These slots, and those that they are views or updates of."""
    parents: dict[int, int] = {}
    for step in plan.steps:
        match step:
            case ViewStep(instruction=instruction):
                parents.update(
                    (instruction.outputs[0].index, s.index) for s in instruction.inputs if isinstance(s, Slot)
                )
            case AdoptStep(base=base, target=target):
                parents[target.index] = base.index
            case RegionStep() | CallStep():
                pass
    seen = set(slots)
    for slot in slots:
        while slot in parents and parents[slot] not in seen:
            slot = parents[slot]
            seen.add(slot)
    return frozenset(seen)
