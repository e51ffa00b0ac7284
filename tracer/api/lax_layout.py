"""Layout functions of ``tenferro.lax``: an array in, its elements in another arrangement, always a new array, out."""

from __future__ import annotations

from typing import Any

from tenferro.tracer import build
from tenferro.tracer.api import casting, creation, joining, layout as views, linalg
from tenferro.tracer.api.creation import dtype_of, extents_of
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.indexing import fronting, mask_select
from tenferro.tracer.api.lax_common import (
    Shape,
    as_items,
    axes_in_order,
    box,
    fresh,
    function,
    integers,
    is_known,
    number,
    scalar,
    sorted_axes,
)
from tenferro.tracer.api.layout import axis_of
from tenferro.tracer.api.promotion import sizes_text
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.dim import as_extent, integer
from tenferro.tracer.dims import Extent, add, maximum, minimum, mul, sub
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout, pointwise as p
from tenferro.tracer.program import Operand
from tenferro.tracer.slicing import clamped
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import as_traced

# -- padding ---------------------------------------------------------------------------------------------------------


def pad(operand: Any, padding_value: Any, padding_config: Any) -> Any:
    """(low, high, interior) for each axis: so many elements before, after and between neighbours; what is negative is
    cut off."""
    trace = running_trace("pad")
    array = as_traced(trace, operand, "pad")
    config = _config(padding_config, array.ndim)
    value = array.read()
    fill = scalar(trace, padding_value, array.dtype, "pad", "padding_value")
    low, high = ([_split(trace, c[side]) for c in config] for side in (0, 1))
    gaps = [c[2] for c in config]
    inner = [_with_gaps(n, gap) for n, gap in zip(value.type.shape, gaps, strict=True)]
    shape = tuple(add(add(lo[0], n), hi[0]) for n, lo, hi in zip(inner, low, high, strict=True))
    value = _grown(trace, value, fill, shape, tuple(lo[0] for lo in low), gaps)
    sizes = tuple(sub(sub(n, lo[1]), hi[1]) for n, lo, hi in zip(shape, low, high, strict=True))
    for axis, n in enumerate(sizes):
        if is_known(trace, n) and not trace.guard("<=", 0, n):
            raise ShapeError(
                f"pad: axis {axis} of size {trace.hint(value.type.shape[axis])} cut to {trace.hint(n)}; at most all "
                f"elements can be cut off{at(user_line())}"
            )
    return new(trace, build.copied(trace, box(trace, value, tuple(lo[1] for lo in low), sizes)))


def _config(given: Any, rank: int) -> list[tuple[Extent, Extent, int]]:
    items = as_items(given)
    if len(items) != rank or any(len(as_items(i)) != 3 for i in items):
        raise ShapeError(
            f"pad: padding_config {given!r} for rank {rank}; (low, high, interior) for each axis is "
            f"needed{at(user_line())}"
        )
    found = []
    for low, high, gap in items:
        edges = [as_extent(edge) for edge in (low, high)]
        count = integer(gap, "pad", "interior")
        if None in edges:
            raise DtypeError(f"pad: padding_config {given!r}; ints or sizes are needed{at(user_line())}")
        if count < 0:
            raise ShapeError(f"pad: interior {count}; 0 or more is needed{at(user_line())}")
        found.append((edges[0], edges[1], count))
    return found  # type: ignore[return-value]  # no edge is None


def _with_gaps(n: Extent, gap: int) -> Extent:
    """The size of an axis with so many elements between neighbours."""
    return clamped(mul(n, gap + 1), gap) if gap else n


def _split(trace: Trace, edge: Extent) -> tuple[Extent, Extent]:
    """How many elements an edge adds, and how many it cuts off."""
    return (edge, 0) if trace.guard("<=", 0, edge) else (0, sub(0, edge))


