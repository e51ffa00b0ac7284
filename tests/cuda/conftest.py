"""A GPU that is the CPU, as ``cuda:0``."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from tenferro.engines.cuda.engine import CudaEngine
from tests.cuda.engine_cases import compile_all
from tests.cuda.shim_device import device, registered, shim_engine


@pytest.fixture
def cuda() -> Iterator[CudaEngine]:
    """``cuda:0`` in the default runtime."""
    compile_all()
    engine = shim_engine()
    with registered(engine):
        yield engine
    gc.collect()
    assert device(engine).faults == [] and device(engine).pool().used == 0
