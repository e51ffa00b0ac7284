"""The memory bandwidth of this machine: that of a copy on all cores, measured once, when it is first asked for."""

from __future__ import annotations

import threading
import time
from functools import cache
from typing import Any

import numpy as np

from tenferro.engines.cpu.machine import core_count, memory_bytes

COPIED = 128 << 20
"""Bytes that are copied: more than caches hold, so that memory is what takes the time."""
ROUNDS = 5

Array = np.ndarray[Any, Any]


@cache
def copy_rate() -> float:
    """Bytes a second, read and written ones together, of a copy between arrays that are mapped already: the best of a
    few rounds, some tenths of a second in all."""
    words = min(COPIED, memory_bytes() // 16) // 8
    source = np.ones(words)
    target = np.ones_like(source)
    cuts = np.linspace(0, words, core_count() + 1, dtype=int)
    parts = [(target[a:b], source[a:b]) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    return 2.0 * source.nbytes / min(_seconds(parts) for _ in range(ROUNDS))


def _seconds(parts: list[tuple[Array, Array]]) -> float:
    """Of copying every part on a thread of its own, from the first begin to the last end."""
    ready = threading.Barrier(len(parts))
    times: list[float] = []

    def copy(target: Array, source: Array) -> None:
        ready.wait()
        start = time.perf_counter()
        np.copyto(target, source)
        times.extend((start, time.perf_counter()))

    threads = [threading.Thread(target=copy, args=part, daemon=True) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(times) - min(times)
