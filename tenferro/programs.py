"""The programs of one jitted function: a bound call in, the program that serves it out, traced now if there is none.

Programs are looked up by structure, dtypes, ranks, static values and engine; among those of one key the first whose
guards hold serves. At most ``MAX_PROGRAMS`` are kept, the least recently used one goes.
"""

from __future__ import annotations

import sys
import threading
import time
import warnings
from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tenferro import trace_cache
from tenferro.array import wrap
from tenferro.compiled import Compiled, place_of
from tenferro.engines import recording
from tenferro.engines.engine import Engine
from tenferro.explain import CacheInfo, Explanation, TraceRecord, describe, guard_text, reason_for
from tenferro.naming import not_on_one
from tenferro.runtime import default_runtime
from tenferro.tracer.capture_guards import Captures
from tenferro.tracer.config import SHOW_STAGES, config
from tenferro.tracer.errors import LoweringError, RecompileError, RecompileWarning
from tenferro.tracer.forking import Renewed
from tenferro.tracer.lines import at, user_frame, user_line
from tenferro.tracer.op import Collective
from tenferro.tracer.program import SemanticProgram
from tenferro.tracer.records import dataclass
from tenferro.tracer.result import TraceResult
from tenferro.tracer.signature import BoundCall
from tenferro.tracer.trace import is_tenferro_array

if TYPE_CHECKING:
    from tenferro.lowered import Lowered
    from tenferro.ready import ReadyCalls
    from tenferro.shortcuts import Shortcuts

MAX_PROGRAMS = 64
WARN_FROM = 8


@dataclass(slots=True)
class Found:
    """A program for a call, and its inputs in the program's order."""

    compiled: Compiled
    inputs: list[Any]
    originals: list[Any]
    wrapped: bool
    identity: str = ""  # of its trace on disk, where the run is to be kept there too

    def run(self) -> Any:
        """The call's result."""
        result = self.compiled.run(self.inputs, self.originals, self.wrapped)
        if self.identity and not self.wrapped:
            from tenferro import ready

            ready.keep(self.identity, self.compiled, self.inputs)
        return result

    def lowered(self) -> Lowered:
        """The stages of the program, for the sizes of the call."""
        return self.compiled.lowered(self.inputs, self.originals)


