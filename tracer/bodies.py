"""Bodies: what a function recorded in, a program of its own out, which an operation holds as a parameter.

A *body* is a SemanticProgram whose inputs are the parameters that the operation gives it, then the values of the
program around that it reads and the sizes of that program, as ints. So it can be lowered and run alone; ``inline``
records it in a trace again, which is how transformations reach into it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache, cached_property
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dims import DimExpr, Extent, Leaf, extents_in, leaf, leaves, mapped, substitute
from tenferro.tracer.exact import exact
from tenferro.tracer.ops import pointwise, reductions
from tenferro.tracer.ops.lanes import ACROSS
from tenferro.tracer.program import (
    ArrayType,
    DimScalar,
    Operand,
    Operation,
    Params,
    ProgramInput,
    SemanticProgram,
    Value,
    same_meaning,
)
from tenferro.tracer.records import dataclass
from tenferro.tracer.trace import Trace
from tenferro.tracer.transform.recording import Recording

INT64 = np.dtype(np.int64)


@exact
@dataclass(frozen=True, eq=False)
class Body:
    """A program as a parameter. Equality is of meaning: lines and names are left out."""

    program: SemanticProgram

    @cached_property
    def _hash(self) -> int:
        return hash(self.program.fingerprint)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Body) and (self is other or same_meaning(self.program, other.program))

    def __hash__(self) -> int:
        return self._hash

    def __repr__(self) -> str:
        """Short, and another one for another meaning."""
        return f"{self.program.name}#{self.program.fingerprint[:12]}"

    @cached_property
    def is_ordered(self) -> bool:
        """Whether one of its operations has effects."""
        return any(o.op.is_ordered(o.params) for o in self.program.operations)

    @cached_property
    def calls_host(self) -> bool:
        """Whether one of its operations calls a function of the user's."""
        return any(o.op.calls_host(o.params) for o in self.program.operations)

    @cached_property
    def across(self) -> dict[int, Operation]:
        """By the number of a mapping, an operation over its lanes, here or in a body within."""
        found: dict[int, Operation] = {}
        for o in self.program.operations:
            if o.op in ACROSS:
                found.setdefault(o.params["axis"], o)
            for body in bodies_of(o):
                found = {**body.across, **found}
        return found

    @property
    def outputs(self) -> tuple[ArrayType, ...]:
        """Types of the results, over the body's own sizes."""
        return tuple(o.type for o in self.program.outputs)


def bodies_of(operation: Operation) -> list[Body]:
    """The bodies that an operation holds."""
    held = [x for p in operation.params.values() for x in (p if type(p) is tuple else (p,))]
    return [x for x in held if type(x) is Body]


@dataclass(frozen=True, slots=True)
class _Part:
    """One recording to be closed."""

    name: str
    parameters: tuple[Value, ...]
    recording: Recording
    outputs: tuple[Operand, ...]


