"""Bodies of loops and choices as plans: a Body goes in, the Plan that engines make of it comes out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

from tenferro.lowering import lower
from tenferro.lowering.plan import CallStep, Plan, Seam, Step, Stretch
from tenferro.tracer.bodies import Body
from tenferro.tracer.config import config
from tenferro.tracer.op import bodies_in

KEPT_BODIES = 256
"""Bodies whose plans are kept, since each is asked about several times; the oldest one goes."""


@lru_cache(maxsize=KEPT_BODIES)
def lowered(body: Body) -> Plan:
    """The plan of a body."""
    return lower(body.program, config())


def bodies_of(step: Step) -> list[Body]:
    """Those that a step runs, none for most."""
    return bodies_in(step.instruction.params) if isinstance(step, CallStep) else []


def with_bodies(plan: Plan, stretches: Sequence[Stretch]) -> Iterator[tuple[Plan, Stretch]]:
    """Each segment and seam with the plan that it is of. Those of the bodies that it runs follow it, once however often
    they run, as far as their plans alone tell."""
    for stretch in stretches:
        yield plan, stretch
        numbers = (stretch.step,) if isinstance(stretch, Seam) else stretch.kernels
        for body in [body for n in numbers if n >= 0 for body in bodies_of(plan.steps[n])]:
            inner = lowered(body)
            yield from with_bodies(inner, inner.segments())
