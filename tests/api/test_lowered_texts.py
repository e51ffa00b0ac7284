"""The texts of ``f.lower(*args)``: headings and names where several engines work, and a short one to print."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu.actions import Call, Select
from tenferro.engines.cpu.engine import CpuExecutable
from tenferro.lowering.plan import Seam
from tenferro.tracer.config import SHOW_STAGES
from tests.oracle import both_engines
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
        for stage in ("regions", "segments", "kernel", "llvm", "asm"):
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


def running_total(x, m):
    e = np.exp(x)
    c = np.cumsum(e * 2)
    picked = c[c > 3] + 1
    halves = m.astype(np.float16) @ m.astype(np.float16)
    return np.sort(picked), (m @ m).T.reshape(-1) + 1, halves


def kinds(lowered):
    """Seams by function, segments by how many kernels they have."""
    (found,) = lowered.stretches.values()
    return [s.function if isinstance(s, Seam) else len(s.kernels) for s in found]


def test_segments_and_the_reason_of_every_seam():
    lowered = tn.jit(running_total).lower(X, np.ones((3, 4, 4)))
    text = re.sub(r"\(at \S*\.py:(\d+(?:, \d+)*)\)", lambda m: f"({m[1]})", lowered.as_text("segments"))
    first = running_total.__code__.co_firstlineno
    reasons = dict(re.findall(r"^seam (\w+ \(\d+\)): (.*)$", text, re.MULTILINE))
    assert reasons == {
        f"cumsum ({first + 2})": "no kernel for cumsum",
        f"mask_select ({first + 3})": "a run-time extent: what follows is laid out when it is known",
        f"sort ({first + 5})": "no kernel for sort",
    }
    assert f"  0 region r0 over (d0_0,) ({first + 1}, {first + 2})\n" in text
    segments = re.findall(r"^segment (\d+): (\d+) kernels?$", text, re.MULTILINE)
    assert [int(n) for n, _ in segments] == list(range(len(segments)))
    steps = [int(n) for n in re.findall(r"^ +(\d+) (?:region|view|call)", text, re.MULTILINE)]
    calls = len(re.findall("^seam ", text, re.MULTILINE))
    assert steps == sorted(steps) and len(steps) + calls == len(lowered.plan.steps)


def test_segments_are_those_of_the_layouts_of_the_call():
    f = tn.jit(lambda m: np.exp(m.T.reshape(-1)))
    m = np.arange(12.0).reshape(3, 4)
    assert kinds(f.lower(m)) == [2]  # a copy of what has gaps
    assert kinds(f.lower(m.T)) == kinds(f.lower(np.asfortranarray(m))) == [1]
    batch = tn.jit(lambda a, b: a @ b)
    a = np.ones((2, 300, 2, 2))
    assert kinds(batch.lower(a, a)) == [1]
    assert kinds(batch.lower(a.transpose(1, 0, 2, 3), a.transpose(1, 0, 2, 3))) == [1]


def test_segments_are_what_the_engine_does():
    """Each segment with kernels is one native call, and each seam a call of Python's, in this order."""
    for f, x in (
        (running_total, (X, np.eye(4))),
        (energy_here, (X, V)),
        (np.exp, (X,)),
        (lambda x: np.exp(x[:0]), (X,)),
    ):
        lowered = tn.jit(f).lower(*x)
        done: list[object] = []
        with pytest.MonkeyPatch.context() as patch:
            watch(patch, done)
            lowered.run(lowered.prepared)
        assert done == [k if isinstance(k, str) else "native" for k in kinds(lowered) if k]


def energy_here(position, speed):
    return np.sin(position).sum(), np.sort(speed) + 1, np.cumsum(speed * 2)


def test_selections_are_in_a_segment_where_nothing_beside_them_needs_python():
    f = tn.jit(lambda x: (np.exp(x)[x > 0.5] * 2)[::2].sum())
    assert kinds(f.lower(X)) == [3]
    g = tn.jit(lambda x: np.sort(x)[x > 0.5])
    assert kinds(g.lower(X)) == ["sort", 1, "mask_select"]
    matrix = np.arange(12.0).reshape(3, 4)
    told = tn.jit(lambda x, m: x[m]).lower(matrix.T, matrix.T > 3)
    assert kinds(told) == ["mask_select"] and "do not lie at equal distances" in told.as_text("segments")


def watch(patch, done):
    act, run_bound = CpuExecutable._act_in_python, CpuExecutable._run_bound
    enter = CpuExecutable._enter_block

    def acted(self, action, *rest):
        if isinstance(action, Call | Select):
            done.append(action.instruction.params.get("function", action.instruction.op.name))
        act(self, action, *rest)

    def entered(self, action, given):
        done.extend(["native"] * bool(action.block.origins))
        return enter(self, action, given)

    def whole(self, bound, inputs):
        if bound.only is not None:
            done.extend(["native"] * bool(bound.only.block.origins))
        return run_bound(self, bound, inputs)

    patch.setattr(CpuExecutable, "_act_in_python", acted)
    patch.setattr(CpuExecutable, "_enter_block", entered)
    patch.setattr(CpuExecutable, "_run_bound", whole)


