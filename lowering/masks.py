"""Which lanes of a checked operation count. In: an ExecProgram. Out: the ``where`` conditions of each checked one.

A lane counts if it reaches a result. A value reaches one through every use, except that a ``where`` discards its second
operand where the condition is False and its third where it is True. The conditions of a value are those that *all* of
its uses pass through.
"""

from __future__ import annotations

from tenferro.lowering.exec_program import ExecProgram, Instruction, Slot
from tenferro.tracer.op import Pointwise
from tenferro.tracer.ops import pointwise
from tenferro.tracer.records import dataclass

MAX_CONDITIONS = 8
"""Nested conditions beyond this many are left out, which keeps the analysis linear; a lane then counts too often."""


@dataclass(frozen=True, slots=True)
class Condition:
    """A bool slot, and the value it must have for the lane to count."""

    slot: int
    holds: bool


Conditions = frozenset[Condition]


def is_checked(instruction: Instruction) -> bool:
    form = instruction.op.form
    return isinstance(form, Pointwise) and form.is_checked(instruction.types[0].dtype)


def lane_conditions(program: ExecProgram) -> dict[int, Conditions]:
    """For each checked instruction (by number) the conditions under which its lanes count; none means always."""
    needed = slot_conditions(program)
    checked = [(number, i) for number, i in enumerate(program.instructions) if is_checked(i)]
    return {number: needed.get(i.outputs[0].index, frozenset()) for number, i in checked}


def slot_conditions(program: ExecProgram) -> dict[int, Conditions]:
    """For each slot that is read the conditions that all of its uses pass through; none at all where no operation is
    checked."""
    if not any(is_checked(i) for i in program.instructions):
        return {}
    needed: dict[int, Conditions] = {o.index: frozenset() for o in program.outputs if isinstance(o, Slot)}
    for instruction in reversed(program.instructions):
        mine: Conditions = frozenset()
        if len(instruction.outputs) == 1:
            mine = needed.get(instruction.outputs[0].index, frozenset())
        pass_on = mine if isinstance(instruction.op.form, Pointwise) else frozenset()
        for position, source in enumerate(instruction.inputs):
            if isinstance(source, Slot):
                wanted = pass_on | _branch(instruction, position)
                wanted = wanted if len(wanted) <= MAX_CONDITIONS else pass_on
                before = needed.get(source.index)
                needed[source.index] = wanted if before is None else before & wanted
    return needed


def _branch(instruction: Instruction, position: int) -> Conditions:
    condition = instruction.inputs[0]
    if instruction.op is not pointwise.where or position == 0 or not isinstance(condition, Slot):
        return frozenset()
    return frozenset({Condition(condition.index, position == 1)})
