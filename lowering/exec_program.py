"""The ExecProgram: instructions over slots, in the order in which they may run.

In: a SemanticProgram after its passes (``tenferro.lowering.stage``). Out: what every engine runs; the reference engine
runs it instruction by instruction, the others group its instructions into regions first (``tenferro.lowering.fusion``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import NoReturn, TypeAlias

from tenferro.tracer.dims import Leaf
from tenferro.tracer.errors import CheckError, LoweringError
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.op import Op
from tenferro.tracer.program import ArrayType, DimScalar, InputKind, Literal, Params, ShapeGuard
from tenferro.tracer.records import dataclass


class ExtentKind(Enum):
    """What an output's shape expression promises about an axis. A bound is never used as an exact size."""

    EXACT = "exact"
    UPPER_BOUND = "upper bound"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Slot:
    """A place for one array, written once."""

    index: int

    def __str__(self) -> str:
        return f"s{self.index}"


Source: TypeAlias = Slot | Literal | DimScalar


@dataclass(frozen=True, slots=True)
class Instruction:
    """``outputs = op[params](inputs)``. ``last_use[i]``: nothing reads input i after this and it is no output.
    ``operation``: index of the SemanticProgram's operation it came from, −1 for one that lowering made."""

    op: Op
    inputs: tuple[Source, ...]
    params: Params
    outputs: tuple[Slot, ...]
    types: tuple[ArrayType, ...]
    extents: tuple[tuple[ExtentKind, ...], ...]
    last_use: tuple[bool, ...]
    operation: int
    line: SourceLine | None = None
    place: str = ""  # the engine asked for; empty where any will do

    def __str__(self) -> str:
        outs = ", ".join(f"{s}: {t}" for s, t in zip(self.outputs, self.types, strict=True))
        ins = ", ".join(f"{x}{'!' if last else ''}" for x, last in zip(self.inputs, self.last_use, strict=True))
        params = f"[{self.params}]" if len(self.params) else ""
        return f"{outs} = {self.op.name}{params}({ins})"

    def runtime_extent(self, output: int, axis: int) -> Leaf | None:
        """The run-time extent that the axis of the result tells; None for a number, which was known before."""
        expr = self.types[output].shape[axis]
        if isinstance(expr, int):
            return None
        leaf = expr.terms[0][0][0].leaf
        if leaf is None:
            raise LoweringError(f"{self.op.name}: axis {axis} of the result is {expr}; a single leaf is needed")
        return leaf


@dataclass(frozen=True, slots=True)
class ExecInput:
    """The slot that an input arrives in; ``int`` inputs arrive as Python ints and are leaves of the sizes too."""

    slot: Slot
    type: ArrayType
    kind: InputKind
    name: str


@dataclass(frozen=True, repr=False)
class ExecProgram:
    name: str
    inputs: tuple[ExecInput, ...]
    instructions: tuple[Instruction, ...]
    outputs: tuple[Source, ...]
    n_slots: int
    guards: tuple[ShapeGuard, ...]

    def __post_init__(self) -> None:
        validate(self)

    def slot_types(self) -> dict[int, ArrayType]:
        types = {i.slot.index: i.type for i in self.inputs}
        for instruction in self.instructions:
            types.update((s.index, t) for s, t in zip(instruction.outputs, instruction.types, strict=True))
        return types

    def __str__(self) -> str:
        return self.text()

    def text(self, below: Callable[[Params], Sequence[str]] = lambda _: ()) -> str:
        """A line for each instruction, and those that ``below`` gives for its parameters, indented."""
        lines = [f"exec {self.name}  ({self.n_slots} slots)"]
        lines += [f"  in   {i.slot}: {i.type}  # {i.kind} {i.name}" for i in self.inputs]
        lines += [f"  if   {g}" for g in self.guards]
        for i in self.instructions:
            lines += [f"  {i}", *(f"    {line}" for line in below(i.params))]
        lines.append("  out  " + (", ".join(str(o) for o in self.outputs) or "no array"))
        return "\n".join(lines)

    def __repr__(self) -> str:  # a prompt shows it: short, str() has it all
        return (
            f"<exec {self.name}: inputs {len(self.inputs)}, instructions {len(self.instructions)}, outputs "
            f"{len(self.outputs)}, slots {self.n_slots}; print() shows them>"
        )


def validate(program: ExecProgram) -> None:
    """Slots are in range, written once and before they are read; arities agree; ``last_use`` tells the truth."""
    written: set[int] = set()
    dead: set[int] = set()
    kept = {o.index for o in program.outputs if isinstance(o, Slot)}

    def fail(where: int | str, what: str) -> NoReturn:
        text = where if isinstance(where, str) else f"instruction {where} ({program.instructions[where].op.name})"
        raise CheckError(f"exec program {program.name}: {text}: {what}")

    def write(slot: Slot, where: int | str) -> None:
        if not 0 <= slot.index < program.n_slots:
            fail(where, f"{slot} is not below {program.n_slots}")
        if slot.index in written:
            fail(where, f"{slot} is written twice")
        written.add(slot.index)

    for i in program.inputs:
        write(i.slot, f"input {i.name}")
    for where, instruction in enumerate(program.instructions):
        if (
            not len(instruction.outputs) == len(instruction.types) == len(instruction.extents)
            or not instruction.outputs
        ):
            fail(where, "outputs, types and extents differ in number")
        if len(instruction.last_use) != len(instruction.inputs):
            fail(where, "last_use and inputs differ in number")
        for source, last in zip(instruction.inputs, instruction.last_use, strict=True):
            if isinstance(source, Slot):
                if source.index not in written:
                    fail(where, f"{source} is read before it is written")
                if source.index in dead:
                    fail(where, f"{source} is read after its last use")
                if last and source.index in kept:
                    fail(where, f"{source} is an output and cannot end here")
        dead |= {
            s.index
            for s, last in zip(instruction.inputs, instruction.last_use, strict=True)
            if last and isinstance(s, Slot)
        }
        for slot in instruction.outputs:
            write(slot, where)
    for o in program.outputs:
        if isinstance(o, Slot) and o.index not in written:
            fail("outputs", f"{o} is never written")