class Programs:
    """Thread-safe: one thread traces, the others wait and take what it made.

    ``engines``: where the function may run, the preferred one first; empty for wherever its arguments are.
    ``around``: what is traced in the function's place is made of it by this.
    ``eager``: an operation on tn.Array; it has no captures, no lines of its own, and nothing to warn about."""

    def __init__(
        self,
        function: Callable[..., Any],
        name: str,
        max_compiles: int | None,
        eager: bool,
        engines: tuple[str, ...] = (),
        around: Callable[[Callable[..., Any]], Callable[..., Any]] | None = None,
    ) -> None:
        self.evictions = 0
        self.served = 0  # calls, the native ones not counted
        self.shortcuts: Shortcuts | None = None
        self._held = Renewed(threading.RLock)
        self._function = function
        self._name = name
        self._max_compiles = max_compiles
        self._eager = eager
        self._engines = engines
        self._around = around
        self._kept: dict[Hashable, tuple[Compiled, ...]] = {}
        self._described: dict[Hashable, dict[str, str]] = {}
        self._traces: list[TraceRecord] = []
        self._adopted: dict[Hashable, list[int]] = {}  # key → numbers of the records whose programs are still on disk

    @property
    def lock(self) -> Any:
        """One trace at a time; entered again by a function that calls itself."""
        return self._held.lock

    def find(self, call: BoundCall) -> Found:
        """The program for this call. RecompileError where ``max_compiles`` forbids the trace; errors of the trace pass
        through, and nothing is kept of it then."""
        engine = _engine_of(call, self._name, self._engines)
        key = (call.key, engine.id)
        found = self._match(key, call)
        if found is None:
            with self.lock:
                found = self._match(key, call)
                if found is None:
                    return self._trace(key, call, engine)
        self.use(found.compiled)
        return found

    def adopt(self, ready: ReadyCalls) -> None:
        """Go on where calls that needed no program leave off."""
        self.served += ready.calls
        for trace in ready.used:
            number = len(self._traces) + 1
            reason = "first call" if number == 1 else "its trace was on disk"
            self._traces.append(
                TraceRecord(number, reason, None, trace.load_ms, operations=trace.operations, from_disk=True)
            )
            self._adopted.setdefault((trace.key, ready.engine), []).append(number)

    @property
    def hits(self) -> int:
        """Calls served."""
        return self.served + (0 if self.shortcuts is None else self.shortcuts.hits)

    def use(self, compiled: Compiled) -> None:
        """Count a call that the program serves."""
        self.served += 1
        compiled.used = self.served

    def _match(self, key: Hashable, call: BoundCall) -> Found | None:
        for compiled in self._kept.get(key, ()):
            found = _fit(compiled, call)
            if found is not None and compiled.guard(found.inputs):
                return found
        return None

    def _trace(self, key: Hashable, call: BoundCall, engine: Engine) -> Found:
        """A new program: the one that another process has kept on disk, else the function is traced."""
        reason, line = reason_for(call, self._kept.get(key, ()), self._described)
        adopted = self._adopted.get(key)
        if adopted and (made := self._from_disk(key, call, engine, self._traces[adopted[0] - 1])) is not None:
            self._keep(key, call, made[0].compiled, made[1])
            self.use(made[0].compiled)
            return made[0]
        self._adopted.pop(key, None)
        if self._max_compiles is not None and len(self._traces) >= self._max_compiles:
            raise RecompileError(
                f"{self._name}: {reason}{at(line)}; max_compiles={self._max_compiles} allows no further "
                f"trace{at(user_line())}"
            )
        record = TraceRecord(len(self._traces) + 1, reason, line)
        made = None if self._eager else self._from_disk(key, call, engine, record)
        found, record = made if made is not None else self._from_trace(key, call, engine, record)
        self._keep(key, call, found.compiled, record)
        if record.from_disk:  # no trace was needed
            self.use(found.compiled)
        if not self._eager:
            self._tell(found, record)
        return found

    def _from_disk(
        self, key: Hashable, call: BoundCall, engine: Engine, record: TraceRecord
    ) -> tuple[Found, TraceRecord] | None:
        started = time.perf_counter()
        loaded = trace_cache.entry(self._function, self._around, call, key).load(call)
        if loaded is None:
            return None
        record = replace(record, from_disk=True, trace_ms=(time.perf_counter() - started) * 1e3)
        made = self._prepared(call, engine, loaded.result, loaded.captures, record)
        if made is not None:
            made[0].identity = loaded.identity
        return made

    def _from_trace(
        self, key: Hashable, call: BoundCall, engine: Engine, record: TraceRecord
    ) -> tuple[Found, TraceRecord]:
        from tenferro import tracing

        start, started = recording.now(), time.perf_counter()
        outside = None
        if self._eager:
            result, reads = tracing.traced_alone(self._function, self._name, call)
        else:
            result, reads, outside = tracing.traced(self._function, self._name, self._around, call)
        record = replace(record, trace_ms=(time.perf_counter() - started) * 1e3)
        line = record.line or recording.callers_line()
        recording.traced(start, self._name, record.reason, line, len(result.program.operations))
        made = self._prepared(call, engine, result, reads, record)
        if made is None:
            raise LoweringError(f"{self._name}: a captured array was replaced while the function was traced")
        found, record = made
        if outside is not None:
            place = trace_cache.entry(self._function, self._around, call, key)
            kept = place.store(call, result, reads, outside)
            found.identity, record = kept.identity, replace(record, unkept=kept.unkept)
        return found, record

    def _prepared(
        self, call: BoundCall, engine: Engine, result: TraceResult, reads: Captures, record: TraceRecord
    ) -> tuple[Found, TraceRecord] | None:
        """The program made ready, and the record of it; None where it doesn't fit the call."""
        started = time.perf_counter()
        runtime = default_runtime()
        given = {**{k: leaf.value for k, leaf in enumerate(call.dynamic)}, **dict(result.captured)}
        places = tuple([place_of(given.get(k)) for k in range(len(result.program.inputs))])
        wrapped = call.wrapped or any(is_tenferro_array(array) for _, array in result.captured)
        targets = targets_of(self._name, engine, self._engines[1:], result.program)
        compiled = Compiled(result, reads, runtime, targets, wrap, not self._eager, places, wrapped)
        compiled.offer([k for k, leaf in enumerate(call.dynamic) if leaf.donated])
        prepare_ms = (time.perf_counter() - started) * 1e3
        found = _fit(compiled, call)
        if found is None:
            return None
        guards = [guard_text(g, compiled.program) for g in compiled.program.guards]
        guards += [g.text + at(g.line) for g in reads.guards if g.is_shown]
        count = len(compiled.program.operations)
        return found, replace(record, prepare_ms=prepare_ms, operations=count, guards=tuple(guards))

    def _keep(self, key: Hashable, call: BoundCall, compiled: Compiled, record: TraceRecord) -> None:
        self._evict()
        compiled.used, compiled.number = self.served, record.number
        self._kept[key] = (compiled, *self._kept.get(key, ()))
        self._described[key] = describe(call)
        if record.number <= len(self._traces):
            self._traces[record.number - 1] = record
            self._adopted[key].remove(record.number)
        else:
            self._traces.append(record)

    def _tell(self, found: Found, record: TraceRecord) -> None:
        """Print the stages that ``TENFERRO_SHOW`` names, and warn of frequent traces."""
        for stage in (s for s in SHOW_STAGES if s in config().show):
            print(f"-- {self._name}: {stage}", found.lowered().as_text(stage), sep="\n", file=sys.stderr)
        if record.number >= WARN_FROM:
            loaded = sum(t.from_disk for t in self._traces)
            times = f"traced {record.number - loaded} times" + (f", {loaded} programs from disk" if loaded else "")
            warnings.warn(
                f"{self._name}: {times}; this time because {record.reason}{at(record.line)}",
                RecompileWarning,
                stacklevel=_user_depth(),
            )

    def _evict(self) -> None:
        every = [(c.used, key, c) for key, group in self._kept.items() for c in group]
        if len(every) < MAX_PROGRAMS:
            return
        for compiled in () if self.shortcuts is None else self.shortcuts.used():
            compiled.used = self.served
        every = [(c.used, key, c) for _, key, c in every]
        _, key, oldest = min(every, key=lambda item: item[0])
        self.evictions += 1
        self._traces[oldest.number - 1] = self._record(oldest)
        left = tuple(c for c in self._kept[key] if c is not oldest)
        if left:
            self._kept[key] = left
        else:
            del self._kept[key], self._described[key]

    def explain(self) -> Explanation:
        """For each trace: what was new, at which line, and what it cost."""
        with self.lock:
            kept = {c.number: c for group in self._kept.values() for c in group}
            traces = tuple(self._record(kept[t.number]) if t.number in kept else t for t in self._traces)
            return Explanation(self._name, traces, len(kept) + self._waiting, self.hits)

    @property
    def _waiting(self) -> int:
        """Programs that calls have been served by without their being made ready here."""
        return sum(map(len, self._adopted.values()))

    def _record(self, compiled: Compiled) -> TraceRecord:
        """The program's record with what has been compiled so far."""
        kernels = sum(u.kernels for u in compiled.prepared.executables())
        return replace(self._traces[compiled.number - 1], compile_ms=compiled.compile_ms, kernels=kernels)

    def cache_info(self) -> CacheInfo:
        """Programs kept, traces made, calls served, and the machine code behind them."""
        with self.lock:
            kept = [u for group in self._kept.values() for c in group for u in c.prepared.executables()]
            programs = sum(map(len, self._kept.values())) + self._waiting
            kernels, size = sum(e.kernels for e in kept), sum(e.kernel_bytes for e in kept)
            loaded = sum(t.from_disk for t in self._traces)
            return CacheInfo(programs, len(self._traces) - loaded, self.hits, kernels, size, loaded)


