"""Windows of an array whose starts are known when the program runs: places of their elements, reads and writes.

In: an operand, the starts of windows along some of its axes, the windows' sizes. Out: index arrays for the row ``take``
over the neighbouring axes that have starts, merged into one. A window that is not wholly inside has a place that no
array has, which the row's check finds: see ``tenferro.tracer.ops.layout.OUTSIDE``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from tenferro.tracer import build
from tenferro.tracer.api.lax_common import INT64, Shape, box, is_known, number, spread
from tenferro.tracer.dims import Extent, product, sub
from tenferro.tracer.ops import layout, pointwise as p
from tenferro.tracer.program import Literal, Operand
from tenferro.tracer.records import dataclass
from tenferro.tracer.trace import Trace

Starts = Mapping[int, Operand]
ZERO = Literal(0, INT64)


@dataclass(frozen=True, slots=True)
class Windows:
    """Windows of ``sizes`` in an array of ``shape``; along the axes without starts they are as long as the array.

    ``told``: the starts as the user gave them, for errors, where ``starts`` count from the front. ``batch``: the shape
    of every start, one window each."""

    name: str
    shape: Shape
    sizes: Shape
    starts: Starts
    told: Starts
    batch: Shape

    @property
    def block(self) -> range:
        """The axes that are merged: from the first that has starts to the last."""
        return range(min(self.starts), max(self.starts) + 1)

    @property
    def merged(self) -> Shape:
        """The array's shape with the block as one axis."""
        block = self.block
        return (*self.shape[: block.start], product(self.shape[a] for a in block), *self.shape[block.stop :])

    @property
    def params(self) -> tuple[str, Shape, Shape]:
        """What an error text needs."""
        return self.name, self.shape, self.sizes

    def room(self, axis: int) -> Extent:
        """The last start of a window that is wholly inside."""
        return sub(self.shape[axis], self.sizes[axis])


def _stride(shape: Shape, block: range, axis: int) -> Extent:
    return product(shape[axis + 1 : block.stop])


def _sum(trace: Trace, terms: list[Operand]) -> Operand:
    return reduce(lambda a, b: trace.emit1(p.add, a, b), terms) if terms else ZERO


def _scaled(trace: Trace, x: Operand, stride: Extent) -> Operand:
    return x if stride == 1 else trace.emit1(p.multiply, x, number(stride))


def clipped(trace: Trace, windows: Windows) -> Starts:
    """The starts brought to where each window is wholly inside."""
    return {
        a: trace.emit1(p.maximum, trace.emit1(p.minimum, s, number(windows.room(a))), ZERO)
        for a, s in windows.starts.items()
    }


def inside(trace: Trace, windows: Windows, axis: int) -> Operand:
    """Where the window is inside along one axis."""
    start = windows.starts[axis]
    low = trace.emit1(p.less_equal, ZERO, start)
    return trace.emit1(p.bitwise_and, low, trace.emit1(p.less_equal, start, number(windows.room(axis))))


def all_inside(trace: Trace, windows: Windows) -> Operand:
    """Where the window is wholly inside."""
    return reduce(
        lambda a, b: trace.emit1(p.bitwise_and, a, b), [inside(trace, windows, a) for a in sorted(windows.starts)]
    )


def first_places(trace: Trace, windows: Windows, starts: Starts) -> Operand:
    """The place of each window's first element among the elements of the block."""
    terms = [_scaled(trace, s, _stride(windows.shape, windows.block, a)) for a, s in sorted(starts.items())]
    return _sum(trace, terms)


def coded(trace: Trace, windows: Windows, place: Operand) -> Operand:
    """``place``, or what tells start and axis of a window that is not wholly inside, the first such axis."""
    for axis in sorted(windows.starts, reverse=True):
        code = build.outside(trace, windows.told[axis], axis)
        place = trace.emit1(p.where, inside(trace, windows, axis), place, code)
    return place


