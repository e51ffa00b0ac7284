"""Sums of products of two operands: axes that are contracted and axes of a batch in; one batched matrix product, or a
fused sum of products, out."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.promotion import aligned
from tenferro.tracer.api.reductions import of_bools
from tenferro.tracer.dims import product
from tenferro.tracer.ops import library, pointwise as p, reductions
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace

Axes = tuple[int, ...]
F16, F32 = np.dtype(np.float16), np.dtype(np.float32)


def contracted(
    trace: Trace, a: Operand, b: Operand, contracted: tuple[Axes, Axes], batch: tuple[Axes, Axes]
) -> Operand:  # fmt: skip
    """Over pairs of axes of one size. The result has the batch axes, then the other ones of ``a``, then those of
    ``b``."""
    rest = [
        tuple(k for k in range(len(x.type.shape)) if k not in (*c, *o))
        for x, c, o in zip((a, b), contracted, batch, strict=True)
    ]
    if not rest[0] and not rest[1]:
        a = build.transpose(trace, a, (*batch[0], *contracted[0]))
        b = build.transpose(trace, b, (*batch[1], *contracted[1]))
        return summed(trace, a, aligned(trace, b, a.type.shape), tuple(range(len(batch[0]), len(a.type.shape))))
    if list(contracted[0]) != sorted(contracted[0]):  # then those of ``a`` need not be moved
        pairs = sorted(zip(*contracted, strict=True))
        contracted = tuple(k for k, _ in pairs), tuple(j for _, j in pairs)
    outer = tuple(a.type.shape[k] for k in batch[0])
    rows, columns = tuple(a.type.shape[k] for k in rest[0]), tuple(b.type.shape[k] for k in rest[1])
    a = _grouped(trace, a, [*((k,) for k in batch[0]), rest[0], contracted[0]])
    b = _grouped(trace, b, [*((k,) for k in batch[1]), contracted[1], rest[1]])
    found = trace.emit1(library.matmul, a, b)
    return build.reshape(trace, found, (*outer, *rows, *columns))


def _grouped(trace: Trace, x: Operand, groups: Sequence[Axes]) -> Operand:
    """The axes of each group as one. Axes that are no neighbours are brought together by a kernel."""
    order = [k for group in groups for k in group]
    sizes = [product(x.type.shape[k] for k in group) for group in groups]
    moved = any(j != k + 1 for group in groups for k, j in itertools.pairwise(group))
    x = build.transpose(trace, x, order)
    return build.reshape(trace, build.copied(trace, x) if moved else x, tuple(sizes))


def summed(trace: Trace, a: Operand, b: Operand, axes: Axes) -> Operand:
    """Σ a b over the axes of two operands of one shape, a fused sum. float16 is multiplied and added in float32 and
    rounded once, as NumPy's dot does."""
    dtype = a.type.dtype
    if dtype == F16 and axes:
        a, b = build.convert(trace, a, F32), build.convert(trace, b, F32)
    products = trace.emit1(p.multiply, a, b)
    if not axes:
        return products
    if dtype.kind == "b":
        return of_bools(trace, reductions.max_, products, axes, False)
    return build.convert(trace, trace.emit1(reductions.sum_, products, axes=axes, keepdims=False), dtype)
