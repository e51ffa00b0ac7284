"""Which run-time sizes are still to be measured, while a program is walked from its end.

In: operations, last first, as they are kept. Out: whether an operation must be kept for the size that it measures.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tenferro.tracer.dims import DimExpr, Leaf, leaves
from tenferro.tracer.op import Op
from tenferro.tracer.program import ArrayType, DimScalar


def measured(op: Op, params: Mapping[str, Any], types: Sequence[ArrayType]) -> Iterator[Leaf]:
    """The run-time sizes that running the operation tells."""
    for output, axis in op.measures(params):
        yield from (x for x in leaves(types[output].shape[axis]) if x.kind == "runtime")


def sizes_in(values: Iterable[Any]) -> Iterator[Leaf]:
    """The leaves in sizes, in numbers that are sizes, and in tuples of them; anything else has none."""
    for value in values:
        if isinstance(value, DimExpr):
            yield from leaves(value)
        elif isinstance(value, DimScalar):
            yield from leaves(value.expr)
        elif isinstance(value, tuple):
            yield from sizes_in(value)


class SizesRead:
    """The sizes that what is kept so far reads. Several operations may measure one size: those kept anyway serve what
    stands behind them, and the first of all stays where something before them reads it too."""

    def __init__(self, operations: Iterable[tuple[Op, Mapping[str, Any], Sequence[ArrayType]]]) -> None:
        """``operations``: the whole program, in order, each with its parameters and the types of its results."""
        self._first: dict[Leaf, int] = {}
        for number, (op, params, types) in enumerate(operations):
            for size in measured(op, params, types):
                self._first.setdefault(size, number)
        self._needed: set[Leaf] = set()

    def needs(self, number: int) -> bool:
        """Whether the operation of this number must be kept for a size."""
        return any(self._first[size] == number for size in self._needed)

    def read(self, operands: Iterable[Any]) -> None:
        """Operands that something kept reads, or the program's outputs."""
        if self._first:
            self._need(operands)

    def keep(self, op: Op, inputs: Iterable[Any], params: Mapping[str, Any], types: Sequence[ArrayType]) -> None:
        """An operation that is kept: it reads sizes itself and measures some."""
        if not self._first:
            return
        self.read(inputs)
        self._need(t.shape for t in types)
        self._need(params.values())
        self._needed.difference_update(measured(op, params, types))

    def _need(self, values: Iterable[Any]) -> None:
        self._needed.update(size for size in sizes_in(values) if size in self._first)
