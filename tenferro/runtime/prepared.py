"""What ``prepare`` returns: a program made ready for its target engines, and the signature that it was made for."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import Any

import numpy as np

from tenferro.engines.engine import Engine, Executable
from tenferro.guards import Predicate, compile_fit, compile_guards
from tenferro.lowering.exec_program import ExecProgram, Slot
from tenferro.lowering.plan import Plan
from tenferro.runtime.options import Policy
from tenferro.runtime.schedule import Schedule, reads
from tenferro.runtime.transfers import Transfer
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.program import Literal, Operand, SemanticProgram, Value, same_meaning
from tenferro.tracer.records import dataclass


@dataclass(frozen=True, slots=True)
class InputType:
    """What preparation may know of an input: its dtype and rank, and ``place``, the engine in whose memory it lies;
    empty for the host's. Sizes and strides stay open."""

    dtype: np.dtype[Any]
    rank: int
    place: str = ""


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


@dataclass(frozen=True, eq=False, repr=False)
class Prepared:
    """A schedule, and a plan and an executable for each part of it. Holds no engine and no array of a run; threads may
    run it at the same time. It is stale, and ``run`` refuses it, once its runtime has been reconfigured.

    ``units`` and ``plans`` are by number of the schedule's node; None for what is no part. ``defaults``: arrays that
    inputs have where a run gives none, by position."""

    runtime_id: int
    epoch: int
    program: SemanticProgram
    exec_program: ExecProgram
    signature: InputSignature
    targets: tuple[EngineTarget, ...]
    policy: Policy
    schedule: Schedule
    plans: tuple[Plan | None, ...]
    units: tuple[Executable | None, ...]
    defaults: tuple[tuple[int, Any], ...] = ()

    def __repr__(self) -> str:
        parts = sum(u is not None for u in self.units)
        return f"<prepared {self.program.name}: runtime {self.runtime_id}, epoch {self.epoch}, parts {parts}>"

    @cached_property
    def flat(self) -> Executable | None:
        """The one executable of a program that runs whole on one target; None where there is more to do."""
        return self.units[0] if self.schedule.is_flat else None

    @cached_property
    def guard(self) -> Predicate:
        """What the program assumes of its inputs' sizes, as a function of them."""
        return compile_guards(self.program.guards)

    @cached_property
    def fits(self) -> Predicate:
        """Whether a run's inputs are, as they stand, what the program was prepared for. It may say no to some that are:
        ``inputs.checked_all`` has the last word."""
        return compile_fit(self.program)

    @cached_property
    def readers(self) -> dict[tuple[int, int], int]:
        """(slot, engine) → how many nodes read it there, the outputs counted as one more."""
        outputs = zip(self.exec_program.outputs, self.schedule.outputs, strict=True)
        kept = [(o.index, home) for o, home in outputs if isinstance(o, Slot) and home >= 0]
        return dict(Counter([*(r for n in self.schedule.nodes for r in reads(n)), *kept]))

    @property
    def bytes(self) -> int:
        """What the preparation keeps alive beside its kernels, roughly."""
        return 1000 * len(self.exec_program.instructions) + 2000

    def transfers(self) -> tuple[Transfer, ...]:
        """What crosses between engines, with bytes and reason."""
        return self.schedule.transfers

    def executables(self) -> tuple[Executable, ...]:
        """Those that there are, in order of their nodes."""
        return tuple(u for u in self.units if u is not None)


def _outline(program: SemanticProgram) -> tuple[object, ...]:
    ops = tuple([(o.op.name, o.params if o.params else None, *map(_hashed, o.inputs)) for o in program.operations])
    return (tuple(i.value.type for i in program.inputs), ops, program.aliases)


def _hashed(operand: Operand) -> object:
    return operand.id if isinstance(operand, Value) else operand.value if isinstance(operand, Literal) else None


class PreparedKey:
    """Exact: program (by meaning and by user lines, since run-time errors name them), signature, targets,
    registrations, and the settings that change code. The hash sees ops, parameters and operands only: a fingerprint's
    text would cost a tenth of the preparation."""

    __slots__ = ("_hash", "_lines", "_program", "_rest")

    def __init__(self, program: SemanticProgram, *rest: object) -> None:
        self._program = program
        self._lines = tuple(o.line for o in program.operations)
        self._rest = rest
        self._hash = hash((_outline(program), rest))

    @property
    def bytes(self) -> int:
        """What the key keeps alive, roughly."""
        return 200 * len(self._program.operations) + 500

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, PreparedKey)
            and self._rest == other._rest
            and self._lines == other._lines
            and same_meaning(self._program, other._program)
        )
