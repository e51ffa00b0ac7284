"""Rewriting: what every pass builds its program with. Operations go in one by one, dense ids come out.

A pass walks the operations of a program in order and copies each, or puts an operand or new operations in its place.
Operations that come out as they went in are the same objects, so that an idle pass costs little.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tenferro.tracer.lines import SourceLine
from tenferro.tracer.op import Op, View
from tenferro.tracer.program import Operand, Operation, Params, SemanticProgram, Value
from tenferro.tracer.records import replace


class Rewriter:
    """Mutable; one per run of a pass. As long as nothing has changed, values stand for themselves."""

    def __init__(self, program: SemanticProgram) -> None:
        self.program = program
        self.operations: list[Operation] = []
        self.producer: dict[int, Operation] = {}
        self.n_values = len(program.inputs)
        self.is_same = True
        self.place = ""
        self._new: dict[int, Operand] = {}

    def operand(self, old: Operand) -> Operand:
        """What an operand of the old program is in the new one."""
        return old if self.is_same or not isinstance(old, Value) else self._new[old.id]

    def operands(self, operation: Operation) -> tuple[Operand, ...]:
        """The operands in the new program. What is emitted next stands in for this operation, and on its engine."""
        self.place = operation.place
        if self.is_same:
            return operation.inputs
        new = self._new
        return tuple([new[x.id] if isinstance(x, Value) else x for x in operation.inputs])

    def copy(self, operation: Operation) -> None:
        """The operation itself, on the new operands."""
        if self.is_same:
            self._append(operation)
            return
        inputs = self.operands(operation)
        first = operation.outputs[0].id
        if first == self.n_values and all(a is b for a, b in zip(inputs, operation.inputs, strict=True)):
            new = operation
        else:
            outputs = tuple([Value(self.n_values + k, v.type) for k, v in enumerate(operation.outputs)])
            new = Operation(operation.op, inputs, operation.params, outputs, operation.line, operation.place)
        self._append(new)
        for old, value in zip(operation.outputs, new.outputs, strict=True):
            self._new[old.id] = value

    def replace(self, operation: Operation, *results: Operand) -> None:
        """The operation's results are ``results`` from here on."""
        self._diverge()
        for old, result in zip(operation.outputs, results, strict=True):
            self._new[old.id] = result

    def emit(self, op: Op, inputs: Sequence[Operand], line: SourceLine | None, **params: Hashable) -> Value:
        """A new operation of one output, typed by its rule."""
        self._diverge()
        found = Params(**params)
        (kind,) = op.infer([x.type for x in inputs], found)
        value = Value(self.n_values, kind)
        self._append(Operation(op, tuple(inputs), found, (value,), line, self.place))
        return value

    def substitute(self, operation: Operation, inputs: Sequence[Operand], params: Params) -> None:
        """The operation on other operands and with other parameters; its results keep their types."""
        self._diverge()
        outputs = tuple([Value(self.n_values + k, v.type) for k, v in enumerate(operation.outputs)])
        self._append(Operation(operation.op, tuple(inputs), params, outputs, operation.line, operation.place))
        self.replace(operation, *outputs)

    def made_by(self, operand: Operand) -> Operation | None:
        """The operation of the new program that made an operand; None for inputs, constants and sizes."""
        return self.producer.get(operand.id) if isinstance(operand, Value) else None

    def finish(self) -> SemanticProgram:
        if self.is_same and len(self.operations) == len(self.program.operations):
            return self.program
        self._diverge()
        outputs = tuple(self.operand(o) for o in self.program.outputs)
        return replace(self.program, operations=tuple(self.operations), outputs=outputs)

    def skip(self) -> None:
        """An operation is left out; nothing uses it."""
        self._diverge()

    def _append(self, operation: Operation) -> None:
        self.operations.append(operation)
        for value in operation.outputs:
            self.producer[value.id] = operation
        self.n_values += len(operation.outputs)

    def _diverge(self) -> None:
        if not self.is_same:
            return
        self.is_same = False
        self._new = {i.value.id: i.value for i in self.program.inputs}
        for operation in self.operations:
            self._new.update((v.id, v) for v in operation.outputs)


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
