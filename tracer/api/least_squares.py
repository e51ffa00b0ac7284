"""What is made of singular values: inverses and solutions of matrices that need not be square, ranks, conditions.

In: matrices, or batches of them. Out: arrays as ``numpy.linalg`` gives them. Derivatives of ``pinv`` and ``lstsq`` are
those of the Moore–Penrose inverse at constant rank (Golub and Pereyra 1973, eq. 4.12), whether or not singular values
are equal.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.decompositions import adjoint, inv, matrices, norm, svd, svdvals
from tenferro.tracer.api.deliver import new, new_array
from tenferro.tracer.api.elementwise import where
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.dim import make_dim
from tenferro.tracer.dims import maximum
from tenferro.tracer.errors import LinAlgError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Tangents
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced

INT64 = np.dtype(np.int64)


def _larger(trace: Trace, x: TracedArray) -> Any:
    """Of a matrix's two sizes, as a size."""
    return make_dim(trace, maximum(*x.type.shape[-2:]))


def _limit(trace: Trace, x: TracedArray, s: TracedArray, share: Any) -> Any:
    """What singular values are compared with: a share of the largest, one for each matrix."""
    return _of_each(trace, share, "rtol") * s.max(axis=-1, keepdims=True, initial=0)


def _of_each(trace: Trace, x: Any, name: str) -> Any:
    """A number as it is; an array of one for each matrix with an axis for the singular values behind."""
    array = as_traced(trace, x, name)
    return array[..., None] if array.ndim else array


def pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """The Moore–Penrose inverse; singular values below ``rcond`` times the largest count as 0."""
    from tenferro.tracer.transform import custom, inputs, marks  # made of the table of ops

    if rcond is not None and rtol is not None:
        raise ShapeError(f"pinv: rcond and rtol; one of them is needed{at(user_line())}")
    trace, (value,) = matrices("pinv", a)
    share = 1e-15 if rcond is None and rtol is None else rcond if rtol is None else rtol

    def code(
        trace: Trace, primals: Any, tangents: Tangents, wanted: Any
    ) -> tuple[list[Operand], list[Operand | None]]:  # fmt: skip
        x, (t,) = new_array(trace, primals[0]), tangents
        found = pinv(x, share)
        assert isinstance(found, TracedArray)
        return [found.read()], [None if t is None else _slope(x, found, new_array(trace, t)).read()]

    rule = custom.ForwardRule("pinv", 1, code)
    given = inputs.open_tree(trace, new_array(trace, value), "pinv")
    return custom.call(trace, lambda x: _inverse(trace, x, share), given, marks.custom_jvp, rule)


def _inverse(trace: Trace, x: TracedArray, share: Any) -> Any:
    u, s, vh = svd(x, full_matrices=False)
    kept = s > _limit(trace, x, s, share)
    inverse = where(kept, 1 / where(kept, s, 1), 0)
    return adjoint(vh) @ (inverse[..., None] * adjoint(u))


def _slope(x: Any, p: Any, t: Any) -> Any:
    """−P t P + P Pᴴ tᴴ (1 − x P) + (1 − P x) tᴴ Pᴴ P."""
    ph, th = adjoint(p), adjoint(t)
    left, right = p @ (ph @ th), (th @ ph) @ p
    return -p @ t @ p + left - (left @ x) @ p + right - p @ (x @ right)


def lstsq(a: Any, b: Any, rcond: Any = None) -> Any:
    """(x, residuals, rank, singular values): the x of least norm that minimises |a x − b|, for each column of b.
    Singular values below ``rcond`` times the largest count as 0. residuals: Σ |a x − b|² of each column, none where
    the rank is below the columns of a or there are no more rows than columns; so their number is known when the
    program has run. Lanes of ``vmap``, which have one size, have them whatever the rank is."""
    trace, (left, right) = matrices("lstsq", a, b)
    is_vector = len(right.type.shape) == 1
    if is_vector:
        right = build.reshape(trace, right, (*right.type.shape, 1))
    x, y = new_array(trace, left), new_array(trace, right)
    if x.ndim != 2 or y.ndim != 2:
        raise LinAlgError(f"lstsq: ranks {x.ndim} and {y.ndim}; 2, and 1 or 2, are needed{at(user_line())}")
    (m, n), rows = x.type.shape, y.type.shape[0]
    if not trace.guard("==", m, rows):
        raise LinAlgError(
            f"lstsq: a of {trace.describe(m)} rows, right-hand sides of {trace.describe(rows)}; they must be "
            f"equal{at(user_line())}"
        )
    eps = float(np.finfo(x.dtype).eps)
    share = _larger(trace, x) * eps if rcond is None else eps if type(rcond) in (int, float) and rcond < 0 else rcond
    s = svdvals(x)
    count = (s > _limit(trace, x, s, share)).sum(axis=-1)
    found = pinv(x, share) @ y
    rest = x @ found - y
    squares = (rest.real * rest.real + rest.imag * rest.imag if x.dtype.kind == "c" else rest * rest).sum(axis=0)
    is_told = new(trace, build.copied(trace, build.broadcast(trace, (count == x.shape[1]).read(), squares.type.shape)))
    if not trace.guard("<", n, m):
        squares = squares[:0]
    elif not trace.axes:
        squares = squares[is_told]
    return (found[:, 0].copy() if is_vector else found), squares, count.astype(np.int32), s


def matrix_rank(A: Any, tol: Any = None, hermitian: bool = False, *, rtol: Any = None) -> Any:
    """How many singular values are above ``tol``, or above ``rtol`` times the largest: for None the larger size times
    the dtype's eps."""
    trace = running_trace("matrix_rank")
    if tol is not None and rtol is not None:
        raise ShapeError(f"matrix_rank: tol and rtol; one of them is needed{at(user_line())}")
    array = as_traced(trace, A, "matrix_rank")
    if array.ndim < 2:
        return (array != 0).any().astype(INT64)
    s = svdvals(array)
    if tol is None:
        share = _larger(trace, array) * float(np.finfo(s.dtype).eps) if rtol is None else rtol
        limit = _limit(trace, array, s, share)
    else:
        limit = _of_each(trace, tol, "tol")
    return (s > limit).sum(axis=-1)


def cond(x: Any, p: Any = None) -> Any:
    """The condition number: of the singular values, or for another norm than ``None``, 2 and −2 ‖x‖ ‖x⁻¹‖, where a
    singular x is a LinAlgError."""
    trace = running_trace("cond")
    array = as_traced(trace, x, "cond")
    if array.ndim < 2:
        raise LinAlgError(f"cond: rank {array.ndim}; rank 2 or more is needed{at(user_line())}")
    if not all(trace.guard("<", 0, n) for n in array.type.shape[-2:]):
        raise LinAlgError(f"cond: matrices without elements; one or more are needed{at(user_line())}")
    if p not in (None, 2, -2):
        inverse = inv(array)
        return norm(array, p, (-2, -1)) * norm(inverse, p, (-2, -1))
    s = svdvals(array)
    found = s[..., -1] / s[..., 0] if p == -2 else s[..., 0] / s[..., -1]
    found = where(found == found, found, np.inf) if p != -2 else found
    return found if found.ndim else found[()]


def _f(function: Any, *arrays: str) -> ApiFunction:
    name = function.__name__
    return ApiFunction(name, function, arrays, False, getattr(np.linalg, name))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f(pinv, "a", "rcond", "rtol"),
    _f(lstsq, "a", "b", "rcond"),
    _f(matrix_rank, "A", "tol", "rtol"),
    _f(cond, "x"),
)
