"""What ``run`` refuses and how runs fail: the error, nothing half-done, no buffer kept, the runtime usable after."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tenferro.engines import errors
from tenferro.engines.events import ImmediateDriver, WorkerDriver, combined
from tenferro.engines.reference import ReferenceEngine
from tenferro.runtime import Runtime, signature_of, target_of
from tenferro.tracer.errors import DtypeError, RangeError, ShapeError
from tenferro.tracer.ops import pointwise
from tenferro.tracer.program import ArrayType
from tests.running import one_op
from tests.runtime.devices import (
    DeviceEngine,
    HostEngine,
    Remote,
    Upload,
    WrongRun,
    WrongToken,
    device_runtime,
    opened,
    placed,
    prepared_for,
)
from tests.runtime.given import anything, serves, there_and_back, traced

pytestmark = pytest.mark.usefixtures("no_leak")


# Before anything runs


@pytest.fixture
def setup(host):
    program = traced(lambda x, y: x * 2 + y, np.ones(2), np.ones(2))
    runtime = Runtime.builder().register_engine(host).build()
    return runtime, prepared_for(runtime, program, host)


def test_stale(setup, host):
    runtime, prepared = setup
    runtime.reconfigure(lambda c: c.register_engine(HostEngine(1)))
    with pytest.raises(errors.StaleError, match="under configuration 1; configuration 2 is in force"):
        runtime.run([host], prepared, [np.ones(1), np.ones(1)])


def test_wrong_runtime(setup, host):
    _, prepared = setup
    other = Runtime.builder().register_engine(host).build()
    with pytest.raises(errors.WrongRuntimeError, match="prepared by runtime"):
        other.run([host], prepared, [np.ones(1), np.ones(1)])


def test_wrong_engines(setup, host):
    runtime, prepared = setup
    for engines, text in (([], "0 engines"), ([host, HostEngine(1)], "2 engines"), ([HostEngine(1)], "reference:1")):
        with pytest.raises(errors.EngineMismatchError, match=text):
            runtime.run(engines, prepared, [np.ones(1), np.ones(1)])
    with pytest.raises(errors.EngineMismatchError):
        runtime.run([ReferenceEngine()], prepared, [np.ones(1), np.ones(1)])  # of its name, but not of its class


def test_broken_engine(setup, host):
    runtime, prepared = setup
    host.broken = "a test"
    with pytest.raises(errors.BrokenEngineError, match="broken.*a test.*make another"):
        runtime.run([host], prepared, [np.ones(1), np.ones(1)])
    assert repr(host) == "<engine reference:0, broken>"


x = np.ones(2)


@pytest.mark.parametrize(
    ("inputs", "kind", "text"),
    [
        ([x], errors.InputError, "1 inputs; <lambda> has 2"),
        ([x, x, x], errors.InputError, "3 inputs"),
        ([], errors.InputError, "input x is unbound"),
        ([x, [1.0, 2.0]], errors.InputError, "input y is a list; an ndarray"),
        ([x, 1.0], errors.InputError, "input y is a float"),
        ([x, np.ma.masked_array(x)], errors.InputError, "MaskedArray"),
        ([x, x.astype("f4")], DtypeError, "input y of dtype float32; float64"),
        ([x.astype(">f8"), x], DtypeError, "input x of dtype >f8; float64"),
        ([x, x[None]], ShapeError, "input y of rank 2; rank 1"),
        ([x, np.ones(3)], errors.GuardError, r"x.shape\[0\] == y.shape\[0\] does not hold.*\(at .*:\d+\)"),
    ],
)
def test_inputs(setup, host, inputs, kind, text):
    runtime, prepared = setup
    with pytest.raises(kind, match=text):
        runtime.run([host], prepared, inputs)
    assert runtime.run([host], prepared, [x, x]).outputs[0].tolist() == [3, 3]


def test_a_constant_size(host):
    kind = ArrayType(np.dtype("f8"), (3,))
    program = one_op(pointwise.negative, [kind], {})
    runtime = Runtime.builder().register_engine(host).build()
    prepared = prepared_for(runtime, program, host)
    with pytest.raises(ShapeError, match="input x0 has 2 along axis 0; 3 is needed"):
        runtime.run([host], prepared, [np.ones(2)])


def test_int_inputs(host):
    program = traced(lambda x, n: x * n, np.ones(2), 3)
    runtime = Runtime.builder().register_engine(host).build()
    prepared = prepared_for(runtime, program, host)
    assert runtime.run([host], prepared, [x, anything(np.int32(5))]).outputs[0].tolist() == [5, 5]
    for value, kind, text in (
        (True, errors.InputError, "input n is a bool; an int"),
        (2.0, errors.InputError, "input n is a float"),
        (x, errors.InputError, "input n is a ndarray"),
        (2**63, RangeError, "input n is 9223372036854775808"),
    ):
        with pytest.raises(kind, match=text):
            runtime.run([host], prepared, [x, anything(value)])


def test_unaligned_inputs_are_copied(setup, host):
    runtime, prepared = setup
    crooked = np.frombuffer(b"\0" + np.arange(2.0).tobytes(), np.uint8)[1:].view("f8")
    assert not crooked.flags.aligned
    assert runtime.run([host], prepared, [crooked, x]).outputs[0].tolist() == [1, 3]


def test_defaults(host):
    program = traced(lambda x, y, z: x * 100 + y * 10 + z, x, x, x)
    runtime = Runtime.builder().register_engine(host).build()
    kept = {0: np.full(2, 3.0), 2: np.full(2, 5.0)}
    prepared = runtime.prepare(program, signature_of(program), [target_of(host)], defaults=kept)
    assert runtime.run([host], prepared, [x]).outputs[0].tolist() == [315, 315]
    assert runtime.run([host], prepared, [x, x, x]).outputs[0].tolist() == [111, 111]
    with pytest.raises(errors.InputError, match="input y is unbound"):
        runtime.run([host], prepared)
    with pytest.raises(errors.InputError, match="2 inputs; <lambda> has 3, 1 of them without a default"):
        runtime.run([host], prepared, [x, x])
    every = runtime.prepare(program, signature_of(program), [target_of(host)], defaults={**kept, 1: x})
    assert runtime.run([host], every).outputs[0].tolist() == [315, 315]
    for wrong in ({0: np.ones(2, "f4")}, {1: np.ones(7)}):
        bad = runtime.prepare(program, signature_of(program), [target_of(host)], defaults={**kept, 1: x, **wrong})
        with pytest.raises((DtypeError, errors.GuardError)):
            runtime.run([host], bad)
    with pytest.raises(errors.InputError, match="default 3; inputs are 0 to 2"):
        runtime.prepare(program, signature_of(program), [target_of(host)], defaults={3: x})


def test_transfer_budget_at_run(host, device):
    runtime = device_runtime(host, device)
    ran = []
    host.before_run = lambda: ran.append(1)
    prepared = prepared_for(runtime, there_and_back(), host, device, max_transfer_bytes=48)
    assert runtime.run([host, device], prepared, [np.ones(3)]).outputs[0].tolist() == [4, 4, 4]
    ran.clear()
    with pytest.raises(errors.TransferBudgetError, match="run: 64 bytes cross between engines; 48 are allowed: s1 ref"):
        runtime.run([host, device], prepared, [np.ones(4)])
    assert not ran  # found before anything happened
    serves(runtime, host, device)


def test_transfer_budget_of_sizes_that_the_run_tells(host, device):
    program = traced(lambda x: x[x > 0] * 2, np.ones(2))
    places = ["reference:0"] * (len(program.operations) - 1) + ["device:0"]
    runtime = device_runtime(host, device)
    prepared = prepared_for(runtime, placed(program, *places), host, device, max_transfer_bytes=16)
    (out,) = runtime.run([host, device], prepared, [np.array([1.0, -1, -1, 2])]).outputs
    assert opened(out) == [2, 4]
    del out
    with pytest.raises(errors.TransferBudgetError, match="run: 24 bytes"):
        runtime.run([host, device], prepared, [np.array([1.0, 1, -1, 2])])


# On arrival


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda r: r.data, "s1 is not on device:0"),
        (lambda r: Remote(r.data, "device:1"), "s1 is not on device:0"),
        (lambda r: None, "s1 is not on device:0"),
        (lambda r: Remote(r.data.astype("f4"), r.owner), "dtype float32; float64 sent"),
        (lambda r: Remote(r.data[:-1], r.owner), r"shape \(2,\); \(3,\) sent"),
    ],
)
def test_what_arrives_is_not_what_was_sent(host, device, spoil, text):
    runtime = device_runtime(host, device, upload=Upload(spoil))
    prepared = prepared_for(runtime, there_and_back(), host, device)
    with pytest.raises(errors.ArrivalError, match=text):
        runtime.run([host, device], prepared, [np.arange(3.0)])


class Long(Remote):
    @property
    def nbytes(self) -> int:
        return 7


def test_wrong_length_on_arrival(host, device):
    runtime = device_runtime(host, device, upload=Upload(lambda r: Long(r.data, r.owner)))
    prepared = prepared_for(runtime, there_and_back(), host, device)
    with pytest.raises(errors.ArrivalError, match="length 7; 24 sent"):
        runtime.run([host, device], prepared, [np.arange(3.0)])


def test_an_engine_that_makes_values_elsewhere(host):
    class Absent(DeviceEngine):
        def holds(self, value) -> bool:
            return super().holds(value) and value.data.shape != (5,)

    device = Absent()
    runtime = device_runtime(host, device)
    program = placed(traced(lambda x: (x + 1).sum() * 2, np.ones(2)), "reference:0", "reference:0", "device:0")
    assert opened(runtime.run([host, device], prepared_for(runtime, program, host, device), [x]).outputs[0]) == 8
    device.id = "device:0"
    wide = placed(traced(lambda x: np.broadcast_to(x.sum(), (5,)) * 2, np.ones(2)), "reference:0", "reference:0", "")
    (*_, last) = wide.operations
    wide = replace(wide, operations=(*wide.operations[:-1], replace(last, place="device:0")))
    with pytest.raises(errors.ArrivalError, match="is not in the memory of device:0, which made it|not on device:0"):
        runtime.run([host, device], prepared_for(runtime, wide, host, device), [x])


def test_an_input_that_is_elsewhere():
    class Eager(DeviceEngine):
        def accepts(self, kind) -> bool:
            return True

    a, b = Eager("device:0"), DeviceEngine("device:1")
    runtime = device_runtime(a, b)
    program = placed(traced(lambda x: (x + 1) * 2, x), "device:0", "device:1")
    with pytest.raises(errors.ArrivalError, match="input x is not in the memory of device:0"):
        runtime.run([a, b], prepared_for(runtime, program, a, b), [x])


# Event domains


@pytest.mark.parametrize("driver", [ImmediateDriver(), WorkerDriver("test")])
def test_rules_of_a_domain(driver):
    here, there = driver.begin_run("device:0"), driver.begin_run("device:1")
    ran: list[str] = []
    first = there.enqueue([], lambda: ran.append("first"))
    with pytest.raises(errors.EventError, match="a dependency of device:1 in a run of device:0; only transfers"):
        here.enqueue([first], lambda: ran.append("never"))
    bridged = here.enqueue([first], lambda: ran.append("bridged"), bridge=True)
    assert bridged.wait() and bridged.wait() and bridged.origin == "device:0"
    assert here.drain() == [] and here.state == "retired"
    with pytest.raises(errors.EventError, match="is retired"):
        here.enqueue([], lambda: ran.append("late"))

    def fail() -> None:
        raise KeyError("mine")

    failed = there.enqueue([], fail)
    skipped = there.enqueue([failed], lambda: ran.append("never"))
    after = there.enqueue([], lambda: ran.append("after"))
    assert not failed.wait() and not skipped.wait() and after.wait()
    assert skipped.skipped and skipped.failure is None
    (failure,) = there.drain()
    assert isinstance(failure, KeyError) and there.state == "failed"
    with pytest.raises(errors.EventError, match="is failed"):
        there.enqueue([], fail)
    assert ran == ["first", "bridged", "after"]


def test_a_driver_that_begins_another_run(host):
    device = DeviceEngine(driver=WrongRun())
    runtime = device_runtime(host, device)
    with pytest.raises(errors.EventError, match="engine device:0 began a run of elsewhere:0"):
        runtime.run([host, device], prepared_for(runtime, there_and_back(), host, device), [x])
    device._driver = ImmediateDriver()
    serves(runtime, host, device)


def test_a_token_of_another_domain(host):
    device = DeviceEngine(driver=WrongToken())
    runtime = device_runtime(host, device)
    with pytest.raises(errors.EventError, match="a token of elsewhere:0 for a node of device:0"):
        runtime.run([host, device], prepared_for(runtime, there_and_back(), host, device), [x])
    device._driver = WorkerDriver("again")
    serves(runtime, host, device)


def test_combined_notes():
    first, second = KeyError("a"), ValueError("b")
    assert combined([first, second, first]) is first
    assert first.__notes__ == ["suppressed: ValueError: b"]
