"""What the runtime costs: ``python -m benchmarks.runtime`` prints one line for each figure and its gate.

Two chains of work on two CPU engines, runs by hand, scheduled nodes, preparation. Times are medians of interleaved
rounds.
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

import numpy as np

import tenferro as tn
from tenferro.engines.cpu.engine import CpuEngine
from tenferro.runtime import Runtime, signature_of, target_of

ROUNDS = 15
SMALL = 20_000  # calls of a sample where one takes microseconds
NODES = 40
OPERATIONS = (2500, 5000, 10_000)


def interleaved(calls: Sequence[Callable[[], Any]], repeats: int = 1, rounds: int = ROUNDS) -> list[float]:
    """The median seconds of each call."""
    samples: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    for _ in range(rounds):
        for call, sample in zip(calls, samples, strict=True):
            start = time.perf_counter()
            for _ in range(repeats):
                call()
            sample.append((time.perf_counter() - start) / repeats)
    return [median(s) for s in samples]


def _tanhs(x: Any) -> Any:
    for _ in range(8):
        x = np.tanh(x) * 1.5
    return x


def two_chains() -> tuple[float, float]:
    """One engine's time over two engines': with one thread, with two."""
    tn.cpu_engines(2)

    @tn.jit
    def split(x: Any, y: Any) -> Any:
        with tn.on("cpu:1"):
            b = _tanhs(y)
        return _tanhs(x), b

    @tn.jit(engine="cpu:0")
    def alone(x: Any, y: Any) -> Any:
        return _tanhs(x), _tanhs(y)

    engine = CpuEngine()
    whole = Runtime.builder().register_engine(engine).build()
    x, y = np.random.default_rng(0).standard_normal((2, 1 << 21))
    program = alone.trace(x, y)
    prepared = whole.prepare(program, signature_of(program), [target_of(engine)])

    def double() -> None:
        whole.run([engine], prepared, [x, y])

    def single() -> None:
        with tn.threads(1):
            double()

    for _ in range(6):  # past the change of levels
        split(x, y)
        single()
        double()
    ours, one, two = interleaved([lambda: split(x, y), single, double])
    return one / ours, two / ours


def run_overhead() -> tuple[float, float]:
    """A run by hand over ``np.add`` on small arrays; a scheduled node over the same."""
    engines = tn.cpu_engines(2)
    runtime = tn.default_runtime()
    x = np.ones(8)
    add = tn.jit(lambda x, y: x + y).trace(x, x)
    prepared = runtime.prepare(add, signature_of(add), [target_of(engines[0])])

    def chain(x: Any) -> Any:
        for k in range(NODES):
            with tn.on(f"cpu:{k % 2}"):
                x = x + 1.0
        return x

    program = tn.jit(chain).trace(x)
    scheduled = runtime.prepare(program, signature_of(program), [target_of(e) for e in engines])
    nodes = len(scheduled.schedule.nodes)
    base, run = interleaved([lambda: np.add(x, x), lambda: runtime.run(engines[:1], prepared, [x, x])], SMALL)
    (whole,) = interleaved([lambda: runtime.run(engines, scheduled, [x])], 50)
    return run / base, whole / nodes / base


def node_of_one_engine() -> float:
    """What a kernel of a program costs beyond its first, on one engine, its work on 16 elements included, over
    ``np.add``."""
    engine = CpuEngine()
    runtime = Runtime.builder().register_engine(engine).build()
    x = np.ones((4, 4))

    def centred(x: Any, times: int) -> Any:
        for k in range(times):
            x = x - x.mean(axis=k % 2, keepdims=True)
        return x

    def prepared(times: int) -> tuple[Any, int]:
        program = tn.jit(centred, static_argnames="times").trace(x, times=times)
        made = runtime.prepare(program, signature_of(program), [target_of(engine)])
        plan = made.plans[0]
        assert plan is not None
        return made, len(plan.regions)

    one, first = prepared(1)
    many, last = prepared(NODES)
    small = np.ones(8)
    calls = [
        lambda: np.add(small, small), lambda: runtime.run([engine], one, [x]), lambda: runtime.run([engine], many, [x])
    ]  # fmt: skip
    base, short, long = interleaved(calls, 2000)
    return (long - short) / (last - first) / base


def preparation() -> list[tuple[int, float]]:
    """(instructions, seconds an instruction) of preparing a chain."""
    runtime = tn.default_runtime()
    found = []
    for count in OPERATIONS:

        def chain(x: Any, count: int = count) -> Any:
            v = x
            for _ in range(count // 2):
                v = v * 0.5 + x
            return v

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program = tn.jit(chain).trace(np.ones(4))
        samples = []
        for _ in range(3):
            runtime.clear_caches()
            start = time.perf_counter()
            runtime.prepare(program, signature_of(program), [target_of(runtime.engines()[0])])
            samples.append((time.perf_counter() - start) / count)
        found.append((count, median(samples)))
    return found


def main() -> int:
    """Print every figure with its gate."""
    single, double = two_chains()
    print(f"two chains on two engines: {single:.2f} x one engine with one thread (gate 1.6)")
    print(f"two chains on two engines: {double:.2f} x one engine with two threads (gate 0.95)")
    run, node = run_overhead()
    print(f"a run by hand: {run:.1f} x np.add on 8 elements (gate 10)")
    print(f"a kernel of a program on one engine, its work included: {node_of_one_engine():.2f} x np.add (gate 1)")
    print(f"a scheduled node, each on another engine than the last: {node:.1f} x np.add")
    for count, seconds in preparation():
        print(f"prepare {count} instructions: {seconds * 1e6:.0f} µs each")
    return 0


if __name__ == "__main__":
    sys.exit(main())
