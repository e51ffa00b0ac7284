"""Layout functions: an array in; a view of it where NumPy makes one, else a new array, out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import extents_of
from tenferro.tracer.api.deliver import new, new_array
from tenferro.tracer.api.promotion import (
    broadcast_shapes,
    shape_mismatch,
    sizes_text,
)
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.cells import Part, Reshaped, Stretched, Transposed
from tenferro.tracer.dim import as_extent, integer, make_dim
from tenferro.tracer.dims import Extent, floordiv, mul, product, sub
from tenferro.tracer.errors import AxisError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced


def axis_of(axis: Any, rank: int, name: str) -> int:
    """The axis counted from the front."""
    index = integer(axis, name, "axis")
    if not -rank <= index < rank:
        needed = f"it must be in [{-rank}, {rank})"
        raise AxisError(f"{name}: axis {index} for rank {rank}; {needed}{at(user_line())}", index, rank)
    return index % rank


def axes_of(axis: Any, rank: int, name: str) -> tuple[int, ...]:
    """All axes for None, else the sorted axes; a repeated one is a ShapeError."""
    return tuple(sorted(axes_as_named(axis, rank, name)))


def reduced_axes(axis: Any, rank: int, name: str) -> tuple[int, ...]:
    """``axes_of`` for ufuncs' reductions and their like, for which a scalar has an axis 0."""
    return () if not rank and type(axis) is int and axis in (0, -1) else axes_of(axis, rank, name)


def line_of(array: TracedArray, axis: Any, name: str) -> tuple[TracedArray, int]:
    """An array and its axis for functions that work along one: of the flattened array for None, and a scalar is a line
    of one element."""
    if axis is None:
        return ravel(array), 0
    if not array.ndim and type(axis) is int and axis in (0, -1):
        return ravel(array), 0
    return array, axis_of(axis, array.ndim, name)


def axes_as_named(axis: Any, rank: int, name: str) -> list[int]:
    """The same in the order in which they are named."""
    items = range(rank) if axis is None else as_tuple(axis)
    axes = [axis_of(a, rank, name) for a in items]
    if len(set(axes)) < len(axes):
        raise ShapeError(f"{name}: axes {tuple(items)}; each may be named once{at(user_line())}")
    return axes


def reshape(a: Any, /, shape: Any = None, order: str = "C", *, copy: bool | None = None, newshape: Any = None) -> Any:
    """The same elements in this order; a view where they lie in row-major order. One size may be −1."""
    return _reshaped("reshape", a, newshape if shape is None else shape, order, copy)


def _reshaped(name: str, a: Any, shape: Any, order: str, copy: bool | None) -> Any:
    trace = running_trace("reshape")
    array = as_traced(trace, a, "reshape")
    if _is_columns_first(name, array, order):
        backwards = as_tuple(shape)[::-1]
        return transpose(_reshaped(name, transpose(array), backwards, "C", copy))
    wanted = _target_shape(trace, array, shape)
    if copy or not (array._contiguous or _splits_axes(array.type.shape, wanted)):
        if copy is False:
            raise ShapeError(f"reshape: the elements do not lie in row-major order; a copy is needed{at(user_line())}")
        value = build.copied(trace, array.read())
        return new_array(trace, build.reshape(trace, value, wanted))
    return array.stepped(Reshaped(wanted), wanted)


def _is_columns_first(name: str, array: TracedArray, order: str) -> bool:
    """Whether order "F" is meant. "A" and "K" ask how the memory lies, which is known of the function's own arrays."""
    if order == "F":
        return array.ndim > 1 or name == "reshape"
    is_known = array.ndim < 2 or (array._contiguous and array._cell.origin is None)
    if order != "C" and not (order in ("A", "K") and is_known):
        raise TraceError(
            f"{name}: order {order!r}, which asks how the memory lies; 'C' or 'F' is needed{at(user_line())}"
        )
    return False


def _splits_axes(shape: tuple[Extent, ...], wanted: tuple[Extent, ...]) -> bool:
    """Whether each axis becomes axes of its own: then any strides serve, and NumPy's result is a view."""
    targets = [n for n in wanted if n != 1]
    position = 0
    for n in shape:
        if n == 1:
            continue
        covered: Extent = 1
        while covered != n:
            if position == len(targets):
                return False
            covered = mul(covered, targets[position])
            position += 1
            if isinstance(covered, int) and isinstance(n, int) and covered > n:
                return False
    return position == len(targets)


