"""How a run went: an executable is watched, its segments and seams come out, and a text with a line for each step."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tenferro.engines.engine import Executable, RunResult
from tenferro.lowering.plan import AdoptStep, CallStep, Plan, RegionStep, Seam, Step, Stretch, ViewStep, lines_of
from tenferro.tracer.dims import Leaf
from tenferro.tracer.lines import SourceLine

NOTHING_RUNS = "nothing runs: the results are arguments, sizes or constants"


class Watched(Executable):
    """Stands for another executable, and remembers what it was run on last."""

    def __init__(self, unit: Executable) -> None:
        self._unit = unit
        self._ran: tuple[Sequence[Any], Mapping[Leaf, int]] | None = None

    def run(self, inputs: Sequence[Any]) -> RunResult:
        result = self._unit.run(inputs)
        self._ran = inputs, result.runtime
        return result

    def told(self) -> Sequence[Stretch] | None:
        """The segments and seams of the last run; None where there was none, or where its plan tells."""
        ran, self._ran = self._ran, None
        return None if ran is None else self._unit.segments(*ran)

    def kernel_texts(self) -> dict[str, dict[str, str]]:
        return self._unit.kernel_texts()

    @property
    def kernels(self) -> int:
        return self._unit.kernels

    @property
    def kernel_bytes(self) -> int:
        return self._unit.kernel_bytes


def segment_lines(plan: Plan, stretches: Sequence[Stretch], below: Callable[[Step], Sequence[str]]) -> list[str]:
    """Segments and seams in order, each segment with its steps; ``below``: what follows a step."""
    found, segments = [], 0
    for stretch in stretches:
        if isinstance(stretch, Seam):
            found += [f"seam {stretch}", *below(plan.steps[stretch.step])]
            continue
        count = len(stretch.kernels)
        if count:
            found.append(f"segment {segments}: {count} kernel{'s' if count > 1 else ''}")
            segments += 1
        else:
            found.append("no kernel")
        for number in stretch.steps:
            step = plan.steps[number]
            found.append(f"  {number:>3} {step_text(step).splitlines()[0]}{at_lines(lines_of(step))}")
            found += below(step)
    return found


def idle_text(plan: Plan, stretches: Sequence[Stretch], missing: str) -> str:
    """Why a plan without a region, or a run without a kernel (``missing``), has none: what each step is instead."""
    found = []
    for stretch in stretches:
        if isinstance(stretch, Seam):
            found.append(f"{stretch.function} is a seam ({stretch.reason})")
            continue
        for number in stretch.steps:
            match plan.steps[number]:
                case ViewStep(instruction):
                    found.append(f"{instruction.op.name} is a view")
                case CallStep(instruction):
                    found.append(f"{instruction.op.name} is a product")
                case AdoptStep(base, target):
                    found.append(f"{target} takes the memory of {base}")
                case RegionStep(region):
                    found.append(f"{region.name} has no elements")
    return f"no {missing}: {', '.join(dict.fromkeys(found))}" if found else NOTHING_RUNS


def step_text(step: Step) -> str:
    match step:
        case RegionStep(region):
            return str(region)
        case AdoptStep(base, target, steal, _):
            return f"{target} starts as {'the memory' if steal else 'a copy'} of {base}"
        case ViewStep(instruction):
            return f"view   {instruction}"
        case CallStep(instruction):
            return f"call   {instruction}"


def at_lines(lines: Iterable[SourceLine]) -> str:
    """`` (at file:line, line …)``, a file's name once; empty where no line is known."""
    by_file: dict[str, dict[int, None]] = {}
    for line in lines:
        by_file.setdefault(line.file, {})[line.line] = None
    places = [f"{file}:{', '.join(map(str, numbers))}" for file, numbers in by_file.items()]
    return f" (at {'; '.join(places)})" if places else ""
