"""Reductions: an array and axes in, one number for each remaining place out.

Accumulation dtypes are NumPy's; float16 stays float16, accumulated in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import dtype_of
from tenferro.tracer.api.deliver import deliver, new
from tenferro.tracer.api.layout import axes_of, axis_of, ravel
from tenferro.tracer.api.promotion import as_bool, broadcast_into, converted
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.dim import integer
from tenferro.tracer.dims import Extent, is_runtime, maximum, product, sub
from tenferro.tracer.errors import DtypeError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Op
from tenferro.tracer.ops import library, pointwise as p, reductions
from tenferro.tracer.program import DimScalar, Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced, operand

Dtype = np.dtype[Any]
HALF, SINGLE, DOUBLE = np.dtype("f2"), np.dtype("f4"), np.dtype("f8")
BOOL, INT64, UINT64 = np.dtype("?"), np.dtype("i8"), np.dtype("u8")
NOTHING: Any = np._NoValue


def _given(x: Any) -> bool:
    return x is not NOTHING and x is not None


def accumulation_dtype(dtype: Dtype) -> Dtype:
    """What NumPy sums in: bools and signed integers in int64, unsigned in uint64, the rest in itself."""
    if dtype.kind in "bi":
        return INT64
    return UINT64 if dtype.kind == "u" else dtype


def _flag(keepdims: Any) -> bool:
    return bool(keepdims) if keepdims is not NOTHING else False


def _masked(trace: Trace, value: Operand, where: Any, neutral: Operand, name: str) -> Operand:
    """Elements that ``where=`` leaves out count as the neutral element."""
    if where is NOTHING or where is True:
        return value
    condition = as_bool(trace, operand(trace, where, name)[0])
    return trace.emit1(p.where, broadcast_into(trace, name, condition, value.type.shape), value, neutral)


def _initial(trace: Trace, x: Any, dtype: Dtype, name: str) -> Operand:
    """``initial=`` as a number of the dtype."""
    value = operand(trace, x, name)[0]
    if value.type.shape:
        raise ShapeError(f"{name}: initial of rank {len(value.type.shape)}; a number is needed{at(user_line())}")
    if value.type.dtype.kind == "c" and dtype.kind not in "cb":
        raise DtypeError(f"{name}: initial {value.type.dtype.name}; a real number is needed{at(user_line())}")
    return converted(trace, value, dtype, name)


def sum_(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOTHING, initial: Any = NOTHING,
    where: Any = NOTHING,
) -> Any:  # fmt: skip
    """The sum over the axes; bools and integers are summed in 64 bits."""
    trace = running_trace("sum")
    array = as_traced(trace, a, "sum")
    target = accumulation_dtype(array.dtype) if dtype is None else dtype_of(dtype, "sum")
    value = _masked(trace, build.convert(trace, array.read(), target), where, build.literal(0, target), "sum")
    axes = axes_of(axis, len(value.type.shape), "sum")
    if target == BOOL:
        return any_(new(trace, value), axis, out, keepdims)
    total: Operand = trace.emit1(reductions.sum_, value, axes=axes, keepdims=_flag(keepdims))
    if _given(initial):
        total = trace.emit1(p.add, total, _initial(trace, initial, target, "sum"))
    return deliver(trace, "sum", total, out)


def prod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOTHING, initial: Any = NOTHING,
    where: Any = NOTHING,
) -> Any:  # fmt: skip
    """The product over the axes; bools and integers are multiplied in 64 bits."""
    trace = running_trace("prod")
    array = as_traced(trace, a, "prod")
    target = accumulation_dtype(array.dtype) if dtype is None else dtype_of(dtype, "prod")
    value = _masked(trace, build.convert(trace, array.read(), target), where, build.literal(1, target), "prod")
    axes = axes_of(axis, len(value.type.shape), "prod")
    if target == BOOL:
        return all_(new(trace, value), axis, out, keepdims)
    found: Operand = trace.emit1(reductions.prod_, value, axes=axes, keepdims=_flag(keepdims))
    if _given(initial):
        found = trace.emit1(p.multiply, found, _initial(trace, initial, target, "prod"))
    return deliver(trace, "prod", found, out)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """How many elements are not 0."""
    trace = running_trace("count_nonzero")
    array = as_traced(trace, a, "count_nonzero")
    ones = build.convert(trace, as_bool(trace, array.read()), INT64)
    axes = axes_of(axis, array.ndim, "count_nonzero")
    return new(trace, trace.emit1(reductions.sum_, ones, axes=axes, keepdims=bool(keepdims)))


def _number(trace: Trace, extent: Extent, dtype: Dtype) -> Operand:
    extent = trace.canonical(extent)
    return build.literal(extent, dtype) if isinstance(extent, int) else DimScalar(extent, dtype)


def _count(trace: Trace, value: Operand, axes: tuple[int, ...], where: Any, keepdims: bool, dtype: Dtype) -> Operand:
    if where is NOTHING or where is True:
        return _number(trace, product(value.type.shape[k] for k in axes), dtype)
    condition = as_bool(trace, operand(trace, where, "mean")[0])
    chosen = build.broadcast(trace, broadcast_into(trace, "mean", condition, value.type.shape), value.type.shape)
    total = trace.emit1(reductions.sum_, build.convert(trace, chosen, INT64), axes=axes, keepdims=keepdims)
    return build.convert(trace, total, dtype)


def _working_dtype(dtype: Dtype, asked: Any, name: str) -> tuple[Dtype, Dtype]:
    """(dtype to compute in, dtype of the result) of mean, var and std: float16 is computed in float32."""
    if asked is not None:
        result = dtype_of(asked, name)
        if result.kind not in "fc":
            raise DtypeError(f"{name}: dtype {result.name}; a floating dtype is needed{at(user_line())}")
    else:
        result = DOUBLE if dtype.kind in "biu" else dtype
    return (SINGLE if result == HALF else result), result


def mean(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOTHING, *, where: Any = NOTHING
) -> Any:
    """The sum divided by the number of elements; float64 for integers."""
    trace = running_trace("mean")
    array = as_traced(trace, a, "mean")
    working, result = _working_dtype(array.dtype, dtype, "mean")
    value = _masked(trace, build.convert(trace, array.read(), working), where, build.literal(0, working), "mean")
    axes = axes_of(axis, len(value.type.shape), "mean")
    total = trace.emit1(reductions.sum_, value, axes=axes, keepdims=_flag(keepdims))
    count = _count(trace, value, axes, where, _flag(keepdims), working)
    average = trace.emit1(p.divide, total, count)
    return deliver(trace, "mean", build.convert(trace, average, result), out)


def _variance(
    name: str, a: Any, axis: Any, dtype: Any, ddof: Any, keepdims: Any, where: Any
) -> tuple[Trace, Operand, Dtype]:
    """Σ|x − mean|² / max(n − ddof, 0), and the dtype of the result."""
    trace = running_trace(name)
    if where is not NOTHING and where is not True:
        raise TraceError(f"{name}: where; not available yet, {name}(x[mask]) is near{at(user_line())}")
    array = as_traced(trace, a, name)
    working, result = _working_dtype(array.dtype, dtype, name)
    value = build.convert(trace, array.read(), working)
    axes = axes_of(axis, array.ndim, name)
    squares = trace.emit1(reductions.squared_deviations, value, axes=axes, keepdims=_flag(keepdims))
    real = squares.type.dtype
    n = product(value.type.shape[k] for k in axes)
    if not hasattr(type(ddof), "__float__") or getattr(ddof, "ndim", False):
        raise DtypeError(f"{name}: ddof {ddof!r}; a number is needed{at(user_line())}")
    if float(ddof).is_integer():
        least = sub(n, int(ddof))
        count = _number(trace, n if int(ddof) == 0 else maximum(least, 0), real)
    else:
        count = trace.emit1(p.subtract, _number(trace, n, real), build.literal(float(ddof), real))
    final = HALF if result == HALF else real
    return trace, trace.emit1(p.divide, squares, count), final


def var(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = NOTHING, *,
    where: Any = NOTHING, mean: Any = NOTHING, correction: Any = NOTHING,
) -> Any:  # fmt: skip
    """The variance, Σ|x − mean|² / (n − ddof); real for complex arrays."""
    ddof = ddof if correction is NOTHING else correction
    trace, value, result = _variance("var", a, axis, dtype, ddof, keepdims, where)
    return deliver(trace, "var", build.convert(trace, value, result), out)


def std(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, ddof: Any = 0, keepdims: Any = NOTHING, *,
    where: Any = NOTHING, mean: Any = NOTHING, correction: Any = NOTHING,
) -> Any:  # fmt: skip
    """The square root of the variance."""
    ddof = ddof if correction is NOTHING else correction
    trace, value, result = _variance("std", a, axis, dtype, ddof, keepdims, where)
    return deliver(trace, "std", build.convert(trace, trace.emit1(p.sqrt, value), result), out)


def _require_elements(trace: Trace, name: str, shape: tuple[Extent, ...], axes: tuple[int, ...]) -> bool:
    """Whether every result has something to be taken of; no result at all needs nothing. A guard in each case, except
    that a size known only at run time is checked by the run."""
    if all(is_runtime(shape[k]) or trace.guard("<", 0, shape[k]) for k in axes):
        return True
    if any(k not in axes and trace.guard("==", n, 0) for k, n in enumerate(shape)):
        return False
    raise ShapeError(
        f"{name}: zero-size array to a reduction which has no identity; a size of at least 1 is needed{at(user_line())}"
    )


def _extreme(name: str, op: Op, fold: Op, a: Any, axis: Any, out: Any, keepdims: Any, initial: Any, where: Any) -> Any:
    trace = running_trace(name)
    array = as_traced(trace, a, name)
    value = array.read()
    start = _initial(trace, initial, array.dtype, name) if _given(initial) else None
    if where is not NOTHING and where is not True:
        if start is None:
            raise ShapeError(f"{name}: where without initial; initial is needed{at(user_line())}")
        value = _masked(trace, value, where, start, name)
    shape = value.type.shape
    axes = axes_of(axis, len(shape), name)
    if start is not None and not all(trace.guard("<", 0, shape[k]) for k in axes):
        kept = reductions.reduced_shape(shape, axes, _flag(keepdims))
        return deliver(trace, name, build.broadcast(trace, start, kept), out)
    if not _require_elements(trace, name, shape, axes):
        kept = reductions.reduced_shape(shape, axes, _flag(keepdims))
        return deliver(trace, name, build.broadcast(trace, build.literal(0, array.dtype), kept), out)
    found: Operand = trace.emit1(op, value, axes=axes, keepdims=_flag(keepdims))
    if start is not None:
        found = trace.emit1(fold, found, start)
    return deliver(trace, name, found, out)


def max_(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOTHING, initial: Any = NOTHING, where: Any = NOTHING
) -> Any:
    """The largest element; NaN where there is one. An empty axis is a ShapeError."""
    return _extreme("max", reductions.max_, p.maximum, a, axis, out, keepdims, initial, where)


def min_(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOTHING, initial: Any = NOTHING, where: Any = NOTHING
) -> Any:
    """The smallest element; NaN where there is one. An empty axis is a ShapeError."""
    return _extreme("min", reductions.min_, p.minimum, a, axis, out, keepdims, initial, where)


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOTHING) -> Any:
    """Largest minus smallest."""
    trace = running_trace("ptp")
    high, low = max_(a, axis, None, keepdims), min_(a, axis, None, keepdims)
    return deliver(trace, "ptp", trace.emit1(p.subtract, high.read(), low.read()), out)


def _arg(name: str, op: Op, a: Any, axis: Any, out: Any, keepdims: Any) -> Any:
    trace = running_trace(name)
    array = as_traced(trace, a, name)
    axes = tuple(range(array.ndim)) if axis is None else (axis_of(axis, array.ndim, name),)
    _require_elements(trace, name, array.type.shape, axes)
    find = _call_of_complex if array.dtype.kind == "c" else trace.emit1
    found = find(op, array.read(), axes=axes, keepdims=_flag(keepdims))
    return deliver(trace, name, found, out)


def _call_of_complex(op: Op, value: Operand, *, axes: tuple[int, ...], keepdims: bool) -> Operand:
    """NumPy's own function, whose order of complex numbers is that of (real, imaginary); no kernel has it."""
    rank = len(value.type.shape)
    static = (("axis", axes[0] if len(axes) < rank or rank == 1 else None), ("keepdims", keepdims))
    shape = reductions.reduced_shape(value.type.shape, axes, keepdims)
    return running_trace(op.name).emit1(
        library.numpy_call, value, function=op.name, static=static, shape=shape, dtype=INT64
    )


