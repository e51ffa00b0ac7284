"""A prepared program in, its stages as objects and texts out: what ``f.lower(*args)`` returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tenferro.guards import in_words
from tenferro.kernel_text import kernel_text
from tenferro.lowering.exec_program import ExecProgram
from tenferro.lowering.memory import memory
from tenferro.lowering.partition import Part
from tenferro.lowering.plan import AdoptStep, CallStep, Plan, RegionStep, Step, ViewStep
from tenferro.lowering.region import Region
from tenferro.runtime import OperationNode, Prepared, Schedule
from tenferro.tracer.config import SHOW_STAGES
from tenferro.tracer.dims import Leaf
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.program import SemanticProgram


@dataclass(frozen=True, slots=True)
class Memory:
    """The most memory that a run holds at one time beyond its inputs: results and temporaries.

    ``formula`` holds for all sizes; ``bytes`` is its value for the call's, reached in step ``at``. ``total`` is what
    the run would take if nothing were freed."""

    formula: str
    bytes: int
    total: str
    at: str

    def __str__(self) -> str:
        return f"peak {self.bytes} bytes = {self.formula} (at {self.at}); without reuse {self.total}"


def _name(step: Step) -> str:
    match step:
        case RegionStep(region):
            return f"region {region.name}"
        case AdoptStep(instruction=instruction) | CallStep(instruction) | ViewStep(instruction):
            return str(instruction.op.name)


@dataclass(frozen=True, repr=False)
class Lowered:
    """The stages of one program for the sizes of one call."""

    prepared: Prepared
    env: Mapping[Leaf, int]
    run: Callable[[], object]

    @property
    def program(self) -> SemanticProgram:
        return self.prepared.program

    @property
    def plans(self) -> tuple[Plan, ...]:
        """One for each part of the schedule: one in all where the program runs on one engine."""
        return tuple(p for p in self.prepared.plans if p is not None)

    @property
    def plan(self) -> Plan:
        """The plan of a program that runs on one engine. LoweringError for one of several parts (``plans``)."""
        if self.prepared.flat is None:
            raise LoweringError(f"plan: {self.program.name} runs in {len(self.plans)} parts; ask for plans")
        return self.plans[0]

    @property
    def schedule(self) -> Schedule:
        """What runs where, and waits for what."""
        return self.prepared.schedule

    @property
    def exec_program(self) -> ExecProgram:
        return self.prepared.exec_program

    @property
    def regions(self) -> tuple[Region, ...]:
        return tuple(r for p in self.plans for r in p.regions)

    def as_text(self, stage: str = "program") -> str:
        """The text of ``"program"``, ``"exec"``, ``"schedule"``, ``"regions"``, ``"kernel"``, ``"llvm"``, ``"asm"`` or
        ``"cuda"``.

        The last three compile the kernels. Of a program of several engines the last five have a heading for each part:
        its engine, and its number in the schedule. ValueError for another name."""
        match stage:
            case "program":
                return str(self.program)
            case "exec":
                return str(self.exec_program)
            case "regions":
                return self._by_part(lambda p: "\n".join(_step_text(s) for s in p.steps))
            case "schedule":
                return str(self.schedule)
            case "kernel":
                return self._by_part(lambda p: "\n".join(kernel_text(r) for r in p.regions))
            case "llvm" | "asm" | "cuda":
                return self._native_text(stage)
            case _:
                raise ValueError(f"as_text: stage {stage!r}; one of {', '.join(SHOW_STAGES)} is needed")

    def _native_text(self, stage: str) -> str:
        self.run()  # kernels are compiled when first needed
        sign, found = "//" if stage == "cuda" else ";", []
        for part, heading in self._parts():
            unit = self.prepared.units[part]
            assert unit is not None
            by_name = unit.kernel_texts()
            texts = [f"{sign} {name}\n{text[stage]}" for name, text in by_name.items() if stage in text]
            if texts:
                texts += [f"{sign} {note}" for note in unit.notes()]
            elif by_name:
                has = ", ".join(dict.fromkeys(s for text in by_name.values() for s in text))
                engine = self.schedule.domains[self.schedule.nodes[part].engine]
                texts = [f"{sign} kernels on {engine} have no {stage}, but {has}"]
            found += ([f"{sign} {heading}"] if heading else []) + texts
        return "\n".join(found)

    def _parts(self) -> Iterator[tuple[int, str]]:
        """The number of each part in the schedule, and a heading where the program has more than one engine's work."""
        for number, node in enumerate(self.schedule.nodes):
            if isinstance(node, OperationNode):
                is_alone = self.schedule.is_flat
                yield number, "" if is_alone else f"== {self.schedule.domains[node.engine]}, part {number}"

    def _by_part(self, text: Callable[[Plan], str]) -> str:
        """The text of each part's plan, in the slots and sizes of the whole program."""
        found = []
        for number, heading in self._parts():
            node, plan = self.schedule.nodes[number], self.prepared.plans[number]
            assert isinstance(node, OperationNode) and plan is not None
            found += [text(plan)] if not heading else [heading, _in_whole(text(plan), node.part, self.exec_program)]
        return "\n".join(found)

    def memory(self) -> Memory:
        """The peak of results and temporaries, as a formula over the call's sizes and as a number of bytes.
        LoweringError for a program of several engines."""
        if self.prepared.flat is None:
            raise LoweringError(f"memory: {self.program.name} runs in {len(self.plans)} parts; one engine is needed")
        found = memory(self.plan)
        peak, total = (in_words(str(n), self.program) for n in (found.peak, found.total))
        at = _name(self.plan.steps[found.step(self.env)]) if found.live else "no step"
        return Memory(peak, found.bytes(self.env), total, at)

    def __str__(self) -> str:
        lines = [self._summary(), f"as_text(stage) shows one of {', '.join(SHOW_STAGES)}"]
        if self.prepared.flat is not None:
            lines.append("memory() says what the peak is made of")
        return "\n".join(lines)

    def __repr__(self) -> str:
        hint = "" if self.prepared.flat is None else ", memory()"
        return f"<{self._summary()}; as_text(stage){hint}>"

    def _summary(self) -> str:
        operations, regions = len(self.program.operations), len(self.regions)
        calls = sum(isinstance(s, CallStep) for p in self.plans for s in p.steps)
        if self.prepared.flat is None:
            rest = f"nodes {len(self.schedule.nodes)} on {len(self.schedule.domains)} engines"
        else:
            rest = f"peak {memory(self.plan).bytes(self.env)} bytes"
        return f"lowered {self.program.name}: operations {operations}, regions {regions}, calls {calls}, {rest}"


_LOCAL = re.compile(r"'[^']*'|\b([sn])(\d+)\b")


def _in_whole(text: str, part: Part, program: ExecProgram) -> str:
    """Slots and sizes of a part by their names in the whole program, which the stages before have too."""
    made = sorted(s.index for n in part.numbers for s in program.instructions[n].outputs)
    slots = [*part.reads, *[-1] * len(part.sizes), *made]
    first = len(part.reads)

    def name(match: re.Match[str]) -> str:
        kind, digits = match.groups()
        if kind is None:
            return match.group()
        return f"s{slots[int(digits)]}" if kind == "s" else str(part.sizes[int(digits) - first])

    return _LOCAL.sub(name, text)


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
