"""Keys as users write them: the key of ``x[key]`` in, a strided box and the index arrays on its axes out.

A single bool is an index array over an axis of its own: ``x[True]`` has one element along it, ``x[False]`` none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tenferro.tracer.cells import Box, Chosen, Reshaped
from tenferro.tracer.dim import Dim, as_extent
from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import BoundsError, DtypeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import ArrayType
from tenferro.tracer.records import dataclass
from tenferro.tracer.slicing import element_start, slice_box
from tenferro.tracer.trace import Trace, is_tenferro_array
from tenferro.tracer.traced import TracedArray, as_traced, from_known


@dataclass(frozen=True, slots=True)
class Index:
    """A parsed key. ``box`` holds the basic part; ``arrays`` are (result axis of the box, index array) pairs, where a
    mask of rank r stands on r axes; ``flag`` is the axis and the value of a bool that stands without index arrays.
    ``together``: NumPy puts the axes of all these where the first of them stands, otherwise in front. ``element`` is
    the place when the key names one element. ``has_dots``: an Ellipsis stands in it, so that rank 0 is an array.
    ``chosen``: elements that are taken before the box, along axes whose sizes only the run tells."""

    box: Box
    arrays: tuple[tuple[int, TracedArray], ...]
    flag: tuple[int, bool] | None
    together: bool
    element: tuple[Extent, ...] | None
    has_dots: bool = False
    chosen: tuple[Chosen, ...] = ()


@dataclass(frozen=True, slots=True)
class _Gate:
    """A traced bool of rank 0, as the mask of an axis of size 1 that the array has not."""

    mask: TracedArray


def parse(trace: Trace, base: ArrayType, key: Any, name: str) -> Index:
    """The key of ``x[key]`` for an array of this type; a BoundsError names an index or rank that does not fit."""
    items = [_item(trace, i, name) for i in (key if isinstance(key, tuple) else (key,))]
    used = sum(map(_consumed, items))
    rank = len(base.shape)
    dots = [k for k, i in enumerate(items) if i is Ellipsis]
    if len(dots) > 1:
        raise BoundsError(f"{name}: index {key!r}; at most one Ellipsis is needed{at(user_line())}")
    if used > rank:
        raise BoundsError(f"{name}: {used} indices for an array of rank {rank}; at most {rank} fit{at(user_line())}")
    fill: list[Any] = [slice(None)] * (rank - used)
    if dots:
        items[dots[0] : dots[0] + 1] = fill
    else:
        items += fill
    # With an Ellipsis NumPy gives a view of rank 0 where it would give an element without.
    names_one = not dots and len(items) == rank and all(map(_is_integer, items))
    chosen: tuple[Chosen, ...] = ()
    late = _late(trace, base, items)
    if late and (names_one or any(map(_is_advanced, items))):
        for k in late.values():
            items[k] = as_traced(trace, items[k], name)
        names_one = False
    elif late:
        chosen = tuple([Chosen(axis, _extent(items[k])) for axis, k in late.items()])
        base = ArrayType(base.dtype, tuple([1 if axis in late else n for axis, n in enumerate(base.shape)]))
        for k in late.values():
            items[k] = 0
    parts = _Parts(trace, base, name, _shared_flag(items))
    for item in items:
        parts.add(item)
    return parts.index(_stand_together(items), names_one, bool(dots), chosen)


def _late(trace: Trace, base: ArrayType, items: Sequence[Any]) -> dict[int, int]:
    """Axes whose sizes are known only when the program runs, and where the integers on them stand in the key: those are
    checked then."""
    found: dict[int, int] = {}
    axis = 0
    for k, item in enumerate(items):
        if _is_integer(item) and trace.hint(base.shape[axis]) is None:
            found[axis] = k
        axis += _consumed(item)
    return found


def _extent(item: Any) -> Extent:
    found = as_extent(item)
    assert found is not None
    return found


def _item(trace: Trace, item: Any, name: str) -> Any:
    """The item as an integer, slice, None, Ellipsis, bool, gate, or a traced array of integers or bools."""
    kind = type(item)
    if kind in (int, slice, Dim, bool) or item is None or item is Ellipsis or isinstance(item, np.integer):
        return item
    if isinstance(item, np.bool_):
        return bool(item)
    if isinstance(item, list | tuple):
        array = _listed(trace, item, name)
    elif isinstance(item, np.ndarray | np.generic) or is_tenferro_array(item):
        _check_dtype(item.dtype, name)
        array = as_traced(trace, item, name)
    elif hasattr(kind, "__index__"):
        return int(item.__index__())
    else:
        raise BoundsError(
            f"{name}: index {item!r} of class {kind.__name__}; integers, slices, Ellipsis, None, and arrays of "
            f"integers or bools are needed{', int(i) rounds a number' if kind is float else ''}{at(user_line())}"
        )
    _check_dtype(array.dtype, name)
    if array.ndim or array.dtype.kind != "b":
        return array
    known = array.known()
    return _Gate(array.stepped(Reshaped((1,)), (1,))) if known is None else bool(known)


def _check_dtype(dtype: np.dtype[Any], name: str) -> None:
    if dtype.kind not in "iub":
        cure = ", i.astype(int) rounds numbers" if dtype.kind == "f" else ""
        raise BoundsError(f"{name}: index of dtype {dtype}; integers or bools are needed{cure}{at(user_line())}")


def _listed(trace: Trace, item: Sequence[Any], name: str) -> TracedArray:
    """A nested sequence as an array; one without elements counts as integers."""
    try:
        array = as_traced(trace, item, name)
    except DtypeError as error:
        raise BoundsError(str(error)) from None
    assert type(array) is TracedArray
    known = array.known()
    return array if known is None or known.size else from_known(trace, known.astype(np.int64))


def _is_integer(item: object) -> bool:
    return type(item) is int or type(item) is Dim or isinstance(item, np.integer)


def _is_advanced(item: object) -> bool:
    return type(item) in (TracedArray, bool, _Gate)


def _consumed(item: Any) -> int:
    """How many axes of the array the item takes."""
    if item is None or item is Ellipsis or type(item) in (bool, _Gate):
        return 0
    return item.ndim if type(item) is TracedArray and item.dtype.kind == "b" else 1


def _stand_together(items: Sequence[Any]) -> bool:
    """Whether the index arrays are neighbours; integers beside them take part in NumPy's rule."""
    if not any(map(_is_advanced, items)):
        return True
    taking = [k for k, item in enumerate(items) if _is_advanced(item) or _is_integer(item)]
    return taking[-1] - taking[0] + 1 == len(taking)


