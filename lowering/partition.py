"""Parts: an ExecProgram and an engine for each of its instructions go in, programs of their own come out, one engine
each.

A part holds every instruction of one engine at one *level*: the number of changes of engine on the longest way from the
inputs. Parts of one level do not wait for one another, and every value flows to a higher level, so that the parts form
no cycle. With one engine there is one part, the whole program.

A part's sizes are expressions of leaves of the whole program; it gets the value of each as an int input.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tenferro.lowering.exec_program import ExecInput, ExecProgram, Instruction, Slot, Source
from tenferro.lowering.masks import is_checked, slot_conditions
from tenferro.lowering.sizes_read import measured, sizes_in
from tenferro.tracer.dims import DimExpr, Extent, Leaf, leaf, substitute
from tenferro.tracer.op import Collective, Pointwise
from tenferro.tracer.program import ArrayType, DimScalar, Params
from tenferro.tracer.records import dataclass

_EFFECTS = "effects"  # what an ordered instruction reads and makes
_INT64 = np.dtype(np.int64)


@dataclass(frozen=True)
class Part:
    """``program`` reads the slots ``reads`` of the whole, then the values of ``sizes``; its outputs are the slots
    ``writes``. Run-time extents that it measures have one name in both."""

    engine: int
    level: int
    program: ExecProgram
    reads: tuple[int, ...]
    sizes: tuple[Leaf, ...]
    writes: tuple[int, ...]
    numbers: tuple[int, ...]  # its instructions in the whole program
    measured: tuple[Leaf, ...] = ()
    is_whole: bool = False  # ``program`` is the whole program, with its inputs and outputs


def is_collective(instruction: Instruction) -> bool:
    return isinstance(instruction.op.form, Collective)


def levels(program: ExecProgram, engines: Sequence[int]) -> list[int]:
    """The level of each instruction. A collective is a level of its own."""
    made: dict[Slot | Leaf | str, tuple[int, int]] = {}  # → (level, engine); engine −1 after a collective
    found = []
    for number, instruction in enumerate(program.instructions):
        engine = -1 if is_collective(instruction) else engines[number]
        needs: set[Slot | Leaf | str] = {s for s in instruction.inputs if isinstance(s, Slot)}
        needs |= _leaves_of(instruction)
        if instruction.op.is_ordered(instruction.params):
            needs.add(_EFFECTS)
        level = 0
        for need in needs:
            if need not in made:
                continue
            before, where = made[need]
            level = max(level, before + (where != engine or engine < 0))
        found.append(level)
        effects = (_EFFECTS,) if instruction.op.is_ordered(instruction.params) else ()
        for product in (
            *instruction.outputs,
            *measured(instruction.op, instruction.params, instruction.types),
            *effects,
        ):
            made[product] = (level, engine)
    return found


def partition(program: ExecProgram, engines: Sequence[int]) -> tuple[Part | int, ...]:
    """The parts, in an order in which they may run; a collective stands as the number of its instruction."""
    groups: dict[tuple[int, int], list[int]] = {}
    followed = _followed(program)
    engines = _together(engines, followed)
    order = levels(program, engines)
    late = _made_of_nothing(program) | followed
    for number in sorted(late, reverse=True):
        latest = min(order[k] - (engines[k] != engines[number]) for k in late[number])
        order[number] = max(order[number], latest)
    for number, level in enumerate(order):
        where = -1 - number if is_collective(program.instructions[number]) else engines[number]
        groups.setdefault((level, where), []).append(number)
    needed = _readers(program, engines, order)
    found: list[Part | int] = []
    for (level, where), members in sorted(groups.items(), key=lambda item: (item[0][0], item[1][0])):
        found.append(members[0] if where < 0 else _part(program, where, level, members, needed))
    return tuple(found)


def _followed(program: ExecProgram) -> dict[int, list[int]]:
    """Instructions of which a ``where`` discards lanes, with those that read them: all belong into one part, since a
    check counts only for lanes that are kept, and only the ``where`` knows which."""
    conditions = slot_conditions(program)
    makers = {i.outputs[0].index: n for n, i in enumerate(program.instructions) if len(i.outputs) == 1}
    found: dict[int, list[int]] = {}
    for number, instruction in enumerate(program.instructions):
        behind = [n for n in _makers(instruction, makers) if n in found]
        for n in behind:
            found[n].append(number)
        is_watched = isinstance(instruction.op.form, Pointwise) and conditions.get(instruction.outputs[0].index)
        if is_watched and (is_checked(instruction) or behind):
            found[number] = []
    return found


def _made_of_nothing(program: ExecProgram) -> dict[int, list[int]]:
    """Instructions that read no array, with those that read them: what is written into such an array in the part that
    makes it is written in place."""
    readers: dict[int, list[int]] = {}
    for number, instruction in enumerate(program.instructions):
        for s in instruction.inputs:
            if isinstance(s, Slot):
                readers.setdefault(s.index, []).append(number)
    found = {}
    for number, instruction in enumerate(program.instructions):
        reads = any(isinstance(s, Slot) for s in instruction.inputs)
        follow = [k for slot in instruction.outputs for k in readers.get(slot.index, ())]
        if follow and not reads and not instruction.op.is_ordered(instruction.params):
            found[number] = follow
    return found


def _makers(instruction: Instruction, makers: Mapping[int, int]) -> set[int]:
    return {makers[s.index] for s in instruction.inputs if isinstance(s, Slot) and s.index in makers}


def _together(engines: Sequence[int], followed: Mapping[int, Sequence[int]]) -> list[int]:
    """Engines with every followed instruction where its last reader is."""
    found = list(engines)
    for number in sorted(followed, reverse=True):
        found[number] = found[max(followed[number])]
    return found


def _readers(program: ExecProgram, engines: Sequence[int], order: Sequence[int]) -> dict[int, set[tuple[int, int]]]:
    """For each slot the (level, engine) of its readers; (−1, −1) stands for the program's outputs."""
    found: dict[int, set[tuple[int, int]]] = {}
    for number, instruction in enumerate(program.instructions):
        where = -1 - number if is_collective(instruction) else engines[number]
        for source in instruction.inputs:
            if isinstance(source, Slot):
                found.setdefault(source.index, set()).add((order[number], where))
    for o in program.outputs:
        if isinstance(o, Slot):
            found.setdefault(o.index, set()).add((-1, -1))
    return found


