"""Staging: a SemanticProgram goes in, the ExecProgram that computes it comes out.

Values become slots. ``aliases`` are made true here: where passes have made two outputs share memory that the traced
program kept apart, or an output that must be fresh has become an input or a view, a ``copy`` is inserted.
"""

from __future__ import annotations

from collections.abc import Sequence

from tenferro.lowering.exec_program import ExecInput, ExecProgram, ExtentKind, Instruction, Slot, Source
from tenferro.lowering.sizes_read import SizesRead
from tenferro.tracer.dims import Extent, Leaf, leaves
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.op import Collective, Op, View
from tenferro.tracer.ops import layout, library, pointwise
from tenferro.tracer.program import ArrayType, Operand, Operation, Params, SemanticProgram, Value
from tenferro.tracer.records import dataclass


@dataclass(frozen=True, slots=True)
class _Draft:
    """An instruction before its last uses are known."""

    op: Op
    inputs: tuple[Source, ...]
    params: Params
    outputs: tuple[Slot, ...]
    types: tuple[ArrayType, ...]
    operation: int
    line: SourceLine | None
    place: str = ""


def stage(program: SemanticProgram) -> ExecProgram:
    """Slots are numbered as values are; slots of inserted copies follow."""
    stager = _Stager(program)
    outputs = stager.outputs()
    drafts = _live(stager.drafts, outputs)
    return ExecProgram(
        name=program.name,
        inputs=tuple(ExecInput(Slot(i.value.id), i.value.type, i.kind, i.name) for i in program.inputs),
        instructions=_with_last_uses(drafts, outputs),
        outputs=outputs,
        n_slots=stager.n_slots,
        guards=program.guards,
    )


def _source(operand: Operand) -> Source:
    return Slot(operand.id) if isinstance(operand, Value) else operand


class _Stager:
    """Holds the growing list of drafts and which memory is already promised to which group of outputs."""

    def __init__(self, program: SemanticProgram) -> None:
        self.program = program
        self.n_slots = len(program.inputs) + sum(len(o.outputs) for o in program.operations)
        self.producers: dict[int, Operation] = {v.id: o for o in program.operations for v in o.outputs}
        self.claimed: set[int] = set()
        self.drafts: list[_Draft] = []
        for number, o in enumerate(program.operations):
            sources = tuple([_source(x) for x in o.inputs])
            if isinstance(o.op.form, Collective):
                sources = self._lying(o, sources)
            outputs, types = tuple([Slot(v.id) for v in o.outputs]), tuple([v.type for v in o.outputs])
            self.drafts.append(_Draft(o.op, sources, o.params, outputs, types, number, o.line, o.place))

    def _lying(self, operation: Operation, sources: Sequence[Source]) -> tuple[Source, ...]:
        """A collective's operands, each in the memory of its engine: numbers are put there."""
        found: list[Source] = []
        for source, x, place in zip(sources, operation.inputs, operation.params["places"], strict=True):
            if not isinstance(source, Slot):
                source = self._emit(pointwise.copy, (source,), Params(), x.type, operation.line, place)
            found.append(source)
        return tuple(found)

    def outputs(self) -> tuple[Source, ...]:
        found: list[Source] = [_source(o) for o in self.program.outputs]
        groups: dict[int, list[int]] = {}
        for position, (o, group) in enumerate(zip(self.program.outputs, self.program.aliases, strict=True)):
            if isinstance(o, Value) and group >= 0:
                groups.setdefault(group, []).append(position)
        for members in groups.values():
            values = [self.program.outputs[p] for p in members]
            slots = self._place([v for v in values if isinstance(v, Value)])
            for position, slot in zip(members, slots, strict=True):
                found[position] = slot
        return tuple(found)

    def _place(self, members: Sequence[Value]) -> list[Slot]:
        """Slots for outputs that are views of one fresh array: the last value that all of their view chains share."""
        chains = [self._chain(v) for v in members]
        depth = min(len(c) for c in chains)
        shared = 0
        while shared < depth and all(c[shared].id == chains[0][shared].id for c in chains):
            shared += 1
        if shared == 0:  # nothing in common: each is an array of its own
            return [self._place([v])[0] for v in members]
        anchor, root = chains[0][shared - 1], chains[0][0]
        if self._is_fresh(chains[0][:shared]) and root.id not in self.claimed:
            self.claimed.add(root.id)
            return [Slot(v.id) for v in members]
        copied = self._emit(pointwise.copy, (Slot(anchor.id),), Params(), anchor.type, self._line(anchor))
        return [self._replay(copied, chain[shared:]) for chain in chains]

    def _chain(self, value: Value) -> list[Value]:
        """From the array that owns the memory, through views, to ``value``. Views of scalars own nothing: they start
        a chain, and so must be copied."""
        chain = [value]
        while (operation := self.producers.get(chain[-1].id)) is not None and isinstance(operation.op.form, View):
            source = operation.inputs[0]
            if not isinstance(source, Value):
                break
            chain.append(source)
        return chain[::-1]

    def _is_fresh(self, chain: Sequence[Value]) -> bool:
        """Whether the chain starts in an operation's own array and keeps its order."""
        root = self.producers.get(chain[0].id)
        if root is None or isinstance(root.op.form, View):
            return False
        return all(self.producers[v.id].op is layout.reshape for v in chain[1:])

    def _replay(self, slot: Slot, views: Sequence[Value]) -> Slot:
        for v in views:
            operation = self.producers[v.id]
            slot = self._emit(operation.op, (slot,), operation.params, v.type, operation.line)
        return slot

    def _emit(
        self,
        op: Op,
        inputs: tuple[Source, ...],
        params: Params,
        kind: ArrayType,
        line: SourceLine | None,
        place: str = "",
    ) -> Slot:
        slot = Slot(self.n_slots)
        self.n_slots += 1
        self.drafts.append(_Draft(op, inputs, params, (slot,), (kind,), -1, line, place))
        return slot

    def _line(self, value: Value) -> SourceLine | None:
        operation = self.producers.get(value.id)
        return operation.line if operation is not None else None


