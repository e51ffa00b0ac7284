"""A prepared program in, its stages as objects and texts out: what ``f.lower(*args)`` returns."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from tenferro.body_text import HEADING, exec_text, kernels_text, program_text, regions_text, segments_text
from tenferro.donations import Donated
from tenferro.engine_memory import memory_by_engine
from tenferro.engines.engine import Executable
from tenferro.lowering.exec_program import ExecProgram
from tenferro.lowering.memory import memory
from tenferro.lowering.partition import Part
from tenferro.lowering.plan import CallStep, Plan, Stretch
from tenferro.lowering.region import Region
from tenferro.memory import Memory, memory_of
from tenferro.runtime import OperationNode, Prepared, Schedule
from tenferro.segments import NOTHING_RUNS, Watched, idle_text
from tenferro.tracer.config import SHOW_STAGES
from tenferro.tracer.dims import Leaf
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.program import SemanticProgram
from tenferro.tracer.records import dataclass


@dataclass(frozen=True, repr=False)
class Lowered:
    """The stages of one program for the sizes of one call. ``run`` carries the program out on the call's inputs, by the
    executables of what it is given; it uses up no argument. ``donate``: the plan that does, and what becomes of
    each."""

    prepared: Prepared
    env: Mapping[Leaf, int]
    run: Callable[[Prepared], object]
    donate: Callable[[], tuple[Plan | None, tuple[Donated, ...]]] | None = None

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
    def _unit(self) -> Executable:
        """What runs the plan."""
        (unit,) = [u for u in self.prepared.units if u is not None]
        return unit

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
        """The text of ``"program"``, ``"exec"``, ``"schedule"``, ``"regions"``, ``"segments"``, ``"kernel"``,
        ``"llvm"``, ``"asm"`` or ``"cuda"``.

        The bodies of loops and choices stand below what runs them, each once, in slots and sizes of their own.
        ``"segments"`` and the last three run the program once. Of a program of several engines the last six have a
        heading for each part: its engine, and its number in the schedule. ValueError for another name."""
        match stage:
            case "program":
                return program_text(self.program)
            case "exec":
                return exec_text(self.exec_program)
            case "regions":
                return self._by_part(lambda _, p: regions_text(p) or NOTHING_RUNS)
            case "segments":
                return self._by_part(lambda number, p: segments_text(p, self.stretches[number]) or NOTHING_RUNS)
            case "schedule":
                return str(self.schedule)
            case "kernel":
                return self._by_part(lambda _, p: kernels_text(p) or idle_text(p, p.segments(), "region"))
            case "llvm" | "asm" | "cuda":
                return self._native_text(stage)
            case _:
                raise ValueError(f"as_text: stage {stage!r}; one of {', '.join(SHOW_STAGES)} is needed")

    def _native_text(self, stage: str) -> str:
        self.run(self.prepared)  # kernels are compiled when first needed
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
            else:
                plan = self.prepared.plans[part]
                assert plan is not None
                texts = [f"{sign} {idle_text(plan, self.stretches[part], 'kernel')}"]
            found += ([f"{sign} {heading}"] if heading else []) + texts
        return "\n".join(found)

    def _parts(self) -> Iterator[tuple[int, str]]:
        """The number of each part in the schedule, and a heading where the program has more than one engine's work."""
        for number, node in enumerate(self.schedule.nodes):
            if isinstance(node, OperationNode):
                is_alone = self.schedule.is_flat
                yield number, "" if is_alone else f"== {self.schedule.domains[node.engine]}, part {number}"

    def _by_part(self, text: Callable[[int, Plan], str]) -> str:
        """The text of each part's plan, which is given with its number, in the slots and sizes of the whole program."""
        found = []
        for number, heading in self._parts():
            node, plan = self.schedule.nodes[number], self.prepared.plans[number]
            assert isinstance(node, OperationNode) and plan is not None
            written = text(number, plan)
            found += [written] if not heading else [heading, _in_whole(written, node.part, self.exec_program)]
        return "\n".join(found)

    @cached_property
    def stretches(self) -> Mapping[int, Sequence[Stretch]]:
        """For each part, by its number in the schedule, the segments and seams of a run for this call's layouts. The
        program is run once to see them."""
        units = tuple([None if u is None else Watched(u) for u in self.prepared.units])
        self.run(replace(self.prepared, units=units))
        found: dict[int, Sequence[Stretch]] = {}
        for number, (unit, plan) in enumerate(zip(units, self.prepared.plans, strict=True)):
            if unit is not None and plan is not None:
                told = unit.told()
                found[number] = plan.segments() if told is None else told
        return found

    def memory(self) -> Memory:
        """The peak of results and temporaries, as a formula over the call's sizes and as a number of bytes, and the
        buffers that it is made of; for a program of several engines also for each (``.engines``). Results in the memory
        of donated arguments take none."""
        if self.prepared.flat is None:
            return memory_by_engine(self.prepared, self.env)
        plan = None if self.donate is None else self.donate()[0]
        return memory_of(plan or self.plan, self.env, self.program, self._unit.is_one_kernel)

    def donations(self) -> tuple[Donated, ...]:
        """For each donated argument whether its memory is used, as what, and why not; for a call on these very
        arguments."""
        return () if self.donate is None else self.donate()[1]

    def __str__(self) -> str:
        stages = f"as_text(stage) shows one of {', '.join(SHOW_STAGES)}"
        return "\n".join([self._summary(), stages, "memory() says what the peak is made of"])

    def __repr__(self) -> str:
        return f"<{self._summary()}; as_text(stage), memory()>"

    def _summary(self) -> str:
        operations, regions = len(self.program.operations), len(self.regions)
        calls = sum(isinstance(s, CallStep) for p in self.plans for s in p.steps)
        if self.prepared.flat is None:
            rest = f"nodes {len(self.schedule.nodes)} on {len(self.schedule.domains)} engines"
        else:
            rest = f"peak {memory(self.plan, self._unit.is_one_kernel).bytes(self.env)} bytes"
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

    lines, inside = [], len(text)  # lines indented so far are of a body, which has names of its own
    for line in text.splitlines():
        indent = len(line) - len(line.lstrip())
        is_heading = line.lstrip().startswith(HEADING)
        if indent < inside:
            inside = indent + 1 if is_heading else len(text)
        lines.append(line if is_heading or indent >= inside else _LOCAL.sub(name, line))
    return "\n".join(lines)
