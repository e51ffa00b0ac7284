"""Further functions of ``numpy.linalg`` and ``scipy.linalg``: norms, tensors as matrices, matrices of a form, factors.

Those whose names NumPy's main namespace gives to other functions are ``linalg.trace``, ``linalg.diagonal``, … in the
table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import arange, zeros
from tenferro.tracer.api.decompositions import cholesky, inv, norm, solve, triangular_solve
from tenferro.tracer.api.deliver import new_array
from tenferro.tracer.api.elementwise import where
from tenferro.tracer.api.indexing import take
from tenferro.tracer.api.joining import concatenate
from tenferro.tracer.api.layout import as_tuple, axis_of, ravel, transpose
from tenferro.tracer.api.linalg import diagonal, outer, trace_
from tenferro.tracer.api.promotion import result_type
from tenferro.tracer.api.record import API, ApiFunction, TracedFunction
from tenferro.tracer.dim import integer, make_dim
from tenferro.tracer.dims import mul, product
from tenferro.tracer.errors import LinAlgError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import running_trace
from tenferro.tracer.traced import as_traced, operand

# -- norms and products ----------------------------------------------------------------------------------------------


def matrix_norm(x: Any, /, *, keepdims: bool = False, ord: Any = "fro") -> Any:
    """The norm of matrices in the last two axes."""
    return norm(x, ord, (-2, -1), keepdims)


def vector_norm(x: Any, /, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    """The norm of vectors along an axis, or of the elements over several."""
    array = as_traced(running_trace("vector_norm"), x, "vector_norm")
    if axis is None:
        named = list(range(array.ndim))
        found = norm(ravel(array), ord, 0)
    else:
        named = [axis_of(k, array.ndim, "vector_norm") for k in as_tuple(axis)]
        rest = [k for k in range(array.ndim) if k not in named]
        shape = array.type.shape
        flat = build.transpose(array.live_trace(), array.read(), [*named, *rest])
        flat = build.reshape(array.live_trace(), flat, (product(shape[k] for k in named), *(shape[k] for k in rest)))
        found = norm(new_array(array.live_trace(), flat), ord, 0)
    return API["expand_dims"].function(found, tuple(sorted(named))) if keepdims and named else found


def _trace(x: Any, /, *, offset: int = 0, dtype: Any = None) -> Any:
    """The sum along a diagonal of matrices in the last two axes."""
    return trace_(x, offset, -2, -1, dtype)


def _diagonal(x: Any, /, *, offset: int = 0) -> Any:
    """A diagonal of matrices in the last two axes, as a read-only view."""
    return diagonal(x, offset, -2, -1)


def _outer(x1: Any, x2: Any, /) -> Any:
    """All products of two vectors."""
    ranks = [as_traced(running_trace("outer"), x, "outer").ndim for x in (x1, x2)]
    if ranks != [1, 1]:
        raise ShapeError(f"outer: ranks {ranks[0]} and {ranks[1]}; vectors are needed{at(user_line())}")
    return outer(x1, x2)


def _cross(x1: Any, x2: Any, /, *, axis: int = -1) -> Any:
    """The vector product of vectors of three elements along an axis."""
    trace = running_trace("cross")
    arrays = [as_traced(trace, x, "cross") for x in (x1, x2)]
    for x in arrays:
        if not trace.guard("==", x.type.shape[axis_of(axis, x.ndim, "cross")], 3):
            raise ShapeError(f"cross: vectors of another size than 3; three elements are needed{at(user_line())}")
    (a, b), last = (API["moveaxis"].function(x, axis, -1) for x in arrays), -1
    parts = [a[..., (k + 1) % 3] * b[..., (k + 2) % 3] - a[..., (k + 2) % 3] * b[..., (k + 1) % 3] for k in range(3)]
    return API["moveaxis"].function(API["stack"].function(parts, axis=last), last, axis)


# -- tensors as matrices ---------------------------------------------------------------------------------------------


def tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    """x with ``tensordot(a, x, x.ndim) == b``; ``axes`` of a go behind the others first."""
    trace = running_trace("tensorsolve")
    left, right = as_traced(trace, a, "tensorsolve"), as_traced(trace, b, "tensorsolve")
    if axes is not None:
        moved = [axis_of(k, left.ndim, "tensorsolve") for k in as_tuple(axes)]
        left = transpose(left, [k for k in range(left.ndim) if k not in moved] + moved)
    shape = left.type.shape[right.ndim :]
    size = product(shape)
    elements = product(left.type.shape)
    if not trace.guard("==", elements, mul(size, size)):
        raise LinAlgError(
            f"tensorsolve: a of {trace.describe(elements)} elements for an x of {trace.describe(size)}; the square of "
            f"these is needed{at(user_line())}"
        )
    n = make_dim(trace, size)
    return solve(left.reshape(n, n), ravel(right)).reshape(tuple(make_dim(trace, k) for k in shape))


def tensorinv(a: Any, ind: int = 2) -> Any:
    """The inverse for ``tensordot`` over ``ind`` axes."""
    trace = running_trace("tensorinv")
    array, count = as_traced(trace, a, "tensorinv"), integer(ind, "tensorinv", "ind")
    if count <= 0:
        raise ShapeError(f"tensorinv: ind is {count}; 1 or more is needed{at(user_line())}")
    front, behind = array.shape[:count], array.shape[count:]
    size = make_dim(trace, product(array.type.shape[count:]))
    return inv(array.reshape(size, -1)).reshape((*behind, *front))


# -- matrices of a form ----------------------------------------------------------------------------------------------


def block_diag(*arrs: Any) -> Any:
    """The matrices along the diagonal of one that is 0 elsewhere; vectors count as rows."""
    trace = running_trace("block_diag")
    parts = [API["atleast_2d"].function(as_traced(trace, x, "block_diag")) for x in arrs or ([],)]
    if any(x.ndim > 2 for x in parts):
        raise ShapeError(f"block_diag: ranks {[x.ndim for x in parts]}; 2 at most is needed{at(user_line())}")
    dtype = result_type([operand(trace, x, "block_diag")[1] for x in parts])
    made = zeros((sum(x.shape[0] for x in parts), sum(x.shape[1] for x in parts)), dtype)
    row: Any = 0
    column: Any = 0
    for x in parts:
        made[row : row + x.shape[0], column : column + x.shape[1]] = x
        row, column = row + x.shape[0], column + x.shape[1]
    return made


def toeplitz(c: Any, r: Any = None) -> Any:
    """The matrix whose first column is c and whose first row is r (c conjugated, by default), constant along
    diagonals; r[0] is not read."""
    trace = running_trace("toeplitz")
    column = ravel(as_traced(trace, c, "toeplitz"))
    row = API["conjugate"].function(column) if r is None else ravel(as_traced(trace, r, "toeplitz"))
    values = concatenate([column[::-1], row[1:]])
    m, n = column.shape[0], row.shape[0]
    return take(values, arange(n)[None, :] - arange(m)[:, None] + (m - 1))


# -- factors and functions -------------------------------------------------------------------------------------------


def solve_triangular(a: Any, b: Any, trans: Any = 0, lower: bool = False, unit_diagonal: bool = False) -> Any:
    """``triangular_solve`` with SciPy's arguments."""
    return triangular_solve(a, b, lower=lower, trans=trans, unit_diagonal=unit_diagonal)