def places(trace: Trace, windows: Windows, first: Operand) -> Operand:
    """The places of all elements of the windows: the batch's axes, then the block's."""
    block, batch = windows.block, windows.batch
    own = tuple(windows.sizes[a] for a in block)
    shape = (*batch, *own)
    if not first.type.shape and not shape:
        return first
    terms = [
        _scaled(trace, trace.emit1(layout.iota, shape=own, axis=a - block.start), _stride(windows.shape, block, a))
        for a in block
        if windows.sizes[a] != 1
    ]
    if not first.type.shape and not terms:
        return build.broadcast(trace, first, shape)
    first = spread(trace, first, range(len(batch)), shape)
    return _sum(trace, [first, build.broadcast(trace, _sum(trace, terms), shape)]) if terms else first


def merged(trace: Trace, x: Operand, block: range) -> Operand:
    """The operand with the axes of the block as one."""
    shape = x.type.shape
    return build.reshape(trace, x, (*shape[: block.start], product(shape[a] for a in block), *shape[block.stop :]))


def read(trace: Trace, x: Operand, windows: Windows, first: Operand) -> Operand:
    """The windows' elements: the batch's axes, then all of the operand's."""
    block, rank = windows.block, len(windows.batch)
    index = places(trace, windows, first)
    taken = trace.emit1(layout.take, merged(trace, x, block), index, axis=block.start, windows=windows.params)
    return build.transpose(trace, taken, _batch_first(block.start, rank, rank + len(windows.shape)))


def _batch_first(before: int, batch: int, rank: int) -> list[int]:
    """The order that moves the batch's axes in front of the ``before`` that stand there."""
    return [*range(before, before + batch), *range(before), *range(before + batch, rank)]


def as_value(trace: Trace, x: Operand, windows: Windows) -> Operand:
    """The inverse order of ``read``'s result: elements of windows as the row ``scatter`` takes them."""
    before, batch = windows.block.start, len(windows.batch)
    rank = len(x.type.shape)
    order = [*range(batch, batch + before), *range(batch), *range(batch + before, rank)]
    return build.transpose(trace, x, order)


def replaced(trace: Trace, x: Operand, update: Operand, windows: Windows, code: Operand | None) -> Operand:
    """``x`` with the one window (no batch) replaced by ``update``: every element of ``x`` chooses between its own value
    and its place in the update, in one pass. ``code``: negative where the window is not wholly inside."""
    block = windows.block
    shape = tuple(windows.shape[a] for a in block)
    holds: list[Operand] = []
    terms: list[Operand] = []
    for axis in block:
        along: Operand = trace.emit1(layout.iota, shape=shape, axis=axis - block.start)
        if axis in windows.starts:
            along = trace.emit1(p.subtract, along, windows.starts[axis])
            low = trace.emit1(p.less_equal, ZERO, along)
            holds.append(trace.emit1(p.bitwise_and, low, trace.emit1(p.less, along, number(windows.sizes[axis]))))
        terms.append(_scaled(trace, along, _stride(windows.sizes, block, axis)))
    mask = reduce(lambda a, b: trace.emit1(p.bitwise_and, a, b), holds)
    index: Operand = trace.emit1(p.where, mask, _sum(trace, terms), ZERO)
    if code is not None:
        index = trace.emit1(p.where, trace.emit1(p.less, code, ZERO), code, index)
    source = merged(trace, update, block)
    if not is_known(trace, *windows.sizes):  # it may have no elements, and every lane reads one
        source = lengthened(trace, source, block.start)
    taken = trace.emit1(layout.take, source, index, axis=block.start, windows=windows.params)
    return trace.emit1(p.where, spread(trace, mask, block, windows.shape), taken, x)


def lengthened(trace: Trace, x: Operand, axis: int) -> Operand:
    """With one more element along an axis."""
    rank = len(x.type.shape)
    zero = build.literal(0, x.type.dtype)
    high = tuple(int(a == axis) for a in range(rank))
    return trace.emit1(layout.pad, x, zero, low=(0,) * rank, high=high)


def shortened(trace: Trace, x: Operand, axis: int) -> Operand:
    """Without the last element along an axis."""
    shape = x.type.shape
    sizes = tuple(sub(n, 1) if a == axis else n for a, n in enumerate(shape))
    return box(trace, x, (0,) * len(shape), sizes)