def _grown(
    trace: Trace, value: Operand, fill: Operand, shape: Shape, low: Shape, gaps: list[int]
) -> Operand:  # fmt: skip
    if any(gaps):  # every so many elements of an array of the fill value are the operand's
        steps = tuple(gap + 1 for gap in gaps)
        base = build.broadcast(trace, fill, shape)
        return build.replace_box(trace, base, value, low, steps, value.type.shape)
    high = tuple(sub(sub(n, m), lo) for n, m, lo in zip(shape, value.type.shape, low, strict=True))
    if all(n == 0 for n in (*low, *high)):
        return value
    return trace.emit1(layout.pad, value, fill, low=low, high=high)


# -- axes ------------------------------------------------------------------------------------------------------------


def rev(operand: Any, dimensions: Any) -> Any:
    """The order of elements reversed along the axes."""
    trace = running_trace("rev")
    array = as_traced(trace, operand, "rev")
    axes = axes_in_order(dimensions, array.ndim, "rev", "dimensions")
    return fresh(trace, views.flip(array, axes) if axes else array)


def transpose(operand: Any, permutation: Any) -> Any:
    """Axis k of the result is axis ``permutation[k]``."""
    trace = running_trace("transpose")
    return fresh(trace, views.transpose(operand, tuple(as_items(permutation))))


def reshape(operand: Any, new_sizes: Any, dimensions: Any = None) -> Any:
    """The same elements in row-major order, of the axes in the order of ``dimensions`` where given."""
    trace = running_trace("reshape")
    array = as_traced(trace, operand, "reshape")
    if dimensions is not None:
        array = views.transpose(array, tuple(as_items(dimensions)))
    return new(trace, views.reshape(array, tuple(as_items(new_sizes)), copy=True).read())


def expand_dims(array: Any, dimensions: Any) -> Any:
    """Axes of size 1 put in, at these places of the result."""
    return fresh(running_trace("expand_dims"), views.expand_dims(array, tuple(as_items(dimensions))))


def squeeze(array: Any, dimensions: Any) -> Any:
    """Axes of size 1 taken out."""
    return fresh(running_trace("squeeze"), views.squeeze(array, tuple(as_items(dimensions))))


def concatenate(operands: Any, dimension: int) -> Any:
    """Arrays one after another along an axis."""
    return joining.concatenate(operands, dimension)


def broadcast(operand: Any, sizes: Any) -> Any:
    """Axes of these sizes put in front, along which the array repeats."""
    trace = running_trace("broadcast")
    array = as_traced(trace, operand, "broadcast")
    shape = (*extents_of(sizes, "broadcast"), *array.type.shape)
    return new(trace, build.copied(trace, build.broadcast(trace, array.read(), shape)))


def broadcast_in_dim(operand: Any, shape: Any, broadcast_dimensions: Any) -> Any:
    """Axis k of the operand is axis ``broadcast_dimensions[k]`` of an array of ``shape``; along the others, and where
    the operand has size 1, its elements repeat."""
    name = "broadcast_in_dim"
    trace = running_trace(name)
    value = as_traced(trace, operand, name).read()
    wanted = extents_of(shape, name)
    axes = sorted_axes(broadcast_dimensions, len(wanted), name, "broadcast_dimensions")
    own = value.type.shape
    if len(axes) != len(own):
        raise ShapeError(
            f"{name}: broadcast_dimensions {axes} for rank {len(own)}; one for each axis is needed{at(user_line())}"
        )
    meant: list[Extent] = []
    for n, axis in zip(own, axes, strict=True):
        equal = trace.guard("==", n, wanted[axis])
        if not equal and not trace.guard("==", n, 1):
            raise ShapeError(
                f"{name}: shape {sizes_text(trace, own)} for axes {axes} of {sizes_text(trace, wanted)}; sizes must be "
                f"equal, or 1{at(user_line())}"
            )
        meant.append(wanted[axis] if equal else 1)
    value = build.reshape(trace, value, tuple(meant)) if own else value
    wide = trace.emit1(layout.broadcast_to, value, shape=wanted, axes=axes)
    return new(trace, build.copied(trace, wide))


