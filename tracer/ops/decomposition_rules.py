"""Derivatives and batches of linear algebra.

Formulas: Giles 2008, "An extended collection of matrix derivative results for forward and reverse mode algorithmic
differentiation"; Murray 2016, "Differentiation of the Cholesky decomposition"; Walter, Lehmann and Lamour 2012 for QR.
Decompositions whose factors are unique only up to signs or phases have the derivative of the factors as they are; that
of eigenvectors and singular vectors does not exist where values repeat, and is infinite there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import DerivativeError
from tenferro.tracer.lines import at
from tenferro.tracer.op import Tangents
from tenferro.tracer.ops.layout_rules import lanes, one
from tenferro.tracer.program import Operand, Operation

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation


def batch_matrices(b: Derivation, operation: Operation, batched: Sequence[bool], size: Extent) -> Sequence[Operand]:
    """One more batch axis."""
    return b.emit(operation.op, lanes(b, operation.inputs, batched, size), **operation.params)


def adjoint(b: Derivation, x: Operand) -> Operand:
    """The conjugate transpose."""
    found = b.swapped(x)
    return b.conjugate(found) if x.type.dtype.kind == "c" else found


def _masked(b: Derivation, x: Operand, relation: str) -> Operand:
    """The elements below, on and below, or on the diagonal; 0 elsewhere."""
    shape = x.type.shape
    rank = len(shape)
    row, column = b.iota(shape=shape, axis=rank - 2), b.iota(shape=shape, axis=rank - 1)
    test = {"below": b.less(column, row), "lower": b.less_equal(column, row), "diagonal": b.equal(row, column)}[
        relation
    ]
    return b.where(test, x, b.like(0, x))


def _identity(b: Derivation, like: Operand) -> Operand:
    ones = b.broadcast(b.like(1, like), like.type.shape)
    return _masked(b, ones, "diagonal")


def _halved(b: Derivation, x: Operand) -> Operand:
    """The lower triangle with half of the diagonal."""
    return b.subtract(_masked(b, x, "lower"), b.multiply(_masked(b, x, "diagonal"), b.like(0.5, x)))


def _solve_lower(b: Derivation, a: Operand, x: Operand, trans: int = 0) -> Operand:
    return b.triangular_solve(a, x, lower=True, trans=trans, unit=False)


def jvp_cholesky(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """L Φ(L⁻¹ dA L⁻ᴴ), where Φ takes the lower triangle and half of the diagonal; of dA its symmetric part counts."""
    (factor,), (t,) = operation.outputs, tangents
    assert t is not None
    t = b.multiply(b.add(t, adjoint(b, t)), b.like(0.5, t))
    inner = _solve_lower(b, factor, t)
    inner = adjoint(b, _solve_lower(b, factor, adjoint(b, inner)))
    return (b.matmul(factor, _halved(b, inner)),)


def jvp_solve(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """A⁻¹ (dB − dA X)."""
    (a, _), (x,), (s, t) = operation.inputs, operation.outputs, tangents
    right = t
    if s is not None:
        change = b.negative(b.matmul(s, x))
        right = change if t is None else b.add(t, change)
    return (b.solve(a, right),)


def transpose_solve(b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]) -> Tangents:
    """The system with the transpose."""
    if is_linear[0]:
        raise DerivativeError(f"solve: not linear in the matrix{at(operation.line)}")
    return (None, b.solve(b.swapped(operation.inputs[0]), one(cotangents)))


def _one_triangle(b: Derivation, x: Operand, operation: Operation) -> Operand:
    """What the triangle that is read says of a change of the matrix."""
    params = operation.params
    found = x if params["lower"] else b.swapped(x)
    found = _masked(b, found, "below" if params["unit"] else "lower")
    found = found if params["lower"] else b.swapped(found)
    match params["trans"]:
        case 0:
            return found
        case 1:
            return b.swapped(found)
        case _:
            return adjoint(b, found)


def jvp_triangular(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """A⁻¹ (dB − dA X), of the triangle of dA that is read."""
    (a, _), (x,), (s, t) = operation.inputs, operation.outputs, tangents
    right = t
    if s is not None:
        change = b.negative(b.matmul(_one_triangle(b, s, operation), x))
        right = change if t is None else b.add(t, change)
    return (b.triangular_solve(a, right, **operation.params),)


def transpose_triangular(
    b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]
) -> Tangents:
    """The system with the transpose."""
    a, params = operation.inputs[0], dict(operation.params)
    if is_linear[0]:
        raise DerivativeError(f"triangular_solve: not linear in the matrix{at(operation.line)}")
    if params["trans"] == 2:  # of Aᴴ the transpose is the conjugate
        a, params["trans"] = b.conjugate(a), 0
    else:
        params["trans"] = 1 - params["trans"]
    return (None, b.triangular_solve(a, one(cotangents), **params))


def jvp_inv(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """−A⁻¹ dA A⁻¹."""
    (x,), (t,) = operation.outputs, tangents
    assert t is not None
    return (b.negative(b.matmul(b.matmul(x, t), x)),)


def jvp_slogdet(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """tr(A⁻¹ dA): its real part for the logarithm, its imaginary part turns the sign."""
    (a,), (sign, _), (t,) = operation.inputs, operation.outputs, tangents
    assert t is not None
    product = _masked(b, b.solve(a, t), "diagonal")
    rank = len(product.type.shape)
    trace = b.sum(product, axes=(rank - 2, rank - 1), keepdims=False)
    if trace.type.dtype.kind != "c":
        return (None, trace)
    turn = b.multiply(b.convert(b.imag(trace), trace.type.dtype), b.like(1j, trace))
    return (b.multiply(turn, sign), b.real(trace))


def _column(b: Derivation, x: Operand) -> Operand:
    """A batch of vectors as columns."""
    shape = x.type.shape
    return b.reshaped(x, (*shape, 1))


def _row_of(b: Derivation, x: Operand) -> Operand:
    *batch, n = x.type.shape
    return b.reshaped(x, (*batch, 1, n))


def _pairs(b: Derivation, values: Operand) -> tuple[Operand, Operand]:
    """values[i] and values[j] in place (i, j)."""
    *batch, n = values.type.shape
    shape = (*batch, n, n)
    axes = tuple(range(len(shape)))
    rows = b.broadcast_to(_column(b, values), shape=shape, axes=axes)
    return rows, b.broadcast_to(_row_of(b, values), shape=shape, axes=axes)


def _reciprocal_off(b: Derivation, x: Operand) -> Operand:
    """1/x off the diagonal, 0 on it."""
    ones = _identity(b, x)
    inverse = b.divide(b.like(1, x), b.add(x, ones))
    return b.subtract(inverse, b.multiply(ones, inverse))


def _diagonal_of(b: Derivation, x: Operand) -> Operand:
    rank = len(x.type.shape)
    return b.sum(_masked(b, x, "diagonal"), axes=(rank - 1,), keepdims=False)


def jvp_eigh(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """With P = Vᴴ dA V: dw is its diagonal, dV = V (P / (w_j − w_i)). Of dA the Hermitian part counts."""
    (w, v), (t,) = operation.outputs, tangents
    assert t is not None
    t = b.multiply(b.add(t, adjoint(b, t)), b.like(0.5, t))
    p = b.matmul(adjoint(b, v), b.matmul(t, v))
    rows, columns = _pairs(b, w)
    gaps = _reciprocal_off(b, b.subtract(columns, rows))
    diagonal = _diagonal_of(b, p)
    dw = b.real(diagonal) if p.type.dtype.kind == "c" else diagonal
    return (dw, b.matmul(v, b.multiply(p, b.convert(gaps, p.type.dtype))))


def jvp_qr(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """With C = Qᴴ dA R⁻¹ and Ω the skew part of its lower triangle: dQ = Q (Ω − C) + dA R⁻¹, dR = (C − Ω) R."""
    (a,), (q, r), (t,) = operation.inputs, operation.outputs, tangents
    assert t is not None
    m, n = a.type.shape[-2:]
    if not b.trace.guard("<=", n, m):
        raise DerivativeError(
            f"qr: the derivative of a matrix that is wider than tall; one with at least as many rows as columns is "
            f"needed{at(operation.line)}"
        )
    x = b.swapped(b.triangular_solve(r, b.swapped(t), lower=False, trans=1, unit=False))
    c = b.matmul(adjoint(b, q), x)
    below = _masked(b, c, "below")
    skew = b.subtract(below, adjoint(b, below))
    if c.type.dtype.kind == "c":
        turn = b.multiply(b.convert(b.imag(c), c.type.dtype), b.like(1j, c))
        skew = b.add(skew, _masked(b, turn, "diagonal"))
    dq = b.add(b.matmul(q, b.subtract(skew, c)), x)
    return (dq, b.matmul(b.subtract(c, skew), r))


def jvp_svd(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
    """With P = Uᴴ dA V: ds is its real diagonal; dU = U (F ∘ (P S + S Pᴴ) + …) with F = 1 / (s_j² − s_i²), and what dA
    has outside of the factors' spaces."""
    (_,), (u, s, vh), (t,) = operation.inputs, operation.outputs, tangents
    assert t is not None
    dtype = u.type.dtype
    v = adjoint(b, vh)
    p = b.matmul(adjoint(b, u), b.matmul(t, v))
    diagonal = _diagonal_of(b, p)
    ds = b.real(diagonal) if dtype.kind == "c" else diagonal
    rows, columns = _pairs(b, s)
    gaps = _reciprocal_off(b, b.multiply(b.subtract(columns, rows), b.add(columns, rows)))
    rows, columns, gaps = (b.convert(x, dtype) for x in (rows, columns, gaps))
    ph = adjoint(b, p)
    inverse = b.convert(b.divide(b.like(1, s), s), dtype)
    du = b.matmul(u, b.multiply(gaps, b.add(b.multiply(p, columns), b.multiply(rows, ph))))
    dv = b.matmul(v, b.multiply(gaps, b.add(b.multiply(rows, p), b.multiply(ph, columns))))
    if dtype.kind == "c":  # the phases of U's columns; V's are as they are
        turn = b.multiply(b.convert(b.imag(diagonal), dtype), b.like(1j, p))
        phase = b.multiply(turn, inverse)
        du = b.add(du, b.multiply(u, b.broadcast_to(_row_of(b, phase), shape=u.type.shape, axes=_all(u))))
    left = b.subtract(b.matmul(t, v), b.matmul(u, p))
    du = b.add(du, b.multiply(left, b.broadcast_to(_row_of(b, inverse), shape=u.type.shape, axes=_all(u))))
    right = b.subtract(b.matmul(adjoint(b, t), u), b.matmul(v, ph))
    dv = b.add(dv, b.multiply(right, b.broadcast_to(_row_of(b, inverse), shape=v.type.shape, axes=_all(v))))
    return (du, ds, adjoint(b, dv))


def _all(x: Operand) -> tuple[int, ...]:
    return tuple(range(len(x.type.shape)))
