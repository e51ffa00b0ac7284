"""How runs fail: the error, nothing half-done, no buffer kept, the runtime usable after."""

from __future__ import annotations

import threading
import time

import numpy as np
import pytest

from tenferro.engines import errors
from tenferro.engines.cpu.engine import CpuEngine
from tenferro.engines.errors import EngineFailure
from tenferro.engines.events import WorkerDriver
from tenferro.runtime import ExtensionModule, Family, Runtime
from tenferro.tracer.errors import BoundsError
from tests.running import one_op
from tests.runtime import devices
from tests.runtime.devices import (
    DeviceEngine,
    HostEngine,
    Lossy,
    device_runtime,
    opened,
    placed,
    prepared_for,
)
from tests.runtime.given import VECTOR, serves, there_and_back, traced

pytestmark = pytest.mark.usefixtures("no_leak")
x = np.ones(2)


# Failures


def raising(kind, text):
    def fail() -> None:
        raise kind(text)

    return fail


def test_failure_inside_a_launch(host, device):
    runtime = device_runtime(host, device)
    prepared = prepared_for(runtime, there_and_back(), host, device)
    device.before_run = raising(KeyError, "inside")
    with pytest.raises(KeyError, match="inside") as caught:
        runtime.run([host, device], prepared, [x])
    assert not hasattr(caught.value, "__notes__")
    del caught
    device.before_run = devices.nothing
    serves(runtime, host, device)


@pytest.mark.parametrize("raises", [False, True])
def test_failure_inside_a_drain(host, raises):
    trouble = OSError("lost the device")
    device = DeviceEngine(driver=Lossy([trouble], raises=raises))
    runtime = device_runtime(host, device)
    prepared = prepared_for(runtime, there_and_back(), host, device)
    with pytest.raises(OSError, match="lost the device"):
        runtime.run([host, device], prepared, [x])
    device._driver = WorkerDriver("again")
    serves(runtime, host, device)


@pytest.mark.parametrize("raises", [False, True])
def test_failure_inside_a_launch_and_a_drain(host, raises):
    device = DeviceEngine(driver=Lossy([OSError("and lost it")], raises=raises))
    runtime = device_runtime(host, device)
    prepared = prepared_for(runtime, there_and_back(), host, device)
    device.before_run = raising(KeyError, "first")
    with pytest.raises(KeyError, match="first") as caught:
        runtime.run([host, device], prepared, [x])
    assert caught.value.__notes__ == ["suppressed: OSError: and lost it"]
    del caught  # it holds the frames, and this one holds it


def test_failure_when_submitted(host):
    device = DeviceEngine(driver=Lossy(at_submit=True))
    runtime = device_runtime(host, device)
    with pytest.raises(OSError, match="queue full"):
        runtime.run([host, device], prepared_for(runtime, there_and_back(), host, device), [x])
    device._driver = WorkerDriver("again")
    serves(runtime, host, device)


def test_failures_in_two_domains_come_in_schedule_order(host, device):
    """The second engine fails first; the schedule's first node is still the primary."""
    other = HostEngine(1)
    runtime = device_runtime(host, other)
    program = traced(lambda x: (x + 1, x + 2), x)
    prepared = prepared_for(runtime, placed(program, "reference:0", "reference:1"), host, other)
    failed = threading.Event()

    def late() -> None:
        assert failed.wait(30)
        raise KeyError("first in the schedule")

    def early() -> None:
        failed.set()
        raise OSError("first in time")

    host.before_run, other.before_run = late, early
    with pytest.raises(KeyError, match="first in the schedule") as caught:
        runtime.run([host, other], prepared, [x])
    assert caught.value.__notes__ == ["suppressed: OSError: first in time"]


def test_engine_failure_breaks_the_engine(host, device):
    runtime = device_runtime(host, device)
    prepared = prepared_for(runtime, there_and_back(), host, device)
    device.before_run = raising(EngineFailure, "illegal address")
    with pytest.raises(errors.BrokenEngineError, match="'device:0' broke: illegal address") as caught:
        runtime.run([host, device], prepared, [x])
    assert isinstance(caught.value.__cause__, EngineFailure)
    del caught
    assert device.broken == "illegal address" and not host.broken
    device.before_run = devices.nothing
    with pytest.raises(errors.BrokenEngineError, match="make another"):
        runtime.run([host, device], prepared, [x])
    again = DeviceEngine()

    def replaced(configuration) -> None:
        configuration.remove_engine("device:0")
        configuration.register_engine(again)

    runtime.reconfigure(replaced)
    serves(runtime, host, again)


