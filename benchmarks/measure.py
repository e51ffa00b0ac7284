"""In: an array case and peers. Out: one ``Result`` for each peer, timed in interleaved rounds, and the memory floor.

A round takes every peer once, in turn, so that what the machine does meanwhile meets all of them alike; the median over
the rounds is the result. A turn is one call that wakes the peer's threads and one call that is timed, as in any loop
that calls a function. A call's time includes freeing its result.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median, quantiles
from typing import Any

import numpy as np

from benchmarks.case import Array, ArrayCase, Inputs
from benchmarks.peers.peer import Call, Peer

FLOOR = "copy"  # stands among the peers: a copy that moves as many bytes as the case must
SAMPLE_SECONDS = 2e-3  # a call shorter than this is repeated within one sample
# Between peers: thread pools spin for a while after a call, on the cores of the next peer. GNU OpenMP, which torch
# brings, spins 300,000 times (GOMP_SPINCOUNT): 14 ms where a pause takes 140 cycles of 3 GHz. OpenBLAS spins for 2^26
# ticks: 27 ms of 2.45 GHz. So turns wait until the process is idle, as far as that takes less than ``SETTLE_MOST``.
SETTLE_SECONDS = 10e-3
SETTLE_MOST = 0.3
IDLE = 0.1  # cores in use
MIN_ROUNDS, MAX_ROUNDS = 5, 101
# Calls before the first sample, or the time of a case where that is less: kernels may be compiled again once they have
# run for a while.
WARM_SECONDS = 0.25


Floor = Callable[[int], Call]
"""Bytes that a case must move → a copy that moves as many."""


@dataclass(frozen=True)
class Result:
    """``status`` is ``ok``, ``wrong``, or the reason why there is no time. ``error``: the largest difference from NumPy
    in float64, relative to the largest magnitude, in epsilons of the dtype."""

    case: str
    dtype: str
    peer: str
    status: str
    form: str = ""
    seconds: float | None = None
    low: float | None = None  # the quartiles of the rounds
    high: float | None = None
    rounds: int = 0
    error: float | None = None
    startup: float | None = None  # process cases: loading the library and its first, trivial compile
    compiles: int | None = None
    extra: float | None = None  # bytes, with --memory


@dataclass(frozen=True)
class Entry:
    peer: str
    form: str
    call: Call
    repeats: int
    error: float | None


def widen(x: Array) -> Array:
    return x.astype({"f": np.float64, "c": np.complex128}.get(x.dtype.kind, x.dtype))


def error_of(found: Array, expected: Array, dtype: np.dtype[Any]) -> float:
    """Infinite where shapes or dtypes differ or a NaN stands on one side alone. Integers have NumPy's dtype."""
    wanted = dtype if expected.dtype.kind in "fc" else expected.dtype
    if found.shape != expected.shape or found.dtype != wanted:
        return float("inf")
    difference = np.abs(widen(found) - expected)
    scale = float(np.max(np.abs(expected), initial=0.0)) or 1.0
    worst = float(np.max(difference, initial=0.0)) / scale / float(np.finfo(dtype).eps)
    return worst if worst == worst else float("inf")


def timed(call: Call, repeats: int = 1) -> float:
    start = time.perf_counter()
    for _ in range(repeats):
        call()
    return (time.perf_counter() - start) / repeats


def warm(call: Call, seconds: float) -> None:
    end = time.perf_counter() + min(seconds, WARM_SECONDS)
    while time.perf_counter() < end:
        call()


