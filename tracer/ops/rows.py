"""What the families of pointwise rows share: the rule that types a result, and the making of a row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np

from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.op import Absent, Check, Constant, InferRule, JvpRule, Op, Pointwise, TransposeRule
from tenferro.tracer.ops.columns import batch_pointwise
from tenferro.tracer.program import ArrayType, Params

Result = Literal["same", "bool", "real"]
BOOL = np.dtype(np.bool_)
NUMBERS, REALS, ALL, FLOATS = "iufc", "iuf", "biufc", "fc"


def common_shape(name: str, types: Sequence[ArrayType]) -> ArrayType:
    """The type of the operand that gives the result its shape; all others have rank 0 or the same rank."""
    if len(types) == 1 or (len(types) == 2 and (types[0].shape is types[1].shape or not types[1].shape)):
        return types[0]
    widest = max(types, key=lambda t: t.rank)
    for t in types:
        if t.rank not in (0, widest.rank):
            raise ShapeError(f"{name}: operand shapes {[str(x) for x in types]}; broadcasts must be explicit here")
    return widest


def real_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """float32 for complex64, float64 for complex128, else the dtype itself."""
    return np.dtype(f"f{dtype.itemsize // 2}") if dtype.kind == "c" else dtype


def infer_rule(name: str, kinds: str, result: Result) -> InferRule:
    """Operands of one dtype, of one of the kinds; its result has that dtype, bool, or the dtype of its parts."""

    def infer(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
        like = common_shape(name, types)
        shape, dtype, weak = like.shape, types[0].dtype, True
        for t in types:
            if t.dtype is not dtype and t.dtype != dtype:
                raise DtypeError(f"{name}: operands of dtypes {[t.dtype.name for t in types]}; they must be equal here")
            weak = weak and t.weak
        if dtype.kind not in kinds:
            raise DtypeError(f"{name}: dtype {dtype.name}; no rule for it")
        match result:
            case "same":
                return (like if like.weak == weak else ArrayType(dtype, shape, weak),)
            case "bool":
                return (ArrayType(BOOL, shape),)
            case "real":
                return (ArrayType(real_dtype(dtype), shape, weak),)

    return infer


def row(
    name: str,
    reference: Callable[..., Any],
    *,
    kinds: str,
    result: Result,
    cost: int,
    scalar: Callable[..., Any],
    jvp: JvpRule | Constant | Absent,
    transpose: TransposeRule | Absent,
    check: Check = None,
) -> Op:
    """A pointwise row whose result is typed by ``infer_rule``. All batch alike."""
    form, infer = Pointwise(scalar, cost, check), infer_rule(name, kinds, result)
    return Op(name, form, infer, reference, jvp, transpose, batch_pointwise)
