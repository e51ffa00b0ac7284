"""The plan: how an ExecProgram runs, as steps over its slots. What an engine compiles.

In: an ExecProgram (``tenferro.lowering.fusion.plan``). Out: steps in order. A *segment* is a run of steps that an
engine carries out in one go; a *seam* is work of Python's between two of them. As a rule a ``CallStep`` is a seam
unless it is a matrix product; an engine knows more when it has seen layouts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import field
from typing import TypeAlias

from tenferro.lowering.exec_program import ExecProgram, Instruction, Slot
from tenferro.lowering.region import Region
from tenferro.tracer.lines import SourceLine, at
from tenferro.tracer.op import Contraction, Control, Extension, Host, Library
from tenferro.tracer.ops import library
from tenferro.tracer.records import dataclass


@dataclass(frozen=True, slots=True)
class RegionStep:
    """One fused kernel. A store with views goes into a slot that an ``AdoptStep`` has made."""

    region: Region


@dataclass(frozen=True, slots=True)
class ViewStep:
    """A slot that is a view of another one's memory (or its copy, where a reshape has no strided form)."""

    instruction: Instruction


@dataclass(frozen=True, slots=True)
class AdoptStep:
    """``target`` starts as ``base``: its very memory where nobody reads it afterwards and the run owns it (``steal``),
    else a copy. The box that the following region overwrites (starts, steps, sizes of the instruction) need not be
    copied. ``instruction`` is the slice_update."""

    base: Slot
    target: Slot
    steal: bool
    instruction: Instruction


@dataclass(frozen=True, slots=True)
class CallStep:
    """A matrix product, or a NumPy function at a seam."""

    instruction: Instruction

    @property
    def is_seam(self) -> bool:
        return not isinstance(self.instruction.op.form, Contraction)


Step: TypeAlias = RegionStep | ViewStep | AdoptStep | CallStep


@dataclass(frozen=True, slots=True)
class Segment:
    """Steps by number; ``kernels``: those of them that a kernel carries out. Views have none, and neither has what has
    no elements."""

    steps: tuple[int, ...]
    kernels: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Seam:
    """A call of Python's, or of NumPy's, that step ``step`` needs (−1 where no step of a plan does)."""

    step: int
    function: str
    line: SourceLine | None
    reason: str

    def __str__(self) -> str:
        return f"{self.function}{at(self.line)}: {self.reason}"


Stretch: TypeAlias = Segment | Seam


def seam_of(step: int, instruction: Instruction, reason: str = "") -> Seam:
    """The seam that a call of this instruction is; ``reason`` where it is not the instruction's own."""
    op, form = instruction.op, instruction.op.form
    function = str(instruction.params["function"] if op is library.numpy_call else op.name)
    if not reason:
        match form:
            case Extension(family=family):
                order = ", in the program's order" if op.is_ordered(instruction.params) else ""
                reason = f"an operation of the extension family {family!r}{order}"
            case Host():
                function, reason = str(instruction.params["call"]), "a Python function of the user's"
            case Control():
                reason = "a loop or a choice, whose bodies are programs of their own"
            case Library(runtime_extents=extents) if extents:
                reason = "a run-time extent: what follows is laid out when it is known"
            case _:
                reason = f"no kernel for {function}"
    return Seam(step, function, instruction.line, reason)


def kernel_name(step: Step) -> str:
    """What the kernel of a step is called, where it has one."""
    match step:
        case RegionStep(region=region):
            return region.name
        case CallStep(instruction=instruction):
            return str(instruction.op.name)
        case AdoptStep() | ViewStep():
            return "copy"


def _has_kernel(step: Step) -> bool:
    return not (isinstance(step, ViewStep) or (isinstance(step, AdoptStep) and step.steal))


def lines_of(step: Step) -> tuple[SourceLine, ...]:
    """The user's lines that a step carries out, each once."""
    match step:
        case RegionStep(region=region):
            lines = region.lines
        case AdoptStep(instruction=instruction) | CallStep(instruction=instruction) | ViewStep(instruction=instruction):
            lines = (instruction.line,)
    return tuple(dict.fromkeys(line for line in lines if line is not None))


@dataclass(frozen=True, repr=False)
class Plan:
    """``frees[i]``: the slots whose memory is dead after step i (views keep their base alive). ``granted``: slots that
    lie in the memory of a donated input, with its number."""

    program: ExecProgram
    steps: tuple[Step, ...]
    frees: tuple[tuple[int, ...], ...]
    granted: Mapping[int, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        return f"<plan {self.program.name}: steps {len(self.steps)}, regions {len(self.regions)}>"

    @property
    def regions(self) -> tuple[Region, ...]:
        return tuple(s.region for s in self.steps if isinstance(s, RegionStep))

    def segments(self) -> tuple[Stretch, ...]:
        """Segments and seams in order, as far as the steps alone tell."""
        found: list[Stretch] = []
        run: list[int] = []
        for number, step in enumerate(self.steps):
            if isinstance(step, CallStep) and step.is_seam:
                found += [*self.segment(run), seam_of(number, step.instruction)]
                run = []
            else:
                run.append(number)
        return (*found, *self.segment(run))

    def segment(self, steps: Sequence[int], launched: Collection[int] | None = None) -> list[Stretch]:
        """These steps as a segment, nothing for none; ``launched``: those that have a kernel, where that is known."""
        if not steps:
            return []
        kernels = [n for n in steps if (_has_kernel(self.steps[n]) if launched is None else n in launched)]
        return [Segment(tuple(steps), tuple(kernels))]

    def lasting(self) -> frozenset[int]:
        """The slots whose memory the outputs are: they, what they are views or updates of, and what lay there
        before."""
        parents: dict[int, int] = {}
        for step in self.steps:
            match step:
                case ViewStep(instruction=instruction):
                    parents.update(
                        (instruction.outputs[0].index, s.index) for s in instruction.inputs if isinstance(s, Slot)
                    )
                case AdoptStep(base=base, target=target):
                    parents[target.index] = base.index
                case RegionStep(region=region):
                    parents.update((s.slot, s.over) for s in region.stores if s.over is not None)
                case CallStep():
                    pass
        outputs = {o.index for o in self.program.outputs if isinstance(o, Slot)}
        seen = set(outputs)
        for slot in outputs:
            while slot in parents and parents[slot] not in seen:
                slot = parents[slot]
                seen.add(slot)
        return frozenset(seen)