def _fit(compiled: Compiled, call: BoundCall) -> Found | None:
    """The call's inputs for this program, before its shape guards are asked; None where its captures have changed."""
    late = compiled.late(call.receiver)
    if late is None:
        return None
    inputs = [*(leaf.value for leaf in call.dynamic), *late.inputs]
    originals = [*(leaf.original for leaf in call.dynamic), *late.originals]
    return Found(compiled, inputs, originals, call.wrapped or late.wrapped)


def targets_of(name: str, engine: Engine, others: Sequence[str], program: SemanticProgram) -> tuple[Engine, ...]:
    """The engine of a call of a function, the others that it was given, and those that operations were put on."""
    names = dict.fromkeys([*others, *(o.place for o in program.operations if o.place)])
    for operation in program.operations:
        if isinstance(operation.op.form, Collective):
            names.update(dict.fromkeys(operation.params["places"]))
    names.pop(engine.id, None)
    runtime = default_runtime()
    targets = [engine, *(runtime.engine(n, name) for n in names)]
    if not any(e.is_host for e in targets):  # arrays come from the host, and some functions run nowhere else
        targets += [e for e in runtime.engines() if e.is_host][:1]
    return tuple(targets)


def _engine_of(call: BoundCall, name: str, chosen: tuple[str, ...]) -> Engine:
    """The engine that the function was given, else the one that holds the tn.Array arguments, else the default one."""
    if chosen:
        return default_runtime().engine(chosen[0], name)
    engines = {leaf.original._engine for leaf in call.dynamic if leaf.wrapped}
    if len(engines) > 1:
        raise not_on_one(name, engines)
    return engines.pop() if engines else default_runtime().engines()[0]


def _user_depth() -> int:
    """The stacklevel at which a warning of the caller points at the user's own line."""
    target, depth = user_frame(), 1
    frame = sys._getframe(1)
    while frame is not target and frame.f_back is not None:
        frame, depth = frame.f_back, depth + 1
    return depth
