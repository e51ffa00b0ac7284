"""Tests that need a GPU. Without one every test is skipped, and the reason is printed."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

import pytest

import tenferro as tn
from tenferro.engines.cuda.engine import CudaEngine


@cache
def unavailable() -> str:
    """Why there is no GPU to test on; "" where there is one."""
    try:
        tn.cuda_engine(0)
    except (ImportError, ValueError) as error:  # no CuPy; no GPU or driver
        return f"no GPU: {error}"
    return ""


@pytest.fixture
def cuda() -> Iterator[CudaEngine]:
    """``cuda:0``, which must be whole afterwards."""
    if unavailable():
        pytest.skip(unavailable())
    engine = tn.default_runtime().engine("cuda:0")
    assert isinstance(engine, CudaEngine)
    yield engine
    assert not engine.broken
    engine.synchronize()