# -- creation and conversion -----------------------------------------------------------------------------------------


def iota(dtype: Any, size: Any) -> Any:
    """0, 1, 2, …"""
    return _counted("iota", dtype, (size,), 0)


def broadcasted_iota(dtype: Any, shape: Any, dimension: int) -> Any:
    """The index of each element along one axis."""
    return _counted("broadcasted_iota", dtype, shape, dimension)


def _counted(name: str, dtype: Any, shape: Any, dimension: int) -> Any:
    trace = running_trace(name)
    sizes, target = extents_of(shape, name), dtype_of(dtype, name)
    if target.kind == "b":
        raise DtypeError(f"{name}: dtype bool; a dtype of numbers is needed{at(user_line())}")
    axis = axis_of(dimension, len(sizes), name)
    return new(trace, build.convert(trace, trace.emit1(layout.iota, shape=sizes, axis=axis), target))


def full(shape: Any, fill_value: Any, dtype: Any = None) -> Any:
    """One value everywhere."""
    return creation.full(shape, fill_value, dtype)


def full_like(x: Any, fill_value: Any, dtype: Any = None, shape: Any = None) -> Any:
    """One value in the shape and dtype of ``x``."""
    return creation.full_like(x, fill_value, dtype, shape=shape)


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """The same numbers in another dtype; float to int saturates, NaN gives 0."""
    return casting.astype(operand, new_dtype)


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Any:
    """The same bits as another dtype of equal width."""
    return fresh(running_trace("bitcast_convert_type"), casting.view(operand, dtype_of(new_dtype, "bitcast")))


# -- diagonals and triangles -----------------------------------------------------------------------------------------


def tril(m: Any, k: int = 0) -> Any:
    """Matrices with zeros above diagonal ``k``."""
    return creation.tril(m, k)


def triu(m: Any, k: int = 0) -> Any:
    """Matrices with zeros below diagonal ``k``."""
    return creation.triu(m, k)


