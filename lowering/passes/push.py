"""Push views to loads: a view of a pointwise result becomes the pointwise operation on views of its operands.

A view of what only that view uses is pushed through whole chains; nothing is computed more often than before. What has
several users is computed anew under each of its views if it is cheap and all of its users are views; a broadcast, which
repeats work, goes only to chains of a few operations on inputs. Reshapes go where they need no copy.
"""

from __future__ import annotations

from tenferro.lowering.affine import ones_moved
from tenferro.lowering.passes.rewrite import Rewriter, pinned, users
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.op import Op, Pointwise, View
from tenferro.tracer.ops import layout
from tenferro.tracer.program import Operand, Operation, Params, SemanticProgram, Value
from tenferro.tracer.records import dataclass

CHEAP = 8
"""Native operations of a chain that may be computed once for each of several views of it."""

CHEAP_TO_REPEAT = 4
"""Native operations of a chain on inputs that may be computed once for each element of a broadcast."""

MAX_VIEWS = 4
"""Views that are pushed together; layout simplification has made chains shorter than this."""


@dataclass(frozen=True, slots=True)
class _Chain:
    """Of a value: the native operations from inputs and stored values to it, whether those are inputs alone, and
    whether a reshape of all that is loaded needs no copy."""

    cost: int
    from_inputs: bool
    is_plain: bool


@dataclass(frozen=True, slots=True)
class _Seen:
    """A view to be applied."""

    op: Op
    params: Params
    line: SourceLine | None


Views = tuple[_Seen, ...]
LOADED = _Chain(0, False, True)
UNKNOWN_COST = 1 << 30


def push_views(program: SemanticProgram) -> SemanticProgram:
    if not any(isinstance(o.op.form, View) for o in program.operations):
        return program
    pusher = _Pusher(program)
    if not pusher.plan():
        return program
    return pusher.run()


