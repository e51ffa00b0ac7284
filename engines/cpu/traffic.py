"""What launches are parts of and how many bytes they move: regions, products and their layouts in, ``Origin``s out.

Bytes are those that the elements touched take up, each counted once: what a cache saves is not known here. Nothing is
counted before a profile asks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from tenferro.engines.cpu.layout import Bound, Layout, Strided
from tenferro.engines.cpu.rows import RowKernel
from tenferro.lowering.plan import RegionStep, Step
from tenferro.lowering.region import Gather, Load, Region
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.engines.cpu.products import Sizes
    from tenferro.engines.cpu.writer import KernelWriter


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes of memory."""

    read: int
    written: int


@dataclass(frozen=True)
class Origin:
    """What a launch is a part of. ``part``: which launch of that, ``entry``: of the kernel."""

    name: str
    lines: tuple[SourceLine, ...]
    part: int
    entry: str
    count: Callable[[], Traffic]

    @cached_property
    def traffic(self) -> Traffic:
        """What it moves."""
        return self.count()


@dataclass
class Stage:
    """A step of a plan, and how many launches it has had so far."""

    name: str = ""
    lines: tuple[SourceLine, ...] = ()
    launches: int = 0

    @staticmethod
    def of(step: Step) -> Stage:
        """The stage of a plan's step, before its first launch."""
        if isinstance(step, RegionStep):
            return Stage(step.region.name, tuple(dict.fromkeys([x for x in step.region.lines if x is not None])))
        line = step.instruction.line
        return Stage(step.instruction.op.name, () if line is None else (line,))

    def launch(self, entry: str, count: Callable[[], Traffic]) -> Origin:
        """The origin of its next launch."""
        self.launches += 1
        return Origin(self.name, self.lines, self.launches - 1, entry, count)


def distinct(sizes: Iterable[int], strides: Iterable[int]) -> int:
    """How many elements there are along loops, those that a stride of 0 repeats counted once."""
    return math.prod(n for n, stride in zip(sizes, strides, strict=True) if stride)


def of_region(writer: KernelWriter, layout: Layout, slots: Sequence[Strided], entry: str) -> Traffic:
    """What a launch of a region's kernel moves. ``slots``: for each access the array that it reaches into."""
    nodes = writer.region.nodes
    loads = [k for k, node in enumerate(nodes) if isinstance(node, Load | Gather)]
    if entry.startswith("close"):
        return _of_close(writer, layout, int(entry.removeprefix("close")))
    if not entry.startswith("sweep"):
        stores = range(len(writer.region.stores))
        return Traffic(_read(writer.region, loads, layout, slots), _stored(stores, layout))
    number = int(entry.removeprefix("sweep"))
    one = writer.phases.passes[number]
    read = _read(writer.region, [k for k in loads if k in one.nodes and k not in one.loads], layout, slots)
    written = _stored([*one.stores, *one.saves.values()], layout)
    return Traffic(read + _stored([*one.loads.values()], layout), written + _parts(writer, layout, number))


def _read(region: Region, loads: Iterable[int], layout: Layout, slots: Sequence[Strided]) -> int:
    """Of an array that is read in several places (a stencil) no more than there is."""
    found: dict[int, int] = {}
    most: dict[int, int] = {}
    for k in loads:
        place = layout.keys.index(("node", k))
        access, whole = layout.accesses[place], slots[place]
        points = layout.outer_count * layout.row_length * access.itemsize
        size = points if isinstance(region.nodes[k], Gather) else _bytes(layout, access)
        found[access.slot] = found.get(access.slot, 0) + size
        most[access.slot] = distinct(whole.shape, whole.strides) * access.itemsize
    return sum(min(size, most[slot]) for slot, size in found.items())


def _stored(stores: Iterable[int], layout: Layout) -> int:
    return sum(_bytes(layout, layout.accesses[layout.keys.index(("store", k))]) for k in stores)


def _bytes(layout: Layout, access: Bound) -> int:
    loops = [loop.size for loop in (*layout.outer, *layout.row)]
    return distinct(loops, (*access.outer, *access.row)) * access.itemsize


def _parts(writer: KernelWriter, layout: Layout, number: int) -> int:
    """The words that a sweep leaves of each chunk."""
    assert isinstance(writer, RowKernel)
    chunks = max(1, -(-layout.row_length // writer.chunk(number)))
    return 8 * layout.outer_count * chunks * writer.part_words(number)


def _of_close(writer: KernelWriter, layout: Layout, number: int) -> Traffic:
    """Words of chunks go in, words of rows come out; after the last reduction the results that rows have."""
    assert isinstance(writer, RowKernel)
    ends = writer.phases.outer_stores if number == writer.last_reducing else ()
    written = 8 * layout.outer_count * writer.cell_words + _stored(ends, layout)
    return Traffic(_parts(writer, layout, number), written)


def of_product(sizes: Sizes, itemsize: int) -> Traffic:
    """What a matrix product moves if each element is read once."""
    counts, of_a, of_b = zip(*sizes.levels, strict=True)
    a = distinct((*counts, sizes.rows, sizes.depth), (*of_a, *sizes.a))
    b = distinct((*counts, sizes.depth, sizes.columns), (*of_b, *sizes.b))
    return Traffic((a + b) * itemsize, sizes.batch * sizes.rows * sizes.columns * itemsize)
