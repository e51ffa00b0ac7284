"""From a matrix product on real layouts to a launch: which kernel of ``product`` serves it, and in how many tiles.

The choice depends on sizes and strides alone, never on the machine's threads, so that bits do not either.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.engines import recording
from tenferro.engines.cpu import product_writer as p
from tenferro.engines.cpu.kernel import GOOD
from tenferro.engines.cpu.layout import Strided
from tenferro.engines.cpu.product import ProductText
from tenferro.engines.cpu.toolchain import Library, Target, compile_text
from tenferro.engines.cpu.traffic import of_product
from tenferro.lowering.exec_program import Instruction, Slot

if TYPE_CHECKING:
    from tenferro.engines.cpu.binding import Binder

GRAIN_SECONDS = 40e-6
SMALL = 1 << 18
"""Multiply-adds up to which operands are read where they lie: copying them would take as long as the product."""
SMALL_STRIDED = 1 << 12
FEW_ROWS = 8
MOST_LAUNCHES = 256
"""Turns of a batch's outer axes, each a launch of its own; beyond them NumPy does."""
SHORTEST_DOT = 16
RATES = {("f", 4): 80e9, ("f", 8): 40e9}
"""Multiply-adds a second of one core, roughly, counted twice; integers 4e9."""
SECONDS_PER_TILE = 20e-9

Dtype = np.dtype[Any]


@dataclass(frozen=True, slots=True)
class Sizes:
    """A batch of products of (rows, depth) and (depth, columns) matrices; byte strides of A and B: batch, row,
    column."""

    batch: int
    rows: int
    columns: int
    depth: int
    a: tuple[int, int, int]
    b: tuple[int, int, int]


_libraries: dict[tuple[Dtype, Target], Library] = {}
_lock = threading.Lock()


def library(dtype: Dtype, target: Target) -> Library:
    """The kernels of a dtype, compiled once for the process's life."""
    with _lock:
        found = _libraries.get((dtype, target))
    if found is None:
        start = recording.now()
        made = compile_text(ProductText(dtype, target.vector_bits).text(), GOOD, target)
        recording.compiled(start, "", f"product of {dtype.name}", GOOD, made.source)
        with _lock:
            found = _libraries.setdefault((dtype, target), made)
    return found


def add_product(binder: Binder, instruction: Instruction) -> bool:
    """Append a matrix product to the binder's block. False where no kernel serves it: NumPy does."""
    dtype = instruction.types[0].dtype
    if not p.is_served(dtype) or not all(isinstance(s, Slot) for s in instruction.inputs):
        return False
    slots = [s.index for s in instruction.inputs if isinstance(s, Slot)]
    a, b = (binder.places[s].strided for s in slots)
    found = _batches(a, b)
    if found is None:
        return False
    shape, of_a, of_b = found
    positions = [binder.places[s].position for s in slots]
    made = binder.fresh(instruction.outputs[0].index, instruction.line)
    if shape.batch and shape.rows and shape.columns:
        matrices = shape.batch * shape.rows * shape.columns * dtype.itemsize
        for k, (at_a, at_b) in enumerate(zip(of_a, of_b, strict=True)):
            offsets = (a.offset + at_a, b.offset + at_b, made.strided.offset + k * matrices)
            binder.block_seconds += _launch(binder, dtype, shape, (*positions, made.position), offsets)
    return True


def _batches(a: Strided, b: Strided) -> tuple[Sizes, list[int], list[int]] | None:
    """The last axes of the batch that one loop serves, with the matrices; then byte offsets into A and B for each turn
    of the others, in order. None where there are too many turns."""
    axes = [k for k in range(len(a.shape) - 2) if a.shape[k] != 1]
    steps = {k: (a.strides[k], b.strides[k]) for k in axes}
    batch, strides = 1, (0, 0)
    while axes:
        n, here = a.shape[axes[-1]], steps[axes[-1]]
        if batch > 1 and any(h != batch * s for h, s in zip(here, strides, strict=True)):
            break
        strides = strides if batch > 1 else here
        batch *= n
        axes.pop()
    if math.prod(a.shape[k] for k in axes) > MOST_LAUNCHES:
        return None
    turns = list(np.ndindex(*[a.shape[k] for k in axes]))
    of_a, of_b = ([sum(i * steps[k][side] for i, k in zip(t, axes, strict=True)) for t in turns] for side in (0, 1))
    rows, depth = a.shape[-2:]
    matrices = [(s, x.strides[-2], x.strides[-1]) for s, x in zip(strides, (a, b), strict=True)]
    return Sizes(batch, rows, b.shape[-1], depth, *matrices), of_a, of_b


