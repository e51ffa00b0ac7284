"""Vectors and matrices at random: a key, means, covariances and sizes in, a new array out.

Factors of matrices are those of ``numpy.linalg``: calls at a seam, with derivatives.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer.api.creation import extents_of
from tenferro.tracer.api.promotion import broadcast_shapes, sizes_text
from tenferro.tracer.api.random_common import fitted, float_dtype, function, one_of, parameter, words_of
from tenferro.tracer.api.random_continuous import normal_from
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import running_trace

Traced = Any  # a TracedArray, as NumPy's operators and functions on it give one
METHODS = ("cholesky", "eigh", "svd")
SINGLE = np.dtype(np.float32)


def orthogonal(key: Any, n: Any, shape: Any = (), dtype: Any = None, m: Any = None) -> Any:
    """Orthogonal matrices, evenly spread over all of them, as the last two axes; with ``m`` the rows or the columns of
    n × m matrices are orthonormal, whichever are fewer.

    Mezzadri, How to generate random matrices from the classical compact groups (2007)."""
    name = "orthogonal"
    trace = running_trace(name)
    target, words = float_dtype(dtype, name), words_of(trace, key, name)
    rows, columns = extents_of((n, n if m is None else m), name)
    size = extents_of(shape, name)
    is_wide = trace.guard("<", rows, columns)
    long, short = (columns, rows) if is_wide else (rows, columns)
    wide = SINGLE if target.itemsize == 2 else target
    z = normal_from(trace, words, (*size, long, short), wide)
    factor, triangle = np.linalg.qr(z)
    signs: Traced = np.where(np.diagonal(triangle, axis1=-2, axis2=-1) < 0, -1, 1)
    found: Traced = factor * signs.astype(wide)[..., None, :]
    return (np.matrix_transpose(found) if is_wide else found).astype(target)


def multivariate_normal(
    key: Any, mean: Any, cov: Any, shape: Any = None, dtype: Any = None, method: Any = "cholesky"
) -> Any:  # fmt: skip
    """Vectors of normal numbers of this mean and covariance, along the last axis; ``shape`` is that of the other axes,
    by default that of means and covariances together. ``method``: how the covariance is factored, "cholesky" for
    positive definite ones, "eigh" or "svd" for any."""
    name = "multivariate_normal"
    trace = running_trace(name)
    target, words = float_dtype(dtype, name), words_of(trace, key, name)
    wide = SINGLE if target.itemsize == 2 else target
    means: Traced = parameter(trace, mean, wide, name, "mean")
    covariances: Traced = parameter(trace, cov, wide, name, "cov")
    how = one_of(method, METHODS, name)
    if not means.ndim or covariances.ndim < 2:
        raise ShapeError(
            f"{name}: mean of rank {means.ndim} and cov of rank {covariances.ndim}; rank 1 or more and rank 2 or more "
            f"are needed{at(user_line())}"
        )
    *lead, count = means.type.shape
    *others, rows, columns = covariances.type.shape
    if not (trace.guard("==", rows, count) and trace.guard("==", columns, count)):
        raise ShapeError(
            f"{name}: cov of shape {sizes_text(trace, covariances.type.shape)} for a mean of {trace.hint(count)} "
            f"elements; as many rows and columns are needed{at(user_line())}"
        )
    together = broadcast_shapes(trace, name, [tuple(lead), tuple(others)])
    size = together if shape is None else extents_of(shape, name)
    fitted(trace, name, (*size, count), mean=means)
    fitted(trace, name, (*size, count, count), cov=covariances)
    root = _root(covariances, how)
    z: Traced = normal_from(trace, words, (*size, count), wide)
    return (means + np.matmul(root, z[..., None])[..., 0]).astype(target)


def _root(cov: Traced, method: str) -> Traced:
    """A with A times its transpose the covariance."""
    if method == "cholesky":
        return np.linalg.cholesky(cov)
    values: Traced
    if method == "eigh":
        values, vectors = np.linalg.eigh(cov)
    else:
        vectors, values, _ = np.linalg.svd(cov)
    return vectors * np.sqrt(np.maximum(values, 0))[..., None, :]


FUNCTIONS: tuple[TracedFunction, ...] = (
    function("orthogonal", orthogonal, "key", "n", "shape", "m"),
    function("multivariate_normal", multivariate_normal, "key", "mean", "cov", "shape"),
)
