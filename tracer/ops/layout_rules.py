"""Derivatives and batches of layout rows. All are linear in the arrays that they move, and in the values that they fill
in; a transpose puts each element's cotangent back where the element came from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tenferro.tracer.dims import Extent, add, mul, sub
from tenferro.tracer.op import BatchRule, Tangents
from tenferro.tracer.program import Operand, Operation

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation

Linear = Sequence[bool]
Shape = tuple[Extent, ...]


def batch_params(**shifts: Any) -> BatchRule:
    """Of a row of one array: the row itself, with ``shifts[name](value, size)`` as parameters."""

    def batch(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
        params = {k: shifts[k](v, size) if k in shifts else v for k, v in operation.params.items()}
        return b.emit(operation.op, operation.inputs, **params)

    return batch


def with_size(shape: Shape, size: Extent) -> Shape:
    """A shape with the batch axis in front."""
    return (size, *shape)


def axes_after(axes: Sequence[int], size: Extent) -> tuple[int, ...]:
    """Axes of a lane as those of all lanes."""
    return tuple(a + 1 for a in axes)


def with_zero(axes: Sequence[int], size: Extent) -> tuple[int, ...]:
    """The same, and the batch axis in front."""
    return (0, *(a + 1 for a in axes))


def whole(first: Any) -> Any:
    """The batch axis's own entry in front of a tuple of one for each axis."""
    return lambda value, size: (first, *value)


def lanes(b: Derivation, operands: Sequence[Operand], batched: Sequence[bool], size: Extent) -> list[Operand]:
    """The operands, each for every lane."""
    return [x if mine else b.stretched(x, size) for x, mine in zip(operands, batched, strict=True)]


# -- views -----------------------------------------------------------------------------------------------------------


