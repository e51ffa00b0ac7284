"""What a run on several engines holds at most on each: a prepared program and the sizes of a call go in, a ``Memory``
for each engine comes out.

An engine does its nodes in order, and other engines do theirs meanwhile. What a part leaves behind is held until those
who read it have done so; in an engine's account that is every node of its own that need not wait for all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tenferro.guards import in_words
from tenferro.lowering.exec_program import Slot
from tenferro.lowering.memory import Buffer as Made, largest, memory, upper_bounds
from tenferro.lowering.partition import Part
from tenferro.lowering.plan import Plan
from tenferro.memory import LISTED, Buffer, Memory, Size, name_of, unbounded_in
from tenferro.runtime import OperationNode, Prepared, Schedule
from tenferro.runtime.schedule import CollectiveNode, Node, TransferNode, reads
from tenferro.tracer.dims import Environment, Extent, Leaf, add, evaluate, leaf, mul, product, substitute
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.records import dataclass


@dataclass(frozen=True, slots=True)
class _Held:
    """Memory that outlives the node that makes it. ``readers``: the nodes that need it; ``stays``: a result of the run
    lies in it."""

    made: int
    buffer: Made
    readers: tuple[int, ...]
    stays: bool


@dataclass(frozen=True, slots=True)
class _Step:
    """One step of an engine: what is held while it runs, and what it is called."""

    node: int
    live: Extent
    name: str


def memory_by_engine(prepared: Prepared, env: Environment) -> Memory:
    """The memory of each engine that takes part, and all of it together."""
    schedule, before = prepared.schedule, _before(prepared.schedule)
    accounts = {name: _Account(prepared, before, place) for place, name in enumerate(schedule.domains)}
    for number, node in enumerate(schedule.nodes):
        for account in accounts.values():
            account.add(number, node)
    told = {name: account.told(env) for name, account in accounts.items()}
    peak, naive = (_sum(getattr(a, part) for a in accounts.values()) for part in ("peak", "naive"))
    buffers = sorted((b for m in told.values() for b in m.largest), key=lambda b: -b.bytes)
    return Memory(
        _size(prepared, peak, sum(m.bytes for m in told.values())),
        _size(prepared, naive, sum(m.naive.bytes for m in told.values())),
        tuple(buffers[:LISTED]),
        -1,
        "",
        told,
        unbounded_in(prepared.exec_program),
    )


def _sum(extents: Iterable[Extent]) -> Extent:
    total: Extent = 0
    for extent in extents:
        total = add(total, extent)
    return total


def _size(prepared: Prepared, extent: Extent, value: int) -> Size:
    return Size(in_words(str(extent), prepared.program), value)


def _before(schedule: Schedule) -> list[int]:
    """For each node, as bits, those that are done when it begins: what it waits for, and its engine's earlier ones."""
    found: list[int] = []
    last: dict[int, int] = {}
    for number, node in enumerate(schedule.nodes):
        waits = [*node.dependencies, *([last[node.engine]] if node.engine in last else [])]
        done = 0
        for k in waits:
            done |= found[k] | 1 << k
        found.append(done)
        last[node.engine] = number
    return found


