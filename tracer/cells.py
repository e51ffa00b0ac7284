"""Variables under tracing: a cell holds an array's current value, a view step says how another array lies in it.

In: reads and writes in the order in which the function makes them. Out: operands of the program, whose values never
change; a write gives the cell a new one.

A cell starts *known* (an ndarray that the trace itself made) or traced. Writes of single elements at fixed places wait
in ``elements`` and are handed to later reads of the same place; a read of anything larger stores them all at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.dims import Extent, add, mul, sub
from tenferro.tracer.lines import SourceLine, user_line
from tenferro.tracer.ops import layout, library, pointwise
from tenferro.tracer.ops.layout import box
from tenferro.tracer.program import Operand, Value
from tenferro.tracer.records import dataclass
from tenferro.tracer.trace import Trace

AnyArray: TypeAlias = np.ndarray[Any, Any]
Place = tuple[Extent, ...]


@dataclass(frozen=True, slots=True)
class Box:
    """A strided box of the base, then axes of size 1 dropped or added. ``kept[k]`` is the base axis of result axis k,
    −1 for a new one."""

    starts: Place
    steps: tuple[int, ...]
    sizes: Place
    kept: tuple[int, ...]

    @property
    def shape(self) -> Place:
        return tuple(self.sizes[a] if a >= 0 else 1 for a in self.kept)

    def read(self, trace: Trace, base: Operand) -> Operand:
        return build.reshape(trace, build.cut(trace, base, self.starts, self.steps, self.sizes), self.shape)

    def write(self, trace: Trace, base: Operand, new: Operand) -> Operand:
        if new.type.shape:
            new = build.reshape(trace, new, self.sizes)
        return build.replace_box(trace, base, new, self.starts, self.steps, self.sizes)

    def of(self, base: AnyArray) -> AnyArray:
        window: Any = box(self.starts, self.steps, self.sizes)  # type: ignore[arg-type]  # known cells have plain sizes
        found: AnyArray = base[window]
        return found.reshape(self.shape)

    def place(self, where: Place) -> Place | None:
        """The base's element that is element ``where`` of the result."""
        full = list(self.starts)
        for axis, index in zip(self.kept, where, strict=True):
            if axis >= 0:
                full[axis] = add(full[axis], mul(index, self.steps[axis]))
        return tuple(full)


@dataclass(frozen=True, slots=True)
class Chosen:
    """The element ``index`` along an axis, which stays with size 1. The axis has a size that is known only when the
    program runs, so that the index is checked then."""

    axis: int
    index: Extent

    def _places(self, trace: Trace) -> Operand:
        return build.reshape(trace, build.size(self.index), (1,))

    def read(self, trace: Trace, base: Operand) -> Operand:
        return trace.emit1(layout.take, base, self._places(trace), axis=self.axis)

    def write(self, trace: Trace, base: Operand, new: Operand) -> Operand:
        window = (*base.type.shape[: self.axis], 1, *base.type.shape[self.axis + 1 :])
        new = build.broadcast(trace, new, window)
        return trace.emit1(library.scatter, base, self._places(trace), new, axis=self.axis, mode="set", windows=())

    def of(self, base: AnyArray) -> AnyArray:
        found: AnyArray = np.take(base, [self.index], axis=self.axis)  # type: ignore[arg-type]  # known cells have plain sizes
        return found

    def place(self, where: Place) -> Place | None:
        return None


@dataclass(frozen=True, slots=True)
class Transposed:
    """Axis k of the result is axis ``axes[k]`` of the base."""

    axes: tuple[int, ...]

    def read(self, trace: Trace, base: Operand) -> Operand:
        return build.transpose(trace, base, self.axes)

    def write(self, trace: Trace, base: Operand, new: Operand) -> Operand:
        new = build.broadcast(trace, new, tuple(base.type.shape[a] for a in self.axes))
        return build.copied(trace, build.transpose(trace, new, np.argsort(self.axes).tolist()))

    def of(self, base: AnyArray) -> AnyArray:
        return base.transpose(self.axes)

    def place(self, where: Place) -> Place | None:
        full: list[Extent] = [0] * len(where)
        for k, axis in enumerate(self.axes):
            full[axis] = where[k]
        return tuple(full)


