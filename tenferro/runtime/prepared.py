"""What ``prepare`` returns: a program made ready for one engine, and the signature that it was made for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tenferro.engines.engine import Engine, Executable
from tenferro.lowering.plan import Plan
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.program import Literal, Operand, SemanticProgram, Value, same_meaning


@dataclass(frozen=True, slots=True)
class InputType:
    """What preparation may know of an input: its dtype and rank. Sizes, strides and placement stay open."""

    dtype: np.dtype[Any]
    rank: int


InputSignature = tuple[InputType, ...]


def signature_of(program: SemanticProgram) -> InputSignature:
    """The signature that the program itself states."""
    return tuple(InputType(i.value.type.dtype, i.value.type.rank) for i in program.inputs)


def check_signature(program: SemanticProgram, signature: InputSignature) -> None:
    """ShapeError or DtypeError where the signature is not the program's."""
    if len(signature) != len(program.inputs):
        raise ShapeError(f"prepare: {len(signature)} inputs; program {program.name} has {len(program.inputs)}")
    for found, needed in zip(signature, program.inputs, strict=True):
        t = needed.value.type
        if found.dtype != t.dtype:
            raise DtypeError(f"prepare: input {needed.name} of dtype {found.dtype.name}; {t.dtype.name} is needed")
        if found.rank != t.rank:
            raise ShapeError(f"prepare: input {needed.name} of rank {found.rank}; rank {t.rank} is needed")


@dataclass(frozen=True, slots=True)
class EngineTarget:
    """An engine by name and concrete class: what a program is prepared for, without the engine itself."""

    engine_id: str
    engine_class: type[Engine]


def target_of(engine: Engine) -> EngineTarget:
    """The target that this engine is."""
    return EngineTarget(engine.id, type(engine))


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """A plan and its executable. Holds no engine and no array; threads may run it at the same time. It is stale, and
    ``run`` refuses it, once its runtime has been reconfigured."""

    runtime_id: int
    epoch: int
    program: SemanticProgram
    signature: InputSignature
    target: EngineTarget
    plan: Plan
    executable: Executable


def _outline(program: SemanticProgram) -> tuple[object, ...]:
    ops = tuple([(o.op.name, *[_hashed(i) for i in o.inputs]) for o in program.operations])
    return (tuple(i.value.type for i in program.inputs), ops, program.aliases)


def _hashed(operand: Operand) -> object:
    return operand.id if isinstance(operand, Value) else operand.value if isinstance(operand, Literal) else None


class PreparedKey:
    """Exact: program (by meaning and by user lines, since run-time errors name them), signature, target, registration,
    and the settings that change code. The hash sees ops and operands only: a fingerprint's text would cost a tenth of
    the preparation."""

    __slots__ = ("_hash", "_lines", "_program", "_rest")

    def __init__(self, program: SemanticProgram, *rest: object) -> None:
        self._program = program
        self._lines = tuple(o.line for o in program.operations)
        self._rest = rest
        self._hash = hash((_outline(program), rest))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PreparedKey)
            and self._rest == other._rest
            and self._lines == other._lines
            and same_meaning(self._program, other._program)
        )
