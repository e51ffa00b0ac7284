"""What the functions of ``tenferro.lax`` share: their arguments in, operands, sizes and axes out.

Results are new arrays, never views: who writes into one changes nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import extents_of
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.layout import axis_of
from tenferro.tracer.api.promotion import is_weak, sizes_text, stored
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import DtypeError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout, pointwise as p
from tenferro.tracer.program import Literal, Operand
from tenferro.tracer.trace import Trace
from tenferro.tracer.traced import TracedArray, as_traced, operand

Shape = tuple[Extent, ...]
INT64 = np.dtype(np.int64)
_UINT64 = np.dtype(np.uint64)
_HOLDS: dict[type, str] = {int: "iufc", float: "fc", complex: "c"}
"""The kinds of dtypes that a Python number goes into."""


def function(name: str, call: Callable[..., Any], *arrays: str) -> TracedFunction:
    """The record of a function; ``arrays`` are its parameters that hold arrays or numbers of no program's own."""
    return TracedFunction(name, call, arrays)


def fresh(trace: Trace, array: TracedArray) -> TracedArray:
    """A new array of the same elements."""
    return new(trace, build.copied(trace, array.read()))


def value_of(trace: Trace, x: Any, name: str) -> Operand:
    """The operand that an array or number is."""
    array = as_traced(trace, x, name)
    value: Operand = array.read()
    return value


number = build.size


def is_known(trace: Trace, *extents: Extent) -> bool:
    """Whether the sizes are known before the program runs, so that they may be compared."""
    return all(trace.hint(n) is not None for n in extents)


def fits(trace: Trace, size: Extent, n: Extent) -> bool:
    """Whether ``size <= n``; where that shows only when the program runs, its checks tell."""
    return not is_known(trace, size, n) or trace.guard("<=", size, n)


# -- arguments -------------------------------------------------------------------------------------------------------


def as_items(x: Any) -> list[Any]:
    """The items of a sequence, or the one thing that it is."""
    return list(x) if isinstance(x, tuple | list | range) else [x]


def axes_in_order(x: Any, rank: int, name: str, what: str) -> tuple[int, ...]:
    """The axes that an argument lists, counted from the front; each may be listed once."""
    axes = tuple(axis_of(a, rank, name) for a in as_items(x))
    if len(set(axes)) < len(axes):
        raise ShapeError(f"{name}: {what} {axes}; each axis may be listed once{at(user_line())}")
    return axes


def sorted_axes(x: Any, rank: int, name: str, what: str) -> tuple[int, ...]:
    """Axes that must be listed in order."""
    axes = axes_in_order(x, rank, name, what)
    if list(axes) != sorted(axes):
        raise ShapeError(f"{name}: {what} {axes}; increasing axes are needed{at(user_line())}")
    return axes


def sizes_of(trace: Trace, x: Any, rank: int, name: str, what: str) -> Shape:
    """One size for each axis."""
    sizes = extents_of(x, name)
    if len(sizes) != rank:
        raise ShapeError(
            f"{name}: {what} {sizes_text(trace, sizes)} for rank {rank}; one for each axis is needed{at(user_line())}"
        )
    return sizes


def same_size(trace: Trace, name: str, n: Extent, m: Extent, what: str) -> Extent:
    """The size that two axes have in common."""
    if not trace.guard("==", n, m):
        raise ShapeError(
            f"{name}: {what} of sizes {trace.hint(n)} and {trace.hint(m)}; they must be equal{at(user_line())}"
        )
    return trace.canonical(n)


def integers(trace: Trace, x: Any, name: str, what: str) -> Operand:
    """An array of integers as int64; what no int64 holds becomes the largest, which no index is."""
    value = value_of(trace, x, name)
    dtype = value.type.dtype
    if dtype.kind not in "iu":
        raise DtypeError(f"{name}: {what} of dtype {dtype.name}; integers are needed{at(user_line())}")
    if dtype == _UINT64:
        value = trace.emit1(p.minimum, value, Literal(2**63 - 1, dtype))
    return build.convert(trace, value, INT64)


def kept(trace: Trace, x: Any, dtype: np.dtype[Any], name: str, what: str) -> Operand:
    """An operand that goes into an array of the dtype: an array must cast by NumPy's rule 'same_kind', a Python number
    must be of no wider kind, and fit."""
    value, key = operand(trace, x, name)
    if not (dtype.kind in _HOLDS[key] if is_weak(key) else np.can_cast(key, dtype, "same_kind")):
        found = f"Python's {key.__name__}" if is_weak(key) else f"dtype {key.name}"
        raise DtypeError(
            f"{name}: {what} of {found} for an array of dtype {dtype.name}; x.astype(dtype) converts{at(user_line())}"
        )
    return stored(trace, value, key, dtype, name)


def scalar(trace: Trace, x: Any, dtype: np.dtype[Any], name: str, what: str) -> Operand:
    """A number of the dtype."""
    value = kept(trace, x, dtype, name, what)
    if value.type.shape:
        raise ShapeError(f"{name}: {what} of rank {len(value.type.shape)}; a number is needed{at(user_line())}")
    return value


def one_of(mode: Any, modes: Sequence[str], name: str) -> str:
    """The mode, which must be one of these."""
    if mode not in modes:
        listed = ", ".join(map(repr, modes[:-1])) + f" or {modes[-1]!r}"
        raise TraceError(f"{name}: mode {mode!r}; {listed} is needed{at(user_line())}")
    return str(mode)


# -- layout ----------------------------------------------------------------------------------------------------------


def box(trace: Trace, x: Operand, starts: Sequence[Extent], sizes: Sequence[Extent]) -> Operand:
    """The elements from ``starts`` on."""
    return build.cut(trace, x, tuple(starts), (1,) * len(x.type.shape), tuple(sizes))


def spread(trace: Trace, x: Operand, axes: Sequence[int], shape: Shape) -> Operand:
    """The operand with its own axes at ``axes`` of a shape that it is repeated over; rank 0 stays as it is."""
    if not x.type.shape or x.type.shape == shape:
        return x
    return trace.emit1(layout.broadcast_to, x, shape=shape, axes=tuple(axes))


def element(trace: Trace, x: Operand, place: Sequence[Extent]) -> Operand:
    """One element, of rank 0."""
    ones = (1,) * len(x.type.shape)
    return build.reshape(trace, build.cut(trace, x, tuple(place), ones, ones), ())