class _Pusher:
    """``pending[v]``: the views under which the operation that makes v is to be computed in place of v itself."""

    def __init__(self, program: SemanticProgram) -> None:
        self.program = program
        self.producer = {v.id: o for o in program.operations for v in o.outputs}
        self.users = users(program)
        self.pinned = pinned(program)
        self.chains = self._measure()
        self.pending: dict[int, Views] = {}
        self.absorbed: set[int] = set()
        self.again: set[int] = set()
        self.rewriter = Rewriter(program)

    def _measure(self) -> dict[int, _Chain]:
        found = {i.value.id: _Chain(0, True, True) for i in self.program.inputs}
        for operation in self.program.operations:
            chains = [found[x.id] for x in operation.inputs if isinstance(x, Value)]
            match operation.op.form:
                case Pointwise(cost=cost):
                    mine = _Chain(
                        min(UNKNOWN_COST, cost + sum(c.cost for c in chains)),
                        all(c.from_inputs for c in chains),
                        all(c.is_plain for c in chains),
                    )
                case View(kind=kind):
                    inner = chains[0] if chains else LOADED
                    mine = _Chain(inner.cost, inner.from_inputs, inner.is_plain and kind == "reshape")
                case _:
                    mine = LOADED
            found.update((v.id, mine) for v in operation.outputs)
        return found

    # Which views move, from the last operation to the first

    def plan(self) -> bool:
        for number in range(len(self.program.operations) - 1, -1, -1):
            operation = self.program.operations[number]
            out = operation.outputs[0].id
            views = self.pending.get(out, ())
            match operation.op.form:
                case View():
                    (source,) = operation.inputs
                    whole = _before(operation, views)
                    if isinstance(source, Value) and out not in self.pinned and len(whole) <= MAX_VIEWS:
                        self._push(source, number, operation, whole)
                case Pointwise() if out in self.pending:
                    for x in operation.inputs:
                        if isinstance(x, Value) and x.type.rank and self._can_wait(x, number):
                            self.pending[x.id] = views
                case _:
                    pass
        return bool(self.pending or self.again)

    def _can_wait(self, x: Value, number: int) -> bool:
        maker = self.producer.get(x.id)
        is_computed = maker is not None and isinstance(maker.op.form, Pointwise | View)
        return is_computed and self._is_only_used_by(x, number)

    def _push(self, source: Value, number: int, view: Operation, views: Views) -> None:
        maker = self.producer.get(source.id)
        if maker is None or not isinstance(maker.op.form, Pointwise) or not source.type.rank:
            return
        if not self._may_move(source, view):
            return
        if self._is_only_used_by(source, number):
            self.pending[source.id] = views
            self.absorbed.add(view.outputs[0].id)
        elif self._is_cheap_for_all(source):
            self.again.add(view.outputs[0].id)

    def _may_move(self, source: Value, view: Operation) -> bool:
        chain = self.chains[source.id]
        match view.op.name:
            case "broadcast_to":
                inserts = ones_moved(source.type.shape, view.params["shape"]) is not None
                return inserts or (chain.from_inputs and chain.cost <= CHEAP_TO_REPEAT)
            case "reshape":
                moved = ones_moved(source.type.shape, view.params["shape"]) is not None
                return moved or chain.is_plain
            case _:
                return True

    def _is_only_used_by(self, x: Value, number: int) -> bool:
        return self.users[x.id] == [number] and x.id not in self.pinned

    def _is_cheap_for_all(self, x: Value) -> bool:
        if self.chains[x.id].cost > CHEAP or x.id in self.pinned:
            return False
        return all(user >= 0 and isinstance(self.program.operations[user].op.form, View) for user in self.users[x.id])

    # The new program

    def run(self) -> SemanticProgram:
        rewriter = self.rewriter
        for operation in self.program.operations:
            rewriter.place = operation.place
            out = operation.outputs[0].id
            views = self.pending.get(out)
            if isinstance(operation.op.form, View):
                (source,) = operation.inputs
                if isinstance(source, Value) and out in self.absorbed:
                    rewriter.replace(operation, rewriter.operand(source))
                    continue
                if isinstance(source, Value) and out in self.again:
                    rewriter.replace(operation, self._compute_again(source, _before(operation, views or ())))
                    continue
            if views is None or not isinstance(operation.op.form, Pointwise):
                rewriter.copy(operation)
                if views is not None:
                    rewriter.replace(operation, self._seen(rewriter.operand(operation.outputs[0]), views))
                continue
            inputs = [self._operand(x, views) for x in operation.inputs]
            rewriter.replace(operation, rewriter.emit(operation.op, inputs, operation.line, **operation.params))
        return rewriter.finish()

    def _operand(self, x: Operand, views: Views) -> Operand:
        if not isinstance(x, Value) or not x.type.rank:
            return self.rewriter.operand(x)
        if self.pending.get(x.id) is views:
            return self.rewriter.operand(x)
        return self._seen(self.rewriter.operand(x), views)

    def _seen(self, x: Operand, views: Views) -> Operand:
        for view in views:
            x = self.rewriter.emit(view.op, (x,), view.line, **view.params)
        return x

    def _compute_again(self, x: Operand, views: Views) -> Operand:
        """The chain that makes ``x``, on views of what it loads. Its length is bounded by its cost."""
        if not isinstance(x, Value) or not x.type.rank:
            return self.rewriter.operand(x)
        maker = self.producer.get(x.id)
        if maker is None or not isinstance(maker.op.form, Pointwise) or maker.op.form.cost == 0:
            return self._seen(self.rewriter.operand(x), views)
        inputs = [self._compute_again(y, views) for y in maker.inputs]
        return self.rewriter.emit(maker.op, inputs, maker.line, **maker.params)


def _before(view: Operation, views: Views) -> Views:
    """``view`` followed by ``views``. Two transposes are one, so that a chain of them stays short."""
    first = _Seen(view.op, view.params, view.line)
    if view.op is not layout.transpose or not views or views[0].op is not layout.transpose:
        return (first, *views)
    axes = tuple(view.params["axes"][a] for a in views[0].params["axes"])
    if axes == tuple(range(len(axes))):
        return views[1:]
    return (_Seen(view.op, Params(axes=axes), view.line), *views[1:])
