"""What the CuPy device does without a GPU: texts become machine code, staging copies piece by piece, errors say why."""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from operator import attrgetter
from typing import Any

import pytest

import tenferro as tn
from tenferro.engines.cuda import cupy_device
from tenferro.engines.cuda.cupy_device import CupyDevice, compiled, toolchain
from tenferro.engines.cuda.engine import CudaEngine
from tenferro.engines.cuda.prelude import OPTIONS
from tenferro.engines.errors import ConfigurationError
from tenferro.tracer.errors import LoweringError
from tests.cuda.engine_cases import BIG, softmax
from tests.cuda.running import kernels_of
from tests.cuda.shim_device import ShimDevice

needs_cupy = pytest.mark.skipif(
    importlib.util.find_spec("cupy") is None, reason="CuPy is not installed (pip install 'tenferro[cuda13]')"
)


def nvrtc() -> Any:
    """CuPy's binding. Skips where the library itself is not to be found."""
    from cupy.cuda import nvrtc as found

    try:
        found.getVersion()
    except Exception as error:
        pytest.skip(f"no NVRTC for CuPy: {error}")
    return found


def softmax_text() -> str:
    plan = tn.jit(softmax).lower(BIG).plan
    return "".join(k.module for k in kernels_of(plan, [BIG]))


@needs_cupy
@pytest.mark.parametrize("capability", [(7, 5), (8, 0), (9, 0), (12, 0)])
def test_texts_become_machine_code(capability: tuple[int, int]):
    assert compiled(nvrtc(), softmax_text(), capability)[:4] == b"\x7fELF"


@needs_cupy
def test_a_gpu_newer_than_nvrtc_gets_ptx_that_keeps_subnormals():
    ptx = compiled(nvrtc(), softmax_text(), (99, 0)).decode(errors="replace")
    assert ".target sm_" in ptx and "div.rn.f32" in ptx
    assert ".ftz" not in ptx and ".approx" not in ptx


@needs_cupy
def test_a_gpu_that_nvrtc_has_given_up_is_refused():
    with pytest.raises(LoweringError, match="compute capability 3.5; this NVRTC needs"):
        compiled(nvrtc(), softmax_text(), (3, 5))


@needs_cupy
def test_machine_code_on_disk_is_known_by_gpu_compiler_and_options():
    found = toolchain(nvrtc(), (9, 0))
    assert found[0] == "compute capability 9.0" and found[1].startswith("NVRTC ") and found[2:] == OPTIONS
    assert toolchain(nvrtc(), (8, 0))[1:] == found[1:]


@needs_cupy
def test_a_refused_text_is_told_with_its_log():
    with pytest.raises(LoweringError, match="(?s)NVRTC refuses.*nonsense"):
        compiled(nvrtc(), "nonsense", (9, 0))


METHODS = {
    "cuda.Device": ("__enter__", "__exit__"),
    "cuda.Event": ("done", "record", "synchronize"),
    "cuda.Stream": ("__enter__", "begin_capture", "end_capture", "is_capturing", "ptr", "synchronize", "wait_event"),
    "cuda.Graph": ("launch",),
    "cuda.MemoryPool": ("free_all_blocks", "get_limit", "malloc", "set_limit", "total_bytes", "used_bytes"),
    "cuda.MemoryPointer": ("ptr",),
    "cuda.PinnedMemoryPointer": ("size",),
    "cuda.function.Module": ("get_function", "load"),
    "cuda.function.Function": ("__call__",),
}
"""What the device calls of CuPy's objects. ``ptr`` of a stream is set when one is made."""


def names_used() -> set[str]:
    """Every chain of names that the device's file begins at CuPy."""
    found = set()
    roots = {"cupy": "", "self.cupy": "", "self._device.cupy": "", "runtime": "cuda.runtime.", "nvrtc": "cuda.nvrtc."}
    for node in ast.walk(ast.parse(inspect.getsource(cupy_device))):
        if isinstance(node, ast.Attribute):
            chain = ast.unparse(node)
            root = next((r for r in sorted(roots, key=len, reverse=True) if chain.startswith(r + ".")), None)
            if root is not None and "(" not in chain:
                found.add(roots[root] + chain[len(root) + 1 :])
    return {n for n in found if n not in ("number",)}


@needs_cupy
def test_cupy_has_every_name_that_is_used():
    import cupy

    used = names_used()
    assert {"cuda.MemoryPool", "cuda.runtime.memcpyAsync", "cuda.Event", "cuda.nvrtc.getCUBIN", "matmul"} <= used
    for name in sorted(used):
        try:
            assert attrgetter(name)(cupy) is not None, name
        except ImportError as error:  # cuBLAS may not be there
            assert name.startswith("cuda.cublas"), (name, error)
    for kind, methods in METHODS.items():
        for method in methods:
            assert (kind, method) == ("cuda.Stream", "ptr") or hasattr(attrgetter(kind)(cupy), method), (kind, method)


@needs_cupy
def test_without_a_gpu_the_engine_says_so():
    import cupy

    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError:
        count = 0
    with pytest.raises(ConfigurationError, match=f"cuda:{count}: .* needed"):
        CupyDevice(count)


def test_an_engine_that_cannot_be_had_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "cupy", None)  # as where it is not installed
    with pytest.raises(ImportError, match=r"pip install .*tenferro\[cuda13\]"):
        CudaEngine(0)


def test_a_gpu_is_an_engine_once_it_is_named(monkeypatch: pytest.MonkeyPatch):
    made: list[int] = []

    real = CudaEngine

    def make(number: int = 0) -> CudaEngine:
        made.append(number)
        return real(number, ShimDevice())

    monkeypatch.setattr(f"{CudaEngine.__module__}.CudaEngine", make)
    runtime = tn.default_runtime()
    try:
        engine = tn.cuda_engine(3, memory_limit=1 << 20)
        assert runtime.engine("cuda:3") is engine and made == [3] and "cuda:3" in tn.list_engines()
        assert isinstance(engine, CudaEngine) and engine.device.pool().limit == 1 << 20
        with pytest.raises(LookupError, match="cuda:x"):
            runtime.engine("cuda:x")
    finally:
        runtime.reconfigure(lambda c: c.remove_engine("cuda:3"))
    with pytest.raises(ValueError, match="number is -1"):
        tn.cuda_engine(-1)
