"""Clusters: which instructions share a region. In: an ExecProgram. Out: for each instruction the cluster it belongs to.

Instructions are taken in order and join the cluster of an operand, merging operands' clusters where that is allowed.
Every cluster has a *rank* that is above the ranks of all clusters it reads from outside; a join that would read from a
cluster of equal or higher rank is refused unless nothing reads from the joined cluster yet, in which case its rank can
still rise. So no dependency path leaves a cluster and returns, and no search is ever made: the work is near-linear.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from enum import Enum

from tenferro.lowering.exec_program import ExecProgram, Instruction, Slot, Source
from tenferro.lowering.references import References
from tenferro.tracer.dims import Extent
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
from tenferro.tracer.ops.reductions import reduced_shape
from tenferro.tracer.records import dataclass

MAX_MEMBERS = 2000
"""Instructions of one region. Code generation is linear up to here; live values across a cut are materialised."""

MAX_CONCATENATED = 4
"""Operands of a concatenate that fuses; each costs a load and a select per element."""

Shape = tuple[Extent, ...]


class Level(Enum):
    """How a value's shape relates to its cluster: the whole space, or the space without its row axes."""

    ROW = "row"
    OUTER = "outer"


@dataclass(eq=False)
class Cluster:
    """Mutable while clusters grow. ``closed``: a call, or memory that is complete only after another cluster.
    ``has_gather``: some member's axes are counted in the space, so that it cannot compute at an outer level."""

    space: Shape
    rank: int
    closed: bool = False
    row_axes: tuple[int, ...] | None = None
    is_read: bool = False
    has_gather: bool = False
    members: list[int] = field(default_factory=list)
    parent: Cluster | None = None

    def outer_shapes(self) -> tuple[Shape, Shape]:
        """With and without axes of size 1 in place of the row axes."""
        axes = self.row_axes or ()
        return reduced_shape(self.space, axes, True), reduced_shape(self.space, axes, False)


def find(cluster: Cluster) -> Cluster:
    while cluster.parent is not None:
        if cluster.parent.parent is not None:
            cluster.parent = cluster.parent.parent
        cluster = cluster.parent
    return cluster


def fuses(instruction: Instruction) -> bool:
    """Whether the instruction becomes nodes of a region."""
    match instruction.op.form:
        case Pointwise() | Update():
            return True
        case Reduction():
            return len(instruction.params["axes"]) > 0
        case Indexed(kind="concatenate"):
            return len(instruction.inputs) <= MAX_CONCATENATED
        case Indexed():
            return True
        case View() | Contraction() | Library() | Control() | Collective() | Extension() | Host():
            return False


def is_iota(instruction: Instruction) -> bool:
    return isinstance(instruction.op.form, Indexed) and instruction.op.form.kind == "iota"


def _read_under_other_indices(instruction: Instruction) -> tuple[Source, ...]:
    """The leading operands that are read from memory, whatever their shape."""
    match instruction.op.form:
        case Indexed(kind="gather"):
            return instruction.inputs[:1]
        case Indexed():
            return instruction.inputs
        case _:
            return ()


