"""What an op is: one record per op, with every column that a stage reads.

A row says how the op's result is typed (``infer``), what it computes (``reference``, on NumPy arrays) and how it is
lowered (``form``). No column has a default: Python itself refuses a row that forgets one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np

from tenferro.tracer.program import ArrayType, Params

InferRule: TypeAlias = Callable[[Sequence[ArrayType], Params], tuple[ArrayType, ...]]
ReferenceRule: TypeAlias = Callable[..., Any]
ScalarRule: TypeAlias = Callable[..., Any]

ReductionKind = Literal["sum", "product", "max", "min", "argmax", "argmin", "moments"]
ViewKind = Literal["reshape", "transpose", "broadcast_to", "slice"]
IndexKind = Literal["pad", "concatenate", "iota", "gather"]
Check: TypeAlias = Literal["zero_divisor", "negative_exponent", "unmet"] | None


@dataclass(frozen=True, slots=True)
class Pointwise:
    """Element by element. ``scalar(b, *xs, **params)`` writes the op in native scalar operations on a builder
    (``tenferro.tracer.scalar.builder``); ``cost`` is its rough number of native operations, for fusion."""

    scalar: ScalarRule
    cost: int
    check: Check  # what a lane that reaches a result is checked for

    def is_checked(self, dtype: np.dtype[Any]) -> bool:
        """Whether a result of the dtype is: floats are divided by 0 and raised to any power unasked."""
        return self.check is not None and (self.check == "unmet" or dtype.kind in "iu")


@dataclass(frozen=True, slots=True)
class Reduction:
    """Over ``params["axes"]``, along the fixed tree of ``tenferro.lowering.tree``."""

    kind: ReductionKind


@dataclass(frozen=True, slots=True)
class View:
    """The same elements under another index map that is affine (or a reshape): no copy where memory allows."""

    kind: ViewKind


@dataclass(frozen=True, slots=True)
class Indexed:
    """The elements of the operands under an index map with a window or an index array; fuses as masked loads."""

    kind: IndexKind


@dataclass(frozen=True, slots=True)
class Update:
    """A copy of operand 0 in which a strided box is replaced by operand 1; in place where nobody else reads it."""


@dataclass(frozen=True, slots=True)
class Contraction:
    """A batched matrix product (operands at least rank 2, batch axes leading)."""


@dataclass(frozen=True, slots=True)
class Library:
    """A NumPy call at a seam. ``runtime_extents``: output axes whose size is known only when it has run."""

    runtime_extents: tuple[tuple[int, int], ...]  # (output, axis)


CollectiveKind = Literal["all_reduce", "all_gather", "reduce_scatter", "broadcast", "permute"]


@dataclass(frozen=True, slots=True)
class Collective:
    """Operand k lies on engine ``params["places"][k]``, and so does result k: the engines meet. The runtime makes a
    node of its own of it; ``reference`` computes all results from all operands."""

    kind: CollectiveKind


@dataclass(frozen=True, slots=True)
class Extension:
    """An op of a family that the runtime was given (``tenferro.runtime.extensions``), by the family's name. It runs as
    the executor that its module registered for the engine; ``reference`` serves engines of NumPy."""

    family: str
    ordered: bool  # has effects: keeps its place among its like


Form: TypeAlias = Pointwise | Reduction | View | Indexed | Update | Contraction | Library | Collective | Extension


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One op. Equality is identity: there is one row per op, in ``tenferro.tracer.ops``."""

    name: str
    form: Form
    infer: InferRule
    reference: ReferenceRule  # (*arrays, **params with sizes evaluated) -> ndarray, or a tuple of them

    @property
    def is_ordered(self) -> bool:
        """Whether it has effects: it is neither dropped nor shared, and keeps its place among its like."""
        return isinstance(self.form, Extension) and self.form.ordered

    def __repr__(self) -> str:
        return f"<op {self.name}>"
