"""Covariances of variables: observations in, one number for each pair of variables out.

NumPy's own steps, on traced arrays: what is centred and weighted goes into one matrix product.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.joining import concatenate
from tenferro.tracer.api.layout import atleast_2d, squeeze
from tenferro.tracer.api.linalg import dot
from tenferro.tracer.api.promotion import result_type
from tenferro.tracer.api.record import API, ApiFunction
from tenferro.tracer.api.reductions import number
from tenferro.tracer.dim import pinned
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced

DOUBLE = np.dtype(np.float64)


def cov(
    m: Any, y: Any = None, rowvar: bool = True, bias: bool = False, ddof: Any = None, fweights: Any = None,
    aweights: Any = None, *, dtype: Any = None,
) -> Any:  # fmt: skip
    """Σ w (x − x̄)(y − ȳ)* / f for each pair of rows (columns, unless ``rowvar``), with f = Σ w − ddof, or
    Σ w − ddof Σ w a / Σ w where there are weights ``a``; ``bias`` is a ddof of 0."""
    trace = running_trace("cov")
    arrays = [as_traced(trace, x, "cov") for x in (m, y) if x is not None]
    kinds = [dtype] if dtype is not None else [*(x.dtype for x in arrays), DOUBLE]
    kind = result_type([np.dtype(k) for k in kinds])
    parts = [_variables(x, kind, rowvar) for x in arrays]
    variables = parts[0] if y is None else concatenate(parts, axis=0)
    less = _degrees(ddof, bias)
    weights, factor = _weights(trace, variables, fweights, aweights, less)
    mean = API["average"].function(variables, axis=1, weights=weights)
    centred = variables - mean[:, None]
    weighted = centred if weights is None else centred * weights
    found = dot(centred, weighted.T.conj()) * (1.0 / API["maximum"].function(factor, 0.0)).astype(variables.real.dtype)
    return squeeze(found)


def _variables(x: TracedArray, dtype: np.dtype[Any], rowvar: bool) -> TracedArray:
    if x.ndim > 2:
        raise ShapeError(f"cov: observations of rank {x.ndim}; rank 2 at most is needed{at(user_line())}")
    rows: TracedArray = atleast_2d(x.astype(dtype))
    return rows if rowvar or x.ndim < 2 else rows.T


def _degrees(ddof: Any, bias: bool) -> int:
    ddof = pinned(ddof)
    if ddof is None:
        return 0 if bias else 1
    if ddof != int(ddof):
        raise ShapeError(f"cov: ddof {ddof!r}; an integer is needed{at(user_line())}")
    return int(ddof)


def _weights(
    trace: Trace, variables: TracedArray, fweights: Any, aweights: Any, less: int
) -> tuple[TracedArray | None, TracedArray]:
    """(the product of the weights, what the sum of products is divided by)."""
    count = variables.type.shape[1]
    given: list[TracedArray] = []
    for name, x, kinds in (("fweights", fweights, "iu"), ("aweights", aweights, "biuf")):
        if x is None:
            continue
        weight = as_traced(trace, x, "cov")
        if weight.dtype.kind not in kinds:
            needed = "integers" if kinds == "iu" else "real numbers"
            raise DtypeError(f"cov: {name} of dtype {weight.dtype.name}; {needed} are needed{at(user_line())}")
        if weight.ndim != 1 or not trace.guard("==", weight.type.shape[0], count):
            raise ShapeError(
                f"cov: {name} of shape {tuple(map(trace.hint, weight.type.shape))} for {trace.hint(count)} "
                f"observations; one for each is needed{at(user_line())}"
            )
        given.append(weight.astype(DOUBLE))
    if not given:
        return None, new(trace, number(trace, count, DOUBLE)) - less
    weights = given[0] if len(given) == 1 else given[0] * given[1]
    total = weights.sum()
    if aweights is None or not less:
        return weights, total - less
    return weights, total - less * (weights * given[-1]).sum() / total


def corrcoef(x: Any, y: Any = None, rowvar: bool = True, *, dtype: Any = None) -> Any:
    """Covariances over the roots of both variances; parts within [−1, 1], as NumPy has them."""
    found = cov(x, y, rowvar, dtype=dtype)
    if not found.ndim:
        return found / found
    root = API["sqrt"].function(API["diagonal"].function(found).real)
    found = found / root[:, None] / root[None, :]
    clip = API["clip"].function
    if found.dtype.kind != "c":
        return clip(found, -1, 1)
    real, imaginary = clip(found.real, -1, 1), clip(found.imag, -1, 1)
    return (real + imaginary * 1j).astype(found.dtype)


FUNCTIONS: tuple[ApiFunction, ...] = (
    ApiFunction("cov", cov, ("m", "y", "fweights", "aweights"), False, np.cov),
    ApiFunction("corrcoef", corrcoef, ("x", "y"), False, np.corrcoef),
)