@dataclass(frozen=True, slots=True)
class Reshaped:
    """The base's elements in row-major order under another shape."""

    shape: Place

    def read(self, trace: Trace, base: Operand) -> Operand:
        return build.reshape(trace, base, self.shape)

    def write(self, trace: Trace, base: Operand, new: Operand) -> Operand:
        new = build.copied(trace, build.broadcast(trace, new, self.shape))
        return build.reshape(trace, new, base.type.shape)

    def of(self, base: AnyArray) -> AnyArray:
        return base.reshape(self.shape)

    def place(self, where: Place) -> Place | None:
        return None


@dataclass(frozen=True, slots=True)
class Stretched:
    """NumPy's ``broadcast_to``: read-only, as there."""

    shape: Place

    def read(self, trace: Trace, base: Operand) -> Operand:
        return build.broadcast(trace, base, self.shape)

    def of(self, base: AnyArray) -> AnyArray:
        return np.broadcast_to(base, self.shape)  # type: ignore[arg-type]

    def place(self, where: Place) -> Place | None:
        return None


@dataclass(frozen=True, slots=True)
class Part:
    """The real or imaginary part of a complex base; reading only."""

    imaginary: bool

    def read(self, trace: Trace, base: Operand) -> Operand:
        return trace.emit1(pointwise.imag if self.imaginary else pointwise.real, base)

    def of(self, base: AnyArray) -> AnyArray:
        return base.imag if self.imaginary else base.real

    def place(self, where: Place) -> Place | None:
        return None


@dataclass(frozen=True, slots=True)
class Cast:
    """The base's bits read as another dtype of the same width."""

    dtype: np.dtype[Any]

    def read(self, trace: Trace, base: Operand) -> Operand:
        return trace.emit1(pointwise.bitcast, base, dtype=self.dtype)

    def write(self, trace: Trace, base: Operand, new: Operand) -> Operand:
        return trace.emit1(pointwise.bitcast, new, dtype=base.type.dtype)

    def of(self, base: AnyArray) -> AnyArray:
        return base.view(self.dtype)

    def place(self, where: Place) -> Place | None:
        return None


@dataclass(frozen=True, slots=True)
class Sliding:
    """NumPy's ``sliding_window_view``: read-only, as there. Window k, ``sizes[k]`` long, runs along ``axes[k]``, which
    keeps its starts; the windows' own axes stand last."""

    axes: tuple[int, ...]
    sizes: Place

    def read(self, trace: Trace, base: Operand) -> Operand:
        rank = len(base.type.shape)
        for k, (axis, size) in enumerate(zip(self.axes, self.sizes, strict=True)):
            shape = (add(sub(base.type.shape[axis], size), 1), size)
            start, offset = (trace.emit1(layout.iota, shape=shape, axis=a) for a in (0, 1))
            base = trace.emit1(layout.take, base, trace.emit1(pointwise.add, start, offset), axis=axis)
            order = [a for a in range(rank + k + 1) if a != axis + 1]
            base = build.transpose(trace, base, [*order, axis + 1])
        return base

    def of(self, base: AnyArray) -> AnyArray:
        sizes: Any = self.sizes  # plain ones, of a known cell
        return np.lib.stride_tricks.sliding_window_view(base, sizes, self.axes)

    def place(self, where: Place) -> Place | None:
        rank = len(where) - len(self.axes)
        full = list(where[:rank])
        for axis, offset in zip(self.axes, where[rank:], strict=True):
            full[axis] = add(full[axis], offset)
        return tuple(full)


