"""Share equal operations: two of the same op, operands and parameters become one. The first one's line stays.

Operations with a run-time extent carry its leaf among their parameters, so that two of them are never equal. That two
outputs may now be one array is settled at staging, which knows the aliases that the traced program had.
"""

from __future__ import annotations

from collections.abc import Hashable

from tenferro.lowering.passes.rewrite import Rewriter
from tenferro.tracer.ops import pointwise
from tenferro.tracer.program import Operand, Operation, SemanticProgram, Value


def share_equal(program: SemanticProgram) -> SemanticProgram:
    rewriter = Rewriter(program)
    known: dict[Hashable, Operation] = {}
    for operation in program.operations:
        mine = [_key(x) for x in rewriter.operands(operation)]
        inputs = frozenset(mine) if _commutes(operation) else tuple(mine)
        key = (id(operation.op), inputs, operation.params if len(operation.params) else None, operation.place)
        twin = None if operation.op.is_ordered(operation.params) else known.get(key)
        if twin is None:
            known[key] = operation
            rewriter.copy(operation)
            continue
        rewriter.replace(operation, *[rewriter.operand(v) for v in twin.outputs])
    return rewriter.finish()


def _commutes(operation: Operation) -> bool:
    """Whether operands may be exchanged, for every bit of the result. Complex products round their parts in turn."""
    return operation.op in COMMUTATIVE or (operation.op in OF_REALS and operation.outputs[0].type.dtype.kind != "c")


COMMUTATIVE = frozenset({pointwise.add, pointwise.equal, pointwise.not_equal})
OF_REALS = frozenset(
    {pointwise.multiply, pointwise.maximum, pointwise.minimum, pointwise.bitwise_and, pointwise.bitwise_or,
     pointwise.bitwise_xor}
)  # fmt: skip


def _key(operand: Operand) -> Hashable:
    return operand.id if isinstance(operand, Value) else operand
