"""In which passes over a row a region's nodes are computed.

In: a Region. Out: ``Phases``: pass p computes the row-level nodes that the reductions of depth p + 1 need; the last
pass computes what is stored at row level. Between passes, at the outer level, come the nodes that read reductions.

An expensive node that a later pass needs again is kept in the row of an output of its own dtype, where there is one
that only the last pass writes: softmax keeps ``exp(x − max)`` in the row that it will divide.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from tenferro.lowering.region import Apply, Gather, Load, Node, Reduce, Region, Store, arguments as arguments
from tenferro.lowering.tree import chunk, in_tree_order
from tenferro.tracer.op import Pointwise
from tenferro.tracer.records import dataclass

DIVISION = 14
"""Native operations in whose time a vector is divided, or its square root taken."""
DIVIDING = frozenset({"divide", "tangent_quotient", "reciprocal", "sqrt", "rsqrt"})
WORTH_KEEPING = 12
"""Native operations from which on a node is read back rather than computed again (a load from the first-level cache
costs about as much as four operations; below this the store does not pay)."""


@dataclass(frozen=True, slots=True)
class Pass:
    """One sweep over the row: ``nodes`` in order; ``reduces`` it feeds; ``stores`` it writes; node → store that keeps
    it (``saves``), node → store that it is read back from (``loads``)."""

    nodes: tuple[int, ...]
    reduces: tuple[int, ...]
    stores: tuple[int, ...]
    saves: dict[int, int]
    loads: dict[int, int]
    outer: tuple[int, ...]  # outer-level nodes to compute after the sweep (they need its reductions), in order


@dataclass(frozen=True, slots=True)
class Phases:
    prologue: tuple[int, ...]  # outer-level nodes that need no reduction, computed before the first sweep
    passes: tuple[Pass, ...]
    outer_stores: tuple[int, ...]


def cost(node: Node) -> int:
    match node:
        case Apply(op=op) if isinstance(op.form, Pointwise):
            return op.form.cost
        case Gather():
            return 8
        case _:
            return 1


def _time(node: Node) -> int:
    """Native operations in whose time a node is computed."""
    return cost(node) + (DIVISION if isinstance(node, Apply) and node.op.name in DIVIDING else 0)


def schedule(region: Region) -> Phases:
    """The passes of a region; a region without reductions has one, and everything in it."""
    outer = region.outer() if region.row_axes else (False,) * len(region.nodes)
    depth = _depths(region)
    row_stores = [k for k, s in enumerate(region.stores) if not outer[s.node]]
    outer_stores = tuple(k for k in range(len(region.stores)) if k not in row_stores)
    groups = _reduce_groups(region, depth)
    roots = [{a for r in group for a in arguments(region.nodes[r])} for group in groups]
    if row_stores:
        groups.append(())
        roots.append({region.stores[k].node for k in row_stores})
    needed = [_closure(region, r, outer) for r in roots]
    kept = _kept_nodes(region, needed, row_stores, outer)
    kept = {n: place for n, place in kept.items() if _is_intact(region, roots, groups, outer, n, *place)}
    passes = []
    for p, group in enumerate(groups):
        earlier = {n: s for n, (first, s) in kept.items() if first < p and n in needed[p]}
        nodes = _closure(region, roots[p] - set(earlier), outer, stop=frozenset(earlier)) | set(earlier)
        ends_depth = bool(group) and (
            p + 1 == len(groups) or not groups[p + 1] or depth[groups[p + 1][0]] > depth[group[0]]
        )
        passes.append(
            Pass(
                nodes=tuple(sorted(nodes)),
                reduces=group,
                stores=() if group else tuple(row_stores),
                saves={n: s for n, (first, s) in kept.items() if first == p},
                loads=earlier,
                outer=_outer_after(region, group, depth, outer, ends_depth),
            )
        )
    prologue = tuple(k for k in range(len(region.nodes)) if outer[k] and depth[k] == 0)
    return Phases(prologue, tuple(passes), outer_stores)


def _reduce_groups(region: Region, depth: list[int]) -> list[tuple[int, ...]]:
    """Reductions that one sweep can serve: of one depth, and with chunks of one length."""
    groups: dict[tuple[int, int], list[int]] = {}
    for k, node in enumerate(region.nodes):
        if isinstance(node, Reduce):
            groups.setdefault((depth[k], chunk_length(region, k)), []).append(k)
    return [tuple(groups[key]) for key in sorted(groups)]


def chunk_length(region: Region, k: int) -> int:
    """Elements of a chunk of reduction k; exact reductions take the longer one."""
    node = region.nodes[k]
    if not isinstance(node, Reduce):
        raise TypeError(f"v{k} is no reduction")
    reduced = region.nodes[node.arg].dtype
    if in_tree_order(node.kind, reduced):
        return chunk(reduced)
    return chunk(np.dtype(np.float32))


def _outer_after(
    region: Region, group: tuple[int, ...], depth: list[int], outer: tuple[bool, ...], ends_depth: bool
) -> tuple[int, ...]:
    """The reductions themselves, and after the last sweep of a depth everything else that they make possible."""
    if not group:
        return ()
    level = depth[group[0]]
    rest = {
        k
        for k in range(len(region.nodes))
        if outer[k] and depth[k] == level and not isinstance(region.nodes[k], Reduce)
    }
    return tuple(sorted(set(group) | (rest if ends_depth else set())))


def _depths(region: Region) -> list[int]:
    depth: list[int] = []
    for node in region.nodes:
        below = max((depth[a] for a in arguments(node)), default=0)
        depth.append(below + 1 if isinstance(node, Reduce) else below)
    return depth


def _closure(
    region: Region, roots: Iterable[int], outer: tuple[bool, ...], stop: frozenset[int] = frozenset()
) -> set[int]:
    """Row-level nodes reachable from the roots; outer-level nodes and those in ``stop`` end the walk."""
    found: set[int] = set()
    stack = [r for r in roots if not outer[r]]
    while stack:
        k = stack.pop()
        if k in found:
            continue
        found.add(k)
        stack += [a for a in arguments(region.nodes[k]) if not outer[a] and a not in stop and a not in found]
    return found


def _is_intact(
    region: Region, roots: Sequence[set[int]], groups: Sequence[tuple[int, ...]], outer: tuple[bool, ...],
    node: int, first: int, store: int,
) -> bool:  # fmt: skip
    """Whether pass ``first`` may keep a node where the store writes: what lies there meanwhile is read no more."""
    over = region.stores[store].over
    if over is None:
        return True
    reads = {k for k, n in enumerate(region.nodes) if isinstance(n, Load) and n.access.slot == over}
    twice = ("moments", "argmax", "argmin")
    sweeps_twice = any(isinstance(n := region.nodes[r], Reduce) and n.kind in twice for r in groups[first])
    if sweeps_twice and reads & _closure(region, roots[first], outer):
        return False
    later = (_closure(region, r - {node}, outer, stop=frozenset((node,))) for r in roots[first + 1 :])
    return not any(reads & nodes for nodes in later)


def _kept_nodes(
    region: Region, needed: list[set[int]], row_stores: list[int], outer: tuple[bool, ...]
) -> dict[int, tuple[int, int]]:
    """Node → (pass that computes it, store that keeps it). The node whose later passes it spares the most work gets the
    store."""
    last = len(needed) - 1
    free: list[Store] = [region.stores[k] for k in row_stores if not region.stores[k].views]
    candidates = []
    for k in range(len(region.nodes)):
        users = [p for p in range(last + 1) if k in needed[p]]
        if len(users) < 2 or outer[k]:
            continue
        total = sum(_time(region.nodes[n]) for n in _closure(region, [k], outer))
        if total >= WORTH_KEEPING:
            candidates.append((total * (len(users) - 1), k, users[0]))
    kept: dict[int, tuple[int, int]] = {}
    for _, k, first in sorted(candidates, reverse=True):
        match = next((s for s in free if region.nodes[k].dtype == region.nodes[s.node].dtype), None)
        if match is None or first == last:
            continue
        free.remove(match)
        kept[k] = (first, region.stores.index(match))
    return kept