@dataclass(frozen=True, slots=True)
class Diagonal:
    """NumPy's ``diagonal`` of the last two axes, ``size`` long: read-only, as there."""

    offset: int
    size: Extent

    def read(self, trace: Trace, base: Operand) -> Operand:
        *others, rows, columns = base.type.shape
        flat = build.reshape(trace, base, (*others, mul(rows, columns)))
        first = mul(columns, -self.offset) if self.offset < 0 else self.offset
        place = trace.emit1(layout.iota, shape=(self.size,), axis=0)
        place = trace.emit1(pointwise.multiply, place, build.size(add(columns, 1)))
        return trace.emit1(layout.take, flat, trace.emit1(pointwise.add, place, build.size(first)), axis=len(others))

    def of(self, base: AnyArray) -> AnyArray:
        return base.diagonal(self.offset, -2, -1)

    def place(self, where: Place) -> Place | None:
        *others, last = where
        return (*others, add(last, max(-self.offset, 0)), add(last, max(self.offset, 0)))


Step: TypeAlias = Box | Chosen | Transposed | Reshaped | Stretched | Part | Cast | Sliding | Diagonal
READ_ONLY = Stretched | Part | Sliding | Diagonal
"""Views that NumPy makes read-only."""


class Cell:
    """One array variable. ``origin`` names memory that is not the function's own: an argument or a captured array;
    ``donated`` lets it be written all the same. ``fill`` is set while a known cell holds one value everywhere."""

    __slots__ = (
        "donated", "elements", "fill", "input", "known", "line", "origin", "scope", "symbolic", "trace", "value",
        "version", "written",
    )  # fmt: skip

    def __init__(self, trace: Trace, value: Operand | None, known: AnyArray | None = None) -> None:
        self.trace = trace
        self.value = value
        self.known = known
        self.fill: Any = None
        self.version = 0
        self.elements: dict[Place, Operand] | None = None
        self.symbolic = False
        self.origin: str | None = None
        self.input: Value | None = None
        self.donated = False
        self.line: SourceLine | None = trace.line
        self.written: SourceLine | None = None
        self.scope = trace.scope

    def state(self) -> tuple[Any, ...]:
        """What the variable holds, for ``restore``."""
        elements = None if self.elements is None else dict(self.elements)
        return self.value, self.known, self.fill, elements, self.symbolic, self.version, self.written

    def restore(self, state: tuple[Any, ...]) -> None:
        """Hold again what ``state`` was. Views read it anew."""
        self.value, self.known, self.fill, self.elements, self.symbolic, version, self.written = state
        self.version = max(self.version, version) + 1

    def _to_be_kept(self) -> None:
        """Before the present scope records something about a variable from around it."""
        scope = self.trace.scope
        if scope is not self.scope and scope is not None:
            scope.keep(self)

    def read(self) -> Operand:
        """The current value. A known cell enters the program: small ones and uniform ones as literals."""
        if self.elements:
            self._store_elements()
        if self.value is not None:
            return self.value
        self._to_be_kept()
        known = self.known
        assert known is not None
        trace = self.trace
        if known.ndim == 0:
            self.value = build.literal(known[()], known.dtype)
        elif self.fill is not None:
            value = build.literal(self.fill, known.dtype)
            self.value = trace.emit1(layout.broadcast_to, value, shape=known.shape, axes=())
        else:
            self.value = trace.constant(known.copy())
        return self.value

    def become_traced(self) -> None:
        """Before a traced write: from here on the elements are the program's."""
        if self.known is not None:
            self.read()
            self.known = self.fill = None

    def set(self, value: Operand) -> None:
        """Replace the whole value."""
        self.value = value
        self.elements = None
        self.version += 1

    def touched(self) -> None:
        """NumPy has written into the known array."""
        self.value = self.fill = None
        self.version += 1

    # -- single elements -------------------------------------------------------------------------------------------

    def set_element(self, place: Place, value: Operand) -> None:
        """Write one element; the program sees it when somebody reads more than this element."""
        self.become_traced()
        if self.elements is None:
            self.elements = {}
        if place not in self.elements and self._ambiguous(place):
            self._store_elements()
            self.elements = {}
        self.elements[place] = value
        self.written = user_line()
        self.symbolic = self.symbolic or not _is_fixed(place)
        self.version += 1

    def element(self, place: Place) -> Operand | None:
        """The value waiting for this place, or None where the stored array has it; stores first where sizes leave
        open whether two places are one."""
        if not self.elements:
            return None
        waiting = self.elements.get(place)
        if waiting is None and self._ambiguous(place):
            self._store_elements()
        return waiting

    def stored(self) -> Operand:
        """The value without the elements that wait."""
        return self.read() if self.value is None else self.value

    def _ambiguous(self, place: Place) -> bool:
        """Whether ``place`` might be one of the waiting places though it is written otherwise."""
        assert self.elements is not None
        if not self.symbolic and _is_fixed(place):
            return False
        return not all(any(_differ(i, j) for i, j in zip(place, other, strict=True)) for other in self.elements)

    def _store_elements(self) -> None:
        """One update for each run of neighbours along the last axis, not one per element; at the last write's line."""
        assert self.elements is not None
        self._to_be_kept()
        waiting, self.elements, self.symbolic = self.elements, None, False
        base = self.stored()
        outer, self.trace.writing = self.trace.writing, self.written
        try:
            for start, values in _runs(waiting):
                base = self._stored_run(base, start, values)
        finally:
            self.trace.writing = outer
        self.value = base

    def _stored_run(self, base: Operand, start: Place, values: list[Operand]) -> Operand:
        rank = len(start)
        ones = (1,) * rank
        pieces = [build.reshape(self.trace, v, ones) for v in values]
        joined = self.trace.emit1(layout.concatenate, *pieces, axis=rank - 1) if len(pieces) > 1 else pieces[0]
        return build.replace_box(self.trace, base, joined, start, ones, (*ones[:-1], len(values)))


