"""Reduction rows. ``params``: ``axes`` (sorted tuple), ``keepdims``; the operand has the accumulation dtype already,
except that float16 accumulates in float32 and is rounded once at the end.

The tree that fixes the order of combination is ``tenferro.lowering.tree``; these references state values, not bits.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import numpy as np

from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.op import Absent, InferRule, JvpRule, Op, Reduction, ReductionKind, TransposeRule
from tenferro.tracer.ops import reduction_rules as rules
from tenferro.tracer.ops.columns import INTEGERS, NOT_LINEAR, linear
from tenferro.tracer.ops.rows import real_dtype
from tenferro.tracer.program import ArrayType, Params


def reduced_shape(shape: Sequence[Any], axes: Sequence[int], keepdims: bool) -> tuple[Any, ...]:
    if keepdims:
        return tuple(1 if k in axes else n for k, n in enumerate(shape))
    return tuple(n for k, n in enumerate(shape) if k not in axes)


def _infer(name: str, kinds: str, result: Callable[[np.dtype[Any]], np.dtype[Any]]) -> InferRule:
    def infer(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
        (x,) = types
        if x.dtype.kind not in kinds:
            raise DtypeError(f"{name}: dtype {x.dtype.name}; no rule for it")
        if any(not 0 <= a < x.rank for a in params["axes"]):
            raise ShapeError(f"{name}: axes {params['axes']} for rank {x.rank}; each must be in [0, {x.rank})")
        return (ArrayType(result(x.dtype), reduced_shape(x.shape, params["axes"], params["keepdims"])),)

    return infer


def _same(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return dtype


def _index(dtype: np.dtype[Any]) -> np.dtype[Any]:
    return np.dtype(np.int64)


def _reference_sum(x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    return np.sum(x, axis=axes, keepdims=keepdims, dtype=np.asarray(x).dtype)


def _reference_prod(x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    dtype = np.asarray(x).dtype
    wide = np.dtype(np.float32) if dtype == np.float16 else dtype
    with np.errstate(all="ignore"):
        return np.prod(x, axis=axes, keepdims=keepdims, dtype=wide).astype(dtype)


def _reference_extreme(function: Callable[..., Any]) -> Callable[..., Any]:
    def reference(x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        return function(x, axis=axes, keepdims=keepdims)

    return reference


def _reference_arg(function: Callable[..., Any]) -> Callable[..., Any]:
    """The index in row-major order over the reduced axes; the first NaN wins, as in NumPy."""

    def reference(x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
        x = np.asarray(x)
        kept = [k for k in range(x.ndim) if k not in axes]
        rows = x.transpose(*kept, *axes).reshape([x.shape[k] for k in kept] + [prod(x.shape[k] for k in axes)])
        return np.asarray(function(rows, axis=-1)).reshape(reduced_shape(x.shape, axes, keepdims))

    return reference


def _reference_deviations(x: Any, *, axes: tuple[int, ...], keepdims: bool) -> Any:
    x = np.asarray(x)
    wide = x.astype(np.float32) if x.dtype == np.float16 else x
    centred = wide - wide.mean(axis=axes, keepdims=True)
    return np.sum(np.abs(centred) ** 2, axis=axes, keepdims=keepdims).astype(real_dtype(x.dtype))


def _row(
    name: str, kind: ReductionKind, infer: InferRule, reference: Callable[..., Any], jvp: JvpRule | Absent,
    transpose: TransposeRule | Absent = NOT_LINEAR,
) -> Op:  # fmt: skip
    return Op(name, Reduction(kind), infer, reference, jvp, transpose, rules.batch_reduction)


sum_ = _row("sum", "sum", _infer("sum", "iufc", _same), _reference_sum, linear(), rules.transpose_sum)
prod_ = _row("prod", "product", _infer("prod", "iufc", _same), _reference_prod, rules.jvp_prod)
max_ = _row("max", "max", _infer("max", "biufc", _same), _reference_extreme(np.max), rules.jvp_extreme)
min_ = _row("min", "min", _infer("min", "biufc", _same), _reference_extreme(np.min), rules.jvp_extreme)
argmax = _row("argmax", "argmax", _infer("argmax", "biuf", _index), _reference_arg(np.argmax), INTEGERS)
argmin = _row("argmin", "argmin", _infer("argmin", "biuf", _index), _reference_arg(np.argmin), INTEGERS)
squared_deviations = _row(
    "squared_deviations", "moments", _infer("squared_deviations", "fc", real_dtype), _reference_deviations,
    rules.jvp_deviations,
)  # fmt: skip
"""The sum of |x − mean(x)|² over the axes: var = this / (n − ddof). Two passes per chunk, chunks combined by the
formula of Chan, Golub and LeVeque (1979), eq. 2.1."""
