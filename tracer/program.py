"""The SemanticProgram: what a traced function means, frozen, typed, in A-normal form.

Every operand is a ``Value`` (result of an earlier operation or an input), a ``Literal`` (a Python constant) or a
``DimScalar`` (a size used as a number). Operands of a pointwise operation have the result's shape or rank 0:
broadcasts and conversions are operations of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal as OneOf, TypeAlias

import numpy as np

from tenferro.tracer.dims import DimExpr, Extent, shape_text
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.tracer.op import Op


@dataclass(frozen=True, slots=True)
class ArrayType:
    """dtype and shape. ``weak`` marks what stands for a Python scalar and gives way in promotion."""

    dtype: np.dtype[Any]
    shape: tuple[Extent, ...]
    weak: bool = False

    @property
    def rank(self) -> int:
        return len(self.shape)

    def __str__(self) -> str:
        return f"{self.dtype.name}{'~' if self.weak else ''}{shape_text(self.shape)}"


@dataclass(frozen=True, slots=True)
class Value:
    """A name in the program: ``%id``. Ids are dense: inputs first, then operation results in order."""

    id: int
    type: ArrayType

    def __str__(self) -> str:
        return f"%{self.id}"


_SCALAR_TYPES: dict[np.dtype[Any], ArrayType] = {}


def scalar_type(dtype: np.dtype[Any]) -> ArrayType:
    """Rank 0 of the dtype, the same object each time."""
    known = _SCALAR_TYPES.get(dtype)
    if known is None:
        known = _SCALAR_TYPES[dtype] = ArrayType(dtype, ())
    return known


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant of rank 0. Equality is by bits, so that −0.0 and 0.0 differ and NaN equals itself."""

    value: bool | int | float | complex
    dtype: np.dtype[Any]

    @property
    def type(self) -> ArrayType:
        return scalar_type(self.dtype)

    def bits(self) -> bytes:
        return np.asarray(self.value, self.dtype).tobytes()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Literal) and self.dtype == other.dtype and self.bits() == other.bits()

    def __hash__(self) -> int:
        return hash((self.dtype.str, self.bits()))

    def __str__(self) -> str:
        return f"{self.value!r}:{self.dtype.name}"


@dataclass(frozen=True, slots=True)
class DimScalar:
    """A size used as a number of rank 0."""

    expr: DimExpr
    dtype: np.dtype[Any]

    @property
    def type(self) -> ArrayType:
        return scalar_type(self.dtype)

    def __str__(self) -> str:
        return f"[{self.expr}]:{self.dtype.name}"


Operand: TypeAlias = Value | Literal | DimScalar


class Params(Mapping[str, Any]):
    """The static parameters of an operation: an immutable, hashable mapping in sorted order."""

    __slots__ = ("_items",)

    def __init__(self, **items: Hashable) -> None:
        self._items = tuple(sorted(items.items()))

    def __getitem__(self, key: str) -> Any:
        for name, value in self._items:
            if name == key:
                return value
        raise KeyError(key)

    def __iter__(self) -> Iterator[str]:
        return (name for name, _ in self._items)

    def __len__(self) -> int:
        return len(self._items)

    def __hash__(self) -> int:
        return hash(self._items)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Params) and _is_same(self._items, other._items)

    def __str__(self) -> str:
        return ", ".join(f"{k}={_param_text(v)}" for k, v in self._items)


def _is_same(a: Any, b: Any) -> bool:
    """Equal, and the same in a program: 1, 1.0 and True are three values, and so are 0.0 and −0.0."""
    if type(a) is not type(b):
        return False
    if type(a) is tuple:
        return len(a) == len(b) and all(map(_is_same, a, b))
    return repr(a) == repr(b) if type(a) is float or type(a) is complex else bool(a == b)


def _param_text(value: object) -> str:
    if isinstance(value, np.dtype):
        return str(value.name)
    if isinstance(value, tuple):
        return "(" + ", ".join(_param_text(v) for v in value) + ("," if len(value) == 1 else "") + ")"
    return str(value) if isinstance(value, DimExpr) else repr(value)


