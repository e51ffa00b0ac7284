"""Compiled kernels on disk: found by the next process, never in place of others, and nothing that does not check."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cuda.engine import CudaEngine
from tenferro.engines.disk_cache import CUDA_IMAGES, DiskCache
from tests.cuda.engine_cases import V, X, compile_all, layer_norm, softmax
from tests.cuda.running import SMALL
from tests.cuda.shim.compile import missing
from tests.cuda.shim_device import ShimDevice, registered

pytestmark = pytest.mark.skipif(bool(missing()), reason=missing() or "-")
LIMIT = 1 << 24


def process(folder: Path, limit: int = LIMIT, toolchain: tuple[str, ...] = ("9.0", "shim 1")) -> ShimDevice:
    """The device of a new process, after it has run softmax."""
    compile_all()
    device = ShimDevice(cache=DiskCache(folder, limit, CUDA_IMAGES))
    device.toolchain = toolchain
    with registered(CudaEngine(0, device, shape=SMALL)):
        np.testing.assert_array_equal(tn.jit(softmax, engine="cuda:0")(X), tn.jit(softmax)(X))
    return device


def entry(folder: Path) -> Path:
    """The one file there is."""
    (found,) = folder.iterdir()
    return found


def test_the_next_process_compiles_nothing(tmp_path: Path):
    assert process(tmp_path).compiled == 1
    assert entry(tmp_path).suffix == ".tfc"
    second = process(tmp_path)
    assert second.compiled == 0 and second.modules == 1 and second.cache is not None and second.cache.hits == 1


def test_other_compilers_and_gpus_have_other_entries(tmp_path: Path):
    process(tmp_path)
    for toolchain in (("9.0", "shim 2"), ("8.0", "shim 1"), ("9.0", "shim 1", "-ftz=true")):
        assert process(tmp_path, toolchain=toolchain).compiled == 1
        assert process(tmp_path, toolchain=toolchain).compiled == 0
    assert len(list(tmp_path.iterdir())) == 4


def test_other_kernels_have_other_entries(tmp_path: Path):
    process(tmp_path)
    device = ShimDevice(cache=DiskCache(tmp_path, LIMIT, CUDA_IMAGES))
    device.toolchain = ("9.0", "shim 1")
    with registered(CudaEngine(0, device, shape=SMALL)):
        tn.jit(layer_norm, engine="cuda:0")(X, V)
    assert device.compiled == 1 and len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda b: b"",
        lambda b: b[: len(b) // 2],
        lambda b: b[:-1] + bytes([b[-1] ^ 1]),
        lambda b: b.replace(CUDA_IMAGES.magic, b"tenferro object 1\n"),
        lambda b: b"\x7fELF" + bytes(1000),
    ],
    ids=["empty", "half", "one bit", "another kind", "foreign"],
)
def test_a_damaged_entry_is_compiled_anew_and_rewritten(tmp_path: Path, damage: Callable[[bytes], bytes]):
    process(tmp_path)
    whole = entry(tmp_path).read_bytes()
    entry(tmp_path).write_bytes(damage(whole))
    assert process(tmp_path).compiled == 1
    assert entry(tmp_path).read_bytes() == whole
    assert process(tmp_path).compiled == 0


def test_the_entry_of_another_module_is_not_taken(tmp_path: Path):
    process(tmp_path / "a")
    process(tmp_path / "b", toolchain=("8.0", "shim 1"))
    entry(tmp_path / "b").replace(entry(tmp_path / "a"))
    assert process(tmp_path / "a").compiled == 1


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path: Path):
    (tmp_path / "file").write_text("")
    assert [process(tmp_path / "file" / "folder").compiled for _ in range(2)] == [1, 1]
    assert [process(tmp_path / "small", limit=100).compiled for _ in range(2)] == [1, 1]
    tmp_path.chmod(0o777)
    assert [process(tmp_path).compiled for _ in range(2)] == [1, 1]  # others could have put code there
