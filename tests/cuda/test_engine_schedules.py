"""Programs over the CPU and GPUs that the CPU stands for: what crosses, in which order, what is refused."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu.engine import CpuEngine
from tenferro.engines.cuda.engine import CudaEngine
from tenferro.engines.errors import BrokenEngineError, InputIngressError, TargetError, TransferBudgetError
from tenferro.runtime import PrepareOptions, Runtime, signature_of, target_of
from tenferro.runtime.prepared import InputType
from tests.cuda.engine_cases import X, Y, compile_all, softmax
from tests.cuda.shim.compile import missing
from tests.cuda.shim_device import ShimDevice, shim_engine

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


@pytest.fixture
def engines() -> Iterator[tuple[CudaEngine, CudaEngine]]:
    """``cuda:0`` and ``cuda:1`` in the default runtime."""
    compile_all()
    found = shim_engine(0), shim_engine(1, eager=True)
    tn.default_runtime().reconfigure(lambda c: [c.register_engine(e) for e in found])
    yield found
    tn.default_runtime().reconfigure(lambda c: [c.remove_engine(e.id) for e in found])
    gc.collect()
    for engine in found:
        assert isinstance(engine.device, ShimDevice)
        assert engine.device.faults == [] and engine.device.pool().used == 0


def mixed(x, y):
    with tn.on("cuda:0"):
        a = softmax(x)
    b = y * 2.0
    with tn.on("cuda:1"):
        c = softmax(y) - a
    return (a + b).sum(axis=0), c, np.sort(b, axis=1)


def kinds(f, *args):
    schedule = f._programs.find(f._bind(args, {})).compiled.prepared.schedule
    return [(schedule.domains[n.engine], type(n).__name__.removesuffix("Node")) for n in schedule.nodes]


def plain(x, y):
    a, b = softmax(x), y * 2.0
    return (a + b).sum(axis=0), softmax(y) - a, np.sort(b, axis=1)


def test_parts_run_where_they_are_put(engines: tuple[CudaEngine, CudaEngine]):
    f = tn.jit(mixed)
    for found, wanted in zip(f(X, Y), tn.jit(plain)(X, Y), strict=True):
        assert found.tobytes() == wanted.tobytes() and type(found) is np.ndarray
    used = kinds(f, X, Y)
    assert {d for d, kind in used if kind == "Operation"} == {"cpu:0", "cuda:0", "cuda:1"}
    crossings = f._programs.find(f._bind((X, Y), {})).compiled.prepared.transfers()
    ends = [(t.source.engine, t.destination.engine) for t in crossings]
    assert ends.count(("cuda:0", "cuda:1")) == 1 and ends.count(("cpu:0", "cuda:0")) == 1
    assert all(str(t.bytes) == "8*d0_0*d0_1" for t in crossings)
    assert "returned" in [t.reason for t in crossings]


def test_a_loop_between_two_engines(engines: tuple[CudaEngine, CudaEngine]):
    def ping_pong(x):
        for k in range(4):
            with tn.on(f"cuda:{k % 2}"):
                x = x - x.max(axis=-1, keepdims=True)
        return x

    def straight(x):
        for _ in range(4):
            x = x - x.max(axis=-1, keepdims=True)
        return x

    np.testing.assert_array_equal(tn.jit(ping_pong)(X), tn.jit(straight)(X))


def test_a_failure_on_the_way_back_breaks_the_device_not_the_host(engines: tuple[CudaEngine, CudaEngine]):
    f = tn.jit(softmax, engine="cuda:0")
    device = engines[0].device
    assert isinstance(device, ShimDevice)
    device.fail, device.fail_late = "late trouble", True
    with pytest.raises(BrokenEngineError, match="cuda:0.*late trouble"):
        f(X)
    assert engines[0].broken and not tn.default_runtime().engine("cpu:0").broken


def test_errors_of_parts_carry_the_users_line(engines: tuple[CudaEngine, CudaEngine]):
    def picked(x, i):
        with tn.on("cuda:0"):
            a = x[i]
        return a * 2.0

    with pytest.raises(IndexError, match=r"indices contain 77.*test_engine_schedules.py:\d+"):
        tn.jit(picked)(X, np.array([0, 77]))


def runtime_of(*engines) -> Runtime:
    builder = Runtime.builder()
    for engine in engines:
        builder.register_engine(engine)
    return builder.build()


def test_device_arrays_go_in_and_come_out_without_crossing():
    cuda = shim_engine()
    runtime = runtime_of(cuda)
    program = tn.jit(softmax).trace(X)
    signature = (InputType(X.dtype, 2, "cuda:0"),)
    prepared = runtime.prepare(program, signature, [target_of(cuda)])
    assert prepared.transfers() == () and prepared.schedule.is_flat
    (out,) = runtime.run_checked([cuda], prepared, [cuda.receive(X)]).outputs
    assert cuda.holds(out)
    np.testing.assert_array_equal(cuda.fetch(out), tn.jit(softmax)(X))


def test_results_are_brought_to_where_they_are_wanted():
    cpu, cuda = CpuEngine(), shim_engine()
    runtime = runtime_of(cpu, cuda)
    program = tn.jit(softmax).trace(X)
    targets = [target_of(cpu), target_of(cuda)]
    prepared = runtime.prepare(program, signature_of(program), targets, PrepareOptions(results="cuda:0"))
    (out,) = runtime.run([cpu, cuda], prepared, [X]).outputs
    assert cuda.holds(out) and [t.reason for t in prepared.transfers()] == ["returned"]
    mixed_in = (InputType(X.dtype, 2, "cuda:0"),)
    prepared = runtime.prepare(program, mixed_in, targets, PrepareOptions(results="cpu:0"))
    (back,) = runtime.run_checked([cpu, cuda], prepared, [out]).outputs
    np.testing.assert_array_equal(back, tn.jit(lambda x: softmax(softmax(x)))(X))
    with pytest.raises(TargetError, match="results on cuda:7; targets are cpu:0, cuda:0"):
        runtime.prepare(program, signature_of(program), targets, PrepareOptions(results="cuda:7"))


def test_without_a_host_nothing_enters():
    cuda = shim_engine()
    program = tn.jit(softmax).trace(X)
    with pytest.raises(InputIngressError, match="input x cannot enter cuda:0/device"):
        runtime_of(cuda).prepare(program, signature_of(program), [target_of(cuda)])


def test_a_budget_of_no_bytes_refuses_what_would_cross():
    cpu, cuda = CpuEngine(), shim_engine()
    runtime = runtime_of(cpu, cuda)
    program = tn.jit(softmax).trace(X)
    options = PrepareOptions(max_transfer_bytes=0)
    prepared = runtime.prepare(program, signature_of(program), [target_of(cuda), target_of(cpu)], options)
    with pytest.raises(TransferBudgetError, match="3360 bytes cross between engines; 0 are allowed"):
        runtime.run([cuda, cpu], prepared, [X])
