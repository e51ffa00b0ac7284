"""Layout rows: views, windows, index arrays and updates.

Sizes in ``params`` are Extents. A slice's elements are ``starts[k] + steps[k] * i`` for ``0 <= i < sizes[k]``, already
normalised: no start is negative and every element exists.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.tracer.dims import add, product, shape_text
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.op import Absent, Indexed, Op, Update, View
from tenferro.tracer.ops import layout_rules as rules
from tenferro.tracer.ops.columns import INTEGERS, NOT_LINEAR, linear
from tenferro.tracer.program import ArrayType, Params

INT64 = np.dtype(np.int64)


def _infer_reshape(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    """Counts that depend on sizes are compared by the API, which may guard."""
    (x,) = types
    have, want = product(x.shape), product(params["shape"])
    if isinstance(have, int) and isinstance(want, int) and have != want:
        raise ShapeError(
            f"reshape: {have} elements of {shape_text(x.shape)}; {want} are needed for {shape_text(params['shape'])}"
        )
    return (ArrayType(x.dtype, params["shape"], x.weak),)


def _infer_transpose(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    (x,) = types
    if sorted(params["axes"]) != list(range(x.rank)):
        raise ShapeError(f"transpose: axes {params['axes']} for rank {x.rank}; a permutation is needed")
    return (ArrayType(x.dtype, tuple(x.shape[a] for a in params["axes"]), x.weak),)


def _infer_broadcast(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    """Axis j of the operand is axis ``axes[j]`` of the result; a size of 1 stretches."""
    (x,) = types
    if len(params["axes"]) != x.rank or list(params["axes"]) != sorted(set(params["axes"])):
        raise ShapeError(f"broadcast_to: axes {params['axes']} for rank {x.rank}; one increasing axis per operand axis")
    return (ArrayType(x.dtype, params["shape"], x.weak),)


def _infer_slice(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    (x,) = types
    if not len(params["starts"]) == len(params["steps"]) == len(params["sizes"]) == x.rank:
        raise ShapeError(f"slice: {len(params['sizes'])} sizes for rank {x.rank}; one per axis is needed")
    return (ArrayType(x.dtype, params["sizes"], x.weak),)


def _infer_pad(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    x, fill = types
    if fill.dtype != x.dtype or fill.rank != 0:
        raise DtypeError(f"pad: fill {fill} for {x}; a scalar of the same dtype is needed here")
    shape = tuple(add(add(n, lo), hi) for n, lo, hi in zip(x.shape, params["low"], params["high"], strict=True))
    return (ArrayType(x.dtype, shape),)


def _infer_concatenate(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    axis, first = params["axis"], types[0]
    if any(t.dtype != first.dtype or t.rank != first.rank for t in types):
        raise ShapeError(f"concatenate: operands {[str(t) for t in types]}; one dtype and one rank are needed here")
    total = types[0].shape[axis]
    for t in types[1:]:
        total = add(total, t.shape[axis])
    return (ArrayType(first.dtype, (*first.shape[:axis], total, *first.shape[axis + 1 :])),)


def _infer_iota(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    rank, axis = len(params["shape"]), params["axis"]
    if not 0 <= axis < rank:
        raise ShapeError(f"iota: axis {axis} for rank {rank}; it must be in [0, {rank})")
    return (ArrayType(INT64, params["shape"]),)


def _infer_take(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    x, indices = types
    if indices.dtype != INT64:
        raise DtypeError(f"take: indices of dtype {indices.dtype.name}; int64 is needed here")
    axis = params["axis"]
    return (ArrayType(x.dtype, (*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])),)


def _infer_update(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    base, value = types
    if base.dtype != value.dtype or value.rank not in (0, base.rank):
        raise ShapeError(f"slice_update: value {value} for base {base} sizes {shape_text(params['sizes'])}")
    return (ArrayType(base.dtype, base.shape),)


OUTSIDE, AXES, FARTHEST = -(2**62), 64, 2**50
"""What stands for the place of a window that is not wholly inside an array is ``OUTSIDE + start * AXES + axis``, with
the start brought into ±FARTHEST: no array has such a place, and an error text can name both."""


def start_and_axis(code: int) -> tuple[int, int]:
    """The start and the axis of a window that is not wholly inside an array."""
    return divmod(code - OUTSIDE, AXES)


def box(starts: Sequence[int], steps: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    """The NumPy slices that pick ``starts + steps * i``; a negative step that ends before 0 needs ``stop=None``."""
    slices = []
    for start, step, size in zip(starts, steps, sizes, strict=True):
        stop = start + step * size
        slices.append(slice(start, None if stop < 0 else stop, step) if size else slice(0, 0, 1))
    return tuple(slices)


def _reference_broadcast(x: Any, *, shape: tuple[int, ...], axes: tuple[int, ...]) -> Any:
    x = np.asarray(x)
    expanded = [1] * len(shape)
    for j, a in enumerate(axes):
        expanded[a] = x.shape[j]
    return np.broadcast_to(x.reshape(expanded), shape)


def _reference_slice(x: Any, *, starts: Any, steps: Any, sizes: Any) -> Any:
    return np.asarray(x)[box(starts, steps, sizes)]


def _reference_pad(x: Any, fill: Any, *, low: tuple[int, ...], high: tuple[int, ...]) -> Any:
    # np.pad refuses rank 0.
    x = np.asarray(x)
    shape = [lo + n + hi for n, lo, hi in zip(x.shape, low, high, strict=True)]
    out = np.full(shape, fill, x.dtype)
    out[tuple(slice(lo, lo + n) for n, lo in zip(x.shape, low, strict=True))] = x
    return out


def _reference_iota(*, shape: tuple[int, ...], axis: int) -> Any:
    steps = [1] * len(shape)
    steps[axis] = shape[axis]
    return np.broadcast_to(np.arange(shape[axis], dtype=np.int64).reshape(steps), shape)


def _reference_take(x: Any, indices: Any, *, axis: int, windows: tuple[Any, ...] = ()) -> Any:
    return np.take(x, indices, axis=axis)


def _reference_update(base: Any, value: Any, *, starts: Any, steps: Any, sizes: Any) -> Any:
    out = np.array(base)
    out[box(starts, steps, sizes)] = value
    return out


reshape = Op(
    "reshape", View("reshape"), _infer_reshape, lambda x, *, shape: np.reshape(x, shape),
    linear(), rules.transpose_reshape, rules.batch_params(shape=rules.with_size),
)  # fmt: skip
transpose = Op(
    "transpose", View("transpose"), _infer_transpose, lambda x, *, axes: np.transpose(x, axes),
    linear(), rules.transpose_transpose, rules.batch_params(axes=rules.with_zero),
)  # fmt: skip
broadcast_to = Op(
    "broadcast_to", View("broadcast_to"), _infer_broadcast, _reference_broadcast,
    linear(), rules.transpose_broadcast, rules.batch_params(shape=rules.with_size, axes=rules.with_zero),
)  # fmt: skip
slice_ = Op(
    "slice", View("slice"), _infer_slice, _reference_slice,
    linear(), rules.transpose_slice,
    rules.batch_params(starts=rules.whole(0), steps=rules.whole(1), sizes=rules.with_size),
)  # fmt: skip
pad = Op("pad", Indexed("pad"), _infer_pad, _reference_pad, linear(), rules.transpose_pad, rules.batch_pad)
concatenate = Op(
    "concatenate", Indexed("concatenate"), _infer_concatenate, lambda *xs, axis: np.concatenate(xs, axis=axis),
    linear(), rules.transpose_concatenate, rules.batch_concatenate,
)  # fmt: skip
iota = Op(
    "iota", Indexed("iota"), _infer_iota, _reference_iota, INTEGERS, NOT_LINEAR,
    Absent("it has no operands, and so no lanes"),
)  # fmt: skip
take = Op("take", Indexed("gather"), _infer_take, _reference_take, linear(0), rules.transpose_take, rules.batch_take)
"""``windows``: the name, the array's shape and the windows' sizes where places are those of windows, for errors; or no
name, and the sizes and numbers of the axes that indices point into: places of several axes tell which one is meant as
starts do. A fourth part is added to (taken from, if
they are negative) indices of lanes that are out of range."""
slice_update = Op(
    "slice_update", Update(), _infer_update, _reference_update, linear(), rules.transpose_update, rules.batch_update
)
