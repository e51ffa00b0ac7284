"""What calls hold: ``python -m benchmarks.memory`` prints the peak memory of each case, beside what was planned.

Each case, dtype and peer is measured in a process of its own: the peak of resident memory in one call, above what was
resident before it. Libraries, inputs and compiled code are resident then, and what allocators keep for later calls has
been given back. A peer's forms are all measured and the one that takes least counts. *plan* is what
``f.lower(*args).memory()`` says; tenferro's *kept* is what its pool holds when the result is dead.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.__main__ import limit_threads
from benchmarks.measure import peak_rss, status_bytes
from benchmarks.peers.peer import Call

PEERS = ("tenferro", "jax", "torch", "numpy", "numba", "numexpr")
AGAINST = ("jax", "torch")
WARM_CALLS, CALLS = 3, 3
SLACK_BYTES = 1 << 20
"""What a call may take beside its arrays before a gate is missed: the kernel counts pages of stacks and page tables in
steps, and allocators map whole pages."""


@dataclass(frozen=True)
class Held:
    """Bytes. ``peak``: the least of a peer's forms, which is ``form``; ``kept`` when the result is dead; ``plan``
    where the peer states one."""

    peer: str
    status: str
    form: str = ""
    peak: int = 0
    kept: int = 0
    plan: int | None = None


def give_back() -> None:
    """Return to the system what the process's allocators keep for later."""
    gc.collect()
    if "tenferro.engines.cpu.memory" in sys.modules:
        sys.modules["tenferro.engines.cpu.memory"].trim()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def held_by(call: Call) -> tuple[int, int]:
    """The peak of one call above the level before it and what stays when the result is dead: the least of some calls,
    since other threads of a library may give memory back or take some meanwhile."""
    for _ in range(WARM_CALLS):
        call()
    found = []
    for _ in range(CALLS):
        give_back()
        before = status_bytes("VmRSS")
        peak = peak_rss()
        result = call()
        most = peak() - before
        del result
        found.append((max(0, most), max(0, status_bytes("VmRSS") - before)))
    return min(found)


def measure(peer: str, case_name: str, dtype: np.dtype[Any], threads: int, scale: float) -> Held:
    """One peer's figures for one case, in this process."""
    from benchmarks.case import ArrayCase
    from benchmarks.cases import CASES
    from benchmarks.peers import load

    case = CASES[case_name]
    assert isinstance(case, ArrayCase)
    library = load(peer, threads)
    inputs = case.inputs(dtype, scale)
    forms: Mapping[str, Call] = library.forms(case, inputs)
    if not forms:
        return Held(peer, "cannot express it")
    measured = {form: held_by(call) for form, call in forms.items()}
    form, (peak, kept) = min(measured.items(), key=lambda item: item[1])
    return Held(peer, "ok", form, peak, kept, planned(case.function, inputs) if peer == "tenferro" else None)


def planned(function: Callable[..., Any], inputs: Sequence[Any]) -> int:
    """What the plan says."""
    import tenferro as tn

    return tn.jit(function).lower(*inputs).memory().peak.bytes