def floor_call(moved: int, threads: int) -> Call:
    """A copy of ``moved / 2`` bytes into mapped memory by ``threads`` threads."""
    source = np.ones(max(moved // 16, threads), np.float64)
    target = np.ones_like(source)
    cuts = np.linspace(0, source.size, threads + 1, dtype=int)
    parts = [(target[a:b], source[a:b]) for a, b in zip(cuts[:-1], cuts[1:], strict=True)]
    pool = ThreadPoolExecutor(threads)

    def call() -> None:
        for job in [pool.submit(np.copyto, t, s) for t, s in parts]:
            job.result()

    return call


def gpu_floor_call(moved: int) -> Call:
    """A copy of ``moved / 2`` bytes inside a GPU's memory."""
    from tenferro import cuda_engine

    engine: Any = cuda_engine(0)
    half = max(moved // 2, 1)
    source, target = (engine.receive(np.zeros(half, np.uint8)) for _ in range(2))

    def call() -> None:
        engine.device.copy(target.address, source.address, half, engine.stream)
        engine.synchronize()

    return call


def choose(peer: Peer, case: ArrayCase, inputs: Inputs, expected: Array) -> Entry | Result:
    """The fastest correct form of a peer, or the result that says why there is none."""
    dtype = inputs[0].dtype
    best: tuple[float, Entry] | None = None
    refused: Result | None = None

    def refuse(status: str, form: str = "", error: float | None = None) -> Result:
        return Result(case.name, dtype.name, peer.name, status, form, error=error)

    forms: Mapping[str, Call] = {}
    try:
        forms = peer.forms(case, inputs)
    except Exception as problem:  # a peer may fail in any way; the others still run
        refused = refuse(f"{type(problem).__name__}: {problem}"[:200])
    for form, call in forms.items():
        try:
            error = error_of(peer.array(call(), dtype), expected, dtype)
            if error > case.tolerance:
                refused = refuse("wrong", form, error)
                continue
            seconds = min(timed(call) for _ in range(3))
        except Exception as problem:
            refused = refuse(f"{type(problem).__name__}: {problem}"[:200], form)
            continue
        if best is None or seconds < best[0]:
            repeats = max(1, round(SAMPLE_SECONDS / max(seconds, 1e-9))) if case.small else 1
            best = seconds, Entry(peer.name, form, call, repeats, error)
    if best is not None:
        return best[1]
    return refused or refuse("cannot express it")


def settle() -> None:
    """Sleep until no other thread of the process runs."""
    end = time.perf_counter() + SETTLE_MOST
    while (start := time.perf_counter()) < end:
        used = time.process_time()
        time.sleep(SETTLE_SECONDS)
        if time.process_time() - used < IDLE * (time.perf_counter() - start):
            return


def interleave(calls: Sequence[tuple[Call, int]], seconds: float) -> list[list[float]]:
    """The samples of each call: rounds until ``seconds`` for each call have passed, at least MIN_ROUNDS."""
    samples: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + seconds * len(calls)
    for turn in range(MAX_ROUNDS):
        if turn >= MIN_ROUNDS and time.perf_counter() > end:
            break
        for (call, repeats), sample in zip(calls, samples, strict=True):
            settle()
            call()
            sample.append(timed(call, repeats))
    return samples


def run_case(
    case: ArrayCase, dtype: np.dtype[Any], peers: Sequence[Peer], scale: float, seconds: float, floor: Floor
) -> list[Result]:
    """Time one case with all peers; the floor comes first where the case has one."""
    inputs = case.inputs(dtype, scale)
    dtype = inputs[0].dtype
    with np.errstate(all="ignore"):
        expected = np.asarray(case.function(*(widen(x) for x in inputs)))
    chosen = [choose(peer, case, inputs, expected) for peer in peers]
    entries = [c for c in chosen if isinstance(c, Entry)]
    if case.moved is not None:
        entries.insert(0, Entry(FLOOR, "", floor(case.moved(inputs)), 1, None))
    for entry in entries:
        warm(entry.call, seconds)
    samples = interleave([(e.call, e.repeats) for e in entries], seconds)
    timings = [
        Result(case.name, dtype.name, e.peer, "ok", e.form, median(s), *_quartiles(s), len(s), e.error)
        for e, s in zip(entries, samples, strict=True)
    ]
    return [*timings, *(c for c in chosen if isinstance(c, Result))]


def _quartiles(samples: Sequence[float]) -> tuple[float, float]:
    low, _, high = quantiles(samples, n=4)
    return low, high


def peak_rss() -> Callable[[], int]:
    """Reset the process's peak of resident memory where Linux allows it; the result reads it, in bytes."""
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")  # resets VmHWM: proc(5)
    return lambda: status_bytes("VmHWM")


def status_bytes(field: str) -> int:
    """A field of /proc/self/status, in bytes."""
    with open("/proc/self/status", encoding="ascii") as file:
        for line in file:
            if line.startswith(field + ":"):
                return 1024 * int(line.split()[1])
    raise LookupError(f"/proc/self/status has no {field}")
