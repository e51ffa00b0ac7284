"""Slices and integers of a key: an item and the size of its axis in, start, step and size out.

Sizes stay symbolic: ``x[1:-1]`` has size max(n − 2, 0) whatever n is, so that one program serves every n. A guard is
recorded only where the meaning itself changes with the size, as for ``x[:3]`` when n may be below 3.
"""

from __future__ import annotations

from typing import Any

from tenferro.tracer.complaints import no_integer
from tenferro.tracer.dim import as_extent
from tenferro.tracer.dims import DimExpr, Extent, add, floordiv, maximum, minimum, sub
from tenferro.tracer.errors import BoundsError, DtypeError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import Trace


def element_start(trace: Trace, n: Extent, item: Any, axis: int, name: str) -> Extent:
    """The place of a fixed index on an axis of size ``n``; the size is guarded so that the place exists."""
    index = as_extent(item)
    assert index is not None
    negative = not trace.guard("<=", 0, index)
    place = add(n, index) if negative else index
    inside = trace.guard("<=", 0, place) if negative else trace.guard("<", place, n)
    if not inside:
        size = trace.hint(n)
        raise BoundsError(
            f"{name}: index {trace.describe(index)} for axis {axis} of size {size}; it must be in "
            f"[-{size}, {size}){at(user_line())}"
        )
    return place


def clamped(n: Extent, less: int) -> Extent:
    """max(n − less, 0) in one form, however many slices took part: max(max(n − 1, 0) − 1, 0) is max(n − 2, 0)."""
    if isinstance(n, DimExpr) and len(n.terms) == 1:
        ((monomial, coefficient),) = n.terms
        if coefficient == 1 and len(monomial) == 1 and monomial[0].kind == "max" and 0 in monomial[0].args:
            inner = next((a for a in monomial[0].args if a != 0), 0)
            return maximum(sub(inner, less), 0)
    return maximum(sub(n, less), 0)


def _clamp_size(trace: Trace, n: Extent, less: int) -> Extent:
    if less == 0 or trace.proves("<=", less, n):
        return sub(n, less)
    return clamped(n, less)


def slice_box(trace: Trace, n: Extent, item: slice, name: str) -> tuple[Extent, int, Extent]:
    """(start, step, size) of a slice on an axis of size ``n``, clamped as in NumPy."""
    step = 1 if item.step is None else _fixed(trace, item.step, name)
    if step == 0:
        raise ShapeError(f"{name}: slice step 0; a step other than 0 is needed{at(user_line())}")
    start, stop = (None if i is None else _bound(i, name) for i in (item.start, item.stop))
    if step < 0:
        return _backward(trace, n, start, stop, step)
    if isinstance(n, int) and isinstance(start, int | None) and isinstance(stop, int | None):
        exact = range(n)[slice(start, stop, step)]
        return exact.start if len(exact) else 0, step, len(exact)
    first, length = (_forward if trace.hint(n) is not None else _late_forward)(trace, n, start, stop)
    if step == 1:
        return first, 1, length
    return first, step, floordiv(add(length, step - 1), step)


def _forward(trace: Trace, n: Extent, start: Extent | None, stop: Extent | None) -> tuple[Extent, Extent]:
    """Start and length of the elements between the two bounds, step 1."""
    if start is None:
        start = 0
    if isinstance(start, int) and start >= 0:
        if stop is None or stop == n:
            return start, _clamp_size(trace, n, start)
        if isinstance(stop, int) and stop < 0:
            return start, _clamp_size(trace, n, start - stop)
    if isinstance(start, int) and isinstance(stop, int) and start >= 0 and stop >= 0:
        if stop <= start:
            return 0, 0
        if trace.guard("<=", stop, n):
            return start, stop - start
    low, high = _clamp(trace, n, start), n if stop is None else _clamp(trace, n, stop)
    if not trace.guard("<=", low, high):
        return 0, 0
    return low, sub(high, low)


def _late_forward(trace: Trace, n: Extent, start: Extent | None, stop: Extent | None) -> tuple[Extent, Extent]:
    """``_forward`` where the size is known only when the program runs: one form for whatever it is."""
    low: Extent = 0 if start is None else _late_clamp(trace, n, start)
    high = n if stop is None else _late_clamp(trace, n, stop)
    return low, maximum(sub(high, low), 0)


def _late_clamp(trace: Trace, n: Extent, bound: Extent) -> Extent:
    return minimum(bound, n) if trace.guard("<=", 0, bound) else maximum(add(n, bound), 0)


def _clamp(trace: Trace, n: Extent, bound: Extent) -> Extent:
    """A slice bound brought into [0, n]; which case holds becomes a guard."""
    if not trace.guard("<=", 0, bound):
        shifted = add(n, bound)
        return shifted if trace.guard("<=", 0, shifted) else 0
    return bound if trace.guard("<=", bound, n) else n


def _backward(
    trace: Trace, n: Extent, start: Extent | None, stop: Extent | None, step: int
) -> tuple[Extent, int, Extent]:
    """A negative step: from ``start`` down to just above ``stop``."""
    if start is None and stop is None:
        return sub(n, 1), step, n if step == -1 else floordiv(add(n, -step - 1), -step)
    if trace.hint(n) is None:
        high = sub(n, 1) if start is None else _late_clamp_backward(trace, n, start)
        low: Extent = -1 if stop is None else _late_clamp_backward(trace, n, stop)
        return high, step, floordiv(add(maximum(sub(high, low), 0), -step - 1), -step)
    first = sub(n, 1) if start is None else _clamp_backward(trace, n, start)
    end: Extent = -1 if stop is None else _clamp_backward(trace, n, stop)
    if not trace.guard("<", end, first):
        return 0, step, 0
    return first, step, floordiv(add(sub(first, end), -step - 1), -step)


def _clamp_backward(trace: Trace, n: Extent, bound: Extent) -> Extent:
    """A bound of a backward slice brought into [−1, n − 1]."""
    if not trace.guard("<=", 0, bound):
        shifted = add(n, bound)
        return shifted if trace.guard("<=", 0, shifted) else -1
    return bound if trace.guard("<", bound, n) else sub(n, 1)


def _late_clamp_backward(trace: Trace, n: Extent, bound: Extent) -> Extent:
    return minimum(bound, sub(n, 1)) if trace.guard("<=", 0, bound) else maximum(add(n, bound), -1)


def _bound(item: Any, name: str) -> Extent:
    extent = as_extent(item)
    if extent is not None:
        return extent
    if hasattr(type(item), "__index__"):
        try:
            return int(item.__index__())
        except TraceError:
            raise TraceError(
                f"{name}: slice bound of a traced value; the size would be known only when the program runs, "
                f"numpy.where(numpy.arange(n) < k, x, 0) keeps the first k, or slice outside{at(user_line())}"
            ) from None
        except TypeError:
            pass
    found = no_integer(item, "an integer or None is needed", of_sizes=True)
    raise DtypeError(f"{name}: slice bound {found}{at(user_line())}")


def _fixed(trace: Trace, item: Any, name: str) -> int:
    return trace.concrete(_bound(item, name), f"{name}: slice step")
