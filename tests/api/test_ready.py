"""First calls by what another process has left on disk, without a program: the same results, or the usual way.

``ready.is_open`` asks whether the process has a runtime yet, which this one has; here it is told that there is none.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import ready
from tenferro.engines.disk_cache import OBJECTS, RUNS, DiskCache
from tenferro.tracer.lines import LOADED_AT
from tests.api.kept_functions import CHANGES, KEPT
from tests.api.test_trace_cache import HEAD, Loads, assert_same, counts, loads

__all__ = ["loads"]  # a fixture

if tn.default_runtime().engines()[0].id != "cpu:0":
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)


class Ready:
    """Loads modules as processes that follow one another; the second and later find runs."""

    def __init__(self, loader: Loads, runs: DiskCache) -> None:
        self.loads = loader
        self.runs = runs

    def first(self, text: str) -> Any:
        """The module in a process whose calls go the usual way."""
        ready_calls, ready.CALLS = ready.CALLS, 0
        try:
            module = self.loads.module(text)
            f = tn.jit(module.f)
            for call in getattr(module, "calls", [(np.ones(3),)]):
                f(*call)
        finally:
            ready.CALLS = ready_calls
        return module

    def next(self, text: str) -> Any:
        return self.loads.module(text, changed=False)

    @property
    def entries(self) -> list[Path]:
        return sorted(self.runs.directory.glob("*.tfr"))


@pytest.fixture
def later(loads: Loads, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ready]:  # noqa: F811
    runs = DiskCache(tmp_path / "runs", 64 << 20, RUNS)
    monkeypatch.setattr(ready, "configured", lambda kind: runs)
    # Others may have made several engines share the cores.
    monkeypatch.setattr(tn.default_runtime().engines()[0], "share", None)
    real = ready.is_open

    def is_open(settings: tuple[Any, ...], call: Any) -> bool:
        from tenferro.runtime import default

        made, default._default.runtime = default._default.runtime, None
        try:
            monkeypatch.setattr(ready, "config", lambda: _Settings)
            return real(settings, call)
        finally:
            default._default.runtime = made

    class _Settings:
        cache = cache_traces = True
        engine, cpu_engines, show, check = "cpu", 1, (), False

    monkeypatch.setattr(ready, "is_open", is_open)
    yield Ready(loads, runs)


def served(f: Any) -> int:
    """How many calls were served without a program."""
    calls = f.__dict__.get("_ready_calls")
    return 0 if calls is None else int(calls.calls)


NOT_ONE_BLOCK = {
    "many_outputs", "known_cells", "seams", "array_of_this_package", "indices_and_writes", "loops",
    "contents", "settings_of_lanes", "body_of_a_loop",
}  # fmt: skip
"""Functions of which not every call is one block over the caller's arrays, or that return something else as well."""


@pytest.mark.parametrize("name", KEPT)
def test_the_same_results(later: Ready, name: str):
    first = later.first(KEPT[name])
    expected = [_usual(first.f, c) for c in first.calls]
    second = later.next(KEPT[name])
    f = tn.jit(second.f)
    found = [f(*c) for c in second.calls]
    assert_same(found, expected)
    assert name in NOT_ONE_BLOCK or served(f) == len(second.calls)
    assert counts(f) == (0, getattr(second, "programs", 1))
    assert f.cache_info().hits == len(second.calls)


def _usual(function: Any, call: tuple[Any, ...]) -> Any:
    calls, ready.CALLS = ready.CALLS, 0
    try:
        return tn.jit(function)(*call)
    finally:
        ready.CALLS = calls


@pytest.mark.parametrize("name", CHANGES)
def test_what_has_changed_is_traced_again(later: Ready, name: str):
    text, old, new = CHANGES[name]
    later.loads.monkeypatch.setattr("tenferro.tracer.dependencies._stamp", lambda name: ("", 0, 0))
    x = np.ones(3)
    later.first(text)
    same = tn.jit(later.next(text).f)
    assert_same(same(x), _usual(later.next(text).f, (x,)))
    assert served(same) == (name not in NOT_ONE_BLOCK)
    module = later.loads.module(text.replace(old, new))
    after = tn.jit(module.f)
    assert_same(after(x), np.asarray(module.f(x))[()])


