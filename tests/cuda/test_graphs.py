"""CUDA graphs on a device that records: captured when addresses come back, replayed for these alone."""

from __future__ import annotations

import dataclasses
import gc
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu.layout import Strided
from tenferro.engines.cuda.actions import Fill, Launch, Product, Ref
from tenferro.engines.cuda.device import Graph, Stream
from tenferro.engines.cuda.engine import CudaEngine, CudaExecutable
from tenferro.engines.cuda.graphs import segments
from tenferro.runtime import ExtensionModule, Family
from tests.cuda.engine_cases import X8, X, chain, softmax
from tests.cuda.shim.compile import missing
from tests.cuda.shim_device import ShimDevice, device

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


def told(f: Any, *args: Any) -> list[str]:
    units = f._programs.find(f._bind(args, {})).compiled.prepared.executables()
    return [line for u in units if isinstance(u, CudaExecutable) for line in u.graphs()]


def launches(engine: CudaEngine) -> int:
    assert isinstance(engine.device, ShimDevice)
    return len(engine.device.launches)


def test_a_loop_replays_and_other_values_come_out(cuda: CudaEngine):
    f, wanted = tn.jit(chain), tn.jit(chain)
    for k in range(6):
        x = tn.asarray(X + k, engine="cuda:0")
        np.testing.assert_array_equal(np.asarray(f(x)), wanted(X + k))
        del x
        gc.collect()  # its memory is the next one's
    each = launches(cuda) // 2
    assert told(f, tn.asarray(X, engine="cuda:0")) == ["1 captured, 5 replays"] and each >= 3
    assert launches(cuda) == 2 * each  # once eagerly, once recorded


def test_other_addresses_are_never_replayed(cuda: CudaEngine):
    f, wanted = tn.jit(chain), tn.jit(chain)
    kept = [tn.asarray(X * k, engine="cuda:0") for k in range(1, 5)]
    results = [f(x) for x in kept]
    for k, (x, y) in enumerate(zip(kept, results, strict=True), 1):
        np.testing.assert_array_equal(np.asarray(y), wanted(X * k))
        np.testing.assert_array_equal(np.asarray(f(x)), wanted(X * k))
    assert told(f, kept[0])[0].startswith(("0 captured", "1 captured", "2 captured", "3 captured", "4 captured"))


def test_reasons_are_told(cuda: CudaEngine):
    x = tn.asarray(X, engine="cuda:0")
    few, product = tn.jit(softmax), tn.jit(lambda x: (x @ x.T - 1.0).sum(axis=0))
    few(x), product(x)
    assert told(few, x) == ["too few launches for a graph: 1"]
    assert told(product, x) == ["matmul: a library call is not recorded; too few launches for a graph: 1"]


def test_a_refused_recording_is_declined_and_the_run_goes_on(cuda: CudaEngine):
    assert isinstance(cuda.device, ShimDevice)
    cuda.device.refuse_capture = "not permitted"
    f, wanted = tn.jit(chain, engine="cuda:0"), tn.jit(chain)(X)
    for _ in range(4):
        np.testing.assert_array_equal(f(X), wanted)
        gc.collect()
    assert told(f, X) == ["recording failed: not permitted"]


def test_errors_are_found_in_replays_too(cuda: CudaEngine):
    def picked(x, i):
        y = chain(x)
        return (y - y.max())[i]

    f = tn.jit(picked, engine="cuda:0")
    for index in (1, 2, 0, 1):
        np.testing.assert_array_equal(f(X, np.array([index])), tn.jit(picked)(X, np.array([index])))
        gc.collect()
    with pytest.raises(IndexError, match="indices contain 99"):
        f(X, np.array([99]))
    assert "captured" in told(f, X, np.array([0]))[0]


def exact_chain(x: Any) -> Any:
    for k in range(6):
        x = (x - x.max(axis=k % 2, keepdims=True)).T.copy()
    return x


