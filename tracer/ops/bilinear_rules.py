"""Derivatives of NumPy functions of two arrays that are linear in each: convolutions, outer products, cross products.

All but the convolution are written in rows of the table; its transpose is a convolution with the array turned round.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from tenferro.tracer.dims import mul
from tenferro.tracer.errors import DerivativeError
from tenferro.tracer.lines import at
from tenferro.tracer.op import JvpRule, Tangents
from tenferro.tracer.ops.layout_rules import one
from tenferro.tracer.program import Operand, Operation

if TYPE_CHECKING:
    from tenferro.tracer.derivation import Derivation

Bilinear = Callable[["Derivation", Operation, Operand, Operand, bool], Operand]
"""(builder, operation, x, y, whether x is the tangent and not y) → the function of x and y."""


def _bilinear(function: Bilinear) -> JvpRule:
    """Leibniz."""

    def jvp(b: Derivation, operation: Operation, tangents: Tangents) -> Tangents:
        dtype = operation.outputs[0].type.dtype
        x, y = (b.convert(v, dtype) for v in operation.inputs)
        s, t = (None if v is None else b.convert(v, dtype) for v in tangents)
        left = None if s is None else function(b, operation, s, y, True)
        right = None if t is None else function(b, operation, x, t, False)
        return (b.plus(left, right),)

    return jvp


def _product(b: Derivation, x: Operand, y: Operand, is_first: bool) -> Operand:
    return b.scaled(x, y) if is_first else b.scaled(y, x)


# -- convolutions ----------------------------------------------------------------------------------------------------


def _convolved(b: Derivation, operation: Operation, x: Operand, y: Operand, is_first: bool) -> Operand:
    params = dict(operation.params)
    if params["function"] == "correlate":
        y = b.conjugate(b.flipped(y, [0])) if y.type.dtype.kind == "c" else b.flipped(y, [0])
        mode = dict(params["static"]).get("mode", "valid")
        n, m = (b.trace.concrete(v.type.shape[0], "correlate") for v in (x, y))  # which the function has pinned
        if mode == "same" and n < m:
            raise DerivativeError(
                f"correlate: its derivative with mode 'same' and a shorter first array; the longer one first has one"
                f"{at(operation.line)}"
            )
        params |= {"function": "convolve", "static": (("mode", mode),)}
    return b.numpy_call(x, y, **params)


def transpose_convolve(
    b: Derivation, operation: Operation, cotangents: Tangents, is_linear: Sequence[bool]
) -> Tangents:  # fmt: skip
    """A convolution gives back to each place what the places give back that it went to."""
    x, y = operation.inputs
    n, m, found = (b.trace.concrete(v.type.shape[0], "convolve") for v in (x, y, one(cotangents)))
    other = b.flipped(y if is_linear[0] else x, [0])
    mode, ct = dict(operation.params["static"]).get("mode", "full"), one(cotangents)
    least = min(n, m)
    low = {"full": 0, "same": (least - 1) // 2, "valid": least - 1}[mode]
    whole = b.padded(ct, (low,), (n + m - 1 - low - found,))
    shape = (x if is_linear[0] else y).type.shape
    back = b.numpy_call(
        whole, other, function="convolve", static=(("mode", "valid"),), shape=shape, dtype=ct.type.dtype
    )
    return (back, None) if is_linear[0] else (None, back)


# -- products in rows ------------------------------------------------------------------------------------------------


def _kron(b: Derivation, operation: Operation, x: Operand, y: Operand, is_first: bool) -> Operand:
    """Blocks of y, one for each element of x."""
    rank = max(len(x.type.shape), len(y.type.shape))
    outer, inner = ((1,) * (rank - len(v.type.shape)) + v.type.shape for v in (x, y))
    blocks = tuple(n for pair in zip(outer, inner, strict=True) for n in pair)
    x, y = (
        b.broadcast_to(b.reshaped(v, shape), shape=blocks, axes=tuple(range(side, 2 * rank, 2)))
        for v, shape, side in ((x, outer, 0), (y, inner, 1))
    )
    return b.reshaped(_product(b, x, y, is_first), tuple(mul(n, m) for n, m in zip(outer, inner, strict=True)))


def _cross(b: Derivation, operation: Operation, x: Operand, y: Operand, is_first: bool) -> Operand:
    """x × y = (x₁y₂ − x₂y₁, x₂y₀ − x₀y₂, x₀y₁ − x₁y₀) along the last axis."""
    static = dict(operation.params["static"])
    if static or any(b.trace.concrete(v.type.shape[-1], "cross") != 3 for v in (x, y)):
        raise DerivativeError(
            f"cross: its derivative along other than the last axes, or of vectors of two; of three along the last axis "
            f"there is one{at(operation.line)}"
        )
    shape = operation.outputs[0].type.shape
    x, y = b.broadcast(x, shape), b.broadcast(y, shape)
    lead = len(shape) - 1

    def part(v: Operand, k: int) -> Operand:
        return b.cut(v, (*(0,) * lead, k), (*shape[:-1], 1))

    parts = []
    for i, j in ((1, 2), (2, 0), (0, 1)):
        first, second = (_product(b, part(x, p), part(y, q), is_first) for p, q in ((i, j), (j, i)))
        parts.append(b.subtract(first, second))
    return b.concatenate(*parts, axis=lead)


convolve, kron, cross = _bilinear(_convolved), _bilinear(_kron), _bilinear(_cross)
