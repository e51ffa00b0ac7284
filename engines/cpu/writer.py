"""What row and column kernels have in common: a region under a variant, and what emission asks of it.

In: a Region, a Variant, which space axes have loops of their own. Out (in the subclasses): the text of an LLVM module.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import Any

import numpy as np

from tenferro.engines.cpu import elements
from tenferro.engines.cpu.layout import Variant, access_keys
from tenferro.engines.cpu.params import ParamMap
from tenferro.engines.cpu.phases import schedule
from tenferro.engines.cpu.vector_builder import ModuleText
from tenferro.lowering.region import Apply, Gather, Load, Node, Reduce, Region
from tenferro.lowering.tree import in_tree_order, lanes as tree_lanes
from tenferro.tracer.op import Pointwise
from tenferro.tracer.records import dataclass

COMPACT_BYTES = 32
"""Bytes of a vector of a compact text."""
INLINE_LIMIT = 160
"""Native operations up to which elementary functions are written in place rather than called."""


def vector_lanes(region: Region) -> int:
    """Elements of a vector: what the tree asks for, else two AVX-512 registers of the widest component."""
    reduced = [(n.kind, region.nodes[n.arg].dtype) for n in region.nodes if isinstance(n, Reduce)]
    trees = [tree_lanes(dtype) for kind, dtype in reduced if in_tree_order(kind, dtype)]
    if trees:
        return max(trees)
    if not region.space:
        return 1  # scalar code
    return 16 if _widest(region) == 8 else 32


def _widest(region: Region) -> int:
    """Bytes of the widest component."""
    return max(elements.component(n.dtype).itemsize for n in region.nodes)


def is_small(region: Region, times: int = 1) -> bool:
    """Whether elementary functions may be written in place, so many times, without making compilation long."""
    total = sum(n.op.form.cost for n in region.nodes if isinstance(n, Apply) and isinstance(n.op.form, Pointwise))
    return total * times <= INLINE_LIMIT


def needs_mask(nodes: Iterable[Node]) -> bool:
    """Whether lanes past the end must be told apart: something reads, records or accumulates per lane."""
    for node in nodes:
        match node:
            case Reduce() | Gather():
                return True
            case Load(windows=windows) if windows:
                return True
            case Apply() if is_checked(node):
                return True
            case _:
                pass
    return False


def is_checked(node: Node) -> bool:
    """Whether a node may report an element."""
    return isinstance(node, Apply) and isinstance(node.op.form, Pointwise) and node.op.form.check is not None


@dataclass
class KernelWriter(ABC):
    """``outline``: elementary functions are calls. ``compact``: the text is as short as may be, for level 0: it is
    compiled at once, and what is made of it runs for a short time."""

    region: Region
    variant: Variant
    axis_loops: Mapping[int, int]
    outline: bool
    module: ModuleText = field(default_factory=ModuleText)
    compact: bool = False

    def __post_init__(self) -> None:
        self.params = ParamMap(self.region, self.variant)
        self.phases = schedule(self.region)
        self.lanes = vector_lanes(self.region)
        self.masked = needs_mask(self.region.nodes)
        self.keys = access_keys(self.region)
        self.outer_level = self.region.outer() if self.region.row_axes else (False,) * len(self.region.nodes)

    def narrow(self) -> None:
        """In a compact text, vectors of one register of x86-64-v3: LLVM takes wider ones apart, which costs it more
        than a loop does."""
        if self.compact:
            self.lanes = min(self.lanes, COMPACT_BYTES // max(_widest(self.region), 4))

    @abstractmethod
    def text(self) -> str:
        """The module."""

    def itemsize(self, access: int) -> int:
        """Bytes of an element of an access."""
        kind, k = self.keys[access]
        node = self.region.nodes[k if kind == "node" else self.region.stores[k].node]
        return int(node.dtype.itemsize)

    def reduced(self, r: int) -> np.dtype[Any]:
        """The dtype that reduction r reduces."""
        return self.region.nodes[self._reduce(r).arg].dtype

    def kind(self, r: int) -> str:
        """The kind of reduction r."""
        return self._reduce(r).kind

    def _reduce(self, r: int) -> Reduce:
        node = self.region.nodes[r]
        assert isinstance(node, Reduce)
        return node