def _part(
    program: ExecProgram, engine: int, level: int, members: Sequence[int], needed: dict[int, set[tuple[int, int]]]
) -> Part:
    mine = [program.instructions[n] for n in members]
    made = {s.index for i in mine for s in i.outputs}
    types = program.slot_types()
    reads = tuple(dict.fromkeys(s.index for i in mine for s in i.inputs if isinstance(s, Slot) and s.index not in made))
    writes = tuple(s for s in sorted(made) if needed.get(s, set()) - {(level, engine)})
    own = {x for i in mine for x in measured(i.op, i.params, i.types)}
    sizes = tuple(sorted(_all_leaves(mine, [types[s] for s in reads]) - own))
    renaming = _Renaming(reads, sizes, made, own)
    inputs = [ExecInput(Slot(k), renaming.type(types[s]), "argument", f"slot {s}") for k, s in enumerate(reads)]
    inputs += [ExecInput(Slot(len(reads) + k), ArrayType(_INT64, ()), "int", str(size)) for k, size in enumerate(sizes)]
    outputs = tuple(renaming.slot(s) for s in writes)
    last = {s.index: k for k, i in enumerate(mine) for s in i.inputs if isinstance(s, Slot)}
    last.update((s, len(mine)) for s in writes)
    instructions = tuple(renaming.instruction(i, partial(_is_last, last, k)) for k, i in enumerate(mine))
    part = ExecProgram(f"{program.name}.{level}", tuple(inputs), instructions, outputs, renaming.n_slots, ())
    return Part(engine, level, part, reads, sizes, writes, tuple(members), tuple(sorted(own)))


def whole(program: ExecProgram, engine: int) -> Part:
    """The program as its one part."""
    return Part(
        engine,
        0,
        program,
        tuple(i.slot.index for i in program.inputs),
        (),
        tuple(o.index for o in program.outputs if isinstance(o, Slot)),
        tuple(range(len(program.instructions))),
        is_whole=True,
    )


def _all_leaves(instructions: Iterable[Instruction], read: Iterable[ArrayType]) -> set[Leaf]:
    found = set(sizes_in(t.shape for t in read))
    for i in instructions:
        found |= _leaves_of(i)
    return found


def _leaves_of(instruction: Instruction) -> set[Leaf]:
    shapes = (t.shape for t in instruction.types)
    return set(sizes_in((*shapes, *instruction.params.values(), *instruction.inputs)))


def _is_last(last: Mapping[int, int], number: int, slot: int) -> bool:
    return last[slot] == number


class _Renaming:
    """Slots and leaves of the whole program → those of a part."""

    def __init__(self, reads: Sequence[int], sizes: Sequence[Leaf], made: Iterable[int], own: set[Leaf]) -> None:
        first = len(reads) + len(sizes)
        self.slots = {s: k for k, s in enumerate(reads)}
        self.slots.update((s, first + k) for k, s in enumerate(sorted(made)))
        self.n_slots = len(self.slots) + len(sizes)
        self.leaves: dict[Leaf, Extent] = {size: leaf("int", len(reads) + k) for k, size in enumerate(sizes)}
        self.leaves.update((x, leaf(x.kind, x.index, x.axis)) for x in own)

    def slot(self, index: int) -> Slot:
        return Slot(self.slots[index])

    def extent(self, extent: Extent) -> Extent:
        return substitute(extent, self.leaves.__getitem__)

    def type(self, old: ArrayType) -> ArrayType:
        return old if all(isinstance(n, int) for n in old.shape) else replace(old, shape=self._shape(old.shape))

    def _shape(self, shape: tuple[Extent, ...]) -> tuple[Extent, ...]:
        return tuple(self.extent(n) for n in shape)

    def value(self, value: Any) -> Any:
        if isinstance(value, DimExpr):
            return self.extent(value)
        return tuple(self.value(v) for v in value) if isinstance(value, tuple) else value

    def source(self, source: Source) -> Source:
        if isinstance(source, Slot):
            return self.slot(source.index)
        if not isinstance(source, DimScalar):
            return source
        expr = self.extent(source.expr)
        assert isinstance(expr, DimExpr)  # a leaf becomes a leaf
        return replace(source, expr=expr)

    def instruction(self, old: Instruction, ends: Callable[[int], bool]) -> Instruction:
        """``ends``: whether nothing of the part reads a slot after this."""
        return replace(
            old,
            inputs=tuple(self.source(s) for s in old.inputs),
            params=Params(**{k: self.value(v) for k, v in old.params.items()}),
            outputs=tuple(self.slot(s.index) for s in old.outputs),
            types=tuple(self.type(t) for t in old.types),
            last_use=tuple(isinstance(s, Slot) and ends(s.index) for s in old.inputs),
        )