def argmax(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NOTHING) -> Any:
    """The index of the first largest element (of the first NaN); of the flattened array where no axis is given."""
    return _arg("argmax", reductions.argmax, a, axis, out, keepdims)


def argmin(a: Any, axis: Any = None, out: Any = None, *, keepdims: Any = NOTHING) -> Any:
    """The index of the first smallest element (of the first NaN); of the flattened array where no axis is given."""
    return _arg("argmin", reductions.argmin, a, axis, out, keepdims)


def _boolean(name: str, op: Op, empty: bool, a: Any, axis: Any, out: Any, keepdims: Any, where: Any) -> Any:
    """any and all: the largest and smallest of the bools; without elements, the neutral one."""
    trace = running_trace(name)
    array = as_traced(trace, a, name)
    value = _masked(trace, as_bool(trace, array.read()), where, build.literal(empty, BOOL), name)
    axes = axes_of(axis, len(value.type.shape), name)
    return deliver(trace, name, of_bools(trace, op, value, axes, _flag(keepdims)), out)


def of_bools(trace: Trace, op: Op, value: Operand, axes: tuple[int, ...], keepdims: bool) -> Operand:
    """The largest or the smallest of bools over the axes; of no element False or True."""
    is_any = op is reductions.max_
    if any(is_runtime(value.type.shape[k]) for k in axes):
        # Counting needs no element: any is "some are True", all is "none is False".
        counted = value if is_any else trace.emit1(p.invert, value)
        count = trace.emit1(reductions.sum_, build.convert(trace, counted, INT64), axes=axes, keepdims=keepdims)
        return trace.emit1(p.not_equal if is_any else p.equal, count, build.literal(0, INT64))
    if not all(trace.guard("<", 0, value.type.shape[k]) for k in axes):
        kept = reductions.reduced_shape(value.type.shape, axes, keepdims)
        return build.broadcast(trace, build.literal(not is_any, BOOL), kept)
    return trace.emit1(op, value, axes=axes, keepdims=keepdims)


