"""Where a slot's elements lie: an ExecProgram goes in, for each slot the memory that it is a view of comes out."""

from __future__ import annotations

from tenferro.lowering.affine import Affine, identity
from tenferro.lowering.exec_program import ExecProgram, Instruction, Slot, Source
from tenferro.lowering.region import ViewStep
from tenferro.lowering.sizes_read import measured, sizes_in
from tenferro.tracer.dims import Leaf
from tenferro.tracer.op import Indexed, View
from tenferro.tracer.program import ArrayType
from tenferro.tracer.records import dataclass


@dataclass(frozen=True, slots=True)
class Reference:
    """``source`` seen through ``reshape`` (of its whole, contiguous array; or nothing) and then ``affine``."""

    source: Source
    reshape: tuple[ViewStep, ...]
    affine: Affine


class References:
    """The table of all slots. ``own_view`` holds the views that must be made as arrays of their own before anything
    reads through them: reshapes that split or merge axes of what is not contiguous, which may have to copy."""

    def __init__(self, program: ExecProgram) -> None:
        self.types: dict[int, ArrayType] = program.slot_types()
        self.producer: dict[int, int] = {}
        self.instructions = program.instructions
        self.table: dict[int, Reference] = {}
        self.own_view: set[int] = set()
        self._measured_by: dict[Leaf, int] = {}
        for i in program.inputs:
            self._own(i.slot)
        for number, instruction in enumerate(program.instructions):
            for size in measured(instruction.op, instruction.params, instruction.types):
                self._measured_by.setdefault(size, instruction.outputs[0].index)
            for slot in instruction.outputs:
                self.producer[slot.index] = number
                if isinstance(instruction.op.form, View):
                    self._view(instruction, slot)
                else:
                    self._own(slot)

    def size_slots(self, instruction: Instruction) -> list[int]:
        """The slots whose making tells the run-time sizes that the instruction reads, beside those of its operands'
        arrays, which are there only when their sizes are."""
        if not self._measured_by:
            return []
        read: set[Leaf] = set()
        there: set[Leaf] = set()
        pending = [instruction]
        while pending:
            one = pending.pop()
            read.update(sizes_in([*one.inputs, *one.params.values(), *(t.shape for t in one.types)]))
            for number in [
                self.producer[s.index] for s in one.inputs if isinstance(s, Slot) and s.index in self.producer
            ]:
                source = self.instructions[number]
                if isinstance(source.op.form, View) or not source.inputs:  # made within what reads it
                    pending.append(source)
                else:
                    there.update(sizes_in(t.shape for t in source.types))
        found = {self._measured_by[size] for size in read - there if size in self._measured_by}
        return sorted(found - {s.index for s in instruction.outputs})

    def instruction(self, slot: int) -> Instruction | None:
        number = self.producer.get(slot)
        return None if number is None else self.instructions[number]

    def of(self, slot: int) -> Reference:
        return self.table[slot]

    def _own(self, slot: Slot) -> None:
        self.table[slot.index] = Reference(slot, (), identity(self.types[slot.index].shape))

    def _view(self, instruction: Instruction, slot: Slot) -> None:
        form = instruction.op.form
        assert isinstance(form, View)
        (source,) = instruction.inputs
        step = ViewStep(form.kind, instruction.params)
        if not isinstance(source, Slot):
            base = Reference(source, (), identity(()))
        else:
            base = self.table[source.index]
        seen = base.affine.then(step)
        if seen is not None:
            self.table[slot.index] = Reference(base.source, base.reshape, seen)
        elif isinstance(base.source, Slot) and base.affine.is_identity and not self._is_virtual(base.source):
            self.table[slot.index] = Reference(base.source, (step,), identity(self.types[slot.index].shape))
        else:
            self.own_view.add(slot.index)
            self._own(slot)

    def _is_virtual(self, slot: Slot) -> bool:
        """Kinds that regions recompute through affine views; reshapes of them need their array."""
        producer = self.instruction(slot.index)
        return producer is not None and isinstance(producer.op.form, Indexed) and producer.op.form.kind == "iota"