def diagonal(operand: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    """A diagonal of two axes, last in the result."""
    return linalg.diagonal(operand, offset, axis1, axis2)


def diag_embed(operand: Any, offset: int = 0, axis1: int = -2, axis2: int = -1) -> Any:
    """The last axis laid on a diagonal of the result's axes ``axis1`` and ``axis2``, zeros elsewhere: ``diagonal`` with
    the same arguments gives it back."""
    name = "diag_embed"
    trace = running_trace(name)
    array = as_traced(trace, operand, name)
    if not array.ndim:
        raise ShapeError(f"{name}: rank 0; rank 1 or more is needed{at(user_line())}")
    rank = array.ndim + 1
    row, column = (axis_of(a, rank, name) for a in (axis1, axis2))
    if row == column:
        raise ShapeError(f"{name}: axes {axis1} and {axis2}; two axes are needed{at(user_line())}")
    shift = integer(offset, name, "offset")
    n = add(array.type.shape[-1], abs(shift))
    lead = array.type.shape[:-1]
    value, zero = array.read(), build.literal(0, array.dtype)
    if shift:
        high = (*(0,) * len(lead), abs(shift))
        value = trace.emit1(layout.pad, value, zero, low=(0,) * (len(lead) + 1), high=high)
    rest = [a for a in range(rank) if a not in (row, column)]
    sizes = dict(zip(rest, lead, strict=True))
    shape = tuple(sizes.get(a, n) for a in range(rank))
    order = sorted([*rest, row if shift >= 0 else column])
    along = row if shift >= 0 else column  # where the index of the diagonal's elements is the axis's own
    value = build.transpose(trace, value, [len(lead) if a == along else rest.index(a) for a in order])
    value = trace.emit1(layout.broadcast_to, value, shape=shape, axes=tuple(order))
    i, j = (trace.emit1(layout.iota, shape=shape, axis=a) for a in (row, column))
    on = trace.emit1(p.equal, j, trace.emit1(p.add, i, number(shift)))
    return new(trace, trace.emit1(p.where, on, value, zero))


# -- sizes known when the program runs -------------------------------------------------------------------------------


def shape_of(operand: Any, axis: int) -> Any:
    """The size along an axis, as a traced int64 number."""
    trace = running_trace("shape_of")
    array = as_traced(trace, operand, "shape_of")
    return new(trace, number(trace.canonical(array.type.shape[axis_of(axis, array.ndim, "shape_of")])))


def truncate(operand: Any, size: Any, axis: int = 0) -> Any:
    """The first ``size`` elements along an axis, all where there are fewer, none where it is negative. ``size`` may be
    traced: then the result's size is known when the program has run."""
    name = "truncate"
    trace = running_trace(name)
    array = as_traced(trace, operand, name)
    k = axis_of(axis, array.ndim, name)
    x, n = array.read(), array.type.shape[k]
    extent = as_extent(size)
    if extent is not None:
        kept = minimum(extent, n)
        kept = kept if trace.proves("<=", 0, kept) else maximum(kept, 0)
        sizes = tuple(kept if a == k else m for a, m in enumerate(x.type.shape))
        return new(trace, build.copied(trace, box(trace, x, (0,) * len(sizes), sizes)))
    count = integers(trace, size, name, "size")
    if count.type.shape:
        raise ShapeError(f"{name}: size of rank {len(count.type.shape)}; a number is needed{at(user_line())}")
    mask = trace.emit1(p.less, trace.emit1(layout.iota, shape=(n,), axis=0), count)
    chosen = mask_select(trace, build.transpose(trace, x, fronting((k,), array.ndim)), mask)
    return new(trace, build.transpose(trace, chosen, [*range(1, k + 1), 0, *range(k + 1, array.ndim)]))


def pad_to_match(operand: Any, reference: Any, axis: int) -> Any:
    """Zeros put after the elements along an axis until there are as many as ``reference`` has; never fewer."""
    name = "pad_to_match"
    trace = running_trace(name)
    array, other = as_traced(trace, operand, name), as_traced(trace, reference, name)
    if array.ndim != other.ndim:
        raise ShapeError(
            f"{name}: arrays of ranks {array.ndim} and {other.ndim}; equal ranks are needed{at(user_line())}"
        )
    k = axis_of(axis, array.ndim, name)
    missing = sub(other.type.shape[k], array.type.shape[k])
    missing = missing if trace.proves("<=", 0, missing) else maximum(missing, 0)
    if missing == 0:
        return fresh(trace, array)
    high = tuple(missing if a == k else 0 for a in range(array.ndim))
    zero = build.literal(0, array.dtype)
    return new(trace, trace.emit1(layout.pad, array.read(), zero, low=(0,) * array.ndim, high=high))


FUNCTIONS: tuple[TracedFunction, ...] = (
    function("pad", pad, "operand", "padding_value", "padding_config"),
    function("rev", rev, "operand"),
    function("transpose", transpose, "operand"),
    function("reshape", reshape, "operand", "new_sizes"),
    function("expand_dims", expand_dims, "array"),
    function("squeeze", squeeze, "array"),
    function("concatenate", concatenate, "operands"),
    function("broadcast", broadcast, "operand", "sizes"),
    function("broadcast_in_dim", broadcast_in_dim, "operand", "shape"),
    function("iota", iota, "size"),
    function("broadcasted_iota", broadcasted_iota, "shape"),
    function("full", full, "shape", "fill_value"),
    function("full_like", full_like, "x", "fill_value", "shape"),
    function("convert_element_type", convert_element_type, "operand"),
    function("bitcast_convert_type", bitcast_convert_type, "operand"),
    function("tril", tril, "m"),
    function("triu", triu, "m"),
    function("diagonal", diagonal, "operand"),
    function("diag_embed", diag_embed, "operand"),
    function("shape_of", shape_of, "operand"),
    function("truncate", truncate, "operand", "size"),
    function("pad_to_match", pad_to_match, "operand", "reference"),
)
