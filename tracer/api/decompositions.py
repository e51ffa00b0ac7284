"""``numpy.linalg`` by name: matrices in, factors, solutions and numbers made of them out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.deliver import new, new_array
from tenferro.tracer.api.promotion import broadcast_shapes, converted
from tenferro.tracer.api.record import API, ApiFunction
from tenferro.tracer.dim import integer
from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import DtypeError, LinAlgError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import decompositions as rows
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import as_traced, operand

FLOAT64 = np.dtype(np.float64)


def matrices(name: str, *xs: Any) -> tuple[Trace, list[Operand]]:
    """The arguments in the one dtype that LAPACK takes them in: integers and bools as float64, no float16."""
    trace = running_trace(name)
    pairs = [operand(trace, as_traced(trace, x, name), name) for x in xs]
    dtype = np.result_type(*(x.type.dtype for x, _ in pairs))
    if dtype.kind in "biu":
        dtype = FLOAT64
    if dtype.str[1:] not in rows.KINDS:
        raise DtypeError(
            f"{name}: dtype {dtype.name}; float32, float64, complex64 or complex128 is needed{at(user_line())}"
        )
    return trace, [converted(trace, x, dtype, name) for x, _ in pairs]


def _check_matrix(trace: Trace, name: str, x: Operand, square: bool = True) -> None:
    shape = x.type.shape
    if len(shape) < 2:
        raise LinAlgError(f"{name}: {len(shape)}-dimensional array given; rank 2 or more is needed{at(user_line())}")
    if square and not trace.guard("==", shape[-1], shape[-2]):
        raise LinAlgError(
            f"{name}: matrices of {trace.describe(shape[-2])} rows and {trace.describe(shape[-1])} columns; square "
            f"ones are needed{at(user_line())}"
        )


def _square(trace: Trace, name: str, x: Operand) -> Operand:
    """A batch of square matrices whose last two sizes are one expression."""
    _check_matrix(trace, name, x)
    *batch, _, n = x.type.shape
    wanted = (*batch, n, n)
    return x if x.type.shape == wanted else build.reshape(trace, x, wanted)


def cholesky(a: Any, /, *, upper: bool = False) -> Any:
    """The lower factor L of L Lᴴ = a, or the upper one. LinAlgError where a is not positive definite."""
    trace, (x,) = matrices("cholesky", a)
    found = new_array(trace, trace.emit1(rows.cholesky, _square(trace, "cholesky", x)))
    return adjoint(found) if upper else found


def adjoint(x: Any) -> Any:
    """The conjugate transpose of matrices."""
    turned = x.swapaxes(-1, -2)
    return turned.conj() if x.dtype.kind == "c" else turned


def _system(name: str, a: Any, b: Any, **params: Any) -> Any:
    """A matrix, or a batch, and right-hand sides: a vector is one where b has rank 1."""
    trace, (left, right) = matrices(name, a, b)
    left = _square(trace, name, left)
    is_vector = len(right.type.shape) == 1
    if not right.type.shape:
        raise ShapeError(f"{name}: right-hand sides of rank 0; rank 1 or more is needed{at(user_line())}")
    if is_vector:
        right = build.reshape(trace, right, (*right.type.shape, 1))
    if not trace.guard("==", left.type.shape[-1], right.type.shape[-2]):
        raise ShapeError(
            f"{name}: matrices of {trace.describe(left.type.shape[-1])} rows, right-hand sides of "
            f"{trace.describe(right.type.shape[-2])}; they must be equal{at(user_line())}"
        )
    batch = broadcast_shapes(trace, name, [left.type.shape[:-2], right.type.shape[:-2]])
    left = build.broadcast(trace, left, (*batch, *left.type.shape[-2:]))
    right = build.broadcast(trace, right, (*batch, left.type.shape[-1], right.type.shape[-1]))
    row = rows.solve if name == "solve" else rows.triangular_solve
    found = trace.emit1(row, left, right, **params)
    if is_vector:
        found = build.reshape(trace, found, found.type.shape[:-1])  # type: ignore[assignment]
    return new_array(trace, found)


def solve(a: Any, b: Any) -> Any:
    """x with a x = b. LinAlgError where a is singular."""
    return _system("solve", a, b)


def triangular_solve(a: Any, b: Any, *, lower: bool = False, trans: int = 0, unit_diagonal: bool = False) -> Any:
    """x with a x = b for a triangular matrix, of which only that triangle is read. trans: 1 for aᵀ, 2 for aᴴ."""
    transposition = integer({"N": 0, "T": 1, "C": 2}.get(trans, trans), "triangular_solve", "trans")  # type: ignore[call-overload]
    if transposition not in (0, 1, 2):
        raise ShapeError(f"triangular_solve: trans is {trans!r}; 0, 1 or 2 is needed{at(user_line())}")
    return _system("triangular_solve", a, b, lower=bool(lower), trans=transposition, unit=bool(unit_diagonal))


def inv(a: Any) -> Any:
    """The inverse. LinAlgError where a is singular."""
    trace, (x,) = matrices("inv", a)
    return new_array(trace, trace.emit1(rows.inv, _square(trace, "inv", x)))


def _named(name: str, fields: Sequence[str], values: Sequence[Any]) -> Any:
    """NumPy's own named tuple of results."""
    kind: Callable[..., Any] = getattr(np.linalg._linalg, name)
    return kind(*values)


