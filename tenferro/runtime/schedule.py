"""The schedule: what happens where, and what waits for what.

In: an ExecProgram, an engine for each instruction, and the routes between engines. Out: nodes in an order in which they
may run. An *operation* node runs a part of the program on one engine; a *transfer* brings one value to one engine; a
*collective* is where engines meet; a *barrier* keeps effects of different engines in order. Each node ends with a
completion of its own in one domain, the engine's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property
from typing import TypeAlias, assert_never

from tenferro.engines.engine import Engine
from tenferro.engines.errors import EventError, InputIngressError, MissingTransferError, NoEligibleEngineError
from tenferro.lowering.exec_program import ExecProgram, Instruction, Slot, Source
from tenferro.lowering.partition import Part, partition, whole
from tenferro.runtime.transfers import Endpoint, Routes, Transfer, TransferProvider
from tenferro.tracer.dims import Leaf, mul, product
from tenferro.tracer.lines import SourceLine, at
from tenferro.tracer.program import ArrayType
from tenferro.tracer.records import dataclass


@dataclass(frozen=True, slots=True)
class OperationNode:
    """A part of the program on the engine at ``engine``. ``dependencies`` are nodes by number, as everywhere here."""

    engine: int
    part: Part
    dependencies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TransferNode:
    """``slot`` from one engine to another; it happens in the destination's domain."""

    slot: int
    source: int
    engine: int
    transfer: Transfer
    provider: TransferProvider
    dependencies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class CollectiveNode:
    """Operand k lies on ``places[k]`` and so will result k: the engine that it is for, or one of the host for a device.
    It happens in the domain of the first."""

    instruction: Instruction
    places: tuple[int, ...]
    engine: int
    dependencies: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class BarrierNode:
    """Nothing but an order: what comes after it in this domain waits for ``dependencies``."""

    engine: int
    dependencies: tuple[int, ...]


Node: TypeAlias = OperationNode | TransferNode | CollectiveNode | BarrierNode


def reads(node: Node) -> list[tuple[int, int]]:
    """What a node reads: (slot, engine)."""
    match node:
        case OperationNode(engine=engine, part=part):
            return [(slot, engine) for slot in part.reads]
        case TransferNode(slot=slot, source=source):
            return [(slot, source)]
        case CollectiveNode(instruction=instruction, places=places):
            slots = [s.index for s in instruction.inputs if isinstance(s, Slot)]
            return list(zip(slots, places, strict=True))
        case BarrierNode():
            return []
        case _:
            assert_never(node)


@dataclass(frozen=True, repr=False)
class Schedule:
    """``inputs``: the engines that each program input enters; ``outputs``: the engine where each output lies, −1 for a
    literal, a size, or an input handed through."""

    nodes: tuple[Node, ...]
    domains: tuple[str, ...]
    inputs: tuple[tuple[int, ...], ...]
    outputs: tuple[int, ...]

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """Every crossing, in order."""
        return tuple(n.transfer for n in self.nodes if isinstance(n, TransferNode))

    @property
    def is_flat(self) -> bool:
        """The whole program on one engine: it runs without tokens and without staging."""
        return len(self.nodes) == 1 and isinstance(node := self.nodes[0], OperationNode) and node.part.is_whole

    @cached_property
    def is_sequential(self) -> bool:
        """Whether no two parts may run side by side: each level of the program has one."""
        levels = [n.part.level for n in self.nodes if isinstance(n, OperationNode)]
        return len(set(levels)) == len(levels)

    def __str__(self) -> str:
        return text(self)

    def __repr__(self) -> str:  # a prompt shows it: short, str() has it all
        return f"<schedule on {', '.join(self.domains)}: nodes {len(self.nodes)}; print() shows them>"

    def _repr_svg_(self) -> str:
        from tenferro.runtime.drawing import Box, drawing

        boxes = [Box(n.engine, kind_of(n), _in_short(n), describe(n), n.dependencies) for n in self.nodes]
        return drawing(self.domains, boxes)


