"""A prepared program in, its stages as objects and texts out: what ``f.lower(*args)`` returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tenferro.guards import in_words
from tenferro.lowering.exec_program import ExecProgram
from tenferro.lowering.plan import AdoptStep, CallStep, Plan, RegionStep, Step, ViewStep
from tenferro.lowering.region import Region
from tenferro.runtime import Prepared
from tenferro.tracer.config import SHOW_STAGES
from tenferro.tracer.dims import Extent, Leaf, add, evaluate, mul, product
from tenferro.tracer.program import SemanticProgram


@dataclass(frozen=True, slots=True)
class Memory:
    """The most memory that a run holds at one time beyond its inputs: results and temporaries.

    ``formula`` is that of the step ``at`` where the peak is reached for these sizes; ``bytes`` is its value; ``total``
    is what the run would take if nothing were freed."""

    formula: str
    bytes: int
    total: int
    at: str

    def __str__(self) -> str:
        return f"peak {self.bytes} bytes = {self.formula} (at {self.at}); without reuse {self.total} bytes"


def _written(step: Step) -> tuple[int, ...]:
    """Slots for which the step takes new memory."""
    match step:
        case RegionStep(region):
            return tuple(dict.fromkeys(s.slot for s in region.stores if not s.views))
        case CallStep(instruction):
            return tuple(s.index for s in instruction.outputs)
        case AdoptStep(target=target, steal=steal):
            return () if steal else (target.index,)
        case ViewStep():
            return ()


def _name(step: Step) -> str:
    match step:
        case RegionStep(region):
            return f"region {region.name}"
        case AdoptStep(instruction=instruction) | CallStep(instruction) | ViewStep(instruction):
            return str(instruction.op.name)


def peak_memory(plan: Plan, env: Mapping[Leaf, int]) -> Memory:
    """Follow the plan's steps and frees. A run-time extent counts with its bound's absence: as 0."""
    types = plan.program.slot_types()
    known = dict(env)

    def size(slot: int) -> Extent:
        return mul(product(types[slot].shape), types[slot].dtype.itemsize)

    def value(extent: Extent) -> int:
        try:
            return evaluate(extent, known)
        except KeyError:
            return 0

    owned: dict[int, Extent] = {}
    best, at, total = 0, "start", 0
    formula: Extent = 0
    for step, frees in zip(plan.steps, plan.frees, strict=True):
        for slot in _written(step):
            owned[slot] = size(slot)
            total += value(owned[slot])
        if isinstance(step, AdoptStep) and step.steal and step.base.index in owned:
            owned[step.target.index] = owned.pop(step.base.index)
        live: Extent = 0
        for extent in owned.values():
            live = add(live, extent)
        if value(live) > best or best == 0:
            best, formula, at = value(live), live, _name(step)
        for slot in frees:
            owned.pop(slot, None)
    return Memory(str(formula), best, total, at)


@dataclass(frozen=True)
class Lowered:
    """The stages of one program for the sizes of one call."""

    prepared: Prepared
    env: Mapping[Leaf, int]
    run: Callable[[], object]

    @property
    def program(self) -> SemanticProgram:
        return self.prepared.program

    @property
    def plan(self) -> Plan:
        return self.prepared.plan

    @property
    def exec_program(self) -> ExecProgram:
        return self.plan.program

    @property
    def regions(self) -> tuple[Region, ...]:
        return self.plan.regions

    def as_text(self, stage: str = "program") -> str:
        """The text of ``"program"``, ``"exec"``, ``"regions"``, ``"kernel"``, ``"llvm"`` or ``"asm"``.

        The last two compile the kernels. ValueError for another name."""
        match stage:
            case "program":
                return str(self.program)
            case "exec":
                return str(self.exec_program)
            case "regions":
                return "\n".join(_step_text(s) for s in self.plan.steps)
            case "kernel" | "llvm" | "asm":
                return self._kernel_text(stage)
            case _:
                raise ValueError(f"as_text: stage {stage!r}; one of {', '.join(SHOW_STAGES)} is needed")

    def _kernel_text(self, stage: str) -> str:
        self.run()  # kernels are compiled when first needed
        texts = self.prepared.executable.kernel_texts()
        return "\n".join(f"; {name}\n{text[stage]}" for name, text in texts.items() if stage in text)

    def memory(self) -> Memory:
        """The peak of results and temporaries, as a formula over the call's sizes and as a number of bytes."""
        found = peak_memory(self.plan, self.env)
        return Memory(in_words(found.formula, self.program), found.bytes, found.total, found.at)

    def __str__(self) -> str:
        return self.as_text("regions")


def _step_text(step: Step) -> str:
    match step:
        case RegionStep(region):
            return str(region)
        case AdoptStep(base, target, steal, _):
            return f"{target} starts as {'the memory' if steal else 'a copy'} of {base}"
        case ViewStep(instruction):
            return f"view   {instruction}"
        case CallStep(instruction):
            return f"call   {instruction}"

