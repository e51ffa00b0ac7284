"""Rows that run as calls: matrix products, and NumPy functions at a seam.

``mask_select`` and ``bincount`` have a run-time extent: axis 0 of the result is ``Leaf("runtime", operation index,
0)``, which the trace passes as ``params["extent"]``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tenferro.tracer.dims import shape_text
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.op import Absent, Contraction, Library, Op
from tenferro.tracer.ops import (
    call_rules as calls,
    library_rules as rules,
    recurrence as recurrences,
    reduction_rules as reductions,
)
from tenferro.tracer.ops.columns import NOT_LINEAR, linear
from tenferro.tracer.ops.layout_rules import batch_params
from tenferro.tracer.program import ArrayType, Params
from tenferro.tracer.standing import standing_at


def _infer_matmul(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    a, b = types
    if a.rank < 2 or a.rank != b.rank or a.dtype != b.dtype:
        raise ShapeError(f"matmul: operands {a} and {b}; equal dtypes and equal ranks of at least 2 are needed here")
    return (ArrayType(a.dtype, (*a.shape[:-1], b.shape[-1])),)


def _infer_mask_select(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    x, mask = types
    if mask.dtype != np.bool_ or mask.rank > x.rank or mask.rank == 0:
        raise ShapeError(f"mask_select: mask {mask} for {x}; a bool array over the leading axes is needed here")
    return (ArrayType(x.dtype, (params["extent"], *x.shape[mask.rank :])),)


def _infer_bincount(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    x, *weights = types
    if any(t.rank != 1 for t in types):
        raise ShapeError(f"bincount: operands {[str(t) for t in types]}; vectors are needed here")
    if not np.can_cast(x.dtype, np.int64, "safe"):
        raise DtypeError(f"bincount: dtype {x.dtype.name}; integers that fit into int64 are needed")
    if any(not np.can_cast(w.dtype, np.float64, "safe") for w in weights):
        raise DtypeError(f"bincount: weights of dtype {weights[0].dtype.name}; real numbers are needed")
    return (ArrayType(np.dtype(np.float64 if weights else np.int64), (params["extent"],)),)


def _reference_bincount(x: Any, *weights: Any, minlength: int, extent: Any) -> Any:
    # NumPy counts nothing in integers, whatever the weights.
    counts: Any = np.bincount(x, weights[0] if weights else None, minlength)
    return counts.astype(np.float64 if weights else np.int64, copy=False)


def _infer_cumsum(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    x, axis = types[0], params["axis"]
    if not 0 <= axis < x.rank:
        raise ShapeError(f"cumsum: axis {axis} for rank {x.rank}; it must be in [0, {x.rank})")
    return (ArrayType(x.dtype, x.shape),)


def _infer_scatter(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    base, indices, value = types
    axis = params["axis"]
    window = (*base.shape[:axis], *indices.shape, *base.shape[axis + 1 :])
    if value.rank != len(window):
        raise ShapeError(f"scatter: value {value} for a window of {shape_text(window)}; one shape is needed here")
    return (ArrayType(base.dtype, base.shape),)


def _infer_mask_update(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    base, mask, _ = types
    if mask.dtype != np.bool_ or mask.rank > base.rank or mask.rank == 0:
        raise ShapeError(f"mask_update: mask {mask} for {base}; a bool array over the leading axes is needed here")
    return (ArrayType(base.dtype, base.shape),)


def _infer_declared(types: Sequence[ArrayType], params: Params) -> tuple[ArrayType, ...]:
    if params["dtype"].kind not in "biufc":
        raise DtypeError(f"numpy_call: {params['function']} gives dtype {params['dtype'].name}; no rule for it")
    return (ArrayType(params["dtype"], params["shape"]),)


def _reference_scatter(
    base: Any, indices: Any, value: Any, *, axis: int, mode: str, windows: tuple[Any, ...] = ()
) -> Any:  # fmt: skip
    """``mode``: "set", or the ufunc that combines what is there with each of the values for it."""
    out = np.array(base)
    where = (slice(None),) * axis + (indices,)
    if mode == "set":
        out[where] = value
    else:
        getattr(np, mode).at(out, where, value)
    return out


def _reference_mask_update(base: Any, mask: Any, value: Any) -> Any:
    """``base[mask] = value`` with as many values as the mask has True."""
    out = np.array(base)
    out[mask] = value
    return out


def by_name(function: str) -> Callable[..., Any]:
    """A function of NumPy's main namespace, or a method of its ufuncs: ``"maximum.accumulate"``."""
    name, _, method = function.partition(".")
    found: Callable[..., Any] = getattr(np, name)
    return getattr(found, method) if method else found


