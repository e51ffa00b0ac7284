"""Derivatives of recorded operations: tangents of inputs in, tangents of results out; and back.

``push`` applies the rows' ``jvp`` column in order. On a tape (``on_tape``) what it emits about tangents stays apart
from the program; ``pull`` then walks the tape backwards along the rows' ``transpose`` column. So a gradient is:
linearize, then transpose (Radul, Paszke, Frostig, Johnson and Maclaurin 2023, "You only linearize once").
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np

from tenferro.tracer.derivation import Derivation
from tenferro.tracer.errors import DerivativeError
from tenferro.tracer.lines import at
from tenferro.tracer.op import Absent, Constant
from tenferro.tracer.program import ArrayType, Operand, Operation, Value
from tenferro.tracer.tape import Tangent, Tape
from tenferro.tracer.trace import Trace


@contextmanager
def on_tape(trace: Trace) -> Iterator[Tape]:
    """A tape that takes what is emitted about its tangents."""
    outer, trace.tape = trace.tape, Tape()
    try:
        yield trace.tape
    finally:
        trace.tape = outer


@contextmanager
def as_recorded(trace: Trace) -> Iterator[None]:
    """What is recorded inside is recorded once, on the engine that it is put on, and may read one engine's part: it
    stands beside operations that were recorded for each engine of a mesh."""
    before = trace.spread, trace.partial
    trace.spread, trace.partial = None, set()
    try:
        yield
    finally:
        trace.spread, trace.partial = before


def has_tangent(dtype: np.dtype[Any]) -> bool:
    """Whether values of the dtype vary continuously."""
    return dtype.kind in "fc"


def sized(trace: Trace, x: Operand, like: ArrayType) -> Operand:
    """The operand with the sizes of another, where guards make them the same: rows compare how they are written."""
    shape = x.type.shape
    if shape is like.shape or shape == like.shape or not isinstance(x, Value) or len(shape) != len(like.shape):
        return x
    if any(trace.canonical(n) != trace.canonical(m) for n, m in zip(shape, like.shape, strict=True)):
        return x  # equal by another fact: what it is derived from does not say so
    return replace(x, type=ArrayType(x.type.dtype, like.shape, x.type.weak))


def push(trace: Trace, operations: Sequence[Operation], tangents: dict[int, Operand]) -> None:
    """Add to ``tangents`` (by value id; what is missing is 0) those of the operations' results."""
    b = Derivation(trace)
    for operation in operations:
        mine = [tangents.get(x.id) if type(x) is Value else None for x in operation.inputs]
        if all(t is None for t in mine) or not any(has_tangent(v.type.dtype) for v in operation.outputs):
            continue
        with as_recorded(trace), b.derived_from(operation):
            found = _jvp(b, operation, mine)
        for value, tangent in zip(operation.outputs, found, strict=True):
            if tangent is not None and has_tangent(value.type.dtype):
                tangents[value.id] = sized(trace, tangent, value.type)


def _jvp(b: Derivation, operation: Operation, tangents: Sequence[Operand | None]) -> Sequence[Operand | None]:
    match operation.op.jvp:
        case Constant():
            return [None] * len(operation.outputs)
        case Absent(reason):
            raise DerivativeError(
                f"{operation.op.name}: its derivative was asked for, and it has none: {reason}; stop_gradient(x) holds "
                f"its operand constant{at(operation.line)}"
            )
        case rule:
            return rule(b, operation, tangents)


def pull(trace: Trace, tape: Tape, cotangents: Mapping[int, Operand]) -> dict[int, Operand]:
    """The cotangents of all tangents on the tape (by their ids; what is missing is 0), from those of some."""
    b = Derivation(trace)
    found = dict(cotangents)
    for operation in reversed(tape.operations):
        mine = [found.pop(v.id, None) for v in operation.outputs]
        if all(ct is None for ct in mine):
            continue
        is_linear = [type(x) is Tangent for x in operation.inputs]
        with as_recorded(trace), b.derived_from(operation):
            results = _transposed(b, operation, mine, is_linear)
            for x, ct in zip(operation.inputs, results, strict=True):
                if type(x) is Tangent and ct is not None:
                    total = b.plus(found.get(x.id), sized(trace, ct, x.type))
                    assert total is not None
                    found[x.id] = total
    return found


def _transposed(
    b: Derivation, operation: Operation, cotangents: Sequence[Operand | None], is_linear: Sequence[bool]
) -> Sequence[Operand | None]:
    rule = operation.op.transpose
    if isinstance(rule, Absent):
        raise DerivativeError(
            f"{operation.op.name}: its reverse derivative was asked for, and there is none: {rule.reason}"
            f"{at(operation.line)}"
        )
    return rule(b, operation, cotangents, is_linear)


NO_VALUES: Mapping[int, Operand] = {}


def _in_place(x: Operand, values: Mapping[int, Operand]) -> Operand:
    return values.get(x.id, x) if isinstance(x, Value) else x


def replay(
    trace: Trace, tape: Tape, tangents: dict[int, Operand], values: Mapping[int, Operand] = NO_VALUES
) -> None:  # fmt: skip
    """Add to ``tangents``, which holds the tape's inputs (what is missing is 0), those of its operations' results.
    ``values``: what stands in place of values of the trace that the tape reads, by their ids."""
    b = Derivation(trace)
    for operation in tape.operations:
        if not any(type(x) is Tangent and x.id in tangents for x in operation.inputs):
            continue
        with as_recorded(trace), b.derived_from(operation):
            inputs = [
                (tangents.get(x.id) or b.zeros(x.type)) if type(x) is Tangent else _in_place(x, values)
                for x in operation.inputs
            ]
            results = b.emit(operation.op, inputs, **operation.params)
        tangents.update(zip((v.id for v in operation.outputs), results, strict=True))
