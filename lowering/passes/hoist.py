"""Move in front of a loop what each of its turns would compute alike.

That is what costs much (products, reductions, pointwise operations of many steps), from operands that no turn changes,
where its result is as large as one of them or as what a turn would write out; and the transposes of matrices by which a
turn multiplies a few rows, which are written out once: a turn then reads the matrix along its rows. What may raise
stays where it is, since a loop may have no turn, and so does what is a result of the body.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenferro.lowering.passes.dead import drop_dead
from tenferro.lowering.passes.rewrite import Rewriter, users
from tenferro.tracer import build
from tenferro.tracer.bodies import Body, given
from tenferro.tracer.dims import DimExpr, Extent, mapped, substitute
from tenferro.tracer.op import Contraction, Control, Pointwise, Reduction, View
from tenferro.tracer.ops import layout, pointwise
from tenferro.tracer.program import (
    DimScalar,
    Operand,
    Operation,
    Params,
    ProgramInput,
    SemanticProgram,
    Value,
)
from tenferro.tracer.records import dataclass, replace
from tenferro.tracer.transform.marks import barrier

MUCH = 12
"""Native operations from which on an element is read back rather than computed again."""
FEW_ROWS = 8
"""Rows of a product that reads its right operand once, or nearly."""


def hoist_invariants(program: SemanticProgram) -> SemanticProgram:
    if not any(_is_loop(o) for o in program.operations):
        return program
    rewriter = Rewriter(program)
    for operation in program.operations:
        found = _invariants(operation) if _is_loop(operation) else ()
        if found:
            _hoist(rewriter, operation, found)
        else:
            rewriter.copy(operation)
    return rewriter.finish()


def _is_loop(operation: Operation) -> bool:
    return isinstance(operation.op.form, Control) and operation.op.form.kind != "cond"


def _invariants(loop: Operation) -> Sequence[Value]:
    """Values of a loop's body to compute in front of it."""
    body = loop.params["body"].program
    if any(o.op.measures(o.params) for o in body.operations):  # sizes are known by the numbers of operations
        return ()
    varying = loop.params["carry"] + loop.params.get("walked", 0)
    alike = {i.value.id: _Alike(frozenset({i.value.type.shape}), 0) for i in body.inputs[varying:]}
    for o in body.operations:
        read = [x.id for x in o.inputs if isinstance(x, Value)]
        if read and all(x in alike for x in read) and _is_safe(o, loop.place):
            alike[o.outputs[0].id] = _made(o, [alike[x] for x in read])
    used, ends = users(body), {x.id for x in body.outputs if isinstance(x, Value)}
    moved = [o for o in body.operations if any(v.id in alike and v.id not in ends for v in o.outputs)]
    found = []
    for o in moved:
        (value,), known = o.outputs, alike[o.outputs[0].id]
        users_of = [body.operations[n] for n in used.get(value.id, ()) if n >= 0]
        outside = [u for u in users_of if not any(v.id in alike for v in u.outputs)]
        is_much = known.cost >= MUCH and value.type.shape in known.shapes and not isinstance(o.op.form, View)
        if (outside and is_much) or (_is_turned(o) and any(_reads_by_rows(u, value) for u in outside)):
            found.append(value)
    return found


@dataclass(frozen=True, slots=True)
class _Alike:
    """Of a value that no turn changes: the shapes of what is there, or would be, to make it from, and the cost of one
    element."""

    shapes: frozenset[tuple[Extent, ...]]
    cost: int


def _made(operation: Operation, read: Sequence[_Alike]) -> _Alike:
    shapes = frozenset[tuple[Extent, ...]]().union(*(x.shapes for x in read))
    cost = max(x.cost for x in read)
    match operation.op.form:
        case Pointwise(cost=found):
            return _Alike(shapes, cost + found)
        case Reduction() | Contraction():  # their results are written out in the body too
            return _Alike(shapes | {operation.outputs[0].type.shape}, cost + MUCH)
        case _:
            return _Alike(shapes, cost)