@dataclass
class Builder:
    """Builds the schedule of one placement. One use.

    held: engines of the inputs that lie on no host, by slot. results: the engine to which outputs are brought."""

    program: ExecProgram
    engines: Sequence[Engine]
    placement: Sequence[int]
    routes: Routes
    held: Mapping[int, int] = field(default_factory=dict)
    results: int | None = None
    nodes: list[Node] = field(default_factory=list)
    at: dict[tuple[int, int], int] = field(default_factory=dict)  # (slot, engine) → node that brings it; −1: an input
    homes: dict[int, int] = field(default_factory=dict)  # slot → engine that made it
    places: dict[int, list[int]] = field(default_factory=dict)  # slot → engines where it lies, in order of arrival
    lines: dict[int, SourceLine | None] = field(default_factory=dict)
    entries: dict[int, list[int]] = field(default_factory=dict)  # input slot → engines that it enters
    types: Mapping[int, ArrayType] = field(default_factory=dict)
    measurers: dict[Leaf, int] = field(default_factory=dict)  # run-time extent → the node that measures it
    barriers: dict[tuple[int, int], int] = field(default_factory=dict)  # (node, engine) → the barrier there
    last_effect: int | None = None

    def build(self) -> Schedule:
        """The schedule; flat where one engine has all to do. InputIngressError, MissingTransferError where a value
        cannot get to where it is needed."""
        self.types = self.program.slot_types()
        self.lines = {s.index: i.line for i in self.program.instructions for s in i.outputs}
        self.entries = {i.slot.index: [] for i in self.program.inputs}
        for part in partition(self.program, self.placement):
            if isinstance(part, Part):
                self._operation(part)
            else:
                self._collective(self.program.instructions[part])
        outputs = tuple([self._output(o) for o in self.program.outputs])
        if len(self.nodes) == 1 and isinstance(only := self.nodes[0], OperationNode) and self._all_enter(only.engine):
            return flat(self.program, self.engines, only.engine)
        inputs = tuple(tuple(self.entries[i.slot.index]) for i in self.program.inputs)
        schedule = Schedule(tuple(self.nodes), tuple(e.id for e in self.engines), inputs, outputs)
        preflight(schedule)
        return schedule

    def _operation(self, part: Part) -> None:
        brought = [self._bring(slot, part.engine, f"read by {_reader(part, k)}") for k, slot in enumerate(part.reads)]
        dependencies = [self._after(number, part.engine) for number in brought]
        # What was brought from a node came after it: no barrier is needed to wait for that node.
        seen = {d for n in dependencies if n >= 0 for d in self.nodes[n].dependencies}
        sizes = {self.measurers[s] for s in part.sizes if s in self.measurers} - seen
        dependencies += [self._after(number, part.engine) for number in sorted(sizes)]
        ordered = any(i.op.is_ordered(i.params) for i in map(self.program.instructions.__getitem__, part.numbers))
        if ordered and self.last_effect is not None and self.last_effect not in seen:
            dependencies.append(self._after(self.last_effect, part.engine))
        number = self._add(OperationNode(part.engine, part, _real(dependencies)))
        for slot in part.writes:
            self._made(slot, part.engine, number)
        self.measurers.update((leaf, number) for leaf in part.measured)
        if ordered:
            self.last_effect = number

    def _after(self, before: int, engine: int) -> int:
        """A node of this engine's domain that is done after ``before``; −1 for nothing to wait for."""
        if before < 0 or self.nodes[before].engine == engine:
            return before
        if (before, engine) not in self.barriers:
            self.barriers[before, engine] = self._add(BarrierNode(engine, (before,)))
        return self.barriers[before, engine]

    def _collective(self, instruction: Instruction) -> None:
        places = tuple(self._meeting(instruction, p) for p in instruction.params["places"])
        slots = [s.index for s in instruction.inputs if isinstance(s, Slot)]
        dependencies = [self._bring(s, p, f"read by {instruction.op.name}") for s, p in zip(slots, places, strict=True)]
        number = self._add(CollectiveNode(instruction, places, places[0], _real(dependencies)))
        for slot, place in zip(instruction.outputs, places, strict=True):
            self._made(slot.index, place, number)

    def _meeting(self, instruction: Instruction, place: str) -> int:
        """Where the operand and the result of this engine lie during a collective: in memory that the host reaches. For
        a device this is the first engine of the host; transfers bring values there and back."""
        engine = [e.id for e in self.engines].index(place)
        if self.engines[engine].is_host:
            return engine
        host = next((k for k, e in enumerate(self.engines) if e.is_host), None)
        if host is None:
            raise NoEligibleEngineError(
                f"{instruction.op.name}: {place} has memory of its own; an engine of the host among the targets, where "
                f"engines meet, is needed{at(instruction.line)}"
            )
        return host

    def _made(self, slot: int, engine: int, number: int) -> None:
        self.at[slot, engine], self.homes[slot] = number, engine
        self.places[slot] = [engine]

    def _bring(self, slot: int, engine: int, reason: str) -> int:
        """Have ``slot`` on ``engine``; the node that brings it, −1 for an input that enters there."""
        if (slot, engine) in self.at:
            return self.at[slot, engine]
        if slot in self.entries and self._enters(slot, engine):
            return -1
        source, provider = self._route(slot, engine, reason)
        number = self.at[slot, engine] = self._transfer(slot, source, engine, reason, provider)
        self.places.setdefault(slot, []).append(engine)
        return number

    def _enters(self, slot: int, engine: int) -> bool:
        if not self._takes(slot, engine):
            return False
        if engine not in self.entries[slot]:
            self.entries[slot].append(engine)
            self.places.setdefault(slot, []).append(engine)
        self.at[slot, engine] = -1
        return True

    def _takes(self, slot: int, engine: int) -> bool:
        """Whether an input can be used on an engine as it comes."""
        if slot in self.held:
            return self.held[slot] == engine
        return self.engines[engine].accepts(self.types[slot])

    def _all_enter(self, engine: int) -> bool:
        return all(self._takes(i.slot.index, engine) for i in self.program.inputs)

    def _route(self, slot: int, engine: int, reason: str) -> tuple[int, TransferProvider]:
        """Where to bring a slot from, and what brings it: the first engine that has it, or that it may enter, and from
        which a transfer leads to ``engine``."""
        has = list(self.places.get(slot, ()))
        if slot in self.entries:
            others = [k for k in range(len(self.engines)) if k not in has and self._takes(slot, k)]
            has += others
        there = self._endpoint(engine)
        for source in has:
            provider = self.routes.get((self._endpoint(source), there))
            if provider is not None:
                if (slot, source) not in self.at:
                    self._enters(slot, source)
                return source, provider
        if not has:
            raise InputIngressError(
                f"prepare: {self._name(slot)} cannot enter {there}, where it is {reason}; an engine that takes it, "
                f"with a transfer from there, is needed"
            )
        lies = " and ".join(str(self._endpoint(k)) for k in has)
        raise MissingTransferError(
            f"prepare: {self._name(slot)} lies on {lies} and is {reason} on {there}; a transfer between them is needed "
            f"(register_transfer){at(self.lines.get(slot))}"
        )

    def _endpoint(self, engine: int) -> Endpoint:
        return Endpoint(self.engines[engine].id, self.engines[engine].storage_classes[0])

    def _name(self, slot: int) -> str:
        return next((f"input {i.name}" for i in self.program.inputs if i.slot.index == slot), f"s{slot}")

    def _transfer(self, slot: int, source: int, engine: int, reason: str, provider: TransferProvider) -> int:
        kind = self.types[slot]
        moved = mul(product(kind.shape), kind.dtype.itemsize)
        transfer = Transfer(slot, self._endpoint(source), self._endpoint(engine), moved, reason, self.lines.get(slot))
        return self._add(TransferNode(slot, source, engine, transfer, provider, _real([self.at[slot, source]])))

    def _output(self, source: Source) -> int:
        if not isinstance(source, Slot) or source.index not in self.homes:
            return -1
        if self.results is None:
            return self.homes[source.index]
        self._bring(source.index, self.results, "returned")
        return self.results

    def _add(self, node: Node) -> int:
        self.nodes.append(node)
        return len(self.nodes) - 1


