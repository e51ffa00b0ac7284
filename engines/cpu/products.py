"""From a matrix product on real layouts to a launch: which kernel of ``product`` serves it, and in how many tiles.

The choice depends on sizes and strides alone, never on the machine's threads, so that bits do not either.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenferro.engines import recording
from tenferro.engines.cpu import product_writer as p, threads
from tenferro.engines.cpu.compiling import FunctionOf
from tenferro.engines.cpu.kernel import GOOD
from tenferro.engines.cpu.layout import Strided
from tenferro.engines.cpu.product import Entry
from tenferro.engines.cpu.toolchain import Library, Target, compile_text
from tenferro.engines.cpu.traffic import of_product
from tenferro.lowering.exec_program import Instruction, Slot
from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.engines.cpu.binding import Binder

GRAIN_SECONDS = 20e-6
SMALL = 1 << 18
"""Multiply-adds up to which operands are read where they lie: copying them would take as long as the product."""
SMALL_HALF = 1 << 14
"""The same for float16, which is widened once where it is copied."""
SMALL_LINES = 1 << 10
"""The same where the right operand's columns are contiguous, and turned round for each few rows."""
SMALL_STRIDED = 1 << 9
"""The same where its elements are no neighbours either way."""
FEW_ROWS = 8
NARROW_BYTES = 128
"""Of a row of results: so few columns use an element of the left operand too seldom to copy it ((256, 512) by (512, 10)
in float32 takes 1.4 times as long by copies). Not where its rows are no runs of memory (a transpose of (60000, 784)
takes 3.5 times as long without), nor where the right one is so large that copies of its parts would stay nearer."""
NARROW_RIGHT = 4 << 20
"""Bytes of the right operand that few rows at a time may read from end to end."""
MOST_LINES = 4
"""Rows, or columns, of products that read the other operand once."""
LINE_ROWS = 8
"""Rows of a tile of ``lines`` at most."""
TILES_OF_A_THREAD = 1
"""As many tiles as a large product is cut into at least for each thread. Fewer copy less: two threads take 4 % longer
for a (256, 784, 512) product in 4 tiles than in 2. Results do not depend on it: what is summed is not cut here."""
LEAST_TILE = 1 << 19
"""Multiply-adds of a tile that is worth a thread's turn."""
SHORTEST_DOT = 16
RATES = {("f", 2): 80e9, ("f", 4): 80e9, ("f", 8): 40e9, ("c", 8): 20e9, ("c", 16): 10e9}
"""Multiply-adds a second of one core, roughly, counted twice; integers 4e9."""
SECONDS_PER_TILE = 20e-9
SECONDS_PER_BYTE = 0.06e-9

Dtype = np.dtype[Any]


Level: TypeAlias = tuple[int, int, int]
"""A loop over a batch: its size, the bytes from one matrix to the next in A and in B."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A batch of products of (rows, depth) and (depth, columns) matrices; loops over the batch, innermost first, at
    least one; byte strides of rows and columns of A and B."""

    levels: tuple[Level, ...]
    rows: int
    columns: int
    depth: int
    a: tuple[int, int]
    b: tuple[int, int]

    @property
    def batch(self) -> int:
        return math.prod(n for n, _, _ in self.levels)

    @property
    def turned(self) -> Sizes:
        """The product of the transposes."""
        levels = tuple((n, b, a) for n, a, b in self.levels)
        return Sizes(levels, self.columns, self.rows, self.depth, self.b[::-1], self.a[::-1])


LARGE = 1000
"""A kernel's size beside those of regions: it is compiled at level 2, which takes longest."""

_libraries: dict[tuple[Entry, Target], Library] = {}
_lock = threading.Lock()


def library(entry: Entry, target: Target) -> Library:
    """A kernel, compiled once for the process's life."""
    with _lock:
        found = _libraries.get((entry, target))
    if found is None:
        start = recording.now()
        made = compile_text(entry.text(target.vector_bits), GOOD, target)
        recording.compiled(start, "", f"product of {entry.dtype.name}", GOOD, made.source)
        with _lock:
            found = _libraries.setdefault((entry, target), made)
    return found


@dataclass(frozen=True, slots=True)
class ProductSource:
    """A kernel on a target, the same at every level."""

    entry: Entry
    target: Target

    def prepare(self, level: int) -> None:
        """Nothing: the text is made where no object of it is known."""

    def library(self, level: int) -> Library:
        return library(self.entry, self.target)

    def is_ready(self, level: int) -> bool:
        return (self.entry, self.target) in _libraries

    def ready(self) -> Sequence[Library]:
        return [library(self.entry, self.target)]

    @property
    def size(self) -> int:
        return LARGE


