"""Threads that prepare and run programs on several engines while things fail: minutes and a seed in, what is wrong out.

    python tools/stress_runtime.py --minutes 10 --seed 1

Each thread takes a program at random, puts its operations on engines at random (two of the CPU, one with memory of its
own), prepares it, runs it and compares with NumPy. A family's executor fails now and then, engines come and go, the
cache is cleared and small. At the end nothing may be left: no result lost, no array kept, no thread stuck (a run that
makes no progress for a minute prints every stack and ends with 1).
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import tenferro as tn  # noqa: E402
from tenferro.engines.cpu import memory  # noqa: E402
from tenferro.engines.cpu.engine import CpuEngine  # noqa: E402
from tenferro.engines.engine import Engine  # noqa: E402
from tenferro.engines.errors import CapacityError, ConcurrentReconfigurationError, StaleError  # noqa: E402
from tenferro.engines.reference import ReferenceEngine  # noqa: E402
from tenferro.runtime import ExtensionModule, Family, Limits, Runtime  # noqa: E402
from tenferro.tracer.program import SemanticProgram  # noqa: E402
from tests.runtime.devices import DeviceEngine, Remote, device_builder, live, prepared_for  # noqa: E402
from tests.runtime.engines import scattered  # noqa: E402

THREADS = 8
STUCK_SECONDS = 60.0
NAMES = ("cpu:0", "cpu:1", "device:0")


class Injected(Exception):
    """A failure on purpose."""


def flaky(lent: Any, x: Any, odds: int = 0) -> Any:
    if random.randrange(100) < odds:
        raise Injected
    return x * lent.cache.get("two", lambda: 2.0)


family = Family("stress.flaky.v1", lambda types, params: (types[0],), lambda x, odds=0: x * 2.0)
MODULE = ExtensionModule("stress", (family,), {(family.name, "cpu"): flaky, (family.name, "device"): flaky})


def chain(x: Any) -> Any:
    y = (x + 1) * 3
    return y - x, y.sum()


def rows(x: Any) -> Any:
    centred = x - x.mean()
    return centred / (1 + np.abs(centred).max()), x[::2]


def selected(x: Any) -> Any:
    chosen = x[x > 0]
    return chosen * 2, chosen.sum()


def extended(x: Any) -> Any:
    return family(x + 1, odds=25) - x, x * 0.5


def plain_extended(x: Any) -> Any:
    return (x + 1) * 2.0 - x, x * 0.5


FUNCTIONS: tuple[tuple[Callable[..., Any], Callable[..., Any]], ...] = (
    (chain, chain),
    (rows, rows),
    (selected, selected),
    (extended, plain_extended),
)


@dataclass
class Report:
    """What the threads did, and what went wrong."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    progress: float = field(default_factory=time.monotonic)

    def note(self, what: str) -> None:
        with self.lock:
            self.counts[what] += 1
            self.progress = time.monotonic()

    def fail(self, text: str) -> None:
        with self.lock:
            self.wrong.append(text)


def on_host(value: Any) -> Any:
    return value.data if isinstance(value, Remote) else value


def one_run(
    runtime: Runtime, engines: list[Engine], programs: list[SemanticProgram], choose: random.Random, report: Report
) -> None:
    """A program, a placement, a size: the result is NumPy's, or the failure one of those that were to be expected."""
    k = choose.randrange(len(programs))
    program = scattered(programs[k], NAMES, choose.randrange(6))
    x = np.random.default_rng(choose.randrange(100)).standard_normal(choose.choice((1, 7, 1000, 40_000)))
    try:
        prepared = prepared_for(runtime, program, *engines, in_flight=choose.choice(("wait", "refuse")))
        outputs = runtime.run(engines, prepared, [x]).outputs
    except (Injected, StaleError, CapacityError) as expected:
        report.note(type(expected).__name__)
        return
    for actual, expected_value in zip(outputs, FUNCTIONS[k][1](x), strict=True):
        if not np.allclose(on_host(actual), expected_value, rtol=1e-12, atol=1e-12):
            report.fail(f"{program.name}: a wrong result for {x.size} elements")
    report.note("results")


def work(
    runtime: Runtime, engines: list[Engine], programs: list[SemanticProgram], seed: int, end: float, report: Report
) -> None:
    choose = random.Random(seed)
    while time.monotonic() < end and not report.wrong:
        try:
            one_run(runtime, engines, programs, choose, report)
        except BaseException as error:  # a thread that ends silently would be a lost result
            report.fail(f"{type(error).__name__}: {error}")
            return


def disturb(runtime: Runtime, seed: int, end: float, report: Report) -> None:
    """Engines come and go; the cache is cleared."""
    choose = random.Random(seed)
    while time.monotonic() < end and not report.wrong:
        extra = ReferenceEngine(choose.randrange(1000))
        try:
            runtime.reconfigure(lambda c, e=extra: c.register_engine(e))  # type: ignore[misc]
            runtime.reconfigure(lambda c, e=extra: c.remove_engine(e.id))  # type: ignore[misc]
        except ConcurrentReconfigurationError:
            report.note("ConcurrentReconfigurationError")
        if choose.random() < 0.3:
            runtime.clear_caches()
        report.note("reconfigurations")
        time.sleep(choose.uniform(0.02, 0.8))


def traced() -> list[SemanticProgram]:
    tn.default_runtime().reconfigure(lambda c: c.install_extension(MODULE))
    found = [tn.jit(f).trace(np.ones(4)) for f, _ in FUNCTIONS]
    tn.default_runtime().clear_caches()
    return found


def watched(threads: list[threading.Thread], report: Report) -> None:
    """Wait for the threads; every stack and the end where nothing moves."""
    for thread in threads:
        while thread.is_alive():
            thread.join(1.0)
            if time.monotonic() - report.progress > STUCK_SECONDS:
                faulthandler.dump_traceback(all_threads=True)
                print(f"no progress for {STUCK_SECONDS:.0f} s", dict(report.counts))
                sys.stdout.flush()
                os._exit(1)  # threads that are stuck would keep the process


def stress(minutes: float, seed: int) -> Report:
    report = Report()
    programs = traced()
    engines: list[Engine] = [CpuEngine(0, share=1), CpuEngine(1, share=1), DeviceEngine()]
    limits = Limits(entries=6, in_flight=1, queued=2)
    runtime = device_builder(*engines).install_extension(MODULE).cache_limits(limits).build()
    gc.collect()
    before = memory.stats().live
    end = time.monotonic() + 60 * minutes
    threads = [
        threading.Thread(target=work, args=(runtime, engines, programs, 1000 * seed + k, end, report))
        for k in range(THREADS)
    ]
    threads += [threading.Thread(target=disturb, args=(runtime, seed + k, end, report)) for k in range(2)]
    for t in threads:
        t.start()
    watched(threads, report)
    gc.collect()
    if live:
        report.fail(f"{len(live)} arrays are left on the device")
    if memory.stats().live != before:
        report.fail(f"{memory.stats().live - before} bytes more are live than before")
    stats = runtime.cache_stats()
    if stats.in_flight or stats.queued:
        report.fail(f"the cache says {stats}")
    return report


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    faulthandler.enable()
    report = stress(arguments.minutes, arguments.seed)
    print(", ".join(f"{n} {what}" for what, n in sorted(report.counts.items())))
    print("\n".join(report.wrong[:20]) or "nothing went wrong")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
