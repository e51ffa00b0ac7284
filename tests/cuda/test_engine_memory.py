"""Memory and failures of the CUDA engine: temporaries share an arena, limits, what a failure leaves."""

from __future__ import annotations

import gc
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cuda.arena import Arena
from tenferro.engines.cuda.arrays import DeviceArray
from tenferro.engines.cuda.binding import BoundPlan
from tenferro.engines.cuda.device import ALIGNMENT, PoolStats
from tenferro.engines.cuda.engine import CudaEngine, CudaExecutable
from tenferro.engines.errors import BrokenEngineError, EngineFailure
from tenferro.lowering import lower
from tenferro.tracer.config import config
from tenferro.tracer.errors import LoweringError, MemoryLimitError
from tests.cuda.engine_cases import X, Y, softmax
from tests.cuda.shim.compile import missing
from tests.cuda.shim_device import device, registered, shim_engine

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


@pytest.fixture
def cuda() -> Iterator[CudaEngine]:
    """``cuda:0`` in the default runtime."""
    engine = shim_engine()
    with registered(engine):
        yield engine


def bound_of(unit: Any) -> BoundPlan:
    """The one binding of an executable."""
    assert isinstance(unit, CudaExecutable)
    (bound,) = unit._bound.values()
    return bound


def run(unit: Any, *arrays: Any) -> Any:
    """The one output of a run."""
    (out,) = unit.run(list(arrays)).outputs
    return out


def test_an_arena_hands_out_what_nobody_has():
    choose = random.Random(3)
    arena, live = Arena(), {}
    for _ in range(2000):
        if live and choose.random() < 0.5:
            offset = choose.choice(list(live))
            arena.free(offset, live.pop(offset))
        else:
            size = choose.randrange(1, 5000)
            offset = arena.allocate(size)
            assert offset % ALIGNMENT == 0 and offset + size <= arena.size
            assert all(offset + size <= o or o + n <= offset for o, n in live.items())
            live[offset] = size
    for offset, size in live.items():
        arena.free(offset, size)
    before = arena.size
    assert arena.allocate(before) == 0 and arena.size == before  # one hole is left


def test_temporaries_share_memory_after_their_last_use(cuda: CudaEngine):
    def passes(x):
        for _ in range(8):
            x = (x - x.mean(axis=0)).T @ (x - x.mean(axis=1, keepdims=True))
        return x

    square = X[:, :6].copy()
    plan = tn.jit(passes).lower(square).plan
    unit = cuda.compile(plan)
    unit.run([cuda.receive(square)])
    assert bound_of(unit).arena <= 8 * 512  # 8 passes of three matrices and two vectors each, of 256 or 512 bytes


def test_a_view_of_an_input_shares_its_memory_and_keeps_it(cuda: CudaEngine):
    plan = lower(tn.jit(lambda x: x.T[1:]).trace(X), config())
    given = cuda.receive(X)
    out = run(cuda.compile(plan), given)
    assert isinstance(out, DeviceArray) and out.memory is given.memory
    del given
    gc.collect()
    cuda.receive(Y)  # would take the memory
    np.testing.assert_array_equal(out.numpy(), X.T[1:])
    del out
    gc.collect()
    assert device(cuda).pool().used == 0


def test_results_stay_on_the_device_until_they_are_fetched(cuda: CudaEngine):
    plan = lower(tn.jit(softmax).trace(X), config())
    unit = cuda.compile(plan)
    x = cuda.receive(X)
    out = run(unit, x)
    assert device(cuda).copied["down"] == 0
    assert not device(cuda).stream().record().is_done  # nobody has waited for the kernel
    twice = run(unit, out)
    np.testing.assert_array_equal(twice.numpy(), tn.jit(lambda x: softmax(softmax(x)))(X))
    assert device(cuda).copied["down"] == X.nbytes
    interface = twice.__cuda_array_interface__
    assert interface["shape"] == X.shape and interface["typestr"] == "<f8" and interface["version"] == 3
    assert repr(twice) == "<DeviceArray float64[6, 70] on cuda:0>"


def test_a_limit_is_kept_and_told(cuda: CudaEngine):
    cuda.device.limit(1 << 20)
    f = tn.jit(lambda x: x + 1, engine="cuda:0")
    assert f(np.zeros(1000)).sum() == 1000
    with pytest.raises(MemoryLimitError, match=r"memory cannot be had.*on cuda:0, where 1,048,576 are allowed"):
        f(np.zeros(1 << 18))
    gc.collect()
    assert f(np.zeros(2000)).sum() == 2000  # what was kept for reuse made room
    gc.collect()
    assert device(cuda).pool().used == 0 and not cuda.broken


