"""A finished trace in, a frozen SemanticProgram out.

Ids become dense (inputs first), and every leaf that a guard equates with another or with a number is replaced by it, so
that equal sizes are equal expressions. Guards keep the leaves as they were: they are what is checked at a call.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenferro.tracer import build
from tenferro.tracer.dims import DimExpr, Extent
from tenferro.tracer.program import (
    ArrayType,
    DimScalar,
    Operand,
    Operation,
    Params,
    ProgramInput,
    SemanticProgram,
    Value,
)
from tenferro.tracer.trace import Trace


class _Renaming:
    """Values and sizes of the trace as those of the program."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._arguments = len(trace.inputs)
        self._late = len(trace.late)
        self._values: dict[int, Value] = {}
        self._types: dict[int, tuple[ArrayType, ArrayType]] = {}
        self._extents: dict[DimExpr, Extent] = {}
        self.changes = bool(trace.late or trace.unified)

    def id(self, old: int) -> int:
        if old < 0:
            return self._arguments - 1 - old
        return old if old < self._arguments else old + self._late

    def extent(self, extent: Extent) -> Extent:
        if isinstance(extent, int):
            return extent
        found = self._extents.get(extent)
        if found is None:
            found = self._extents[extent] = self._trace.canonical(extent)
        return found

    def type(self, old: ArrayType) -> ArrayType:
        known = self._types.get(id(old))
        if known is None:
            new = ArrayType(old.dtype, tuple(self.extent(n) for n in old.shape), old.weak)
            known = self._types[id(old)] = (old, new)  # holding the old one keeps its id unique
        return known[1]

    def value(self, old: Value) -> Value:
        found = self._values.get(old.id)
        if found is None:
            found = self._values[old.id] = Value(self.id(old.id), self.type(old.type))
        return found

    def operand(self, old: Operand) -> Operand:
        if isinstance(old, Value):
            return self.value(old)
        if isinstance(old, DimScalar):
            extent = self.extent(old.expr)
            return build.literal(extent, old.dtype) if isinstance(extent, int) else DimScalar(extent, old.dtype)
        return old

    def params(self, old: Params) -> Params:
        if not any(_has_sizes(v) for v in old.values()):
            return old
        return Params(**{k: _mapped(v, self.extent) for k, v in old.items()})

    def operation(self, old: Operation) -> Operation:
        return Operation(
            old.op,
            tuple([self.operand(i) for i in old.inputs]),
            self.params(old.params) if old.params else old.params,
            tuple([self.value(o) for o in old.outputs]),
            old.line,
        )

    def input(self, old: ProgramInput) -> ProgramInput:
        return ProgramInput(self.value(old.value), old.kind, old.name)


def _has_sizes(value: Any) -> bool:
    return isinstance(value, DimExpr) or (isinstance(value, tuple) and any(_has_sizes(v) for v in value))


def _mapped(value: Any, extent: Callable[[Extent], Extent]) -> Any:
    if isinstance(value, DimExpr):
        return extent(value)
    return tuple(_mapped(v, extent) for v in value) if isinstance(value, tuple) else value


def finish(trace: Trace, outputs: list[Operand], aliases: list[int]) -> SemanticProgram:
    """The program; ``outputs`` are operands of the trace."""
    renaming = _Renaming(trace)
    inputs = tuple(renaming.input(i) for i in (*trace.inputs, *trace.late))
    if renaming.changes:
        operations = tuple([renaming.operation(o) for o in trace.operations])
    else:
        operations = tuple(trace.operations)
    return SemanticProgram(
        trace.name,
        inputs,
        operations,
        tuple(renaming.operand(o) for o in outputs),
        tuple(aliases),
        tuple(trace.guards),
    )