class Closing:
    """Recordings with as many parameters each, to become bodies that read the same values and sizes from around
    them."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._parts: list[_Part] = []
        self._free: dict[int, Value] = {}
        self._sizes: dict[Leaf, None] = {}

    def add(self, name: str, parameters: Sequence[Value], recording: Recording, outputs: Sequence[Operand]) -> None:
        """One more recording; ``outputs`` are its results."""
        part = _Part(name, tuple(parameters), recording, tuple(outputs))
        self._parts.append(part)
        inner = {p.id for p in parameters} | {v.id for o in recording.operations for v in o.outputs}
        for x in (*(i for o in recording.operations for i in o.inputs), *outputs):
            if isinstance(x, Value) and x.id not in inner:
                self._free[x.id] = x
        for extent in self._extents(part):
            own = range(recording.start, recording.start + len(recording.operations))
            canonical = self._trace.canonical(extent)
            mine = [s for s in leaves(canonical) if not (s.kind == "runtime" and s.index in own)]
            self._sizes.update(dict.fromkeys(sorted(mine)))

    def _extents(self, part: _Part) -> list[DimExpr]:
        found: list[Any] = []
        values: list[Operand] = [*part.parameters, *self._free.values(), *part.outputs]
        for operation in part.recording.operations:
            values += [*operation.inputs, *operation.outputs]
            found += operation.params.values()
        found += [x.expr for x in values if isinstance(x, DimScalar)]
        found += [x.type.shape for x in values]
        return [n for x in found for n in extents_in(x)]

    def operands(self) -> tuple[Operand, ...]:
        """What the bodies read from around them: values, then sizes."""
        sizes = [build.size(leaf(s.kind, s.index, s.axis)) for s in self._sizes]
        return (*self._free.values(), *sizes)

    def bodies(self) -> list[Body]:
        """One for each recording."""
        return [
            Body(_Closed(self._trace, part, list(self._free.values()), list(self._sizes)).program())
            for part in self._parts
        ]


class _Closed:
    """The making of one body."""

    def __init__(self, trace: Trace, part: _Part, free: list[Value], sizes: list[Leaf]) -> None:
        self._trace = trace
        self._part = part
        first = len(part.parameters) + len(free)
        self._count = first + len(sizes)
        start = part.recording.start
        self._leaves: dict[Leaf, Extent] = {s: leaf("int", first + k) for k, s in enumerate(sizes)}
        for k in range(len(part.recording.operations)):
            for axis in range(2):
                self._leaves[Leaf("runtime", start + k, axis)] = leaf("runtime", k, axis)
        self._values: dict[int, Value] = {}
        for k, v in enumerate((*part.parameters, *free)):
            self._values[v.id] = Value(k, self._type(v.type))
        self._free = free
        self._sizes = sizes

    def program(self) -> SemanticProgram:
        """The body's program."""
        part = self._part
        declared = [ProgramInput(self._values[v.id], "argument", f"p{k}") for k, v in enumerate(part.parameters)]
        declared += [ProgramInput(self._values[v.id], "argument", f"outer {v}") for v in self._free]
        for k, s in enumerate(self._sizes):
            number = len(part.parameters) + len(self._free) + k
            declared.append(ProgramInput(Value(number, ArrayType(INT64, (), True)), "int", f"size {s}"))
        operations, following = [], self._count
        for operation in part.recording.operations:
            for v in operation.outputs:
                self._values[v.id] = Value(following, self._type(v.type))
                following += 1
            operations.append(self._operation(operation))
        outputs = tuple(self._operand(o) for o in part.outputs)
        return SemanticProgram(part.name, tuple(declared), tuple(operations), outputs, tuple(range(len(outputs))))

    def _operation(self, o: Operation) -> Operation:
        params = Params(**{k: mapped(v, self._extent) for k, v in o.params.items()}) if len(o.params) else o.params
        outputs = tuple(self._values[v.id] for v in o.outputs)
        return Operation(o.op, tuple(map(self._operand, o.inputs)), params, outputs, o.line, o.place)

    def _operand(self, x: Operand) -> Operand:
        if isinstance(x, Value):
            return self._values[x.id]
        if isinstance(x, DimScalar):
            extent = self._extent(x.expr)
            return build.literal(extent, x.dtype) if isinstance(extent, int) else DimScalar(extent, x.dtype)
        return x

    def _type(self, t: ArrayType) -> ArrayType:
        return ArrayType(t.dtype, tuple([self._extent(n) for n in t.shape]), t.weak)

    def _extent(self, extent: Extent) -> Extent:
        if isinstance(extent, int):
            return extent
        canonical = self._trace.canonical(extent)
        return substitute(canonical, lambda s: self._leaves[s])


def silenced(operation: Operation) -> Operation:
    """The operation without what its bodies hold for its effect alone."""
    if not operation.op.is_ordered(operation.params):
        return operation
    return replace(operation, params=Params(**{k: _silenced(v) for k, v in operation.params.items()}))


def _silenced(param: Any) -> Any:
    if type(param) is tuple:
        return tuple([_silenced(p) for p in param])
    return Body(_without_silent(param.program)) if type(param) is Body and param.is_ordered else param