@dataclass(frozen=True, slots=True)
class Operation:
    """``outputs = op[params](inputs)``, with the line of the user's code that asked for it. ``place``: the engine that
    it was put on (``tn.on``); empty where any will do."""

    op: Op
    inputs: tuple[Operand, ...]
    params: Params
    outputs: tuple[Value, ...]
    line: SourceLine | None = None
    place: str = ""

    def __str__(self) -> str:
        outs = ", ".join(f"{v}: {v.type}" for v in self.outputs)
        params = f"[{self.params}]" if len(self.params) else ""
        on = f" on {self.place}" if self.place else ""
        return f"{outs} = {self.op.name}{params}({', '.join(str(i) for i in self.inputs)}){on}"


InputKind = OneOf["argument", "captured", "constant", "int"]


@dataclass(frozen=True, slots=True)
class ProgramInput:
    """An input and where it comes from. ``int`` inputs have rank 0 and are also leaves of Dims.

    ``constant`` inputs are arrays that the trace itself made (known cells); they are bound once, by the trace."""

    value: Value
    kind: InputKind
    name: str


@dataclass(frozen=True, slots=True)
class ShapeGuard:
    """What the trace assumed of sizes: ``(lhs relation rhs) == holds``, at a line. ``asked``: the function that needed
    the number, for texts."""

    relation: OneOf["==", "<", "<="]
    lhs: Extent
    rhs: Extent
    holds: bool
    line: SourceLine | None = None
    asked: str = field(default="", compare=False)

    def __str__(self) -> str:
        relation = self.relation if self.holds else {"==": "!=", "<": ">=", "<=": ">"}[self.relation]
        return f"{self.lhs} {relation} {self.rhs}"


@dataclass(frozen=True, repr=False)
class SemanticProgram:
    """A traced function. ``outputs`` may repeat a value, and may be inputs, literals or sizes.

    ``aliases`` fixes, before any pass, which memory each output shares: −1−i is the memory of input i (the output is
    that input or a view of it); k ≥ 0 numbers the fresh arrays, and outputs with the same k are views of one array.
    Lowering copies wherever a pass has made two groups share memory."""

    name: str
    inputs: tuple[ProgramInput, ...]
    operations: tuple[Operation, ...]
    outputs: tuple[Operand, ...]
    aliases: tuple[int, ...]
    guards: tuple[ShapeGuard, ...] = ()

    @cached_property
    def fingerprint(self) -> str:
        """Of the meaning: names, lines and captured values are left out."""
        text = "\n".join(
            [str(i.value.type) + i.kind for i in self.inputs]
            + [str(o) for o in self.operations]
            + [str(o) for o in self.outputs]
            + [str(self.aliases)]
            + [str(g) for g in self.guards]
        )
        return hashlib.sha256(text.encode()).hexdigest()

    def __str__(self) -> str:
        return self.text()

    def text(self, below: Callable[[Params], Sequence[str]] = lambda _: ()) -> str:
        """A line for each operation, and those that ``below`` gives for its parameters, indented."""
        lines = [f"program {self.name}"]
        lines += [f"  in   {i.value}: {i.value.type}  # {i.kind} {i.name}" for i in self.inputs]
        lines += [f"  if   {g}" for g in self.guards]
        for operation in self.operations:
            where = f"  # {operation.line}" if operation.line else ""
            lines.append(f"  {operation}{where}")
            lines += [f"    {line}" for line in below(operation.params)]
        lines.append("  out  " + (", ".join(str(o) for o in self.outputs) or "no array"))
        return "\n".join(lines)

    def __repr__(self) -> str:  # a prompt shows it: short, str() has it all
        return (
            f"<program {self.name}: inputs {len(self.inputs)}, operations {len(self.operations)}, outputs "
            f"{len(self.outputs)}, guards {len(self.guards)}; print() shows them>"
        )


def _same_line_free(a: Operation, b: Operation) -> bool:
    return (
        a.op is b.op and a.inputs == b.inputs and a.params == b.params and a.outputs == b.outputs and a.place == b.place
    )


def same_meaning(a: SemanticProgram, b: SemanticProgram) -> bool:
    """Exact equality of meaning; the fingerprint only prefilters."""
    return (
        [(i.value, i.kind) for i in a.inputs] == [(i.value, i.kind) for i in b.inputs]
        and len(a.operations) == len(b.operations)
        and all(_same_line_free(x, y) for x, y in zip(a.operations, b.operations, strict=True))
        and a.outputs == b.outputs
        and a.aliases == b.aliases
        and [str(g) for g in a.guards] == [str(g) for g in b.guards]
    )
