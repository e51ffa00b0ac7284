"""Reductions: an array and axes in, one number for each remaining place out.

Accumulation dtypes are NumPy's; float16 stays float16, accumulated in float32.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import dtype_of
from tenferro.tracer.api.deliver import check_cast, deliver, new, target_of
from tenferro.tracer.api.layout import axes_of, axis_of, line_of, reduced_axes
from tenferro.tracer.api.promotion import as_bool, broadcast_into, stored
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.dim import integer
from tenferro.tracer.dims import Extent, is_runtime, product
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Op
from tenferro.tracer.ops import layout, library, pointwise as p, reductions
from tenferro.tracer.program import DimScalar, Operand
from tenferro.tracer.records import dataclass
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


def flag(keepdims: Any) -> bool:
    return bool(keepdims) if keepdims is not NOTHING else False


def masked(trace: Trace, value: Operand, where: Any, neutral: Operand, name: str) -> Operand:
    """Elements that ``where=`` leaves out count as the neutral element."""
    if where is NOTHING or where is True:
        return value
    condition = as_bool(trace, operand(trace, where, name)[0])
    return trace.emit1(p.where, broadcast_into(trace, name, condition, value.type.shape), value, neutral)


def _initial(trace: Trace, x: Any, dtype: Dtype, name: str) -> Operand:
    """``initial=`` as a number of the dtype."""
    value, key = operand(trace, x, name)
    if value.type.shape:
        raise ShapeError(f"{name}: initial of rank {len(value.type.shape)}; a number is needed{at(user_line())}")
    if value.type.dtype.kind == "c" and dtype.kind not in "cb":
        raise DtypeError(f"{name}: initial {value.type.dtype.name}; a real number is needed{at(user_line())}")
    return stored(trace, value, key, dtype, name)


@dataclass(frozen=True, slots=True)
class Fold:
    """A sum or a product: its row, the row of two numbers, what changes nothing, and what it is of bools."""

    row: Op
    pair: Op
    neutral: int
    of_bools: Op


SUM = Fold(reductions.sum_, p.add, 0, reductions.max_)
PRODUCT = Fold(reductions.prod_, p.multiply, 1, reductions.min_)


def folded(
    name: str, fold: Fold, trace: Trace, value: Operand, axis: Any, dtype: Any, out: Any, keepdims: Any, initial: Any,
    where: Any,
) -> Any:  # fmt: skip
    """All elements over the axes in one; bools and integers in 64 bits, whatever has an ``out`` in its dtype."""
    if dtype is None and out is not None:
        dtype = target_of(out, name).dtype
        check_cast(name, value.type.dtype, dtype)
    target = accumulation_dtype(value.type.dtype) if dtype is None else dtype_of(dtype, name)
    value = masked(trace, build.convert(trace, value, target), where, build.literal(fold.neutral, target), name)
    axes = reduced_axes(axis, len(value.type.shape), name)
    if target == BOOL:
        found = of_bools(trace, fold.of_bools, value, axes, flag(keepdims))
    else:
        found = trace.emit1(fold.row, value, axes=axes, keepdims=flag(keepdims))
    if _given(initial):
        found = trace.emit1(fold.pair, found, _initial(trace, initial, target, name))
    return deliver(trace, name, found, out)


def sum_(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOTHING, initial: Any = NOTHING,
    where: Any = NOTHING,
) -> Any:  # fmt: skip
    """The sum over the axes; bools and integers are summed in 64 bits."""
    trace = running_trace("sum")
    value = as_traced(trace, a, "sum").read()
    return folded("sum", SUM, trace, value, axis, dtype, out, keepdims, initial, where)


def prod(
    a: Any, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: Any = NOTHING, initial: Any = NOTHING,
    where: Any = NOTHING,
) -> Any:  # fmt: skip
    """The product over the axes; bools and integers are multiplied in 64 bits."""
    trace = running_trace("prod")
    value = as_traced(trace, a, "prod").read()
    return folded("prod", PRODUCT, trace, value, axis, dtype, out, keepdims, initial, where)


def count_nonzero(a: Any, axis: Any = None, *, keepdims: bool = False) -> Any:
    """How many elements are not 0."""
    trace = running_trace("count_nonzero")
    array = as_traced(trace, a, "count_nonzero")
    ones = build.convert(trace, as_bool(trace, array.read()), INT64)
    axes = reduced_axes(axis, array.ndim, "count_nonzero")
    return new(trace, trace.emit1(reductions.sum_, ones, axes=axes, keepdims=bool(keepdims)))


def number(trace: Trace, extent: Extent, dtype: Dtype) -> Operand:
    """A size as a number of the dtype."""
    extent = trace.canonical(extent)
    return build.literal(extent, dtype) if isinstance(extent, int) else DimScalar(extent, dtype)


def chosen_by(trace: Trace, where: Any, shape: tuple[Extent, ...], name: str) -> Operand | None:
    """``where=`` as an array of bools of the shape; None where it leaves nothing out."""
    if where is NOTHING or where is True:
        return None
    condition = as_bool(trace, operand(trace, where, name)[0])
    return build.broadcast(trace, broadcast_into(trace, name, condition, shape), shape)


def counted(
    trace: Trace, chosen: Operand | None, shape: tuple[Extent, ...], axes: tuple[int, ...], keepdims: bool, dtype: Dtype
) -> Operand:  # fmt: skip
    """How many elements are chosen over the axes, as a number of the dtype."""
    if chosen is None:
        return number(trace, product(shape[k] for k in axes), dtype)
    total = trace.emit1(reductions.sum_, build.convert(trace, chosen, INT64), axes=axes, keepdims=keepdims)
    return build.convert(trace, total, dtype)


def working_dtype(dtype: Dtype, asked: Any, name: str) -> tuple[Dtype, Dtype]:
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
    working, result = working_dtype(array.dtype, dtype, "mean")
    value = build.convert(trace, array.read(), working)
    axes = axes_of(axis, array.ndim, "mean")
    average = mean_of(trace, value, chosen_by(trace, where, value.type.shape, "mean"), axes, flag(keepdims))
    return deliver(trace, "mean", build.convert(trace, average, result), out)


def mean_of(trace: Trace, value: Operand, chosen: Operand | None, axes: tuple[int, ...], keepdims: bool) -> Operand:
    """The sum of the chosen elements divided by their number."""
    shape, dtype = value.type.shape, value.type.dtype
    if chosen is not None:
        value = trace.emit1(p.where, chosen, value, build.literal(0, dtype))
    total = trace.emit1(reductions.sum_, value, axes=axes, keepdims=keepdims)
    return trace.emit1(p.divide, total, counted(trace, chosen, shape, axes, keepdims, dtype))


def require_elements(trace: Trace, name: str, shape: tuple[Extent, ...], axes: tuple[int, ...]) -> None:
    """Raise where an axis to reduce is empty, as NumPy does even if there is no result that would lack elements. A
    guard on each axis, except that a size known only at run time is checked by the run."""
    if not all(is_runtime(shape[k]) or trace.guard("<", 0, shape[k]) for k in axes):
        raise ShapeError(
            f"{name}: zero-size array to a reduction which has no identity; a size of at least 1 is "
            f"needed{at(user_line())}"
        )


@dataclass(frozen=True, slots=True)
class Extreme:
    """A largest or smallest element: its row, the row of two numbers, and what no number goes beyond."""

    row: Op
    pair: Op
    fill: float


MAX = Extreme(reductions.max_, p.maximum, -np.inf)
MIN = Extreme(reductions.min_, p.minimum, np.inf)


def start_of(trace: Trace, name: str, initial: Any, where: Any, dtype: Dtype) -> Operand | None:
    """``initial=`` of an extreme; a ShapeError where ``where=`` needs one."""
    if _given(initial):
        return _initial(trace, initial, dtype, name)
    if where is not NOTHING and where is not True:
        raise ShapeError(f"{name}: where without initial; initial is needed{at(user_line())}")
    return None


def of_none(
    trace: Trace, name: str, value: Operand, axes: tuple[int, ...], keepdims: bool, start: Operand | None
) -> Operand | None:
    """``initial=`` where an axis is empty; None where there are elements. A ShapeError where there is neither."""
    shape = value.type.shape
    if start is not None and not all(trace.guard("<", 0, shape[k]) for k in axes):
        return build.broadcast(trace, start, reductions.reduced_shape(shape, axes, keepdims))
    require_elements(trace, name, shape, axes)
    return None


def _never_empty(trace: Trace, value: Operand, axes: tuple[int, ...], start: Operand) -> Operand:
    """``start`` joined to each axis to reduce whose size is known only when the program runs."""
    for axis in axes:
        shape = value.type.shape
        if is_runtime(shape[axis]):
            one = build.broadcast(trace, start, (*shape[:axis], 1, *shape[axis + 1 :]))
            value = trace.emit1(layout.concatenate, value, one, axis=axis)
    return value


def extreme(
    name: str, kind: Extreme, trace: Trace, value: Operand, axis: Any, out: Any, keepdims: Any, initial: Any, where: Any
) -> Any:
    """The largest or smallest element over the axes."""
    start = start_of(trace, name, initial, where, value.type.dtype)
    if start is not None:
        value = masked(trace, value, where, start, name)
    axes = reduced_axes(axis, len(value.type.shape), name)
    if start is not None:
        value = _never_empty(trace, value, axes, start)
    found = of_none(trace, name, value, axes, flag(keepdims), start)
    if found is None:
        found = trace.emit1(kind.row, value, axes=axes, keepdims=flag(keepdims))
        found = found if start is None else trace.emit1(kind.pair, found, start)
    return deliver(trace, name, found, out)


def max_(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOTHING, initial: Any = NOTHING, where: Any = NOTHING
) -> Any:
    """The largest element; NaN where there is one. An empty axis is a ShapeError."""
    trace = running_trace("max")
    return extreme("max", MAX, trace, as_traced(trace, a, "max").read(), axis, out, keepdims, initial, where)


def min_(
    a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOTHING, initial: Any = NOTHING, where: Any = NOTHING
) -> Any:
    """The smallest element; NaN where there is one. An empty axis is a ShapeError."""
    trace = running_trace("min")
    return extreme("min", MIN, trace, as_traced(trace, a, "min").read(), axis, out, keepdims, initial, where)


def ptp(a: Any, axis: Any = None, out: Any = None, keepdims: Any = NOTHING) -> Any:
    """Largest minus smallest."""
    trace = running_trace("ptp")
    value = as_traced(trace, a, "ptp").read()
    high, low = (extreme("ptp", kind, trace, value, axis, None, keepdims, NOTHING, NOTHING) for kind in (MAX, MIN))
    return deliver(trace, "ptp", trace.emit1(p.subtract, high.read(), low.read()), out)


def _arg(name: str, op: Op, a: Any, axis: Any, out: Any, keepdims: Any) -> Any:
    trace = running_trace(name)
    return deliver(trace, name, place_of(trace, name, op, as_traced(trace, a, name).read(), axis, keepdims), out)


def place_of(trace: Trace, name: str, op: Op, value: Operand, axis: Any, keepdims: Any) -> Operand:
    """The index of the largest or smallest element, of the flattened array where no axis is given."""
    rank = len(value.type.shape)
    axes = tuple(range(rank)) if axis is None or not rank else (axis_of(axis, rank, name),)
    if not rank:
        reduced_axes(axis, rank, name)  # refuses any other axis than that of a line of one
    require_elements(trace, name, value.type.shape, axes)
    find = _call_of_complex if value.type.dtype.kind == "c" else trace.emit1
    return find(op, value, axes=axes, keepdims=flag(keepdims))


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
    value = masked(trace, as_bool(trace, array.read()), where, build.literal(empty, BOOL), name)
    axes = reduced_axes(axis, len(value.type.shape), name)
    return deliver(trace, name, of_bools(trace, op, value, axes, flag(keepdims)), out)


def of_bools(trace: Trace, op: Op, value: Operand, axes: tuple[int, ...], keepdims: bool) -> Operand:
    """The largest or the smallest of bools over the axes; of no element False or True."""
    is_any = op is reductions.max_
    if any(is_runtime(value.type.shape[k]) for k in axes):
        # Counting needs no element: any is "some are True", all is "none is False".
        tested = value if is_any else trace.emit1(p.invert, value)
        count = trace.emit1(reductions.sum_, build.convert(trace, tested, INT64), axes=axes, keepdims=keepdims)
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
    array, k = line_of(array, axis, "cumsum")
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