def _real(dependencies: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({d for d in dependencies if d >= 0}))


def preflight(schedule: Schedule) -> None:
    """EventError where a node waits for a later one, an operation for another domain, or a transfer stays at home."""
    for number, node in enumerate(schedule.nodes):
        if any(not 0 <= d < number for d in node.dependencies):
            raise EventError(f"schedule: node {number} waits for {node.dependencies}; earlier nodes are needed")
        if isinstance(node, OperationNode):
            foreign = [d for d in node.dependencies if schedule.nodes[d].engine != node.engine]
            if foreign:
                raise EventError(f"schedule: node {number} waits for node {foreign[0]} of another domain")
        if isinstance(node, TransferNode) and node.source == node.engine:
            raise EventError(f"schedule: node {number} transfers s{node.slot} to where it is")


def flat(program: ExecProgram, engines: Sequence[Engine], engine: int) -> Schedule:
    """The schedule of a program that runs whole on one engine."""
    part = whole(program, engine)
    homes = {s.index for i in program.instructions for s in i.outputs}
    outputs = tuple(engine if isinstance(o, Slot) and o.index in homes else -1 for o in program.outputs)
    nodes = (OperationNode(engine, part, ()),)
    return Schedule(nodes, tuple(e.id for e in engines), ((engine,),) * len(program.inputs), outputs)


