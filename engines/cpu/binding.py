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
from dataclasses import field
from typing import Any

import numpy as np

from tenferro.engines.cpu import layout as lay, memory, poison
from tenferro.engines.cpu.actions import (
    Action as Action,
    BoundPlan as BoundPlan,
    Call as Call,
    Drop as Drop,
    Enter as Enter,
    Select as Select,
    ViewOf as ViewOf,
    seal,
)
from tenferro.engines.cpu.arena import ARENA, Made, lay_out
from tenferro.engines.cpu.donating import Lending, Place as Place
from tenferro.engines.cpu.kernel import FAST, GOOD, KernelTable
from tenferro.engines.cpu.launch import add_region
from tenferro.engines.cpu.layout import NeedsCopyError, Strided, contiguous
from tenferro.engines.cpu.native import Block
from tenferro.engines.cpu.occupancy import Ends, Occupancy
from tenferro.engines.cpu.slabs import copy_region, kept_slabs, slab_copy, with_prototypes
from tenferro.engines.cpu.traffic import Stage
from tenferro.lowering.donation import is_checked
from tenferro.lowering.exec_program import Instruction, Slot, Source
from tenferro.lowering.plan import AdoptStep, CallStep, Plan, RegionStep, Step, ViewStep
from tenferro.lowering.region import Access, Gather, Load, Region, Store, ViewStep as View
from tenferro.tracer import op
from tenferro.tracer.dims import Leaf, evaluate_shape
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.op import Extension, Host
from tenferro.tracer.ops import control, library
from tenferro.tracer.program import ArrayType
from tenferro.tracer.records import dataclass

_MADE = 1 << 40
"""Beside a position: its array in a block that is not closed yet, where it is not known how it will be named."""
HEAVY_SECONDS = 50e-6
"""Estimated work from which on a block gives up the GIL (taking it back costs a switch of threads at worst)."""
BRIEF_SHARE = 0.05
"""Kernels that take less of a run stay at level 0 where level 2 is taken at once: it would save them next to nothing,
and compiling them took most of the first call."""


@dataclass
class Tail:
    """The rest of a plan from step ``next_step`` on, to be bound under the extents that the call before it had."""

    next_step: int
    before: Binder
    slots: tuple[int, ...]  # the call's results
    leaves: tuple[tuple[Leaf, int, int], ...]  # (leaf, position, axis)
    bound: dict[tuple[int, ...], BoundPlan] = field(default_factory=dict)
    any: list[Any] = field(default_factory=list)  # of ``any_tail.AnyTail``: bindings for more extents than their own

    def bind(self, extents: tuple[int, ...], make: type[Binder] | None = None) -> BoundPlan:
        """The rest under these extents, by a binder of this class."""
        old = self.before
        env = {**old.env, **{leaf: n for (leaf, _, _), n in zip(self.leaves, extents, strict=True)}}
        binder = (make or Binder)(old.plan, old.kernels, env, dict(old.places), old.positions, old.level)
        binder.types, binder.virtual = dict(old.types), old.virtual
        binder.owned, binder.sizes, binder.declared = set(old.owned), dict(old.sizes), dict(old.declared)
        binder.shown, binder.number = set(old.shown), self.next_step - 1
        for slot in self.slots:
            shape, dtype = evaluate_shape(binder.types[slot].shape, env), binder.types[slot].dtype
            position = binder.places[slot].position
            binder.places[slot] = Place(position, Strided(0, shape, contiguous(shape, dtype.itemsize)))
            binder.declared[position] = (shape, dtype)
            binder.sizes[position] = math.prod(shape) * dtype.itemsize
        # The call's own step ends here: what was last used by it dies now.
        binder._free(old.plan.frees[self.next_step - 1])
        return binder.bind(self.next_step)


