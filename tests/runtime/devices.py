"""Engines, transfers and drivers for tests: a device whose memory is not the process's, and ones that fail.

``Remote`` arrays lie on a ``DeviceEngine``; only ``Upload``, ``Download`` and ``Hop`` bring values there and back.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tenferro.engines.engine import CAPABILITIES, NO_EXECUTORS, Capability, Engine, Executable, Executor, RunResult
from tenferro.engines.events import DomainRun, Driver, ImmediateDriver, Launch, Token, WorkerDriver, carry_out
from tenferro.engines.reference import ReferenceEngine, ReferenceExecutable
from tenferro.lowering.plan import Plan
from tenferro.runtime import Endpoint, Runtime, RuntimeBuilder, TransferProvider, signature_of, target_of
from tenferro.runtime.prepared import Prepared
from tenferro.tracer.program import ArrayType, SemanticProgram

Array = np.ndarray[Any, Any]
live: weakref.WeakSet[Remote] = weakref.WeakSet()


class Remote:
    """An array in a device's memory. The host cannot use it as an array."""

    def __init__(self, data: Array, owner: str) -> None:
        self.data, self.owner = data, owner
        live.add(self)

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.data.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return self.data.shape

    @property
    def nbytes(self) -> int:
        return self.data.nbytes


def opened(value: Any) -> Any:
    """The elements of a device's array, as nested lists."""
    assert isinstance(value, Remote)
    return value.data.tolist()


class DeviceExecutable(Executable):
    """The reference engine's results, on values of one device's memory."""

    def __init__(self, engine: DeviceEngine, plan: Plan, executors: Mapping[str, Executor]) -> None:
        self.engine = engine
        self.inner = ReferenceExecutable(plan.program, executors)

    def run(self, inputs: Sequence[Any]) -> RunResult:
        self.engine.before_run()
        found = self.inner.run([self._opened(x) for x in inputs])
        outputs: list[Any] = [Remote(o, self.engine.id) for o in found.outputs]
        return RunResult(outputs, found.runtime)

    def _opened(self, value: Any) -> Any:
        if isinstance(value, int):
            return value
        assert isinstance(value, Remote), f"{self.engine.id} was given a {type(value).__name__}"
        assert value.owner == self.engine.id
        return value.data

    def kernel_texts(self) -> dict[str, dict[str, str]]:
        return {}

    @property
    def kernels(self) -> int:
        return 0

    @property
    def kernel_bytes(self) -> int:
        return 0


def nothing() -> None:
    pass


class DeviceEngine(Engine):
    """Memory of its own. ``before_run`` is called at each run, to fail there."""

    hardware = "device"
    storage_classes: tuple[str, ...] = ("device",)

    def __init__(
        self,
        name: str = "device:0",
        capabilities: frozenset[Capability] = CAPABILITIES,
        driver: Driver | None = None,
        before_run: Callable[[], None] = nothing,
    ) -> None:
        self.id = name
        self.capabilities = capabilities
        self.before_run = before_run
        self._driver = driver or WorkerDriver(name)

    def compile(self, plan: Plan, executors: Mapping[str, Executor] = NO_EXECUTORS) -> Executable:
        return DeviceExecutable(self, plan, executors)

    def driver(self) -> Driver:
        return self._driver

    def accepts(self, kind: ArrayType) -> bool:
        return False

    def holds(self, value: Any) -> bool:
        return isinstance(value, Remote) and value.owner == self.id


class HostEngine(ReferenceEngine):
    """The reference engine on a worker of its own; ``before_run`` as above."""

    def __init__(self, number: int = 0, driver: Driver | None = None) -> None:
        super().__init__(number)
        self.before_run: Callable[[], None] = nothing
        self._driver = driver or WorkerDriver(self.id)

    def compile(self, plan: Plan, executors: Mapping[str, Executor] = NO_EXECUTORS) -> Executable:
        return _Watched(plan.program, executors, self)

    def driver(self) -> Driver:
        return self._driver


class _Watched(ReferenceExecutable):
    def __init__(self, program: Any, executors: Mapping[str, Executor], engine: HostEngine) -> None:
        super().__init__(program, executors)
        self.engine = engine

    def run(self, inputs: Sequence[Any]) -> RunResult:
        self.engine.before_run()
        return super().run(inputs)


