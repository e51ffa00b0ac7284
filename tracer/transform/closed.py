"""Linear maps closed: a tape in its trace in, a program as a parameter and what it reads out; and back, in any trace.

``tn.vjp`` and ``tn.linearize`` hand out functions that outlive the trace in which they were made. What their tapes read
there, arrays and sizes, becomes values that the function holds (its *residuals*).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tenferro.tracer.bodies import Body, Closing, inline
from tenferro.tracer.derivation import Derivation
from tenferro.tracer.dims import DimExpr, Extent, Leaf as Symbol, substitute
from tenferro.tracer.errors import DerivativeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import ArrayType, DimScalar, Literal, Operand, Value
from tenferro.tracer.records import dataclass
from tenferro.tracer.tape import Tangent
from tenferro.tracer.trace import Trace
from tenferro.tracer.transform.gradients import Linear
from tenferro.tracer.transform.inputs import Leaf, Opened
from tenferro.tracer.transform.linear import has_tangent, on_tape, replay, sized
from tenferro.tracer.transform.recording import Recording, taken_out
from tenferro.tracer.tree import TreeDef


@dataclass(frozen=True, slots=True)
class Form:
    """A pytree of numeric leaves without their values: ``kinds`` are ``(weak, scalar, path)``."""

    treedef: TreeDef
    statics: tuple[Any, ...]
    places: tuple[int, ...]
    kinds: tuple[tuple[bool, bool, str], ...]

    @classmethod
    def of(cls, tree: Opened) -> Form:
        """The form of a pytree."""
        mine = set(tree.places)
        statics = tuple([None if k in mine else x for k, x in enumerate(tree.values)])
        return cls(tree.treedef, statics, tree.places, tuple([(x.weak, x.scalar, x.path) for x in tree.leaves]))

    def opened(self, types: Sequence[ArrayType]) -> Opened:
        """A pytree of this form with leaves of these types, which hold nothing."""
        found = [Leaf(Value(-1, t), *kind) for t, kind in zip(types, self.kinds, strict=True)]
        return Opened(self.treedef, self.statics, self.places, tuple(found))


@dataclass(frozen=True, slots=True)
class Closed:
    """A linear map as a program: its inputs are the leaves of the arguments, then residuals (values, then sizes)."""

    body: Body
    arguments: Form
    results: Form

    def opened(self, trace: Trace, residuals: Sequence[Operand]) -> Linear:
        """The map on a tape of a trace."""
        inputs = self.body.program.inputs
        count = len(self.arguments.places)
        sizes = _Sizes(trace, self.body, residuals)
        here = [
            x if declared.kind == "int" else sizes.unified(declared.value.type, x)
            for declared, x in zip(inputs[count:], residuals, strict=True)
        ]
        types = [sizes.type(i.value.type) for i in inputs[:count]]
        with on_tape(trace) as tape:
            mine = tuple([tape.input(t) if has_tangent(t.dtype) else None for t in types])
            nothing = [Literal(0, t.dtype) for t in types]
            given: list[Operand] = [z if t is None else t for t, z in zip(mine, nothing, strict=True)]
            outputs = tuple(inline(trace, self.body, [*given, *here]))
        results = self.results.opened([sizes.type(t) for t in self.body.outputs])
        values = tuple([Value(-1, t) for t in types])
        inputs_, outputs_ = tuple([(t,) for t in mine]), tuple([(y,) for y in outputs])
        name = self.body.program.name
        return Linear(trace, name, self.arguments.opened(types), values, results, tape, inputs_, outputs_)


class _Sizes:
    """Sizes of a body as those of a trace."""

    def __init__(self, trace: Trace, body: Body, residuals: Sequence[Operand]) -> None:
        self._trace = trace
        declared = body.program.inputs[len(body.program.inputs) - len(residuals) :]
        self._found: dict[Symbol, Extent] = {
            Symbol("int", i.value.id): _extent(x)
            for i, x in zip(declared, residuals, strict=True) if i.kind == "int"
        }  # fmt: skip

    def _here(self, extent: Extent) -> Extent:
        return substitute(extent, lambda s: self._found[s]) if isinstance(extent, DimExpr) else extent

    def type(self, declared: ArrayType) -> ArrayType:
        return ArrayType(declared.dtype, tuple([self._here(n) for n in declared.shape]))

    def unified(self, declared: ArrayType, x: Operand) -> Operand:
        """A residual has the sizes that it had: the trace, which may have them under other names, is told."""
        like = self.type(declared)
        for n, m in zip(like.shape, x.type.shape, strict=True):
            self._trace.guard("==", n, m)
        return sized(self._trace, x, like)


def _extent(x: Operand) -> Extent:
    if isinstance(x, DimScalar):
        return x.expr
    assert isinstance(x, Literal)
    return int(x.value.real)


def close(linear: Linear, name: str) -> tuple[Closed, tuple[Operand, ...]]:
    """The map as a program, and its residuals in the trace where it was made."""
    trace, b = linear.trace, Derivation(linear.trace)
    if trace.spread is not None:
        raise DerivativeError(
            f"{name}: its function leaves a function under shard_map, whose positions have derivatives of their own; "
            f"call it there{at(user_line())}"
        )
    inputs, ys = [x for (x,) in linear.inputs], [y for (y,) in linear.outputs]
    arguments = [_plain(leaf.operand.type) for leaf in linear.arguments.leaves]
    with taken_out(trace, name) as recording:
        given = [trace.placeholder(t) for t in arguments]
        tangents: dict[int, Operand] = {t.id: x for t, x in zip(inputs, given, strict=True) if t is not None}
        replay(trace, linear.tape, tangents)
        found = [tangents.get(y.id) if type(y) is Tangent else y for y in ys]
        outputs = [
            b.zeros(_plain(leaf.operand.type)) if y is None else y
            for y, leaf in zip(found, linear.results.leaves, strict=True)
        ]
    recording.operations = _needed(recording, outputs)
    closing = Closing(trace)
    closing.add(name, given, recording, outputs)
    (body,) = closing.bodies()
    return Closed(body, Form.of(linear.arguments), Form.of(linear.results)), closing.operands()


def _needed(recording: Recording, outputs: Sequence[Operand]) -> list[Any]:
    """The operations that results depend on: what others read is no residual."""
    if any(o.op.measures(o.params) for o in recording.operations):
        return recording.operations  # run-time sizes are known by the numbers of operations
    needed = {y.id for y in outputs if isinstance(y, Value)}
    kept = []
    for operation in reversed(recording.operations):
        if any(v.id in needed for v in operation.outputs):
            needed.update(x.id for x in operation.inputs if isinstance(x, Value))
            kept.append(operation)
    return kept[::-1]


def _plain(type_: ArrayType) -> ArrayType:
    return ArrayType(type_.dtype, type_.shape)