def _live(drafts: Sequence[_Draft], outputs: Sequence[Source]) -> list[_Draft]:
    needed = {o.index for o in outputs if isinstance(o, Slot)}
    kept: list[_Draft] = []
    sizes = SizesRead((d.op, d.params, d.types) for d in drafts)
    sizes.read(outputs)
    for number in range(len(drafts) - 1, -1, -1):
        draft = drafts[number]
        if draft.op.is_ordered(draft.params) or any(s.index in needed for s in draft.outputs) or sizes.needs(number):
            kept.append(draft)
            needed.update(s.index for s in draft.inputs if isinstance(s, Slot))
            sizes.keep(draft.op, draft.inputs, draft.params, draft.types)
    return kept[::-1]


def _with_last_uses(drafts: Sequence[_Draft], outputs: Sequence[Source]) -> tuple[Instruction, ...]:
    used = {o.index for o in outputs if isinstance(o, Slot)}
    found: list[Instruction] = []
    promises: dict[int, tuple[ExtentKind, ...]] = {}
    unbounded = {x for d in drafts if d.op is library.bincount for x in leaves(d.types[0].shape[0])}
    for d in reversed(drafts):
        last = tuple(isinstance(s, Slot) and s.index not in used for s in d.inputs)
        used.update(s.index for s in d.inputs if isinstance(s, Slot))
        for t in d.types:
            if id(t) not in promises:
                promises[id(t)] = tuple([_extent(n, unbounded) for n in t.shape])
        extents = tuple([promises[id(t)] for t in d.types])
        found.append(
            Instruction(d.op, d.inputs, d.params, d.outputs, d.types, extents, last, d.operation, d.line, d.place)
        )
    return tuple(found[::-1])


def _extent(n: Extent, unbounded: set[Leaf]) -> ExtentKind:
    """A size that hangs on a run-time extent is exact only after the run; before it is bounded by the elements that a
    mask selects from, that of counts by nothing."""
    runtime = {x for x in leaves(n) if x.kind == "runtime"}
    if not runtime:
        return ExtentKind.EXACT
    return ExtentKind.UNKNOWN if runtime & unbounded else ExtentKind.UPPER_BOUND