def add_product(binder: Binder, instruction: Instruction) -> None:
    """Append a matrix product to the binder's block."""
    dtype = instruction.types[0].dtype
    sides = [binder.places[s.index] for s in instruction.inputs if isinstance(s, Slot)]  # a matrix is no number
    a, b = (side.strided for side in sides)
    made = binder.fresh(instruction.outputs[0].index, instruction.line)
    of_a, of_b = ((x.strides[-2], x.strides[-1]) for x in (a, b))
    sizes = Sizes(_levels(a, b), a.shape[-2], b.shape[-1], a.shape[-1], of_a, of_b)
    if sizes.batch and sizes.rows and sizes.columns:
        offsets = (a.offset, b.offset, made.strided.offset)
        seconds = _launch(binder, dtype, sizes, (*(side.position for side in sides), made.position), offsets)
        binder.settle(seconds)


def _levels(a: Strided, b: Strided) -> tuple[Level, ...]:
    """Loops over the batch axes, as few as strides allow."""
    found: list[Level] = []
    for n, *steps in reversed(list(zip(a.shape[:-2], a.strides, b.strides, strict=False))):
        if n == 1:
            continue
        if found and steps == [found[-1][0] * s for s in found[-1][1:]]:
            found[-1] = found[-1][0] * n, found[-1][1], found[-1][2]
        else:
            found.append((n, steps[0], steps[1]))
    return tuple(found) or ((1, 0, 0),)