def test_segments_of_parts_and_of_the_reference_engine():
    with several(2):
        lowered = tn.jit(energy).lower(X, V)
        text = lowered.as_text("segments")
        assert re.findall("^== (.*)$", text, re.MULTILINE) == ["cpu:1, part 0", "cpu:0, part 1", "cpu:0, part 3"]
        assert "seam sort (at " in text and "region p0.r0 over (d0_0,)" in text
        assert set(lowered.stretches) == {0, 1, 3}
    with both_engines():
        told = tn.jit(lambda x: np.exp(x)[::2] + 1, engine="reference:0").lower(X)
        assert kinds(told) == ["exp", "add"]
        assert told.as_text("segments").count("the reference engine calls NumPy for every operation") == 2
    assert tn.jit(lambda x: x).lower(X).as_text("segments").startswith("nothing runs")


def test_looking_at_segments_runs_the_program_once():
    lowered = tn.jit(lambda x: np.sort(x) + 1).lower(X)
    done: list[object] = []
    with pytest.MonkeyPatch.context() as patch:
        watch(patch, done)
        for _ in range(3):
            lowered.as_text("segments")
    assert done == ["sort", "native"]


def test_memory_says_what_the_peak_is_made_of():
    @tn.jit
    def f(x):
        y = np.sort(x)
        return np.cumsum(y[::-1] * 2)

    memory = f.lower(X).memory()
    assert (memory.peak.formula, memory.peak.bytes, int(memory.peak)) == ("16*x.shape[0]", 1600, 1600)
    assert (memory.naive.formula, memory.naive.bytes) == ("24*x.shape[0]", 2400)
    assert (memory.step, memory.at, memory.bytes, memory.formula) == (1, "region r0", 1600, "16*x.shape[0]")
    line = f.__wrapped__.__code__.co_firstlineno + 2
    spans = [(b.slot, b.bytes, b.formula, b.line and b.line.line, b.first, b.last) for b in memory.largest]
    size = (800, "8*x.shape[0]")
    assert spans == [(1, *size, line, 0, 1), (3, *size, line + 1, 1, 2), (4, *size, line + 1, 2, None)]
    lines = str(memory).splitlines()
    assert lines[:2] == [
        "peak 1600 bytes = 16*x.shape[0] in step 1 (region r0)",
        "naive 2400 bytes = 24*x.shape[0]",
    ]
    assert lines[2] == f"  s1: 800 bytes = 8*x.shape[0], steps 0 to 1 (at {__file__}:{line})"
    assert lines[-1] == f"  s4: 800 bytes = 8*x.shape[0], from step 2 on (at {__file__}:{line + 1})"
    assert (
        repr(memory) == "<memory: peak 1600 bytes = 16*x.shape[0], naive 2400 bytes = 24*x.shape[0], buffers listed 3>"
    )


def test_memory_of_a_program_that_makes_nothing():
    memory = tn.jit(lambda x: x).lower(X).memory()
    assert (memory.bytes, memory.largest, str(memory)) == (0, (), "peak 0 bytes\nnaive 0 bytes")
    many = tn.jit(lambda x: [np.sort(x + k) for k in range(9)]).lower(X).memory()
    assert len(many.largest) == 5 and many.naive.bytes == 18 * X.nbytes


NO_KERNEL = {
    "an argument": (lambda x: x, "nothing runs: the results are arguments, sizes or constants"),
    "a size": (lambda x: x.shape[0], "nothing runs: the results are arguments, sizes or constants"),
    "nothing": (lambda x: None, "nothing runs: the results are arguments, sizes or constants"),
    "a view": (lambda x: x.reshape(10, 10).T, "reshape is a view, transpose is a view"),
    "a call": (lambda x: np.sort(x), "sort is a seam (no kernel for sort)"),
}


@pytest.mark.parametrize("name", NO_KERNEL)
def test_stages_of_programs_without_kernels_say_why(name):
    function, why = NO_KERNEL[name]
    lowered = tn.jit(function).lower(X)
    assert all(line.strip() for stage in SHOW_STAGES for line in lowered.as_text(stage).splitlines())
    idle = why.startswith("nothing")
    assert lowered.as_text("kernel") == (why if idle else f"no region: {why}")
    for stage, sign in (("llvm", ";"), ("asm", ";"), ("cuda", "//")):
        assert lowered.as_text(stage) == f"{sign} {'' if idle else 'no kernel: '}{why}"
    if idle:
        assert lowered.as_text("regions") == lowered.as_text("segments") == why
    assert all(lowered.as_text(stage) for stage in SHOW_STAGES)


