"""Rows of functions under ``vmap`` that look across its lanes: they stand in what one lane records, and are gone in
what all lanes do. ``params["axis"]`` is the number of the mapping, which replays them
(``tenferro.tracer.transform.batch``).

``lane_sum``, ``lane_max``, ``lane_min``: over all lanes, the same for each. ``lane_gather``: all lanes' values, along a
new leading axis of the given size. ``lane_index``: the lane's number.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import BatchError, DtypeError
from tenferro.tracer.op import Absent, InferRule, JvpRule, Library, Op, Tangents, TransposeRule
from tenferro.tracer.ops.columns import INTEGERS, NOT_LINEAR, linear
from tenferro.tracer.ops.layout_rules import one
from tenferro.tracer.program import ArrayType, Operand, Operation, Params

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation


def _same(kinds: str, name: str) -> InferRule:
    def infer(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
        (x,) = types
        if x.dtype.kind not in kinds:
            raise DtypeError(f"{name}: dtype {x.dtype.name}; numbers are needed")
        return (ArrayType(x.dtype, x.shape),)

    return infer


def _gathered(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    (x,) = types
    return (ArrayType(x.dtype, (params["size"], *x.shape)),)


def _number(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    return (ArrayType(np.dtype(np.int64), ()),)


def _leaked(*operands: Any, **params: Any) -> Any:
    raise BatchError("a value across lanes is asked for outside of the function under vmap")


def _transpose_sum(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]) -> Tangents:
    """Every lane's sum counts this lane's value."""
    return (b.emit(operation.op, [one(cotangents)], **operation.params)[0],)


def _transpose_gather(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]) -> Tangents:
    """What all lanes say of this lane's place."""
    axis = operation.params["axis"]
    total = b.lane_sum(one(cotangents), axis=axis)
    return (b.take(total, b.lane_index(axis=axis), axis=0),)


def _batch_same(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """For the lanes of another mapping, each for itself."""
    return b.emit(operation.op, operation.inputs, **operation.params)


def _batch_gather(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """The axis of the other mapping goes to the front again."""
    (found,) = b.emit(operation.op, operation.inputs, **operation.params)
    return (b.permuted(found, [1, 0, *range(2, len(found.type.shape))]),)


def _row(name: str, infer: InferRule, jvp: JvpRule | Absent, transpose: TransposeRule | Absent, batch: Any) -> Op:
    return Op(name, Library(()), infer, _leaked, jvp, transpose, batch)


_EXTREME = Absent("an extreme over lanes; gather the lanes and take their maximum")

lane_sum = _row("lane_sum", _same("iufc", "psum"), linear(), _transpose_sum, _batch_same)
lane_max = _row("lane_max", _same("biuf", "pmax"), _EXTREME, NOT_LINEAR, _batch_same)
lane_min = _row("lane_min", _same("biuf", "pmin"), _EXTREME, NOT_LINEAR, _batch_same)
lane_gather = _row("lane_gather", _gathered, linear(), _transpose_gather, _batch_gather)
lane_index = _row("lane_index", _number, INTEGERS, NOT_LINEAR, Absent("it has no operands, and so no lanes"))

ACROSS = {lane_sum: "sum", lane_max: "maximum", lane_min: "minimum", lane_gather: "join", lane_index: "number"}
"""What each is of the lanes, for error texts."""
