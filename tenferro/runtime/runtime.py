"""Registered engines, transfers and extension families in, prepared programs and their results out.

A ``Runtime`` holds an immutable snapshot of its configuration, numbered by an epoch. Reconfiguration publishes a new
snapshot or fails whole; what was prepared under an older one is stale.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NoReturn

import numpy as np

from tenferro.engines.engine import Engine, RunResult
from tenferro.engines.errors import (
    BrokenEngineError,
    ConcurrentReconfigurationError,
    EngineFailure,
    EngineMismatchError,
    InputError,
    NoExecutableEngineError,
    StaleError,
    TargetError,
    UnknownEngineError,
    WrongRuntimeError,
)
from tenferro.engines.recording import recorded_call, recorded_run, recorders
from tenferro.lowering.donation import Donation
from tenferro.runtime.cache import CacheStats, Limits, PreparedCache
from tenferro.runtime.execute import execute
from tenferro.runtime.extensions import ExtensionModule
from tenferro.runtime.inputs import checked_all, resolve
from tenferro.runtime.options import DEFAULT, Policy, PrepareOptions
from tenferro.runtime.prepare import prepare
from tenferro.runtime.prepared import (
    EngineTarget,
    InputSignature,
    Prepared,
    PreparedKey,
    check_signature,
    target_of,
)
from tenferro.runtime.snapshot import Configuration, Registration, Snapshot
from tenferro.runtime.transfers import Endpoint, TransferProvider
from tenferro.tracer import switches
from tenferro.tracer.config import Config, config
from tenferro.tracer.forking import Renewed
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import SemanticProgram

_runtime_ids = itertools.count(1)
_registration_ids = itertools.count(1)


class RuntimeBuilder:
    """Collects a configuration; ``build`` publishes it."""

    def __init__(self) -> None:
        self._configuration = Configuration()
        self._limits = Limits()

    def register_engine(self, engine: Engine) -> RuntimeBuilder:
        """Add an engine. ConfigurationError if its id is taken or no name."""
        self._configuration.register_engine(engine)
        return self

    def install_extension(self, module: ExtensionModule) -> RuntimeBuilder:
        """Add a module's families. ConfigurationError if one of them is installed already."""
        self._configuration.install_extension(module)
        return self

    def register_transfer(self, source: Endpoint, destination: Endpoint, provider: TransferProvider) -> RuntimeBuilder:
        """Let values cross from one endpoint to another. ConfigurationError for a route that is registered."""
        self._configuration.register_transfer(source, destination, provider)
        return self

    def policy(self, policy: Policy) -> RuntimeBuilder:
        """What holds where a preparation's options say nothing."""
        self._configuration.policy = policy
        return self

    def cache_limits(self, limits: Limits) -> RuntimeBuilder:
        """How many prepared programs are kept, and made at a time."""
        self._limits = limits
        return self

    def build(self, kind: type[Runtime] | None = None) -> Runtime:
        """The runtime. ConfigurationError without an engine."""
        return (kind or Runtime)(self._configuration.frozen(Snapshot.empty(), _registration_ids), self._limits)