def test_a_product_is_a_kernel_without_a_region():
    lowered = tn.jit(lambda x: x @ x).lower(np.ones((4, 4)))
    assert lowered.as_text("kernel") == "no region: matmul is a product"
    assert "define" in lowered.as_text("llvm")


def test_without_elements_no_kernel_is_launched():
    lowered = tn.jit(lambda x: x + 1).lower(X[:0])
    assert lowered.as_text("llvm") == "; no kernel: r0 has no elements"


def test_programs_without_array_results_say_so():
    lowered = tn.jit(lambda x: x.shape[0]).lower(X)
    assert lowered.as_text("program").endswith("  out  no array")
    assert lowered.as_text("exec").endswith("  out  no array")


def test_the_reference_engine_says_that_it_has_no_kernels():
    with both_engines():
        lowered = tn.jit(lambda x: np.sin(x) + 1, engine="reference:0").lower(X)
        assert "the reference engine calls NumPy for every operation" in lowered.as_text("llvm")


def test_stages_are_short_at_a_prompt():
    f = tn.jit(lambda x: np.sort(np.exp(x * 2).sum(0) + np.cumsum(x)))
    lowered = f.lower(X)
    stages = {
        "program": f.trace(X), "exec": lowered.exec_program, "schedule": lowered.schedule,
        "regions": lowered.regions[0],
    }  # fmt: skip
    for name, stage in stages.items():
        assert re.fullmatch(r"<(program|exec|schedule|region) .*; print\(\) shows them>", repr(stage)), repr(stage)
        assert len(repr(stage)) < 120 < len(str(stage)) + 60
        assert name == "regions" or str(stage) == lowered.as_text(name)
    assert repr(stages["program"]).startswith("<program <lambda>: inputs 1, operations 6, outputs 1, guards ")
    assert repr(lowered.plan).startswith("<plan <lambda>: steps ") and repr(lowered.prepared).startswith("<prepared")


def turns(x):
    def turn(c, v):
        return tn.lax.cond(c > 9, lambda: c, lambda: tn.lax.while_loop(lambda a: a < v, lambda a: a * 2 + 1, c)), c

    return tn.lax.scan(turn, 1.0, x)[1] + tn.lax.scan(turn, 0.0, x)[1]


@pytest.mark.parametrize("stage", ["program", "exec"])
def test_bodies_stand_once_below_what_runs_them(stage):
    lines = tn.jit(turns).lower(X).as_text(stage).splitlines()
    found = [re.sub("#.*", "", line) for line in lines if line.lstrip().startswith("body ")]
    assert found == [
        "    body scan turn", "        body cond <lambda>", "            body while_loop <lambda>",
        "            body condition of while_loop", "        body cond <lambda>",
    ]  # fmt: skip
    (loop,) = [k for k, line in enumerate(lines) if line.startswith("            body while_loop")]
    assert " = while[" in lines[loop - 1] and any(" = multiply(" in line for line in lines[loop:])
    for line in lines:
        if line.lstrip().startswith("body "):
            assert sum(line.split("body ")[1] in other for other in lines) >= 2  # the operation names it
    assert len([line for line in lines if " = scan[" in line]) == 2


def test_bodies_in_exec_have_passed_the_passes():
    def f(x):
        return tn.lax.map(lambda v: np.sort(x * v + (v - v) * 0)[:1] * 1, x)

    lowered = tn.jit(f).lower(X)
    program, executed = (lowered.as_text(stage) for stage in ("program", "exec"))
    assert "    %" in program and "  # " in program
    assert "multiply" in executed and executed.count("multiply(") < program.count("multiply(")


def test_the_plans_of_bodies_stand_below_what_runs_them() -> None:
    def f(x):
        def turn(c, v):
            y = tn.lax.cond(v.sum() > 0, lambda c: np.tanh(c @ c), lambda c: c, c)
            return y + v.sum(), np.sort(c[0])

        y, s = tn.lax.scan(turn, x, x[:4])
        return tn.lax.scan(turn, y, x[:4])[0] + s.sum()

    lowered = tn.jit(f).lower(np.eye(6))
    for stage, made in (("regions", "region r0"), ("segments", "segment 0"), ("kernel", "kernel r0")):
        lines = lowered.as_text(stage).splitlines()
        (start,) = [k for k, line in enumerate(lines) if line.startswith("    body scan turn")]  # once for both loops
        inside = [line for line in lines[start + 1 :] if line.startswith("      ")]
        assert any(line.startswith(f"      {made}") for line in inside), stage
        assert sum(line.startswith("          body cond") for line in inside) == 2, stage
    assert "seam sort" in lowered.as_text("segments")