class Clusters:
    """``owner``: per slot the cluster whose region or call writes it. ``level``: of slots that are cluster members.
    ``same_as``: slots that are another one's node under a shape that broadcasts back (a reduction's result)."""

    def __init__(self, program: ExecProgram, references: References) -> None:
        self.references = references
        self.types = references.types
        self.owner: dict[int, Cluster] = {}
        self.level: dict[int, Level] = {}
        self.same_as: dict[int, int] = {}
        self.update_level: dict[int, Level] = {}
        self.of_instruction: dict[int, Cluster] = {}
        self._effect_rank = 0  # of the last ordered call: the next one ranks above it, though it may read nothing of it
        for number, instruction in enumerate(program.instructions):
            self._place(number, instruction)
        self._share_loads()

    def all(self) -> list[Cluster]:
        """Every cluster of region members, in order of first instruction."""
        return list(dict.fromkeys(find(c) for c in self.of_instruction.values() if not find(c).closed))

    def _place(self, number: int, instruction: Instruction) -> None:
        form = instruction.op.form
        if is_iota(instruction):
            return
        if isinstance(form, View):
            self._place_view(instruction)
        elif not fuses(instruction):
            self._place_call(number, instruction)
        elif isinstance(form, Reduction):
            self._place_reduction(number, instruction)
        elif isinstance(form, Update):
            self._place_update(number, instruction)
        else:
            memory = _read_under_other_indices(instruction)
            slots = [s.index for s in instruction.inputs[len(memory) :] if isinstance(s, Slot)]
            shape = instruction.types[0].shape
            read = [s.index for s in memory if isinstance(s, Slot)] + self.references.size_slots(instruction)
            cluster, level = self._join(shape, slots, read)
            self._add(cluster, level, number, instruction)
            cluster.has_gather |= isinstance(form, Indexed) and form.kind == "gather"

    def _add(self, cluster: Cluster, level: Level, number: int, instruction: Instruction) -> None:
        cluster.members.append(number)
        self.of_instruction[number] = cluster
        for slot in instruction.outputs:
            self.owner[slot.index] = cluster
            self.level[slot.index] = level

    def _share_loads(self) -> None:
        """Merge clusters that read one array over one space, so that it is loaded once, and all scalar code, so that
        it is one call. Clusters of equal rank do not depend on one another."""
        first: dict[tuple[int | None, int, Shape], Cluster] = {}
        for number, mine in list(self.of_instruction.items()):
            cluster = find(mine)
            if cluster.closed:
                continue
            for array in self._whole_arrays(number, cluster):
                other = find(first.setdefault((array, cluster.rank, cluster.space), cluster))
                levels = {cluster: Level.ROW, other: Level.ROW}
                fits = len(cluster.members) + len(other.members) <= MAX_MEMBERS
                if other is not cluster and fits and _can_merge(other, cluster, levels):
                    self._merge(other, cluster, absorb=False)
                    cluster = other

    def _whole_arrays(self, number: int, cluster: Cluster) -> Iterable[int | None]:
        """The arrays of the cluster's space that an instruction reads as they are; None for scalar code."""
        if not cluster.space:
            yield None
            return
        for source in self.references.instructions[number].inputs:
            if isinstance(source, Slot) and self.types[source.index].shape == cluster.space:
                reference = self.references.of(source.index)
                if isinstance(reference.source, Slot) and reference.affine.is_identity:
                    yield reference.source.index

    # Views

    def _place_view(self, instruction: Instruction) -> None:
        (source,) = instruction.inputs
        (slot,) = instruction.outputs
        if not isinstance(source, Slot):
            return
        inner = self.same_as.get(source.index, source.index)
        owner = self.owner.get(inner)
        if owner is None or self.level.get(inner) is not Level.OUTER:
            return
        cluster = find(owner)
        if _is_same_node(instruction, cluster, self.types[source.index].shape):
            self.same_as[slot.index] = inner

    # Calls

    def _place_call(self, number: int, instruction: Instruction) -> None:
        slots = [s.index for s in instruction.inputs if isinstance(s, Slot)] + self.references.size_slots(instruction)
        below = self._rank_of_reads(slots)
        if instruction.op.is_ordered(instruction.params):
            below = max(below, self._effect_rank)
            self._effect_rank = below + 1
        cluster = Cluster((), 1 + below, closed=True)
        self._read(slots)
        self._add(cluster, Level.ROW, number, instruction)

    # Reductions

    def _place_reduction(self, number: int, instruction: Instruction) -> None:
        (source,) = instruction.inputs
        axes = instruction.params["axes"]
        shape = source.type.shape if not isinstance(source, Slot) else self.types[source.index].shape
        if isinstance(source, Slot):
            candidate = self._candidate(source.index, shape)
            if candidate is not None and candidate[1] is Level.ROW:
                cluster = candidate[0]
                if cluster.row_axes in (None, axes) and len(cluster.members) < MAX_MEMBERS:
                    cluster.row_axes = axes
                    self._add(cluster, Level.OUTER, number, instruction)
                    return
        slots = [s.index for s in (source,) if isinstance(s, Slot)] + self.references.size_slots(instruction)
        cluster = Cluster(shape, 1 + self._rank_of_reads(slots), row_axes=axes)
        self._read(slots)
        self._add(cluster, Level.OUTER, number, instruction)

    # Updates

    def _place_update(self, number: int, instruction: Instruction) -> None:
        base, value = instruction.inputs
        reads = [s.index for s in (base,) if isinstance(s, Slot)] + self.references.size_slots(instruction)
        slots = [value.index] if isinstance(value, Slot) else []
        shape = value.type.shape if not isinstance(value, Slot) else self.types[value.index].shape
        if not shape:
            boxed = all(n == 1 for n in instruction.params["sizes"])
            shape = () if boxed else instruction.params["sizes"]
        # The base is adopted one step before, hence one rank more.
        cluster, level = self._join(shape, slots, reads, room=1)
        cluster.members.append(number)
        self.update_level[number] = level
        cluster.is_read = True
        self.of_instruction[number] = cluster
        self.owner[instruction.outputs[0].index] = Cluster((), cluster.rank + 1, closed=True, members=[number])

    # Joining

    def _candidate(self, slot: int, shape: Shape) -> tuple[Cluster, Level] | None:
        """The cluster in which ``slot`` is a node that an instruction of result ``shape`` can use, and the level that
        the instruction has there."""
        inner = self.same_as.get(slot, slot)
        owner = self.owner.get(inner)
        if owner is None or inner not in self.level:
            return None
        cluster = find(owner)
        if cluster.closed:
            return None
        mine = self.types[slot].shape
        if self.level[inner] is Level.ROW:
            return (cluster, Level.ROW) if mine == shape == cluster.space else None
        if shape in cluster.outer_shapes() and (mine == shape or mine == ()):
            return cluster, Level.OUTER
        if shape == cluster.space and (mine == shape or mine == ()):
            return (cluster, Level.ROW) if mine == shape or cluster.outer_shapes()[1] == () else None
        return None

    def _join(self, shape: Shape, slots: Sequence[int], memory: Sequence[int], room: int = 0) -> tuple[Cluster, Level]:
        """The cluster for an instruction of result ``shape`` that uses ``slots`` and reads ``memory``."""
        candidates: dict[Cluster, Level] = {}
        users: dict[Cluster, list[int]] = {}
        outside = list(memory)
        for slot in slots:
            found = self._candidate(slot, shape)
            if found is None:
                outside.append(slot)
                continue
            cluster, level = found
            if candidates.get(cluster) is not Level.ROW:
                candidates[cluster] = level
            users.setdefault(cluster, []).append(slot)
        floor = self._rank_of_reads(outside) + (room if memory else 0)
        barred = {find(c) for c in self._sources(outside)}
        order = sorted(candidates, key=lambda c: (candidates[c] is Level.OUTER, c.rank), reverse=True)
        for main in order:
            if main not in barred and self._try(main, candidates, order, barred, floor):
                inside = {s for c, used in users.items() if find(c) is main for s in used}
                self._read([s for s in (*outside, *slots) if s not in inside])
                return main, candidates[main]
        self._read([*outside, *slots])
        return Cluster(shape, 1 + max(floor, self._rank_of_reads(slots))), Level.ROW

    def _try(
        self, main: Cluster, levels: Mapping[Cluster, Level], order: Sequence[Cluster], barred: set[Cluster], floor: int
    ) -> bool:
        """Join ``main``, merging the other candidates into it where allowed and reading from them where not.
        ``barred`` are read from memory too."""
        size = len(main.members)
        merged: list[Cluster] = []
        for other in order:
            fits = size + len(other.members) < MAX_MEMBERS
            if other is not main and other not in barred and fits and _can_merge(main, other, levels):
                merged.append(other)
                size += len(other.members)
        if size >= MAX_MEMBERS:
            return False
        below = max([floor, *(c.rank for c in order if c is not main and c not in merged)])
        rank = max([main.rank, *(c.rank for c in merged)])
        if below >= rank:
            if main.is_read or any(c.is_read for c in merged):
                return False
            rank = below + 1
        for other in merged:
            self._merge(main, other, absorb=levels[main] is Level.OUTER and levels[other] is Level.ROW)
        main.rank = rank
        return True

    def _merge(self, main: Cluster, other: Cluster, absorb: bool) -> None:
        """``other``'s members become ``main``'s; absorbed, they compute at its outer level."""
        if absorb:
            for number in other.members:
                for slot in self.references.instructions[number].outputs:
                    if slot.index in self.level:
                        self.level[slot.index] = Level.OUTER
                if number in self.update_level:
                    self.update_level[number] = Level.OUTER
        elif other.row_axes is not None:
            main.row_axes = other.row_axes
        if len(other.members) > len(main.members):
            main.members, other.members = other.members, main.members
        main.members.extend(other.members)
        main.is_read |= other.is_read
        main.has_gather |= other.has_gather
        other.members = []
        other.parent = main

    def _rank_of_reads(self, slots: Iterable[int]) -> int:
        return max((find(c).rank for c in self._sources(slots)), default=0)

    def _read(self, slots: Iterable[int]) -> None:
        for cluster in self._sources(slots):
            find(cluster).is_read = True

    def _sources(self, slots: Iterable[int]) -> Iterable[Cluster]:
        """The clusters that own the memory behind the slots."""
        for slot in slots:
            source = self.references.of(slot).source
            while isinstance(source, Slot) and source.index in self.references.own_view:
                instruction = self.references.instruction(source.index)
                assert instruction is not None
                inner = instruction.inputs[0]
                source = self.references.of(inner.index).source if isinstance(inner, Slot) else inner
            if isinstance(source, Slot) and source.index in self.owner:
                yield self.owner[source.index]


def _can_merge(main: Cluster, other: Cluster, levels: Mapping[Cluster, Level]) -> bool:
    low, high = sorted((main, other), key=lambda c: c.rank)
    if low.rank != high.rank and low.is_read:
        return False
    if levels[main] is Level.OUTER and levels[other] is Level.ROW:
        return other.row_axes is None and not other.has_gather
    return (
        levels[main] is levels[other]
        and main.space == other.space
        and (main.row_axes is None or other.row_axes is None or main.row_axes == other.row_axes)
    )


def _is_same_node(view: Instruction, cluster: Cluster, shape: Shape) -> bool:
    """Whether a view of an outer value of ``shape`` only repeats it along the row axes, or drops or adds them."""
    kept, squeezed = cluster.outer_shapes()
    target = view.types[0].shape
    match view.op.form:
        case View(kind="broadcast_to"):
            axes = view.params["axes"]
            others = tuple(a for a in range(len(cluster.space)) if a not in (cluster.row_axes or ()))
            fits = axes == tuple(range(len(cluster.space))) if shape == kept else axes == others
            return target in (kept, cluster.space) and fits and shape in (kept, squeezed)
        case View(kind="reshape"):
            return target in (kept, squeezed) and shape in (kept, squeezed)
        case _:
            return False
