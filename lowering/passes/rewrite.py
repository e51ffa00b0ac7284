"""Rewriting: what every pass builds its program with. Operations go in one by one, dense ids come out.

A pass walks the operations of a program in order and copies each, or puts an operand or new operations in its place.
Operations that come out as they went in are the same objects, so that an idle pass costs little.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import replace

from tenferro.tracer.lines import SourceLine
from tenferro.tracer.op import Op, View
from tenferro.tracer.program import Operand, Operation, Params, SemanticProgram, Value


class Rewriter:
    """Mutable; one per run of a pass. ``new`` maps ids of the old program to operands of the new one."""

    def __init__(self, program: SemanticProgram) -> None:
        self.program = program
        self.operations: list[Operation] = []
        self.producer: dict[int, Operation] = {}
        self.n_values = len(program.inputs)
        self.new: dict[int, Operand] = {i.value.id: i.value for i in program.inputs}

    def operand(self, old: Operand) -> Operand:
        return self.new[old.id] if isinstance(old, Value) else old

    def operands(self, operation: Operation) -> tuple[Operand, ...]:
        return tuple([self.new[x.id] if isinstance(x, Value) else x for x in operation.inputs])

    def copy(self, operation: Operation) -> None:
        """The operation itself, on the new operands."""
        inputs = self.operands(operation)
        first = operation.outputs[0].id
        if first != self.n_values or any(a is not b for a, b in zip(inputs, operation.inputs, strict=True)):
            outputs = tuple(Value(self.n_values + k, v.type) for k, v in enumerate(operation.outputs))
            new = Operation(operation.op, inputs, operation.params, outputs, operation.line)
        else:
            new = operation
        self.operations.append(new)
        self.n_values += len(new.outputs)
        for old, value in zip(operation.outputs, new.outputs, strict=True):
            self.new[old.id] = value
            self.producer[value.id] = new

    def replace(self, operation: Operation, result: Operand) -> None:
        """The result of a one-output operation is ``result`` from here on."""
        self.new[operation.outputs[0].id] = result

    def emit(self, op: Op, inputs: Sequence[Operand], line: SourceLine | None, **params: Hashable) -> Value:
        """A new operation of one output, typed by its rule."""
        found = Params(**params)
        (kind,) = op.infer([x.type for x in inputs], found)
        value = Value(self.n_values, kind)
        new = Operation(op, tuple(inputs), found, (value,), line)
        self.n_values += 1
        self.operations.append(new)
        self.producer[value.id] = new
        return value

    def made_by(self, operand: Operand) -> Operation | None:
        """The operation of the new program that made an operand; None for inputs, constants and sizes."""
        return self.producer.get(operand.id) if isinstance(operand, Value) else None

    def finish(self) -> SemanticProgram:
        outputs = tuple(self.operand(o) for o in self.program.outputs)
        if len(self.operations) == len(self.program.operations) and all(
            a is b for a, b in zip(self.operations, self.program.operations, strict=True)
        ):
            if all(a is b for a, b in zip(outputs, self.program.outputs, strict=True)):
                return self.program
        return replace(self.program, operations=tuple(self.operations), outputs=outputs)


def pinned(program: SemanticProgram) -> frozenset[int]:
    """Values whose view chain must stay: outputs that are views of an input, or of one array together with others.
    Between such values and their memory no pass may put anything but views."""
    sizes: dict[int, int] = {}
    for group in program.aliases:
        sizes[group] = sizes.get(group, 0) + 1
    starts = [
        o
        for o, group in zip(program.outputs, program.aliases, strict=True)
        if isinstance(o, Value) and (group < 0 or sizes[group] > 1)
    ]
    if not starts:
        return frozenset()
    producer = {v.id: o for o in program.operations for v in o.outputs}
    found: set[int] = set()
    for value in starts:
        operand: Operand = value
        while isinstance(operand, Value) and operand.id not in found:
            found.add(operand.id)
            operation = producer.get(operand.id)
            if operation is None or not isinstance(operation.op.form, View):
                break
            operand = operation.inputs[0]
    return frozenset(found)


def users(program: SemanticProgram) -> dict[int, list[int]]:
    """For each value the operations that use it, each once, in order; −1 stands for the outputs."""
    found: dict[int, list[int]] = {}
    for number, operation in enumerate(program.operations):
        for x in operation.inputs:
            if isinstance(x, Value):
                mine = found.setdefault(x.id, [])
                if not mine or mine[-1] != number:
                    mine.append(number)
    for o in program.outputs:
        if isinstance(o, Value):
            found.setdefault(o.id, []).append(-1)
    return found
