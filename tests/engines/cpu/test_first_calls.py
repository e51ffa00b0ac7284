"""Threads that call a function for the first time together: kernels are written once, with all that they call."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import Any

import numpy as np
import pytest

import tenferro as tn

THREADS = 8


@pytest.fixture(autouse=True)
def _short_turns() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def test_elementary_functions_of_kernels_that_threads_make_together() -> None:
    for turn in range(12):
        scale, x = turn + 0.5, np.linspace(0, 1, 200 + turn)
        start = Barrier(THREADS)

        def f(x: Any, scale: float = scale) -> Any:
            return np.exp(x) * scale + np.sin(x * scale) + np.log1p(abs(x))

        def run(_: int, call: Any = tn.jit(f), start: Barrier = start, x: Any = x) -> Any:  # noqa: B008
            start.wait()
            return call(x)

        with ThreadPoolExecutor(THREADS) as pool:
            for found in pool.map(run, range(THREADS)):
                np.testing.assert_allclose(found, f(x), rtol=1e-12)
