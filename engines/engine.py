"""What an engine is: one place that compiles plans and runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenferro.lowering.plan import Plan
from tenferro.tracer.dims import Leaf


@dataclass(slots=True)
class RunResult:
    """Outputs in program order, and the run-time extents that the run measured.

    An output that is a view of an input shares that input's memory; every other one is fresh, C-ordered and writeable.
    Sizes and literals among the outputs come back as rank-0 arrays."""

    outputs: list[np.ndarray[Any, Any]]
    runtime: dict[Leaf, int] = field(default_factory=dict)


class Executable(ABC):
    """A compiled plan. Thread-safe; holds no array of a run."""

    @abstractmethod
    def run(self, inputs: Sequence[np.ndarray[Any, Any] | int]) -> RunResult:
        """Run on arrays (exact ``ndarray``, native byte order, aligned) and ints, one per program input, in order.

        Raises BoundsError, DivisionError (or warns, per ``np.errstate``) and MemoryLimitError with the user's line."""

    @abstractmethod
    def kernel_texts(self) -> dict[str, dict[str, str]]:
        """Per region name, the texts by stage, as far as they exist: ``"llvm"``, ``"asm"``, ``"cuda"``."""

    @property
    @abstractmethod
    def kernels(self) -> int:
        """Compiled kernels so far, layout variants included."""

    @property
    @abstractmethod
    def kernel_bytes(self) -> int:
        """Bytes of machine code of them."""


class Engine(ABC):
    """One place to run: ``cpu:0``, ``reference:0``, ``cuda:0``."""

    id: str
    broken: bool = False

    @abstractmethod
    def compile(self, plan: Plan) -> Executable:
        """Make a plan executable here; cheap, since kernels are compiled when first needed."""
