"""Open barriers: what stood on both sides of one is no longer kept apart.

A barrier passes its operands on. Until here nothing behind it was equal to anything before it, so that what a
checkpointed function computes again was not merged with what it had computed before. It comes after the last pass
that merges.
"""

from __future__ import annotations

from tenferro.lowering.passes.rewrite import Rewriter
from tenferro.tracer.program import SemanticProgram
from tenferro.tracer.transform.marks import barrier


def open_barriers(program: SemanticProgram) -> SemanticProgram:
    if not any(o.op is barrier for o in program.operations):
        return program
    rewriter = Rewriter(program)
    for operation in program.operations:
        if operation.op is barrier:
            rewriter.replace(operation, *rewriter.operands(operation))
        else:
            rewriter.copy(operation)
    return rewriter.finish()
