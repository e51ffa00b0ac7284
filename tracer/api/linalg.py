"""Matrix products: NumPy's rules for ranks in, the row of batched products (or a fused sum) out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.contraction import contracted, summed
from tenferro.tracer.api.deliver import deliver, new_array, strengthened
from tenferro.tracer.api.layout import axis_of, moveaxis, ravel
from tenferro.tracer.api.promotion import aligned, broadcast_shapes, converted, resolve, result_type, sizes_text
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.api.reductions import sum_
from tenferro.tracer.cells import Diagonal
from tenferro.tracer.dim import integer, pinned
from tenferro.tracer.dims import Extent, maximum, minimum, product, sub
from tenferro.tracer.errors import AxisError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import library, pointwise as p
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import as_traced, operand


def _contract(trace: Trace, name: str, a: Operand, b: Operand, k: int, j: int) -> Extent:
    """The size that both contracted axes have, guarded."""
    ours, theirs = a.type.shape, b.type.shape
    n, m = ours[k], theirs[j]
    if not trace.guard("==", n, m):
        raise ShapeError(
            f"{name}: axis {k % len(ours)} of a {sizes_text(trace, ours)} has size {trace.hint(n)}, axis "
            f"{j % len(theirs)} of b {sizes_text(trace, theirs)} has size {trace.hint(m)}; they must be "
            f"equal{at(user_line())}"
        )
    return trace.canonical(n)


def _dot_1d(trace: Trace, name: str, a: Operand, b: Operand) -> Operand:
    """Σ a b as a fused sum."""
    _contract(trace, name, a, b, 0, 0)
    return summed(trace, a, aligned(trace, b, a.type.shape), (0,))


def matmul(x1: Any, x2: Any, /, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """Matrix product with broadcast batch axes; a vector is a row on the left, a column on the right."""
    trace = running_trace("matmul")
    (a, a_key), (b, b_key) = operand(trace, x1, "matmul"), operand(trace, x2, "matmul")
    if not a.type.shape or not b.type.shape:
        raise ShapeError(f"matmul: an operand of rank 0; rank 1 or more is needed{at(user_line())}")
    left, right, _ = resolve(np.matmul, (a_key, b_key), dtype, casting)
    a, b = converted(trace, a, left, "matmul"), converted(trace, b, right, "matmul")
    return deliver(trace, "matmul", _product(trace, "matmul", a, b), out, casting=casting)


def _product(trace: Trace, name: str, a: Operand, b: Operand) -> Operand:
    a_rank, b_rank = len(a.type.shape), len(b.type.shape)
    if a_rank == b_rank == 1:
        return _dot_1d(trace, name, a, b)
    _contract(trace, name, a, b, -1, max(b_rank - 2, 0))
    if a_rank == 1:
        a = build.expand(trace, a, (1,), 2)
    if b_rank == 1:
        b = build.expand(trace, b, (0,), 2)
    batch = broadcast_shapes(trace, name, [a.type.shape[:-2], b.type.shape[:-2]])
    a = aligned(trace, a, (*batch, *a.type.shape[-2:]))
    b = aligned(trace, b, (*batch, *b.type.shape[-2:]))
    found: Operand = trace.emit1(library.matmul, a, b)
    rows, columns = found.type.shape[-2:]
    if a_rank == 1:
        return build.reshape(trace, found, (*batch, columns))
    return build.reshape(trace, found, (*batch, rows)) if b_rank == 1 else found


def dot(a: Any, b: Any, out: Any = None) -> Any:
    """Numbers multiply; otherwise the last axis of ``a`` against the last but one (or only) of ``b``."""
    trace = running_trace("dot")
    left, right = as_traced(trace, a, "dot"), as_traced(trace, b, "dot")
    if left.ndim == 0 or right.ndim == 0:
        from tenferro.tracer.api.elementwise import BY_UFUNC

        left, right = strengthened(trace, left, "dot"), strengthened(trace, right, "dot")
        return BY_UFUNC[np.multiply].function(left, right, out)
    if right.ndim <= 2:
        return matmul(left, right, out)
    if left.ndim == 1:
        return deliver(trace, "dot", matmul(left, right).read(), out)
    return tensordot(left, right, ((left.ndim - 1,), (right.ndim - 2,)))


def tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    """Contraction of several axes, as one matrix product."""
    trace = running_trace("tensordot")
    left, right = as_traced(trace, a, "tensordot"), as_traced(trace, b, "tensordot")
    axes = pinned(axes)
    if isinstance(axes, int):
        if axes > min(left.ndim, right.ndim):
            raise AxisError(
                f"tensordot: {axes} axes for ranks {left.ndim} and {right.ndim}; at most the smaller rank is "
                f"needed{at(user_line())}"
            )
        ours, theirs = tuple(range(left.ndim - axes, left.ndim)), tuple(range(axes))
    else:
        first, second = axes
        ours = tuple(
            axis_of(k, left.ndim, "tensordot") for k in (first if isinstance(first, tuple | list) else (first,))
        )
        theirs = tuple(
            axis_of(k, right.ndim, "tensordot") for k in (second if isinstance(second, tuple | list) else (second,))
        )
    if len(ours) != len(theirs):
        raise ShapeError(
            f"tensordot: {len(ours)} axes against {len(theirs)}; equal numbers are needed{at(user_line())}"
        )
    for k, j in zip(ours, theirs, strict=True):
        _contract(trace, "tensordot", left.read(), right.read(), k, j)
    dtype = result_type((left.dtype, right.dtype))
    a, b = (build.convert(trace, x.read(), dtype) for x in (left, right))
    return new_array(trace, contracted(trace, a, b, (ours, theirs), ((), ())))


def inner(a: Any, b: Any, /) -> Any:
    """The last axes contracted."""
    trace = running_trace("inner")
    left, right = as_traced(trace, a, "inner"), as_traced(trace, b, "inner")
    if left.ndim == 0 or right.ndim == 0:
        return dot(left, right)
    if left.ndim == right.ndim == 1:
        return matmul(left, right)
    return tensordot(left, right, (left.ndim - 1, right.ndim - 1))


def vdot(a: Any, b: Any, /) -> Any:
    """Σ conj(a) b over the flattened arrays."""
    trace = running_trace("vdot")
    left, right = ravel(as_traced(trace, a, "vdot")), ravel(as_traced(trace, b, "vdot"))
    return matmul(left.conj() if left.dtype.kind == "c" else left, right)


def vecdot(x1: Any, x2: Any, /, out: Any = None) -> Any:
    """Σ conj(x1) x2 over the last axis."""
    trace = running_trace("vecdot")
    left, right = as_traced(trace, x1, "vecdot"), as_traced(trace, x2, "vecdot")
    if left.ndim == 0 or right.ndim == 0:
        raise ShapeError(f"vecdot: an operand of rank 0; rank 1 or more is needed{at(user_line())}")
    _contract(trace, "vecdot", left.read(), right.read(), -1, -1)
    left = left.conj() if left.dtype.kind == "c" else left
    dtype = result_type((left.dtype, right.dtype))
    sides = [converted(trace, x.read(), dtype, "vecdot") for x in (left, right)]
    shape = broadcast_shapes(trace, "vecdot", [x.type.shape for x in sides])
    a, b = (aligned(trace, x, shape) for x in sides)
    return deliver(trace, "vecdot", summed(trace, a, b, (len(shape) - 1,)), out)


def matvec(x1: Any, x2: Any, /, out: Any = None) -> Any:
    """Products of matrices and vectors, over broadcast batch axes."""
    return _with_vectors("matvec", x1, x2, out)


def vecmat(x1: Any, x2: Any, /, out: Any = None) -> Any:
    """Products of conjugated vectors and matrices, over broadcast batch axes."""
    return _with_vectors("vecmat", x1, x2, out)


def _with_vectors(name: str, x1: Any, x2: Any, out: Any) -> Any:
    trace = running_trace(name)
    (a, a_key), (b, b_key) = operand(trace, x1, name), operand(trace, x2, name)
    ranks, needed = (len(a.type.shape), len(b.type.shape)), (2, 1) if name == "matvec" else (1, 2)
    if any(rank < least for rank, least in zip(ranks, needed, strict=True)):
        raise ShapeError(f"{name}: operands of ranks {ranks}; at least {needed} are needed{at(user_line())}")
    left, right, _ = resolve(getattr(np, name), (a_key, b_key))
    a, b = converted(trace, a, left, name), converted(trace, b, right, name)
    if name == "matvec":
        b = build.expand(trace, b, range(ranks[1]), ranks[1] + 1)
    else:
        a = trace.emit1(p.conjugate, a) if a.type.dtype.kind == "c" else a
        a = build.expand(trace, a, (*range(ranks[0] - 1), ranks[0]), ranks[0] + 1)
    found = _product(trace, name, a, b)
    shape = found.type.shape
    kept = shape[:-1] if name == "matvec" else (*shape[:-2], shape[-1])
    return deliver(trace, name, build.reshape(trace, found, kept), out)


def kron(a: Any, b: Any) -> Any:
    """Every product of an element of ``a`` and one of ``b``, blocks of ``b`` in the places of ``a``."""
    trace = running_trace("kron")
    left, right = as_traced(trace, a, "kron"), as_traced(trace, b, "kron")
    rank = max(left.ndim, right.ndim)
    if not rank:
        return left * right
    shapes = [(*(1,) * (rank - x.ndim), *x.type.shape) for x in (left, right)]
    sides = [new_array(trace, build.reshape(trace, x.read(), s)) for x, s in zip((left, right), shapes, strict=True)]
    index = [(slice(None), None) * rank, (None, slice(None)) * rank]
    multiplied = sides[0][index[0]] * sides[1][index[1]]
    sizes = tuple(product(pair) for pair in zip(*shapes, strict=True))
    return new_array(trace, build.reshape(trace, multiplied.read(), sizes))


def outer(a: Any, b: Any, out: Any = None) -> Any:
    """All products of two vectors."""
    trace = running_trace("outer")
    left, right = ravel(as_traced(trace, a, "outer")), ravel(as_traced(trace, b, "outer"))
    made = left[:, None] * right[None, :]
    return made if out is None else deliver(trace, "outer", made.read(), out)


def trace_(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
    """The sum along a diagonal."""
    return sum_(_diagonal("trace", a, offset, axis1, axis2), -1, dtype, out)


def diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """A read-only view of a diagonal of two axes, last in the result."""
    return _diagonal("diagonal", a, offset, axis1, axis2)


def _diagonal(name: str, a: Any, offset: int, axis1: int, axis2: int) -> Any:
    array = as_traced(running_trace(name), a, name)
    if array.ndim < 2:
        raise ShapeError(f"{name}: rank {array.ndim}; rank 2 or more is needed{at(user_line())}")
    first, second = axis_of(axis1, array.ndim, name), axis_of(axis2, array.ndim, name)
    if first == second:
        raise ShapeError(f"{name}: axes {axis1} and {axis2}, which are one; two are needed{at(user_line())}")
    array = moveaxis(array, (first, second), (-2, -1))
    k = integer(offset, name, "offset")
    *others, rows, columns = array.type.shape
    size = maximum(minimum(sub(rows, max(-k, 0)), sub(columns, max(k, 0))), 0)
    return array.stepped(Diagonal(k, size), (*others, size))


def _f(name: str, function: Any, arrays: tuple[str, ...], view: bool = False, reference: Any = None) -> ApiFunction:
    return ApiFunction(name, function, arrays, view, getattr(np, name) if reference is None else reference)


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f("matmul", matmul, ("x1", "x2", "out")),
    _f("dot", dot, ("a", "b", "out")),
    _f("tensordot", tensordot, ("a", "b")),
    _f("inner", inner, ("a", "b")),
    _f("vdot", vdot, ("a", "b")),
    _f("vecdot", vecdot, ("x1", "x2", "out"), False, lambda a, b: np.sum(np.conj(a) * b, -1)),
    _f("matvec", matvec, ("x1", "x2", "out")),
    _f("vecmat", vecmat, ("x1", "x2", "out")),
    _f("kron", kron, ("a", "b")),
    _f("outer", outer, ("a", "b", "out")),
    _f("trace", trace_, ("a", "out")),
    _f("diagonal", diagonal, ("a",), True),
)