def transpose_reshape(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """The shape that it had."""
    return (b.reshaped(one(cotangents), operation.inputs[0].type.shape),)


def transpose_transpose(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """The inverse permutation."""
    axes = operation.params["axes"]
    return (b.permuted(one(cotangents), sorted(range(len(axes)), key=lambda k: axes[k])),)


def transpose_broadcast(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """The sum over the axes that were added or stretched."""
    (x,), axes, shape = operation.inputs, operation.params["axes"], operation.params["shape"]
    canonical = b.trace.canonical
    kept = [
        a for a, n in zip(axes, x.type.shape, strict=True) if canonical(n) != 1 or canonical(shape[a]) == 1
    ]  # fmt: skip
    summed = tuple(a for a in range(len(shape)) if a not in kept)
    found = one(cotangents)
    if any(canonical(shape[a]) != 1 for a in summed):
        found = b.sum(found, axes=summed, keepdims=False)
    return (b.reshaped(found, x.type.shape),)


def transpose_slice(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """0 around and between the elements that were taken."""
    (x,), params = operation.inputs, operation.params
    starts, steps, sizes = params["starts"], params["steps"], params["sizes"]
    cotangent = one(cotangents)
    if any(abs(s) != 1 for s in steps):
        return (b.slice_update(b.zeros(x.type), cotangent, starts=starts, steps=steps, sizes=sizes),)
    if any(s == -1 for s in steps):
        cotangent = b.flipped(cotangent, [k for k, s in enumerate(steps) if s == -1])
    low = tuple(n if s == 1 else sub(n, sub(size, 1)) for n, s, size in zip(starts, steps, sizes, strict=True))
    high = tuple(sub(n, add(lo, size)) for n, lo, size in zip(x.type.shape, low, sizes, strict=True))
    return (b.padded(cotangent, low, high),)


# -- windows and joins -----------------------------------------------------------------------------------------------


def transpose_pad(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """What lies inside belongs to the array, what lies around it to the fill."""
    (x, _), cotangent = operation.inputs, one(cotangents)
    inside = b.cut(cotangent, operation.params["low"], x.type.shape) if is_linear[0] else None
    if not is_linear[1]:
        return (inside, None)
    if not x.type.shape:
        return (inside, b.like(0, cotangent))
    is_inside = b.pad(b.broadcast(b.truth(True), x.type.shape), b.truth(False), **operation.params)
    return (inside, b.total(b.where(is_inside, b.like(0, cotangent), cotangent)))


def batch_pad(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """The batch axis is not padded. Where each lane has a fill of its own, it is chosen outside the array."""
    x, fill = operation.inputs
    low, high = (0, *operation.params["low"]), (0, *operation.params["high"])
    if not batched[1]:
        return (b.pad(x, fill, low=low, high=high),)
    (x,) = lanes(b, [x], batched[:1], size)
    inside = b.pad(
        b.broadcast(b.truth(True), x.type.shape), b.truth(False), low=low, high=high
    )  # fmt: skip
    padded = b.padded(x, low, high)
    fills = b.broadcast_to(fill, shape=padded.type.shape, axes=(0,))
    return (b.where(inside, padded, fills),)


def transpose_concatenate(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """To each operand its part."""
    axis, cotangent = operation.params["axis"], one(cotangents)
    start: Extent = 0
    found: list[Operand | None] = []
    for x, mine in zip(operation.inputs, is_linear, strict=True):
        starts = tuple(start if k == axis else 0 for k in range(len(x.type.shape)))
        found.append(b.cut(cotangent, starts, x.type.shape) if mine else None)
        start = add(start, x.type.shape[axis])
    return found


def batch_concatenate(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """Along the same axis of each lane."""
    operands = lanes(b, operation.inputs, batched, size)
    return b.emit(operation.op, operands, axis=operation.params["axis"] + 1)


# -- index arrays and updates ----------------------------------------------------------------------------------------


def transpose_take(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """Each element's cotangents are added where it was taken from."""
    x, indices = operation.inputs
    axis = operation.params["axis"]
    windows = operation.params.get("windows", ())
    return (b.scatter(b.zeros(x.type), indices, one(cotangents), axis=axis, mode="add", windows=windows), None)


def batch_take(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """Lanes of the array, of the indices, or of both: then all lanes are one array, and each lane's indices point into
    its own part."""
    x, indices = operation.inputs
    axis, params = operation.params["axis"], dict(operation.params)
    if not batched[1]:
        return (b.take(x, indices, **{**params, "axis": axis + 1}),)
    many = len(indices.type.shape) - 1
    if not batched[0]:
        found = b.take(x, indices, **params)
        rank = len(found.type.shape)
        return (b.permuted(found, [axis, *(k for k in range(rank) if k != axis)]),)
    shape = x.type.shape
    length, rest = shape[axis + 1], [k for k in range(1, len(shape)) if k != axis + 1]
    rows = b.permuted(x, [0, axis + 1, *rest])
    flat = b.reshaped(rows, (mul(size, length), *(shape[k] for k in rest)))
    params = {**params, "axis": 0, "windows": lane_windows(params, axis, length, size)}
    found = b.take(flat, lane_places(b, indices, length, size), **params)
    order = [0, *range(1 + many, 1 + many + axis), *range(1, 1 + many), *range(1 + many + axis, len(found.type.shape))]
    return (b.permuted(found, order),)


def lane_places(b: Derivation, indices: Operand, length: Extent, size: Extent) -> Operand:
    """Indices into the axis of a lane as indices into all lanes laid end to end. What is out of range stays so, by as
    much as all lanes are long."""
    shape, int64 = indices.type.shape, indices.type.dtype
    count, total = b.size(length, int64), b.size(mul(length, size), int64)
    lane = b.iota(shape=shape, axis=0)
    wrapped = b.where(b.less(indices, b.number(0, int64)), b.add(indices, count), indices)
    outside = b.bitwise_or(b.less(wrapped, b.number(0, int64)), b.less_equal(count, wrapped))
    beyond = b.where(b.less(indices, b.number(0, int64)), b.subtract(indices, total), b.add(indices, total))
    return b.where(outside, beyond, b.add(wrapped, b.multiply(lane, count)))


def lane_windows(params: Mapping[str, Any], axis: int, length: Extent, size: Extent) -> tuple[Any, ...]:
    """``windows`` of indices that are those of lanes: with how much they are beyond what each lane asked for."""
    name, shape, sizes, *before = params.get("windows") or ("", (length,), (axis,))
    return name, shape, sizes, add(mul(size, length), before[0] if before else 0)


def transpose_update(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """Inside the box the value counts, elsewhere the base."""
    (_, value), params, cotangent = operation.inputs, dict(operation.params), one(cotangents)
    around = b.slice_update(cotangent, b.like(0, cotangent), **params) if is_linear[0] else None
    if not is_linear[1]:
        return (around, None)
    inside = b.slice(cotangent, **params)
    return (around, b.summed_to(inside, value.type))


def batch_update(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """The same box in each lane."""
    (base, value), params = operation.inputs, operation.params
    sizes = (size, *params["sizes"])
    if not batched[0]:
        base = b.stretched(base, size)
    if batched[1]:
        value = value if len(value.type.shape) > 1 or len(sizes) == 1 else b.broadcast_to(value, shape=sizes, axes=(0,))
    elif value.type.shape:
        value = b.stretched(value, size)
    box = {"starts": (0, *params["starts"]), "steps": (1, *params["steps"]), "sizes": sizes}
    return (b.slice_update(base, value, **box),)


def one(cotangents: Tangents) -> Operand:
    """The only one."""
    (found,) = cotangents
    assert found is not None
    return found
