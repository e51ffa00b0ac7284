"""Tapes: what a derivative does with tangents, kept apart from the program until it is known which way it is needed.

While a function is linearized, operations that take part in a tangent go to a tape instead of the trace. They are
linear in the tape's inputs, and can be replayed on tangents or transposed (``tenferro.tracer.transform.linear``).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenferro.tracer.lines import SourceLine
from tenferro.tracer.program import ArrayType, Operand, Operation, Params, Value
from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.tracer.op import Op


@dataclass(frozen=True, slots=True)
class Tangent(Value):
    """A value on a tape, numbered there."""


class Tape:
    """Operations in order; their operands are tangents of this tape and values of the trace."""

    def __init__(self) -> None:
        self.operations: list[Operation] = []
        self._next = 0

    def input(self, type_: ArrayType) -> Tangent:
        """A tangent that is given when the tape is used."""
        self._next += 1
        return Tangent(self._next - 1, type_)

    def append(
        self, op: Op, inputs: tuple[Operand, ...], params: Params, types: Sequence[ArrayType], line: SourceLine | None,
        place: str,
    ) -> tuple[Tangent, ...]:  # fmt: skip
        """Record an operation whose results have been typed."""
        outputs = tuple([self.input(t) for t in types])
        self.operations.append(Operation(op, inputs, params, outputs, line, place))
        return outputs
