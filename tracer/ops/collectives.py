"""Collective rows: operand k is the part of the engine ``places[k]``, result k is what that engine gets.

All operands have one type. Whatever is added is added in the order of ``places``, so that results never depend on which
engine comes first; float16 is added in float32 and rounded once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any

import numpy as np

from tenferro.tracer.dims import floordiv, mul
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.op import Collective, CollectiveKind, InferRule, JvpRule, Op, TransposeRule
from tenferro.tracer.ops import collective_rules as rules
from tenferro.tracer.program import ArrayType, Params

Array = np.ndarray[Any, Any]
Shape = Callable[[ArrayType, Params, int], tuple[Any, ...]]
Places = tuple[str, ...]

REDUCTIONS = {"sum": "iufc", "max": "biuf", "min": "biuf"}
"""Kind of reduction → kinds of dtypes."""


def _common(name: str, types: Sequence[ArrayType], params: Params) -> ArrayType:
    """The one type of the operands, of which there is one for each place."""
    first, places = types[0], params["places"]
    if len(types) != len(places) or any((t.dtype, t.shape) != (first.dtype, first.shape) for t in types):
        raise ShapeError(f"{name}: operands {[str(t) for t in types]}; {len(places)} of one type are needed here")
    return first


def _rule(name: str, shape: Shape) -> InferRule:
    def infer(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
        x, count = _common(name, types, params), len(types)
        kind = params.get("reduction")
        if kind is not None and x.dtype.kind not in REDUCTIONS[kind]:
            raise DtypeError(f"{name}: {kind} of dtype {x.dtype.name}; no rule for it")
        return (ArrayType(x.dtype, shape(x, params, count)),) * count

    return infer


def _same(x: ArrayType, params: Params, count: int) -> tuple[Any, ...]:
    return x.shape


def _gathered(x: ArrayType, params: Params, count: int) -> tuple[Any, ...]:
    axis, tiled = params["axis"], params["tiled"]
    if not 0 <= axis < x.rank + (not tiled):
        raise ShapeError(f"all_gather: axis {axis} for rank {x.rank}; it must be in [0, {x.rank + (not tiled)})")
    if tiled:
        return (*x.shape[:axis], mul(x.shape[axis], count), *x.shape[axis + 1 :])
    return (*x.shape[:axis], count, *x.shape[axis:])


def _scattered(x: ArrayType, params: Params, count: int) -> tuple[Any, ...]:
    """That the size is a multiple (tiled) or equal is settled by the caller, who may guard."""
    axis = params["axis"]
    if not 0 <= axis < x.rank:
        raise ShapeError(f"reduce_scatter: axis {axis} for rank {x.rank}; it must be in [0, {x.rank})")
    kept = (floordiv(x.shape[axis], count),) if params["tiled"] else ()
    return (*x.shape[:axis], *kept, *x.shape[axis + 1 :])


def _rooted(x: ArrayType, params: Params, count: int) -> tuple[Any, ...]:
    if not 0 <= params["root"] < count:
        raise ShapeError(f"broadcast: root {params['root']} of {count} places; it must be in [0, {count})")
    return x.shape


def _permuted(x: ArrayType, params: Params, count: int) -> tuple[Any, ...]:
    pairs = params["pairs"]
    for position, what in ((0, "source"), (1, "destination")):
        numbers = [pair[position] for pair in pairs]
        if len(set(numbers)) != len(numbers) or any(not 0 <= n < count for n in numbers):
            raise ShapeError(f"permute: {what}s {numbers} of {count} places; each must be in [0, {count}), and once")
    return x.shape


def _larger(a: Array, b: Array) -> Array:
    """−0 < +0 and NaN propagates, as in every maximum of the package."""
    return (
        np.where(a == b, np.where(np.signbit(a), b, a), np.maximum(a, b)) if a.dtype.kind == "f" else np.maximum(a, b)
    )


def _smaller(a: Array, b: Array) -> Array:
    return (
        np.where(a == b, np.where(np.signbit(a), a, b), np.minimum(a, b)) if a.dtype.kind == "f" else np.minimum(a, b)
    )


def combined(xs: Sequence[Array], reduction: str) -> Array:
    """One array of all, folded from the first to the last; always fresh. Overflow is silent, as in fused kernels."""
    arrays = [np.asarray(x) for x in xs]
    dtype = arrays[0].dtype
    with np.errstate(all="ignore"):
        if reduction != "sum":
            return np.array(reduce(_larger if reduction == "max" else _smaller, arrays), dtype, order="C")
        total = np.array(arrays[0], np.float32 if dtype == np.float16 else dtype, order="C")
        for x in arrays[1:]:
            np.add(total, x, out=total)
        return total.astype(dtype, copy=False)


def _each(x: Array, count: int) -> tuple[Array, ...]:
    """The array and copies of it: each engine gets memory of its own."""
    return (x, *(x.copy() for _ in range(count - 1)))


def _reference_all_reduce(*xs: Array, places: Places, reduction: str) -> tuple[Array, ...]:
    return _each(combined(xs, reduction), len(xs))


def _reference_all_gather(*xs: Array, places: Places, axis: int, tiled: bool) -> tuple[Array, ...]:
    return _each(np.concatenate(xs, axis) if tiled else np.stack(xs, axis), len(xs))


def _reference_reduce_scatter(
    *xs: Array, places: Places, reduction: str, axis: int, tiled: bool
) -> tuple[Array, ...]:  # fmt: skip
    pieces = zip(*(pieces_of(x, len(xs), axis, tiled) for x in xs), strict=True)
    return tuple(combined(mine, reduction) for mine in pieces)


def pieces_of(x: Array, count: int, axis: int, tiled: bool) -> list[Array]:
    """The parts of an array along an axis, one for each engine."""
    parts = np.split(x, count, axis)
    return parts if tiled else [p.squeeze(axis) for p in parts]


def _reference_broadcast(*xs: Array, places: Places, root: int) -> tuple[Array, ...]:
    return _each(np.array(xs[root], order="C"), len(xs))


def _reference_permute(*xs: Array, places: Places, pairs: tuple[tuple[int, int], ...]) -> tuple[Array, ...]:
    sources = {destination: source for source, destination in pairs}
    return tuple(
        np.array(xs[sources[k]], order="C") if k in sources else np.zeros(x.shape, x.dtype) for k, x in enumerate(xs)
    )


def _row(
    kind: CollectiveKind, shape: Shape, reference: Callable[..., tuple[Array, ...]], jvp: JvpRule,
    transpose: TransposeRule,
) -> Op:  # fmt: skip
    return Op(kind, Collective(kind), _rule(kind, shape), reference, jvp, transpose, rules.batch_collective)


all_reduce = _row("all_reduce", _same, _reference_all_reduce, rules.jvp_reduction, rules.transpose_reduction)
all_gather = _row("all_gather", _gathered, _reference_all_gather, rules.jvp_linear, rules.transpose_all_gather)
reduce_scatter = _row(
    "reduce_scatter", _scattered, _reference_reduce_scatter, rules.jvp_reduction, rules.transpose_reduction
)
broadcast = _row("broadcast", _rooted, _reference_broadcast, rules.jvp_linear, rules.transpose_broadcast)
permute = _row("permute", _permuted, _reference_permute, rules.jvp_linear, rules.transpose_permute)
