"""A plan on the layouts of one call: everything that can be decided once per shape is decided here.

In: a Plan, the layouts of a call's inputs, its sizes. Out: a ``BoundPlan``: actions over *bases* (addresses of one run:
those of the inputs, then the arena's, then those of arrays that outlive the run). Temporaries and scratch memory have
fixed places in the arena, which is reused after each last use; a run allocates it in one piece.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import assert_never

import numpy as np

from tenferro.engines.cpu import layout as lay
from tenferro.engines.cpu.layout import NeedsCopyError, Strided, contiguous
from tenferro.engines.cpu.slabs import copy_region, kept_slabs, slab_copy
from tenferro.engines.cuda.actions import Action, Call, Fill, Launch, Product, Ref
from tenferro.engines.cuda.arena import Arena
from tenferro.engines.cuda.device import ALIGNMENT
from tenferro.engines.cuda.graphs import Segment, segments
from tenferro.engines.cuda.kernels import KernelTable, Loaded
from tenferro.engines.cuda.launch import CELLS, LATCH, PARTS, Bound, EmptyRowsError, bind_region
from tenferro.engines.engine import Executor
from tenferro.lowering.checks import empty_error
from tenferro.lowering.exec_program import Instruction, Slot, Source
from tenferro.lowering.plan import AdoptStep, CallStep, Plan, RegionStep, Step, ViewStep
from tenferro.lowering.region import Access, Apply, Gather, Load, Region, Store, ViewStep as View
from tenferro.tracer import op
from tenferro.tracer.dims import Leaf, evaluate_shape
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.lines import SourceLine, at
from tenferro.tracer.op import Contraction, Extension, Pointwise
from tenferro.tracer.program import ArrayType
from tenferro.tracer.records import dataclass

WORD = 8


@dataclass(frozen=True, slots=True)
class Owned:
    """Memory that outlives a run. ``size``: −1 for what a ``Call`` makes. ``what`` it holds, for error texts."""

    size: int
    what: str


@dataclass(frozen=True)
class BoundPlan:
    """``owned``: the bases after the arena, in order. ``latch``: whether the arena's first word is to be looked at when
    all is done."""

    segments: tuple[Segment, ...]
    kernels: tuple[Loaded, ...]
    arena: int
    owned: tuple[Owned, ...]
    outputs: tuple[Ref | Source, ...]
    latch: bool


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory of a run: ``size`` bytes from ``offset`` on. ``alignment`` is that of its first byte."""

    base: int
    offset: int
    size: int
    alignment: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a slot's elements are: a buffer, and the slot's layout from that buffer's first byte on."""

    buffer: int
    strided: Strided


