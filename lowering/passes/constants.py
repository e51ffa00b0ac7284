"""Fold constants: operations on literals alone become literals.

Only what the trace itself wrote is folded, never captured values, and only ops whose reference is exact by IEEE 754 or
integer arithmetic, so that folding never changes a bit. Complex products and quotients have no such rule.
"""

from __future__ import annotations

import numpy as np

from tenferro.lowering.passes.rewrite import Rewriter
from tenferro.tracer.ops import pointwise
from tenferro.tracer.program import Literal, Operand, Operation, SemanticProgram

FOLDED = frozenset(
    {
        pointwise.add, pointwise.subtract, pointwise.negative, pointwise.equal, pointwise.not_equal, pointwise.less,
        pointwise.less_equal, pointwise.where, pointwise.astype, pointwise.bitwise_and, pointwise.bitwise_or,
        pointwise.bitwise_xor, pointwise.invert, pointwise.conjugate, pointwise.real, pointwise.imag,
    }
)  # fmt: skip
FOLDED_UNLESS_COMPLEX = frozenset({pointwise.multiply, pointwise.divide, pointwise.absolute, pointwise.sqrt})


def fold_constants(program: SemanticProgram) -> SemanticProgram:
    rewriter = Rewriter(program)
    for operation in program.operations:
        inputs = rewriter.operands(operation)
        literals = [x for x in inputs if isinstance(x, Literal)]
        if inputs and len(literals) == len(inputs) and _is_folded(operation, inputs):
            rewriter.replace(operation, _evaluate(operation, literals))
        else:
            rewriter.copy(operation)
    return rewriter.finish()


def _is_folded(operation: Operation, inputs: tuple[Operand, ...]) -> bool:
    if operation.op in FOLDED_UNLESS_COMPLEX:
        return inputs[0].type.dtype.kind != "c"
    return operation.op in FOLDED


def _evaluate(operation: Operation, literals: list[Literal]) -> Literal:
    arrays = [np.asarray(x.value, x.dtype) for x in literals]
    dtype = operation.outputs[0].type.dtype
    with np.errstate(all="ignore"):
        result = np.asarray(operation.op.reference(*arrays, **operation.params)).astype(dtype, copy=False)
    return Literal(result.item(), dtype)
