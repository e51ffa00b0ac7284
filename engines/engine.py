"""What an engine is: one place that compiles plans and runs them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np

from tenferro.engines.events import Driver, ImmediateDriver
from tenferro.lowering.checks import called
from tenferro.lowering.exec_program import Instruction
from tenferro.lowering.plan import Plan
from tenferro.tracer.dims import Leaf
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.lines import at
from tenferro.tracer.op import Extension
from tenferro.tracer.program import ArrayType

Capability = Literal["elementwise", "reduction", "indexing", "dot_general", "layout", "library"]
CAPABILITIES: frozenset[Capability] = frozenset(
    ("elementwise", "reduction", "indexing", "dot_general", "layout", "library")
)
Executor: TypeAlias = Callable[..., Any]
"""An extension family's operation on one engine: ``(*arrays, **params) → array, or a tuple of them``."""
NO_EXECUTORS: Mapping[str, Executor] = {}


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

    @property
    def compile_seconds(self) -> float:
        """Time spent making machine code so far."""
        return 0.0


def executed(
    instruction: Instruction, operands: Sequence[Any], params: Mapping[str, Any], executors: Mapping[str, Executor]
) -> tuple[Any, ...]:
    """An instruction by its family's executor where there is one, else by its row's NumPy function. LoweringError where
    the results are not as many as declared."""
    form = instruction.op.form
    if isinstance(form, Extension) and form.family in executors:
        result = executors[form.family](*operands, **params)
    else:
        result = called(instruction, operands, params)
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(instruction.types):
        raise LoweringError(
            f"{instruction.op.name}: {len(results)} results were returned; {len(instruction.types)} are "
            f"declared{at(instruction.line)}"
        )
    return results


class Engine(ABC):
    """One place to run: ``cpu:0``, ``reference:0``, ``cuda:0``. It is an event domain of its own."""

    id: str
    hardware: str = "cpu"
    storage_classes: tuple[str, ...] = ("host",)
    """Kinds of memory that it reaches; the first is where results lie."""
    capabilities: frozenset[Capability] = CAPABILITIES
    broken: str = ""
    """Why it runs nothing any more; empty while it is whole."""

    @abstractmethod
    def compile(self, plan: Plan, executors: Mapping[str, Executor] = NO_EXECUTORS) -> Executable:
        """Make a plan executable here; cheap, since kernels are compiled when first needed. ``executors``: those of the
        extension families in the plan, by family."""

    @property
    def is_executable(self) -> bool:
        """False for an engine that only prepares, such as one for a machine elsewhere."""
        return True

    def driver(self) -> Driver:
        """How launches happen when several engines take part in a run."""
        return ImmediateDriver()

    def accepts(self, kind: ArrayType) -> bool:
        """Whether a caller's array of this type can be used here as it is."""
        return "host" in self.storage_classes

    def holds(self, value: Any) -> bool:
        """Whether a value lies in this engine's memory."""
        return isinstance(value, np.ndarray) and "host" in self.storage_classes

    def __repr__(self) -> str:
        return f"<engine {self.id}{', broken' if self.broken else ''}>"
