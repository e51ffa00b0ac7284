"""Where a CUDA kernel finds its numbers: the words of ``tenferro.engines.cpu.params``, then divisors as multipliers.

In: a Region and a CudaVariant. Out: ``CudaParams``; emission asks it for positions, launch fills the words. All words
are int64. Pointers are device addresses, which the caller adds at ``("p", access)``, ``PARTS``, ``CELLS``, ``LATCH``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from tenferro.engines.cpu.layout import Layout, Strided, Variant
from tenferro.engines.cpu.params import (
    BLOCK as ROWS,
    BLOCKS as ITEMS,
    CELLS_POINTER as CELLS,
    LATCH,
    LENGTH,
    PART_POINTER as PARTS,
    ParamMap,
)
from tenferro.lowering.region import Region
from tenferro.tracer.dims import Environment
from tenferro.tracer.records import dataclass

Schedule: TypeAlias = Literal["all", "thread", "warp", "block", "column", "split", "split column"]
"""Who computes what. *all*: a region without reductions, a thread per element or vector. *thread*: a thread per row.
*warp*: a team of threads of one warp per row, one per lane of the reduction tree. *block*: all teams of a block on one
row, chunk by chunk. *column*: like *warp*, but a team's threads lie in different warps, so that a warp runs along
neighbouring rows. *split* and *split column*: such teams take chunks of rows, and a second kernel closes the rows."""


@dataclass(frozen=True, slots=True)
class CudaVariant:
    """What a text depends on beside the region. ``vector``: elements that a thread of *all* takes with one access of
    memory, 0 for one by one. ``wide``: indices have 64 bits."""

    loops: Variant
    schedule: Schedule
    vector: int = 0
    wide: bool = False


class CudaParams:
    """Positions of words. ``("m", j)`` and ``("s", j)`` are multiplier and shift for the size of loop j (outer loops
    first), with j = −1 for a row's length."""

    def __init__(self, region: Region, variant: CudaVariant) -> None:
        self.map = ParamMap(region, variant.loops)
        self.loops = variant.loops.outer_rank + variant.loops.row_rank

    def __getitem__(self, name: tuple[object, ...]) -> int:
        match name:
            case ("m" | "s" as which, int(j)):
                return self.map.words + 2 * (j + 1) + (which == "s")
            case _:
                return self.map[name]

    @property
    def words(self) -> int:
        return self.map.words + 2 * (self.loops + 1)

    def fill(self, region: Region, layout: Layout, slots: Mapping[int, Strided], env: Environment) -> list[int]:
        """All words but pointers and the schedule's own; ``region`` as in ``ParamMap.fill``."""
        words = self.map.fill(region, layout, slots, env) + [0] * (2 * (self.loops + 1))
        for j, size in enumerate([layout.row_length, *(axis.size for axis in (*layout.outer, *layout.row))]):
            words[self["m", j - 1]], words[self["s", j - 1]] = divisor(size)
        words[ROWS] = layout.outer_count
        return words


def divisor(d: int) -> tuple[int, int]:
    """Multiplier and shift for ``tn_divide``; zeros for sizes that it does not serve: 0, and from 2**31 on."""
    if not 0 < d < 1 << 31:
        return 0, 0
    shift = (d - 1).bit_length()
    return ((1 << 32) * ((1 << shift) - d)) // d + 1, shift


__all__ = ["CELLS", "ITEMS", "LATCH", "LENGTH", "PARTS", "ROWS", "CudaParams", "CudaVariant", "Schedule", "divisor"]