def text(schedule: Schedule) -> str:
    """One line a node: what, where, after what."""
    lines = ["schedule on " + ", ".join(schedule.domains)]
    for number, node in enumerate(schedule.nodes):
        after = f"  after {', '.join(map(str, node.dependencies))}" if node.dependencies else ""
        where = schedule.domains[node.engine]
        lines.append(f"  {number:>3} {where:<8} {kind_of(node):<10} {describe(node)}{after}".rstrip())
    return "\n".join(lines)


def kind_of(node: Node) -> str:
    """``operation``, ``transfer``, ``collective`` or ``barrier``."""
    return type(node).__name__.removesuffix("Node").lower()


def describe(node: Node) -> str:
    """A node in a few words."""
    match node:
        case OperationNode(part=part):
            names = list(dict.fromkeys(i.op.name for i in part.program.instructions))
            shown = ", ".join(names[:4]) + (", …" if len(names) > 4 else "")
            count = len(part.numbers)
            return f"{count} instruction{'s' if count != 1 else ''} ({shown})"
        case TransferNode(transfer=transfer):
            return str(transfer)
        case CollectiveNode(instruction=instruction):
            return f"{instruction.op.name} over {len(instruction.outputs)} engines"
        case BarrierNode():
            return "waits for another engine"
        case _:
            assert_never(node)


def _in_short(node: Node) -> str:
    """For a picture, where arrows say the rest."""
    match node:
        case OperationNode(part=part):
            return ", ".join(dict.fromkeys(i.op.name for i in part.program.instructions))
        case TransferNode(transfer=transfer):
            return f"s{transfer.slot} from {transfer.source.engine}, {transfer.bytes} bytes"
        case CollectiveNode() | BarrierNode():
            return describe(node)
        case _:
            assert_never(node)


def _reader(part: Part, position: int) -> str:
    """The first operation of a part that reads its input at ``position``."""
    slot = part.program.inputs[position].slot
    return next(i.op.name for i in part.program.instructions if slot in i.inputs)
