"""From index maps and real strides to loops: what a region looks like on the arrays of one call.

In: a Region, the layout of every slot it touches, and the values of its sizes. Out: a ``Layout``, whose numbers fill a
kernel's parameters and whose ``variant`` says which kernel text serves it.

The space is cut in two groups of loops. The *row* group is what vectors run along: the row axes, in row-major order
(the reduction tree fixes that order), or for a region without reductions the innermost axis. The *outer* group is the
rest, in the space's order. Within a group neighbouring axes are merged where every access allows it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from tenferro.lowering.region import Access, Gather, Iota, Load, Region, Valid, ViewStep, Window
from tenferro.tracer.dims import Environment, evaluate, evaluate_shape
from tenferro.tracer.records import dataclass

StrideClass = Literal["uniform", "unit", "packed", "interleaved", "gapped", "masked", "windowed", "gathered", "tiled"]
"""Of an access along the row: one element for the whole row; neighbours in memory; anything else, which a block-wise
copy makes neighbours. *masked*: an address and a mask per lane (windows and index arrays in general); *windowed* and
*gathered*: their frequent forms, neighbours under a mask, and neighbours from one index for the whole row. *tiled*:
contiguous along the last outer loop instead, and transposed tile by tile. *interleaved* and *gapped*: a short row is
a record of neighbours, and records follow one another along the last outer loop, without and with gaps."""


@dataclass(frozen=True, slots=True)
class Strided:
    """Elements in memory: byte offset from the slot's first element, shape, byte strides."""

    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]


class NeedsCopyError(Exception):
    """A reshape has no strided form on this layout; ``steps`` views of the access come before it."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.steps = steps


def contiguous(shape: Sequence[int], itemsize: int) -> tuple[int, ...]:
    """The strides of a C-ordered array."""
    strides, step = [], itemsize
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def is_ordered(x: Strided, itemsize: int) -> bool:
    """Whether the elements lie one behind the other in C order."""
    pairs = zip(x.shape, x.strides, contiguous(x.shape, itemsize), strict=True)
    return all(n == 1 or step == expected for n, step, expected in pairs)


def common_stride(shape: Sequence[int], strides: Sequence[int]) -> int | None:
    """The bytes from each element to the next one in C order, where that is the same everywhere; else None."""
    found: int | None = None
    span = 0
    for n, step in reversed(list(zip(shape, strides, strict=True))):
        if n == 1:
            continue
        if found is None:
            found = step
        elif step != span:
            return None
        span = step * n
    return 0 if found is None else found


def apply_views(start: Strided, views: Sequence[ViewStep], env: Environment) -> Strided:
    """Follow a chain of views; raises NeedsCopyError at a reshape without a strided form."""
    current = start
    for number, step in enumerate(views):
        result = _apply_view(current, step, env)
        if result is None:
            raise NeedsCopyError(number)
        current = result
    return current


def _apply_view(x: Strided, step: ViewStep, env: Environment) -> Strided | None:
    p = step.params
    match step.kind:
        case "transpose":
            axes = p["axes"]
            return Strided(x.offset, tuple(x.shape[a] for a in axes), tuple(x.strides[a] for a in axes))
        case "slice":
            starts, sizes = evaluate_shape(p["starts"], env), evaluate_shape(p["sizes"], env)
            steps = evaluate_shape(p["steps"], env)
            offset = x.offset
            if 0 not in sizes:
                offset += sum(s * k for s, k in zip(starts, x.strides, strict=True))
            return Strided(offset, sizes, tuple(s * k for s, k in zip(steps, x.strides, strict=True)))
        case "broadcast_to":
            shape = evaluate_shape(p["shape"], env)
            strides = [0] * len(shape)
            for j, axis in enumerate(p["axes"]):
                strides[axis] = x.strides[j] if x.shape[j] != 1 else 0
            return Strided(x.offset, shape, tuple(strides))
        case "reshape":
            shape = evaluate_shape(p["shape"], env)
            found = reshape_strides(x.shape, x.strides, shape)
            return None if found is None else Strided(x.offset, shape, found)


def reshape_strides(shape: Sequence[int], strides: Sequence[int], target: Sequence[int]) -> tuple[int, ...] | None:
    """Strides of the same elements, in the same row-major order, under another shape; None where there are none."""
    if 0 in shape or 0 in target:
        return contiguous(target, 1)
    old = [(n, s) for n, s in zip(shape, strides, strict=True) if n != 1]
    result: list[int] = []
    position = 0
    group: list[tuple[int, int]] = []
    available = 1
    for n in target:
        if n == 1:
            result.append(0)
            continue
        while available % n or available == 1:
            if position == len(old):
                return None
            group.append(old[position])
            available *= old[position][0]
            position += 1
        if any(a[1] != b[0] * b[1] for a, b in zip(group, group[1:], strict=False)):
            return None
        available //= n
        result.append(group[-1][1] * available)
        if available == 1:
            group = []
    return tuple(result)


@dataclass(frozen=True, slots=True)
class Axis:
    """A loop: its size and which space axis it is (−1 when several were merged)."""

    size: int
    space_axis: int


AccessKey: TypeAlias = tuple[str, int]  # ("node", index of the Load or Gather) or ("store", index of the store)


@dataclass(frozen=True, slots=True)
class Bound:
    """One access on the loops: where its first element is and its byte strides along each loop."""

    slot: int
    offset: int
    outer: tuple[int, ...]
    row: tuple[int, ...]
    itemsize: int
    kind: StrideClass


@dataclass(frozen=True, slots=True)
class Variant:
    """What the text of a kernel depends on, beside the region itself."""

    outer_rank: int
    row_rank: int
    kinds: tuple[StrideClass, ...]
    loops: tuple[int, ...]  # which loop each axis-dependent node runs along, −1 where its axis has size 1
    schedule: Literal["row", "split", "tile", "column", "record"]
    short: int = 0  # the row length that a column or record kernel is made for, 0 for any


@dataclass(frozen=True, slots=True)
class Layout:
    outer: tuple[Axis, ...]
    row: tuple[Axis, ...]
    accesses: tuple[Bound, ...]
    keys: tuple[AccessKey, ...]
    axis_loops: Mapping[int, int]  # space axis → loop, for the axes that nodes name

    @property
    def outer_count(self) -> int:
        total = 1
        for axis in self.outer:
            total *= axis.size
        return total

    @property
    def row_length(self) -> int:
        total = 1
        for axis in self.row:
            total *= axis.size
        return total


def access_keys(region: Region) -> tuple[AccessKey, ...]:
    """Loads and gathers in node order, then stores: the order of a kernel's pointers."""
    nodes = [("node", k) for k, n in enumerate(region.nodes) if isinstance(n, Load | Gather)]
    return tuple(nodes + [("store", k) for k in range(len(region.stores))])


