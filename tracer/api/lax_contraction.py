"""Contractions of ``tenferro.lax``: two operands and dimension numbers in; one batched matrix product, or a fused sum
of products, out."""

from __future__ import annotations

from typing import Any

from tenferro.tracer import build
from tenferro.tracer.api.contraction import Axes, contracted
from tenferro.tracer.api.creation import dtype_of
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.lax_common import axes_in_order, function, same_size
from tenferro.tracer.api.promotion import converted, result_type, sizes_text, strong
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import pointwise as p
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import as_traced, operand


def dot_general(
    lhs: Any, rhs: Any, dimension_numbers: Any, preferred_element_type: Any = None, *, conj_lhs: bool = False,
    conj_rhs: bool = False, precision: Any = None,
) -> Any:  # fmt: skip
    """Sums of products over the contracted axes, for each index of the batch axes: ``dimension_numbers`` is
    ``((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch))``. The result has the batch axes, then those of
    ``lhs``, then those of ``rhs``. ``conj_lhs``, ``conj_rhs``: the operand's complex conjugate takes part.

    Computed in the dtype that both promote to, whatever ``precision`` says; in ``preferred_element_type`` where that is
    wider, else converted to it."""
    return _dot("dot_general", lhs, rhs, dimension_numbers, preferred_element_type, conj_lhs, conj_rhs)


def dot(
    lhs: Any, rhs: Any, precision: Any = None, preferred_element_type: Any = None, *, dimension_numbers: Any = None
) -> Any:  # fmt: skip
    """The last axis of ``lhs`` against the first of ``rhs``, each of rank 1 or 2; or as ``dot_general``."""
    trace = running_trace("dot")
    left, right = as_traced(trace, lhs, "dot"), as_traced(trace, rhs, "dot")
    if dimension_numbers is None:
        if left.ndim not in (1, 2) or right.ndim not in (1, 2):
            raise ShapeError(
                f"dot: operands of ranks {left.ndim} and {right.ndim}; ranks 1 or 2 are needed, dot_general takes "
                f"others{at(user_line())}"
            )
        dimension_numbers = (((left.ndim - 1,), (0,)), ((), ()))
    return _dot("dot", left, right, dimension_numbers, preferred_element_type)


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Any:
    """Matrix products over equal leading axes."""
    trace = running_trace("batch_matmul")
    left, right = as_traced(trace, lhs, "batch_matmul"), as_traced(trace, rhs, "batch_matmul")
    rank = left.ndim
    if rank < 2 or right.ndim != rank:
        raise ShapeError(
            f"batch_matmul: operands of ranks {rank} and {right.ndim}; one rank of at least 2 is "
            f"needed{at(user_line())}"
        )
    batch = tuple(range(rank - 2))
    return _dot("batch_matmul", left, right, (((rank - 1,), (rank - 2,)), (batch, batch)))


def _dot(
    name: str, lhs: Any, rhs: Any, dimension_numbers: Any, preferred: Any = None, conj_lhs: bool = False,
    conj_rhs: bool = False,
) -> Any:  # fmt: skip
    trace = running_trace(name)
    (a, a_key), (b, b_key) = operand(trace, lhs, name), operand(trace, rhs, name)
    inner, batch = _pairs(name, dimension_numbers, len(a.type.shape), len(b.type.shape))
    for what, (ours, theirs) in (("contracted axes", inner), ("batch axes", batch)):
        for k, j in zip(ours, theirs, strict=True):
            same_size(trace, f"{name} of {_shapes(trace, a, b)}", a.type.shape[k], b.type.shape[j], what)
    natural = strong(result_type((a_key, b_key)))
    target = natural if preferred is None else dtype_of(preferred, name)
    if natural.kind == "c" and target.kind != "c":
        raise DtypeError(
            f"{name}: preferred_element_type {target.name} for operands of {natural.name}; a complex dtype is "
            f"needed{at(user_line())}"
        )
    working = result_type((natural, target))
    a, b = converted(trace, a, working, name), converted(trace, b, working, name)
    if working.kind == "c":
        a = trace.emit1(p.conjugate, a) if conj_lhs else a
        b = trace.emit1(p.conjugate, b) if conj_rhs else b
    found = build.convert(trace, contracted(trace, a, b, inner, batch), target)
    return new(trace, found)


def _shapes(trace: Trace, a: Operand, b: Operand) -> str:
    return f"{sizes_text(trace, a.type.shape)} and {sizes_text(trace, b.type.shape)}"


def _pairs(name: str, numbers: Any, left: int, right: int) -> tuple[tuple[Axes, Axes], tuple[Axes, Axes]]:
    try:
        (lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch) = numbers
    except (TypeError, ValueError):
        raise ShapeError(
            f"{name}: dimension_numbers {numbers!r}; ((lhs_contracting, rhs_contracting), (lhs_batch, rhs_batch)) is "
            f"needed{at(user_line())}"
        ) from None
    found = []
    for what, ours, theirs in (
        ("contracting", lhs_contracting, rhs_contracting), ("batch", lhs_batch, rhs_batch)
    ):  # fmt: skip
        mine = axes_in_order(tuple(ours), left, name, f"{what} axes of lhs")
        others = axes_in_order(tuple(theirs), right, name, f"{what} axes of rhs")
        if len(mine) != len(others):
            raise ShapeError(
                f"{name}: {len(mine)} {what} axes of lhs, {len(others)} of rhs; equal numbers are "
                f"needed{at(user_line())}"
            )
        found.append((mine, others))
    for side, (contracting, batch) in enumerate(zip(*found, strict=True)):
        both = set(contracting) & set(batch)
        if both:
            raise ShapeError(
                f"{name}: axes {sorted(both)} of {('lhs', 'rhs')[side]} contracted and in the batch; one of both is "
                f"needed{at(user_line())}"
            )
    return found[0], found[1]


FUNCTIONS: tuple[TracedFunction, ...] = (
    function("dot_general", dot_general, "lhs", "rhs"),
    function("dot", dot, "lhs", "rhs"),
    function("batch_matmul", batch_matmul, "lhs", "rhs"),
)