def test_engine_failure_in_a_flat_run(host):
    runtime = Runtime.builder().register_engine(HostEngine(1)).register_engine(host).build()
    program = placed(traced(lambda x: x + 1, x), "reference:0")
    prepared = prepared_for(runtime, program, runtime.engine("reference:1"), host)
    assert prepared.flat is not None
    host.before_run = raising(EngineFailure, "illegal address")
    with pytest.raises(errors.BrokenEngineError, match="'reference:0' broke"):
        runtime.run(runtime.engines(), prepared, [x])
    assert host.broken and not runtime.engine("reference:1").broken


def test_engine_failure_while_draining(host):
    device = DeviceEngine(driver=Lossy([EngineFailure("context lost")]))
    runtime = device_runtime(host, device)
    with pytest.raises(errors.BrokenEngineError, match="'device:0' broke: context lost"):
        runtime.run([host, device], prepared_for(runtime, there_and_back(), host, device), [x])
    assert device.broken


# Executors


def executor_runtime(host, execute, **family):
    twice = Family("test.twice.v1", lambda types, params: (types[0],), lambda x: x * 2, **family)
    module = ExtensionModule("test", (twice,), {("test.twice.v1", "cpu"): execute})
    runtime = Runtime.builder().register_engine(host).install_extension(module).build()
    return runtime, prepared_for(runtime, one_op(twice.op, [VECTOR], {}), host)


@pytest.mark.parametrize("engine", [HostEngine, CpuEngine])
@pytest.mark.parametrize(
    ("execute", "text"),
    [
        (lambda lent, x: (x, x), "2 results; 1 are declared"),
        (lambda lent, x: (), "0 results; 1 are declared"),
        (lambda lent, x: x[:-1].copy(), r"a result of shape \(2,\); \(3,\) is declared"),
        (lambda lent, x: x[None], r"a result of shape \(1, 3\); \(3,\) is declared"),
        (lambda lent, x: x.astype("f4"), "a result of dtype float32; float64 is declared"),
        (lambda lent, x: None, "a result that is None; an array"),
    ],
)
def test_executors_that_break_their_contract(engine, execute, text):
    host = engine()
    runtime, prepared = executor_runtime(host, execute)
    with pytest.raises(errors.ProviderContractError, match=f"test.twice.v1: {text}"):
        runtime.run([host], prepared, [np.ones(3)])


def test_an_executor_that_fails(host):
    def fail(lent, x):
        raise ZeroDivisionError("mine")

    runtime, prepared = executor_runtime(host, fail)
    with pytest.raises(ZeroDivisionError, match="mine"):
        runtime.run([host], prepared, [np.ones(3)])
    assert not host.broken


def test_an_executor_that_breaks_its_engine(host):
    def fail(lent, x):
        raise EngineFailure("segment")

    runtime, prepared = executor_runtime(host, fail)
    with pytest.raises(errors.BrokenEngineError, match="broke under test.twice.v1: segment"):
        runtime.run([host], prepared, [np.ones(3)])
    assert host.broken == "test.twice.v1: segment"


def test_a_program_error_inside_a_device(host, device):
    """The program's own errors keep their class and line through several engines."""
    runtime = device_runtime(host, device)
    program = traced(lambda x, i: (x + 1)[i] * 2, x, np.array([0]))
    places = ["reference:0"] + ["device:0"] * (len(program.operations) - 1)
    prepared = prepared_for(runtime, placed(program, *places), host, device)
    with pytest.raises(BoundsError, match=r"indices contain 5.*\(at .*test_run_failures.py:\d+\)"):
        runtime.run([host, device], prepared, [x, np.array([5])])
    serves(runtime, host, device)


def test_everything_is_drained_before_an_error_is_raised(host, device):
    """The first node fails at once while a part on the device is under way: the error waits for it."""
    runtime = device_runtime(host, device)
    program = placed(traced(lambda x: (x + 1, x * 2), x), "reference:0", "device:0")
    prepared = prepared_for(runtime, program, host, device)
    under_way, ended = threading.Event(), []

    def slow() -> None:
        under_way.set()
        time.sleep(0.3)
        ended.append(True)

    def fail() -> None:
        assert under_way.wait(30)
        raise KeyError("at once")

    host.before_run, device.before_run = fail, slow
    with pytest.raises(KeyError, match="at once"):
        runtime.run([host, device], prepared, [x])
    assert ended == [True]


def test_values_go_with_their_last_reader(host, device):
    """A chain over two engines holds no more than what is read later."""
    runtime = device_runtime(host, device)
    program = traced(lambda x: ((x + 1) * 3 - 2) * 5 + 7, x)
    prepared = prepared_for(runtime, placed(program, *["device:0", "reference:0"] * 2, "device:0"), host, device)
    seen: list[int] = []
    before = len(devices.live)
    device.before_run = lambda: seen.append(len(devices.live) - before)
    (out,) = runtime.run([host, device], prepared, [x]).outputs
    assert opened(out) == [27, 27] and max(seen) <= 2