class _Account:
    """What one engine holds, node by node."""

    def __init__(self, prepared: Prepared, before: Sequence[int], place: int) -> None:
        self._prepared = prepared
        self._before = before
        self._place = place
        self._held: list[_Held] = []
        self._steps: list[_Step] = []
        self._short: list[Made] = []  # held within one node
        self.naive: Extent = 0
        types = prepared.exec_program.slot_types()
        bounds = upper_bounds(prepared.exec_program)

        def bounded(extent: Extent) -> Extent:
            return substitute(extent, lambda s: bounds.get(s, leaf(s.kind, s.index, s.axis)))

        self._bytes = {s: bounded(mul(product(t.shape), t.dtype.itemsize)) for s, t in types.items()}

    def add(self, number: int, node: Node) -> None:
        """A node of the schedule, which may be another engine's."""
        match node:
            case OperationNode(engine=engine, part=part) if engine == self._place:
                self._part(number, part)
            case TransferNode(engine=engine, slot=slot, transfer=transfer) if engine == self._place:
                is_shared = transfer.source.storage == transfer.destination.storage == "host"
                copies = [] if is_shared else [self._arriving(number, slot, self._bytes[slot], transfer.line)]
                self._step(number, f"transfer of s{slot}", copies)
            case CollectiveNode(instruction=instruction, places=places) if self._place in places:
                outputs = [s.index for s, p in zip(instruction.outputs, places, strict=True) if p == self._place]
                made = [self._arriving(number, s, self._bytes[s], instruction.line) for s in outputs]
                self._step(number, instruction.op.name, made)
            case _:
                pass

    def _arriving(self, number: int, slot: int, size: Extent, line: SourceLine | None) -> _Held:
        buffer = Made(slot, size, line, len(self._steps))
        return _Held(number, buffer, self._readers([slot]), self._stays(slot))

    def _step(self, number: int, name: str, made: Sequence[_Held]) -> None:
        live = self._carried(number)
        for held in made:
            live = add(live, held.buffer.size)
            self.naive = add(self.naive, held.buffer.size)
        self._steps.append(_Step(number, live, name))
        self._held += made

    def _part(self, number: int, part: Part) -> None:
        plan, unit = self._prepared.plans[number], self._prepared.units[number]
        assert plan is not None and unit is not None
        found, names = memory(plan, unit.is_one_kernel), _Names(part, plan, self._prepared)
        carried, first = self._carried(number), len(self._steps)
        for live, step in zip(found.live, plan.steps, strict=True):
            self._steps.append(_Step(number, add(carried, names.extent(live)), name_of(step)))
        self.naive = add(self.naive, names.extent(found.naive))
        for b in found.buffers:
            buffer = replace(b, slot=names.slot(b.slot), size=names.extent(b.size), first=first + b.first)
            if b.last is not None:
                self._short.append(replace(buffer, last=first + b.last))
                continue
            # What is no result of the part itself is what its results are views of.
            slots = [buffer.slot] if buffer.slot in part.writes else list(part.writes)
            self._held.append(_Held(number, buffer, self._readers(slots), any(map(self._stays, slots))))

    def _readers(self, slots: Sequence[int]) -> tuple[int, ...]:
        """Nodes of any engine: arrays of one memory are read where they are."""
        nodes = enumerate(self._prepared.schedule.nodes)
        return tuple(n for n, node in nodes if any(slot in slots for slot, _ in reads(node)))

    def _stays(self, slot: int) -> bool:
        outputs = self._prepared.exec_program.outputs
        return any(isinstance(o, Slot) and o.index == slot for o in outputs)

    def _carried(self, number: int) -> Extent:
        """What is held from before while a node runs."""
        total: Extent = 0
        for held in self._held:
            if self._is_carried(held, number):
                total = add(total, held.buffer.size)
        return total

    def _is_carried(self, held: _Held, number: int) -> bool:
        done = self._before[number]
        return held.stays or not all(done >> reader & 1 for reader in held.readers)

    @property
    def peak(self) -> Extent:
        """For any sizes."""
        return largest([s.live for s in self._steps])

    def told(self, env: Environment) -> Memory:
        """The account, in the words of the program."""
        buffers = [*self._short, *(self._ended(h) for h in self._held)]
        sized = sorted(((evaluate(b.size, env), b) for b in buffers), key=lambda pair: -pair[0])
        values = [evaluate(s.live, env) for s in self._steps]
        peak = max(values, default=0)
        step = values.index(peak) if values else -1
        return Memory(
            _size(self._prepared, self.peak, peak),
            _size(self._prepared, self.naive, evaluate(self.naive, env)),
            tuple(
                [
                    Buffer(b.slot, _size(self._prepared, b.size, n), b.line, b.first, b.last, b.inside)
                    for n, b in sized[:LISTED]
                ]
            ),
            step,
            self._steps[step].name if values else "",
        )

    def _ended(self, held: _Held) -> Made:
        """The buffer with the last step of this engine that it is held in."""
        if held.stays:
            return held.buffer
        steps = [k for k, s in enumerate(self._steps) if s.node == held.made or self._is_carried(held, s.node)]
        return replace(held.buffer, last=max((k for k in steps if k >= held.buffer.first), default=held.buffer.first))


class _Names:
    """Slots and sizes of a part as those of the whole program; sizes that depend on data as what they are at most."""

    def __init__(self, part: Part, plan: Plan, prepared: Prepared) -> None:
        made = sorted(s.index for n in part.numbers for s in prepared.exec_program.instructions[n].outputs)
        self._slots = [*part.reads, *[-1] * len(part.sizes), *made]
        self._bounds = upper_bounds(prepared.exec_program)
        self._is_whole = part.is_whole
        self._sizes = {len(part.reads) + k: size for k, size in enumerate(part.sizes)}

    def slot(self, slot: int) -> int:
        return slot if self._is_whole else self._slots[slot]

    def extent(self, extent: Extent) -> Extent:
        return substitute(extent, self._leaf)

    def _leaf(self, own: Leaf) -> Extent:
        is_size = own.kind == "int" and own.index in self._sizes and not self._is_whole
        found = self._sizes[own.index] if is_size else own
        return self._bounds.get(found, leaf(found.kind, found.index, found.axis))
