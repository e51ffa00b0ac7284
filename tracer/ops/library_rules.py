"""Derivatives and batches of rows that run as calls: masks, counts, running sums, scattered writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenferro.tracer.dims import Extent, mul
from tenferro.tracer.errors import BatchError, DerivativeError
from tenferro.tracer.lines import at
from tenferro.tracer.op import Tangents
from tenferro.tracer.ops.layout_rules import lane_places, lanes, one
from tenferro.tracer.program import Operand, Operation

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation

Linear = Sequence[bool]


def refuse_own_sizes(name: str, operation: Operation) -> BatchError:
    """The error for a result whose size would be another one in each lane."""
    return BatchError(
        f"vmap: {name} in a mapped function, whose result would have another size in each lane; numpy.where on the whole "
        f"array keeps one size{at(operation.line)}"
    )


def transpose_mask_select(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """Back to where the mask is True; 0 elsewhere."""
    x, mask = operation.inputs
    return (b.mask_update(b.zeros(x.type), mask, one(cotangents)), None)


def batch_mask_select(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """One mask for all lanes selects whole lanes' elements."""
    x, mask = operation.inputs
    if batched[1]:
        raise refuse_own_sizes("x[mask]", operation)
    count, rank = len(mask.type.shape), len(x.type.shape)
    last = b.permuted(x, [*range(1, count + 1), 0, *range(count + 1, rank)])
    found = b.mask_select(last, mask, **operation.params)
    return (b.permuted(found, [1, 0, *range(2, len(found.type.shape))]),)


def transpose_mask_update(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """Under the mask the values count, elsewhere the base."""
    (base, mask, value), cotangent = operation.inputs, one(cotangents)
    around = None
    if is_linear[0]:
        axes = tuple(range(len(mask.type.shape)))
        spread = b.broadcast_to(mask, shape=base.type.shape, axes=axes)
        around = b.where(spread, b.like(0, cotangent), cotangent)
    if not is_linear[2]:
        return (around, None, None)
    shape = value.type.shape
    inside = b.mask_select(cotangent, mask, extent=shape[0] if shape else b.trace.runtime_extent(mask))
    return (around, None, inside if shape else b.total(inside))


def batch_mask_update(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """One mask for all lanes."""
    if batched[1]:
        raise refuse_own_sizes("y[mask] = values", operation)
    base, mask, value = operation.inputs
    base, value = lanes(b, (base, value), (batched[0], batched[2]), size)
    count, rank = len(mask.type.shape), len(base.type.shape)
    to_front = [*range(1, count + 1), 0, *range(count + 1, rank)]
    found = b.mask_update(b.permuted(base, to_front), mask, b.permuted(value, [1, 0, *range(2, len(value.type.shape))]))
    return (b.permuted(found, [count, *range(count), *range(count + 1, rank)]),)


def jvp_bincount(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """Linear in the weights."""
    x, *_ = operation.inputs
    t = tangents[1]
    assert t is not None
    return (b.bincount(x, t, **operation.params),)


def transpose_bincount(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """Each weight's cotangent is that of the bin that it was added to."""
    x, weights = operation.inputs
    found = b.take(one(cotangents), b.convert(x, b.int64), axis=0)
    return (None, b.convert(found, weights.type.dtype))


def transpose_cumsum(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """The running sum from the other end."""
    axis = operation.params["axis"]
    backwards = b.flipped(one(cotangents), [axis])
    return (b.flipped(b.cumsum(backwards, axis=axis), [axis]),)


def jvp_scatter(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """Linear in base and values where they are set, added or subtracted."""
    base, indices, value = operation.inputs
    mode = operation.params["mode"]
    if mode not in ("set", "add", "subtract"):
        raise DerivativeError(
            f"scatter: its derivative with mode '{mode}'; 'set' and 'add' have one{at(operation.line)}"
        )
    s, _, t = tangents
    s, t = (b.zeros(x.type) if d is None else d for x, d in ((base, s), (value, t)))
    return (b.scatter(s, indices, t, **operation.params),)


def transpose_scatter(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """What was overwritten counts for nothing; of several values for one place the last one counts."""
    (base, indices, value), cotangent, params = operation.inputs, one(cotangents), dict(operation.params)
    mode, axis = params.pop("mode"), params["axis"]
    around = cotangent if is_linear[0] else None
    if mode == "set" and around is not None:
        around = b.scatter(cotangent, indices, b.zeros(value.type), mode="set", **params)
    if not is_linear[2]:
        return (around, None, None)
    inside = b.take(cotangent, indices, **params)
    if mode == "subtract":
        return (around, None, b.negative(inside))
    if mode == "set":
        places = b.order_of(value.type.shape)
        last = b.scatter(b.broadcast(b.number(-1, b.int64), base.type.shape), indices, places, mode="set", **params)
        inside = b.where(b.equal(b.take(last, indices, axis=axis), places), inside, b.like(0, inside))
    return (around, None, inside)


def batch_scatter(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """The same places in each lane, or each lane's own: then all lanes are one array."""
    base, indices, value = operation.inputs
    params = dict(operation.params)
    axis = params["axis"]
    base, value = lanes(b, (base, value), (batched[0], batched[2]), size)
    if not batched[1]:
        return (b.scatter(base, indices, value, **{**params, "axis": axis + 1}),)
    many, rank = len(indices.type.shape) - 1, len(base.type.shape)
    length, rest = base.type.shape[axis + 1], [k for k in range(1, rank) if k != axis + 1]
    flat_shape = (mul(size, length), *(base.type.shape[k] for k in rest))
    flat = b.reshaped(b.permuted(base, [0, axis + 1, *rest]), flat_shape)
    window = [k for k in range(1, len(value.type.shape)) if not axis + 1 <= k < axis + 1 + many]
    moved = b.permuted(value, [0, *range(axis + 1, axis + 1 + many), *window])
    places = lane_places(b, indices, length, size)
    found = b.scatter(flat, places, moved, **{**params, "axis": 0})
    whole = b.reshaped(found, (size, length, *(base.type.shape[k] for k in rest)))
    return (b.permuted(whole, [0, *range(2, axis + 2), 1, *range(axis + 2, rank)]),)
