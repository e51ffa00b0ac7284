"""Joining and splitting: several arrays in, one out; or one in, its parts out. ``roll`` is a split joined anew."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import dtype_of, extents_of, join_along_new_axis
from tenferro.tracer.api.deliver import check_cast, deliver, new_array, numbers_of
from tenferro.tracer.api.layout import as_tuple, atleast_1d, atleast_2d, axis_of, line_of, ravel
from tenferro.tracer.api.promotion import aligned, converted, result_type, sizes_text, strong
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.complaints import no_integer
from tenferro.tracer.dim import as_extent, integer, pinned
from tenferro.tracer.dims import Extent, floordiv, is_runtime, maximum, mod, mul, sub
from tenferro.tracer.errors import ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced, from_known, operand


def concatenate(
    arrays: Any, /, axis: Any = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind"
) -> Any:
    """Arrays one after another along an axis; sizes on the other axes must be equal."""
    trace = running_trace("concatenate")
    items = _sequence(trace, arrays, "concatenate")
    if axis is None:
        items, axis = [ravel(i) for i in items], 0
    rank = items[0].ndim
    k = axis_of(axis, rank, "concatenate") if rank else 0
    if rank == 0 or any(i.ndim != rank for i in items):
        raise ShapeError(
            f"concatenate: arrays of ranks {[i.ndim for i in items]}; one rank of at least 1 is needed{at(user_line())}"
        )
    values = _promoted(trace, items, "concatenate", dtype, casting)
    shape = items[0].type.shape
    for i in items[1:]:
        for j, (n, m) in enumerate(zip(shape, i.type.shape, strict=True)):
            if j != k and not trace.guard("==", n, m):
                raise ShapeError(
                    f"concatenate: axis {j} has sizes {trace.hint(n)} and {trace.hint(m)}; they must be "
                    f"equal{at(user_line())}"
                )
    values = [aligned(trace, v, (*shape[:k], v.type.shape[k], *shape[k + 1 :])) for v in values]
    joined = trace.emit1(layout.concatenate, *values, axis=k) if len(values) > 1 else build.copied(trace, values[0])
    return deliver(trace, "concatenate", joined, out, casting=casting)


def _sequence(trace: Trace, arrays: Any, name: str) -> list[TracedArray]:
    items = [as_traced(trace, a, name) for a in arrays]
    if not items:
        raise ShapeError(f"{name}: no arrays; at least one is needed{at(user_line())}")
    return items


def _promoted(
    trace: Trace, items: Sequence[TracedArray], name: str, dtype: Any, casting: Any
) -> list[Operand]:  # fmt: skip
    """The arrays in one dtype: the one asked for, else the one that NumPy's promotion gives, as ``casting`` allows."""
    pairs = [operand(trace, i, name) for i in items]
    target = result_type([strong(k) for _, k in pairs]) if dtype is None else dtype_of(dtype, name)
    for _, key in pairs:
        check_cast(name, strong(key), target, casting)
    return [converted(trace, v, target, name) for v, _ in pairs]


