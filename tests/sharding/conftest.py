"""Engines for these tests alone: the runtime is as it was when a module of them is done."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import tenferro as tn
from tenferro.engines.cpu.engine import CpuEngine


@pytest.fixture(scope="module", autouse=True)
def _own_engines() -> Iterator[None]:
    runtime = tn.default_runtime()
    before = list(runtime.engines())
    shares = [(e, e.share) for e in before if isinstance(e, CpuEngine)]
    yield
    for engine, share in shares:
        engine.share = share
    runtime.reconfigure(lambda configuration: configuration.engines.__setitem__(slice(None), before))
