"""Where a kernel finds its numbers: the parameter words of a region under a variant, by name.

In: a Region and a Variant. Out: a ``ParamMap``; emission asks it for positions, binding fills the words from a Layout.
All words are int64: sizes and indices in elements, strides in bytes, pointers as the array's data address.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tenferro.engines.cpu.layout import Layout, Strided, Variant, access_keys, resolve
from tenferro.lowering.region import Gather, Iota, Load, Region, Uniform, Valid, Window
from tenferro.tracer.dims import Environment, evaluate
from tenferro.tracer.program import DimScalar

LATCH, LENGTH, BLOCK, BLOCKS, PART_POINTER, CELLS_POINTER, TILE = range(7)
"""Fixed words: the latch's relative word offset (filled when a block is sealed); elements of a row; elements of a work
item; work items of a row; partial results; outer values (split schedule); columns of a tile, or, of rows and records,
lines of what is gathered that are asked for ahead."""

FIXED = 7


class ParamMap:
    """Names to word positions. ``("o", j)`` and ``("r", j)`` are loop sizes, ``("p", a)`` pointers, ``("po", a, j)``
    and ``("pr", a, j)`` strides, ``("w", node, k, …)`` windows, ``("i", node)`` iota origins, ``("g", node, …)``
    gathers, ``("d", node)`` sizes used as numbers."""

    def __init__(self, region: Region, variant: Variant) -> None:
        self.positions: dict[tuple[object, ...], int] = {}
        self._region = region
        self._add_loops(variant)
        for k, node in enumerate(region.nodes):
            match node:
                case Load(windows=windows) | Valid(windows=windows):
                    for w in range(len(windows)):
                        self._add("w", k, w, "offset")
                        self._add("w", k, w, "step")
                        self._add("w", k, w, "size")
                case Iota():
                    self._add("i", k, "offset")
                    self._add("i", k, "step")
                case Gather():
                    self._add("g", k, "stride")
                    self._add("g", k, "extent")
                case Uniform(operand=DimScalar()):
                    self._add("d", k)
                case _:
                    pass

    def _add(self, *name: object) -> None:
        self.positions[name] = FIXED + len(self.positions)

    def _add_loops(self, variant: Variant) -> None:
        for j in range(variant.outer_rank):
            self._add("o", j)
        for j in range(variant.row_rank):
            self._add("r", j)
        for a in range(len(access_keys(self._region))):
            self._add("p", a)
            for j in range(variant.outer_rank):
                self._add("po", a, j)
            for j in range(variant.row_rank):
                self._add("pr", a, j)

    def __getitem__(self, name: tuple[object, ...]) -> int:
        return self.positions[name]

    @property
    def words(self) -> int:
        return FIXED + len(self.positions)

    def fill(self, region: Region, layout: Layout, slots: Mapping[int, Strided], env: Environment) -> list[int]:
        """All words but pointers and the schedule's own; those are 0. ``region`` may differ from the kernel's in how
        its accesses reach their arrays."""
        words = [0] * self.words
        words[LENGTH] = layout.row_length
        for j, loop in enumerate(layout.outer):
            words[self["o", j]] = loop.size
        for j, loop in enumerate(layout.row):
            words[self["r", j]] = loop.size
        for a, bound in enumerate(layout.accesses):
            for j, stride in enumerate(bound.outer):
                words[self["po", a, j]] = stride
            for j, stride in enumerate(bound.row):
                words[self["pr", a, j]] = stride
        for k, node in enumerate(region.nodes):
            match node:
                case Load(windows=windows) | Valid(windows=windows):
                    self._fill_windows(words, k, windows, env)
                case Iota(offset=offset, step=step):
                    words[self["i", k, "offset"]] = evaluate(offset, env)
                    words[self["i", k, "step"]] = step
                case Gather(access=access, axis=axis):
                    array = resolve(access, slots, env)
                    words[self["g", k, "stride"]] = array.strides[axis]
                    words[self["g", k, "extent"]] = array.shape[axis]
                case Uniform(operand=DimScalar(expr=expr)):
                    words[self["d", k]] = evaluate(expr, env)
                case _:
                    pass
        return words

    def _fill_windows(self, words: list[int], node: int, windows: Sequence[Window], env: Environment) -> None:
        for w, window in enumerate(windows):
            words[self["w", node, w, "offset"]] = evaluate(window.offset, env)
            words[self["w", node, w, "step"]] = window.step
            words[self["w", node, w, "size"]] = evaluate(window.size, env)