def _without_silent(program: SemanticProgram) -> SemanticProgram:
    """Its operations, numbered anew; all of them where sizes are known by the numbers."""
    if any(o.op.measures(o.params) for o in program.operations):
        return program
    values = {i.value.id: i.value for i in program.inputs}
    following, kept = len(program.inputs), []
    for operation in program.operations:
        if operation.op.is_silent:
            continue
        outputs = tuple([Value(following + k, v.type) for k, v in enumerate(operation.outputs)])
        following += len(outputs)
        inputs = tuple([values[x.id] if isinstance(x, Value) else x for x in operation.inputs])
        values.update((v.id, new) for v, new in zip(operation.outputs, outputs, strict=True))
        kept.append(replace(silenced(operation), inputs=inputs, outputs=outputs))
    ends = tuple([values[x.id] if isinstance(x, Value) else x for x in program.outputs])
    return replace(program, operations=tuple(kept), outputs=ends)


class Inlined:
    """Bodies recorded in a trace: operands in place of inputs, what each value has become by its id."""

    def __init__(self, trace: Trace, body: Body, operands: Sequence[Operand], is_again: bool = False) -> None:
        self._trace = trace
        self._b = Derivation(trace)
        self._values, self._leaves = given(body.program, operands)
        for number, operation in enumerate(body.program.operations):
            if not (is_again and operation.op.is_silent):
                self._record(number, silenced(operation) if is_again else operation)
        self.outputs = [self._operand(o) for o in body.program.outputs]

    def _record(self, number: int, operation: Operation) -> None:
        for _, axis in operation.op.measures(operation.params):
            self._leaves[Leaf("runtime", number, axis)] = leaf("runtime", len(self._trace.operations), axis)
        params = {k: mapped(v, self._extent) for k, v in operation.params.items()}
        with self._b.derived_from(operation):
            results = self._trace.emit(operation.op, [self._operand(x) for x in operation.inputs], **params)
        self._values.update(zip((v.id for v in operation.outputs), results, strict=True))

    def _operand(self, x: Operand) -> Operand:
        if isinstance(x, Value):
            return self._values[x.id]
        return self._b.size(self._extent(x.expr), x.dtype) if isinstance(x, DimScalar) else x

    def _extent(self, extent: Extent) -> Extent:
        return substitute(extent, lambda s: self._leaves[s]) if isinstance(extent, DimExpr) else extent


def given(body: SemanticProgram, operands: Sequence[Operand]) -> tuple[dict[int, Operand], dict[Leaf, Extent]]:
    """What stands around a body for its inputs, by their ids, and for its sizes."""
    values, sizes = {}, {}
    for declared, operand in zip(body.inputs, operands, strict=True):
        values[declared.value.id] = operand
        if declared.kind == "int":
            sizes[Leaf("int", declared.value.id)] = as_extent(operand)
    return values, sizes


def as_extent(x: Operand) -> Extent:
    """The size that an operand of a body stands for."""
    if isinstance(x, DimScalar):
        return x.expr
    assert not isinstance(x, Value)
    return int(x.value.real)


def inline(trace: Trace, body: Body, operands: Sequence[Operand], is_again: bool = False) -> list[Operand]:
    """Record a body's operations on these operands; its results. ``is_again``: what runs is computed again, without the
    operations that are there for their effects alone."""
    return Inlined(trace, body, operands, is_again).outputs


@cache
def asked(condition: Body) -> Body:
    """A condition of lanes as one of them all: whether it holds for any."""
    program = condition.program
    (holds,) = program.outputs
    if not holds.type.shape:
        return condition
    first = len(program.inputs) + sum(len(o.outputs) for o in program.operations)
    numbers, total = Value(first, ArrayType(INT64, holds.type.shape)), Value(first + 1, ArrayType(INT64, ()))
    answer = Value(first + 2, ArrayType(holds.type.dtype, ()))
    axes = Params(axes=tuple(range(holds.type.rank)), keepdims=False)
    more = (
        Operation(pointwise.astype, (holds,), Params(dtype=INT64), (numbers,)),
        Operation(reductions.sum_, (numbers,), axes, (total,)),
        Operation(pointwise.not_equal, (total, build.literal(0, INT64)), Params(), (answer,)),
    )
    return Body(replace(program, operations=(*program.operations, *more), outputs=(answer,)))
