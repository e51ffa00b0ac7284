"""The texts of ``f.lower(*args)``: headings and names where several engines work, and a short one to print."""

from __future__ import annotations

import re

import numpy as np

import tenferro as tn
from tenferro.tracer.config import SHOW_STAGES
from tests.runtime.engines import several

X, V = np.linspace(0, 1, 100), np.linspace(2, 0, 70)


def energy(position, speed):
    with tn.on("cpu:1"):
        potential = np.sin(position).sum()
        ordered = np.sort(speed)
    kinetic = (speed * speed).sum() / 2
    return potential + kinetic, ordered, np.zeros(position.shape[0])


def test_parts_have_headings_and_regions_names_of_their_own():
    with several(2):
        lowered = tn.jit(energy).lower(X, V)
        for stage in ("regions", "kernel", "llvm", "asm"):
            headings = re.findall(r"^(?:; )?== (.*)$", lowered.as_text(stage), re.MULTILINE)
            assert headings == ["cpu:1, part 0", "cpu:0, part 1", "cpu:0, part 3"], stage
        names = [r.name for r in lowered.regions]
        assert len(set(names)) == len(names) and {n.partition(".")[0] for n in names} == {"p0", "p1", "p3"}
        for stage in ("llvm", "asm"):
            assert sorted(re.findall(r"^; (p\d\.\w+)$", lowered.as_text(stage), re.MULTILINE)) == sorted(names)


def test_parts_speak_of_the_slots_and_sizes_of_the_whole_program():
    with several(2):
        lowered = tn.jit(energy).lower(X, V)
        text = lowered.as_text("regions")
        assert "region p0.r0 over (d0_0,) rows over (0,)\n    v0: float64 = load s0\n" in text
        assert "region p1.r0 over (d1_0,) rows over (0,)\n    v0: float64 = load s1\n" in text
        assert f"    {lowered.exec_program.outputs[2]} = v1" in text
        assert "function='sort', shape=(d1_0,)" in text
        stores = {int(n) for n in re.findall(r"^    s(\d+) = ", text, re.MULTILINE)}
        assert stores >= {t.slot for t in lowered.schedule.transfers}


def test_one_engine_has_no_headings():
    lowered = tn.jit(lambda x: np.exp(x).sum()).lower(X)
    assert "==" not in lowered.as_text("regions") and [r.name for r in lowered.regions] == ["r0"]


def test_printing_is_short_and_names_the_stages():
    lowered = tn.jit(lambda x: np.exp(x).sum()).lower(X)
    lines = str(lowered).splitlines()
    assert lines[0].startswith("lowered <lambda>: operations 2, regions 1, calls 0, peak ")
    assert lines[1:] == [
        "as_text(stage) shows one of " + ", ".join(SHOW_STAGES),
        "memory() says what the peak is made of",
    ]
    assert all(lowered.as_text(stage) for stage in SHOW_STAGES)
    with several(2):
        assert "nodes 4 on 2 engines" in str(tn.jit(energy).lower(X, V))
