"""What programs of several engines hold on each: said before the run, counted in it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu import toolchain
from tenferro.engines.engine import Engine
from tests.engines.cpu.test_allocations import real_peak
from tests.runtime.engines import several

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)

X, V = np.linspace(0, 1, 1000), np.linspace(2, 0, 700)
MASKED = np.linspace(-1, 1, 512)


@pytest.fixture(autouse=True)
def engines() -> Iterator[list[Engine]]:
    with several(3) as found:
        yield found


def energy(position: Any, speed: Any) -> Any:
    with tn.on("cpu:1"):
        potential = np.sin(position).sum()
        ordered = np.sort(speed)
    kinetic = (speed * speed).sum() / 2
    return potential + kinetic, ordered * 2, np.zeros(position.shape[0])


def test_each_engine_is_told() -> None:
    memory = tn.jit(energy).lower(X, V).memory()
    first, second = memory.engines["cpu:0"], memory.engines["cpu:1"]
    assert list(memory.engines) == ["cpu:0", "cpu:1"]
    assert (second.formula, second.bytes) == ("8*speed.shape[0] + 8", 5608)
    assert (first.formula, first.bytes) == ("8*position.shape[0] + 8*speed.shape[0] + 16", 13616)
    assert memory.bytes == first.bytes + second.bytes == 19224
    assert memory.formula == "8*position.shape[0] + 16*speed.shape[0] + 24"
    assert [b.bytes for b in memory.largest[:3]] == [8000, 5600, 5600]
    lines = str(memory).splitlines()
    assert lines[0] == "peak 19224 bytes = 8*position.shape[0] + 16*speed.shape[0] + 24 on all engines"
    assert [line for line in lines if line.startswith("cpu:")] == [
        f"cpu:0: peak {first.peak} in step {first.step} ({first.at})",
        f"cpu:1: peak {second.peak} in step {second.step} ({second.at})",
    ]
    assert repr(memory).endswith(", engines cpu:0, cpu:1>")


def test_one_engine_has_no_others_to_tell_of() -> None:
    assert tn.jit(lambda x: x + 1).lower(X).memory().engines == {}


def test_a_size_that_depends_on_data_counts_in_full() -> None:
    def f(x: Any) -> Any:
        chosen = x[x > 0]
        with tn.on("cpu:1"):
            doubled = chosen * 2
        return doubled + 1

    lowered = tn.jit(f).lower(MASKED)
    memory = lowered.memory()
    assert memory.engines["cpu:1"].bytes == MASKED.nbytes
    assert memory.bytes >= real_peak(lowered, [MASKED])


@pytest.mark.parametrize("seed", range(20))
def test_runs_hold_no_more_than_is_told(seed: int) -> None:
    choose = random.Random(seed)
    places = [choose.choice(["cpu:0", "cpu:1", "cpu:2"]) for _ in range(12)]
    steps = [choose.randrange(5) for _ in range(12)]

    def f(x: Any) -> Any:
        kept = [x]
        for place, step in zip(places, steps, strict=True):
            with tn.on(place):
                a, b = kept[-1], kept[-min(len(kept), 3)]
                made = (np.exp(-a), a + b, np.cumsum(a), np.sort(b), (a * b)[::-1])[step]
            kept.append(made)
        return kept[-1], kept[len(kept) // 2].sum()

    lowered = tn.jit(f).lower(X)
    memory, peak = lowered.memory(), real_peak(lowered, [X])
    assert peak <= memory.bytes <= memory.naive.bytes
    if len(memory.engines) > 1:
        assert memory.bytes == sum(m.bytes for m in memory.engines.values())
    assert memory.bytes <= max(peak * len(memory.engines or [0]), peak + 4 * X.nbytes)
