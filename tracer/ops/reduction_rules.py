"""Derivatives and batches of reductions and of the matrix product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenferro.tracer.dims import Extent, mul, product
from tenferro.tracer.op import Tangents
from tenferro.tracer.ops.call_rules import products_of_others
from tenferro.tracer.ops.layout_rules import axes_after, lanes, one
from tenferro.tracer.program import ArrayType, Operand, Operation

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation

Linear = Sequence[bool]


def transpose_sum(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """The cotangent at every place that was added."""
    return (unreduced(b, one(cotangents), operation.inputs[0].type, operation),)


def unreduced(b: Derivation, y: Operand, type_: ArrayType, operation: Operation) -> Operand:
    """A result of a reduction at every place that went into it."""
    kept = tuple(k for k in range(type_.rank) if k not in operation.params["axes"])
    if operation.params["keepdims"]:
        y = b.reshaped(y, tuple(type_.shape[k] for k in kept))
    if len(kept) == type_.rank:
        return y
    return b.broadcast_to(y, shape=type_.shape, axes=kept)


def batch_reduction(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """Over the same axes of each lane."""
    params = {**operation.params, "axes": axes_after(operation.params["axes"], size)}
    return b.emit(operation.op, operation.inputs, **params)


def jvp_prod(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """Each factor's tangent times the product of the others."""
    (x,), (t,), dtype = operation.inputs, tangents, operation.outputs[0].type.dtype
    assert t is not None
    x, t = b.convert(x, b.wide(dtype)), b.convert(t, b.wide(dtype))
    others = products_of_others(b, x, operation.params["axes"])
    return (b.convert(b.sum(b.scaled(t, others), **operation.params), dtype),)


def jvp_extreme(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """The mean of the tangents where the extreme is reached."""
    (x,), (y,), (t,) = operation.inputs, operation.outputs, tangents
    assert t is not None
    reduce = dict(operation.params)
    wide = b.wide(x.type.dtype)
    reached = b.convert(b.equal(x, unreduced(b, y, x.type, operation)), wide)
    mean = b.divide(b.like(1, reached), b.sum(reached, **reduce))
    share = b.multiply(reached, unreduced(b, mean, reached.type, operation))
    return (b.sum(b.scaled(t, b.convert(share, x.type.dtype)), **reduce),)


def jvp_deviations(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """2 Σ (x − mean) t, since the deviations themselves add up to 0."""
    (x,), (t,), dtype = operation.inputs, tangents, operation.outputs[0].type.dtype
    assert t is not None
    reduce = dict(operation.params)
    x, t = b.convert(x, b.wide(x.type.dtype)), b.convert(t, b.wide(x.type.dtype))
    count = product(x.type.shape[k] for k in operation.params["axes"])
    mean = b.divide(b.sum(x, **reduce), b.size(count, x.type.dtype))
    centred = b.subtract(x, unreduced(b, mean, x.type, operation))
    if x.type.dtype.kind == "c":
        centred = b.conjugate(centred)
    total = b.sum(b.scaled(t, b.multiply(b.like(2, x), centred)), **reduce)
    return (b.convert(b.real(total) if x.type.dtype.kind == "c" else total, dtype),)


def jvp_matmul(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """Leibniz."""
    (x, y), (s, t) = operation.inputs, tangents
    left = None if s is None else b.matmul(s, y)
    right = None if t is None else b.matmul(x, t)
    return (b.plus(left, right),)


def transpose_matmul(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """The product with the other factor's transpose."""
    (x, y), cotangent = operation.inputs, one(cotangents)
    if is_linear[0]:
        return (b.matmul(cotangent, b.swapped(y)), None)
    return (None, b.matmul(b.swapped(x), cotangent))


def batch_matmul(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """A batch of products; rows of one matrix where the right factor is the same in every lane."""
    x, y = operation.inputs
    if batched == (True, False) and len(y.type.shape) == 2:
        rows, inner = x.type.shape[1:]
        found = b.matmul(b.reshaped(x, (mul(size, rows), inner)), y)
        return (b.reshaped(found, (size, rows, y.type.shape[1])),)
    return (b.matmul(*lanes(b, (x, y), batched, size)),)