def _choice(sizes: Sizes, dtype: Dtype, form: p.Registers) -> tuple[str, int, int]:
    """The kernel, and the rows and columns of its tiles."""
    size = dtype.itemsize
    work = sizes.rows * sizes.columns * sizes.depth
    if sizes.columns == 1 and sizes.rows == 1 and sizes.depth >= SHORTEST_DOT:
        # In any layout, so that bits do not depend on it.
        return "dots" if sizes.a[1] == size and sizes.b[0] == size else "strided_dots", 1, 1
    if sizes.columns == 1:
        return f"direct1x{p.COLUMN_ROWS}x1", p.COLUMN_ROWS, 1
    is_unit = sizes.b[1] == size
    is_few = sizes.rows <= MOST_LINES or work < SMALL_LINES
    if is_few and not is_unit and _by_lines(sizes.b[0], sizes.columns, dtype):
        halves = (form.lanes, form.lanes // 2, p.NARROW)
        lanes = next((n for n in halves if sizes.columns >= n >= p.NARROW), p.NARROW)
        # At strides of a cache's sets no more columns than its ways: 512 of 4 kB 54 GB/s by sixteen, 28 by 32.
        collide = lanes * size >= 64 and sizes.b[1] % 1024 == 0
        vectors = 2 if sizes.columns > lanes and sizes.rows <= 2 and not collide else 1
        rows = -(-sizes.rows // -(-sizes.rows // LINE_ROWS))
        return f"lines{lanes}x{vectors}x{rows}", rows, lanes * vectors
    limit = SMALL_STRIDED if not is_unit else SMALL_HALF if size == 2 and dtype.kind == "f" else SMALL
    is_narrow = _is_narrow(sizes, dtype)
    if work <= limit or (is_unit and (sizes.rows <= FEW_ROWS or is_narrow)):
        if _is_triple(sizes, size):
            return "triple", sizes.rows, sizes.columns
        return _direct(sizes, dtype, form.lanes if is_unit else 1)
    return "packed", *_tile(sizes, dtype, form)


def _is_narrow(sizes: Sizes, dtype: Dtype) -> bool:
    """Whether ``direct`` serves results of few columns, however many rows."""
    row = sizes.columns * dtype.itemsize
    is_small = row <= NARROW_BYTES and row * sizes.depth <= NARROW_RIGHT
    return is_small and sizes.a[1] == dtype.itemsize and not p.rounds_once(dtype)


def _direct(sizes: Sizes, dtype: Dtype, most: int) -> tuple[str, int, int]:
    """``direct`` with vectors of at most ``most`` lanes."""
    fitting = [n for n in (most, most // 2, p.NARROW) if p.NARROW <= n <= min(most, sizes.columns)]
    lanes = fitting[0] if fitting else 1
    # Two parts of a number fill twice the registers.
    most = 4 if dtype.kind == "c" and sizes.rows == 1 else 8 if dtype.kind == "c" else 16
    forms = [(r, min(v, most // r)) for r, v in p.DIRECT_FORMS if (r == 1) == (sizes.rows == 1)]
    rows, vectors = next(((r, v) for r, v in reversed(forms) if v * lanes >= sizes.columns), forms[0])
    return f"direct{lanes}x{rows}x{vectors}", rows, vectors * lanes


def _tile(sizes: Sizes, dtype: Dtype, form: p.Registers) -> tuple[int, int]:
    """Rows and columns of a tile of ``packed``: equal ones, as tall as blocks may be, smaller where they are few. A
    tile's columns are copied part by part beside its rows, which are copied once; not where sums are rounded once."""
    downward = -(-sizes.rows // p.most_rows(dtype, form))
    across = -(-sizes.columns // p.most_columns(dtype, form)) if p.rounds_once(dtype) else 1
    work = sizes.batch * sizes.rows * sizes.columns * sizes.depth
    tiles = TILES_OF_A_THREAD * threads.default_count()
    while sizes.batch * downward * across < tiles and work >= 2 * LEAST_TILE * sizes.batch * downward * across:
        tall, wide = sizes.rows / downward, sizes.columns / across
        if max(tall, wide) <= form.columns:
            break
        downward, across = (downward + 1, across) if tall >= wide else (downward, across + 1)
    return _rounded_up(sizes.rows, downward, form.rows), _rounded_up(sizes.columns, across, form.columns)


def _rounded_up(count: int, parts: int, unit: int) -> int:
    return -(-count // (parts * unit)) * unit


def _is_triple(sizes: Sizes, size: int) -> bool:
    """Whether ``triple`` may read a little beyond each matrix but the last of a batch."""
    row, ((batch, _, step), *others) = 3 * size, sizes.levels
    return (
        sizes.columns == 3 and batch > 1 and not others and sizes.b == (row, size) and step >= sizes.depth * row > 0
    )  # fmt: skip


def _is_upright(sizes: Sizes, dtype: Dtype, lanes: int) -> bool:
    """Whether the matrix of a product with a vector, or with a few, stands on the right, where vectors go along its
    columns. If they cannot, one result to a chain is computed, with the matrix on the left."""
    size, few = dtype.itemsize, min(sizes.rows, sizes.columns)
    if few > MOST_LINES or max(sizes.rows, sizes.columns) < (2 if few == 1 else lanes):
        return True
    is_row = sizes.rows <= sizes.columns
    across, down, count = (*sizes.b[::-1], sizes.columns) if is_row else (*sizes.a, sizes.rows)
    is_right = across == size or _by_lines(down, count, dtype)
    return is_right == is_row if few == 1 else is_row or not is_right


def _by_lines(step: int, columns: int, dtype: Dtype) -> bool:
    """Whether ``lines`` serves rows by a matrix whose steps are so far apart."""
    return step == dtype.itemsize <= 8 and p.part_of(dtype) >= 4 and columns >= p.NARROW


def _seconds(sizes: Sizes, dtype: Dtype) -> float:
    """On one thread, roughly: what takes longer, arithmetic or memory."""
    operations = 2.0 * sizes.batch * sizes.rows * sizes.columns * sizes.depth
    moved = of_product(sizes, dtype.itemsize)
    bytes_moved = SECONDS_PER_BYTE * (moved.read + moved.written)
    return max(operations / RATES.get((dtype.kind, dtype.itemsize), 4e9), bytes_moved)


def _launch(binder: Binder, dtype: Dtype, sizes: Sizes, positions: Sequence[int], offsets: Sequence[int]) -> float:
    target = binder.kernels.target
    form = p.registers(dtype, target.vector_bits)
    is_turned = not _is_upright(sizes, dtype, form.lanes)
    c_row, c_column = sizes.columns * dtype.itemsize, dtype.itemsize
    if is_turned:  # the product of the transposes has the same elements in the same places
        sizes, c_row, c_column = sizes.turned, c_column, c_row
        positions, offsets = ((x[1], x[0], x[2]) for x in (positions, offsets))
    name, tall, wide = _choice(sizes, dtype, form)
    row_tiles, column_tiles = -(-sizes.rows // tall), -(-sizes.columns // wide)
    total = sizes.batch * row_tiles * column_tiles
    c_matrix = sizes.rows * sizes.columns * dtype.itemsize
    words = [
        0, 0, 0, 0, sizes.rows, sizes.columns, sizes.depth, *sizes.a, *sizes.b, c_row, c_matrix, row_tiles,
        column_tiles, tall, wide, c_column, len(sizes.levels), *itertools.chain(*sizes.levels),
    ]  # fmt: skip
    seconds = _seconds(sizes, dtype) + SECONDS_PER_TILE * total
    grain = max(1, min(total, round(GRAIN_SECONDS / (seconds / total))))
    block = binder.open_block()
    # One row of real results is the same either way.
    entry = Entry(dtype, name, is_turned and (dtype.kind == "c" or sizes.rows > 1))
    binder.kernels.products[entry] = None

    address = FunctionOf(ProductSource(entry, target), name)
    origin = binder.stage.launch(name, partial(of_product, sizes, dtype.itemsize))
    launch = block.add_launch(address, total, grain, words, origin)
    for place, position, offset in zip((p.A, p.B, p.C), positions, offsets, strict=True):
        block.add_patch(binder.patch(position), launch, place, offset)
    return seconds
