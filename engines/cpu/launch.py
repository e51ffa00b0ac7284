"""From a region on real layouts to launches of a block: which schedule, how many items, what a thread takes at a time.

None of these choices changes bits: every schedule follows the one reduction tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from tenferro.engines.cpu import layout as lay
from tenferro.engines.cpu.actions import Recheck
from tenferro.engines.cpu.columns import (
    FEW_SHORT_ROWS,
    MIN_COLUMNS,
    MIN_SHORT_ROWS,
    ColumnKernel,
    across,
    goes_across,
    tile_columns,
)
from tenferro.engines.cpu.compiling import FunctionOf
from tenferro.engines.cpu.kernel import GOOD, Kernel
from tenferro.engines.cpu.layout import Layout, Variant
from tenferro.engines.cpu.params import BLOCK, BLOCKS, CELLS_POINTER, PART_POINTER, TILE
from tenferro.engines.cpu.phases import chunk_length, cost
from tenferro.engines.cpu.records import SHORT_RECORD, RecordKernel, lines_ahead, record_layout
from tenferro.engines.cpu.rows import MAX_ROW_CHUNKS, PACKED_BLOCK, RowKernel
from tenferro.engines.cpu.short_columns import short_layout
from tenferro.engines.cpu.tiles import items
from tenferro.engines.cpu.traffic import of_region
from tenferro.lowering.checks import empty_error
from tenferro.lowering.region import Gather, Iota, Load, Reduce, Region, Valid
from tenferro.lowering.tree import has_identity

if TYPE_CHECKING:
    from tenferro.engines.cpu.binding import Binder
    from tenferro.engines.cpu.writer import KernelWriter

SECONDS_PER_OPERATION = 0.04e-9
SECONDS_PER_BYTE = 0.06e-9
SECONDS_PER_ROW = 15e-9
SECONDS_PER_RECORD = 2e-9
GRAIN_SECONDS = 40e-6
"""Work that a thread takes at a time: long against a hand-out (about 0.1 µs), short against an interrupt's 50 ms."""
BLOCK_ELEMENTS = 1 << 14
SPLIT_ROWS = 8
"""Fewer rows than this are split among threads by chunks, if they are long."""


def variant_of(region: Region, layout: Layout, schedule: str) -> Variant:
    named = []
    for node in region.nodes:
        match node:
            case Load(windows=windows) | Valid(windows=windows):
                named += [layout.axis_loops[w.axis] for w in windows]
            case Iota(axis=axis):
                named.append(layout.axis_loops[axis])
            case _:
                pass
    kinds = tuple(a.kind for a in layout.accesses)
    return Variant(len(layout.outer), len(layout.row), kinds, tuple(named), schedule)  # type: ignore[arg-type]


def add_region(binder: Binder, region: Region, prototype: Region) -> float:
    """Append the launches of ``region`` to the binder's block; ``prototype`` is the region whose kernel serves it.
    Returns the estimated seconds on one thread."""
    slots = {slot: place.strided for slot, place in binder.places.items()}
    itemsizes = _SlotItemSizes(binder)
    layout = lay.layout(region, slots, itemsizes, binder.env)
    if layout.outer_count * layout.row_length == 0 and _is_indexed(binder, region):
        binder.actions.append(Recheck())
    if layout.outer_count == 0 or (layout.row_length == 0 and not region.row_axes):
        return 0.0
    if layout.row_length == 0:
        _refuse_empty(binder, region)
    few = FEW_SHORT_ROWS if binder.level == GOOD else MIN_SHORT_ROWS
    records = record_layout(region, slots, itemsizes, binder.env)
    if records is not None:
        return _add_records(binder, region, prototype, records)
    columns = across(region, layout, min(few, MIN_COLUMNS))
    if columns is not None:
        if seconds := _add_short(binder, region, prototype, columns, few):
            return seconds
        if layout.outer[-1].size >= MIN_COLUMNS and goes_across(region, layout, columns):
            return _add_columns(binder, region, prototype, columns)
    tiled = tile_layout(region, layout)
    layout = tiled or layout
    seconds = _row_seconds(region, layout)
    schedule = "tile" if tiled else "split" if _splits(region, layout, seconds) else "row"
    kernel = binder.kernels.kernel(prototype, variant_of(region, layout, schedule), layout.axis_loops)
    words = kernel.writer.params.fill(region, layout, slots, binder.env)
    if schedule == "tile":
        return _add_tiles(binder, kernel, layout, words, seconds)
    if schedule == "split":
        return _add_split(binder, kernel, layout, words, seconds)
    if not region.row_axes:
        return _add_blocks(binder, kernel, layout, words, seconds)
    total = layout.outer_count
    grain = max(1, min(total, round(GRAIN_SECONDS / seconds)))
    _launch(binder, kernel, "row", layout, total, grain, words)
    return seconds * total


