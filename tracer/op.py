"""What an op is: one record per op, with every column that a stage reads.

A row says how the op's result is typed (``infer``), what it computes (``reference``, on NumPy arrays), how it is
lowered (``form``), and what the transformations make of it (``jvp``, ``transpose``, ``batch``). No column has a
default: Python itself refuses a row that forgets one. A rule that cannot exist is ``Absent``, with the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np

from tenferro.tracer.program import ArrayType, Operand, Operation, Params
from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.tracer.bodies import Body
    from tenferro.tracer.derivation import Derivation
    from tenferro.tracer.dims import Extent

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


ControlKind = Literal["scan", "while", "cond"]


@dataclass(frozen=True, slots=True)
class Control:
    """Runs bodies (``tenferro.tracer.bodies``), which are parameters: several times, or one of them."""

    kind: ControlKind


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


@dataclass(frozen=True, slots=True)
class Host:
    """A Python function of the user's, which travels in ``params["call"]``: it is called at a seam, on the caller's
    thread. Its program is kept by no cache on disk, since a function has no name there."""

    ordered: bool  # has effects: keeps its place among its like


Form: TypeAlias = (
    Pointwise | Reduction | View | Indexed | Update | Contraction | Library | Control | Collective | Extension | Host
)


@dataclass(frozen=True, slots=True)
class Absent:
    """A rule that cannot exist; the reason ends the error of whoever asks for it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Constant:
    """A derivative that is 0 wherever there is one, as that of a step or of an index; no tangent passes through."""

    reason: str


Tangents: TypeAlias = Sequence[Operand | None]
"""One for each operand or result; None is 0."""

JvpRule: TypeAlias = Callable[["Derivation", Operation, Tangents], Tangents]
"""The tangents of the results, from those of the operands. What the rule emits is linear in tangents."""

TransposeRule: TypeAlias = Callable[["Derivation", Operation, Tangents, Sequence[bool]], Tangents]
"""The cotangents of the operands in which the op is linear (the booleans say which those are: the others hold values,
these hold none), from those of the results; None for the others."""

BatchRule: TypeAlias = Callable[["Derivation", Operation, Sequence[bool], "Extent"], Sequence[Operand]]
"""The results with a leading batch axis of the given size, from operands of which some (the booleans) have one."""


def bodies_in(params: Mapping[str, Any]) -> list[Body]:
    """The bodies among the parameters of a control operation."""
    values = (x for value in params.values() for x in (value if type(value) is tuple else (value,)))
    return [x for x in values if hasattr(x, "calls_host")]


@dataclass(frozen=True, slots=True, eq=False)
class Op:
    """One op. Equality is identity: there is one row per op, in ``tenferro.tracer.ops``."""

    name: str
    form: Form
    infer: InferRule
    reference: ReferenceRule  # (*arrays, **params with sizes evaluated) -> ndarray, or a tuple of them
    jvp: JvpRule | Constant | Absent
    transpose: TransposeRule | Absent
    batch: BatchRule | Absent

    def is_ordered(self, params: Mapping[str, Any]) -> bool:
        """Whether an operation with these parameters has effects: it is neither dropped nor shared, and keeps its place
        among its like. What runs bodies has the effects that they have."""
        form = self.form
        if isinstance(form, Extension | Host):
            return form.ordered
        return isinstance(form, Control | Library) and any(body.is_ordered for body in bodies_in(params))

    @property
    def is_silent(self) -> bool:
        """Whether it gives nothing that anybody reads: it is there for its effect alone."""
        return isinstance(self.form, Host) and isinstance(self.jvp, Constant)

    def calls_host(self, params: Mapping[str, Any]) -> bool:
        """Whether an operation with these parameters calls functions of the user's, itself or in its bodies."""
        form = self.form
        return isinstance(form, Host) or (
            isinstance(form, Control | Library) and any(body.calls_host for body in bodies_in(params))
        )

    def measures(self, params: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
        """(result, axis) of the sizes that are known only when it has run."""
        match self.form:
            case Library(runtime_extents=found):
                return found
            case Control(kind="while"):
                first = params["carry"]
                return tuple([(first + k, 0) for k in range(len(params["shapes"]))])
            case _:
                return ()

    def __repr__(self) -> str:
        return f"<op {self.name}>"
