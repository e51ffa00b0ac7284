"""Derivatives and batches of collectives between processes: a rank's own operand in, what it records out.

Every rank records the same collectives in the same order, whatever its values are: they would wait for ever otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tenferro.tracer.dims import Extent
from tenferro.tracer.op import Op, Tangents
from tenferro.tracer.program import Operand, Operation

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation

Rows = Callable[[str], Op]
"""From the name of a collective to its operation between processes."""


def jvp(rows: Rows) -> Callable[[Derivation, Operation, Tangents], Tangents]:
    """The collective of tangents; of a largest or smallest the mean of those that reach it."""

    def rule(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
        (x,), (y,), (t,), params = operation.inputs, operation.outputs, tangents, dict(operation.params)
        if t is None:
            return (None,)
        if params.get("reduction", "sum") == "sum":
            return b.emit(operation.op, [t], **params)
        if "axis" in params:
            joined = {k: params[k] for k in ("channel", "names", "axis", "tiled")}
            (y,) = b.emit(rows("all_gather"), [y], **joined)
        reached = b.convert(b.equal(x, y), b.wide(x.type.dtype))
        meeting = {"channel": params["channel"], "names": params["names"], "reduction": "sum"}
        (count,) = b.emit(rows("all_reduce"), [reached], **meeting)
        share = b.convert(b.divide(reached, count), x.type.dtype)
        return b.emit(operation.op, [b.scaled(t, share)], **{**params, "reduction": "sum"})

    return rule


def transpose(rows: Rows) -> Callable[[Derivation, Operation, Tangents, Sequence[bool]], Tangents]:
    """The way back: sums to summands, joins to sums, moves to their origin. What entered gets the sum of what all ranks
    give back, what left gives back in one rank."""

    def rule(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]) -> Tangents:
        (x,), (ct,), params = operation.inputs, cotangents, dict(operation.params)
        assert ct is not None
        meeting = {"channel": params["channel"], "names": params["names"]}
        match operation.op:
            case op if op is rows("all_reduce"):
                return b.emit(op, [ct], **params)
            case op if op is rows("all_gather"):
                return b.emit(rows("reduce_scatter"), [ct], **params, reduction="sum")
            case op if op is rows("reduce_scatter"):
                return b.emit(rows("all_gather"), [ct], **meeting, axis=params["axis"], tiled=params["tiled"])
            case op if op is rows("broadcast"):
                (total,) = b.emit(rows("all_reduce"), [ct], **meeting, reduction="sum")
                return (total if _own(params) == params["root"] else b.zeros(x.type),)
            case op if op is rows("entered"):
                return b.emit(rows("all_reduce"), [ct], **params, reduction="sum")
            case op if op is rows("left"):
                return (ct if _own(params) == 0 else b.zeros(x.type),)
            case op:
                back = tuple((destination, source) for source, destination in params["pairs"])
                return b.emit(op, [ct], **{**params, "pairs": back})

    return rule


def _own(params: Any) -> int:
    """The rank's number in the collective."""
    grid = params["channel"].grid
    found: int = grid.index(grid.positions[0], params["names"])
    return found


def batch(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """All lanes meet at once; axes are one further."""
    moved = {k: v + 1 if k == "axis" else v for k, v in operation.params.items()}
    return b.emit(operation.op, operation.inputs, **moved)