def _add_records(binder: Binder, region: Region, prototype: Region, layout: Layout) -> float:
    """Items are indices."""
    record = layout.row_length * layout.accesses[-1].itemsize
    variant, table, kernel = variant_of(region, layout, "record"), binder.kernels, None
    if record <= SHORT_RECORD:
        kernel = table.short_kernel(prototype, replace(variant, short=layout.row_length), layout.axis_loops)
    kernel = kernel or table.kernel(prototype, variant, layout.axis_loops)
    slots = {slot: place.strided for slot, place in binder.places.items()}
    writer = kernel.writer
    assert isinstance(writer, RecordKernel)
    words = writer.params.fill(region, layout, slots, binder.env)
    words[TILE] = _lines_ahead(writer, layout, words, [writer.node])
    seconds = SECONDS_PER_RECORD + 2 * record * SECONDS_PER_BYTE
    grain = max(1, min(layout.outer_count, round(GRAIN_SECONDS / seconds)))
    _launch(binder, kernel, "records", layout, layout.outer_count, grain, words)
    return seconds * layout.outer_count


def _lines_ahead(writer: KernelWriter, layout: Layout, words: Sequence[int], gathers: Sequence[int]) -> int:
    """How many lines of the records of these gathers are asked for."""
    found = []
    for k in gathers:
        extent, stride = (words[writer.params["g", k, name]] for name in ("extent", "stride"))
        found.append(lines_ahead(layout, writer.region.nodes[k].dtype.itemsize, extent, stride))
    return max(found, default=0)


def _is_indexed(binder: Binder, region: Region) -> bool:
    """Whether there are indices, which another run may look at: of a program without effects."""
    indices = [region.nodes[n.index] for n in region.nodes if isinstance(n, Gather)]
    shapes = [binder.places[n.access.slot].strided.shape if isinstance(n, Load) else () for n in indices]
    instructions = binder.plan.program.instructions
    return any(0 not in s for s in shapes) and not any(i.op.is_ordered(i.params) for i in instructions)


def _refuse_empty(binder: Binder, region: Region) -> None:
    """ShapeError for a largest or smallest element of none; only sizes of run time come here unchecked."""
    for node in region.nodes:
        if isinstance(node, Reduce) and not has_identity(node.kind):
            raise empty_error(binder.plan.program.instructions[node.operation])


class _SlotItemSizes(dict[int, int]):
    """Item sizes by slot, from the binder's types."""

    def __init__(self, binder: Binder) -> None:
        super().__init__()
        self._types = binder.types

    def __missing__(self, slot: int) -> int:
        return int(self._types[slot].dtype.itemsize)


def _row_seconds(region: Region, layout: Layout) -> float:
    """One row on one thread, roughly."""
    operations = sum(cost(n) for n in region.nodes)
    bytes_moved = sum(a.itemsize * (4 if a.kind == "packed" else 1) for a in layout.accesses if a.kind != "uniform")
    element = operations * SECONDS_PER_OPERATION + bytes_moved * SECONDS_PER_BYTE
    return SECONDS_PER_ROW + layout.row_length * element


def _launch(
    binder: Binder, kernel: Kernel, entry: str, layout: Layout, total: int, grain: int, words: list[int],
    extra: tuple[tuple[int, int], ...] = (),
) -> None:  # fmt: skip
    """One launch with its pointers; ``extra`` are (parameter, position) of buffers beside the accesses."""
    block = binder.open_block()
    places = [binder.places[access.slot] for access in layout.accesses]
    count = partial(of_region, kernel.writer, layout, [place.strided for place in places], entry)
    origin = binder.stage.launch(entry, count)
    launch = block.add_launch(FunctionOf(kernel, entry), total, grain, words, origin)
    for a, (access, place) in enumerate(zip(layout.accesses, places, strict=True)):
        block.add_patch(binder.patch(place.position), launch, kernel.writer.params["p", a], access.offset)
    for parameter, position in extra:
        block.add_patch(binder.patch(position), launch, parameter)


