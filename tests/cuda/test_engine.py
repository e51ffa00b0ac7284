"""The CUDA engine through ``jit``, on a GPU that is the CPU: equal bits, the same errors and warnings."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Iterator

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cuda.engine import CudaEngine
from tests.cuda.engine_cases import CASES, Case, K, V, X, compile_all, host, same, softmax, windows
from tests.cuda.shim.compile import missing
from tests.cuda.shim_device import device, registered, shim_engine

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")


@pytest.fixture(params=["late", "eager"])
def cuda(request: pytest.FixtureRequest) -> Iterator[CudaEngine]:
    """``cuda:0`` in the default runtime."""
    compile_all()
    engine = shim_engine(eager=request.param == "eager")
    with registered(engine):
        yield engine
    gc.collect()
    assert device(engine).faults == []


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_bits_are_those_of_the_cpu_engine(cuda: CudaEngine, case: Case):
    f = tn.jit(case.function, engine="cuda:0")
    for _ in range(2):
        same(f(*case.args), host(case.name))
    gc.collect()
    assert device(cuda).pool().used == 0


def test_kernels_run_on_the_device(cuda: CudaEngine):
    f = tn.jit(softmax, engine="cuda:0")
    f(X)
    assert device(cuda).launches == ["rows"]
    (unit,) = f._programs.find(f._bind((X,), {})).compiled.prepared.executables()
    (texts,) = unit.kernel_texts().values()
    assert 'extern "C" __global__' in texts["cuda"]
    assert f.cache_info().kernels == 1


def test_texts_of_stages(cuda: CudaEngine):
    def layer(x, v):
        h = softmax(x) @ v
        return h - 1.0

    lowered = tn.jit(layer, engine="cuda:0").lower(X, V)
    lines = lowered.as_text("cuda").splitlines()
    said = [line for line in lines if line.startswith("//")]
    assert said == [
        "// == cuda:0, part 2", "// p2.r0", "// p2.r1",
        "// graphs: too few launches for a graph: 1 (2 segments); matmul: a library call is not recorded",
    ]  # fmt: skip
    assert sum(line.startswith('extern "C" __global__ void') for line in lines) == 2
    assert lowered.as_text("llvm") == "; == cuda:0, part 2\n; kernels on cuda:0 have no llvm, but cuda"
    host_text = tn.jit(layer).lower(X, V).as_text
    assert host_text("cuda") == "// kernels on cpu:0 have no cuda, but llvm, asm"
    # Scalar operations are the same whatever engine runs them.
    mine = [line for line in lowered.as_text("kernel").splitlines() if " t" in line or "function" in line]
    assert mine == [line for line in host_text("kernel").splitlines() if " t" in line or "function" in line]


def test_one_program_serves_every_size(cuda: CudaEngine):
    f = tn.jit(softmax, engine="cuda:0")
    for n in (1, 2, 31, 33, 500):
        same(f(X[:2, :1].repeat(n, axis=1)), softmax_on_host(X[:2, :1].repeat(n, axis=1)))
    assert f.cache_info().compiles == 1


softmax_on_host = tn.jit(softmax)


def test_an_index_out_of_range(cuda: CudaEngine):
    f = tn.jit(lambda x, i: x[i] * 2, engine="cuda:0")
    with pytest.raises(IndexError, match=r"take: indices contain 9; axis 0 has 6 elements.*test_engine.py:\d+"):
        f(X, np.array([1, 9, 2]))
    same(f(X, np.array([1])), X[[1]] * 2)  # the engine is whole


def test_a_window_out_of_range(cuda: CudaEngine):
    f = tn.jit(windows, engine="cuda:0")
    text = r"dynamic_slice: a window of size 20 starts at 51 on axis 1, which has 70 elements.*engine_cases.py:\d+"
    with pytest.raises(IndexError, match=text):
        f(X, np.array([2, 51]))
    same(f(X, np.array([2, 30])), host("windows"))


def test_a_divisor_of_zero(cuda: CudaEngine):
    f = tn.jit(lambda a, b: a // b, engine="cuda:0")
    a, b = K, np.where(K > 5, 0, 3)
    with pytest.warns(RuntimeWarning, match="floor_divide: divisor 0 under the dividend"):
        found = f(a, b)
    with np.errstate(divide="ignore"):
        same(found, a // b)
    with np.errstate(divide="raise"), pytest.raises(ZeroDivisionError, match="floor_divide"):
        f(a, b)
    with np.errstate(divide="ignore"), warnings.catch_warnings():
        warnings.simplefilter("error")
        same(f(a, b), found)


def test_the_largest_of_nothing(cuda: CudaEngine):
    f = tn.jit(lambda x, m: x[x > m].max(), engine="cuda:0")
    same(f(V, 0.0), V.max())
    with pytest.raises(ValueError, match="zero-size"):
        f(V, 100.0)


def test_captured_arrays_are_read_at_each_call(cuda: CudaEngine):
    weights = V.copy()
    f = tn.jit(lambda x: x * weights, engine="cuda:0")
    same(f(X), X * V)
    weights[:] = 1.0
    same(f(X), X * 1.0)
