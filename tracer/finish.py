"""A finished trace in, a frozen SemanticProgram out.

Ids become dense (inputs first; captured arrays that nothing reads are dropped), and every leaf that a guard equates
with another or with a number is replaced by it, so that equal sizes are equal expressions. Guards keep the leaves as
they were: they are what is checked at a call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from tenferro.tracer import build
from tenferro.tracer.bounds import needed
from tenferro.tracer.dims import DimExpr, Extent, Leaf, extents_in, leaf, leaves, mapped, substitute
from tenferro.tracer.errors import LeakError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import (
    ArrayType,
    DimScalar,
    Operand,
    Operation,
    Params,
    ProgramInput,
    SemanticProgram,
    ShapeGuard,
    Value,
)
from tenferro.tracer.trace import Trace
from tenferro.tracer.transform.marks import without_marks


class Renaming:
    """Values and sizes of the trace as those of the program."""

    def __init__(self, trace: Trace, late: dict[int, int]) -> None:
        self._trace = trace
        self._arguments = len(trace.inputs)
        self._late = late
        self.kept = [i for k, i in enumerate(trace.late) if k in late]
        self._moved = any(old != new for old, new in late.items())
        self._values: dict[int, Value] = {}
        self._types: dict[int, tuple[ArrayType, ArrayType]] = {}
        self._extents: dict[DimExpr, Extent] = {}
        self.changes = bool(trace.late or trace.unified or trace.is_cut)
        self._dense = _dense_ids(trace, self._arguments + len(late)) if trace.is_cut else None
        self._names = {v.id: trace.names[key] for key, (v, _) in trace.captured.items() if key in trace.names}

    def id(self, old: int) -> int:
        if old < 0:
            return self._arguments + self._late[-1 - old]
        if old < self._arguments:
            return old
        if self._dense is None:
            return old + len(self._late)
        if old not in self._dense:
            raise LeakError(
                f"{self._trace.name}: a value of a function that a loop, a choice or vmap ran, used after it ended; "
                f"return results instead of storing them{at(user_line())}"
            )
        return self._dense[old]

    def extent(self, extent: Extent) -> Extent:
        if isinstance(extent, int):
            return extent
        found = self._extents.get(extent)
        if found is None:
            found = self._extents[extent] = self.moved(self._trace.canonical(extent))
        return found

    def moved(self, extent: Extent) -> Extent:
        """The extent with the leaves of captured arrays under their new numbers."""
        return substitute(extent, self._leaf) if self._moved and not isinstance(extent, int) else extent

    def _leaf(self, old: Leaf) -> Extent:
        is_late = old.kind == "extent" and old.index >= self._arguments
        index = self._arguments + self._late[old.index - self._arguments] if is_late else old.index
        return leaf(old.kind, index, old.axis)

    def guard(self, old: ShapeGuard) -> ShapeGuard:
        return replace(old, lhs=self.moved(old.lhs), rhs=self.moved(old.rhs)) if self._moved else old

    def alias(self, old: int) -> int:
        late = -1 - old - self._arguments
        return -1 - self._arguments - self._late[late] if late >= 0 else old

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
        if not any(extents_in(v) for v in old.values()):
            return old
        return Params(**{k: mapped(v, self.extent) for k, v in old.items()})

    def operation(self, old: Operation) -> Operation:
        return Operation(
            old.op,
            tuple([self.operand(i) for i in old.inputs]),
            self.params(old.params) if old.params else old.params,
            tuple([self.value(o) for o in old.outputs]),
            old.line,
            old.place,
        )

    def input(self, old: ProgramInput) -> ProgramInput:
        name = self._names.get(old.value.id, old.name)
        return ProgramInput(self.value(old.value), old.kind, name.removeprefix("captured array "))


def _dense_ids(trace: Trace, first: int) -> dict[int, int]:
    """New numbers for the results of operations, where some between them were taken out again."""
    ids = (v.id for o in trace.operations for v in o.outputs)
    return {old: first + k for k, old in enumerate(ids)}


def late_inputs(trace: Trace, outputs: list[Operand], sizes: list[Extent]) -> dict[int, int]:
    """The late inputs that the program reads, by their place in the trace, with their place in the program."""
    read = {-1 - i.id for o in trace.operations for i in o.inputs if isinstance(i, Value) and i.id < 0}
    read |= {-1 - o.id for o in outputs if isinstance(o, Value) and o.id < 0}
    if len(read) < len(trace.late):
        first = len(trace.inputs)
        read |= {s.index - first for s in _leaves(trace, outputs, sizes) if s.kind == "extent" and s.index >= first}
    return {old: new for new, old in enumerate(sorted(read))}


def _leaves(trace: Trace, outputs: list[Operand], sizes: list[Extent]) -> set[Leaf]:
    """Every leaf in types, parameters, guards and returned sizes."""
    operands = [*outputs, *(i for o in trace.operations for i in o.inputs)]
    found: list[Any] = [*sizes, *(x.expr for x in operands if isinstance(x, DimScalar))]
    found += [n for x in operands for n in x.type.shape]
    for operation in trace.operations:
        found += [n for o in operation.outputs for n in o.type.shape]
        found += operation.params.values()
    found += [n for g in trace.guards for n in (g.lhs, g.rhs)]
    # What the trace replaces by another leaf is read through that one.
    extents = {trace.canonical(n) for x in found for n in extents_in(x)} | {n for x in found for n in extents_in(x)}
    return {s for n in extents for s in leaves(n)}


def finish(trace: Trace, outputs: list[Operand], aliases: list[int], renaming: Renaming) -> SemanticProgram:
    """The program; ``outputs`` are operands of the trace."""
    inputs = tuple(renaming.input(i) for i in (*trace.inputs, *renaming.kept))
    if renaming.changes:
        operations = tuple([renaming.operation(o) for o in trace.operations])
    else:
        operations = tuple(trace.operations)
    program = SemanticProgram(
        trace.name,
        inputs,
        operations,
        tuple(renaming.operand(o) for o in outputs),
        tuple(renaming.alias(a) for a in aliases),
        tuple(renaming.guard(g) for g in needed(_strongest(trace.guards))),
    )
    return without_marks(program)


def _strongest(guards: Sequence[ShapeGuard]) -> list[ShapeGuard]:
    """Of bounds on one size the narrowest: an unrolled loop over x[0], x[1], … asks for n > 0, n > 1, …"""
    kept: dict[object, ShapeGuard] = {}
    for k, guard in enumerate(guards):
        is_bound = guard.relation != "==" and guard.holds
        if is_bound and isinstance(guard.lhs, int):
            key: object = (guard.relation, "above", guard.rhs)
            is_narrower = key in kept and guard.lhs > _number(kept[key].lhs)
        elif is_bound and isinstance(guard.rhs, int):
            key = (guard.relation, "below", guard.lhs)
            is_narrower = key in kept and guard.rhs < _number(kept[key].rhs)
        else:
            key, is_narrower = k, False
        if key not in kept or is_narrower:
            kept[key] = guard
    return list(kept.values())


def _number(extent: Extent) -> int:
    assert isinstance(extent, int)
    return extent