def _is_negative(trace: Trace, size: Any) -> bool:
    """NumPy takes any negative size for −1."""
    extent = as_extent(size)
    return extent is not None and not trace.guard("<=", 0, extent)


def _target_shape(trace: Trace, array: TracedArray, shape: Any) -> tuple[Extent, ...]:
    items = list(shape) if isinstance(shape, tuple | list) else [shape]
    open_axes = [k for k, n in enumerate(items) if _is_negative(trace, n)]
    if len(open_axes) > 1:
        raise ShapeError(f"reshape: shape {tuple(items)}; one size may be -1{at(user_line())}")
    total = product(array.type.shape)
    given = extents_of([1 if k in open_axes else n for k, n in enumerate(items)], "reshape")
    rest = product(given)
    if open_axes:
        k = open_axes[0]
        missing = _quotient(trace, array, given, k, total, rest)
        return (*given[:k], missing, *given[k + 1 :])
    if not trace.guard("==", total, rest):
        raise ShapeError(
            f"reshape: {trace.hint(total)} elements into shape {sizes_text(trace, given)}; the numbers must be "
            f"equal{at(user_line())}"
        )
    return given


def _quotient(
    trace: Trace, array: TracedArray, given: tuple[Extent, ...], k: int, total: Extent, rest: Extent
) -> Extent:
    """The size that −1 stands for; shared axes cancel, so that (n, m, 3) → (−1, 3) needs no guard."""
    mine = list(array.type.shape)
    others: list[Extent] = []
    for j, n in enumerate(given):
        if j == k:
            continue
        if n in mine:
            mine.remove(n)
        else:
            others.append(n)
    top, bottom = product(mine), product(others)
    if bottom == 1:
        return top
    divides = not trace.guard("==", rest, 0) and trace.guard("==", sub(top, mul(floordiv(top, bottom), bottom)), 0)
    if not divides:
        raise ShapeError(
            f"reshape: {trace.hint(total)} elements into shape {sizes_text(trace, given)} with -1; the product of the "
            f"other sizes must divide them{at(user_line())}"
        )
    return floordiv(top, bottom)


def ravel(a: Any, order: str = "C") -> Any:
    """One axis; a view where the elements lie in row-major order."""
    trace = running_trace("ravel")
    array = as_traced(trace, a, "ravel")
    return _reshaped("ravel", array, (-1,), order, None)


def flatten(a: Any, order: str = "C") -> Any:
    """One axis, always new."""
    return _reshaped("flatten", a, (-1,), order, True)


def transpose(a: Any, axes: Any = None) -> Any:
    """Axes reversed, or in the order given."""
    trace = running_trace("transpose")
    array = as_traced(trace, a, "transpose")
    rank = array.ndim
    order = (
        tuple(reversed(range(rank))) if axes is None else tuple(axis_of(x, rank, "transpose") for x in as_tuple(axes))
    )
    if sorted(order) != list(range(rank)):
        raise ShapeError(f"transpose: axes {axes} for rank {rank}; each axis once is needed{at(user_line())}")
    return permuted(array, order)


def permuted(array: TracedArray, order: Sequence[int]) -> TracedArray:
    """The view whose axis k is axis ``order[k]``; of a permuted view a view of its base, which may lie in order."""
    step, parent = array._step, array._parent
    if isinstance(step, Transposed) and parent is not None and array._writeable == parent._writeable:
        array, order = parent, [step.axes[k] for k in order]
        if order == sorted(order):
            return array.stepped(Reshaped(array.type.shape), array.type.shape)
    return array.stepped(Transposed(tuple(order)), tuple(array.type.shape[k] for k in order))


def as_tuple(x: Any) -> tuple[Any, ...]:
    return tuple(x) if isinstance(x, tuple | list) else (x,)


def matrix_transpose(x: Any, /) -> Any:
    """The last two axes exchanged."""
    array = as_traced(running_trace("matrix_transpose"), x, "matrix_transpose")
    if array.ndim < 2:
        raise ShapeError(f"matrix_transpose: rank {array.ndim}; rank 2 or more is needed{at(user_line())}")
    return swapaxes(array, -1, -2)


def swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    """Two axes exchanged."""
    array = as_traced(running_trace("swapaxes"), a, "swapaxes")
    order = list(range(array.ndim))
    i, j = axis_of(axis1, array.ndim, "swapaxes"), axis_of(axis2, array.ndim, "swapaxes")
    order[i], order[j] = order[j], order[i]
    return permuted(array, order)


def moveaxis(a: Any, source: Any, destination: Any) -> Any:
    """Axes moved to new places, the others in order."""
    array = as_traced(running_trace("moveaxis"), a, "moveaxis")
    rank = array.ndim
    froms = [axis_of(x, rank, "moveaxis") for x in as_tuple(source)]
    tos = [axis_of(x, rank, "moveaxis") for x in as_tuple(destination)]
    if len(froms) != len(tos):
        raise ShapeError(
            f"moveaxis: {len(froms)} sources, {len(tos)} destinations; equal numbers are needed{at(user_line())}"
        )
    order = [k for k in range(rank) if k not in froms]
    for to, source_axis in sorted(zip(tos, froms, strict=True)):
        order.insert(to, source_axis)
    return permuted(array, order)


def rollaxis(a: Any, axis: int, start: int = 0) -> Any:
    """NumPy's older ``moveaxis``."""
    array = as_traced(running_trace("rollaxis"), a, "rollaxis")
    source = axis_of(axis, array.ndim, "rollaxis")
    target = start + array.ndim if start < 0 else start
    return moveaxis(array, source, target - 1 if source < target else target)


def expand_dims(a: Any, axis: Any) -> Any:
    """Axes of size 1 put in."""
    array = as_traced(running_trace("expand_dims"), a, "expand_dims")
    places = as_tuple(axis)
    rank = array.ndim + len(places)
    new_axes = axes_of(tuple(places), rank, "expand_dims")
    return array[tuple(None if k in new_axes else slice(None) for k in range(rank))]


def squeeze(a: Any, axis: Any = None) -> Any:
    """Axes of size 1 taken out: those named, or those whose size is the number 1 in this call."""
    trace = running_trace("squeeze")
    array = as_traced(trace, a, "squeeze")
    if axis is None:
        axes = tuple(k for k, n in enumerate(array.type.shape) if trace.guard("==", n, 1))
    else:
        axes = axes_of(axis, array.ndim, "squeeze")
        for k in axes:
            if not trace.guard("==", array.type.shape[k], 1):
                raise ShapeError(
                    f"squeeze: axis {k} of size {trace.hint(array.type.shape[k])}; size 1 is needed{at(user_line())}"
                )
    shape = tuple(n for k, n in enumerate(array.type.shape) if k not in axes)
    return (
        array.stepped(Reshaped(shape), shape)
        if array._contiguous
        else array[(*(0 if k in axes else slice(None) for k in range(array.ndim)), ...)]
    )


def broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    """A read-only view of another shape."""
    trace = running_trace("broadcast_to")
    base = as_traced(trace, array, "broadcast_to")
    wanted = extents_of(shape, "broadcast_to")
    own = base.type.shape
    if len(own) > len(wanted):
        raise shape_mismatch(trace, "broadcast_to", [own, wanted])
    for n, target in zip(own, wanted[len(wanted) - len(own) :], strict=True):
        if not (trace.guard("==", n, target) or trace.guard("==", n, 1)):
            raise shape_mismatch(trace, "broadcast_to", [own, wanted])
    return base.stepped(Stretched(wanted), wanted)


def broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    """Read-only views of one shape."""
    trace = running_trace("broadcast_arrays")
    arrays = [as_traced(trace, a, "broadcast_arrays") for a in args]
    shape = broadcast_shapes(trace, "broadcast_arrays", [a.type.shape for a in arrays]) if arrays else ()
    return tuple(a.stepped(Stretched(shape), shape) for a in arrays)


def atleast_1d(*arys: Any) -> Any:
    """Rank 0 becomes rank 1."""
    return _at_least("atleast_1d", arys, (slice(None),))


def atleast_2d(*arys: Any) -> Any:
    """Rank 0 and 1 become rank 2, the given axis last."""
    return _at_least("atleast_2d", arys, (None, slice(None)))


