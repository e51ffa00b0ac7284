"""The executor: a prepared schedule, its engines and a run's inputs go in, outputs come out.

Each engine is an event domain. Nodes are enqueued in order, then all domains are drained; only then is storage let go
and an error raised: the first node's in schedule order, the others' as notes.
"""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import Any, assert_never

import numpy as np

from tenferro.engines import recording
from tenferro.engines.engine import Engine, RunResult, executed
from tenferro.engines.errors import (
    ArrivalError,
    BrokenEngineError,
    EngineFailure,
    EventError,
    TransferBudgetError,
)
from tenferro.engines.events import DomainRun, Token, combined
from tenferro.engines.values import input_sizes, scalar_array
from tenferro.lowering.exec_program import Slot, Source
from tenferro.runtime.prepared import Prepared
from tenferro.runtime.schedule import BarrierNode, CollectiveNode, Node, OperationNode, TransferNode
from tenferro.runtime.transfers import arrived, known_bytes
from tenferro.tracer.dims import Leaf
from tenferro.tracer.program import DimScalar, Literal
from tenferro.tracer.records import dataclass

Array = np.ndarray[Any, Any]


@dataclass
class _Run:
    """One execution. ``values``: (slot, engine) → what lies there; ``readers``: how many nodes have yet to read it."""

    prepared: Prepared
    engines: Sequence[Engine]
    sizes: dict[Leaf, int]
    readers: dict[tuple[int, int], int]
    values: dict[tuple[int, int], Any] = field(default_factory=dict)
    measured: dict[Leaf, int] = field(default_factory=dict)
    moved: int = 0
    cancelled: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)  # transfers read in another domain than their source's

    def launch(self, number: int, node: Node) -> None:
        """What a node does, on its domain's thread."""
        if self.cancelled:
            return
        try:
            self._launch(number, node)
        except Exception:
            raise
        except BaseException:  # an interrupt is not this node's alone
            self.cancelled = True
            raise

    def _launch(self, number: int, node: Node) -> None:
        match node:
            case OperationNode():
                self._operation(number, node)
            case TransferNode():
                self._transfer(node)
            case CollectiveNode():
                self._collective(node)
            case BarrierNode():
                pass
            case _:
                assert_never(node)

    def _operation(self, number: int, node: OperationNode) -> None:
        part, engine = node.part, self.engines[node.engine]
        inputs = [self._read(slot, node.engine) for slot in part.reads]
        unit = self.prepared.units[number]
        assert unit is not None
        given = [*inputs, *(self.sizes[x] for x in part.sizes)]
        name = self.prepared.program.name
        result = recording.recorded_run(unit, engine, name, given) if recording.recorders else unit.run(given)
        self.sizes.update(result.runtime)
        self.measured.update(result.runtime)
        for slot, value in zip(part.writes, result.outputs, strict=True):
            self._publish(slot, node.engine, engine, value)

    def _transfer(self, node: TransferNode) -> None:
        sent = self._read(node.slot, node.source)
        self._count_bytes(sent)
        source, destination = self.engines[node.source], self.engines[node.engine]
        start = recording.now()
        got = node.provider.transfer(sent, source, destination)
        if recording.recorders and not destination.is_host:
            destination.synchronize()
        name, size, known = self.prepared.program.name, sent.nbytes, node.transfer
        recording.transferred(start, name, source.id, destination.id, size, known.reason, known.line)
        self.values[node.slot, node.engine] = arrived(node.transfer, sent, got, destination)

    def _count_bytes(self, sent: Array) -> None:
        with self.lock:
            self.moved += sent.nbytes
        allowed = self.prepared.policy.max_transfer_bytes
        if allowed is not None and self.moved > allowed:
            raise TransferBudgetError(f"run: {self.moved} bytes cross between engines; {allowed} are allowed")

    def _collective(self, node: CollectiveNode) -> None:
        slots = [s.index for s in node.instruction.inputs if isinstance(s, Slot)]
        operands = [self._read(s, place) for s, place in zip(slots, node.places, strict=True)]
        from tenferro.engines.reference import evaluated

        params = {k: evaluated(v, self.sizes) for k, v in node.instruction.params.items()}
        start = recording.now()
        results = executed(node.instruction, operands, params, {}, self.sizes)
        name, op, where = self.prepared.program.name, node.instruction.op.name, self.engines[node.engine].id
        recording.called(start, name, where, op, node.instruction.line, operands, results)
        for slot, place, value in zip(node.instruction.outputs, node.places, results, strict=True):
            self._publish(slot.index, place, self.engines[place], value)

    def _read(self, slot: int, engine: int) -> Any:
        key = slot, engine
        with self.lock:
            value = self.values[key]
            self.readers[key] -= 1
            if self.readers[key] <= 0:
                del self.values[key]
        return value

    def _publish(self, slot: int, place: int, engine: Engine, value: Any) -> None:
        if not engine.holds(value):
            raise ArrivalError(f"run: s{slot} is not in the memory of {engine.id}, which made it")
        self.values[slot, place] = value

    # Before and after.

    def admit(self, inputs: Sequence[Any]) -> None:
        """Inputs to where they enter; who reads what how often."""
        program, schedule = self.prepared.exec_program, self.prepared.schedule
        for declared, places, value in zip(program.inputs, schedule.inputs, inputs, strict=True):
            array = np.asarray(value, declared.type.dtype) if isinstance(value, int) else value
            for place in places:
                if not self.engines[place].holds(array):
                    raise ArrivalError(f"run: input {declared.name} is not in the memory of {self.engines[place].id}")
                self.values[declared.slot.index, place] = array

    def check_budget(self) -> None:
        """TransferBudgetError where more would cross than may, as far as the inputs' sizes tell."""
        allowed = self.prepared.policy.max_transfer_bytes
        if allowed is None:
            return
        expected = known_bytes(self.prepared.schedule.transfers, self.sizes)
        if expected > allowed:
            listed = "; ".join(str(t) for t in self.prepared.schedule.transfers)
            raise TransferBudgetError(f"run: {expected} bytes cross between engines; {allowed} are allowed: {listed}")

    def output(self, source: Source, home: int, inputs: Sequence[Any]) -> Array:
        match source:
            case Slot(index=index) if home >= 0:
                found: Array = self.values[index, home]
                return found
            case Slot(index=index):
                position = next(k for k, i in enumerate(self.prepared.exec_program.inputs) if i.slot.index == index)
                given: Array | int = inputs[position]
                return np.asarray(given) if isinstance(given, int) else given
            case Literal() | DimScalar():
                return scalar_array(source, self.sizes)


