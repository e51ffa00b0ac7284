"""Simplify algebra: identities that hold for every bit of every operand, NaN, infinities, −0.0 and subnormals included.

``x + 0.0`` is not one of them (it turns −0.0 into 0.0), nor is ``x * 1`` for complex numbers; ``x + (−0.0)``,
``x - 0.0`` and ``x * 1.0`` are. Division by a power of two is multiplication by its inverse where that exists.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.lowering.passes.rewrite import Rewriter, pinned
from tenferro.tracer.build import literal
from tenferro.tracer.op import Op, Reduction
from tenferro.tracer.ops import layout, pointwise, reductions
from tenferro.tracer.program import Literal, Operand, Operation, SemanticProgram, Value

Rule = Callable[[Rewriter, Operation, tuple[Operand, ...]], Operand | None]


def simplify_algebra(program: SemanticProgram) -> SemanticProgram:
    rewriter = Rewriter(program)
    kept = pinned(program)
    for operation in program.operations:
        rule = RULES.get(operation.op)
        found: Operand | None = None
        if rule is not None and not (operation.op is layout.slice_ and operation.outputs[0].id in kept):
            found = rule(rewriter, operation, rewriter.operands(operation))
        if found is None:
            rewriter.copy(operation)
        else:
            rewriter.replace(operation, found)
    return rewriter.finish()


def _fits(x: Operand, operation: Operation) -> bool:
    """Whether ``x`` can stand for the result: the other operand may have given the result its shape or dtype."""
    mine, wanted = x.type, operation.outputs[0].type
    return mine.shape == wanted.shape and mine.dtype == wanted.dtype


def _is(x: Operand, value: float) -> bool:
    """A literal with exactly these bits; 0.0 is not −0.0."""
    if not isinstance(x, Literal):
        return False
    return x.bits() == np.asarray(value, x.dtype).tobytes() if _representable(value, x.dtype) else False


def _representable(value: float, dtype: np.dtype[Any]) -> bool:
    return dtype.kind in "fc" or (value >= 0 and not (dtype.kind == "b" and value > 1))


def _copy(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
    return inputs[0]


def _add(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
    x, y = inputs
    zero = -0.0 if x.type.dtype.kind == "f" else 0
    if x.type.dtype.kind == "c":
        return None
    if _is(y, zero) and _fits(x, operation):
        return x
    return y if _is(x, zero) and _fits(y, operation) else None


def _subtract(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
    x, y = inputs
    return x if x.type.dtype.kind in "iuf" and _is(y, 0.0) and _fits(x, operation) else None


def _multiply(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
    x, y = inputs
    if x.type.dtype.kind == "c":
        return None
    if _is(y, 1) and _fits(x, operation):
        return x
    return y if _is(x, 1) and _fits(y, operation) else None


def _divide(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
    x, y = inputs
    if x.type.dtype.kind != "f" or not isinstance(y, Literal):
        return None
    if _is(y, 1) and _fits(x, operation):
        return x
    inverse = _power_of_two_inverse(y)
    return None if inverse is None else rewriter.emit(pointwise.multiply, (x, inverse), operation.line)


def _power_of_two_inverse(y: Literal) -> Literal | None:
    """1/y if both are finite powers of two in the dtype: x / y and x * (1/y) then round the same real number."""
    value = float(np.asarray(y.value, y.dtype))
    if not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return None
    with np.errstate(all="ignore"):
        inverse = np.asarray(1.0 / value, y.dtype)
    return Literal(inverse.item(), y.dtype) if np.isfinite(inverse) and float(inverse) == 1.0 / value else None


def _undone_by_itself(op: Op) -> Rule:
    def rule(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
        inner = rewriter.made_by(inputs[0])
        return inner.inputs[0] if inner is not None and inner.op is op else None

    return rule


def _absolute(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
    (x,) = inputs
    if x.type.dtype.kind in "bu":
        return x
    inner = rewriter.made_by(x)
    if inner is None or x.type.dtype.kind != "f":
        return None
    if inner.op is pointwise.absolute:
        return x
    if inner.op is pointwise.negative:
        return rewriter.emit(pointwise.absolute, inner.inputs, operation.line)
    return None


def _astype(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
    (x,), target = inputs, operation.params["dtype"]
    if x.type.dtype == target:
        return x
    inner = rewriter.made_by(x)
    if inner is None or inner.op is not pointwise.astype:
        return None
    (source,) = inner.inputs
    if not _is_lossless(source.type.dtype, x.type.dtype):
        return None
    return (
        source
        if source.type.dtype == target
        else rewriter.emit(pointwise.astype, (source,), operation.line, dtype=target)
    )


def _is_lossless(source: np.dtype[Any], target: np.dtype[Any]) -> bool:
    """Every value survives, so that a further conversion gives what it would have given at once."""
    return source.kind == "b" or (source.kind == target.kind and target.itemsize >= source.itemsize)


def _guarded(plain: Op) -> Rule:
    """A product or quotient of a tangent that is a number: 0 makes zeros, others need no guard."""

    def rule(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
        tangent, factor = inputs
        if not isinstance(tangent, Literal):
            return None
        if tangent.value == 0:
            zero, shape = literal(0, tangent.dtype), operation.outputs[0].type.shape
            return rewriter.emit(layout.broadcast_to, (zero,), operation.line, shape=shape, axes=()) if shape else zero
        if plain is pointwise.multiply and _is(tangent, 1) and tangent.dtype.kind == "f" and _fits(factor, operation):
            return factor
        return rewriter.emit(plain, inputs, operation.line)

    return rule


def _pair(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
    """The product of two tangents of which one is a number."""
    x, y = inputs
    if isinstance(y, Literal):
        x, y = y, x
    if not isinstance(x, Literal) or isinstance(y, Literal):
        return None
    guarded = _guarded(pointwise.multiply)(rewriter, operation, (x, y)) if x.value == 0 else None
    return guarded or rewriter.emit(pointwise.tangent_product, (y, x), operation.line)


def _same_operands(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
    x, y = inputs
    return x if isinstance(x, Value) and isinstance(y, Value) and x.id == y.id else None


def _where(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
    condition, x, y = inputs
    if isinstance(condition, Literal):
        chosen = x if condition.value else y
        return chosen if _fits(chosen, operation) else None
    if isinstance(x, Value) and isinstance(y, Value) and x.id == y.id and _fits(x, operation):
        return x
    inner = rewriter.made_by(condition)
    if inner is not None and inner.op is pointwise.invert:
        return rewriter.emit(pointwise.where, (inner.inputs[0], y, x), operation.line)
    return None


def _real_only(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
    (x,) = inputs
    return x if x.type.dtype.kind != "c" else None


def _reduction(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
    """Over no axes; a sum starts from 0.0, which a −0.0 does not survive, a complex product from 1 + 0i."""
    form, (x,) = operation.op.form, inputs
    assert isinstance(form, Reduction)
    if operation.params["axes"] or form.kind not in ("sum", "product", "max", "min"):
        return None
    if form.kind == "product" and x.type.dtype.kind == "c":
        return rewriter.emit(pointwise.multiply, (literal(1, x.type.dtype), x), operation.line)
    if form.kind == "sum" and x.type.dtype.kind in "fc":
        return rewriter.emit(pointwise.add, (x, literal(0, x.type.dtype)), operation.line)
    return x


def _update(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
    """Of the whole array, of nothing, or of the box that the update before it wrote."""
    base, value = inputs
    params = operation.params
    if 0 in params["sizes"]:
        return base
    whole = params["sizes"] == base.type.shape and not any(params["starts"]) and all(s == 1 for s in params["steps"])
    if not whole:
        before = rewriter.made_by(base)
        if before is None or before.op is not layout.slice_update or before.params != params:
            return None
        return rewriter.emit(layout.slice_update, (before.inputs[0], value), operation.line, **params)
    if value.type.rank == base.type.rank:
        return value
    return rewriter.emit(layout.broadcast_to, (value,), operation.line, shape=base.type.shape, axes=())


def _slice(rewriter: Rewriter, operation: Operation, inputs: tuple[Operand, ...]) -> Operand | None:
    """Of the very box that an update has just written."""
    inner = rewriter.made_by(inputs[0])
    if inner is None or inner.op is not layout.slice_update or inner.params != operation.params:
        return None
    value = inner.inputs[1]
    return value if _fits(value, operation) else None


RULES: dict[Op, Rule] = {
    pointwise.copy: _copy,
    pointwise.add: _add,
    pointwise.subtract: _subtract,
    pointwise.multiply: _multiply,
    pointwise.divide: _divide,
    pointwise.tangent_product: _guarded(pointwise.multiply),
    pointwise.tangent_quotient: _guarded(pointwise.divide),
    pointwise.tangent_pair: _pair,
    pointwise.negative: _undone_by_itself(pointwise.negative),
    pointwise.invert: _undone_by_itself(pointwise.invert),
    pointwise.absolute: _absolute,
    pointwise.astype: _astype,
    pointwise.maximum: _same_operands,
    pointwise.minimum: _same_operands,
    pointwise.bitwise_and: _same_operands,
    pointwise.bitwise_or: _same_operands,
    pointwise.where: _where,
    pointwise.real: _real_only,
    reductions.sum_: _reduction,
    reductions.prod_: _reduction,
    reductions.max_: _reduction,
    reductions.min_: _reduction,
    layout.slice_update: _update,
    layout.slice_: _slice,
}