def _at_least(name: str, arys: tuple[Any, ...], key: tuple[Any, ...]) -> Any:
    trace = running_trace(name)
    made = []
    for x in arys:
        array = as_traced(trace, x, name)
        rank = len(key)
        if array.ndim < rank:
            array = array[(None,) * (rank - array.ndim)]
        made.append(array)
    return made[0] if len(made) == 1 else tuple(made)


def flip(m: Any, axis: Any = None) -> Any:
    """The order of elements reversed along the axes."""
    array = as_traced(running_trace("flip"), m, "flip")
    axes = axes_of(axis, array.ndim, "flip")
    return array[tuple(slice(None, None, -1) if k in axes else slice(None) for k in range(array.ndim))]


def flipud(m: Any) -> Any:
    """Axis 0 reversed."""
    return flip(m, 0)


def fliplr(m: Any) -> Any:
    """Axis 1 reversed."""
    return flip(m, 1)


def rot90(m: Any, k: int = 1, axes: tuple[int, int] = (0, 1)) -> Any:
    """Quarter turns in the plane of two axes."""
    turns = integer(k, "rot90", "k") % 4
    first, second = axes
    axes_of((first, second), as_traced(running_trace("rot90"), m, "rot90").ndim, "rot90")
    if turns == 0:
        return as_traced(running_trace("rot90"), m, "rot90")[...]
    if turns == 2:
        return flip(flip(m, first), second)
    return swapaxes(flip(m, second), first, second) if turns == 1 else flip(swapaxes(m, first, second), second)


def real(val: Any) -> Any:
    """The real part: a read-only view of a complex array, a real array itself."""
    return _part("real", val, imaginary=False)


def imag(val: Any) -> Any:
    """The imaginary part: a read-only view of a complex array, zeros for a real one."""
    return _part("imag", val, imaginary=True)


def _part(name: str, val: Any, imaginary: bool) -> Any:
    trace = running_trace(name)
    array = as_traced(trace, val, name)
    if array.dtype.kind == "c":
        made = array.stepped(Part(imaginary), array.type.shape, np.dtype(f"f{array.dtype.itemsize // 2}"))
        return new(trace, made.read()) if array._scalar else made
    if imaginary:
        zeros = build.broadcast(trace, build.literal(0, array.dtype), array.type.shape)
        return new(trace, zeros, scalar=array._scalar)
    return array


def ndim(a: Any) -> int:
    """The rank."""
    return int(as_traced(running_trace("ndim"), a, "ndim").ndim)


def shape(a: Any) -> Any:
    """The sizes."""
    return as_traced(running_trace("shape"), a, "shape").shape


def size(a: Any, axis: Any = None) -> Any:
    """The number of elements, or of those along the axes."""
    trace = running_trace("size")
    array = as_traced(trace, a, "size")
    return make_dim(trace, product(array.type.shape[k] for k in axes_of(axis, array.ndim, "size")))


def _f(name: str, function: Any, arrays: tuple[str, ...], view: bool = True, reference: Any = None) -> ApiFunction:
    return ApiFunction(name, function, arrays, view, getattr(np, name) if reference is None else reference)


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f("reshape", reshape, ("a",)),
    _f("ravel", ravel, ("a",)),
    _f("flatten", flatten, ("a",), False, lambda a, order="C": a.flatten(order)),
    _f("transpose", transpose, ("a",)),
    _f("permute_dims", transpose, ("a",), True, np.transpose),
    _f("matrix_transpose", matrix_transpose, ("x",), True, lambda x: np.swapaxes(x, -1, -2)),
    _f("swapaxes", swapaxes, ("a",)),
    _f("moveaxis", moveaxis, ("a",)),
    _f("rollaxis", rollaxis, ("a",)),
    _f("expand_dims", expand_dims, ("a",)),
    _f("squeeze", squeeze, ("a",)),
    _f("broadcast_to", broadcast_to, ("array",)),
    _f("broadcast_arrays", broadcast_arrays, ("args",)),
    _f("atleast_1d", atleast_1d, ("arys",)),
    _f("atleast_2d", atleast_2d, ("arys",)),
    _f("flip", flip, ("m",)),
    _f("flipud", flipud, ("m",)),
    _f("fliplr", fliplr, ("m",)),
    _f("rot90", rot90, ("m",)),
    _f("real", real, ("val",)),
    _f("imag", imag, ("val",)),
    _f("ndim", ndim, ("a",), False),
    _f("shape", shape, ("a",), False),
    _f("size", size, ("a",), False),
)