def _entry(sizes: Sizes, dtype: Dtype, lanes: int) -> tuple[str, int, int]:
    """The kernel, and the rows and columns of its tiles."""
    size = dtype.itemsize
    work = sizes.rows * sizes.columns * sizes.depth
    if sizes.columns == 1 and sizes.rows == 1 and sizes.depth >= SHORTEST_DOT:
        # In any layout, so that bits do not depend on it.
        return "dots" if sizes.a[2] == size and sizes.b[1] == size else "strided_dots", 1, 1
    if sizes.columns == 1:
        return f"direct1x{p.TALL}x1", p.TALL, 1
    is_unit = sizes.b[2] == size
    limit = SMALL if is_unit else SMALL_STRIDED
    if work <= limit or (is_unit and sizes.rows <= FEW_ROWS):
        if _is_triple(sizes, size):
            return "triple", sizes.rows, sizes.columns
        fitting = [n for n in (lanes, p.NARROW) if is_unit and n <= sizes.columns]
        width = fitting[0] if fitting else 1
        forms = [(r, v) for r, v in p.DIRECT_FORMS if (r == 1) == (sizes.rows == 1)]
        rows, vectors = next(((r, v) for r, v in reversed(forms) if v * width >= sizes.columns), forms[0])
        return f"direct{width}x{rows}x{vectors}", rows, vectors * width
    return "packed", p.BLOCK_ROWS, p.block_columns(dtype)


def _is_triple(sizes: Sizes, size: int) -> bool:
    """Whether ``triple`` may read a little beyond each matrix but the last of a batch."""
    row = 3 * size
    return (
        sizes.columns == 3 and sizes.batch > 1 and sizes.b[2] == size and sizes.b[1] == row
        and sizes.b[0] >= sizes.depth * row and sizes.depth > 0
    )  # fmt: skip


def _upright(
    sizes: Sizes, positions: Sequence[int], offsets: Sequence[int], size: int
) -> tuple[Sizes, Sequence[int], Sequence[int]]:
    """A vector and a matrix as the matrix asks for: vectors along its contiguous axis, else one result to a chain. The
    product of the transposes has the same elements in the same places."""
    is_row, is_column = sizes.rows == 1 != sizes.columns, sizes.columns == 1 != sizes.rows
    if (is_column and sizes.a[1] == size) or (is_row and sizes.b[2] != size):
        a, b = ((s[0], s[2], s[1]) for s in (sizes.b, sizes.a))
        turned = Sizes(sizes.batch, sizes.columns, sizes.rows, sizes.depth, a, b)
        return turned, (positions[1], positions[0], positions[2]), (offsets[1], offsets[0], offsets[2])
    return sizes, positions, offsets


def _launch(binder: Binder, dtype: Dtype, sizes: Sizes, positions: Sequence[int], offsets: Sequence[int]) -> float:
    target = binder.kernels.target
    sizes, positions, offsets = _upright(sizes, positions, offsets, dtype.itemsize)
    entry, tall, wide = _entry(sizes, dtype, p.registers(dtype, target.vector_bits).lanes)
    row_tiles, column_tiles = -(-sizes.rows // tall), -(-sizes.columns // wide)
    total = sizes.batch * row_tiles * column_tiles
    c_row, c_matrix = (n * dtype.itemsize for n in (sizes.columns, sizes.rows * sizes.columns))
    words = [
        0, 0, 0, 0, sizes.rows, sizes.columns, sizes.depth, *sizes.a[1:], *sizes.b[1:], c_row, sizes.a[0], sizes.b[0],
        c_matrix, row_tiles, column_tiles,
    ]  # fmt: skip
    operations = 2.0 * sizes.batch * sizes.rows * sizes.columns * sizes.depth
    seconds = operations / RATES.get((dtype.kind, dtype.itemsize), 4e9) + SECONDS_PER_TILE * total
    grain = max(1, min(total, round(GRAIN_SECONDS / (seconds / total))))
    block = binder.open_block()
    binder.kernels.products[dtype] = None

    def address(level: int) -> int:
        return library(dtype, target).address(entry)

    origin = binder.stage.launch(entry, partial(of_product, sizes, dtype.itemsize))
    launch = block.add_launch(address, total, grain, words, origin)
    for place, position, offset in zip((p.A, p.B, p.C), positions, offsets, strict=True):
        block.add_patch(binder.patch(position), launch, place, offset)
    return seconds