class Upload(TransferProvider):
    """Host to device. ``spoil`` changes what arrives."""

    def __init__(self, spoil: Callable[[Remote], Any] = lambda x: x) -> None:
        self.spoil = spoil

    def transfer(self, value: Any, source: Engine, destination: Engine) -> Any:
        assert isinstance(value, np.ndarray)
        return self.spoil(Remote(value.copy(), destination.id))


class Download(TransferProvider):
    """Device to host."""

    def transfer(self, value: Any, source: Engine, destination: Engine) -> Any:
        assert isinstance(value, Remote) and value.owner == source.id
        return value.data.copy()


class Hop(TransferProvider):
    """Device to device."""

    def transfer(self, value: Any, source: Engine, destination: Engine) -> Any:
        return Remote(value.data.copy(), destination.id)


# Drivers that break their contract


class WrongRun(Driver):
    """Begins runs of another domain."""

    def begin_run(self, domain: str) -> DomainRun:
        return ImmediateDriver().begin_run("elsewhere:0")


class _OtherToken(DomainRun):
    def enqueue(self, dependencies: Sequence[Token], launch: Launch, bridge: bool = False) -> Token:
        token = Token("elsewhere:0")
        token.finish()
        return token

    def _submit(self, dependencies: tuple[Token, ...], launch: Launch, token: Token) -> None:
        raise AssertionError


class WrongToken(Driver):
    """Hands out tokens of another domain."""

    def begin_run(self, domain: str) -> DomainRun:
        return _OtherToken(domain)


class _Lossy(DomainRun):
    def __init__(self, domain: str, on_drain: list[BaseException], at_submit: bool, raises: bool) -> None:
        super().__init__(domain)
        self.on_drain, self.at_submit, self.raises = on_drain, at_submit, raises

    def _submit(self, dependencies: tuple[Token, ...], launch: Launch, token: Token) -> None:
        if self.at_submit:
            raise OSError("queue full")
        carry_out(dependencies, launch, token)

    def drain(self) -> list[BaseException]:
        if not self.raises:
            return [*super().drain(), *self.on_drain]
        super().drain()
        raise self.on_drain[0]


@dataclass
class Lossy(Driver):
    """Fails when drained (``raises``: by an exception), or when a launch is submitted."""

    on_drain: list[BaseException] = field(default_factory=list)
    at_submit: bool = False
    raises: bool = False

    def begin_run(self, domain: str) -> DomainRun:
        return _Lossy(domain, self.on_drain, self.at_submit, self.raises)


# Runtimes


def device_runtime(*engines: Engine, **providers: TransferProvider) -> Runtime:
    """Engines with transfers between host and devices; ``upload=`` replaces the provider to devices."""
    return device_builder(*engines, **providers).build()


def device_builder(*engines: Engine, upload: TransferProvider | None = None) -> RuntimeBuilder:
    builder = Runtime.builder()
    for engine in engines:
        builder.register_engine(engine)
    ends = [(e, Endpoint(e.id, e.storage_classes[0])) for e in engines]
    for a, here in ends:
        for b, there in ends:
            if a is b or (a.hardware != "device" and b.hardware != "device"):
                continue
            if a.hardware == b.hardware == "device":
                builder.register_transfer(here, there, Hop())
            elif b.hardware == "device":
                builder.register_transfer(here, there, upload or Upload())
            else:
                builder.register_transfer(here, there, Download())
    return builder


def prepared_for(runtime: Runtime, program: SemanticProgram, *engines: Engine, **options: Any) -> Prepared:
    """Prepared for these engines, with ``PrepareOptions`` by keyword."""
    from tenferro.runtime import PrepareOptions

    return runtime.prepare(program, signature_of(program), [target_of(e) for e in engines], PrepareOptions(**options))


def placed(program: SemanticProgram, *places: str) -> SemanticProgram:
    """The program with operation k put on ``places[k]``; empty for anywhere."""
    from dataclasses import replace

    operations = [replace(o, place=p) for o, p in zip(program.operations, places, strict=True)]
    return replace(program, operations=tuple(operations))
