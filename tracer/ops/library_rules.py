"""Derivatives and batches of rows that run as calls: masks, counts, running sums, scattered writes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenferro.tracer.dims import Extent, mul, product
from tenferro.tracer.errors import BatchError
from tenferro.tracer.lines import at
from tenferro.tracer.op import Tangents
from tenferro.tracer.ops.call_rules import shifted
from tenferro.tracer.ops.layout_rules import lane_places, lane_windows, lanes, one
from tenferro.tracer.program import Operand, Operation

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation

Linear = Sequence[bool]


def refuse_own_sizes(name: str, operation: Operation) -> BatchError:
    """The error for a result whose size would be another one in each lane."""
    return BatchError(
        f"vmap: {name} in a mapped function, whose result would have another size in each lane; numpy.where on the "
        f"whole array keeps one size{at(operation.line)}"
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
    inside = b.mask_select(cotangent, mask, extent=b.selected(mask))
    return (around, None, b.reshaped(inside, value.type.shape) if value.type.shape else b.total(inside))


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
    params, (s, _, t) = dict(operation.params), tangents
    match params["mode"]:
        case "multiply":
            shares = _other_factors(b, operation)
        case "maximum" | "minimum":
            shares = _shares_of_extreme(b, operation)
        case _:
            s, t = (b.zeros(x.type) if d is None else d for x, d in ((base, s), (value, t)))
            return (b.scatter(s, indices, t, **params),)
    kept = b.zeros(base.type) if s is None else b.scaled(s, shares[0])
    return (kept if t is None else b.scatter(kept, indices, b.scaled(t, shares[1]), **{**params, "mode": "add"}),)


def _places(params: Mapping[str, Any]) -> dict[str, Any]:
    """Parameters of what takes from where a scatter writes."""
    return {name: value for name, value in params.items() if name != "mode"}


def _shares_of_extreme(b: Derivation, operation: Operation) -> tuple[Operand, Operand]:
    """How much of what is there afterwards is the base, and how much is each value: equal ones share alike."""
    (base, indices, value), (found,), params = operation.inputs, operation.outputs, dict(operation.params)
    dtype, wide = base.type.dtype, b.wide(base.type.dtype)
    is_base = b.convert(b.equal(base, found), wide)
    is_value = b.convert(b.equal(value, b.take(found, indices, **_places(params))), wide)
    count = b.scatter(is_base, indices, is_value, **{**params, "mode": "add"})
    of_base, of_value = b.divide(is_base, count), b.divide(is_value, b.take(count, indices, **_places(params)))
    return b.convert(of_base, dtype), b.convert(of_value, dtype)


def _other_factors(b: Derivation, operation: Operation) -> tuple[Operand, Operand]:
    """What the base is multiplied by, and what each value is: the base and the other values for its place.

    Values are sorted by place; running products from either end that begin anew with each place leave one out."""
    (base, indices, value), params = operation.inputs, dict(operation.params)
    axis, length = params["axis"], base.type.shape[params["axis"]]
    whole = b.scatter(b.broadcast(b.like(1, base), base.type.shape), indices, value, **params)
    places = b.reshaped(indices, (product(indices.type.shape),))
    places = b.where(b.less(places, b.like(0, places)), b.add(places, b.size(length, b.int64)), places)
    count = places.type.shape
    order = _order_of(b, places)
    shape = (*base.type.shape[:axis], *count, *base.type.shape[axis + 1 :])
    values, ordered = b.take(b.reshaped(value, shape), order, axis=axis), b.take(places, order, axis=0)
    before = _products_before(b, values, ordered, axis)
    after = _products_before(b, b.flipped(values, [axis]), b.flipped(ordered, [0]), axis)
    others = b.take(b.multiply(before, b.flipped(after, [axis])), _order_of(b, order), axis=axis)
    return whole, b.multiply(b.reshaped(others, value.type.shape), b.take(base, indices, **_places(params)))


def _order_of(b: Derivation, numbers: Operand) -> Operand:
    """The places that sort numbers, equal ones as they stand."""
    static = (("axis", 0), ("kind", "stable"))
    return b.numpy_call(numbers, function="argsort", static=static, shape=numbers.type.shape, dtype=b.int64)


def _products_before(b: Derivation, values: Operand, places: Operand, axis: int) -> Operand:
    """The product of the values before each that are for the same place; places are sorted."""
    goes_on = b.equal(places, shifted(b, places, 0, -1))
    goes_on = b.broadcast_to(goes_on, shape=values.type.shape, axes=(axis,))
    zero, one = b.like(0, values), b.like(1, values)
    factors = b.where(goes_on, shifted(b, values, axis, 1), zero)
    return b.recurrence(factors, b.broadcast(b.where(goes_on, zero, one), values.type.shape), axis=axis)


def transpose_scatter(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """What was overwritten counts for nothing; of several values for one place the last one counts."""
    (base, indices, value), cotangent, params = operation.inputs, one(cotangents), dict(operation.params)
    mode = params.pop("mode")
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
        inside = b.where(b.equal(b.take(last, indices, **params), places), inside, b.like(0, inside))
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
    windows = lane_windows(params, axis, length, size)
    found = b.scatter(flat, places, moved, **{**params, "axis": 0, "windows": windows})
    whole = b.reshaped(found, (size, length, *(base.type.shape[k] for k in rest)))
    return (b.permuted(whole, [0, *range(2, axis + 2), 1, *range(axis + 2, rank)]),)
