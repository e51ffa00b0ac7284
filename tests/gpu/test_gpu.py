"""The CUDA engine on a GPU: the bits of the CPU engine, the same errors, memory that comes back."""

from __future__ import annotations

import gc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cuda.engine import CudaEngine
from tenferro.engines.disk_cache import CUDA_IMAGES, DiskCache
from tenferro.tracer.errors import MemoryLimitError
from tests.cuda.engine_cases import CASES, X8, Case, K, V, X, Y, host, layer_norm, same, softmax
from tests.cuda.test_graphs import between, told

RNG = np.random.default_rng(11)
EXACT = [c for c in CASES if c.name not in ("products", "many results", "a chain of passes")]


@pytest.mark.parametrize("case", EXACT, ids=lambda c: c.name)
def test_bits_are_those_of_the_cpu_engine(cuda: CudaEngine, case: Case):
    same(tn.jit(case.function, engine="cuda:0")(*case.args), host(case.name))


UNARY: dict[str, Callable[..., Any]] = {
    name: getattr(np, name)
    for name in (
        "exp", "log", "sin", "cos", "tan", "tanh", "sqrt", "expm1", "log1p", "arctan", "arcsinh", "cbrt", "sinh",
        "floor", "rint", "abs", "sign", "square", "exp2", "log2", "log10",
    )
}  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("name", UNARY)
def test_functions_of_one_array(cuda: CudaEngine, name: str, dtype: Any):
    bits = RNG.integers(0, 1 << 16, 40_000, np.uint16)
    wide = bits.astype(np.float64) * np.exp2(RNG.integers(-1060, 960, bits.size).astype(np.float64))
    with np.errstate(all="ignore"):
        x = np.concatenate([bits.view(np.float16).astype(dtype), wide.astype(dtype), -wide.astype(dtype)])
    f = UNARY[name]
    with np.errstate(all="ignore"):
        same(tn.jit(lambda x: f(x), engine="cuda:0")(x), tn.jit(lambda x: f(x))(x))


def test_subnormals_of_single_precision_are_kept(cuda: CudaEngine):
    x = np.arange(1, 1000, dtype=np.uint32).view(np.float32)
    f = tn.jit(lambda x: (x * np.float32(0.5), x + x, x.sum(), x / np.float32(3)), engine="cuda:0")
    same(f(x), tn.jit(lambda x: (x * np.float32(0.5), x + x, x.sum(), x / np.float32(3)))(x))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.int32, np.float16, np.bool_])
@pytest.mark.parametrize("shape", [(1, 1), (3, 31), (2, 100_003), (5000, 17), (700, 1025), (100_000, 3)])
def test_sums_of_every_shape(cuda: CudaEngine, shape: tuple[int, int], dtype: Any):
    x = (RNG.standard_normal(shape) * 4).astype(dtype)

    def sums(x: Any) -> Any:
        return x.sum(axis=0), x.sum(axis=1), x.sum(), x.T.sum(axis=0)

    same(tn.jit(sums, engine="cuda:0")(x), tn.jit(sums)(x))


@pytest.mark.parametrize("shape", [(1, 5), (64, 1000), (3, 300_000), (20_000, 40)])
def test_rows(cuda: CudaEngine, shape: tuple[int, int]):
    x = RNG.standard_normal(shape).astype(np.float32)
    gain = RNG.standard_normal(shape[1]).astype(np.float32)
    same(tn.jit(softmax, engine="cuda:0")(x), tn.jit(softmax)(x))
    same(tn.jit(layer_norm, engine="cuda:0")(x, gain), tn.jit(layer_norm)(x, gain))


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex64, np.complex128, np.float16, np.int64, np.bool_])
def test_products(cuda: CudaEngine, dtype: Any):
    a = (RNG.standard_normal((3, 65, 33)) * 3).astype(dtype)
    b = (RNG.standard_normal((3, 20, 33)) * 3).astype(dtype)
    found = tn.jit(lambda a, b: a @ b.transpose(0, 2, 1), engine="cuda:0")(a, b)
    wanted = a @ b.transpose(0, 2, 1)
    assert found.dtype == wanted.dtype
    if np.dtype(dtype).kind in "ib":
        np.testing.assert_array_equal(found, wanted)
    else:
        tolerance = 200 * float(np.finfo(dtype).eps)
        np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=33 * tolerance)


