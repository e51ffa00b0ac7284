"""Push windows to loads: a pad of a pointwise result that nothing else uses becomes a select between the pointwise
operation on padded operands and the fill. Padded operands are loads with windows, so the inner result needs no array.
"""

from __future__ import annotations

import numpy as np

from tenferro.lowering.passes.rewrite import Rewriter, pinned, users
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.op import Pointwise
from tenferro.tracer.ops import layout, pointwise
from tenferro.tracer.program import Literal, Operand, Operation, Params, SemanticProgram, Value

MAX_COST = 40
"""Native operations of a chain that is computed on the pad's margin too."""

MAX_LOADS = 3
"""Loads of such a chain: each pays for its window."""

BOOL = np.dtype(np.bool_)


def push_windows(program: SemanticProgram) -> SemanticProgram:
    if not any(o.op is layout.pad for o in program.operations):
        return program
    return _Pusher(program).run()


class _Pusher:
    """One run of the pass."""

    def __init__(self, program: SemanticProgram) -> None:
        self.program = program
        self.producer = {v.id: o for o in program.operations for v in o.outputs}
        self.numbers = {v.id: n for n, o in enumerate(program.operations) for v in o.outputs}
        self.users = users(program)
        self.pinned = pinned(program)
        self.rewriter = Rewriter(program)

    def run(self) -> SemanticProgram:
        chains = {}
        for number, operation in enumerate(self.program.operations):
            if operation.op is layout.pad:
                chains[operation.outputs[0].id] = self._chain(operation.inputs[0], number)
        inside = {v for chain in chains.values() if chain is not None for v in chain}
        for operation in self.program.operations:
            out = operation.outputs[0].id
            if out in inside:
                self.rewriter.skip()
                continue
            chain = chains.get(out)
            if chain:
                self.rewriter.replace(operation, self._pad(operation, chain))
            else:
                self.rewriter.copy(operation)
        return self.rewriter.finish()

    def _chain(self, x: Operand, number: int) -> list[int] | None:
        """The values of the pointwise chain that ends in ``x`` and that only the pad uses, in order of definition."""
        found: list[int] = []
        pending, cost, loads = [(x, number)], 0, 0
        while pending:
            value, user = pending.pop()
            if not isinstance(value, Value) or not value.type.rank:
                continue
            if value.id in found:
                continue
            maker = self.producer.get(value.id)
            only = self.users[value.id] == [user] and value.id not in self.pinned
            if maker is None or not isinstance(maker.op.form, Pointwise) or not only:
                loads += 1
                continue
            cost += maker.op.form.cost
            found.append(value.id)
            pending += [(y, self.numbers[value.id]) for y in maker.inputs]
            if cost > MAX_COST:
                return None
        return sorted(found) if found and loads <= MAX_LOADS else None

    def _pad(self, operation: Operation, chain: list[int]) -> Operand:
        fill, line, params = self.rewriter.operand(operation.inputs[1]), operation.line, operation.params
        padded: dict[int, Operand] = {}
        for value in chain:
            maker = self.producer[value]
            inputs = [self._operand(x, padded, params, line) for x in maker.inputs]
            padded[value] = self.rewriter.emit(maker.op, inputs, maker.line, **maker.params)
        inner = padded[chain[-1]]
        shape = operation.inputs[0].type.shape
        everywhere = self.rewriter.emit(layout.broadcast_to, (Literal(True, BOOL),), line, shape=shape, axes=())
        valid = self.rewriter.emit(layout.pad, (everywhere, Literal(False, BOOL)), line, **params)
        return self.rewriter.emit(pointwise.where, (valid, inner, fill), line)

    def _operand(self, x: Operand, padded: dict[int, Operand], params: Params, line: SourceLine | None) -> Operand:
        if not isinstance(x, Value) or not x.type.rank:
            return self.rewriter.operand(x)
        if x.id in padded:
            return padded[x.id]
        zero = Literal(x.type.dtype.type(0).item(), x.type.dtype)
        return self.rewriter.emit(layout.pad, (self.rewriter.operand(x), zero), line, **params)
