"""Registered engines in, prepared programs and their results out.

A ``Runtime`` holds an immutable snapshot of its configuration, numbered by an epoch. Reconfiguration publishes a new
snapshot or fails whole; what was prepared under an older one is stale.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenferro.engines.engine import Engine, RunResult
from tenferro.runtime.cache import CacheStats, PreparedCache
from tenferro.runtime.prepared import (
    EngineTarget,
    InputSignature,
    Prepared,
    PreparedKey,
    check_signature,
    target_of,
)
from tenferro.tracer.config import Config, config
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.program import SemanticProgram

_runtime_ids = itertools.count(1)
_registration_ids = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Registration:
    """An engine under an identity of its own: registering the same name again is another registration."""

    engine: Engine
    identity: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One configuration. It never changes; readers need no lock."""

    epoch: int
    registrations: tuple[Registration, ...]

    def find(self, engine_id: str) -> Registration | None:
        """The registration of this name."""
        return next((r for r in self.registrations if r.engine.id == engine_id), None)


class RuntimeBuilder:
    """Collects a configuration; ``build`` publishes it."""

    def __init__(self) -> None:
        self._engines: list[Engine] = []
        self._max_entries = 128

    def register_engine(self, engine: Engine) -> RuntimeBuilder:
        """Add an engine. ValueError if its id is taken."""
        if any(e.id == engine.id for e in self._engines):
            raise ValueError(f"register_engine: id {engine.id!r} is registered already; ids must differ")
        self._engines.append(engine)
        return self

    def max_prepared(self, entries: int) -> RuntimeBuilder:
        """How many prepared programs are kept."""
        self._max_entries = entries
        return self

    def build(self) -> Runtime:
        """The runtime. ValueError without an engine."""
        if not self._engines:
            raise ValueError("build: no engine is registered; at least one is needed")
        return Runtime(tuple(Registration(e, next(_registration_ids)) for e in self._engines), self._max_entries)


class Runtime:
    """Prepares programs for engines and runs them. Made by ``Runtime.builder()``; thread-safe."""

    def __init__(self, registrations: tuple[Registration, ...], max_entries: int) -> None:
        self.id = next(_runtime_ids)
        self._snapshot = Snapshot(1, registrations)
        self._lock = threading.Lock()
        self._cache: PreparedCache[Prepared] = PreparedCache(max_entries)

    @staticmethod
    def builder() -> RuntimeBuilder:
        """A builder without engines."""
        return RuntimeBuilder()

    @property
    def epoch(self) -> int:
        """The number of the configuration in force."""
        return self._snapshot.epoch

    def engines(self) -> tuple[Engine, ...]:
        """The registered engines, in order of registration."""
        return tuple(r.engine for r in self._snapshot.registrations)

    def engine(self, engine_id: str) -> Engine:
        """The engine of this name. LoweringError lists the names there are."""
        return self._find(self._snapshot, engine_id).engine

    def _find(self, snapshot: Snapshot, engine_id: str) -> Registration:
        found = snapshot.find(engine_id)
        if found is None:
            known = ", ".join(r.engine.id for r in snapshot.registrations)
            raise LoweringError(f"runtime: engine {engine_id!r} is not registered; one of {known} is needed")
        return found

    def reconfigure(self, edit: Callable[[list[Engine]], None]) -> int:
        """``edit`` changes a list of the engines; the result becomes the configuration, and the new epoch is returned.

        Nothing changes where ``edit`` raises or the list is unfit (ValueError), nor where another thread has
        reconfigured meanwhile (LoweringError). No change keeps the epoch."""
        before = self._snapshot
        engines = [r.engine for r in before.registrations]
        edit(engines)
        if not engines or len({e.id for e in engines}) != len(engines):
            raise ValueError("reconfigure: engines must be at least one, with ids that differ")
        kept = {id(r.engine): r for r in before.registrations}
        after = tuple(kept.get(id(e)) or Registration(e, next(_registration_ids)) for e in engines)
        with self._lock:
            if self._snapshot is not before:
                raise LoweringError("reconfigure: another thread has reconfigured meanwhile; nothing was changed")
            if after != before.registrations:
                self._snapshot = Snapshot(before.epoch + 1, after)
                self._cache.clear()
        return self._snapshot.epoch

    def prepare(
        self,
        program: SemanticProgram,
        inputs: InputSignature,
        targets: Sequence[EngineTarget],
        settings: Config | None = None,
    ) -> Prepared:
        """Lower the program and make it executable on the target; from the cache where this was done before.

        The schedule is the coalesced one: a program runs whole on one engine, so ``targets`` has one entry.
        LoweringError for an unknown or several targets; ShapeError, DtypeError where ``inputs`` are not the program's.
        """
        snapshot = self._snapshot
        if len(targets) != 1:
            raise LoweringError(f"prepare: {len(targets)} targets; one is needed, a program runs whole on one engine")
        (target,) = targets
        registration = self._find(snapshot, target.engine_id)
        if target_of(registration.engine) != target:
            raise LoweringError(
                f"prepare: engine {target.engine_id!r} is a {type(registration.engine).__name__}; "
                f"the target asks for a {target.engine_class.__name__}"
            )
        check_signature(program, inputs)
        used = settings if settings is not None else config()
        key = PreparedKey(program, inputs, target, registration.identity, used.code_key())
        prepared = self._cache.get(key, lambda: self._make(snapshot, program, inputs, registration.engine, used))
        if self._snapshot.epoch != snapshot.epoch:
            raise LoweringError("prepare: the runtime was reconfigured meanwhile; prepare again")
        return prepared

    def _make(
        self, snapshot: Snapshot, program: SemanticProgram, inputs: InputSignature, engine: Engine, settings: Config
    ) -> Prepared:
        from tenferro.lowering import lower

        plan = lower(program, settings)
        executable = engine.compile(plan)
        return Prepared(self.id, snapshot.epoch, program, inputs, target_of(engine), plan, executable)

    def run(
        self, engines: Sequence[Engine], prepared: Prepared, inputs: Sequence[np.ndarray[Any, Any] | int]
    ) -> RunResult:
        """Run on engines that the caller holds, one per target, in order.

        LoweringError where ``prepared`` is stale or another runtime's, or the engines are not its targets or broken."""
        if prepared.epoch != self._snapshot.epoch or prepared.runtime_id != self.id:
            raise LoweringError(self._why_stale(prepared))
        if len(engines) != 1:
            raise LoweringError(f"run: {len(engines)} engines; the program was prepared for one")
        engine = engines[0]
        target = prepared.target
        if engine.id != target.engine_id or type(engine) is not target.engine_class:
            raise LoweringError(f"run: engine {engine.id!r}; the program was prepared for {target.engine_id!r}")
        if engine.broken:
            raise LoweringError(f"run: engine {engine.id!r} is broken, native code failed under it; make another one")
        return prepared.executable.run(inputs)

    def _why_stale(self, prepared: Prepared) -> str:
        if prepared.runtime_id != self.id:
            return f"run: the program was prepared by runtime {prepared.runtime_id}; this is runtime {self.id}"
        return (
            f"run: the program was prepared under configuration {prepared.epoch}; "
            f"configuration {self.epoch} is in force, prepare again"
        )

    def cache_stats(self) -> CacheStats:
        """Counts of the cache of prepared programs."""
        return self._cache.stats()

    def clear_caches(self) -> None:
        """Forget every prepared program; those that callers hold go on working."""
        self._cache.clear()

    def __repr__(self) -> str:
        return f"<Runtime {self.id}, epoch {self.epoch}: {', '.join(e.id for e in self.engines())}>"
