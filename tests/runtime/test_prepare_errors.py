"""What ``prepare`` refuses, one test each; the runtime stays usable after every one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines import errors
from tenferro.engines.engine import CAPABILITIES
from tenferro.engines.reference import ReferenceEngine
from tenferro.runtime import (
    Configuration,
    EngineTarget,
    ExtensionModule,
    Family,
    InputType,
    Limits,
    Policy,
    Runtime,
    signature_of,
    target_of,
)
from tenferro.tracer.dims import leaf
from tenferro.tracer.errors import DtypeError, LoweringError, ShapeError
from tenferro.tracer.program import ArrayType, SemanticProgram
from tests.running import one_op
from tests.runtime.devices import DeviceEngine, HostEngine, device_builder, device_runtime, opened, placed, prepared_for

halve = Family("test.halve.v1", lambda types, params: (types[0],), lambda x: x / 2)


def traced(f, *args) -> SemanticProgram:
    return tn.jit(f).trace(*args)


@pytest.fixture
def host() -> HostEngine:
    return HostEngine()


@pytest.fixture
def device() -> DeviceEngine:
    return DeviceEngine()


@pytest.fixture
def runtime(host: HostEngine, device: DeviceEngine) -> Iterator[Runtime]:
    """A host and a device with transfers; it must still serve when the test is over."""
    made = device_runtime(host, device)
    yield made
    program = traced(lambda x: x + 41.0, np.ones(2))
    prepared = prepared_for(made, program, host)
    assert made.run([host], prepared, [np.ones(2)]).outputs[0].tolist() == [42, 42]


@pytest.fixture
def program() -> SemanticProgram:
    return traced(lambda x, y: x * 2 + y, np.ones(2), np.ones(2))


# Names and targets


def test_unknown_engine(runtime, program):
    with pytest.raises(errors.UnknownEngineError, match="'reference:7' is not registered; one of reference:0, device"):
        runtime.prepare(program, signature_of(program), [EngineTarget("reference:7", ReferenceEngine)])
    with pytest.raises(LookupError):
        runtime.engine("reference:7")


def test_duplicate_engine(runtime, host):
    for edit in (lambda c: c.register_engine(HostEngine()), lambda c: c.engines.append(HostEngine())):
        with pytest.raises(errors.ConfigurationError, match="ids"):
            runtime.reconfigure(edit)
    assert runtime.epoch == 1 and runtime.engine("reference:0") is host


def test_no_engine(runtime):
    with pytest.raises(errors.ConfigurationError, match="at least one"):
        runtime.reconfigure(lambda c: c.engines.clear())
    with pytest.raises(errors.ConfigurationError, match="at least one"):
        Runtime.builder().build()


@pytest.mark.parametrize("name", ["CPU:0", "", "cpu 0", ":0", "cpu:", 7])
def test_a_name_that_is_none(runtime, name):
    with pytest.raises(errors.ConfigurationError, match="is no name"):
        runtime.reconfigure(lambda c: c.register_engine(DeviceEngine(name)))
    assert runtime.epoch == 1


@pytest.mark.parametrize("name", ["halve", "halve.v1", "Test.halve.v1", "test.halve", "test.halve.1"])
def test_a_family_name_that_is_none(name):
    with pytest.raises(errors.ConfigurationError, match="library.operation.v1"):
        Family(name, halve.infer, halve.reference)


def test_modules_that_clash():
    module = ExtensionModule("test", (halve,))
    with pytest.raises(errors.ConfigurationError, match="installed already"):
        Runtime.builder().install_extension(module).install_extension(ExtensionModule("other", (halve,)))
    with pytest.raises(errors.ConfigurationError, match="comes twice"):
        ExtensionModule("test", (halve, halve))
    with pytest.raises(errors.ConfigurationError, match="does not bring"):
        ExtensionModule("test", (), {("test.halve.v1", "cpu"): lambda lent, x: x})


def test_routes_that_clash(host, device):
    builder = device_builder(host, device)
    ((here, there), provider), *_ = builder._configuration.transfers.items()
    with pytest.raises(errors.ConfigurationError, match="registered already"):
        builder.register_transfer(here, there, provider)
    with pytest.raises(errors.ConfigurationError, match="both ends"):
        builder.register_transfer(here, here, provider)


def test_wrong_target(runtime, program, host):
    with pytest.raises(errors.TargetError, match="is a HostEngine; the target asks for a ReferenceEngine"):
        runtime.prepare(program, signature_of(program), [EngineTarget("reference:0", ReferenceEngine)])
    with pytest.raises(errors.TargetError, match="targets are none"):
        runtime.prepare(program, signature_of(program), [])
    with pytest.raises(errors.TargetError, match="each once"):
        runtime.prepare(program, signature_of(program), [target_of(host), target_of(host)])


class Planner(HostEngine):
    """An engine for another machine: it prepares only."""

    @property
    def is_executable(self) -> bool:
        return False


def test_no_executable_engine(program):
    planner = Planner()
    runtime = Runtime.builder().register_engine(planner).build()
    with pytest.raises(errors.NoExecutableEngineError, match="only prepares"):
        prepared_for(runtime, program, planner)


# Signatures


def test_count_dtype_rank(runtime, program, host):
    x, y = signature_of(program)
    for signature, kind, text in (
        ((x,), ShapeError, "1 inputs; program <lambda> has 2"),
        ((x, y, y), ShapeError, "3 inputs"),
        ((x, InputType(np.dtype("f4"), 1)), DtypeError, "input y of dtype float32; float64"),
        ((InputType(np.dtype("f8"), 2), y), ShapeError, "input x of rank 2; rank 1"),
    ):
        with pytest.raises(kind, match=text):
            runtime.prepare(program, signature, [target_of(host)])


# Placement


def test_no_eligible_engine(host):
    poor = DeviceEngine(capabilities=frozenset({"layout", "reduction"}))
    runtime = device_runtime(host, poor)
    program = traced(lambda x: x + 1, np.ones(2))
    with pytest.raises(errors.NoEligibleEngineError, match=r"add: none of device:0 has elementwise.*\(at .*:\d+\)"):
        prepared_for(runtime, program, poor)
    with pytest.raises(errors.NoEligibleEngineError):
        prepared_for(runtime, placed(program, "device:0"), host, poor)
    assert runtime.run([host, poor], prepared_for(runtime, program, host, poor), [np.ones(2)]).outputs[0][0] == 2


def test_storage_that_no_engine_has(runtime, host, device, program):
    with pytest.raises(errors.NoEligibleEngineError, match="with results in managed memory"):
        prepared_for(runtime, program, host, device, storage="managed")
    prepared = prepared_for(runtime, program, host, device, storage="host")
    assert {runtime.engines()[n.engine].id for n in prepared.schedule.nodes} == {"reference:0"}


class TwoMemories(DeviceEngine):
    storage_classes = ("device", "host")


def test_storage_is_where_results_lie(program):
    """An engine whose results lie in device memory does not serve a program that is to stay in host memory."""
    two = TwoMemories()
    runtime = Runtime.builder().register_engine(two).build()
    with pytest.raises(errors.NoEligibleEngineError, match="host memory"):
        prepared_for(runtime, program, two, storage="host")


def test_a_place_that_is_no_target(runtime, program, host):
    with pytest.raises(errors.UnknownEngineError, match=r"put on device:0, which is no target; reference:0 are"):
        prepared_for(runtime, placed(program, "device:0", ""), host)


def test_missing_extension(host, device):
    program = one_op(halve.op, [ArrayType(np.dtype("f8"), (leaf("extent", 0, 0),))], {})
    runtime = device_runtime(host, device)
    with pytest.raises(errors.MissingExtensionError, match="test.halve.v1 is not installed"):
        prepared_for(runtime, program, host)
    alone = ExtensionModule("test", (halve,), {("test.halve.v1", "device"): lambda lent, x: x / 2}, False)
    runtime.reconfigure(lambda c: c.install_extension(alone))
    with pytest.raises(errors.MissingExtensionError, match="no executor for reference:0"):
        prepared_for(runtime, program, host)
    prepared = prepared_for(runtime, program, host, device)
    (out,) = runtime.run([host, device], prepared, [np.ones(2)]).outputs
    assert device.holds(out) and opened(out) == [0.5, 0.5]


def test_missing_transfer(host, device, program):
    runtime = Runtime.builder().register_engine(host).register_engine(device).build()
    with pytest.raises(
        errors.MissingTransferError, match=r"s2 lies on reference:0/host and is read by add on device:0/device.*\(at "
    ):
        prepared_for(runtime, placed(program, "", "device:0"), host, device)
    with pytest.raises(errors.MissingTransferError, match="input x lies on reference:0/host"):
        prepared_for(runtime, placed(program, "device:0", ""), host, device)


def test_input_that_cannot_enter(runtime, program, device):
    with pytest.raises(errors.InputIngressError, match="input x cannot enter device:0/device"):
        prepared_for(runtime, program, device)


def test_an_input_enters_where_a_route_begins(runtime, program, host, device):
    """Only the device computes; the host is a target, takes the input, and the transfer leads on."""
    prepared = prepared_for(runtime, placed(program, "device:0", "device:0"), device, host)
    assert [type(n).__name__ for n in prepared.schedule.nodes] == ["TransferNode", "TransferNode", "OperationNode"]
    (out,) = runtime.run([device, host], prepared, [np.ones(2), np.ones(2)]).outputs
    assert opened(out) == [3, 3]


def test_a_copy_is_a_source_too(host):
    """No route from one device to the other; the value lies on the host as well, and goes from there."""
    a, b = DeviceEngine("device:0"), DeviceEngine("device:1")
    builder = device_builder(host, a, b)
    for ends in [ends for ends in builder._configuration.transfers if "reference:0" not in (e.engine for e in ends)]:
        del builder._configuration.transfers[ends]
    runtime = builder.build()
    program = placed(traced(lambda x: ((y := x + 1) * 2, y * 3), np.ones(2)), "device:0", "reference:0", "device:1")
    prepared = prepared_for(runtime, program, host, a, b)
    outputs = runtime.run([host, a, b], prepared, [np.ones(2)]).outputs
    assert outputs[0].tolist() == [4, 4] and opened(outputs[1]) == [6, 6]


def test_placement_budget():
    """No placement can be routed: no input can enter."""
    first, second = DeviceEngine("device:0"), DeviceEngine("device:1", CAPABILITIES - {"reduction"})
    runtime = Runtime.builder().register_engine(first).register_engine(second).build()
    program = traced(lambda x: (x + 1).sum() * 2, np.ones(2))
    with pytest.raises(errors.PlacementBudgetError, match="1 placements were tried and none can be routed; the first"):
        prepared_for(runtime, program, first, second, max_placements=1)
    with pytest.raises(errors.InputIngressError):
        prepared_for(runtime, program, first, second)


def test_search_finds_the_only_placement(host):
    """The preferred engine everywhere does not route: the device may compute the product alone, but nothing leads
    back to it."""
    device = DeviceEngine(capabilities=frozenset({"elementwise"}))
    runtime = Runtime.builder().register_engine(host).register_engine(device).build()
    program = traced(lambda x: (x + 1).sum(), np.ones(3))
    prepared = prepared_for(runtime, program, device, host)
    assert prepared.schedule.is_flat
    assert runtime.run([device, host], prepared, [np.ones(3)]).outputs[0] == 6


# Budgets


def test_transfer_budget_at_prepare(runtime, host, device):
    """The size is a constant of the program: a sum crosses."""
    program = placed(traced(lambda x: x.sum() * 2, np.ones(3)), "reference:0", "device:0")
    with pytest.raises(errors.TransferBudgetError, match="prepare: 8 bytes cross between engines; 7 are allowed: s1 "):
        prepared_for(runtime, program, host, device, max_transfer_bytes=7)
    assert prepared_for(runtime, program, host, device, max_transfer_bytes=8).transfers()[0].bytes == 8


def test_policy_is_the_budget_where_options_say_nothing(runtime, host, device):
    program = placed(traced(lambda x: x.sum() * 2, np.ones(3)), "reference:0", "device:0")

    def strict(configuration: Configuration) -> None:
        configuration.policy = Policy(max_transfer_bytes=0)

    runtime.reconfigure(strict)
    with pytest.raises(errors.TransferBudgetError):
        prepared_for(runtime, program, host, device)
    prepared_for(runtime, program, host, device, max_transfer_bytes=100)


@pytest.mark.parametrize("field", ["max_transfer_bytes", "max_placements"])
def test_policies_are_checked(field):
    with pytest.raises(errors.ConfigurationError, match=f"{field} is -1"):
        Policy(**{field: -1})


# The cache's own refusals, seen through prepare


class Slow(HostEngine):
    """Compiles when it may."""

    def __init__(self, number: int = 0) -> None:
        super().__init__(number)
        self.started, self.go = threading.Event(), threading.Event()

    def compile(self, plan, executors=()):
        self.started.set()
        assert self.go.wait(30)
        return super().compile(plan, dict(executors))


def test_capacity_refuses_and_queues():
    slow = Slow()
    runtime = Runtime.builder().register_engine(slow).cache_limits(Limits(in_flight=1, queued=1)).build()
    first, second, third = (traced(lambda x, k=k: x + k, np.ones(2)) for k in (1.0, 2.0, 3.0))
    made = []

    def work(program):
        made.append(prepared_for(runtime, program, slow))

    threads = [threading.Thread(target=work, args=(p,)) for p in (first, second)]
    threads[0].start()
    assert slow.started.wait(30)
    with pytest.raises(errors.CapacityError, match="1 programs are being prepared and 0 wait; 1 and 1 may"):
        prepared_for(runtime, third, slow, in_flight="refuse")
    threads[1].start()
    while runtime.cache_stats().queued < 1:
        pass
    with pytest.raises(errors.CapacityError):
        prepared_for(runtime, third, slow)
    slow.go.set()
    for t in threads:
        t.join()
    stats = runtime.cache_stats()
    assert len(made) == 2 and (stats.refusals, stats.peak, stats.in_flight, stats.queued) == (2, 1, 0, 0)
    assert prepared_for(runtime, third, slow) is not None  # a refusal is not remembered


class Recursive(HostEngine):
    """Prepares a program of its own when it compiles."""

    inner: tuple[Runtime, SemanticProgram]

    def compile(self, plan, executors=()):
        runtime, program = self.inner
        if plan.program.name != program.name:
            prepared_for(runtime, program, self)
        return super().compile(plan, dict(executors))


def test_recursion_is_refused():
    engine = Recursive()
    runtime = Runtime.builder().register_engine(engine).build()
    outer, inner = traced(lambda x: x + 1, np.ones(2)), traced(lambda x: x + 2, np.ones(2))
    engine.inner = runtime, replace(inner, name="inner")
    for _ in range(2):  # it is not remembered
        with pytest.raises(RecursionError, match="from inside a preparation"):
            prepared_for(runtime, outer, engine)
    prepared_for(runtime, engine.inner[1], engine)
    assert prepared_for(runtime, outer, engine) is not None


class Careless(HostEngine):
    def compile(self, plan, executors=()):
        return "done"


def test_an_engine_that_compiles_no_executable(program):
    engine = Careless()
    runtime = Runtime.builder().register_engine(engine).build()
    for _ in range(2):
        with pytest.raises(errors.ProviderContractError, match="compiled a str"):
            prepared_for(runtime, program, engine)
    assert runtime.cache_stats().negative_hits == 1


class Failing(HostEngine):
    failures: list[Exception]

    def compile(self, plan, executors=()):
        if self.failures:
            raise self.failures.pop()
        return super().compile(plan, dict(executors))


def test_only_deterministic_failures_are_remembered(program):
    engine = Failing()
    runtime = Runtime.builder().register_engine(engine).build()
    engine.failures = [MemoryError("full for now")]
    with pytest.raises(MemoryError):
        prepared_for(runtime, program, engine)
    assert prepared_for(runtime, program, engine) is not None
    other = traced(lambda x: x - 7, np.ones(2))
    engine.failures = [LoweringError("never")]
    for _ in range(2):
        with pytest.raises(LoweringError, match="never"):
            prepared_for(runtime, other, engine)


def test_reconfigured_while_preparing(program):
    class Restless(HostEngine):
        def compile(self, plan, executors=()):
            if len(mine.engines()) == 1:
                mine.reconfigure(lambda c: c.register_engine(HostEngine(1)))
            return super().compile(plan, dict(executors))

    engine = Restless()
    mine = Runtime.builder().register_engine(engine).build()
    with pytest.raises(errors.StaleError, match="prepare again"):
        prepared_for(mine, program, engine)
    assert prepared_for(mine, program, engine).epoch == 2


def test_two_reconfigurations_at_once(runtime):
    def outer(configuration: Configuration) -> None:
        configuration.register_engine(HostEngine(1))
        runtime.reconfigure(lambda c: c.register_engine(HostEngine(2)))

    with pytest.raises(errors.ConcurrentReconfigurationError, match="nothing was changed"):
        runtime.reconfigure(outer)
    assert runtime.epoch == 2 and [e.id for e in runtime.engines()] == ["reference:0", "device:0", "reference:2"]


def test_a_preparation_of_an_older_configuration_is_not_kept_for_the_next(program, host, monkeypatch):
    """The runtime is reconfigured after ``prepare`` has looked at it and before it asks the cache."""
    runtime = Runtime.builder().register_engine(host).build()
    real = runtime._cache.get

    def late(*args, **kwargs):
        monkeypatch.setattr(runtime._cache, "get", real)
        runtime.reconfigure(lambda c: c.register_engine(HostEngine(1)))
        return real(*args, **kwargs)

    monkeypatch.setattr(runtime._cache, "get", late)
    with pytest.raises(errors.StaleError, match="reconfigured meanwhile"):
        prepared_for(runtime, program, host)
    prepared = prepared_for(runtime, program, host)
    assert prepared.epoch == runtime.epoch == 2
    assert runtime.run([host], prepared, [np.ones(2), np.ones(2)]).outputs[0].tolist() == [3, 3]