def stack(arrays: Any, axis: int = 0, out: Any = None, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """Arrays of one shape along a new axis."""
    trace = running_trace("stack")
    items = _sequence(trace, arrays, "stack")
    shape = items[0].type.shape
    for i in items[1:]:
        if i.ndim != len(shape) or not all(trace.guard("==", n, m) for n, m in zip(shape, i.type.shape, strict=True)):
            found = " and ".join(sizes_text(trace, s) for s in (shape, i.type.shape))
            raise ShapeError(f"stack: shapes {found}; one shape is needed{at(user_line())}")
    k = axis_of(axis, len(shape) + 1, "stack")
    made = join_along_new_axis(trace, "stack", _promoted(trace, items, "stack", dtype, casting), k)
    return made if out is None else deliver(trace, "stack", made.read(), out, casting=casting)


def vstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """Along axis 0, vectors as rows."""
    trace = running_trace("vstack")
    return concatenate([atleast_2d(i) for i in _sequence(trace, tup, "vstack")], 0, dtype=dtype, casting=casting)


def hstack(tup: Any, *, dtype: Any = None, casting: Any = "same_kind") -> Any:
    """Along axis 1, vectors along axis 0."""
    items = [atleast_1d(i) for i in _sequence(running_trace("hstack"), tup, "hstack")]
    return concatenate(items, 0 if items[0].ndim == 1 else 1, dtype=dtype, casting=casting)


def dstack(tup: Any) -> Any:
    """Along axis 2."""
    items = [atleast_2d(i) for i in _sequence(running_trace("dstack"), tup, "dstack")]
    return concatenate([i[:, :, None] if i.ndim == 2 else i for i in items], 2)


def column_stack(tup: Any) -> Any:
    """Vectors as columns."""
    items = _sequence(running_trace("column_stack"), tup, "column_stack")
    return concatenate([i[:, None] if i.ndim == 1 else i for i in items], 1)


def append(arr: Any, values: Any, axis: Any = None) -> Any:
    """``values`` after ``arr``."""
    array = as_traced(running_trace("append"), arr, "append")
    return concatenate([array, values], None if axis is None else axis_of(axis, array.ndim, "append"))


def split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """Views of equal parts, or of the parts between the indices."""
    return _split("split", ary, indices_or_sections, axis, exact=True)


def array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    """``split`` into parts that may differ in size by 1; pins the size."""
    return _split("array_split", ary, indices_or_sections, axis, exact=False)


def _split(name: str, ary: Any, parts: Any, axis: int, exact: bool) -> list[TracedArray]:
    trace = running_trace(name)
    array = as_traced(trace, ary, name)
    k = axis_of(axis, array.ndim, name)
    n = array.type.shape[k]
    before = (slice(None),) * k
    if isinstance(parts, tuple | list | np.ndarray):
        edges = [None, *parts, None]
        return [array[(*before, slice(a, b))] for a, b in zip(edges[:-1], edges[1:], strict=True)]
    count = integer(parts, name, "indices_or_sections")
    if count <= 0:
        raise ShapeError(f"{name}: {count} parts; 1 or more are needed{at(user_line())}")
    if exact:
        size = floordiv(n, count)
        if not trace.guard("==", n, mul(size, count)):
            raise ShapeError(f"split: size {trace.hint(n)} into {count} parts; equal parts are needed{at(user_line())}")
        whole = array.shape[k] // count
        return [array[(*before, slice(i * whole, (i + 1) * whole))] for i in range(count)]
    fixed = trace.concrete(n, name)
    edge = [0]
    for i in range(count):
        edge.append(edge[-1] + fixed // count + (1 if i < fixed % count else 0))
    return [array[(*before, slice(a, b))] for a, b in zip(edge[:-1], edge[1:], strict=True)]


def tile(A: Any, reps: Any) -> Any:  # noqa: N803
    """Copies side by side."""
    trace = running_trace("tile")
    array = as_traced(trace, A, "tile")
    counts = extents_of(reps, "tile")
    rank = max(array.ndim, len(counts))
    shape = (1,) * (rank - array.ndim) + array.type.shape
    counts = (1,) * (rank - len(counts)) + counts
    value = build.reshape(trace, array.read(), tuple(x for n in shape for x in (1, n)))
    wide = tuple(x for c, n in zip(counts, shape, strict=True) for x in (c, n))
    value = build.copied(trace, build.broadcast(trace, value, wide))
    return new_array(trace, build.reshape(trace, value, tuple(mul(c, n) for c, n in zip(counts, shape, strict=True))))


def repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    """Each element so many times; one number for all."""
    trace = running_trace("repeat")
    array = as_traced(trace, a, "repeat")
    array, axis = line_of(array, axis, "repeat")
    count = as_extent(repeats)
    if count is None:
        return _repeated(trace, array, repeats, axis)
    if not trace.guard("<=", 0, count):
        raise ShapeError(f"repeat: repeats {trace.describe(count)}; 0 or more are needed{at(user_line())}")
    k = axis + 1
    shape = array.type.shape
    value = build.reshape(trace, array.read(), (*shape[:k], 1, *shape[k:]))
    value = build.copied(trace, build.broadcast(trace, value, (*shape[:k], count, *shape[k:])))
    return new_array(trace, build.reshape(trace, value, (*shape[: k - 1], mul(shape[k - 1], count), *shape[k:])))


def _repeated(trace: Trace, array: TracedArray, repeats: Any, axis: int) -> TracedArray:
    """Each element as often as its own number says: the numbers must be known, and pin the size."""
    from tenferro.tracer.api.indexing import take

    given = pinned(repeats)
    known = numbers_of(trace, given, "repeat")
    if known is None or known.dtype.kind not in "iub" and known.size:
        needed = "an integer, or a list of them that is known, is needed"
        raise TraceError(f"repeat: repeats {no_integer(repeats, needed)}{at(user_line())}")
    size = array.type.shape[axis]
    if known.size == 1:
        return repeat(array, int(known.reshape(())), axis)  # type: ignore[no-any-return]
    if known.ndim != 1 or not trace.guard("==", size, len(known)):
        raise ShapeError(
            f"repeat: {known.size} repeats for axis {axis} of size {trace.hint(size)}; one for each element is "
            f"needed{at(user_line())}"
        )
    if known.size and known.min() < 0:
        raise ShapeError(f"repeat: repeats {known.min()}; 0 or more are needed{at(user_line())}")
    places = from_known(trace, np.repeat(np.arange(len(known)), known.astype(np.int64)))
    return take(array, places, axis)  # type: ignore[no-any-return]


def roll(a: Any, shift: Any, axis: Any = None) -> Any:
    """Elements moved round, as two slices joined."""
    trace = running_trace("roll")
    array = as_traced(trace, a, "roll")
    if axis is None:
        return new_array(trace, build.reshape(trace, roll(ravel(array), shift, 0).read(), array.type.shape))
    shifts, axes = as_tuple(shift), as_tuple(axis)
    if len(shifts) != len(axes):
        shifts, axes = shifts * (len(axes) if len(shifts) == 1 else 1), axes * (len(shifts) if len(axes) == 1 else 1)
    value = array.read()
    for amount, k in zip(shifts, axes, strict=True):
        value = _rolled(trace, value, amount, axis_of(k, array.ndim, "roll"))
    return new_array(trace, value if value is not array.read() else build.copied(trace, value))


def _rolled(trace: Trace, value: Operand, shift: Any, axis: int) -> Operand:
    """``concatenate(x[n − s:], x[:n − s])`` for 0 <= s <= n; other shifts are brought there by guards."""
    n = value.type.shape[axis]
    amount = as_extent(shift)
    if amount is None:
        raise TraceError(f"roll: shift {no_integer(shift)}{at(user_line())}")
    if is_runtime(n):
        amount = mod(amount, maximum(n, 1))
    elif not trace.guard("<=", 0, amount):
        amount = sub(n, sub(0, amount))
    if not is_runtime(n) and not (trace.guard("<=", 0, amount) and trace.guard("<=", amount, n)):
        if trace.guard("==", n, 0):
            return value
        amount = trace.concrete(amount, "roll") % trace.concrete(n, "roll")
    if amount == 0 or amount == n:
        return value
    rank = len(value.type.shape)
    ones = (1,) * rank
    cut = sub(n, amount)

    def part(start: Extent, size: Extent) -> Operand:
        starts = tuple(start if k == axis else 0 for k in range(rank))
        sizes = tuple(size if k == axis else m for k, m in enumerate(value.type.shape))
        return trace.emit1(layout.slice_, value, starts=starts, steps=ones, sizes=sizes)

    return trace.emit1(layout.concatenate, part(cut, amount), part(0, cut), axis=axis)


def _f(name: str, function: Any, arrays: tuple[str, ...], view: bool = True, reference: Any = None) -> ApiFunction:
    return ApiFunction(name, function, arrays, view, getattr(np, name) if reference is None else reference)


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f("roll", roll, ("a",), False),
    _f("concatenate", concatenate, ("arrays", "out"), False),
    _f("concat", concatenate, ("arrays", "out"), False, np.concatenate),
    _f("stack", stack, ("arrays", "out"), False),
    _f("vstack", vstack, ("tup",), False),
    _f("hstack", hstack, ("tup",), False),
    _f("dstack", dstack, ("tup",), False),
    _f("column_stack", column_stack, ("tup",), False),
    _f("append", append, ("arr", "values"), False),
    _f("split", split, ("ary",)),
    _f("array_split", array_split, ("ary",)),
    _f("tile", tile, ("A",), False),
    _f("repeat", repeat, ("a",), False),
)