def any_(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOTHING, *, where: Any = NOTHING) -> Any:
    """Whether some element is not 0."""
    return _boolean("any", reductions.max_, False, a, axis, out, keepdims, where)


def all_(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOTHING, *, where: Any = NOTHING) -> Any:
    """Whether no element is 0."""
    return _boolean("all", reductions.min_, True, a, axis, out, keepdims, where)


def cumsum(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Running sums along an axis (None: of the flattened array), as a library call."""
    trace = running_trace("cumsum")
    array = as_traced(trace, a, "cumsum")
    if axis is None:
        array, axis = ravel(array), 0
    k = axis_of(axis, array.ndim, "cumsum")
    target = accumulation_dtype(array.dtype) if dtype is None else dtype_of(dtype, "cumsum")
    value = build.convert(trace, array.read(), target)
    return deliver(trace, "cumsum", trace.emit1(library.cumsum, value, axis=k), out)


def diff(a: Any, n: int = 1, axis: int = -1, prepend: Any = NOTHING, append: Any = NOTHING) -> Any:
    """Differences of neighbours, ``n`` times; ``prepend`` and ``append`` are joined at the ends first."""
    from tenferro.tracer.api.elementwise import BY_UFUNC
    from tenferro.tracer.api.joining import concatenate

    trace = running_trace("diff")
    array = as_traced(trace, a, "diff")
    times = integer(n, "diff", "n")
    if times == 0:
        return array
    if times < 0:
        raise ShapeError(f"diff: n {times}; 0 or more is needed{at(user_line())}")
    if array.ndim == 0:
        raise ShapeError(f"diff: rank 0; rank 1 or more is needed{at(user_line())}")
    k = axis_of(axis, array.ndim, "diff")
    parts = [_end(trace, prepend, array, k), array, _end(trace, append, array, k)]
    if prepend is not NOTHING or append is not NOTHING:
        array = concatenate([x for x in parts if x is not None], k)
    before = (slice(None),) * k
    ufunc = np.not_equal if array.dtype == BOOL else np.subtract
    for _ in range(times):
        array = BY_UFUNC[ufunc].function(array[(*before, slice(1, None))], array[(*before, slice(None, -1))])
    return array


def _end(trace: Trace, x: Any, array: TracedArray, axis: int) -> TracedArray | None:
    """What ``diff`` puts before or behind; a number stands for one element of each row."""
    if x is NOTHING:
        return None
    end: TracedArray = as_traced(trace, x, "diff")
    if end.ndim:
        return end
    shape = array.type.shape
    return new(trace, build.broadcast(trace, end.read(), (*shape[:axis], 1, *shape[axis + 1 :])))


def _f(name: str, function: Callable[..., Any], arrays: tuple[str, ...]) -> ApiFunction:
    return ApiFunction(name, function, arrays, False, getattr(np, name))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f("sum", sum_, ("a", "out", "where", "initial")),
    _f("prod", prod, ("a", "out", "where", "initial")),
    _f("mean", mean, ("a", "out", "where")),
    _f("var", var, ("a", "out")),
    _f("std", std, ("a", "out")),
    _f("max", max_, ("a", "out", "where", "initial")),
    _f("min", min_, ("a", "out", "where", "initial")),
    ApiFunction("amax", max_, ("a", "out", "where", "initial"), False, np.max),
    ApiFunction("amin", min_, ("a", "out", "where", "initial"), False, np.min),
    _f("ptp", ptp, ("a", "out")),
    _f("argmax", argmax, ("a", "out")),
    _f("argmin", argmin, ("a", "out")),
    _f("any", any_, ("a", "out", "where")),
    _f("all", all_, ("a", "out", "where")),
    _f("count_nonzero", count_nonzero, ("a",)),
    _f("cumsum", cumsum, ("a", "out")),
    _f("diff", diff, ("a", "prepend", "append")),
)