def _is_fixed(place: Place) -> bool:
    return all(isinstance(i, int) for i in place)


def _differ(a: Extent, b: Extent) -> bool:
    difference = sub(a, b)
    return isinstance(difference, int) and difference != 0


def _runs(waiting: dict[Place, Operand]) -> list[tuple[Place, list[Operand]]]:
    """Neighbours along the last axis, joined. Places known as numbers are sorted, others stand alone."""
    fixed = sorted(p for p in waiting if _is_fixed(p))
    runs: list[tuple[Place, list[Operand]]] = [(p, [waiting[p]]) for p in waiting if not _is_fixed(p)]
    previous: Place | None = None
    for place in fixed:
        if previous is not None and place[:-1] == previous[:-1] and sub(place[-1], previous[-1]) == 1:
            runs[-1][1].append(waiting[place])
        else:
            runs.append((place, [waiting[place]]))
        previous = place
    return runs


def whole(shape: Sequence[Extent]) -> Box:
    """All of an array of this shape."""
    rank = len(shape)
    return Box((0,) * rank, (1,) * rank, tuple(shape), tuple(range(rank)))


def undoes(second: Step, first: Step | None, shape: Sequence[Extent]) -> bool:
    """Whether two boxes in turn are all of an array of this shape again, as two reversals are."""
    if not (isinstance(first, Box) and isinstance(second, Box)):
        return False
    same_axes = tuple(range(len(shape)))
    if first.kept != same_axes or second.kept != same_axes or second.sizes != tuple(shape):
        return False
    steps = zip(first.steps, second.steps, strict=True)
    starts = (add(a, mul(s, b)) for a, s, b in zip(first.starts, first.steps, second.starts, strict=True))
    return all(a * b == 1 for a, b in steps) and all(start == 0 for start in starts)


def is_contiguous(step: Step, base_contiguous: bool, base_shape: Sequence[Extent]) -> bool:
    """Whether the view's elements lie in row-major order without gaps, taking the base as row-major."""
    if not base_contiguous:
        return False
    match step:
        case Reshaped() | Cast():
            return True
        case Chosen(axis):
            return all(n == 1 for n in base_shape[:axis])
        case Transposed(axes):
            wide = [a for a in axes if base_shape[a] != 1]
            return wide == sorted(wide)
        case Box(starts, steps, sizes, _):
            partial = [k for k, n in enumerate(base_shape) if sizes[k] != n or steps[k] != 1 or starts[k] != 0]
            if not partial:
                return True
            last = partial[-1]
            return all(sizes[k] == 1 for k in range(last)) and (steps[last] == 1 or sizes[last] == 1)
        case _:
            return False
