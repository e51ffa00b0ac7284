"""Drop dead operations: those that no output depends on and that have no effects."""

from __future__ import annotations

from tenferro.lowering.passes.rewrite import Rewriter
from tenferro.tracer.program import SemanticProgram, Value


def drop_dead(program: SemanticProgram) -> SemanticProgram:
    needed = {o.id for o in program.outputs if isinstance(o, Value)}
    alive = [False] * len(program.operations)
    for number in range(len(program.operations) - 1, -1, -1):
        operation = program.operations[number]
        if operation.op.is_ordered or any(v.id in needed for v in operation.outputs):
            alive[number] = True
            needed.update([x.id for x in operation.inputs if isinstance(x, Value)])
    if all(alive):
        return program
    rewriter = Rewriter(program)
    for operation, kept in zip(program.operations, alive, strict=True):
        if kept:
            rewriter.copy(operation)
        else:
            rewriter.skip()
    return rewriter.finish()