@dataclass
class Binder:
    """Binds steps from ``start`` on. One use."""

    make_block = Block
    plan: Plan
    kernels: KernelTable
    env: dict[Leaf, int]
    places: dict[int, Place]
    positions: int
    level: int
    good_from: float = math.inf  # estimated seconds from which on level 2 is taken whatever ``level`` says
    types: dict[int, ArrayType] = field(init=False)
    actions: list[Action] = field(default_factory=list)
    block: Block | None = None
    block_positions: dict[int, int] = field(default_factory=dict)
    made: dict[int, Made] = field(default_factory=dict)  # by the current block
    dead: dict[int, int] = field(default_factory=dict)  # position from before the block → the step that it died in
    launched: dict[int, None] = field(default_factory=dict)  # steps with kernels in the current block
    number: int = -1  # of the step that is being bound
    block_seconds: float = 0.0
    seconds: float = 0.0
    settled: float = 0.0  # seconds of those in products and loops, whose code is the same at either level
    owned: set[int] = field(default_factory=set)  # positions that this run allocated
    shown: set[int] = field(default_factory=set)  # positions that an executor has seen, and may have kept
    users: dict[int, int] = field(default_factory=dict)  # position → live slots in it
    sizes: dict[int, int] = field(default_factory=dict)
    declared: dict[int, tuple[tuple[int, ...], np.dtype[Any]]] = field(default_factory=dict)
    virtual: int = -1
    ends: Ends = field(init=False)
    occupancy: Occupancy = field(default_factory=Occupancy)  # of the current block
    lending: Lending = field(default_factory=Lending)
    checked: bool = False  # something in the current block may raise
    stage: Stage = field(default_factory=Stage)  # what launches are a part of

    def __post_init__(self) -> None:
        self.types = self.plan.program.slot_types()
        self.ends = Ends(self.plan)
        for place in self.places.values():
            self.users[place.position] = self.users.get(place.position, 0) + 1

    def bind(self, start: int) -> BoundPlan:
        """The actions of the steps from ``start`` on. Kernels are compiled last, when the level is known."""
        tail = None
        for number in range(start, len(self.plan.steps)):
            self.number = number
            if number == self.lending.first:
                self.lending.begin(self)
            tail = self._step(self.plan.steps[number], number)
            if tail is not None:
                break
            self._free(self.plan.frees[number])
        self.number = -1 if tail is None else self.number
        if tail is None and self.block is not None:
            self._shape_results()
        self.close_block(is_last=True)
        brief = 0.0
        improvable = self.seconds - self.settled
        if self.good_from < math.inf and self.good_from < improvable:  # no formula has an infinite number
            self.level, brief = GOOD, BRIEF_SHARE * improvable
        blocks = [action for action in self.actions if isinstance(action, Enter)]
        seal(blocks, self.level, brief)
        if brief and any(action.block.is_brief(brief) for action in blocks):
            self.level = FAST  # all of it may be made better later
        outputs: tuple[int | Source, ...] = ()
        if tail is None:
            outputs = tuple(self._output(o) for o in self.plan.program.outputs)
        lent = self.lending.positions
        return BoundPlan(self.actions, self.positions, outputs, tail, self.level, estimate=self.seconds, lent=lent)

    def _shape_results(self) -> None:
        """An array that the last block makes takes the shape of the result that is all of it (a product with a vector
        is a vector, a reshaped result is no view) where it is one result only."""
        slots = {o.index for o in self.plan.program.outputs if isinstance(o, Slot)}
        users = [self.places[s].position for s in slots]
        for slot in slots:
            place, dtype = self.places[slot], self.types[slot].dtype
            made, shape = self.made.get(place.position), place.strided.shape
            if made is None or (made.dtype, math.prod(made.shape)) != (dtype, math.prod(shape)):
                continue
            if users.count(place.position) > 1 or place.position in self.shown:
                continue
            if place.strided == Strided(0, shape, contiguous(shape, dtype.itemsize)):
                self.made[place.position] = dataclasses.replace(made, shape=shape)
                self.declared[place.position] = (shape, dtype)

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

    def allocate(self, shape: tuple[int, ...], dtype: np.dtype[Any], line: SourceLine | None) -> int:
        """A position for a fresh array that kernels of the current step alone write and read."""
        return self._make(Made(self.new_position(), shape, dtype, memory.line_tag(line), self.number), self.number)

    def _make(self, made: Made, end: int) -> int:
        """The position of an array that the block makes; ``end``: the step that is the last to need it."""
        self.open_block()
        self.made[made.position], self.sizes[made.position] = made, made.size
        self.declared[made.position] = (made.shape, made.dtype)
        self.owned.add(made.position)
        self.occupancy.add(made.position, made.size, end)
        return made.position

    def put(self, slot: int, place: Place) -> None:
        self.places[slot] = place
        self.users[place.position] = self.users.get(place.position, 0) + 1

    def _shape(self, slot: int) -> tuple[int, ...]:
        return evaluate_shape(self.types[slot].shape, self.env)

    def fresh(self, slot: int, line: SourceLine | None) -> Place:
        """A contiguous array for a slot that a kernel will write."""
        return self._all_fresh([slot], line)[0]

    def _all_fresh(self, slots: Sequence[int], line: SourceLine | None) -> list[Place]:
        """The same for the slots that a kernel will write."""
        if slots[0] in self.plan.granted:
            return [self.lending.place(self, slot) for slot in slots]
        wanted, tag = [], memory.line_tag(line)
        for slot in slots:
            made = Made(self.new_position(), self._shape(slot), self.types[slot].dtype, tag, self.number)
            wanted.append((made, self.ends.in_block(slot, self.number)))
        may_end = self.block is not None and not self.lending.has_begun
        if may_end and self.occupancy.ends_before(self.made, wanted, self._dead_hosts()):
            self.close_block()
        places = []
        for slot, (made, end) in zip(slots, wanted, strict=True):
            strided = Strided(0, made.shape, contiguous(made.shape, made.dtype.itemsize))
            places.append(Place(self._make(made, end), strided))
            self.put(slot, places[-1])
        return places

    def _free(self, slots: Sequence[int]) -> None:
        dead = []
        for slot in slots:
            place = self.places.pop(slot, None)
            if place is None:
                continue
            self.users[place.position] -= 1
            if not self.users[place.position] and place.position in self.owned:
                dead.append(place.position)
        self.release(dead)

    def release(self, dead: Sequence[int]) -> None:
        """Nothing after the current step reads these positions."""
        self.owned -= set(dead)
        if self.block is None:
            if dead:
                self.actions.append(Drop(tuple(dead)))
            return
        if poison.is_on():
            poison.overwrite(self, dead)
        for position in dead:
            if position in self.made:
                self.made[position].last = self.number
                self.occupancy.remove(position, self.sizes[position])
            else:
                self.dead[position] = self.number

    # Blocks.

    def open_block(self) -> Block:
        if self.block is None:
            self.block = self.make_block()
            self.block_positions, self.made, self.dead, self.launched = {}, {}, {}, {}
            self.occupancy, self.checked = Occupancy(), False
            self.block_seconds = 0.0
        return self.block

    def patch(self, position: int) -> int:
        """How a launch of the current step names a position."""
        self.launched[self.number] = None
        return _MADE + position if position in self.made else self._given(position)

    def _given(self, position: int) -> int:
        """The place of a position among the arrays handed to the block."""
        return self.block_positions.setdefault(position, len(self.block_positions))

    def close_block(self, *, is_last: bool = False) -> None:
        """``is_last``: the run ends with the block, and with it what would have to be dropped."""
        if self.block is None:
            return
        if self.lending.has_begun:
            self.lending.check_end(self, is_last)
        block, self.block = self.block, None
        block.heavy = self.block_seconds > HEAVY_SECONDS
        self.seconds += self.block_seconds
        layout = lay_out(list(self.made.values()), self._dead_hosts())
        made = [m.position for m in layout.lasting]
        names = {m.position: block.add_output(m.shape, m.dtype, m.tag) for m in layout.lasting}
        if layout.arena >= 0:
            made.append(self.new_position())
            names[ARENA] = block.add_output((layout.arena,), np.dtype(np.uint8), layout.tag)
        found = {_MADE + p: (name, 0) for p, name in names.items()}
        for position, (home, offset) in layout.places.items():
            found[_MADE + position] = (names[home] if home in names else self._given(home), offset)
        block.resolve(found)
        self.actions.append(Enter(block, tuple(self.block_positions), tuple(made), tuple(self.launched)))
        dropped = (*made[len(layout.lasting) :], *self.dead)
        if dropped and not is_last:
            self.actions.append(Drop(dropped))

    def _dead_hosts(self) -> list[tuple[int, int, int]]:
        """Arrays from before the block that have died in it: position, bytes and last step."""
        return [(p, self.sizes[p], step) for p, step in self.dead.items() if p not in self.shown]

    # Steps.

    def _region(self, region: Region) -> None:
        line = region.lines[-1] if region.lines else None
        before = self.virtual
        copied = self._with_copies(region)
        new = [s.slot for s in region.stores if s.slot not in self.places and not self._takes_over(s)]
        if new:
            self._all_fresh(new, line)
        scratch = self.positions
        for part, prototype in with_prototypes(copied, region):
            self._add_region(part, prototype)
        self.checked = self.checked or is_checked(region)
        self.release(range(scratch, self.positions))  # what its launches hand to one another
        self._free(range(self.virtual + 1, before + 1))

    def _takes_over(self, store: Store) -> bool:
        """Put a store's slot where the array lies that it may be written over, if that is the run's own, or where it
        was granted a place."""
        if store.slot in self.plan.granted:
            self.lending.place(self, store.slot)
            return True
        place = None if store.over is None else self.places[store.over]
        if place is None or place.position not in self.owned - self.shown:
            return False
        shape, dtype = self._shape(store.slot), self.types[store.slot].dtype
        if place.strided != Strided(0, shape, contiguous(shape, dtype.itemsize)):
            return False
        self.put(store.slot, place)
        return True

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

    def _add_region(self, region: Region, prototype: Region) -> None:
        """The launches of a region, with their estimated time."""
        block = self.open_block()
        first = block.launches
        seconds = add_region(self, region, prototype)
        block.estimate(first, seconds)
        self.block_seconds += seconds

    def settle(self, seconds: float) -> None:
        """Count the seconds of a launch whose code is the same at either level."""
        self.block_seconds += seconds
        self.settled += seconds

    def _copied(self, access: Access, steps: int) -> Access:
        """Copy the array in front of the reshape ``views[steps]`` and reshape the copy."""
        dtype = self.types[access.slot].dtype
        before = lay.apply_views(self.places[access.slot].strided, access.views[:steps], self.env)
        shape = evaluate_shape(access.views[steps].params["shape"], self.env)
        position = self.allocate(before.shape, dtype, None)
        slot = self._new_slot(position, shape, dtype)
        self._copy(Access(access.slot, access.views[:steps]), before.shape, position, dtype)
        return Access(slot, access.views[steps + 1 :])

    def _new_slot(self, position: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
        """A slot that no program has, whose elements are an array's, in order."""
        slot = self.virtual
        self.virtual -= 1
        self.types[slot] = ArrayType(dtype, shape)
        self.put(slot, Place(position, Strided(0, shape, contiguous(shape, dtype.itemsize))))
        return slot

    def _copy(self, access: Access, shape: tuple[int, ...], position: int, dtype: np.dtype[Any]) -> None:
        """The launches that copy what an access reaches, of a shape, into an array in order."""
        prototype = copy_region(dtype, len(shape))
        (load,) = prototype.nodes
        assert isinstance(load, Load)
        before = self.virtual
        target = self._new_slot(position, shape, dtype)
        node, store = dataclasses.replace(load, access=access), Store(target, 0)
        region = dataclasses.replace(prototype, space=shape, nodes=(node,), stores=(store,))
        self._add_region(region, prototype)
        self._free((target,))
        self.virtual = before

    def _python_view(self, source: int, strided: Strided, dtype: np.dtype[Any]) -> int:
        self.close_block()
        position = self.new_position()
        shape, offset, strides = strided.shape, strided.offset, strided.strides
        self.actions.append(ViewOf(position, source, shape, offset, strides, dtype))
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
            made = self.fresh(target, instruction.line)
            self._copy(Access(source.index, ()), place.strided.shape, made.position, dtype)
            return
        self.put(target, Place(place.position, strided))

    def _adopt(self, step: AdoptStep) -> None:
        base, target = self.places[step.base.index], step.target.index
        if step.steal and (base.position in self.owned - self.shown or base.position in self.lending.positions):
            self.put(target, base)
            return
        place = self.fresh(target, step.instruction.line)
        dtype = self.types[target].dtype
        prototype = copy_region(dtype, len(place.strided.shape))
        for starts, sizes in kept_slabs(step, self._shape(step.base.index), self.env):
            slab = slab_copy(prototype, step.base.index, target, starts, sizes)
            self._add_region(slab, prototype)

    def array_of(self, slot: int) -> int:
        """A position whose array is exactly the slot: its own, or a view that Python makes."""
        place, dtype = self.places[slot], self.types[slot].dtype
        whole = Strided(0, place.strided.shape, contiguous(place.strided.shape, dtype.itemsize))
        if place.strided == whole and self.declared.get(place.position) == (whole.shape, dtype):
            return place.position
        inputs = self.plan.program.inputs
        if place.position < len(inputs) and slot == inputs[place.position].slot.index:
            return place.position
        return self._python_view(place.position, place.strided, dtype)

    def _call(self, instruction: Instruction, number: int) -> Tail | None:
        if isinstance(instruction.op.form, op.Contraction):
            from tenferro.engines.cpu.products import add_product  # most programs have none, as with loops

            add_product(self, instruction)
            self.lending.check_order(self, instruction.outputs[0].index)
            return None
        if instruction.op is control.scan:
            from tenferro.engines.cpu.loop_binding import add_block_scan, add_scan

            if add_scan(self, instruction) or add_block_scan(self, instruction):
                return None
        if instruction.op is library.mask_select:
            from tenferro.engines.cpu.selections import bind_selection  # as above

            if (tail := bind_selection(self, instruction, number)) is not None:
                return tail
        first = self.positions
        sources = tuple([self.array_of(s.index) if isinstance(s, Slot) else s for s in instruction.inputs])
        self.close_block()
        views = tuple([s for s in sources if isinstance(s, int) and s >= first])
        outputs = tuple(self.new_position() for _ in instruction.outputs)
        if isinstance(instruction.op.form, Extension | Host):
            self.shown.update(self.places[s.index].position for s in instruction.inputs if isinstance(s, Slot))
            self.shown.update(outputs)
        dynamic = instruction.op.measures(instruction.params)
        self.actions.append(Call(instruction, sources, outputs, bool(dynamic), number))
        if views:  # they hold the memory of what they are views of
            self.actions.append(Drop(views))
        self.owned |= set(outputs)
        measured = ((instruction.runtime_extent(o, axis), outputs[o], axis) for o, axis in dynamic)
        leaves = tuple([(found, position, axis) for found, position, axis in measured if found is not None])
        for slot, position, kind in zip(instruction.outputs, outputs, instruction.types, strict=True):
            if dynamic:
                self.put(slot.index, Place(position, Strided(0, (), ())))
                continue
            shape = evaluate_shape(kind.shape, self.env)
            self.put(slot.index, Place(position, Strided(0, shape, contiguous(shape, kind.dtype.itemsize))))
            self.sizes[position] = math.prod(shape) * kind.dtype.itemsize
            self.declared[position] = (shape, kind.dtype)
        return Tail(number + 1, self, tuple(s.index for s in instruction.outputs), leaves) if dynamic else None

    def _output(self, source: Source) -> int | Source:
        if not isinstance(source, Slot):
            return source
        lent = self.lending.output(self, source.index)
        return self.array_of(source.index) if lent is None else lent
