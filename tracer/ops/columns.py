"""Rules that many rows share: the columns ``jvp``, ``transpose`` and ``batch`` of pointwise rows, and their makers.

A *term* is what one operand contributes to a tangent: ``(b, t, y, *xs) → t · ∂y/∂x`` for the operand's tangent ``t``,
the result ``y`` and the operands ``xs``. Rules are written against ``tenferro.tracer.derivation.Derivation``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import DerivativeError
from tenferro.tracer.lines import at
from tenferro.tracer.op import Absent, Constant, JvpRule, Tangents, TransposeRule
from tenferro.tracer.program import Operand, Operation

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation

Shape: TypeAlias = tuple[Extent, ...]
Term: TypeAlias = Callable[..., Operand]
Side: TypeAlias = Callable[..., Operand]

INTEGERS = Absent("its results are integers or bools, which have no derivative")
STEPS = Constant("constant but for steps")
NOT_LINEAR = Absent("not linear in any operand; derivatives of it are made of other ops")


def terms(*found: Term | None) -> JvpRule:
    """The sum of the operands' terms; None for an operand that has no say in the derivative."""

    def jvp(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
        (result,) = operation.outputs
        total: Operand | None = None
        for term, tangent in zip(found, tangents, strict=True):
            if term is not None and tangent is not None:
                total = b.plus(total, term(b, tangent, result, *operation.inputs))
        return (None if total is None else b.broadcast(total, result.type.shape),)

    return jvp


def linear(*places: int) -> JvpRule:
    """Of an op that is linear in the operands at these places together (none: in all), and reads the others: the op
    itself, on tangents."""

    def jvp(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
        mine = places or range(len(operation.inputs))
        if all(tangents[k] is None for k in mine):
            return (None,) * len(operation.outputs)
        operands = list(operation.inputs)
        for k in mine:
            t = tangents[k]
            operands[k] = b.zeros(operands[k].type) if t is None else t
        return b.emit(operation.op, operands, **operation.params)

    return jvp


def not_linear(operation: Operation) -> DerivativeError:
    """What is asked to be transposed is no linear function of what varies."""
    return DerivativeError(
        f"{operation.op.name}: of values that vary, in which it is not linear; a function that is linear in its "
        f"arguments is needed{at(operation.line)}"
    )


def sides(*found: Side | None) -> TransposeRule:
    """For each operand in which a pointwise op is linear, ``(b, cotangent, *xs) → its cotangent``. An operand that the
    op stretched gets the sum."""

    def transpose(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]) -> Tangents:
        (cotangent,) = cotangents
        results: list[Operand | None] = []
        for side, x, mine in zip(found, operation.inputs, is_linear, strict=True):
            if not mine:
                results.append(None)
            elif side is None:
                raise not_linear(operation)
            else:
                results.append(b.summed_to(side(b, cotangent, *operation.inputs), x.type))
        return results

    return transpose


def batch_pointwise(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """The op itself: every operand is given the shape of the results, with the batch axis in front. Numbers that are
    the same in every lane stay numbers."""
    lanes = [x.type.shape[is_batched:] for x, is_batched in zip(operation.inputs, batched, strict=True)]
    lane = max(lanes, key=len)
    operands = [
        x if not (is_batched or x.type.shape) else lane_of(b, x, is_batched, lane, size)
        for x, is_batched in zip(operation.inputs, batched, strict=True)
    ]
    return b.emit(operation.op, operands, **operation.params)


def lane_of(b: Derivation, x: Operand, is_batched: bool, lane: Shape, size: Extent) -> Operand:
    """An operand for every lane, which has this shape; what has rank 0 in a lane is stretched along the lane's axes."""
    if not is_batched:
        return b.stretched(x, size)
    if len(x.type.shape) == len(lane) + 1:
        return x
    return b.broadcast_to(x, shape=(size, *lane), axes=(0,))