def _shared_flag(items: Sequence[Any]) -> bool | None:
    """What the bools among the items are together; None for none, or where they change nothing: True has one element,
    which is broadcast to what another index array has."""
    flags = [item for item in items if type(item) is bool]
    if not flags:
        return None
    others = any(type(item) is _Gate or (type(item) is TracedArray and item.ndim) for item in items)
    return None if all(flags) and others else all(flags)


@dataclass(slots=True)
class _Parts:
    """The box and the index arrays while the items are taken in, from the first axis on."""

    trace: Trace
    base: ArrayType
    name: str
    flag: bool | None
    flag_axis: int | None = None
    starts: list[Extent] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    sizes: list[Extent] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)
    arrays: list[tuple[int, TracedArray]] = field(default_factory=list)

    def add(self, item: Any) -> None:
        axis = len(self.starts)
        match item:
            case None:
                self.kept.append(-1)
            case bool():
                self._add_flag()
            case _Gate(mask=mask):
                self.arrays.append((len(self.kept), mask))
                self.kept.append(-1)
            case slice():
                self.kept.append(axis)
                self._add_axis(*slice_box(self.trace, self.base.shape[axis], item, self.name))
            case _ if type(item) is TracedArray:
                self.arrays.append((len(self.kept), item))
                for k in range(axis, axis + _consumed(item)):
                    self.kept.append(k)
                    self._add_axis(0, 1, self.base.shape[k])
            case _:
                self._add_axis(element_start(self.trace, self.base.shape[axis], item, axis, self.name), 1, 1)

    def _add_axis(self, start: Extent, step: int, size: Extent) -> None:
        self.starts.append(start)
        self.steps.append(step)
        self.sizes.append(size)

    def _add_flag(self) -> None:
        """The first of the bools stands for all of them."""
        if self.flag is not None and self.flag_axis is None:
            self.flag_axis = len(self.kept)
            self.kept.append(-1)

    def index(self, together: bool, names_one: bool, has_dots: bool, chosen: tuple[Chosen, ...]) -> Index:
        box = Box(tuple(self.starts), tuple(self.steps), tuple(self.sizes), tuple(self.kept))
        flag = None
        if self.flag_axis is not None:
            flag = (self.flag_axis, bool(self.flag))
            if self.arrays:
                self.arrays.append((self.flag_axis, from_known(self.trace, np.zeros(int(flag[1]), np.int64))))
                flag = None
        element = tuple(self.starts) if names_one else None
        return Index(box, tuple(self.arrays), flag, together, element, has_dots, chosen)