def between(x: Any) -> Any:
    """Three launches and more, a product, and as many again. Exact, whatever the order of the product's sums."""
    y = exact_chain(x)
    return exact_chain(y @ y.T)


def test_kernels_on_both_sides_of_a_product_are_graphs(cuda: CudaEngine):
    f, wanted = tn.jit(between), tn.jit(between)
    for k in range(5):
        x = tn.asarray(X8 + k, engine="cuda:0")
        np.testing.assert_array_equal(np.asarray(f(x)), wanted(X8 + k))
        del x
        gc.collect()
    again = tn.asarray(X8, engine="cuda:0")
    assert told(f, again) == ["1 captured, 4 replays (2 segments); matmul: a library call is not recorded"]
    each = launches(cuda)
    f(again)
    assert launches(cuda) == each and device(cuda).calls == 6


def test_only_the_segment_that_cannot_be_recorded_is_quarantined(cuda: CudaEngine):
    f, wanted = tn.jit(between, engine="cuda:0"), tn.jit(between)(X8)
    np.testing.assert_array_equal(f(X8), wanted)
    gc.collect()
    device(cuda).refuse_capture = "not permitted"
    real = device(cuda).end_capture

    def once(stream: Stream) -> Graph:
        try:
            return real(stream)
        finally:
            device(cuda).refuse_capture = ""

    device(cuda).end_capture = once  # type: ignore[method-assign]
    for _ in range(3):
        np.testing.assert_array_equal(f(X8), wanted)
        gc.collect()
    assert told(f, X8) == [
        "recording failed: not permitted; matmul: a library call is not recorded; 1 captured, 3 replays"
    ]


def test_a_segment_is_replayed_though_others_use_other_memory(cuda: CudaEngine):
    """What an executor returns lies elsewhere each time; the segment before it does not read that."""
    kept: list[Any] = []

    def execute(lent: Any, x: Any) -> Any:
        kept.append(x.numpy() + 1.0)
        return kept[-1]

    plus = Family("test.plus.v1", lambda types, params: (types[0],), lambda x: x + 1.0)
    module = ExtensionModule("plus", (plus,), {("test.plus.v1", "cuda"): execute})
    runtime = tn.default_runtime()
    runtime.reconfigure(lambda c: c.install_extension(module))
    try:
        f = tn.jit(lambda x: chain(plus(chain(x))))
        given = tn.asarray(X, engine="cuda:0")
        held = []
        for _ in range(4):
            held.append(f(given))
            np.testing.assert_array_equal(np.asarray(held[-1]), tn.jit(lambda x: chain(plus(chain(x))))(X))
        (text,) = told(f, given)
        assert "test.plus.v1: an extension's executor is called at each run" in text
        assert len(kept) == 4 and "captured" in text
    finally:
        runtime.reconfigure(lambda c: c.modules.remove(module))


def test_segments_tell_which_memory_they_use():
    at = Ref(2, Strided(0, (1,), (8,)), np.dtype(float))
    launch = Launch("all", 0, 1, (1, 1), 0, np.zeros(4, np.int64), ((0, 1, 0), (1, 4, 8)), None)
    table = dataclasses.replace(launch, table=(5, 0))
    cut = segments(ShimDevice(), [Fill(3, 0, 255, 8), launch, launch, launch, Product(at, (at, at)), table, launch])
    assert [s.bases for s in cut] == [(1, 3, 4), (2,), (1, 4, 5), (1, 4)]
    assert [s.replays.declined for s in cut] == [
        "", "matmul: a library call is not recorded", "a kernel's words are copied from the host at each run",
        "too few launches for a graph: 1",
    ]  # fmt: skip


def test_a_device_that_records_nothing_is_told():
    class Plain(ShimDevice):
        captures = False  # type: ignore[assignment]

    launch = Launch("all", 0, 1, (1, 1), 0, np.zeros(4, np.int64), (), None)
    (only,) = segments(Plain(), [launch] * 5)
    assert str(only.replays) == "the device captures no graphs"
