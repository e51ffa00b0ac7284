"""Derivatives and batches of collectives. Operand and result k lie on engine ``places[k]``, and so do their tangents.

Sums, joins and moves are linear in all operands together. What is pulled back meets in turn: who got a sum gives each
summand what all of them give back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tenferro.tracer.dims import Extent, mul
from tenferro.tracer.op import Tangents
from tenferro.tracer.program import ArrayType, Operand, Operation

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation

Linear = Sequence[bool]


def _places(operation: Operation) -> tuple[str, ...]:
    found: tuple[str, ...] = operation.params["places"]
    return found


def _all(b: Derivation, operation: Operation, found: Tangents, type_: ArrayType) -> list[Operand]:
    """One for each engine; 0 where there is none."""
    made: list[Operand] = []
    for x, place in zip(found, _places(operation), strict=True):
        with b.on(place):
            made.append(b.zeros(type_) if x is None else x)
    return made


def jvp_linear(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """The collective itself, of tangents."""
    return b.emit(operation.op, _all(b, operation, tangents, operation.inputs[0].type), **operation.params)


def jvp_reduction(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """Of a sum the sum. Of a largest or smallest the mean of the tangents of those that reach it."""
    if operation.params["reduction"] == "sum":
        return jvp_linear(b, operation, tangents)
    first = operation.inputs[0].type
    wide, places = b.wide(first.dtype), _places(operation)
    found = _unscattered(b, operation, operation.outputs)
    reached, shared = [], []
    for x, y, place in zip(operation.inputs, found, places, strict=True):
        with b.on(place):
            reached.append(b.convert(b.equal(x, y), wide))
    counts = b.emit(b.row("all_reduce"), reached, places=places, reduction="sum")
    for t, mine, count, place in zip(
        _all(b, operation, tangents, first), reached, counts, places, strict=True
    ):  # fmt: skip
        with b.on(place):
            shared.append(b.scaled(t, b.convert(b.divide(mine, count), first.dtype)))
    return b.emit(operation.op, shared, **{**operation.params, "reduction": "sum"})


def _unscattered(b: Derivation, operation: Operation, results: Sequence[Operand]) -> Sequence[Operand]:
    """What was scattered, joined again; everyone's own otherwise."""
    if operation.op.name != "reduce_scatter":
        return results
    params = {k: operation.params[k] for k in ("places", "axis", "tiled")}
    return b.emit(b.row("all_gather"), results, **params)


def transpose_reduction(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """Each summand gets what all results give back; of a sum that one engine alone gives something back for, that."""
    if operation.op.name == "all_reduce":
        given = [ct for ct in cotangents if ct is not None]
        if len(given) == 1:
            return tuple(given[0] if mine else None for mine in is_linear)
        found = jvp_linear(b, operation, cotangents)
    else:
        found = _unscattered(b, operation, _all(b, operation, cotangents, operation.op.infer(
            [x.type for x in operation.inputs], operation.params)[0]))  # fmt: skip
    return tuple(ct if mine else None for ct, mine in zip(found, is_linear, strict=True))


def transpose_all_gather(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """Each part gets the sum of what is given back for it. Where one engine alone gives something back, its parts."""
    params, places = operation.params, _places(operation)
    type_ = operation.op.infer([x.type for x in operation.inputs], params)[0]
    given = [k for k, ct in enumerate(cotangents) if ct is not None]
    if len(given) == 1:
        whole = cotangents[given[0]]
        assert whole is not None
        with b.on(places[given[0]]):
            return tuple(
                _part(b, whole, k, operation.inputs[k].type, params) if mine else None
                for k, mine in enumerate(is_linear)
            )
    found = b.emit(
        b.row("reduce_scatter"), _all(b, operation, cotangents, type_), places=places, reduction="sum",
        axis=params["axis"], tiled=params["tiled"],
    )  # fmt: skip
    return tuple(ct if mine else None for ct, mine in zip(found, is_linear, strict=True))


def _part(b: Derivation, whole: Operand, k: int, type_: ArrayType, params: Any) -> Operand:
    """What engine k gave to what is joined."""
    axis, shape = params["axis"], type_.shape
    if params["tiled"]:
        start = mul(shape[axis], k)
        return b.cut(whole, tuple(start if a == axis else 0 for a in range(len(shape))), shape)
    starts = tuple(k if a == axis else 0 for a in range(len(shape) + 1))
    return b.reshaped(b.cut(whole, starts, (*shape[:axis], 1, *shape[axis:])), shape)


def transpose_broadcast(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """Who was heard by all gets the sum of what they give back."""
    root = operation.params["root"]
    given = [ct for ct in cotangents if ct is not None]
    total: Operand | None = None
    if is_linear[root]:
        if len(given) == 1:
            total = given[0]
        else:
            all_ = _all(b, operation, cotangents, operation.inputs[0].type)
            total = b.emit(b.row("all_reduce"), all_, places=_places(operation), reduction="sum")[root]
    return tuple(total if k == root else None for k in range(len(is_linear)))


def transpose_permute(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Linear) -> Tangents:
    """The way back."""
    back = tuple((destination, source) for source, destination in operation.params["pairs"])
    sources = {source for source, _ in operation.params["pairs"]}
    all_ = _all(b, operation, cotangents, operation.inputs[0].type)
    found = b.emit(operation.op, all_, places=_places(operation), pairs=back)
    return tuple(
        ct if mine and k in sources else None for k, (ct, mine) in enumerate(zip(found, is_linear, strict=True))
    )


def batch_collective(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """All lanes meet at once; axes are one further."""
    operands = []
    for x, mine, place in zip(operation.inputs, batched, _places(operation), strict=True):
        with b.on(place):
            operands.append(x if mine else b.stretched(x, size))
    moved = {k: v + 1 if k == "axis" else v for k, v in operation.params.items()}
    return b.emit(operation.op, operands, **moved)
