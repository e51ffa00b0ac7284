"""Rows of linear algebra: decompositions and systems of equations, for matrices in the last two axes of batches.

All operands have one dtype (float32, float64, complex64, complex128) and one rank; batch axes lead and are equal. They
run as LAPACK calls of NumPy, at a seam. ``cholesky`` gives the lower factor; ``eigh`` reads the lower triangle;
``triangular_solve`` reads one triangle and has ``lower``, ``trans`` (0: A X = B, 1: Aᵀ X = B, 2: Aᴴ X = B) and ``unit``
(a diagonal of ones, whatever stands there). ``inner`` of ``qr`` and ``svd`` is the smaller of the matrices' two sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.op import InferRule, Library, Op
from tenferro.tracer.ops import decomposition_rules as rules
from tenferro.tracer.ops.columns import NOT_LINEAR
from tenferro.tracer.ops.rows import real_dtype
from tenferro.tracer.program import ArrayType, Params

KINDS = ("f4", "f8", "c8", "c16")


def _matrices(name: str, types: Sequence[ArrayType], square: bool = True) -> ArrayType:
    """The type of the first operand, which is a batch of matrices."""
    first = types[0]
    if first.dtype.str[1:] not in KINDS or any(t.dtype != first.dtype for t in types):
        raise DtypeError(
            f"{name}: dtypes {[t.dtype.name for t in types]}; one of float32, float64, complex64, complex128 is needed"
        )
    if first.rank < 2 or any(t.rank != first.rank for t in types):
        raise ShapeError(f"{name}: operands {[str(t) for t in types]}; matrices of one rank, at least 2, are needed")
    if square and first.shape[-1] != first.shape[-2]:
        raise ShapeError(f"{name}: operand {first}; square matrices are needed")
    return first


def _square(name: str) -> InferRule:
    def infer(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
        a = _matrices(name, types)
        return (ArrayType(a.dtype, a.shape),)

    return infer


def _system(name: str) -> InferRule:
    def infer(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
        _matrices(name, types)
        return (ArrayType(types[1].dtype, types[1].shape),)

    return infer


def _infer_eigh(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    a = _matrices("eigh", types)
    return ArrayType(real_dtype(a.dtype), a.shape[:-1]), ArrayType(a.dtype, a.shape)


def _infer_qr(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    a = _matrices("qr", types, square=False)
    *batch, m, n = a.shape
    k = params["inner"]
    return ArrayType(a.dtype, (*batch, m, k)), ArrayType(a.dtype, (*batch, k, n))


def _infer_svd(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    a = _matrices("svd", types, square=False)
    *batch, m, n = a.shape
    k = params["inner"]
    return (
        ArrayType(a.dtype, (*batch, m, k)), ArrayType(real_dtype(a.dtype), (*batch, k)),
        ArrayType(a.dtype, (*batch, k, n)),
    )  # fmt: skip


def _infer_slogdet(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    a = _matrices("slogdet", types)
    return ArrayType(a.dtype, a.shape[:-2]), ArrayType(real_dtype(a.dtype), a.shape[:-2])


def _triangle(a: Any, lower: bool, trans: int, unit: bool) -> Any:
    kept = np.tril(a) if lower else np.triu(a)
    if unit:
        n = a.shape[-1]
        kept[..., np.arange(n), np.arange(n)] = 1
    if trans:
        kept = np.swapaxes(kept, -1, -2)
    return kept.conj() if trans == 2 else kept


def _reference_triangular(a: Any, b: Any, *, lower: bool, trans: int, unit: bool) -> Any:
    """By substitution, row after row, in the operands' own dtype; a zero on the diagonal divides."""
    t = _triangle(np.asarray(a), lower, trans, unit)
    n, forward = t.shape[-1], lower == (trans == 0)
    x = np.array(b)
    with np.errstate(all="ignore"):
        for k in range(n) if forward else range(n - 1, -1, -1):
            done = slice(0, k) if forward else slice(k + 1, n)
            x[..., k, :] -= (t[..., k : k + 1, done] @ x[..., done, :])[..., 0, :]
            x[..., k, :] /= t[..., k, k, None]
    return x


def _of_pair(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *xs, **params: tuple(function(*xs, **params))


cholesky = Op(
    "cholesky",
    Library(()),
    _square("cholesky"),
    np.linalg.cholesky,
    rules.jvp_cholesky,
    NOT_LINEAR,
    rules.batch_matrices,
)
triangular_solve = Op(
    "triangular_solve", Library(()), _system("triangular_solve"), _reference_triangular, rules.jvp_triangular,
    rules.transpose_triangular, rules.batch_matrices,
)  # fmt: skip
solve = Op(
    "solve",
    Library(()),
    _system("solve"),
    np.linalg.solve,
    rules.jvp_solve,
    rules.transpose_solve,
    rules.batch_matrices,
)
inv = Op("inv", Library(()), _square("inv"), np.linalg.inv, rules.jvp_inv, NOT_LINEAR, rules.batch_matrices)
slogdet = Op(
    "slogdet", Library(()), _infer_slogdet, _of_pair(np.linalg.slogdet), rules.jvp_slogdet, NOT_LINEAR,
    rules.batch_matrices,
)  # fmt: skip
eigh = Op("eigh", Library(()), _infer_eigh, _of_pair(np.linalg.eigh), rules.jvp_eigh, NOT_LINEAR, rules.batch_matrices)
qr = Op(
    "qr", Library(()), _infer_qr, _of_pair(lambda a, inner: np.linalg.qr(a)), rules.jvp_qr, NOT_LINEAR,
    rules.batch_matrices,
)  # fmt: skip
svd = Op(
    "svd", Library(()), _infer_svd, _of_pair(lambda a, inner: np.linalg.svd(a, full_matrices=False)), rules.jvp_svd,
    NOT_LINEAR, rules.batch_matrices,
)  # fmt: skip
