"""What a run holds at most, told: a plan and the sizes of a call go in, formulas with their values come out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from tenferro.guards import in_words
from tenferro.lowering.exec_program import ExecProgram
from tenferro.lowering.memory import OneKernel, memory, unbounded
from tenferro.lowering.plan import AdoptStep, CallStep, Plan, RegionStep, Step, ViewStep
from tenferro.tracer.dims import Leaf, evaluate
from tenferro.tracer.lines import SourceLine, at
from tenferro.tracer.program import SemanticProgram
from tenferro.tracer.records import dataclass

LISTED = 5


@dataclass(frozen=True, slots=True)
class Size:
    """Bytes: ``formula`` holds for all sizes, ``bytes`` is its value for the call's."""

    formula: str
    bytes: int

    def __int__(self) -> int:
        return self.bytes

    def __str__(self) -> str:
        text = f"{self.bytes} bytes"
        return text if self.formula == str(self.bytes) else f"{text} = {self.formula}"


@dataclass(frozen=True, slots=True)
class Buffer:
    """An array that a run makes: by its slot, as ``as_text("segments")`` and ``"regions"`` name it. It is held from
    step ``first`` to step ``last`` of the plan; None for a result, which outlives the run. ``line``: the user's.
    ``inside``: of a loop or a choice that makes the slot, all that its bodies hold beside its results."""

    slot: int
    size: Size
    line: SourceLine | None
    first: int
    last: int | None
    inside: bool = False

    @property
    def bytes(self) -> int:
        return self.size.bytes

    @property
    def formula(self) -> str:
        return self.size.formula

    def __str__(self) -> str:
        held = f"from step {self.first} on" if self.last is None else f"steps {self.first} to {self.last}"
        what = f"inside what makes s{self.slot}" if self.inside else f"s{self.slot}"
        return f"{what}: {self.size}, {held}{at(self.line)}"


@dataclass(frozen=True, slots=True, repr=False)
class Memory:
    """The most memory that a run holds at one time beyond its inputs: results and temporaries.

    ``peak`` is reached in step ``step``, which ``at`` names. ``naive``: what the run would take if every array that a
    step makes had memory of its own and none were freed. ``largest``: at most five buffers, the largest first. While a
    loop or a choice runs, what its bodies hold counts: the largest of the branches, a condition and its body. A size
    that depends on data counts with its upper bound. ``unbounded`` names what has none, counts and what a
    ``while_loop`` stacks for its derivative, which comes on top.

    Of a program of several engines ``engines`` has the memory of each, whose steps count through all that it does.
    ``peak`` and ``naive`` are sums over them then, since they may reach theirs at one time. What crosses between
    engines of one process is not copied, and counts where it was made."""

    peak: Size
    naive: Size
    largest: tuple[Buffer, ...]
    step: int
    at: str
    engines: Mapping[str, Memory] = field(default_factory=dict)
    unbounded: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Of the peak."""
        return self.peak.bytes

    @property
    def formula(self) -> str:
        """Of the peak."""
        return self.peak.formula

    def __str__(self) -> str:
        if self.engines:
            each = [f"{name}: {m}" for name, m in self.engines.items()]
            return "\n".join([f"peak {self.peak} on all engines", *each, *self._more])
        where = f" in step {self.step} ({self.at})" if self.at else ""
        listed = [f"  {b}" for b in self.largest]
        return "\n".join([f"peak {self.peak}{where}", f"naive {self.naive}", *listed, *self._more])

    @property
    def _more(self) -> list[str]:
        return [f"and what is known only when it has run: {text}" for text in self.unbounded]

    def __repr__(self) -> str:
        parts = f"engines {', '.join(self.engines)}" if self.engines else f"buffers listed {len(self.largest)}"
        return f"<memory: peak {self.peak}, naive {self.naive}, {parts}>"


def memory_of(plan: Plan, env: Mapping[Leaf, int], program: SemanticProgram, is_one_kernel: OneKernel) -> Memory:
    """The memory of a plan that is the whole of ``program``, on an engine that runs such loops as one kernel."""
    found = memory(plan, is_one_kernel)

    def size(formula: object, value: int) -> Size:
        return Size(in_words(str(formula), program), value)

    listed = found.largest(env)
    step = found.step(env) if found.live else -1
    return Memory(
        size(found.peak, found.bytes(env)),
        size(found.naive, evaluate(found.naive, env)),
        tuple([Buffer(b.slot, size(b.size, n), b.line, b.first, b.last, b.inside) for n, b in listed[:LISTED]]),
        step,
        name_of(plan.steps[step]) if found.live else "",
        unbounded=unbounded_in(plan.program),
    )


def unbounded_in(program: ExecProgram) -> tuple[str, ...]:
    """What has no bound, by operation and line."""
    return tuple([f"the results of {i.op.name}{at(i.line)}" for i in unbounded(program)])


def name_of(step: Step) -> str:
    """A region by its name, everything else by its operation."""
    match step:
        case RegionStep(region):
            return f"region {region.name}"
        case AdoptStep(instruction=instruction) | CallStep(instruction) | ViewStep(instruction):
            return str(instruction.op.name)
