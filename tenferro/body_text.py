"""A program or a plan in, its text out in which bodies of loops and choices stand below what runs them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tenferro.kernel_text import kernel_text
from tenferro.lowering.bodies import bodies_of, lowered
from tenferro.lowering.exec_program import ExecProgram
from tenferro.lowering.plan import Plan, Step, Stretch
from tenferro.segments import segment_lines, step_text
from tenferro.tracer.bodies import Body
from tenferro.tracer.op import bodies_in
from tenferro.tracer.program import Params, SemanticProgram

HEADING = "body "
"""What the line before a body begins with; the body's own lines are indented below it."""


def program_text(program: SemanticProgram) -> str:
    """The program as it was traced."""
    return program.text(_Bodies(lambda body: body.program).below)


def exec_text(program: ExecProgram) -> str:
    """The instructions; those of bodies are what the passes leave of them."""
    return program.text(_Bodies(lambda body: lowered(body).program).below)


def regions_text(plan: Plan) -> str:
    """Each step of a plan, empty for none."""
    below = _PlansOfBodies(lambda p, below: [line for s in p.steps for line in [*step_text(s).splitlines(), *below(s)]])
    return "\n".join(below.text(plan))


def segments_text(plan: Plan, stretches: Sequence[Stretch]) -> str:
    """Segments and seams in order, empty for none; of bodies those that their plans alone tell."""
    below = _PlansOfBodies(lambda p, below: segment_lines(p, p.segments(), below))
    return "\n".join(segment_lines(plan, stretches, below.below))


def kernels_text(plan: Plan) -> str:
    """The kernels of a plan, empty for none."""
    below = _PlansOfBodies(_kernel_lines)
    return "\n".join(below.text(plan))


def _kernel_lines(plan: Plan, below: Callable[[Step], list[str]]) -> list[str]:
    kernels = [line for region in plan.regions for line in kernel_text(region).splitlines()]
    return [*kernels, *(line for step in plan.steps for line in below(step))]


class _Bodies:
    """Each body once, nested ones in the body that runs them."""

    def __init__(self, form: Callable[[Body], SemanticProgram | ExecProgram]) -> None:
        self._form = form
        self._shown: set[Body] = set()

    def below(self, params: Params) -> list[str]:
        """The lines below an operation with these parameters."""
        found = []
        for body in _new(bodies_in(params), self._shown):
            _, *lines = self._form(body).text(self.below).splitlines()
            found += [f"{HEADING}{body!r}", *lines]
        return found


class _PlansOfBodies:
    """The same of plans: ``lines`` gives those of a plan, and asks for those below each of its steps."""

    def __init__(self, lines: Callable[[Plan, Callable[[Step], list[str]]], list[str]]) -> None:
        self._lines = lines
        self._shown: set[Body] = set()

    def text(self, plan: Plan) -> list[str]:
        """The lines of the plan around all bodies."""
        return self._lines(plan, self.below)

    def below(self, step: Step) -> list[str]:
        """The lines below a step."""
        found: list[str] = []
        for body in _new(bodies_of(step), self._shown):
            lines = self._lines(lowered(body), self.below)
            if lines:
                found += [f"    {HEADING}{body!r}", *(f"      {line}" for line in lines)]
        return found


def _new(bodies: Sequence[Body], shown: set[Body]) -> Iterator[Body]:
    for body in bodies:
        if body not in shown:
            shown.add(body)
            yield body


__all__ = ["HEADING", "exec_text", "kernels_text", "program_text", "regions_text", "segments_text"]
