"""Derivatives and batches of NumPy functions that are called by name, as far as they have some, and of recurrences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tenferro.tracer.dims import Extent, product
from tenferro.tracer.errors import DerivativeError
from tenferro.tracer.lines import at
from tenferro.tracer.op import Tangents
from tenferro.tracer.ops.layout_rules import one
from tenferro.tracer.program import Operand, Operation

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation

Rule: TypeAlias = Callable[["Derivation", Operation, Tangents], Operand | None]


def jvp_call(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """By the function's name; those without a rule are refused."""
    name = operation.params["function"]
    rule = JVPS.get(name)
    if rule is None:
        raise DerivativeError(
            f"{name}: its derivative was asked for, and it has none: a function of NumPy that is called by name; "
            f"stop_gradient(x) holds its operand constant{at(operation.line)}"
        )
    return (rule(b, operation, tangents),)


# -- running products ------------------------------------------------------------------------------------------------


def running_product(b: Derivation, x: Operand, axis: int) -> Operand:
    """x[0], x[0] · x[1], … along the axis."""
    static = (("axis", axis),)
    return b.numpy_call(x, function="cumprod", static=static, shape=x.type.shape, dtype=x.type.dtype)


def shifted(b: Derivation, x: Operand, axis: int, fill: float) -> Operand:
    """Each element one place further along the axis, with ``fill`` in front; the last one goes."""
    rank = len(x.type.shape)
    low = tuple(int(k == axis) for k in range(rank))
    longer = b.pad(x, b.like(fill, x), low=low, high=(0,) * rank)
    return b.cut(longer, (0,) * rank, x.type.shape)


def products_before(b: Derivation, x: Operand, axis: int) -> Operand:
    """The product of the elements before each along the axis: 1, x[0], x[0] · x[1], …"""
    return shifted(b, running_product(b, x, axis), axis, 1)


def products_of_others(b: Derivation, x: Operand, axes: Sequence[int]) -> Operand:
    """For each element the product of all others over the axes. Not the product over the element: what a factor of 0
    leaves would be lost, and with it the second derivatives there."""
    shape = x.type.shape
    kept = [k for k in range(len(shape)) if k not in axes]
    order = [*kept, *axes]
    moved = b.permuted(x, order)
    row = b.reshaped(moved, (*(shape[k] for k in kept), product(shape[k] for k in axes)))
    last = len(kept)
    after = b.flipped(products_before(b, b.flipped(row, [last]), last), [last])
    others = b.reshaped(b.multiply(products_before(b, row, last), after), moved.type.shape)
    return b.permuted(others, [order.index(k) for k in range(len(shape))])


def jvp_cumprod(b: Derivation, operation: Operation, tangents: Tangents) -> Operand | None:
    """y[i] = x[i] · y[i − 1], differentiated: a recurrence."""
    (x,), (y,), (t,) = operation.inputs, operation.outputs, tangents
    assert t is not None
    axis = dict(operation.params["static"])["axis"]
    factors, t = b.convert(x, y.type.dtype), b.convert(t, y.type.dtype)
    return b.recurrence(factors, b.scaled(t, shifted(b, y, axis, 1)), axis=axis)


# -- recurrences -----------------------------------------------------------------------------------------------------


def jvp_recurrence(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """The recurrence of the same factors; what a factor's tangent adds is a term of it."""
    (factors, _), (found,), axis = operation.inputs, operation.outputs, operation.params["axis"]
    s, t = tangents
    added = None if s is None else b.scaled(s, shifted(b, found, axis, 0))
    moved = b.plus(added, t)
    return (None if moved is None else b.recurrence(factors, moved, axis=axis),)


def transpose_recurrence(
    b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]
) -> Tangents:  # fmt: skip
    """The recurrence from the other end; linear in the terms."""
    (factors, _), axis = operation.inputs, operation.params["axis"]
    backwards = b.flipped(factors, [axis])
    found = b.recurrence(shifted(b, backwards, axis, 0), b.flipped(one(cotangents), [axis]), axis=axis)
    return (None, b.flipped(found, [axis]))


def batch_recurrence(
    b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent
) -> Sequence[Operand]:  # fmt: skip
    """Along the same axis of each lane."""
    operands = [x if mine else b.stretched(x, size) for x, mine in zip(operation.inputs, batched, strict=True)]
    return (b.recurrence(*operands, axis=operation.params["axis"] + 1),)


JVPS: dict[str, Rule] = {"cumprod": jvp_cumprod}