def test_large_arrays_cross_by_pinned_memory(cuda: CudaEngine):
    x = RNG.standard_normal(5_000_011)  # 40 MB: several pieces, the last one short
    y = tn.asarray(x, engine="cuda:0")
    assert np.asarray(y).tobytes() == x.tobytes()
    same(tn.jit(lambda x: x[::-1] * 2.0, engine="cuda:0")(x), x[::-1] * 2.0)


def test_errors_are_those_of_the_cpu_engine(cuda: CudaEngine):
    with pytest.raises(IndexError, match="take: indices contain 9"):
        tn.jit(lambda x, i: x[i], engine="cuda:0")(X, np.array([0, 9]))
    divide = tn.jit(lambda a, b: a // b, engine="cuda:0")
    with pytest.warns(RuntimeWarning, match="divisor 0"):
        divide(K, np.where(K > 5, 0, 3))
    same(divide(K, np.full_like(K, 3)), K // 3)


def test_engines_work_together(cuda: CudaEngine):
    def mixed(x: Any, y: Any) -> Any:
        with tn.on("cuda:0"):
            a = softmax(x)
        return np.sort(a, axis=1) + y, a

    def plain(x: Any, y: Any) -> Any:
        a = softmax(x)
        return np.sort(a, axis=1) + y, a

    same(tn.jit(mixed, engines=("cpu:0", "cuda:0"))(X, Y), tn.jit(plain)(X, Y))


def test_loops_are_replayed_on_both_sides_of_a_product(cuda: CudaEngine):
    f, wanted = tn.jit(between), tn.jit(between)
    for k in range(6):
        x = tn.asarray(X8 + k, engine="cuda:0")
        same(np.asarray(f(x)), wanted(X8 + k))
        del x
        gc.collect()
    (text,) = told(f, tn.asarray(X8, engine="cuda:0"))
    assert "captured" in text and "recording failed" not in text and "matmul: a library call" in text


def test_parts_beside_the_cpu(cuda: CudaEngine):
    def parts(x: Any, i: Any) -> Any:
        with tn.on("cuda:0"):
            a = x[i] * 2.0
        with tn.on("cpu:0"):
            b = softmax(x)
        return a.max(axis=0) + b, b

    def plain(x: Any, i: Any) -> Any:
        b = softmax(x)
        return (x[i] * 2.0).max(axis=0) + b, b

    f = tn.jit(parts)
    for k in range(5):
        same(f(X, np.array([k, 0])), tn.jit(plain)(X, np.array([k, 0])))
        with pytest.raises(IndexError, match="indices contain 77"):
            f(X, np.array([k, 77]))


def test_machine_code_is_found_on_the_disk(cuda: CudaEngine, tmp_path: Path):
    hits = []
    for _ in range(2):
        engine = CudaEngine(0)
        engine.device.cache = cache = DiskCache(tmp_path, 1 << 24, CUDA_IMAGES)
        unit = engine.compile(tn.jit(softmax).lower(X).plan)
        same(np.asarray(unit.run([engine.receive(X)]).outputs[0]), tn.jit(softmax)(X))
        hits.append(cache.hits)
    assert hits == [0, 1]


def test_device_arrays_and_other_libraries(cuda: CudaEngine):
    cupy = pytest.importorskip("cupy")
    x = tn.asarray(X, engine="cuda:0")
    y = tn.jit(softmax)(x)
    assert y.device == "cuda:0"
    np.testing.assert_array_equal(cupy.asnumpy(cupy.asarray(y._data)), np.asarray(y))
    np.testing.assert_array_equal(cupy.asnumpy(cupy.asarray(y.T._data)), np.asarray(y).T)
    np.testing.assert_array_equal(np.asarray(x * V), X * V)


def test_memory_comes_back_and_has_a_limit(cuda: CudaEngine):
    f = tn.jit(layer_norm, engine="cuda:0")
    f(X, V)
    gc.collect()
    used = cuda.device.pool().used
    for n in range(1, 40):
        f(np.zeros((n, 1000)), np.ones(1000))
    gc.collect()
    assert cuda.device.pool().used == used
    try:
        tn.cuda_engine(0, memory_limit=1 << 24)
        with pytest.raises(MemoryLimitError, match="16,777,216 are allowed"):
            tn.asarray(np.zeros(1 << 22), engine="cuda:0")
    finally:
        tn.cuda_engine(0)
    assert np.asarray(tn.asarray(np.zeros(1 << 22), engine="cuda:0")).sum() == 0
