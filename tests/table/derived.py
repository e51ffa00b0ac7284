"""Derivatives and batches of one operation: a row, operand types and parameters in, a program of what the row's rule
emits out.

Programs are built in a bare trace, below NumPy's functions: what a rule says is run on an engine as it stands, through
all passes.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, TypeAlias

import numpy as np

from tenferro.engines.engine import Executable
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dims import Extent
from tenferro.tracer.op import Absent, Op
from tenferro.tracer.ops import OPS
from tenferro.tracer.program import ArrayType, Operand, Operation, Params, ProgramInput, SemanticProgram, Value
from tenferro.tracer.tape import Tangent, Tape
from tenferro.tracer.trace import Trace
from tenferro.tracer.transform.linear import has_tangent, on_tape, pull, push
from tests.running import executable

Array: TypeAlias = np.ndarray[Any, Any]
Types: TypeAlias = tuple[ArrayType, ...]
Flags: TypeAlias = tuple[bool, ...]


class Builder:
    """A trace whose inputs have the given types, symbols or numbers as sizes."""

    def __init__(self, name: str, types: Sequence[ArrayType]) -> None:
        self.trace = Trace(name)
        self.inputs = [Value(k, t) for k, t in enumerate(types)]
        self.trace.inputs += [ProgramInput(v, "argument", f"x{v.id}") for v in self.inputs]
        self.trace._next = len(types)
        self.b = Derivation(self.trace)

    def program(self, outputs: Sequence[Operand]) -> SemanticProgram:
        """All that was recorded; fresh arrays as outputs."""
        return SemanticProgram(
            self.trace.name, tuple(self.trace.inputs), tuple(self.trace.operations), tuple(outputs),
            tuple(range(len(outputs))),
        )  # fmt: skip

    def or_zeros(self, operands: Sequence[Operand | None], types: Sequence[ArrayType]) -> list[Operand]:
        """0 for None. Types are those that are needed."""
        found = [self.b.zeros(t) if x is None else x for x, t in zip(operands, types, strict=True)]
        for x, t in zip(found, types, strict=True):
            assert (x.type.dtype, x.type.shape) == (t.dtype, t.shape), f"{self.trace.name}: {x.type}, not {t}"
        return found


def types_of(operands: Sequence[Array]) -> Types:
    return tuple(ArrayType(x.dtype, x.shape) for x in operands)


def varying(types: Sequence[ArrayType]) -> Flags:
    """The operands that have tangents."""
    return tuple(has_tangent(t.dtype) for t in types)


# -- one rule --------------------------------------------------------------------------------------------------------


def jvp_program(
    op: Op, types: Types, params: Mapping[str, Hashable], order: int = 1, *carriers: ArrayType
) -> SemanticProgram:
    """Inputs: the operands; tangents for those that have some; for the second order as many again, for the operands and
    for their tangents; ``carriers`` that bring sizes. Outputs: the results' tangents of the highest order, where there
    are some."""
    mine = [t for t, varies in zip(types, varying(types), strict=True) if varies]
    made = Builder(f"{op.name} order {order}", [*types, *mine * (2**order - 1), *carriers])
    values = [v for v in made.inputs[: len(types)] if has_tangent(v.type.dtype)]
    results: Sequence[Operand | None] = made.trace.emit(op, made.inputs[: len(types)], **params)
    results = [v for v in results if v is not None and has_tangent(v.type.dtype)]
    given, kinds = made.inputs[len(types) :], [v.type for v in results if v is not None]
    for _ in range(order):
        tangents: dict[int, Operand] = {v.id: t for v, t in zip(values, given[: len(values)], strict=True)}
        given, values = given[len(values) :], values + given[: len(values)]
        push(made.trace, list(made.trace.operations), tangents)
        results = [tangents.get(v.id) if isinstance(v, Value) else None for v in results]
    return made.program(made.or_zeros(results, kinds))


def transpose_program(op: Op, types: Types, params: Mapping[str, Hashable], linear: Flags) -> SemanticProgram:
    """Inputs: the operands in which the op is not linear, then the results' cotangents. Outputs: the cotangents of the
    others."""
    held = [t for t, mine in zip(types, linear, strict=True) if not mine]
    results = op.infer(types, Params(**params))
    made = Builder(f"{op.name} transposed", [*held, *results])
    with on_tape(made.trace) as tape:
        operands = operands_of(tape, types, linear, made.inputs)
        outputs = made.trace.emit(op, operands, **params)
        cotangents: dict[int, Operand] = {
            v.id: ct for v, ct in zip(outputs, made.inputs[len(held) :], strict=True) if type(v) is Tangent
        }
        assert cotangents, f"{op.name}: nothing on the tape"
    found = pull(made.trace, tape, cotangents)
    mine = [x for x in operands if type(x) is Tangent]
    return made.program(made.or_zeros([found.get(x.id) for x in mine], [x.type for x in mine]))


def operands_of(tape: Tape, types: Types, linear: Flags, values: Sequence[Value]) -> list[Value]:
    """Tangents of the tape where the op is linear, the values in order elsewhere."""
    held = iter(values)
    return [tape.input(t) if mine else next(held) for t, mine in zip(types, linear, strict=True)]


def batch_program(
    op: Op, types: Types, params: Mapping[str, Hashable], batched: Flags, size: Extent, *carriers: ArrayType
) -> SemanticProgram:  # fmt: skip
    """Inputs: the operands, of which some have a leading axis of the given size, and ``carriers`` that bring sizes.
    Outputs: the results for all lanes."""
    wide = [ArrayType(t.dtype, (size, *t.shape)) if mine else t for t, mine in zip(types, batched, strict=True)]
    made = Builder(f"{op.name} batched", [*wide, *carriers])
    results = op.infer(types, Params(**params))
    assert not isinstance(op.batch, Absent)
    operation = Operation(op, tuple(made.inputs[: len(types)]), Params(**params), ())
    found = op.batch(made.b, operation, batched, size)
    return made.program(made.or_zeros(found, [ArrayType(t.dtype, (size, *t.shape)) for t in results]))


# -- what rules emit -------------------------------------------------------------------------------------------------


@dataclass
class Emitted:
    """Ops by what they are asked for: those that take a tangent, with the operands that are tangents; and all."""

    linear: set[tuple[str, Flags]] = field(default_factory=set)
    values: set[str] = field(default_factory=set)

    def note(self, trace: Trace, tape: Tape) -> None:
        self.linear |= {(o.op.name, tuple(type(x) is Tangent for x in o.inputs)) for o in tape.operations}
        self.values |= {o.op.name for o in trace.operations}


def emitted_by_jvp(op: Op, types: Types, params: Mapping[str, Hashable], into: Emitted) -> None:
    """What the jvp emits on a tape, for each operand alone and for all of them."""
    flags = varying(types)
    each = [tuple(k == mine for k in range(len(types))) for mine, varies in enumerate(flags) if varies]
    for chosen in {flags, *each}:
        made = Builder(op.name, types)
        made.trace.emit(op, made.inputs, **params)
        with on_tape(made.trace) as tape:
            tangents: dict[int, Operand] = {
                v.id: tape.input(v.type) for v, mine in zip(made.inputs, chosen, strict=True) if mine
            }
            push(made.trace, list(made.trace.operations), tangents)
        into.note(made.trace, tape)


def emitted_by_transpose(
    op: Op, types: Types, params: Mapping[str, Hashable], linear: Flags, into: Emitted
) -> None:  # fmt: skip
    """What the transpose emits, cotangents being tangents of another tape."""
    held = [t for t, mine in zip(types, linear, strict=True) if not mine]
    made = Builder(op.name, held)
    with on_tape(made.trace) as first:
        outputs = made.trace.emit(op, operands_of(first, types, linear, made.inputs), **params)
    with on_tape(made.trace) as second:
        cotangents: dict[int, Operand] = {v.id: second.input(v.type) for v in outputs}
        pull(made.trace, first, cotangents)
    into.note(made.trace, second)


# -- running ---------------------------------------------------------------------------------------------------------


@cache
def made(
    rule: Callable[..., SemanticProgram], op_name: str, types: Types, params: Params, *more: Any, engine: str = "cpu:0"
) -> Executable:  # fmt: skip
    """The program of a rule, compiled, the same one each time."""
    return executable(rule(OPS[op_name], types, dict(params), *more), engine)