def named_axes(region: Region) -> frozenset[int]:
    """The space axes that nodes name: they keep a loop of their own."""
    axes: set[int] = set()
    for node in region.nodes:
        match node:
            case Load(windows=windows) | Valid(windows=windows):
                axes |= {w.axis for w in windows}
            case Iota(axis=axis):
                axes.add(axis)
            case Gather(axis=axis, index_rank=rank):
                axes |= set(range(axis, axis + rank))
            case _:
                pass
    return frozenset(axes)


def gather_strides(node: Gather, array: Strided, rank: int) -> tuple[int, ...]:
    """Byte strides of a gather along the space's axes (0 along those of the index)."""
    strides = [0] * rank
    others = [a for a in range(len(array.shape)) if a != node.axis]
    targets = [a for a in range(rank) if not node.axis <= a < node.axis + node.index_rank]
    for target, axis in zip(targets, others, strict=True):
        strides[target] = array.strides[axis] if array.shape[axis] != 1 else 0
    return tuple(strides)


def space_strides(x: Strided, windows: Sequence[Window], space: Sequence[int], env: Environment) -> Strided:
    """Strides along the space: windows move the origin (possibly outside the array) and scale the stride."""
    offset, strides = x.offset, list(x.strides)
    windowed = {w.axis for w in windows}
    for axis, n in enumerate(x.shape):
        if n == 1 and axis not in windowed:
            strides[axis] = 0
    for w in windows:
        offset += evaluate(w.offset, env) * strides[w.axis]
        strides[w.axis] *= w.step
    return Strided(offset, tuple(space), tuple(strides))


def resolve(access: Access, slots: Mapping[int, Strided], env: Environment) -> Strided:
    return apply_views(slots[access.slot], access.views, env)


def merge(
    axes: Sequence[int], sizes: Sequence[int], table: Sequence[Sequence[int]], keep: frozenset[int]
) -> list[list[int]]:
    """Groups of neighbouring axes that one loop can serve for every access; axes of size 1 are dropped."""
    groups: list[list[int]] = []
    for axis in axes:
        if sizes[axis] == 1 and axis not in keep:
            continue
        if groups and axis not in keep and groups[-1][-1] not in keep:
            last = groups[-1][-1]
            if all(s[last] == s[axis] * sizes[axis] for s in table):
                groups[-1].append(axis)
                continue
        groups.append([axis])
    return groups


SHORT_ROW = 64
"""Elements under which a row is joined with outer loops into a longer one: a vector takes up to 32."""