def _is_safe(operation: Operation, place: str) -> bool:
    """Whether it may run though no turn does. What a checkpoint computes again stays behind its barrier."""
    if operation.place != place or operation.op is barrier or len(operation.outputs) != 1:
        return False
    match operation.op.form:
        case Pointwise(check=None) | Reduction() | View() | Contraction():
            return True
        case _:
            return False


def _is_turned(operation: Operation) -> bool:
    axes = operation.params["axes"] if operation.op is layout.transpose else ()
    return len(axes) >= 2 and tuple(axes[-2:]) == (len(axes) - 1, len(axes) - 2)


def _reads_by_rows(operation: Operation, matrix: Value) -> bool:
    """Whether it multiplies a few rows by the matrix."""
    if not isinstance(operation.op.form, Contraction) or operation.inputs[1] != matrix:
        return False
    rows = operation.inputs[0].type.shape[-2]
    return isinstance(rows, int) and rows <= FEW_ROWS


def _hoist(rewriter: Rewriter, loop: Operation, found: Sequence[Value]) -> None:
    body = loop.params["body"].program
    operands = rewriter.operands(loop)
    outside = _Outside(rewriter, body, operands)
    more = tuple(outside.computed(v) for v in found)
    parts = {k: p for k, p in loop.params.items() if isinstance(p, Body)}
    wider = {k: Body(_with_inputs(p.program, found, k == "body")) for k, p in parts.items()}
    rewriter.substitute(loop, (*operands, *more), Params(**{**loop.params, **wider}))


class _Outside:
    """A body's operations in the program around it."""

    def __init__(self, rewriter: Rewriter, body: SemanticProgram, operands: Sequence[Operand]) -> None:
        self._rewriter = rewriter
        self._made = {v.id: o for o in body.operations for v in o.outputs}
        self._values, self._leaves = given(body, operands)

    def computed(self, value: Value) -> Operand:
        """A value of the body; one that is a view is written out."""
        found, operation = self._operand(value), self._made[value.id]
        if isinstance(operation.op.form, View):
            return self._rewriter.emit(pointwise.copy, (found,), operation.line)
        return found

    def _operand(self, x: Operand) -> Operand:
        if isinstance(x, DimScalar):
            extent = self._extent(x.expr)
            return DimScalar(extent, x.dtype) if isinstance(extent, DimExpr) else build.literal(extent, x.dtype)
        if not isinstance(x, Value):
            return x
        if x.id not in self._values:
            o = self._made[x.id]
            params = {k: mapped(v, self._extent) for k, v in o.params.items()}
            self._values[x.id] = self._rewriter.emit(o.op, [self._operand(i) for i in o.inputs], o.line, **params)
        return self._values[x.id]

    def _extent(self, extent: Extent) -> Extent:
        return substitute(extent, lambda s: self._leaves[s]) if isinstance(extent, DimExpr) else extent


def _with_inputs(body: SemanticProgram, found: Sequence[Value], is_used: bool) -> SemanticProgram:
    """The body with one more input for each of the values ``found``, which stands for it where ``is_used``."""
    first, count = len(body.inputs), len(found)
    more = [Value(first + k, v.type) for k, v in enumerate(found)]
    known = {v.id: new for v, new in zip(found, more, strict=True)} if is_used else {}

    def moved(x: Operand) -> Operand:
        if not isinstance(x, Value) or x.id < first:
            return x
        return known.get(x.id) or Value(x.id + count, x.type)

    operations = [
        replace(o, inputs=tuple(map(moved, o.inputs)), outputs=tuple(Value(v.id + count, v.type) for v in o.outputs))
        for o in body.operations
    ]
    declared = [ProgramInput(v, "argument", f"outer {old}") for v, old in zip(more, found, strict=True)]
    outputs = tuple(map(moved, body.outputs))
    return drop_dead(replace(body, inputs=(*body.inputs, *declared), operations=tuple(operations), outputs=outputs))
