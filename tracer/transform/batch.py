"""Batching: operations that a function recorded for one lane in, the same for every lane of a leading axis out.

``spread_over`` replays the operations, along the rows' ``batch`` column where one of the operands has lanes, as they
are elsewhere. An operand with lanes has them along its leading axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count

from tenferro.tracer.bodies import Body, as_extent, bodies_of
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dims import Extent, Leaf, leaf, leaves, mapped, substitute
from tenferro.tracer.errors import BatchError
from tenferro.tracer.lines import at
from tenferro.tracer.op import Absent
from tenferro.tracer.ops import lanes as rows
from tenferro.tracer.program import ArrayType, DimScalar, Operand, Operation, Params, Value
from tenferro.tracer.trace import Trace

_numbers = count(1 << 20)  # no axis has such a number


class Lanes:
    """What the values of a recording are for all lanes: by id, an operand and whether it has lanes."""

    def __init__(self, trace: Trace, size: Extent, name: str | None = None, part_of: Lanes | None = None) -> None:
        """``part_of``: the mapping that records a body, whose operations over the lanes are that mapping's."""
        self.name: str | None = name if part_of is None else part_of.name
        self.number: int = next(_numbers) if part_of is None else part_of.number
        self.size = size
        self._b = Derivation(trace)
        self._trace = trace
        self._found: dict[int, tuple[Operand, bool]] = {}
        self._extents: dict[Leaf, Extent] = {}  # run-time extents, which are numbered by operations

    def put(self, value: Value, operand: Operand, has_lanes: bool) -> None:
        """``operand`` stands for the value."""
        self._found[value.id] = operand, has_lanes

    def of(self, x: Operand) -> tuple[Operand, bool]:
        """What stands for an operand of the recording; what is from around it stands for itself."""
        if isinstance(x, DimScalar):
            return self._b.size(self._extent(x.expr), x.dtype), False
        return self._found.get(x.id, (x, False)) if isinstance(x, Value) else (x, False)

    def full(self, x: Operand) -> Operand:
        """An operand of the recording with lanes: what is the same in all is stretched."""
        found, has_lanes = self.of(x)
        return found if has_lanes else self._b.stretched(found, self.size)

    def enter(self, body: Body, operands: Sequence[Operand], has_lanes: Sequence[bool]) -> list[Operand]:
        """Record a body for all lanes; its results, as values of the body."""
        for declared, operand, mine in zip(body.program.inputs, operands, has_lanes, strict=True):
            self.put(declared.value, operand, mine)
            if declared.kind == "int":
                self._extents[Leaf("int", declared.value.id)] = as_extent(operand)
        self.replay(body.program.operations)
        return list(body.program.outputs)

    def replay(self, operations: Sequence[Operation]) -> None:
        """Record every operation for all lanes."""
        for operation in operations:
            if operation.params.get("axis") == self.number and operation.op in rows.ACROSS:
                self._across(operation)
                continue
            operands, has_lanes = zip(*map(self.of, operation.inputs), strict=True) if operation.inputs else ((), ())
            is_batched = any(has_lanes) or self.asked_in(operation) is not None
            if not is_batched:
                self._number_extents(operation)
            outputs = tuple([self._sized(v) for v in operation.outputs]) if self._extents else operation.outputs
            moved = replace(operation, inputs=operands, params=self.params(operation.params), outputs=outputs)
            with self._b.derived_from(operation):
                if is_batched:
                    results = self._batched(moved, has_lanes)
                    self._note_extents(operation, results)
                else:
                    results = self._b.emit(moved.op, moved.inputs, **moved.params)
            for value, result in zip(operation.outputs, results, strict=True):
                self._found[value.id] = result, is_batched

    def asked_in(self, operation: Operation) -> Operation | None:
        """An operation over the lanes of this mapping in the bodies that an operation holds."""
        return next((b.across[self.number] for b in bodies_of(operation) if self.number in b.across), None)

    def check_together(self, operation: Operation, name: str, why: str) -> None:
        """BatchError where lanes that do not all do the same ask for something across them."""
        asked = self.asked_in(operation)
        if asked is not None:
            what = "the numbers" if asked.op is rows.lane_index else f"the {rows.ACROSS[asked.op]}"
            raise BatchError(f"vmap: {name} asks for {what} of the lanes of axis {self.name!r} {why}{at(asked.line)}")

    def _across(self, operation: Operation) -> None:
        """An operation over the lanes of this very mapping."""
        b, (value,) = self._b, operation.outputs
        with b.derived_from(operation):
            if operation.op is rows.lane_index:
                self.put(value, b.iota(shape=(self.size,), axis=0), True)
                return
            x, has_lanes = self.of(operation.inputs[0])
            if operation.op is rows.lane_gather:
                self.put(value, x if has_lanes else b.stretched(x, self.size), False)
            elif has_lanes:
                reduce = {rows.lane_sum: b.sum, rows.lane_max: b.max, rows.lane_min: b.min}[operation.op]
                self.put(value, reduce(x, axes=(0,), keepdims=False), False)
            elif operation.op is rows.lane_sum:
                self.put(value, b.multiply(x, b.size(self.size, x.type.dtype)), False)
            else:
                self.put(value, x, False)

    def _batched(self, operation: Operation, has_lanes: Sequence[bool]) -> Sequence[Operand]:
        rule = operation.op.batch
        if isinstance(rule, Absent):
            raise BatchError(f"vmap: {operation.op.name}, which has no batch rule: {rule.reason}{at(operation.line)}")
        outer, self._trace.mapping = self._trace.mapping, self
        try:
            return rule(self._b, operation, has_lanes, self.size)
        finally:
            self._trace.mapping = outer

    # -- sizes -------------------------------------------------------------------------------------------------------

    def _number_extents(self, operation: Operation) -> None:
        """The run-time extents that the operation determines have a new number: that of what is recorded next."""
        for output, axis in operation.op.measures(operation.params):
            for symbol in leaves(operation.outputs[output].type.shape[axis]):
                self._extents[symbol] = leaf("runtime", len(self._trace.operations), symbol.axis)

    def _note_extents(self, operation: Operation, results: Sequence[Operand]) -> None:
        """The same of an operation that was batched: they stand behind the axis of lanes."""
        for output, axis in operation.op.measures(operation.params):
            for symbol in leaves(operation.outputs[output].type.shape[axis]):
                self._extents[symbol] = results[output].type.shape[axis + 1]

    def _extent(self, extent: Extent) -> Extent:
        if not self._extents or isinstance(extent, int):
            return extent
        return substitute(extent, lambda s: self._extents.get(s, leaf(s.kind, s.index, s.axis)))

    def _sized(self, value: Value) -> Value:
        """A value of the recording, its type in the sizes that stand for those of the recording."""
        t = value.type
        return Value(value.id, ArrayType(t.dtype, tuple([self._extent(n) for n in t.shape]), t.weak))

    def params(self, params: Params) -> Params:
        """Parameters of the recording, with the sizes that have a new number."""
        return Params(**{k: mapped(v, self._extent) for k, v in params.items()}) if self._extents else params