def test_a_limit_lists_the_largest_live_buffers(cuda: CudaEngine):
    cuda.device.limit(1 << 20)
    kept = [cuda.receive(np.zeros(n)) for n in (10_000, 200, 300, 400, 500)]
    given = cuda.receive(np.zeros((60, 90)))
    unit = cuda.compile(lower(tn.jit(halved_and_turned).trace(X), config()))
    results = unit.run([given]).outputs
    del given
    with pytest.raises(MemoryLimitError) as caught:
        cuda.receive(np.zeros(1 << 17))
    text = str(caught.value)
    line = halved_and_turned.__code__.co_firstlineno + 1
    assert text.startswith("receive: 1,048,576 bytes of device memory cannot be had; ")
    _, listed = text.split(" on cuda:0, where 1,048,576 are allowed; largest live: ")
    listed = listed.replace(",", "")
    assert listed.startswith("80000 bytes (an uploaded array) 43200 bytes (halved_and_turned at ")
    assert f"test_engine_memory.py:{line}) 4000 bytes (an uploaded array) 3200 bytes (an uploaded array) " in listed
    assert text.count(" bytes (") == 5 and "1,600 bytes" not in text
    del kept, results
    gc.collect()
    with pytest.raises(MemoryLimitError, match="0 bytes are in live arrays on cuda:0, .*; largest live: none$"):
        cuda.receive(np.zeros(1 << 18))


def halved_and_turned(x: Any) -> Any:
    return x.T * 0.5


def test_a_run_that_finds_no_memory_gives_back_what_it_had(cuda: CudaEngine):
    cuda.device.limit(1 << 19)
    f = tn.jit(lambda x: ((x - x.mean(axis=0)).T @ (x - x.mean(axis=1, keepdims=True))).sum())
    x = tn.asarray(np.ones((200, 200)), engine="cuda:0")
    with pytest.raises(MemoryLimitError, match=r"<lambda>: .*largest live: 320,000 bytes \(an uploaded array\)"):
        f(x)
    gc.collect()
    assert device(cuda).pool().used == 320_000 and not cuda.broken


def test_nothing_is_allocated_before_it_is_needed():
    """Neither by the import, nor by an engine: no CuPy, no device memory, nothing page-locked, no thread."""
    text = (
        "import sys, threading, tenferro as tn, tenferro.engines.cuda.engine\n"
        "assert 'cupy' not in sys.modules, 'CuPy is imported'\n"
        "assert tn.list_engines() and threading.active_count() == 1\n"
    )
    subprocess.run([sys.executable, "-c", text], check=True, timeout=120)
    engine = shim_engine(7)
    assert device(engine).pool() == PoolStats(0, 0, 0) and device(engine).pinned_bytes == 0
    assert f"tenferro-{engine.id}" not in [t.name for t in threading.enumerate()]
    engine.compile(lower(tn.jit(softmax).trace(X), config()))
    assert device(engine).pool().held == 0 and device(engine).modules == 0


def test_dead_memory_is_reused_and_can_be_given_back(cuda: CudaEngine):
    f = tn.jit(softmax, engine="cuda:0")
    f(X)
    held = device(cuda).pool().held
    for _ in range(5):
        f(X)
    assert device(cuda).pool().held == held > 0
    cuda.device.trim()
    gc.collect()
    assert device(cuda).pool().held == 0


@pytest.mark.parametrize("late", [False, True])
def test_a_failed_launch_breaks_the_engine_and_no_other(late: bool, cuda: CudaEngine):
    f = tn.jit(softmax, engine="cuda:0")
    wanted = f(X)
    device(cuda).fail, device(cuda).fail_late = "an illegal address", late
    with pytest.raises(BrokenEngineError, match="cuda:0.*an illegal address"):
        f(X)
    assert "an illegal address" in cuda.broken
    with pytest.raises(BrokenEngineError, match="cuda:0.*make another"):
        f(X)
    assert tn.default_runtime().engine("cpu:0").broken == ""
    np.testing.assert_array_equal(tn.jit(softmax)(X), wanted)
    other = shim_engine()
    tn.default_runtime().reconfigure(lambda c: (c.remove_engine("cuda:0"), c.register_engine(other)))
    np.testing.assert_array_equal(f(X), wanted)


def test_failures_outside_runs_are_told_too(cuda: CudaEngine):
    unit = cuda.compile(lower(tn.jit(softmax).trace(X), config()))
    device(cuda).fail, device(cuda).fail_late = "power failure", True
    out = run(unit, cuda.receive(X))
    with pytest.raises(EngineFailure, match="power failure"):
        cuda.synchronize()
    with pytest.raises(EngineFailure, match="power failure"):
        out.numpy()


def test_a_call_that_the_engine_has_not_is_refused(cuda: CudaEngine):
    unit = cuda.compile(lower(tn.jit(lambda x: np.sort(x)).trace(X), config()))
    with pytest.raises(LoweringError, match="which a CUDA engine does not run.*test_engine_memory.py"):
        unit.run([cuda.receive(X)])


def test_kernels_with_too_many_words_read_them_from_memory(cuda: CudaEngine):
    arrays = [np.random.default_rng(k).standard_normal((3,) * 5)[:2, :2, :2, :2, :2] for k in range(100)]

    def total(*xs):
        found = xs[0]
        for x in xs[1:]:
            found = found * 0.5 + x
        return found

    unit = cuda.compile(lower(tn.jit(total).trace(*arrays), config()))
    made = [cuda.receive(a.base) for a in arrays]
    views = [DeviceArray(cuda, m.memory, 0, a.shape, a.strides, a.dtype) for m, a in zip(made, arrays, strict=True)]
    out = run(unit, *views)
    assert not any(k.text.by_value for k in bound_of(unit).kernels)
    np.testing.assert_array_equal(out.numpy(), tn.jit(total)(*arrays))
