"""Which values of a trace are the same by construction: operations in, one number for each distinct value out.

Asked only for masks: ``x[x > 0] * y[x > 0]`` has one run-time extent, though the mask was written twice.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence

from tenferro.tracer.program import Operand, Operation, Value


class ValueNumbers:
    """Numbers the results of operations, in order, as far as they are asked for; linear in the program."""

    def __init__(self) -> None:
        self._numbers: dict[int, int] = {}
        self._seen: dict[Hashable, int] = {}
        self._done = 0

    def key(self, operations: Sequence[Operation], operand: Operand) -> Hashable:
        """Equal for two operands exactly when they are the same op on the same operands, all the way up."""
        for operation in operations[self._done :]:
            inputs = tuple(self._key(i) for i in operation.inputs)
            for position, output in enumerate(operation.outputs):
                made = (operation.op, operation.params, inputs, position)
                self._numbers[output.id] = self._seen.setdefault(made, output.id)
        self._done = len(operations)
        return self._key(operand)

    def _key(self, operand: Operand) -> Hashable:
        return self._numbers.get(operand.id, operand.id) if isinstance(operand, Value) else operand