def _classify(strides: Sequence[int], sizes: Sequence[int], itemsize: int) -> StrideClass:
    if not any(strides):
        return "uniform"
    step = itemsize
    for stride, size in zip(reversed(strides), reversed(sizes), strict=True):
        if stride != step:
            return "packed"
        step *= size
    return "unit"


@dataclass(frozen=True, slots=True)
class _Found:
    """An access on the space. ``special``: a windowed load, or a gather along the ``index_axes`` of the space."""

    slot: int
    at: Strided
    special: Literal["", "window", "gather"] = ""
    is_complex: bool = False
    index_axes: frozenset[int] = frozenset()


def layout(
    region: Region, slots: Mapping[int, Strided], itemsizes: Mapping[int, int], env: Environment, *, joined: bool = True
) -> Layout:
    """The loops of a region on these slots. ``joined``: whether short rows are joined with outer loops. Raises
    NeedsCopyError where a view has no strides."""
    space = evaluate_shape(region.space, env)
    rank = len(space)
    found: list[_Found] = []
    for node in region.nodes:
        match node:
            case Load(access=access, windows=windows):
                at = space_strides(resolve(access, slots, env), windows, space, env)
                found.append(_Found(access.slot, at, "window" if windows else "", node.dtype.kind == "c"))
            case Gather(access=access):
                array = resolve(access, slots, env)
                at = Strided(array.offset, space, gather_strides(node, array, rank))
                axes = frozenset(range(node.axis, node.axis + node.index_rank))
                found.append(_Found(access.slot, at, "gather", node.dtype.kind == "c", axes))
            case _:
                pass
    outer_level = region.outer()
    for store in region.stores:
        target = apply_views(slots[store.slot], store.views, env)
        reduced = bool(region.row_axes) and outer_level[store.node]
        dropped = region.row_axes if reduced else ()
        found.append(_Found(store.slot, _store_strides(target, space, dropped, itemsizes[store.slot])))
    return _loops(region, space, found, itemsizes, SHORT_ROW if joined else 0)


def _store_strides(target: Strided, space: tuple[int, ...], dropped: Sequence[int], itemsize: int) -> Strided:
    """A store's strides along the space; an outer-level store stands still along the row axes."""
    kept = [a for a in range(len(space)) if a not in dropped]
    shape = tuple(space[a] for a in kept)
    strides = reshape_strides(target.shape, target.strides, shape)
    if strides is None:
        raise AssertionError("a store's target has the shape of its level")
    full = [0] * len(space)
    for a, s in zip(kept, strides, strict=True):
        full[a] = s
    return Strided(target.offset, space, tuple(full))


def _loops(
    region: Region, space: tuple[int, ...], found: Sequence[_Found], itemsizes: Mapping[int, int], least: int
) -> Layout:
    """Rows of a region without reductions have at least ``least`` elements, where there are so many."""
    table = [x.at.strides for x in found]
    keep = named_axes(region)
    free = [a for a in range(len(space)) if a not in region.row_axes]
    outer_groups = merge(free, space, table, keep)
    row_groups = merge(region.row_axes, space, table, keep)
    if not region.row_axes:
        row_groups = [outer_groups.pop()] if outer_groups else []
        while outer_groups and _size(space, [a for g in row_groups for a in g]) < least:
            row_groups.insert(0, outer_groups.pop())
    groups = outer_groups + row_groups
    loops = [Axis(_size(space, g), g[0] if len(g) == 1 else -1) for g in groups]
    split = len(outer_groups)
    bound = []
    row_space = {a for g in row_groups for a in g}
    for x in found:
        strides = tuple(x.at.strides[g[-1]] for g in groups)
        size = itemsizes[x.slot]
        kind = _classify(strides[split:], [loop.size for loop in loops[split:]], size)
        if x.special:
            neighbours = kind == "unit" and not x.is_complex and not x.index_axes & row_space
            kind = "masked" if not neighbours else "windowed" if x.special == "window" else "gathered"
        bound.append(Bound(x.slot, x.at.offset, strides[:split], strides[split:], size, kind))
    axis_loops = {g[0]: k for k, g in enumerate(groups) if len(g) == 1}
    row = tuple(loops[split:]) or (Axis(1, -1),)
    if not row_groups:
        bound = [Bound(b.slot, b.offset, b.outer, (0,), b.itemsize, b.kind) for b in bound]
    return Layout(tuple(loops[:split]), row, tuple(bound), access_keys(region), axis_loops)


def _size(space: Sequence[int], group: Sequence[int]) -> int:
    size = 1
    for axis in group:
        size *= space[axis]
    return size
