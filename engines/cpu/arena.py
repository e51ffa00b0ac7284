"""The memory of one native block: what its kernels write, and when, goes in; arrays and offsets come out.

A block makes all of its arrays when it is entered. What is read after the block is an array of its own; temporaries lie
in one array, the *arena*, or where memory is free for as long as they live: in an array of the block that is written
only later, or in one of the run that is dead already.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import field
from itertools import accumulate
from typing import Any

import numpy as np

from tenferro.tracer.records import dataclass

ALIGNMENT = 64
"""Bytes; what the pool gives is aligned so, too."""
FEW = 64
"""Temporaries up to which more than one way is tried: each takes a millisecond or two then."""
NEVER = 1 << 62
ARENA = -1
"""Stands for the arena where a position is asked for."""


@dataclass(slots=True)
class Made:
    """An array that kernels of a block write in step ``first`` and read in step ``last`` for the last time; NEVER
    while something after the block may read it."""

    position: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    tag: int  # of the user's line
    first: int
    last: int = NEVER

    @property
    def size(self) -> int:
        return math.prod(self.shape) * self.dtype.itemsize


@dataclass(frozen=True, slots=True)
class Layout:
    """``lasting``: arrays of their own. ``places``: position of a temporary → the position it lies in, or ``ARENA``,
    and the offset there. ``arena``: the bytes of it, −1 for none; ``tag``: of its largest temporary."""

    lasting: tuple[Made, ...]
    places: dict[int, tuple[int, int]]
    arena: int
    tag: int


@dataclass(slots=True)
class _Bin:
    """Temporaries of one size that lie in one place, one after the other."""

    size: int
    members: list[Made]

    def meets(self, spans: Sequence[tuple[int, int]]) -> bool:
        """Whether a member lives during one of these steps; both are in order of time."""
        k = 0
        for first, last in spans:
            while k < len(self.members) and self.members[k].last < first:
                k += 1
            if k == len(self.members):
                return False
            if self.members[k].first <= last:
                return True
        return False


@dataclass(slots=True)
class _Host:
    """Memory to lie in. ``busy``: offset, bytes and steps of what does already, by offset."""

    position: int
    size: int
    busy: list[tuple[int, int, list[tuple[int, int]]]] = field(default_factory=list)

    def fit(self, bin_: _Bin) -> int | None:
        """The lowest offset at which there is room."""
        offset = 0
        for start, size, spans in self.busy:
            if start >= offset + bin_.size:
                break
            if start + size > offset and bin_.meets(spans):
                offset = _rounded(start + size)
        return offset if offset + bin_.size <= self.size else None

    def put(self, offset: int, bin_: _Bin) -> None:
        self.busy.append((offset, bin_.size, [(m.first, m.last) for m in bin_.members]))
        self.busy.sort(key=lambda entry: entry[0])


def lay_out(made: Sequence[Made], dead: Sequence[tuple[int, int, int]]) -> Layout:
    """``made`` in order of their first steps. ``dead``: position, bytes and last step of arrays from before the block
    that die in it.

    Equal sizes share as few places as there are alive at a time, and the places are laid out from the largest down.
    Where that takes more than is alive at any time, few temporaries are laid out one by one as well, and the smallest
    arena is taken. Each lies at the lowest offset that is free in its time."""
    lasting = tuple([m for m in made if m.last == NEVER])
    temporaries = [m for m in made if m.last != NEVER]
    best = _placed(sorted(_bins(temporaries), key=lambda b: -b.size), lasting, dead)
    if len(temporaries) <= FEW and max(best.arena, 0) + sum(m.size for m in lasting) > most_alive(made):
        alone = [_Bin(m.size, [m]) for m in temporaries]
        for order in (sorted(alone, key=lambda b: -b.size), alone):
            best = min(best, _placed(order, lasting, dead), key=lambda found: found.arena)
    return best


def _placed(bins: Sequence[_Bin], lasting: tuple[Made, ...], dead: Sequence[tuple[int, int, int]]) -> Layout:
    """The bins, one after the other, each in the smallest host that has room for it."""
    hosts = [_Host(m.position, m.size, [(0, m.size, [(m.first, NEVER)])]) for m in lasting]
    hosts += [_Host(position, size, [(0, size, [(-1, last)])]) for position, size, last in dead]
    hosts.sort(key=lambda h: h.size)
    arena = _Host(ARENA, NEVER)
    places: dict[int, tuple[int, int]] = {}
    inside: list[Made] = []
    for bin_ in bins:
        for host in (*hosts, arena):
            offset = host.fit(bin_)
            if offset is not None:
                host.put(offset, bin_)
                places.update((m.position, (host.position, offset)) for m in bin_.members)
                inside += bin_.members if host is arena else []
                break
    size = max((offset + n for offset, n, _ in arena.busy), default=-1)
    return Layout(lasting, places, size, max(inside, key=lambda m: m.size).tag if inside else 0)


def most_alive(made: Sequence[Made]) -> int:
    """The most bytes that are alive at one time."""
    changes = sorted([(m.first, 1, m.size) for m in made] + [(m.last + 1, 0, -m.size) for m in made])
    return max(accumulate((size for _, _, size in changes), initial=0))


class _Open:
    """For each size the heap of (last step, number of the bin). Numbers that remember how they were computed are
    compared one by one, and note it; a hash would ask for their values."""

    def __init__(self, temporaries: Sequence[Made]) -> None:
        self._heaps: dict[int, list[tuple[int, int]]] = defaultdict(list)
        self._listed: list[tuple[int, list[tuple[int, int]]]] | None = None
        if any(type(m.size) is not int for m in temporaries):
            self._listed = []

    def of(self, size: int) -> list[tuple[int, int]]:
        if self._listed is None:
            return self._heaps[size]
        for known, heap in self._listed:
            if known == size:
                return heap
        self._listed.append((size, []))
        return self._listed[-1][1]


def _bins(temporaries: Sequence[Made]) -> list[_Bin]:
    found: list[_Bin] = []
    open_ = _Open(temporaries)
    for made in temporaries:
        free = open_.of(made.size)
        if free and free[0][0] < made.first:
            number = heapq.heapreplace(free, (made.last, free[0][1]))[1]
            found[number].members.append(made)
        else:
            heapq.heappush(free, (made.last, len(found)))
            found.append(_Bin(made.size, [made]))
    return found


def _rounded(size: int) -> int:
    return -(-size // ALIGNMENT) * ALIGNMENT