def test_captured_arrays_are_read_and_numbers_compared(later: Ready):
    text = "rate = 0.5\nW = np.ones(3)\ndef f(x):\n    return x * W * rate\n"
    later.first(text)
    module = later.next(text)
    f = tn.jit(module.f)
    assert f(np.ones(3)).tolist() == [0.5] * 3
    module.W[:] = 4.0
    assert f(np.ones(3)).tolist() == [2.0] * 3
    module.W = np.full(3, 8.0)
    assert f(np.ones(3)).tolist() == [4.0] * 3
    assert served(f) == 3
    module.rate = 0.25
    assert f(np.ones(3)).tolist() == [2.0] * 3
    assert served(f) == 0 and counts(f) == (1, 1)
    assert f.cache_info().hits == 3


def test_other_layouts_go_the_usual_way_and_are_kept_too(later: Ready):
    text = "def f(x):\n    return np.exp(x) * 2\n"
    module = later.first(text)
    x = np.arange(12.0).reshape(3, 4)
    assert len(later.entries) == 1
    for layout in (np.ones(3), x, np.asfortranarray(x), x[:, ::2], x[::-1]):
        for _ in range(2):
            f = tn.jit(later.next(text).f)
            np.testing.assert_array_equal(f(layout), _usual(module.f, (layout,)))
    assert len(later.entries) == 5
    f = tn.jit(later.next(text).f)
    for layout in (np.ones(3), x, np.asfortranarray(x), x[:, ::2], x[::-1]):
        f(layout)
    assert served(f) == 5
    f(np.ones(4))
    assert served(f) == 0 and counts(f) == (0, 2)


def test_what_a_kernel_finds_is_told_as_usual(later: Ready):
    text = "def f(x, i):\n    return x[i] // i\ncalls = [(np.arange(4), np.array([1, 2]))]\n"
    later.first(text)
    line = HEAD.count("\n") + 2
    f = tn.jit(later.next(text).f)
    assert f(np.arange(4), np.array([2, 3])).tolist() == [1, 1]
    assert served(f) == 1
    with pytest.raises(IndexError, match=rf"kept_module\.py:{line}\)"):
        f(np.arange(4), np.array([1, 4]))
    g = tn.jit(later.next(text).f)
    with pytest.warns(RuntimeWarning, match="divisor 0"):
        g(np.arange(4), np.array([0, 1]))
    with warnings.catch_warnings(), np.errstate(divide="ignore"):
        warnings.simplefilter("error")
        assert tn.jit(later.next(text).f)(np.arange(4), np.array([0, 1])).tolist() == [0, 1]


def test_after_a_while_the_program_is_made_ready(later: Ready, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ready, "CALLS", 5)
    text = "def f(x):\n    return x + 1\n"
    later.first(text)
    monkeypatch.setattr(ready, "CALLS", 5)
    f = tn.jit(later.next(text).f)
    for n in range(12):
        assert f(np.full(3, float(n))).tolist() == [n + 1.0] * 3
    assert served(f) == 0 and counts(f) == (0, 1)
    assert f.cache_info().hits == 12
    assert len(f.explain().traces) == 1