Lanes = tuple[tuple[bool, ...], ...]


def _reference_numpy(
    *xs: Any, function: str, static: tuple[tuple[str, Any], ...], shape: Any, dtype: Any, lanes: Lanes = ()
) -> Any:  # fmt: skip
    """A function by the name that ``by_name`` takes; ``static`` are its keyword arguments. ``lanes``: it is called for
    each entry of the leading axis of some operands, once for each tuple of booleans that say of which."""
    called, options = by_name(function), dict(static)
    return _in_lanes(lambda *each: called(*each, **options), xs, lanes, shape, dtype)


def _in_lanes(call: Callable[..., Any], xs: Sequence[Any], lanes: Lanes, shape: Any, dtype: Any) -> Any:
    if not lanes:
        return np.asarray(call(*xs), dtype)
    found = np.empty(shape, dtype)
    for k in range(shape[0]):
        each = [x[k] if mine else x for x, mine in zip(xs, lanes[0], strict=True)]
        found[k] = _in_lanes(call, each, lanes[1:], shape[1:], dtype)
    return found


def computed(op: Op, operands: Sequence[Any], params: Mapping[str, Any], line: SourceLine | None) -> Any:
    """A row's function on NumPy arrays; what NumPy warns of in a call by name is shown at ``line``."""
    if op is numpy_call:
        function, options = by_name(params["function"]), dict(params["static"])
        call, lanes = standing_at(line), params.get("lanes", ())
        return _in_lanes(lambda *xs: call(function, xs, options), operands, lanes, params["shape"], params["dtype"])
    return op.reference(*operands, **params)


matmul = Op(
    "matmul", Contraction(), _infer_matmul, lambda a, b: np.matmul(a, b),
    reductions.jvp_matmul, reductions.transpose_matmul, reductions.batch_matmul,
)  # fmt: skip
mask_select = Op(
    "mask_select", Library(((0, 0),)), _infer_mask_select, lambda x, mask, *, extent: np.asarray(x)[mask],
    linear(0), rules.transpose_mask_select, rules.batch_mask_select,
)  # fmt: skip
bincount = Op(
    "bincount", Library(((0, 0),)), _infer_bincount, _reference_bincount, rules.jvp_bincount, rules.transpose_bincount,
    Absent("the number of counts would be another one in each lane; the mapped function can add into zeros"),
)  # fmt: skip
"""How often each number from 0 on occurs, or the sum of its weights: as many as the largest number says."""
cumsum = Op(
    "cumsum", Library(()), _infer_cumsum, lambda x, *, axis: np.cumsum(x, axis=axis, dtype=x.dtype),
    linear(), rules.transpose_cumsum, batch_params(axis=lambda axis, size: axis + 1),
)  # fmt: skip
scatter = Op(
    "scatter", Library(()), _infer_scatter, _reference_scatter, rules.jvp_scatter, rules.transpose_scatter,
    rules.batch_scatter,
)  # fmt: skip
products_before = Op(
    "products_before", Library(()), recurrences.infer_before, recurrences.before, calls.jvp_before, NOT_LINEAR,
    batch_params(axis=lambda axis, size: axis + 1),
)  # fmt: skip
"""The product of the elements before each along an axis, for derivatives of products."""
recurrence = Op(
    "recurrence", Library(()), recurrences.infer, recurrences.reference,
    calls.jvp_recurrence, calls.transpose_recurrence, calls.batch_recurrence,
)  # fmt: skip
"""h[i] = a[i] · h[i − 1] + b[i], for derivatives of running products."""
mask_update = Op(
    "mask_update", Library(()), _infer_mask_update, _reference_mask_update, linear(0, 2), rules.transpose_mask_update,
    rules.batch_mask_update,
)  # fmt: skip
numpy_call = Op(
    "numpy_call", Library(()), _infer_declared, _reference_numpy, calls.jvp_call,
    calls.transpose_call, calls.batch_call,
)  # fmt: skip