def slogdet(a: Any) -> Any:
    """The sign of the determinant and the logarithm of its absolute value."""
    trace, (x,) = matrices("slogdet", a)
    sign, logarithm = trace.emit(rows.slogdet, [_square(trace, "slogdet", x)])
    return _named("SlogdetResult", ("sign", "logabsdet"), (new(trace, sign), new(trace, logarithm)))


def det(a: Any) -> Any:
    """The determinant."""
    sign, logarithm = slogdet(a)
    return sign * np.exp(logarithm)


def eigh(a: Any, UPLO: str = "L") -> Any:
    """Eigenvalues in ascending order and eigenvectors, as columns, of a symmetric or Hermitian matrix."""
    if UPLO.upper() not in ("L", "U"):
        raise ShapeError(f"eigh: UPLO is {UPLO!r}; 'L' or 'U' is needed{at(user_line())}")
    trace, (x,) = matrices("eigh", a)
    x = _square(trace, "eigh", x)
    if UPLO.upper() == "U":
        x = adjoint(new_array(trace, x)).read()
    values, vectors = trace.emit(rows.eigh, [x])
    return _named("EighResult", ("eigenvalues", "eigenvectors"), (new_array(trace, values), new_array(trace, vectors)))


def eigvalsh(a: Any, UPLO: str = "L") -> Any:
    """Eigenvalues in ascending order of a symmetric or Hermitian matrix."""
    return eigh(a, UPLO)[0]


def _smaller(trace: Trace, x: Operand) -> Extent:
    """Of a matrix's two sizes, by a guard."""
    m, n = x.type.shape[-2:]
    return n if trace.guard("<=", n, m) else m


def qr(a: Any, mode: str = "reduced") -> Any:
    """Orthonormal columns and an upper triangle whose product is a; with mode 'r' the triangle alone."""
    if mode not in ("reduced", "r"):
        raise TraceError(f"qr: mode {mode!r}; 'reduced' or 'r' is needed in a traced function{at(user_line())}")
    trace, (x,) = matrices("qr", a)
    _check_matrix(trace, "qr", x, square=False)
    q, r = trace.emit(rows.qr, [x], inner=_smaller(trace, x))
    if mode == "r":
        return new_array(trace, r)
    return _named("QRResult", ("Q", "R"), (new_array(trace, q), new_array(trace, r)))


def svd(a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False) -> Any:
    """Singular values in descending order, between orthonormal columns and rows; ``full_matrices=False`` is needed with
    vectors."""
    trace, (x,) = matrices("svd", a)
    _check_matrix(trace, "svd", x, square=False)
    if compute_uv and full_matrices and not trace.guard("==", x.type.shape[-1], x.type.shape[-2]):
        raise TraceError(
            f"svd: full_matrices=True; full_matrices=False is needed in a traced function{at(user_line())}"
        )
    u, s, vh = (new_array(trace, y) for y in trace.emit(rows.svd, [x], inner=_smaller(trace, x)))
    return _named("SVDResult", ("U", "S", "Vh"), (u, s, vh)) if compute_uv else s


def svdvals(x: Any, /) -> Any:
    """Singular values in descending order."""
    return svd(x, compute_uv=False)


def matrix_power(a: Any, n: int) -> Any:
    """The n-th power of square matrices, by squaring; of the inverse for negative n."""
    trace = running_trace("matrix_power")
    x = as_traced(trace, a, "matrix_power")
    _check_matrix(trace, "matrix_power", x.read())
    power = integer(n, "matrix_power", "n")
    if power < 0:
        x, power = inv(x), -power
    if power == 0:
        return API["broadcast_to"].function(API["eye"].function(x.shape[-1], dtype=x.dtype), x.shape) + 0
    result: Any = None
    while power:
        if power & 1:
            result = x if result is None else result @ x
        power >>= 1
        x = x @ x if power else x
    return result


def multi_dot(arrays: Sequence[Any], *, out: Any = None) -> Any:
    """The product of matrices, from the left."""
    if len(arrays) < 2:
        raise ShapeError(f"multi_dot: {len(arrays)} arrays; at least two are needed{at(user_line())}")
    trace = running_trace("multi_dot")
    result = as_traced(trace, arrays[0], "multi_dot")
    for x in arrays[1:]:
        result = API["dot"].function(result, x)
    return result


def norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:
    """The norm of vectors along an axis or of matrices in two. Its slope at 0 is 0."""
    trace = running_trace("norm")
    array = as_traced(trace, x, "norm")
    if array.dtype.kind in "biu":
        array = array.astype(np.float64)
    if axis is None and (ord is None or (ord == 2 and array.ndim == 1) or (ord in ("fro", "f") and array.ndim == 2)):
        found = _root(_squares(array).sum())
        return found.reshape((1,) * array.ndim) if keepdims else found
    axes = tuple(range(array.ndim)) if axis is None else (axis if isinstance(axis, tuple) else (axis,))
    if len(axes) == 1:
        return _vector_norm(array, ord, axes[0], keepdims)
    if len(axes) == 2:
        return _matrix_norm(array, ord, axes, keepdims)
    raise ShapeError(f"norm: {len(axes)} axes; one or two are needed{at(user_line())}")


def _squares(x: Any) -> Any:
    return (x.real * x.real + x.imag * x.imag) if x.dtype.kind == "c" else x * x


def _root(x: Any) -> Any:
    """The square root, with slope 0 at 0."""
    is_zero = x == 0
    found = np.where(is_zero, 0 * x, np.sqrt(np.where(is_zero, 1 + 0 * x, x)))
    return found if found.ndim else found[()]


def _vector_norm(x: Any, ord: Any, axis: int, keepdims: bool) -> Any:
    if ord is None or ord == 2:
        return _root(_squares(x).sum(axis=axis, keepdims=keepdims))
    if ord == np.inf:
        return abs(x).max(axis=axis, keepdims=keepdims, initial=0)
    if ord == -np.inf:
        return abs(x).min(axis=axis, keepdims=keepdims)
    if ord == 0:
        return (x != 0).astype(x.real.dtype).sum(axis=axis, keepdims=keepdims)
    if ord == 1:
        return abs(x).sum(axis=axis, keepdims=keepdims)
    if isinstance(ord, int | float):
        return (abs(x) ** ord).sum(axis=axis, keepdims=keepdims) ** (1 / ord)
    raise ShapeError(f"norm: ord {ord!r} for vectors; a number, inf or None is needed{at(user_line())}")


def _matrix_norm(x: Any, ord: Any, axes: tuple[int, ...], keepdims: bool) -> Any:
    first, second = (a % x.ndim for a in axes)
    if ord in (None, "fro", "f"):
        return _root(_squares(x).sum(axis=(first, second), keepdims=keepdims))
    moved = API["moveaxis"].function(x, (first, second), (-2, -1))
    if ord == "nuc":
        found = svdvals(moved).sum(axis=-1)
    elif ord in (2, -2):
        values = svdvals(moved)
        found = values.max(axis=-1, initial=0) if ord == 2 else values.min(axis=-1)
    elif ord in (1, -1, np.inf, -np.inf):
        sums = abs(moved).sum(axis=-2 if abs(ord) == 1 else -1)
        found = sums.max(axis=-1, initial=0) if ord > 0 else sums.min(axis=-1)
    else:
        raise ShapeError(
            f"norm: ord {ord!r} for matrices; 'fro', 'nuc', 1, -1, 2, -2, inf or -inf is needed{at(user_line())}"
        )
    if not keepdims:
        return found
    shape = [1 if k in (first, second) else n for k, n in enumerate(x.shape)]
    return found.reshape(tuple(shape))


def cho_solve(factor: Any, b: Any, lower: bool = True) -> Any:
    """x with a x = b, from the Cholesky factor of a, or from the pair that ``cho_factor`` gives."""
    if isinstance(factor, tuple):
        factor, lower = factor
    first = triangular_solve(factor, b, lower=lower, trans=0 if lower else 2)
    return triangular_solve(factor, first, lower=lower, trans=2 if lower else 0)


def _substituted(a: Any, b: Any, *, lower: bool = False, trans: int = 0, unit_diagonal: bool = False) -> Any:
    a, b = np.asarray(a), np.asarray(b)
    wide = b[:, None] if b.ndim == 1 else b
    found = rows.triangular_solve.reference(a, wide, lower=lower, trans=trans, unit=unit_diagonal)
    return found[:, 0] if b.ndim == 1 else found


def _cho_solved(factor: Any, b: Any, lower: bool = True) -> Any:
    first = _substituted(factor, b, lower=lower, trans=0 if lower else 2)
    return _substituted(factor, first, lower=lower, trans=2 if lower else 0)


def _f(
    function: Callable[..., Any], arrays: tuple[str, ...], reference: Callable[..., Any] | None = None
) -> ApiFunction:
    name = function.__name__
    return ApiFunction(name, function, arrays, False, getattr(np.linalg, name) if reference is None else reference)


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f(cholesky, ("a",)), _f(solve, ("a", "b")), _f(triangular_solve, ("a", "b"), _substituted), _f(inv, ("a",)),
    _f(slogdet, ("a",)), _f(det, ("a",)), _f(eigh, ("a",)), _f(eigvalsh, ("a",)), _f(qr, ("a",)), _f(svd, ("a",)),
    _f(svdvals, ("x",)), _f(matrix_power, ("a",)), _f(multi_dot, ("arrays",)), _f(norm, ("x",)),
    _f(cho_solve, ("factor", "b"), _cho_solved),
)  # fmt: skip