def execute(prepared: Prepared, engines: Sequence[Engine], inputs: Sequence[Any]) -> RunResult:
    """Run a schedule of several nodes. Raises what a node raised, when nothing runs any more."""
    run = _Run(prepared, engines, input_sizes(inputs), dict(prepared.readers))
    run.check_budget()
    failures: list[BaseException] = []
    try:
        run.admit(inputs)
        if all(e.runs_on_caller for e in engines) and (prepared.schedule.is_sequential or _calls_host(prepared)):
            _one_by_one(run, failures)
        else:
            _carry_out(run, failures)
        if failures:
            raise combined(failures)
        outputs = zip(prepared.exec_program.outputs, prepared.schedule.outputs, strict=True)
        return RunResult([run.output(o, home, inputs) for o, home in outputs], run.measured)
    finally:
        failures.clear()  # they hold frames that hold this list: arrays would live until the collector comes
        run.values.clear()


def _calls_host(prepared: Prepared) -> bool:
    """Whether functions of the user's take part, which are called on the caller's thread."""
    return any(i.op.calls_host(i.params) for i in prepared.exec_program.instructions)


def _one_by_one(run: _Run, failures: list[BaseException]) -> None:
    """Every node on the caller's thread: where none may run beside another, handing work to engines' threads and back
    would only cost (some 20 µs a node)."""
    for number, node in enumerate(run.prepared.schedule.nodes):
        try:
            run.launch(number, node)
        except BaseException as failure:
            failures.append(_judged(run, node.engine, failure))
            return


def _carry_out(run: _Run, failures: list[BaseException]) -> None:
    """Enqueue every node and wait until nothing runs. ``failures`` gets what went wrong: an interrupt first, then
    nodes' failures in schedule order, then those of draining."""
    domains: dict[int, DomainRun] = {}
    tokens: list[Token] = []
    try:
        for number, node in enumerate(run.prepared.schedule.nodes):
            tokens.append(_enqueued(run, domains, tokens, number, node))
        for token in tokens:
            token.wait()
    except BaseException as failure:
        run.cancelled = True
        failures.append(failure)
    drained = _drained(domains)
    for node, token in zip(run.prepared.schedule.nodes, tokens, strict=False):  # an interrupt leaves fewer tokens
        if token.failure is not None:
            failures.append(_judged(run, node.engine, token.failure))
    known = {id(t.failure) for t in tokens}
    failures += [_judged(run, place, f) for place, f in drained if id(f) not in known]
    drained.clear()
    for token in tokens:
        token.forget()


def _enqueued(run: _Run, domains: dict[int, DomainRun], tokens: Sequence[Token], number: int, node: Node) -> Token:
    """A node's token; its engine's run begins with its first node."""
    domain = domains.get(node.engine)
    if domain is None:
        domain = domains[node.engine] = _begun(run.engines[node.engine])
    bridge = not isinstance(node, OperationNode)
    launch = partial(contextvars.copy_context().run, run.launch, number, node)
    token = domain.enqueue([tokens[d] for d in node.dependencies], launch, bridge)
    if token.origin != domain.domain:
        raise EventError(f"run: a token of {token.origin} for a node of {domain.domain}")
    return token


def _begun(engine: Engine) -> DomainRun:
    run = engine.driver().begin_run(engine.id)
    if run.domain != engine.id:
        raise EventError(f"run: engine {engine.id} began a run of {run.domain}")
    return run


def _drained(domains: dict[int, DomainRun]) -> list[tuple[int, BaseException]]:
    """Wait until nothing runs; what the drains tell, with the place of their engine."""
    found: list[tuple[int, BaseException]] = []
    for place, domain in domains.items():
        try:
            found += [(place, failure) for failure in domain.drain()]
        except Exception as failure:  # one domain's trouble must not keep the others from being drained
            found.append((place, failure))
    return found


def _judged(run: _Run, place: int, failure: BaseException) -> BaseException:
    """The failure as callers see it: one under which native code failed breaks the engine that it names, by default
    the one whose work it was."""
    if not isinstance(failure, EngineFailure):
        return failure
    engine = next((e for e in run.engines if e.id == failure.engine_id), run.engines[place])
    engine.broken = str(failure)
    broke = BrokenEngineError(f"run: engine {engine.id!r} broke: {failure}")
    broke.__cause__ = failure
    return broke
