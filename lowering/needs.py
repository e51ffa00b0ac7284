"""Which slots need an array, and which are recomputed where they are used. In: clusters. Out: ``Needs``."""

from __future__ import annotations

from dataclasses import field

from tenferro.lowering.clusters import Clusters, Level, find, fuses, is_iota
from tenferro.lowering.exec_program import ExecProgram, Instruction, Slot, Source
from tenferro.lowering.references import References
from tenferro.tracer.op import Indexed, Pointwise, Update, View
from tenferro.tracer.records import dataclass

CHEAP = 3
"""Native operations up to which a value with one load is recomputed rather than stored and loaded again."""

MAX_RECOMPUTED = 4
"""Readers of a recomputed value."""


@dataclass
class Needs:
    """``memory``: slots whose array must exist. ``fills``: views of scalars whose array must exist.
    ``virtual``: slots without an array, computed anew in every region that reads them. ``reads``: readers of a slot
    outside its region. ``dropped`` and ``reshaped``: slots read through a view that drops an axis, which no window can
    follow, or that splits or merges axes, which no index map can."""

    memory: set[int] = field(default_factory=set)
    fills: set[int] = field(default_factory=set)
    virtual: set[int] = field(default_factory=set)
    reads: dict[int, int] = field(default_factory=dict)
    dropped: set[int] = field(default_factory=set)
    reshaped: set[int] = field(default_factory=set)


def needs(program: ExecProgram, references: References, clusters: Clusters) -> Needs:
    found = Needs()
    for o in program.outputs:
        _require(found, references, o)
    for slot in references.own_view:
        instruction = references.instruction(slot)
        assert instruction is not None
        _require(found, references, instruction.inputs[0])
    for number, instruction in enumerate(program.instructions):
        for source in _arrays_read(instruction):
            _require(found, references, source)
        _count_reads(found, references, clusters, number, instruction)
    _choose_virtual(found, program, references, clusters)
    return found


def _require(found: Needs, references: References, source: Source) -> None:
    if not isinstance(source, Slot):
        return
    root = references.of(source.index).source
    if isinstance(root, Slot):
        found.memory.add(root.index)
    else:
        found.fills.add(source.index)


def _arrays_read(instruction: Instruction) -> tuple[Source, ...]:
    """Operands that are read as whole arrays, outside any index map of a region."""
    match instruction.op.form:
        case Update():
            return instruction.inputs[:1]
        case Indexed(kind="gather"):
            return instruction.inputs[:1]
        case View():
            return ()
        case _:
            return () if fuses(instruction) else instruction.inputs


def is_inside(clusters: Clusters, number: int, slot: int) -> bool:
    """Whether ``slot`` is a node of the region that instruction ``number`` belongs to."""
    inner = clusters.same_as.get(slot, slot)
    owner, mine = clusters.owner.get(inner), clusters.of_instruction.get(number)
    return owner is not None and mine is not None and inner in clusters.level and find(owner) is find(mine)


def _count_reads(
    found: Needs, references: References, clusters: Clusters, number: int, instruction: Instruction
) -> None:
    if not fuses(instruction):
        return
    for source in instruction.inputs:
        if isinstance(source, Slot) and not is_inside(clusters, number, source.index):
            reference = references.of(source.index)
            root = reference.source
            if isinstance(root, Slot):
                if reference.affine.drops:
                    found.dropped.add(root.index)
                if reference.reshape:
                    found.reshaped.add(root.index)
                found.reads[root.index] = found.reads.get(root.index, 0) + 1


def _choose_virtual(found: Needs, program: ExecProgram, references: References, clusters: Clusters) -> None:
    inside_uses: set[int] = set()
    for number, instruction in enumerate(program.instructions):
        for source in instruction.inputs:
            if isinstance(source, Slot) and is_inside(clusters, number, source.index):
                inside_uses.add(clusters.same_as.get(source.index, source.index))
    for number, instruction in enumerate(program.instructions):
        slot = instruction.outputs[0].index
        if slot in found.memory or isinstance(instruction.op.form, View):
            continue
        if is_iota(instruction):
            found.virtual.add(slot)
        elif slot in found.reads and slot not in found.reshaped and clusters.level.get(slot) is Level.ROW:
            if (
                _is_window(instruction)
                and found.reads[slot] == 1
                and slot not in inside_uses
                and slot not in found.dropped
            ):
                found.virtual.add(slot)
            elif _is_cheap(found, references, clusters, number, instruction):
                found.virtual.add(slot)
    found.memory.update(s for s in found.reads if s not in found.virtual)


def _is_window(instruction: Instruction) -> bool:
    form = instruction.op.form
    return isinstance(form, Indexed) and form.kind in ("pad", "concatenate") and fuses(instruction)


def _is_cheap(found: Needs, references: References, clusters: Clusters, number: int, instruction: Instruction) -> bool:
    """One load that is no wider than the result, and few native operations on it."""
    form, slot = instruction.op.form, instruction.outputs[0].index
    if not isinstance(form, Pointwise) or form.cost > CHEAP or form.check is not None:
        return False
    if found.reads[slot] > MAX_RECOMPUTED:
        return False
    operands = {s.index for s in instruction.inputs if isinstance(s, Slot)}
    if len(operands) != 1:
        return False
    (operand,) = operands
    root = references.of(operand).source
    return (
        isinstance(root, Slot)
        and not is_inside(clusters, number, operand)
        and root.index not in found.virtual
        and references.types[operand].rank == instruction.types[0].rank
        and references.types[operand].dtype.itemsize <= instruction.types[0].dtype.itemsize
    )
