"""From a region on real layouts to launches: pure functions, without a GPU and without CuPy.

``bind_region(region, slots, itemsizes, alignment, env)`` gives a ``Bound`` (None where there is nothing to compute):

* ``key.text(region)`` is the kernel's text. Equal keys have equal texts, so that a table of kernels is keyed by them.
* ``launches`` run one after the other on one stream. Each names an entry of the text, a grid, a block, bytes of dynamic
  shared memory, and the parameter words, whose pointers are still 0.
* ``pointers``: for every (word, slot, offset) the caller writes ``address of the slot's first element + offset``.
* scratch memory, written before it is read: ``parts`` and ``cells`` words of 8 bytes, whose addresses go to the words
  ``PARTS`` and ``CELLS`` (0 words: no address needed).
* the address of the latch, a 64-bit word of all ones before the run, goes to the word ``LATCH``. What kernels find is
  left there by atomicMin, in the form of ``tenferro.engines.cpu.body``.

None of the choices made here changes bits: every schedule follows the one reduction tree.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import replace

from tenferro.engines.cpu import layout as lay
from tenferro.engines.cpu.kernel import likeness
from tenferro.engines.cpu.launch import variant_of
from tenferro.engines.cpu.layout import Bound as Access, Layout, Strided
from tenferro.engines.cpu.phases import chunk_length, schedule as passes_of
from tenferro.engines.cuda.emitter import kernel_text
from tenferro.engines.cuda.params import CELLS, ITEMS, LATCH, PARTS, CudaParams, CudaVariant, Schedule
from tenferro.engines.cuda.prelude import KernelText
from tenferro.engines.cuda.rows import cell_words, chunk_of, part_words
from tenferro.engines.cuda.teams import MAX_TEAMS, SHARED_WORD, team_size
from tenferro.lowering.region import Gather, Load, Reduce, Region
from tenferro.lowering.tree import has_identity
from tenferro.tracer.dims import Environment
from tenferro.tracer.records import dataclass

VECTOR_BYTES = 16
MAX_VECTOR = 8
SHORT_ROW = 16
"""Elements up to which a thread takes a whole row."""
BLOCK_CHUNKS = 4
"""Chunks of a row from which on several teams share it, where rows alone do not fill the device."""
NARROW = 1 << 31


@dataclass(frozen=True, slots=True)
class Device:
    """What choices depend on. ``processors``: multiprocessors; ``threads``: of a block, a multiple of 32 up to 256."""

    processors: int = 128
    threads: int = 256

    @property
    def wanted(self) -> int:
        """Threads that keep it busy."""
        return 1024 * self.processors


@dataclass(frozen=True, slots=True)
class KernelKey:
    """What the text of a kernel depends on."""

    likeness: Hashable
    variant: CudaVariant
    axis_loops: tuple[tuple[int, int], ...]

    def text(self, region: Region) -> KernelText:
        """The kernel of any region with this key."""
        return kernel_text(region, self.variant, dict(self.axis_loops))


@dataclass(frozen=True, slots=True)
class Launch:
    entry: str
    grid: int
    block: tuple[int, int]
    shared: int
    words: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Bound:
    """See the file's first lines."""

    key: KernelKey
    launches: tuple[Launch, ...]
    pointers: tuple[tuple[int, int, int], ...]
    parts: int = 0
    cells: int = 0


class EmptyRowsError(Exception):
    """The largest or smallest of no elements; ``operation`` is that of the reduction."""

    def __init__(self, operation: int) -> None:
        super().__init__(operation)
        self.operation = operation


def bind_region(
    region: Region, slots: Mapping[int, Strided], itemsizes: Mapping[int, int], alignment: Mapping[int, int],
    env: Environment, device: Device | None = None, schedule: Schedule | None = None,
) -> Bound | None:  # fmt: skip
    """``slots``: where each slot's elements are, from its first one on; ``alignment``: bytes that the address of that
    first element is a multiple of. ``schedule`` overrides the choice, for a region with reductions.

    Raises NeedsCopyError as ``tenferro.engines.cpu.layout`` does, and EmptyRowsError."""
    device = device or Device()
    found = lay.layout(region, slots, itemsizes, env)
    if found.outer_count == 0 or (found.row_length == 0 and not region.row_axes):
        return None
    if found.row_length == 0:
        _refuse_empty(region)
    found = replace(found, accesses=tuple(replace(a, kind=_kind(a, found)) for a in found.accesses))
    vector = 0
    if not region.row_axes:
        chosen: Schedule = "all"
        vector = _vector(region, found, alignment)
    else:
        chosen = schedule or _schedule(region, found, device)
    wide = found.outer_count * max(1, found.row_length) * 2 + (1 << 22) >= NARROW
    variant = CudaVariant(variant_of(region, found, "row"), chosen, vector, wide)
    params = CudaParams(region, variant)
    words = params.fill(region, found, slots, env)
    key = KernelKey(likeness(region), variant, tuple(sorted(found.axis_loops.items())))
    pointers = tuple((params["p", a], access.slot, access.offset) for a, access in enumerate(found.accesses))
    return _launches(region, found, device, Bound(key, (), pointers), words)


def _refuse_empty(region: Region) -> None:
    for node in region.nodes:
        if isinstance(node, Reduce) and not has_identity(node.kind):
            raise EmptyRowsError(node.operation)


