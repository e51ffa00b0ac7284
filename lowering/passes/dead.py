"""Drop dead operations: those that no output depends on and that have no effects.

A size known only when the program runs is read too: what measures it lives as long as anything needs the size.
"""

from __future__ import annotations

from tenferro.lowering.passes.rewrite import Rewriter
from tenferro.lowering.sizes_read import SizesRead
from tenferro.tracer.program import SemanticProgram, Value


def drop_dead(program: SemanticProgram) -> SemanticProgram:
    needed = {o.id for o in program.outputs if isinstance(o, Value)}
    alive = [False] * len(program.operations)
    sizes = SizesRead((o.op, o.params, [v.type for v in o.outputs]) for o in program.operations)
    sizes.read(program.outputs)
    for number in range(len(program.operations) - 1, -1, -1):
        operation = program.operations[number]
        types = [v.type for v in operation.outputs]
        is_read = operation.op.is_ordered(operation.params) or any(v.id in needed for v in operation.outputs)
        if is_read or sizes.needs(number):
            alive[number] = True
            needed.update([x.id for x in operation.inputs if isinstance(x, Value)])
            sizes.keep(operation.op, operation.inputs, operation.params, types)
    if all(alive):
        return program
    rewriter = Rewriter(program)
    for operation, kept in zip(program.operations, alive, strict=True):
        if kept:
            rewriter.copy(operation)
        else:
            rewriter.skip()
    return rewriter.finish()