@dataclass
class Binder:
    """Binds one plan. One use."""

    plan: Plan
    kernels: KernelTable
    env: Mapping[Leaf, int]
    inputs: Sequence[tuple[Strided, int]]  # layout and alignment of each
    executors: Mapping[str, Executor]
    types: dict[int, ArrayType] = field(init=False)
    places: dict[int, Place] = field(default_factory=dict)
    buffers: list[Buffer] = field(default_factory=list)
    users: dict[int, int] = field(default_factory=dict)  # buffer → live slots in it
    writable: set[int] = field(default_factory=set)  # buffers that this run made
    owned: list[Owned] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)
    texts: list[tuple[Bound, Region]] = field(default_factory=list)
    arena: Arena = field(default_factory=Arena)
    lasting: frozenset[int] = frozenset()
    virtual: int = -1
    latch: bool = False

    def __post_init__(self) -> None:
        self.types = self.plan.program.slot_types()
        self.lasting = self.plan.lasting()
        for k, (declared, (strided, alignment)) in enumerate(zip(self.plan.program.inputs, self.inputs, strict=True)):
            self.buffers.append(Buffer(k, 0, 0, alignment))
            self.put(declared.slot.index, Place(k, strided))
        self.latch = any(reports(r) for r in self.plan.regions)
        if self.latch:
            self.arena.allocate(WORD)  # its first word
            self.actions.append(Fill(self.arena_base, 0, 0xFF, WORD))

    @property
    def arena_base(self) -> int:
        return len(self.inputs)

    def bind(self) -> BoundPlan:
        """All steps; then the kernels, in one module."""
        for step, dead in zip(self.plan.steps, self.plan.frees, strict=True):
            self._step(step)
            self._free(dead)
        outputs = tuple(self.ref(o.index) if isinstance(o, Slot) else o for o in self.plan.program.outputs)
        loaded = self.kernels.load([(bound.key, region) for bound, region in self.texts])
        cut = segments(self.kernels.device, self.actions)
        return BoundPlan(cut, loaded, self.arena.size, tuple(self.owned), outputs, self.latch)

    def _step(self, step: Step) -> None:
        match step:
            case RegionStep(region=region):
                self._region_step(region)
            case ViewStep(instruction=instruction):
                self._view(instruction)
            case AdoptStep():
                self._adopt(step)
            case CallStep(instruction=instruction):
                self._call(instruction)
            case _:
                assert_never(step)

    # Memory.

    def put(self, slot: int, place: Place) -> None:
        self.places[slot] = place
        self.users[place.buffer] = self.users.get(place.buffer, 0) + 1

    def _buffer(self, buffer: Buffer) -> int:
        self.buffers.append(buffer)
        self.writable.add(len(self.buffers) - 1)
        return len(self.buffers) - 1

    def _own(self, slot: int, size: int, alignment: int = ALIGNMENT) -> int:
        """A buffer with memory of its own; ``size`` −1: somebody else will bring it."""
        line = self._line(slot)
        self.owned.append(Owned(size, f"{self.plan.program.name} at {line}" if line else self.plan.program.name))
        return self._buffer(Buffer(self.arena_base + len(self.owned), 0, size, alignment))

    def _line(self, slot: int) -> SourceLine | None:
        """The user's line that made a slot."""
        made = (i.line for i in self.plan.program.instructions if slot in [o.index for o in i.outputs])
        return next(made, None)

    def _temporary(self, size: int) -> int:
        return self._buffer(Buffer(self.arena_base, self.arena.allocate(size), size, ALIGNMENT))

    def _shape(self, slot: int) -> tuple[int, ...]:
        return evaluate_shape(self.types[slot].shape, self.env)

    def fresh(self, slot: int, shape: tuple[int, ...] | None = None) -> Place:
        """Put a slot into fresh memory, C-ordered."""
        shape, itemsize = self._shape(slot) if shape is None else shape, self.types[slot].dtype.itemsize
        size = math.prod(shape) * itemsize
        buffer = self._own(slot, size) if slot in self.lasting else self._temporary(size)
        place = Place(buffer, Strided(0, shape, contiguous(shape, itemsize)))
        self.put(slot, place)
        return place

    def _free(self, slots: Sequence[int]) -> None:
        for slot in slots:
            place = self.places.pop(slot, None)
            if place is None:
                continue
            self.users[place.buffer] -= 1
            buffer = self.buffers[place.buffer]
            if self.users[place.buffer] == 0 and place.buffer in self.writable and buffer.base == self.arena_base:
                self.writable.discard(place.buffer)
                self.arena.free(buffer.offset, buffer.size)

    def ref(self, slot: int) -> Ref:
        place = self.places[slot]
        buffer, strided = self.buffers[place.buffer], place.strided
        moved = Strided(buffer.offset + strided.offset, strided.shape, strided.strides)
        return Ref(buffer.base, moved, self.types[slot].dtype)

    # Regions.

    def _region_step(self, region: Region) -> None:
        for store in region.stores:
            if store.slot not in self.places and not self._takes_over(store):
                self.fresh(store.slot)
        before = self.virtual
        self._region(self._with_copies(region), region)
        self._free(range(self.virtual + 1, before + 1))

    def _takes_over(self, store: Store) -> bool:
        """Put a store's slot where the array lies that it may be written over. A result has memory of its own, an array
        that is none lies in the arena, which ends with the run."""
        place = None if store.over is None else self.places[store.over]
        if place is None or place.buffer not in self.writable:
            return False
        if store.slot in self.lasting and self.buffers[place.buffer].base == self.arena_base:
            return False
        shape, itemsize = self._shape(store.slot), self.types[store.slot].dtype.itemsize
        if place.strided != Strided(0, shape, contiguous(shape, itemsize)):
            return False
        self.put(store.slot, place)
        return True

    def _region(self, region: Region, prototype: Region) -> None:
        """The launches of ``region``; the text of its kernel is that of ``prototype``."""
        slots = {slot: place.strided for slot, place in self.places.items()}
        itemsizes = {slot: self.types[slot].dtype.itemsize for slot in slots}
        alignment = {slot: self.buffers[place.buffer].alignment for slot, place in self.places.items()}
        try:
            bound = bind_region(region, slots, itemsizes, alignment, self.env, self.kernels.shape)
        except EmptyRowsError as error:
            raise empty_error(self.plan.program.instructions[error.operation]) from None
        if bound is None:
            return
        self.texts.append((bound, prototype))
        self._launches(bound, reports(region))

    def _launches(self, bound: Bound, reporting: bool) -> None:
        scratch: list[tuple[int, int, int]] = []  # word, offset, size
        for word, count in ((PARTS, bound.parts), (CELLS, bound.cells)):
            if count:
                scratch.append((word, self.arena.allocate(count * WORD), count * WORD))
        pointers = [(word, self.arena_base, offset) for word, offset, _ in scratch]
        if reporting:
            pointers.append((LATCH, self.arena_base, 0))
        for word, slot, offset in bound.pointers:
            buffer = self.buffers[self.places[slot].buffer]
            pointers.append((word, buffer.base, buffer.offset + offset))
        tables = []
        for one in bound.launches:
            words = np.array(one.words, np.int64)
            table = None
            if not self.kernels.by_value(bound.key, self.texts[-1][1]):
                table = self.arena.allocate(words.nbytes)
                tables.append((table, words.nbytes))
            where = None if table is None else (self.arena_base, table)
            kernel = len(self.texts) - 1
            self.actions.append(
                Launch(one.entry, kernel, one.grid, one.block, one.shared, words, tuple(pointers), where)
            )
        for offset, size in [*tables, *((offset, size) for _, offset, size in scratch)]:
            self.arena.free(offset, size)

    def _with_copies(self, region: Region) -> Region:
        """The region with every access that has no strided form replaced by an access to a copy."""
        nodes = list(region.nodes)
        for k, node in enumerate(nodes):
            if isinstance(node, Load | Gather):
                access = self._strided_access(node.access)
                if access is not node.access:
                    nodes[k] = dataclasses.replace(node, access=access)
        return dataclasses.replace(region, nodes=tuple(nodes))

    def _strided_access(self, access: Access) -> Access:
        while True:
            try:
                lay.apply_views(self.places[access.slot].strided, access.views, self.env)
                return access
            except NeedsCopyError as error:
                shape = evaluate_shape(access.views[error.steps].params["shape"], self.env)
                slot = self.virtual
                self.virtual -= 1
                self.types[slot] = ArrayType(self.types[access.slot].dtype, shape)
                self._copy(Access(access.slot, access.views[: error.steps]), slot)
                access = Access(slot, access.views[error.steps + 1 :])

    def _copy(self, source: Access, target: int) -> None:
        """Put a C-ordered copy of ``source`` into ``target``, which may have another shape."""
        before = lay.apply_views(self.places[source.slot].strided, source.views, self.env)
        place = self.fresh(target)
        shape, itemsize = before.shape, self.types[target].dtype.itemsize
        self.places[target] = Place(place.buffer, Strided(0, shape, contiguous(shape, itemsize)))
        prototype = copy_region(self.types[target].dtype, len(shape))
        (load,) = prototype.nodes
        assert isinstance(load, Load)
        node = dataclasses.replace(load, access=source)
        region = dataclasses.replace(prototype, space=shape, nodes=(node,), stores=(Store(target, 0),))
        self._region(region, prototype)
        self.places[target] = place

    # Other steps.

    def _view(self, instruction: Instruction) -> None:
        (source,) = (s for s in instruction.inputs if isinstance(s, Slot))
        target = instruction.outputs[0].index
        form = instruction.op.form
        assert isinstance(form, op.View)
        place = self.places[source.index]
        try:
            step = View(form.kind, instruction.params)
            self.put(target, Place(place.buffer, lay.apply_views(place.strided, (step,), self.env)))
        except NeedsCopyError:
            self._copy(Access(source.index, ()), target)

    def _adopt(self, step: AdoptStep) -> None:
        base, target = self.places[step.base.index], step.target.index
        if step.steal and base.buffer in self.writable:
            self.put(target, base)
            return
        self.fresh(target)
        prototype = copy_region(self.types[target].dtype, len(base.strided.shape))
        for starts, sizes in kept_slabs(step, self._shape(step.base.index), self.env):
            self._region(slab_copy(prototype, step.base.index, target, starts, sizes), prototype)

    def _call(self, instruction: Instruction) -> None:
        form = instruction.op.form
        if isinstance(form, Contraction):
            self._product(instruction)
        elif isinstance(form, Extension) and form.family in self.executors:
            self._extension(instruction)
        else:
            raise LoweringError(
                f"{instruction.op.name}: a call of form {type(form).__name__}, which a CUDA engine does not run; an "
                f"engine with the capability is needed{at(instruction.line)}"
            )

    def _product(self, instruction: Instruction) -> None:
        operands = [self.ref(s.index) for s in instruction.inputs if isinstance(s, Slot)]
        target = instruction.outputs[0].index
        self.fresh(target)
        out = self.ref(target)
        size = math.prod(out.strided.shape) * out.dtype.itemsize
        if not size:
            return
        if operands[0].strided.shape[-1] == 0:
            self.actions.append(Fill(out.base, out.strided.offset, 0, size))
            return
        self.actions.append(Product(out, tuple(operands)))

    def _extension(self, instruction: Instruction) -> None:
        operands = tuple(self.ref(s.index) if isinstance(s, Slot) else s for s in instruction.inputs)
        made = []
        for slot, kind in zip(instruction.outputs, instruction.types, strict=True):
            buffer = self._own(slot.index, -1, kind.dtype.itemsize)
            self.writable.discard(buffer)  # an executor may return what it was given
            made.append(self.buffers[buffer].base)
            shape = self._shape(slot.index)
            self.put(slot.index, Place(buffer, Strided(0, shape, contiguous(shape, kind.dtype.itemsize))))
        self.actions.append(Call(instruction, operands, tuple(made)))


def reports(region: Region) -> bool:
    """Whether the region's kernel may write the latch."""
    return any(
        isinstance(n, Gather) or (isinstance(n, Apply) and isinstance(n.op.form, Pointwise) and n.op.form.check)
        for n in region.nodes
    )
