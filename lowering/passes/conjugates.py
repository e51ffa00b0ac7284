"""Sink conjugates: conj moves past operations that only flip the sign of the imaginary part, until it meets another one
or an operation that does not see it. Sums and products are left alone: conj(a + b) and conj(a) + conj(b) differ in the
sign of an imaginary part that cancels to zero.
"""

from __future__ import annotations

from tenferro.lowering.passes.rewrite import Rewriter
from tenferro.tracer.ops import pointwise, reductions
from tenferro.tracer.program import Operand, Operation, SemanticProgram

BLIND = frozenset({pointwise.absolute, pointwise.real, reductions.squared_deviations})
"""Ops with the same result for x and conj(x)."""


def sink_conjugates(program: SemanticProgram) -> SemanticProgram:
    if not any(o.op is pointwise.conjugate for o in program.operations):
        return program
    rewriter = Rewriter(program)
    for operation in program.operations:
        found = _rule(rewriter, operation)
        if found is None:
            rewriter.copy(operation)
        else:
            rewriter.replace(operation, found)
    return rewriter.finish()


def _rule(rewriter: Rewriter, operation: Operation) -> Operand | None:
    if len(operation.inputs) != 1:
        return None
    (x,) = rewriter.operands(operation)
    if operation.op is pointwise.conjugate and x.type.dtype.kind != "c":
        return x
    inner = rewriter.made_by(x)
    if inner is None:
        return None
    if operation.op is pointwise.conjugate:
        if inner.op is pointwise.conjugate:
            return inner.inputs[0]
        if inner.op is pointwise.negative:
            conjugate = rewriter.emit(pointwise.conjugate, inner.inputs, operation.line)
            return rewriter.emit(pointwise.negative, (conjugate,), operation.line)
        return None
    if inner.op is not pointwise.conjugate:
        return None
    if operation.op in BLIND:
        return rewriter.emit(operation.op, inner.inputs, operation.line, **operation.params)
    if operation.op is pointwise.imag:
        return rewriter.emit(
            pointwise.negative, (rewriter.emit(pointwise.imag, inner.inputs, operation.line),), operation.line
        )
    return None
