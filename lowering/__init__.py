"""Lowering: a SemanticProgram goes in, a Plan of regions, calls and views comes out.

``lower`` is the pipeline: passes, staging, fusion. Each of them can be called alone.
"""

from __future__ import annotations

from typing import Protocol

from tenferro.lowering.checker import Derived, check
from tenferro.lowering.exec_program import ExecProgram
from tenferro.lowering.fusion import plan
from tenferro.lowering.passes import PASSES
from tenferro.lowering.plan import Plan
from tenferro.lowering.stage import stage
from tenferro.tracer.program import SemanticProgram


class LoweringConfig(Protocol):
    """What lowering reads of the configuration."""

    @property
    def check(self) -> bool:
        """Whether the checker runs after each pass."""


def simplify(program: SemanticProgram, config: LoweringConfig | None = None) -> SemanticProgram:
    """Run all passes. With ``config.check`` the program is checked, and again after each pass that makes another one
    of it: a pass that breaks it is named in a CheckError."""
    derived: Derived = {}
    is_checked = config is not None and config.check
    if is_checked:
        check(program, derived=derived)
    for name, run in PASSES:
        program, before = run(program), program
        if is_checked and program is not before:
            check(program, name, derived)
    return program


def staged(program: SemanticProgram, config: LoweringConfig | None = None) -> ExecProgram:
    """From a traced program to the instructions that are placed on engines."""
    return stage(simplify(program, config))


def lower(program: SemanticProgram, config: LoweringConfig | None = None) -> Plan:
    """From a traced program to the plan that one engine compiles."""
    return plan(staged(program, config))


__all__ = ["PASSES", "LoweringConfig", "lower", "simplify", "staged"]