def _kind(access: Access, found: Layout) -> lay.StrideClass:
    """How an address is made: the same all along the row, neighbours, or from strides."""
    strides, step = access.row, access.itemsize
    if not any(strides):
        return "uniform"
    for stride, axis in zip(reversed(strides), reversed(found.row), strict=True):
        if stride != step:
            return "packed"
        step *= axis.size
    return "unit"


# Without reductions.


def _vector(region: Region, found: Layout, alignment: Mapping[int, int]) -> int:
    """Elements of a thread where the contiguous accesses of a region can move as vectors, else 0."""
    moved = [a for a, key in zip(found.accesses, found.keys, strict=True) if _moves(region, key, a)]
    if not moved or any(a.kind != "unit" for a in found.accesses[len(found.accesses) - len(region.stores) :]):
        return 0
    vector = min(MAX_VECTOR, max(1, VECTOR_BYTES // max(a.itemsize for a in moved)))
    is_line = not found.outer and len(found.row) == 1
    if not is_line and found.row[-1].size % vector:
        return 0
    for a in moved:
        size = a.itemsize * vector
        if a.offset % size or alignment[a.slot] % size or any(stride % size for stride in a.outer):
            return 0
    return vector


def _moves(region: Region, key: tuple[str, int], access: Access) -> bool:
    node = region.nodes[key[1]] if key[0] == "node" else None
    special = isinstance(node, Gather) or (isinstance(node, Load) and bool(node.windows))
    return access.kind == "unit" and not special


# With reductions.


def _schedule(region: Region, found: Layout, device: Device) -> Schedule:
    rows, length = found.outer_count, found.row_length
    chunk = min(chunk_length(region, k) for k, n in enumerate(region.nodes) if isinstance(n, Reduce))
    team = team_size(region, "warp")
    if length <= SHORT_ROW:
        return "thread"
    fills = rows * team >= device.wanted
    split = length > 2 * chunk and not fills or length > chunk * chunk
    if _runs_across(found):
        return "split column" if split else "column"
    if split and (rows * MAX_TEAMS * team < device.wanted or length > chunk * chunk):
        return "split"
    return "block" if length > BLOCK_CHUNKS * chunk and not fills else "warp"


def _runs_across(found: Layout) -> bool:
    """Whether neighbours in memory belong to different rows, for more bytes than they lie along them."""
    if not found.outer:
        return False
    along = sum(a.itemsize for a in found.accesses if any(a.row) and a.row[-1] == a.itemsize)
    across = sum(a.itemsize for a in found.accesses if any(a.row) and a.outer[-1] == a.itemsize)
    return across > along


def _launches(region: Region, found: Layout, device: Device, bound: Bound, words: list[int]) -> Bound:
    rows, schedule = found.outer_count, bound.key.variant.schedule
    if schedule == "all":
        words[ITEMS] = rows * found.row_length
        vector = max(1, bound.key.variant.vector)
        return replace(bound, launches=(_launch("all", -(-words[ITEMS] // vector), device.threads, words),))
    team = team_size(region, schedule)
    if schedule.startswith("split"):
        return _split(region, found, device, bound, words, team)
    if schedule == "block":
        teams = min(MAX_TEAMS, max(1, device.threads * 4 // team))
        slots = max(len(one.reduces) for one in passes_of(region).passes)
        shared = 2 * slots * SHARED_WORD * MAX_TEAMS
        launch = Launch("rows", rows, (teams * team, 1), shared, tuple(words))
    elif schedule == "column":
        columns = min(32, device.threads)
        launch = Launch("rows", -(-rows // columns), (columns, team), _column_shared(columns, team), tuple(words))
    else:
        launch = _launch("rows", rows * team, device.threads, words)
    return replace(bound, launches=(launch,))


def _launch(entry: str, threads: int, block: int, words: list[int]) -> Launch:
    return Launch(entry, -(-threads // block), (block, 1), 0, tuple(words))


def _column_shared(columns: int, team: int) -> int:
    return 2 * SHARED_WORD * columns * team


def _split(region: Region, found: Layout, device: Device, bound: Bound, words: list[int], team: int) -> Bound:
    """For every pass a launch over chunks, and one over rows that closes it."""
    rows, launches, parts = found.outer_count, [], 0
    for p, one in enumerate(passes_of(region).passes):
        chunks = max(1, -(-found.row_length // chunk_of(region, one)))
        parts = max(parts, rows * chunks * part_words(region, one))
        if bound.key.variant.schedule == "split column":
            columns = min(32, device.threads)
            words[ITEMS] = -(-rows // columns)
            shared = _column_shared(columns, team)
            launches.append(Launch(f"sweep{p}", words[ITEMS] * chunks, (columns, team), shared, tuple(words)))
        else:
            words[ITEMS] = chunks
            launches.append(_launch(f"sweep{p}", rows * chunks * team, device.threads, words))
        if one.reduces:
            launches.append(_launch(f"close{p}", rows * team, min(device.threads, 128), words))
    return replace(bound, launches=tuple(launches), parts=parts, cells=rows * cell_words(region))


__all__ = ["CELLS", "LATCH", "PARTS", "Bound", "Device", "EmptyRowsError", "KernelKey", "Launch", "bind_region"]
