"""What explain() and the looks inside say: costs by stage, reasons with both values, guards in the user's words."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro as tn

LAYERS = [np.ones(3)]
WEIGHTS = np.arange(3.0)


class Model:
    def __init__(self):
        self.lr, self.taps = 0.1, np.ones(3)

    @tn.jit
    def step(self, x):
        return x * self.lr + self.taps


def test_changed_number_is_named_with_both_values():
    model = Model()
    model.step(np.ones(3))
    model.lr = 0.05
    model.step(np.ones(3))
    reason = model.step.explain().traces[1].reason
    assert reason == "self.lr was 0.1, is 0.05; pass it as an argument to keep one program"
    setattr(model, "lr", np.ones(1))  # noqa: B010 (another type than declared)
    model.step(np.ones(3))
    assert model.step.explain().traces[2].reason.startswith("self.lr was 0.05, is of class ndarray; ")
    del model.lr
    with pytest.raises(AttributeError, match="lr"):
        model.step(np.ones(3))


def test_changed_length_and_function(monkeypatch):
    twice = lambda x: 2 * x  # noqa: E731

    @tn.jit
    def f(x):
        return twice(sum(LAYERS, x))

    f(np.ones(3))
    monkeypatch.setitem(globals(), "LAYERS", [np.ones(3), np.ones(3)])
    f(np.ones(3))
    assert f.explain().traces[1].reason == "len(LAYERS) was 1, is 2"

    twice = lambda x: x + x  # noqa: E731

    f(np.ones(3))
    assert f.explain().traces[2].reason == "twice is another object now"


def test_captured_arrays_have_their_names():
    model = Model()
    model.step(np.ones(3))
    assert "holds while x.shape[0] == self.taps.shape[0] (at" in str(model.step.explain())
    weighted = tn.jit(lambda x: x * WEIGHTS)
    assert "# captured WEIGHTS" in str(weighted.trace(np.ones(3)))
    assert any("x.shape[0] == WEIGHTS.shape[0]" in g for g in weighted.explain().traces[0].guards)


def test_len_says_what_does_not_pin():
    by_len, by_shape = tn.jit(lambda x: x / len(x)), tn.jit(lambda x: x / x.shape[0])
    by_len(np.ones(3)), by_shape(np.ones(3))
    (guard,) = by_len.explain().traces[0].guards
    assert guard.startswith("x.shape[0] == 3 (at ") and guard.endswith("(len pins the size; x.shape[0] does not)")
    assert by_shape.explain().traces[0].guards == ()


def test_costs_of_all_stages():
    @tn.jit
    def f(x):
        return np.exp(x) * 2.5 - 0.125

    f.trace(np.ones(3))
    (before,) = f.explain().traces
    assert (before.compile_ms, before.kernels) == (0, 0)
    f(np.ones(3))
    (after,) = f.explain().traces
    assert after.kernels == f.cache_info().kernels == 1 and after.compile_ms > 0
    assert min(after.trace_ms, after.prepare_ms) > 0
    text = str(f.explain())
    assert "ms so far; 3 operations, 1 kernel" in text
    assert text.endswith("(trace: your Python code, once, on symbols; prepare: passes and fusion; "
                         "compile: LLVM, as kernels are first run)")  # fmt: skip


def test_costs_of_dropped_programs_stay(monkeypatch):
    monkeypatch.setattr("tenferro.programs.MAX_PROGRAMS", 1)

    @tn.jit(static_argnums=1)
    def f(x, k):
        return x + k * 1.375

    f(np.ones(3), 0.25), f(np.ones(3), 0.5)
    explanation = f.explain()
    assert explanation.programs == 1 and [t.kernels for t in explanation.traces] == [1, 1]
    assert all(t.compile_ms > 0 for t in explanation.traces)


def test_repr_of_the_stages():
    lowered = tn.jit(Model().step.__wrapped__).lower(Model(), np.ones(3))
    assert repr(lowered) == (
        "<lowered step: operations 2, regions 1, calls 0, peak 24 bytes; as_text(stage), memory()>"
    )
    assert str(lowered).startswith("lowered step: operations 2, regions 1, calls 0, peak 24 bytes\n")


def test_a_function_that_needs_sizes_as_numbers_is_named():
    f = tn.jit(lambda x: np.nanmedian(x) + np.interp(x, [0.0, 1.0], [2.0, 3.0]))
    f(np.ones(3)), f(np.ones(4))
    why = "nanmedian needs the size as a number, each is a program of its own"
    first, second = f.explain().traces
    assert first.guards[0].startswith("x.shape[0] == 3 (at ") and first.guards[0].endswith(f"({why})")
    assert second.reason == f"x.shape[0] == 3 holds no longer: x.shape[0] is 4; {why}"
    assert len(first.guards) == 1, "interp needs none"


def test_loops_that_are_kernels_are_counted_and_shown() -> None:
    @tn.jit
    def halves(x: Any) -> Any:
        return tn.lax.fori_loop(0, 10, lambda i, c: c * 0.5 + i, x)

    x = np.ones((10, 3))
    halves(x)
    info = halves.cache_info()
    assert info.kernels == 1 and info.kernel_bytes > 0
    assert "1 kernel" in str(halves.explain())
    for stage in ("llvm", "asm"):
        assert "fori_loop" in halves.lower(x).as_text(stage)