def _add_blocks(binder: Binder, kernel: Kernel, layout: Layout, words: list[int], seconds: float) -> float:
    """Items are blocks of rows."""
    packed = any(a.kind == "packed" for a in layout.accesses)
    block = min(layout.row_length, PACKED_BLOCK if packed else BLOCK_ELEMENTS)
    words[BLOCK], words[BLOCKS] = block, -(-layout.row_length // block)
    writer = kernel.writer
    if isinstance(writer, RowKernel):
        words[TILE] = _lines_ahead(writer, layout, words, writer.gathered)
    total = layout.outer_count * words[BLOCKS]
    grain = max(1, min(total, round(GRAIN_SECONDS / (seconds / words[BLOCKS]))))
    _launch(binder, kernel, "row", layout, total, grain, words)
    return seconds * layout.outer_count


def tile_layout(region: Region, layout: Layout) -> Layout | None:
    """The layout with transposed operands marked, where there are any and the tile is worth making."""
    if region.row_axes or not layout.outer or len(layout.row) != 1 or min(layout.outer[-1].size, layout.row_length) < 8:
        return None
    loads = len(layout.accesses) - len(region.stores)
    accesses = [
        replace(a, kind="tiled") if k < loads and a.kind == "packed" and a.outer[-1] == a.itemsize else a
        for k, a in enumerate(layout.accesses)
    ]
    if not any(a.kind == "tiled" for a in accesses):
        return None
    return replace(layout, accesses=tuple(accesses))


def _is_read_both_ways(layout: Layout) -> bool:
    """Whether a tiled operand is also read along the row."""
    across = {(a.slot, a.offset, a.outer[-1], a.row[0]) for a in layout.accesses if a.kind == "tiled"}
    return any((a.slot, a.offset, a.row[0], a.outer[-1]) in across for a in layout.accesses if a.kind == "unit")


def _add_tiles(binder: Binder, kernel: Kernel, layout: Layout, words: list[int], seconds: float) -> float:
    """Items are tiles."""
    writer = kernel.writer
    assert isinstance(writer, RowKernel)
    inner = layout.outer[-1].size
    groups = layout.outer_count // inner
    paired = inner == layout.row_length and _is_read_both_ways(layout)
    total, words[BLOCK] = items(groups, inner, layout.row_length, writer.tile_rows, paired)
    all_seconds = seconds * layout.outer_count
    grain = max(1, min(total, round(GRAIN_SECONDS / (all_seconds / total))))
    _launch(binder, kernel, "tiles", layout, total, grain, words)
    return all_seconds


def _splits(region: Region, layout: Layout, seconds: float) -> bool:
    """Whether rows are cut into chunks for all threads: one is too long for the stack, or there are few and long
    ones."""
    if not region.row_axes:
        return False
    shortest = min(chunk_length(region, k) for k, n in enumerate(region.nodes) if isinstance(n, Reduce))
    chunks = layout.row_length // min(shortest, PACKED_BLOCK) + 1
    return chunks > MAX_ROW_CHUNKS or (layout.outer_count < SPLIT_ROWS and seconds > 2 * GRAIN_SECONDS)


def _add_split(binder: Binder, kernel: Kernel, layout: Layout, words: list[int], seconds: float) -> float:
    """Passes in turn: each a launch over chunks, then one over rows that closes it."""
    writer, rows = kernel.writer, layout.outer_count
    assert isinstance(writer, RowKernel)
    passes = range(len(writer.phases.passes))
    counts = [max(1, -(-layout.row_length // writer.chunk(p))) for p in passes]
    most = max(rows * n * max(1, writer.part_words(p)) for p, n in zip(passes, counts, strict=True))
    word = np.dtype(np.int64)
    parts = binder.allocate((most,), word, None)
    cells = binder.allocate((max(1, rows * writer.cell_words),), word, None)
    extra = ((PART_POINTER, parts), (CELLS_POINTER, cells))
    for p in passes:
        items = rows * counts[p]
        grain = max(1, min(items, round(GRAIN_SECONDS / (seconds / counts[p] / len(counts)))))
        _launch(binder, kernel, f"sweep{p}", layout, items, grain, words, extra)
        if writer.phases.passes[p].reduces:
            _launch(binder, kernel, f"close{p}", layout, rows, max(1, rows // 8), words, extra)
    return seconds * rows


def _add_short(binder: Binder, region: Region, prototype: Region, layout: Layout, least: int) -> float:
    """Columns by a kernel for just this length of row, from so many rows on; 0 where there is none."""
    if layout.outer_count < least:
        return 0.0
    found = short_layout(region, layout, binder.kernels.target.vector_bits)
    if found is None:
        return 0.0
    variant = replace(variant_of(region, found, "column"), short=int(found.row_length))
    kernel = binder.kernels.short_kernel(prototype, variant, found.axis_loops)
    if kernel is None:
        return 0.0
    seconds = (_row_seconds(region, found) - SECONDS_PER_ROW) * found.outer_count
    return _launch_columns(binder, kernel, region, found, seconds)


def _add_columns(binder: Binder, region: Region, prototype: Region, layout: Layout) -> float:
    """Columns by the kernel for all lengths of row."""
    kernel = binder.kernels.kernel(prototype, variant_of(region, layout, "column"), layout.axis_loops)
    return _launch_columns(binder, kernel, region, layout, _row_seconds(region, layout) * layout.outer_count)


def _launch_columns(binder: Binder, kernel: Kernel, region: Region, layout: Layout, seconds: float) -> float:
    """Items are tiles of columns."""
    writer = kernel.writer
    assert isinstance(writer, ColumnKernel)
    slots = {slot: place.strided for slot, place in binder.places.items()}
    words = writer.params.fill(region, layout, slots, binder.env)
    columns = layout.outer[-1].size
    tile = tile_columns(writer, columns)
    words[TILE], words[BLOCKS] = tile, -(-columns // tile)
    total = layout.outer_count // columns * words[BLOCKS]
    grain = max(1, min(total, round(GRAIN_SECONDS / (seconds / total))))
    _launch(binder, kernel, "tile", layout, total, grain, words)
    return seconds