def test_a_slow_function_is_not_held_up(later: Ready, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(ready, "SECONDS", 0.0)
    text = "def f(x):\n    return x + 1\n"
    later.first(text)
    f = tn.jit(later.next(text).f)
    f(np.ones(3))
    assert served(f) == 0


def test_looking_inside(later: Ready):
    text = "def f(x):\n    return np.exp(x) + 1\n"
    later.first(text)
    f = tn.jit(later.next(text).f)
    f(np.ones(3))
    assert served(f) == 1
    text_of_all = str(f.explain())
    assert "traces 0, from disk 1, programs kept 1, calls served 1" in text_of_all
    assert "1. first call" in text_of_all and "2 operations" in text_of_all
    assert [o.op.name for o in f.trace(np.ones(3)).operations] == ["exp", "add"]
    assert str(f.explain()).count("first call") == 1
    assert f.cache_info().programs == 1


def test_settings_of_the_function(later: Ready):
    text = "def f(x):\n    return x + 1\n"
    later.first(text)
    strict = tn.jit(later.next(text).f, max_compiles=1)
    strict(np.ones(3))
    assert served(strict) == 1
    with pytest.raises(tn.RecompileError):
        strict(np.ones((2, 2)))
    elsewhere = tn.jit(later.next(text).f, engine="reference:0")
    elsewhere(np.ones(3))
    assert served(elsewhere) == 0
    wrapped = tn.jit(later.next(text).f)
    assert isinstance(wrapped(tn.asarray(np.ones(3))), tn.Array)
    assert served(wrapped) == 0
    donated = tn.jit(later.next(text).f, donate_argnums=0)
    donated(np.ones(3))
    assert served(donated) == 0
    cleared = tn.jit(later.next(text).f)
    cleared(np.ones(3))
    cleared.cache_clear()
    assert served(cleared) == 0 and cleared.cache_info().hits == 0


def test_a_missing_object_or_a_damaged_run(later: Ready, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    text = "def f(x):\n    return np.tanh(x) + 1\n"
    module = later.first(text)
    expected = _usual(module.f, (np.ones(3),))
    from tenferro.engines.cpu import toolchain

    with monkeypatch.context() as m:
        m.setattr(toolchain, "disk_cache", lambda: DiskCache(tmp_path / "empty", 1 << 20, OBJECTS))
        f = tn.jit(later.next(text).f)
        np.testing.assert_array_equal(f(np.ones(3)), expected)
        assert served(f) == 0
    (entry,) = later.entries
    data = entry.read_bytes()
    entry.write_bytes(data[:-3])
    f = tn.jit(later.next(text).f)
    np.testing.assert_array_equal(f(np.ones(3)), expected)
    assert served(f) == 0


def test_threads_that_make_the_first_calls(later: Ready):
    text = "W = np.arange(3.0)\ndef f(x):\n    return np.exp(x) * W\n"
    module = later.first(text)
    expected = _usual(module.f, (np.ones(3),))
    f = tn.jit(later.next(text).f)
    found: list[Any] = []
    start = threading.Barrier(6)

    def work() -> None:
        start.wait()
        found.extend(f(np.ones(3)) for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(found) == 30
    for x in found:
        np.testing.assert_array_equal(x, expected)


SCRIPT = """
import os, sys, warnings
import numpy as np
import tenferro as tn

W = np.arange(3.0)

@tn.jit
def f(x):
    return np.exp(x * W).sum(), x - W

before = set(sys.modules)
print([r.tobytes().hex() for r in f(np.ones(3))])
loaded = {m.split(".")[1] for m in set(sys.modules) - before if m.startswith("tenferro.")}
print("lowering" in loaded, "runtime" in loaded, "programs" in loaded, "llvmlite.binding" in sys.modules)
with tn.threads(2):
    f(np.ones(3))
pid = os.fork()
if pid == 0:
    y = f(np.full(3, 2.0))
    os._exit(0 if y[1].tolist() == [2.0, 1.0, 0.0] else 1)
print(os.waitpid(pid, 0)[1])
print(f(np.ones(4)[:3])[1].tolist(), f.cache_info().from_disk)
for n in range(300):
    assert f(np.full(3, float(n)))[1].tolist() == [n, n - 1.0, n - 2.0]
print(tn.jit(lambda x: x @ x)(np.eye(2)).tolist(), f.cache_info().hits, f.cache_info().compiles)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_process_of_its_own(tmp_path: Path):
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    past = LOADED_AT - 10**12
    os.utime(script, ns=(past, past))
    given = {"TENFERRO_CACHE_DIR": str(tmp_path / "cache"), "TENFERRO_CACHE_TRACES": "1", "TENFERRO_CHECK": "0"}
    found = []
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", str(script)], capture_output=True, text=True, timeout=120,
            env=os.environ | given,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.splitlines())
    first, second = found
    assert first[0] == second[0]
    assert first[1] == "True True True True"
    assert second[1] == "False False False " + str(sys.platform != "linux" or os.uname().machine != "x86_64")
    assert first[2] == second[2] == "0"
    assert (first[3], second[3]) == ("[1.0, 0.0, -1.0] 0", "[1.0, 0.0, -1.0] 1")
    assert (first[4], second[4]) == ("[[1.0, 0.0], [0.0, 1.0]] 302 1", "[[1.0, 0.0], [0.0, 1.0]] 303 0")