class Runtime:
    """Prepares programs for engines and runs them. Made by ``Runtime.builder()``; thread-safe."""

    def __init__(self, snapshot: Snapshot, limits: Limits) -> None:
        self.id = next(_runtime_ids)
        self._snapshot = snapshot
        self._held = Renewed()
        self._cache: PreparedCache[Prepared] = PreparedCache(limits, lambda key, made: key.bytes + made.bytes)

    @staticmethod
    def builder() -> RuntimeBuilder:
        """A builder without engines."""
        return RuntimeBuilder()

    # -- configuration -----------------------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The number of the configuration in force."""
        return self._snapshot.epoch

    @property
    def snapshot(self) -> Snapshot:
        """The configuration in force. It never changes; later ones are other objects."""
        return self._snapshot

    def engines(self) -> tuple[Engine, ...]:
        """The registered engines, in order of registration."""
        return tuple(r.engine for r in self._snapshot.registrations)

    def engine(self, engine_id: str, asked: str = "runtime") -> Engine:
        """The engine of this name. UnknownEngineError lists the names there are; ``asked``: the function it speaks
        of."""
        return self._find(self._snapshot, engine_id, asked).engine

    def _find(self, snapshot: Snapshot, engine_id: str, asked: str = "runtime") -> Registration:
        found = snapshot.find(engine_id)
        if found is None:
            known = ", ".join(r.engine.id for r in snapshot.registrations)
            kind = {"cpu": "cpu:0", "reference": "reference:0"}.get(engine_id)
            cure = f"TENFERRO_ENGINE={engine_id} makes {kind}" if kind and kind not in known else ""
            wanted = f"one of {known} is needed" + (f", or {cure} before the import" if cure else "")
            raise UnknownEngineError(f"{asked}: engine {engine_id!r} is not registered; {wanted}{at(user_line())}")
        return found

    def reconfigure(self, edit: Callable[[Configuration], None]) -> int:
        """``edit`` changes a copy of the configuration, which is then put in force; the new epoch is returned.

        Nothing changes where ``edit`` raises or the result is unfit (ConfigurationError), nor where another thread has
        reconfigured meanwhile (ConcurrentReconfigurationError). No change keeps the epoch. Prepared programs of an
        older epoch are stale."""
        before = self._snapshot
        copy = before.thawed()
        edit(copy)
        after = copy.frozen(before, _registration_ids)
        with self._held.lock:
            if self._snapshot is not before:
                raise ConcurrentReconfigurationError(
                    "reconfigure: another thread has reconfigured meanwhile; nothing was changed"
                )
            if after is not before:
                self._snapshot = after
                self._cache.clear()
                switches.forget()
        return self._snapshot.epoch

    # -- preparation -------------------------------------------------------------------------------------------------

    def prepare(
        self,
        program: SemanticProgram,
        inputs: InputSignature,
        targets: Sequence[EngineTarget],
        options: PrepareOptions = DEFAULT,
        *,
        settings: Config | None = None,
        defaults: Mapping[int, Any] | None = None,
    ) -> Prepared:
        """Lower the program, place it on the targets and make each part executable; from the cache where this was done
        before.

        inputs: dtype and rank of each, and where it lies. targets: engines that may be used, the preferred one first;
        ``run`` is given engines in this order. defaults: by position, arrays for inputs that a run may leave out.
        PrepareError's subclasses say what cannot be; ShapeError, DtypeError where ``inputs`` are not the program's."""
        for position in defaults or ():
            if position not in range(len(program.inputs)):
                raise InputError(f"prepare: default {position}; inputs are 0 to {len(program.inputs) - 1}")
        snapshot = self._snapshot
        engines = [self._target(snapshot, t) for t in targets]
        if not engines or len(set(targets)) != len(engines):
            names = ", ".join(t.engine_id for t in targets) or "none"
            raise TargetError(f"prepare: targets are {names}; at least one is needed, each once")
        check_signature(program, inputs)
        used = settings if settings is not None else config()
        policy = options.under(snapshot.policy)
        # The epoch too: a preparation may begin under one configuration and enter the cache under the next.
        registered = snapshot.epoch, *(self._find(snapshot, e.id).identity for e in engines)
        ends = options.storage, options.results
        key = PreparedKey(program, inputs, tuple(targets), registered, policy, ends, used.code_key())
        made = self._cache.get(
            key,
            lambda: prepare(self.id, snapshot, program, inputs, engines, policy, options, used),
            refuse=options.in_flight == "refuse",
        )
        if self._snapshot.epoch != snapshot.epoch:
            raise StaleError("prepare: the runtime was reconfigured meanwhile; prepare again")
        return made if not defaults else replace(made, defaults=tuple(sorted(defaults.items())))

    def _target(self, snapshot: Snapshot, target: EngineTarget) -> Engine:
        engine = self._find(snapshot, target.engine_id).engine
        if target_of(engine) != target:
            raise TargetError(
                f"prepare: engine {target.engine_id!r} is a {type(engine).__name__}; "
                f"the target asks for a {target.engine_class.__name__}"
            )
        if not engine.is_executable:
            raise NoExecutableEngineError(f"prepare: engine {engine.id!r} only prepares; one that runs is needed")
        return engine

    # -- runs --------------------------------------------------------------------------------------------------------

    def run(
        self, engines: Sequence[Engine], prepared: Prepared, inputs: Sequence[np.ndarray[Any, Any] | int] = ()
    ) -> RunResult:
        """Run on engines that the caller holds, one per target, in order.

        inputs: ndarrays and ints; fewer than the program has where it was prepared with defaults. Raises StaleError,
        WrongRuntimeError, EngineMismatchError, BrokenEngineError; InputError, DtypeError, ShapeError, GuardError for
        inputs that the program was not prepared for; and what the program itself raises."""
        if not prepared.fits(inputs):
            self._check(engines, prepared)
            inputs = checked_all(prepared.program, resolve(prepared.program, dict(prepared.defaults), inputs))
        return self.run_checked(engines, prepared, inputs)

    def run_checked(
        self, engines: Sequence[Engine], prepared: Prepared, inputs: Sequence[Any], donation: Donation | None = None
    ) -> RunResult:
        """``run`` for a caller that has checked inputs and guards itself, as ``@jit`` has. ``donation``: inputs that
        are given up; a program of several engines uses none of them."""
        if len(engines) == 1 and prepared.runtime_id == self.id and prepared.epoch == self._snapshot.epoch:
            engine, target = engines[0], prepared.targets[0]
            is_ours = type(engine) is target.engine_class and engine.id == target.engine_id and not engine.broken
            flat = prepared.flat if is_ours and len(prepared.targets) == 1 else None
            if flat is not None:
                try:
                    if recorders:
                        return recorded_run(flat, engine, prepared.program.name, inputs, donation)
                    return flat.run(inputs) if donation is None else flat.run_donated(inputs, donation)
                except EngineFailure as failure:
                    self._broke(engine, failure)
        self._check(engines, prepared)
        return self._launch(engines, prepared, inputs)

    def _check(self, engines: Sequence[Engine], prepared: Prepared) -> None:
        if prepared.epoch != self._snapshot.epoch or prepared.runtime_id != self.id:
            self._refuse(prepared)
        targets = prepared.targets
        if len(engines) != len(targets):
            raise EngineMismatchError(f"run: {len(engines)} engines; the program was prepared for {len(targets)}")
        for engine, target in zip(engines, targets, strict=True):
            if engine.id != target.engine_id or type(engine) is not target.engine_class:
                raise EngineMismatchError(
                    f"run: engine {engine.id!r}; the program was prepared for {target.engine_id!r}"
                )
            if engine.broken:
                raise BrokenEngineError(
                    f"run: engine {engine.id!r} is broken, native code failed under it ({engine.broken}); make another"
                )

    def _launch(self, engines: Sequence[Engine], prepared: Prepared, inputs: Sequence[Any]) -> RunResult:
        flat = prepared.flat
        if flat is None:
            if recorders:
                run = partial(execute, prepared, engines, inputs)
                return recorded_call(run, ", ".join(e.id for e in engines), prepared.program.name, inputs)
            return execute(prepared, engines, inputs)
        engine = engines[prepared.schedule.nodes[0].engine]
        try:
            if recorders:
                return recorded_run(flat, engine, prepared.program.name, inputs)
            return flat.run(inputs)
        except EngineFailure as failure:
            self._broke(engine, failure)

    def _broke(self, engine: Engine, failure: EngineFailure) -> NoReturn:
        engine.broken = str(failure)
        raise BrokenEngineError(f"run: engine {engine.id!r} broke: {failure}") from failure

    def _refuse(self, prepared: Prepared) -> None:
        if prepared.runtime_id != self.id:
            raise WrongRuntimeError(
                f"run: the program was prepared by runtime {prepared.runtime_id}; this is runtime {self.id}"
            )
        raise StaleError(
            f"run: the program was prepared under configuration {prepared.epoch}; "
            f"configuration {self.epoch} is in force, prepare again"
        )

    # -- caches ------------------------------------------------------------------------------------------------------

    def cache_stats(self) -> CacheStats:
        """Counts of the cache of prepared programs."""
        return self._cache.stats()

    def limit_cache(self, limits: Limits) -> None:
        """Other limits for the cache of prepared programs; what is beyond them goes at once."""
        self._cache.limit(limits)

    def clear_caches(self) -> None:
        """Forget every prepared program and what executors keep; programs that callers hold go on working."""
        self._cache.clear()
        self._snapshot.families.clear_caches()

    def __repr__(self) -> str:
        return f"<Runtime {self.id}, epoch {self.epoch}: {', '.join(e.id for e in self.engines())}>"
