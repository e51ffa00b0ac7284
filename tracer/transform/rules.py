"""What the rules of marks share: where a rule's Python code runs, and how a rule becomes one for all lanes.

A rule works on operands: those of the function's arguments in (in places, its *primals*), operands out. It is asked
when a derivative comes by, in whatever trace the mark then stands in, and so it holds no value of any trace.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeAlias

from tenferro.tracer import build
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import DerivativeError
from tenferro.tracer.lines import at
from tenferro.tracer.op import Control, Tangents
from tenferro.tracer.program import ArrayType, Operand, Operation, Value
from tenferro.tracer.tape import Tangent
from tenferro.tracer.trace import Trace
from tenferro.tracer.transform import marks
from tenferro.tracer.transform.batch import Lanes
from tenferro.tracer.transform.linear import push
from tenferro.tracer.transform.recording import Scope, taken_out

Operands: TypeAlias = Sequence[Operand]


class Rule(ABC):
    """The rule of one mark. ``count``: how many of the mark's operands are the function's arguments.

    ``depth``: of the innermost derivative that has followed the rule. Derivatives around that one see what the rule
    itself recorded, and the function's value is then what the rule says, as it is in JAX."""

    def __init__(self, name: str, count: int) -> None:
        self.name = name
        self.count = count
        self.depth = -1

    def __repr__(self) -> str:
        return self.name

    @abstractmethod
    def jvp(self, b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
        """The tangents of the results."""

    @abstractmethod
    def for_lanes(self, b: Derivation, operation: Operation, has_lanes: Sequence[bool], size: Extent) -> Rule:
        """The rule of the mark for all lanes; the booleans say which arguments have them."""

    def is_followed(self, trace: Trace) -> bool:
        """Whether a derivative inside the present one has followed the rule."""
        return self.depth > trace.depth

    def check_closed(self, operation: Operation, tangents: Tangents) -> None:
        """DerivativeError where what the function closes over is differentiated."""
        if any(t is not None for t in tangents[self.count :]):
            raise DerivativeError(
                f"{self.name}: differentiated with respect to a value that the function closes over, of which its rule "
                f"does not speak; pass it as an argument{at(operation.line)}"
            )


@contextmanager
def guarded(trace: Trace, what: str) -> Iterator[None]:
    """What runs inside may not write variables from around it; ``what`` runs it, for error texts."""
    scope = Scope(what, trace.scope)
    trace.scope = scope
    try:
        yield
    finally:
        trace.scope = scope.around


@contextmanager
def users_code(trace: Trace) -> Iterator[None]:
    """While a rule is followed, the user's own code of it runs: at its own lines, and off the tape."""
    outer = trace.writing, trace.tape, trace.place
    trace.writing, trace.tape = None, None
    try:
        yield
    finally:
        trace.writing, trace.tape, trace.place = outer


def on_tape(trace: Trace, name: str, tangents: Tangents, rule: Callable[[Tangents], Tangents]) -> Tangents:
    """What a rule, which is linear, makes of tangents of a tape. DerivativeError where it is not linear."""
    with taken_out(trace, name) as recording, users_code(trace):
        given = [None if t is None else trace.placeholder(t.type) for t in tangents]
        found = rule(given)
    pairs = [(v, t) for v, t in zip(given, tangents, strict=True) if v is not None and t is not None]
    return linear_in(trace, name, pairs, recording.operations, found)


def linear_in(
    trace: Trace, name: str, given: Sequence[tuple[Value, Operand]], operations: Sequence[Operation], results: Tangents
) -> list[Operand | None]:
    """Results of operations that were taken out, on the tape: linear in placeholders, in whose place tangents stand.

    The derivative of what is linear is itself, and it reads no value of what it is the derivative of: so these
    operations are differentiated, and those that depend on no placeholder are recorded again."""
    return _Linear(trace, name, given).results(operations, results)


class _Linear:
    """Operations divided by whether they depend on tangents."""

    def __init__(self, trace: Trace, name: str, given: Sequence[tuple[Value, Operand]]) -> None:
        self._trace = trace
        self._name = name
        self._b = Derivation(trace)
        self._again = Lanes(trace, 1)  # none has lanes: what does not depend on tangents is recorded as it was
        self._dependent = {v.id for v, _ in given}
        self._tangents: dict[int, Operand] = {v.id: t for v, t in given}

    def results(self, operations: Sequence[Operation], results: Tangents) -> list[Operand | None]:
        """The tangents of the results. What does not depend on tangents is 0."""
        for operation in operations:
            self._add(operation)
        return [self._tangents.get(y.id) if isinstance(y, Value) and self._depends(y) else None for y in results]

    def _depends(self, x: Operand) -> bool:
        return type(x) is Value and x.id in self._dependent

    def _add(self, operation: Operation) -> None:
        if not any(map(self._depends, operation.inputs)):
            self._again.replay([operation])
            return
        self._dependent.update(v.id for v in operation.outputs)
        known = replace(
            operation,
            inputs=tuple([x if self._depends(x) else self._again.of(x)[0] for x in operation.inputs]),
            params=self._again.params(operation.params),
        )
        if isinstance(operation.op.form, Control) or operation.op is marks.checkpoint:
            self._run(known)
        else:
            self._push(known)

    def _push(self, operation: Operation) -> None:
        trace = self._trace
        assert trace.tape is not None
        start, taped = len(trace.operations), len(trace.tape.operations)
        push(trace, [operation], self._tangents)
        recorded = (*trace.operations[start:], *trace.tape.operations[taped:])
        if any(self._depends(x) for o in recorded for x in o.inputs):
            raise DerivativeError(
                f"{self._name}: {operation.op.name}, in which the result is not linear; a rule, or a function that is "
                f"transposed, that is linear in what varies is needed{at(operation.line)}"
            )

    def _run(self, operation: Operation) -> None:
        """What runs a body computes what the derivative reads beside it: it is recorded, for tangents that are 0."""
        trace, b, tangents = self._trace, self._b, dict[int, Operand]()
        inputs = list(operation.inputs)
        for k, x in enumerate(operation.inputs):
            if isinstance(x, Value) and self._depends(x):
                inputs[k] = zero = build.copied(trace, b.zeros(x.type))
                if x.id in self._tangents:
                    tangents[zero.id] = self._tangents[x.id]
        with b.derived_from(operation):
            made = trace.emit(operation.op, inputs, **operation.params)
        recorded = trace.producer(made[0].id)
        assert recorded is not None
        push(trace, [recorded], tangents)
        for old, new in zip(operation.outputs, made, strict=True):
            if new.id in tangents:
                self._tangents[old.id] = tangents[new.id]


def through(
    b: Derivation, primals: Operands, tangents: Tangents, run: Callable[[Operands], Operands]
) -> Tangents:  # fmt: skip
    """Tangents by way of what a function records now."""
    trace = b.trace
    start = len(trace.operations)
    with users_code(trace):
        values = [b.copy(x) for x in primals]
        results = run(values)
    found: dict[int, Operand] = {
        v.id: t for v, t in zip(values, tangents, strict=True) if isinstance(v, Value) and t is not None
    }
    push(trace, trace.operations[start:], found)
    return [found.get(y.id) if isinstance(y, Value) else None for y in results]


def name_of_lanes(trace: Trace) -> str | None:
    """What the mapping that records operations now calls its lanes."""
    return None if trace.mapping is None else trace.mapping.name


def varies(tangents: Tangents, trace: Trace) -> bool:
    """Whether one of the tangents is not 0. On a tape, what does not depend on its inputs is 0."""
    if trace.tape is not None:
        return any(type(t) is Tangent for t in tangents)
    return any(t is not None for t in tangents)


class InLanes:
    """A rule's code for one lane, recorded for all. ``has_lanes``: which of the operands have them."""

    def __init__(self, trace: Trace, size: Extent, name: str | None = None) -> None:
        """``name``: what the code may call the lanes."""
        self._trace = trace
        self.lanes = Lanes(trace, size, name)

    def run(
        self, operands: Tangents, has_lanes: Sequence[bool], code: Callable[[list[Operand | None]], Tangents]
    ) -> list[Operand | None]:
        """The results as values of one lane; ``lanes`` has what they are for all."""
        trace = self._trace
        with taken_out(trace, "vmap") as recording:
            given: list[Operand | None] = []
            for x, mine in zip(operands, has_lanes, strict=True):
                if x is None or not mine:
                    given.append(x)
                    continue
                value = trace.placeholder(ArrayType(x.type.dtype, x.type.shape[1:]))
                self.lanes.put(value, x, True)
                given.append(value)
            trace.axes.append(self.lanes)
            try:
                found = list(code(given))
            finally:
                trace.axes.pop()
        self.lanes.replay(recording.operations)
        return found
