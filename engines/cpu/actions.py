"""What a run of a bound plan does, one thing after the other, over *positions*: arrays of the run, the inputs first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tenferro.engines.cpu import threads
from tenferro.engines.cpu.compiling import compile_all
from tenferro.engines.cpu.kernel import FAST
from tenferro.engines.cpu.native import Block
from tenferro.lowering.exec_program import Instruction, Source
from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.engines.cpu.binding import Tail


@dataclass(frozen=True, slots=True)
class ViewOf:
    """A view of the array at ``source``."""

    position: int
    source: int
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]
    dtype: np.dtype[Any]


@dataclass(slots=True)
class Enter:
    """Run a native block on the arrays at ``positions``; it makes those at ``made``. ``steps`` of the plan have kernels
    in it."""

    block: Block
    positions: tuple[int, ...]
    made: tuple[int, ...]
    steps: tuple[int, ...]
    address: int = 0  # once the block is sealed


def seal(blocks: Sequence[Enter], level: int, longest: float) -> None:
    """Seal the blocks at a code generation level; what they run is compiled side by side first."""
    compile_all([x for b in blocks for x in b.block.sources(level, longest)], threads.limit())
    for b in blocks:
        b.address = b.block.seal(level, longest)


@dataclass(frozen=True, slots=True)
class Call:
    """An instruction by its row's NumPy function; ``dynamic`` when the result's shape is known only then."""

    instruction: Instruction
    sources: tuple[int | Source, ...]
    outputs: tuple[int, ...]
    dynamic: bool
    step: int


@dataclass(frozen=True, slots=True)
class Select:
    """The rows of an array where a mask of so many ``rows`` is True, in order; ``row``: the sizes of one; ``stride``:
    the bytes from one to the next. The mask, and each row, are in order. ``tag``: of the memory."""

    instruction: Instruction
    source: int
    mask: int
    output: int
    rows: int
    row: tuple[int, ...]
    stride: int
    dtype: np.dtype[Any]
    tag: int
    step: int


@dataclass(frozen=True, slots=True)
class Drop:
    """The arrays at ``positions`` are dead."""

    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Recheck:
    """Indices pick elements of which there are none: no kernel looks at them, the reference engine does."""


Action: TypeAlias = ViewOf | Enter | Call | Select | Drop | Recheck

Path: TypeAlias = tuple[tuple[int, ...], ...]
"""The extents that a run measured, in order: those of each tail."""
KEPT_PATHS = 4


@dataclass
class BoundPlan:
    """A plan on the layouts of one call."""

    actions: list[Action]
    positions: int  # arrays of a run, inputs included
    outputs: tuple[int | Source, ...]
    tail: Tail | None = None  # what follows a call with a run-time extent
    level: int = FAST
    seconds_left: float = 0.0  # of running until level 2 pays; 0 when there is nothing to wait for
    seconds: float = 0.0  # that the last run before then took
    estimate: float = 0.0  # seconds of a run on one thread
    lent: frozenset[int] = frozenset()  # donated inputs that outputs lie in
    refused: Mapping[int, str] = field(default_factory=dict)  # the other donated inputs, and why
    only: Enter | None = None  # the block of a plan that is nothing but it
    paths: list[Path] = field(default_factory=list)  # that runs have taken lately
    picks: tuple[int, ...] = ()  # which of that block's arrays are the outputs; −1 − input for one that lies there

    def __post_init__(self) -> None:
        if len(self.actions) != 1 or not isinstance(self.actions[0], Enter) or self.tail is not None:
            return
        made = self.actions[0].made
        if self.outputs and all(o in made or o in self.lent for o in self.outputs):
            self.only = self.actions[0]
            found = [o for o in self.outputs if isinstance(o, int)]
            self.picks = tuple([-1 - o if o in self.lent else 1 + made.index(o) for o in found])

    def note(self, path: Path) -> None:
        """A run has taken this path."""
        if path not in self.paths:
            self.paths = [*self.paths[1 - KEPT_PATHS :], path]
