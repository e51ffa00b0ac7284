"""In: a process case, or an array case for ``--memory``. Out: results measured by fresh processes, peers in turn."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks.case import ArrayCase, ProcessCase
from benchmarks.measure import Result

ROUNDS = {"compile": 3, "sizes": 3, "import": 9}
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


def child(arguments: Sequence[str]) -> dict[str, Any] | str:
    """Run one measurement; a text says why it failed."""
    environment = os.environ | {"TENFERRO_CACHE": "0", "NUMBA_CACHE_DIR": "", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    environment.pop("JAX_COMPILATION_CACHE_DIR", None)
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
    return [*arguments, "--dtype", dtype, "--threads", str(threads)]


def run_process_case(case: ProcessCase, dtype: str, peers: Sequence[str], threads: int) -> list[Result]:
    """Time a process case. A peer that took long once is not run again."""
    samples: dict[str, list[dict[str, Any]]] = {p: [] for p in peers}
    failed: dict[str, str] = {}
    for _ in range(ROUNDS[case.kind]):
        for peer in peers:
            if peer in failed or (samples[peer] and samples[peer][0]["seconds"] > 10):
                continue
            found = child(_arguments(case, peer, dtype, threads))
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
