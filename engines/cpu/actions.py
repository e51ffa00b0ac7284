"""What a run of a bound plan does, one thing after the other, over *positions*: arrays of the run, the inputs first."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from tenferro.engines.cpu.native import Block
from tenferro.lowering.exec_program import Instruction, Source
from tenferro.tracer.records import dataclass


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


@dataclass(frozen=True, slots=True)
class Call:
    """An instruction by its row's NumPy function; ``dynamic`` when the result's shape is known only then."""

    instruction: Instruction
    sources: tuple[int | Source, ...]
    outputs: tuple[int, ...]
    dynamic: bool
    step: int


@dataclass(frozen=True, slots=True)
class Drop:
    """The arrays at ``positions`` are dead."""

    positions: tuple[int, ...]


Action: TypeAlias = ViewOf | Enter | Call | Drop
