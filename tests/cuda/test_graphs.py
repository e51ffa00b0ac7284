"""CUDA graphs on a device that records: captured when addresses come back, replayed for these alone."""

from __future__ import annotations

import gc
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cuda.engine import CudaEngine, CudaExecutable
from tests.cuda.engine_cases import X, chain, softmax
from tests.cuda.shim.compile import missing
from tests.cuda.shim_device import ShimDevice

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
    assert told(few, x) == ["1 launches are no fewer than a graph's"]
    assert told(product, x) == ["a library call takes memory of its own"]


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