def cho_factor(a: Any, lower: bool = False) -> Any:
    """(factor, lower) for ``cho_solve``: the Cholesky factor of a; what lies beside its triangle is 0."""
    return cholesky(a, upper=not lower), lower


PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0,
    10559470521600.0, 670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
"""The numerator's coefficients of the Padé approximant of e^x of degree 13 (Higham 2005, "The scaling and squaring
method for the matrix exponential revisited", table 2.3)."""
PADE_LIMIT = 5.371920351148152
"""θ₁₃ of the same: to this 1-norm the approximant is exact to float64's precision."""


def expm(A: Any) -> Any:
    """The exponential of square matrices, by a Padé approximant, scaling and squaring. A batch is scaled by its largest
    norm; at most 1024 squarings."""
    from tenferro.tracer.transform import control  # made of the table of ops

    trace = running_trace("expm")
    array = as_traced(trace, A, "expm")
    if array.dtype.kind not in "fc" or array.dtype == np.float16:
        array = array.astype(np.float64)
    if array.ndim < 2 or not trace.guard("==", *array.type.shape[-2:]):
        raise ShapeError(f"expm: an array of shape {array.shape}; square matrices are needed{at(user_line())}")
    size = API["abs"].function(array).sum(axis=-2).max(initial=0)
    held = _constant(size)
    times = API["ceil"].function(API["log2"].function(API["maximum"].function(held / PADE_LIMIT, 1)))
    times = where(times < 1024, times, 0).astype(np.int64)
    approximated = _pade(array * (0.5**times).astype(array.real.dtype))
    _, found = control.while_loop(
        trace, lambda state: state[0] > 0, lambda state: (state[0] - 1, state[1] @ state[1]), (times, approximated),
        "expm",
    )  # fmt: skip
    return found


def _constant(x: Any) -> Any:
    """The same number, constant to derivatives: how often is squared does not change the result."""
    from tenferro.tracer.transform import marks

    trace = running_trace("stop_gradient")
    return new_array(trace, trace.emit1(marks.stop_gradient, x.read()))


def _pade(x: Any) -> Any:
    """(V − U)⁻¹ (V + U), the odd part U and the even part V of the numerator."""
    one = API["eye"].function(x.shape[-1], dtype=x.dtype)
    b = [x.real.dtype.type(c) for c in PADE]
    x2 = x @ x
    x4 = x2 @ x2
    x6 = x4 @ x2
    u = x @ (x6 @ (b[13] * x6 + b[11] * x4 + b[9] * x2) + b[7] * x6 + b[5] * x4 + b[3] * x2 + b[1] * one)
    v = x6 @ (b[12] * x6 + b[10] * x4 + b[8] * x2) + b[6] * x6 + b[4] * x4 + b[2] * x2 + b[0] * one
    return solve(v - u, v + u)


# -- records ---------------------------------------------------------------------------------------------------------


def _of_numpy(function: Callable[..., Any], *arrays: str) -> ApiFunction:
    name = function.__name__
    return ApiFunction(name, function, arrays, False, getattr(np.linalg, name))


def _dotted(name: str, function: Callable[..., Any], *arrays: str, view: bool = False) -> ApiFunction:
    return ApiFunction(f"linalg.{name}", function, arrays, view, getattr(np.linalg, name))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _of_numpy(matrix_norm, "x"),
    _of_numpy(vector_norm, "x"),
    _of_numpy(tensorsolve, "a", "b"),
    _of_numpy(tensorinv, "a"),
    _dotted("trace", _trace, "x"),
    _dotted("diagonal", _diagonal, "x", view=True),
    _dotted("outer", _outer, "x1", "x2"),
    _dotted("cross", _cross, "x1", "x2"),
)
OF_SCIPY: dict[str, TracedFunction] = {
    f.__name__: TracedFunction(f.__name__, f, arrays)
    for f, arrays in (
        (block_diag, ("arrs",)),
        (toeplitz, ("c", "r")),
        (solve_triangular, ("a", "b")),
        (cho_factor, ("a",)),
        (expm, ("A",)),
    )
}
"""By SciPy's name in ``scipy.linalg``."""
