"""In: a process case, or an array case for ``--memory``. Out: results measured by fresh processes, peers in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.case import ArrayCase, ProcessCase
from benchmarks.child import restart_source
from benchmarks.measure import Result

ROUNDS = {"compile": 3, "compile_case": 3, "sizes": 3, "import": 9, "restart": 9}
TIMEOUT_SECONDS = 150
COMPILE_TOLERANCE = 4096.0  # epsilons: thousands of roundings follow one another

# Nothing else is imported first: standard modules that a library needs count as its own, unless NumPy needs them too.
IMPORT = """\
import time
{before}
start = time.perf_counter()
import {peer}
print('{{"seconds":', time.perf_counter() - start, '}}')
"""

# NumPy, which all need, is loaded first, and is what start-up means here. What comes before is a process's own start.
RESTART = """\
import sys, time
begin = time.perf_counter()
import numpy
startup = time.perf_counter() - begin
sys.path.insert(0, {folder!r})
x = numpy.linspace(-1.0, 1.0, 4096, dtype={dtype!r})
start = time.perf_counter()
import restart_{peer} as restarted
result = restarted.first(x)
seconds = time.perf_counter() - start
error = restarted.relative_error(result, x)
numbers = seconds, startup, error, restarted.compiles()
print('{{"seconds": %r, "startup": %r, "error": %r, "compiles": %s}}' % numbers)
"""


def without_caches() -> dict[str, str]:
    """An environment in which no library finds anything that an earlier process has compiled."""
    found = os.environ | {"TENFERRO_CACHE": "0", "NUMBA_CACHE_DIR": "", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    found.pop("JAX_COMPILATION_CACHE_DIR", None)
    return found


def with_caches(folder: str) -> dict[str, str]:
    """An environment in which each library, and Python for its byte code, has a cache below the folder."""
    names = {
        "TENFERRO_CACHE_DIR": "tenferro", "NUMBA_CACHE_DIR": "numba", "TORCHINDUCTOR_CACHE_DIR": "torch",
        "JAX_COMPILATION_CACHE_DIR": "jax", "PYTHONPYCACHEPREFIX": "python",
    }  # fmt: skip
    found = os.environ | {name: os.path.join(folder, own) for name, own in names.items()}
    # JAX keeps what took a second to compile, unless it is told to keep everything.
    found |= {"JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1"}
    found |= {"JAX_ENABLE_X64": "1", "JAX_PLATFORMS": "cpu"}
    for name in ("PYTHONDONTWRITEBYTECODE", "TENFERRO_CACHE", "TENFERRO_CACHE_TRACES"):
        found.pop(name, None)
    return found


def child(arguments: Sequence[str], environment: dict[str, str] | None = None) -> dict[str, Any] | str:
    """Run one measurement, without caches unless an environment is given; a text says why it failed."""
    environment = environment or without_caches()
    try:
        done = subprocess.run(
            [sys.executable, *arguments], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, env=environment
        )
    except subprocess.TimeoutExpired:
        return f"more than {TIMEOUT_SECONDS} s"
    if done.returncode != 0:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1][:200]
    found: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return found


def _arguments(case: ProcessCase, peer: str, dtype: str, threads: int) -> list[str]:
    if case.kind == "import":
        return ["-c", IMPORT.format(peer=peer, before="" if peer == "numpy" else "import numpy")]
    arguments = ["-m", "benchmarks.child", case.kind, "--peer", peer, "--count", str(case.count)]
    return [*arguments, "--case", case.array_case, "--dtype", dtype, "--threads", str(threads)]


def run_process_case(
    case: ProcessCase, dtype: str, peers: Sequence[str], threads: int, rounds: int = 0
) -> list[Result]:
    """Time a process case. A peer that took long once is not run again. ``rounds`` 0: as many as its kind needs."""
    count = rounds or ROUNDS[case.kind]
    if case.kind != "restart":
        return _rounds(case, dtype, peers, lambda peer: child(_arguments(case, peer, dtype, threads)), count)
    with tempfile.TemporaryDirectory(prefix="tenferro-benchmark-") as folder:
        environment = with_caches(folder)
        for peer in peers:
            Path(folder, f"restart_{peer}.py").write_text(restart_source(peer, case.count, threads), encoding="utf-8")
        arguments = {p: ["-c", RESTART.format(peer=p, folder=folder, dtype=dtype)] for p in peers}
        first = {p: child(arguments[p], environment) for p in peers}  # what fills the caches
        ready = [p for p in peers if not isinstance(first[p], str)]
        results = _rounds(case, dtype, ready, lambda peer: child(arguments[peer], environment), count)
        return [*results, *(_result(case, dtype, p, [], str(first[p])) for p in peers if p not in ready)]


def _rounds(
    case: ProcessCase, dtype: str, peers: Sequence[str], measured: Callable[[str], dict[str, Any] | str], count: int
) -> list[Result]:
    samples: dict[str, list[dict[str, Any]]] = {p: [] for p in peers}
    failed: dict[str, str] = {}
    for _ in range(count):
        for peer in peers:
            if peer in failed or (samples[peer] and samples[peer][0]["seconds"] > 10):
                continue
            found = measured(peer)
            if isinstance(found, str):
                failed[peer] = found
            else:
                samples[peer].append(found)
    return [_result(case, dtype, peer, samples[peer], failed.get(peer)) for peer in peers]


def _result(case: ProcessCase, dtype: str, peer: str, samples: list[dict[str, Any]], failed: str | None) -> Result:
    if failed is not None:
        return Result(case.name, dtype, peer, failed)
    seconds = [s["seconds"] for s in samples]
    last = samples[-1]
    error = last.get("error")
    wrong = error is not None and error > COMPILE_TOLERANCE
    return Result(
        case.name, dtype, peer, "wrong" if wrong else "ok", "", median(seconds), min(seconds), max(seconds),
        len(seconds), error, last.get("startup"), last.get("compiles"),
    )  # fmt: skip


def run_memory_case(case: ArrayCase, dtype: str, peers: Sequence[str], threads: int, scale: float) -> list[Result]:
    """The peak of resident memory above the inputs, each peer's first form in a fresh process."""
    results = []
    for peer in peers:
        found = child(
            ["-m", "benchmarks.child", "memory", "--peer", peer, "--case", case.name, "--dtype", dtype]
            + ["--threads", str(threads), "--size-scale", str(scale)]
        )
        if isinstance(found, str):
            results.append(Result(case.name, dtype, peer, found))
        else:
            results.append(Result(case.name, dtype, peer, "ok", extra=found["extra"]))
    return results
