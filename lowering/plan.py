"""The plan: how an ExecProgram runs, as steps over its slots. What an engine compiles.

In: an ExecProgram (``tenferro.lowering.fusion.plan``). Out: steps in order. A *segment* is a run of steps between seams
that one native function can serve; a ``CallStep`` is a seam unless it is a matrix product.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from tenferro.lowering.exec_program import ExecProgram, Instruction, Slot
from tenferro.lowering.region import Region
from tenferro.tracer.op import Contraction


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


@dataclass(frozen=True)
class Plan:
    """``frees[i]``: the slots whose memory is dead after step i (views keep their base alive)."""

    program: ExecProgram
    steps: tuple[Step, ...]
    frees: tuple[tuple[int, ...], ...]

    @property
    def regions(self) -> tuple[Region, ...]:
        return tuple(s.region for s in self.steps if isinstance(s, RegionStep))

    def segments(self) -> tuple[tuple[Step, ...], ...]:
        """Runs of steps between seams; a seam stands alone."""
        found: list[list[Step]] = [[]]
        for step in self.steps:
            if isinstance(step, CallStep) and step.is_seam:
                found += [[step], []]
            else:
                found[-1].append(step)
        return tuple(tuple(s) for s in found if s)
