"""Traces on disk: what a second process finds, what it must not take, and what is never written.

A second process is a fresh load of the module's text in this one: nothing of the first load is left in it. What only a
process of its own shows is at the end.
"""

from __future__ import annotations

import importlib.util
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import trace_cache
from tenferro.engines.disk_cache import TRACES, DiskCache
from tenferro.engines.sources import state_of
from tenferro.tracer.lines import LOADED_AT
from tenferro.tracer.program import same_meaning
from tenferro.tracer.stored_result import Texts
from tests.api.kept_functions import CHANGES, KEPT, REFUSED

HEAD = """
import functools
from collections import OrderedDict, defaultdict
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

import numpy as np

import tenferro as tn

call = lambda x: (x,)
"""


class Loads:
    """Loads texts as modules of one name, as processes that follow one another would."""

    def __init__(self, folder: Path, cache: DiskCache, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.cache = cache
        self.monkeypatch = monkeypatch
        self.times = 0

    def module(self, text: str, name: str = "kept_module", changed: bool = True) -> Any:
        """``changed``: the file is written anew, some time before this process began."""
        file = self.folder / f"{name}.py"
        if changed:
            file.write_text(HEAD + text)
            self.times += 1
            moment = LOADED_AT - 10**12 + self.times * 10**9
            os.utime(file, ns=(moment, moment))
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        self.monkeypatch.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
        return module

    @property
    def entries(self) -> list[Path]:
        return sorted(self.cache.directory.glob("*.tft"))


@pytest.fixture
def loads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Loads:
    cache = DiskCache(tmp_path / "cache", 64 << 20, TRACES)
    monkeypatch.setattr(trace_cache, "trace_cache", lambda: cache)
    return Loads(tmp_path, cache, monkeypatch)


def counts(f: Any) -> tuple[int, int]:
    info = f.cache_info()
    return info.compiles, info.from_disk


def assert_same(a: Any, b: Any) -> None:
    """Equal in structure, classes (by name: modules are loaded anew), dtypes and bits."""
    assert type(a).__qualname__ == type(b).__qualname__
    if isinstance(a, dict):
        assert list(a) == list(b)
        a, b = list(a.values()), list(b.values())
    elif hasattr(a, "__dataclass_fields__"):
        a, b = list(vars(a).values()), list(vars(b).values())
    if isinstance(a, list | tuple):
        assert len(a) == len(b)
        for x, y in zip(a, b, strict=True):
            assert_same(x, y)
    elif isinstance(a, np.ndarray | np.generic | tn.Array):
        x, y = np.asarray(a), np.asarray(b)
        assert (x.dtype, x.shape) == (y.dtype, y.shape) and x.tobytes() == y.tobytes()
    elif not hasattr(type(a), "__members__"):
        assert repr(a) == repr(b)


@pytest.mark.parametrize("name", KEPT)
def test_a_second_process_does_not_trace(loads: Loads, name: str):
    first = loads.module(KEPT[name])
    programs = getattr(first, "programs", 1)
    f = tn.jit(first.f)
    expected = [f(*c) for c in first.calls]
    assert counts(f) == (programs, 0), f.explain()
    assert [t.unkept for t in f.explain().traces] == [""] * programs
    second = loads.module(KEPT[name], changed=False)
    g = tn.jit(second.f)
    found = [g(*c) for c in second.calls]
    assert counts(g) == (0, programs), g.explain()
    assert_same(found, expected)
    assert "from disk" in str(g.explain())
    for c, d in zip(first.calls, second.calls, strict=True):
        assert same_meaning(f.trace(*c), g.trace(*d))
        assert str(f.trace(*c)) == str(g.trace(*d))


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("in_place", [False, True], ids=["in_the_file", "in_memory"])
def test_what_has_changed_is_traced_again(loads: Loads, name: str, in_place: bool):
    """``in_memory``: the file's state does not tell, as where a value depends on the environment."""
    text, old, new = CHANGES[name]
    loads.monkeypatch.setattr("tenferro.tracer.dependencies._stamp", lambda name: ("", 0, 0)) if in_place else None
    x = np.ones(3)
    before = tn.jit(loads.module(text).f)
    before(x)
    assert counts(before) == (1, 0)
    assert [t.unkept for t in before.explain().traces] == [""]
    after = tn.jit(loads.module(text.replace(old, new)).f)
    found = after(x)
    if in_place and name in ("size", "aliased_arrays"):  # guards of sizes and of sharing; see below
        assert counts(after) in ((1, 0), (0, 1))
    else:
        assert counts(after) == (1, 0), after.explain()
    assert_same(found, np.asarray(loads.module(text.replace(old, new)).f(x))[()])
    again = tn.jit(loads.module(text).f)
    assert_same(again(x), before(x))


def test_what_changes_in_one_process_is_traced_again(loads: Loads):
    text = "rate = 0.5\nW = np.ones(3)\ndef f(x):\n    return x * W * rate\n"
    tn.jit(loads.module(text).f)(np.ones(3))
    module = loads.module(text, changed=False)
    f = tn.jit(module.f)
    assert f(np.ones(3)).tolist() == [0.5] * 3
    module.W = np.full(3, 4.0)
    assert f(np.ones(3)).tolist() == [2.0] * 3
    assert counts(f) == (0, 1)
    module.rate = 0.25
    assert f(np.ones(3)).tolist() == [1.0] * 3
    assert counts(f) == (1, 1)
    module.W = np.ones((1, 3), np.float32)
    assert f(np.ones(3)).shape == (1, 3)
    assert counts(f) == (2, 1)


def test_a_helper_in_another_module(loads: Loads):
    main = "import kept_helper\ndef f(x):\n    return kept_helper.g(x) + kept_helper.bias\n"
    loads.module("bias = 1.0\ndef g(x):\n    return x * 2\n", "kept_helper")
    tn.jit(loads.module(main).f)(np.ones(2))
    loads.module("bias = 1.0\ndef g(x):\n    return x * 2\n", "kept_helper", changed=False)
    f = tn.jit(loads.module(main, changed=False).f)
    assert (f(np.ones(2)).tolist(), counts(f)) == ([3.0, 3.0], (0, 1))
    loads.module("bias = 1.0\ndef g(x):\n    return x * 5\n", "kept_helper")
    f = tn.jit(loads.module(main, changed=False).f)
    assert (f(np.ones(2)).tolist(), counts(f)) == ([6.0, 6.0], (1, 0))


def test_a_file_that_changed_while_the_process_runs_is_not_trusted(loads: Loads):
    module = loads.module("def f(x):\n    return x + 1\n")
    tn.jit(module.f)(np.ones(2))
    os.utime(loads.folder / "kept_module.py")
    f = tn.jit(module.f)
    f(np.ones(2))
    assert counts(f) == (1, 0)
    assert "has changed since the process began" in f.explain().traces[0].unkept
    assert "not kept on disk: " in str(f.explain())


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_certain_is_not_kept(loads: Loads, name: str):
    text, reason = REFUSED[name]
    module = loads.module(text)
    f = tn.jit(module.f, static_argnames=("g",) if name == "static_function" else ())
    f(*module.call(np.ones(3)))
    (record,) = f.explain().traces
    assert reason in record.unkept
    assert loads.entries == []


def test_text_without_a_file_is_not_kept(loads: Loads):
    space: dict[str, Any] = {"np": np}
    exec("def f(x):\n    return np.exp(x)\n", space)
    f = tn.jit(space["f"])
    f(np.ones(2))
    assert f.explain().traces[0].unkept != ""
    assert loads.entries == []


def test_errors_name_the_lines_of_the_present_text(loads: Loads):
    text = "def f(x, i):\n    y = x * 2\n    return y[i]\n"
    calls = (np.ones(3), np.array([0, 1]))
    tn.jit(loads.module(text).f)(*calls)
    served = tn.jit(loads.module(text, changed=False).f)
    served(*calls)
    assert counts(served) == (0, 1)
    with pytest.raises(IndexError, match=rf"kept_module\.py:{HEAD.count(chr(10)) + 3}\)"):
        served(np.ones(3), np.array([0, 7]))
    moved = tn.jit(loads.module("\n\n" + text).f)
    moved(*calls)
    assert counts(moved) == (1, 0)
    with pytest.raises(IndexError, match=rf"kept_module\.py:{HEAD.count(chr(10)) + 5}\)"):
        moved(np.ones(3), np.array([0, 7]))


def test_a_donated_argument_is_written(loads: Loads):
    text = "def f(x, y):\n    x += y\n    return x.sum()\n"
    for compiles, from_disk in ((1, 0), (0, 1)):
        f = tn.jit(loads.module(text, changed=bool(compiles)).f, donate_argnums=0)
        x = np.ones(3)
        assert f(x, np.arange(3.0)) == 6.0
        assert x.tolist() == [1.0, 2.0, 3.0]
        assert counts(f) == (compiles, from_disk)
    undonated = tn.jit(loads.module(text, changed=False).f)
    with pytest.raises(tn.MutationError):
        undonated(np.ones(3), np.ones(3))


def test_max_compiles_bounds_programs_wherever_they_come_from(loads: Loads):
    text = "def f(x):\n    return x[: int(x.shape[0]) // 2]\n"
    f = tn.jit(loads.module(text).f)
    f(np.ones(8))
    f(np.ones(9))
    strict = tn.jit(loads.module(text, changed=False).f, max_compiles=1)
    strict(np.ones(8))
    assert counts(strict) == (0, 1)
    with pytest.raises(tn.RecompileError, match=r"x\.shape\[0\] == 8 holds no longer"):
        strict(np.ones(9))


def test_programs_from_disk_count_for_the_warning(loads: Loads):
    text = "def f(x):\n    return x * x.shape[0] if len(x) else x\n"
    f = tn.jit(loads.module(text).f)
    with pytest.warns(tn.RecompileWarning, match="traced 8 times;"):
        for n in range(1, 9):
            f(np.ones(n))
    g = tn.jit(loads.module(text, changed=False).f)
    with pytest.warns(tn.RecompileWarning, match="traced 0 times, 8 programs from disk;"):
        for n in range(1, 9):
            g(np.ones(n))
    assert counts(g) == (0, 8)


def test_an_entry_is_bounded(loads: Loads):
    text = "rate = 0\ndef f(x):\n    return x * rate\n"
    for k in range(trace_cache.MAX_TRACES + 4):
        module = loads.module(text, changed=k == 0)
        module.rate = k
        tn.jit(module.f)(np.ones(2))
    (entry,) = loads.entries
    key = entry.stem
    assert len(trace_cache._split(loads.cache.load(key))) == trace_cache.MAX_TRACES
    for k, expected in ((trace_cache.MAX_TRACES + 3, (0, 1)), (4, (0, 1)), (3, (1, 0))):
        module = loads.module(text, changed=False)
        module.rate = k
        f = tn.jit(module.f)
        assert f(np.ones(2)).tolist() == [k, k]
        assert counts(f) == expected


def test_an_edit_leaves_nothing_of_the_old_text(loads: Loads):
    text = "def f(x):\n    return x + 1\n# {}\n"
    for k in range(3):  # the function's own code stays, the file does not
        tn.jit(loads.module(text.format(k)).f)(np.ones(2))
    (entry,) = loads.entries
    assert len(trace_cache._split(loads.cache.load(entry.stem))) == 1


def test_another_version_finds_nothing(loads: Loads, monkeypatch: pytest.MonkeyPatch):
    text = "def f(x):\n    return x + 1\n"
    tn.jit(loads.module(text).f)(np.ones(2))
    monkeypatch.setattr(trace_cache, "_sources", lambda: "others")
    f = tn.jit(loads.module(text, changed=False).f)
    f(np.ones(2))
    assert counts(f) == (1, 0)
    assert len(loads.entries) == 2


def test_the_state_of_the_sources_is_part_of_the_key(tmp_path: Path):
    file = tmp_path / "a" / "b.py"
    file.parent.mkdir()
    file.write_text("1")
    before = state_of.__wrapped__(str(tmp_path))
    file.write_text("22")
    assert before != state_of.__wrapped__(str(tmp_path))
    assert state_of.__wrapped__(str(tmp_path / "absent")) is None
    assert trace_cache._sources() is not None


def test_damaged_entries_count_as_absent(loads: Loads):
    module = loads.module(KEPT["captured"])
    expected = tn.jit(module.f)(np.ones(3))
    (entry,) = loads.entries
    whole = entry.read_bytes()
    rng = random.Random(0)
    for _ in range(60):
        data = bytearray(whole)
        match rng.randrange(3):
            case 0:
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
            case 1:
                del data[rng.randrange(len(data)) :]
            case _:
                data[rng.randrange(len(data)) : rng.randrange(len(data))] = rng.randbytes(rng.randrange(9))
        entry.write_bytes(bytes(data))
        f = tn.jit(module.f)
        assert_same(f(np.ones(3)), expected)
        assert counts(f) == ((0, 1) if bytes(data) == whole else (1, 0))
        assert entry.read_bytes() == whole


@pytest.mark.parametrize("name", ["captured", "pytrees", "seams", "contents", "sizes_as_branches"])
def test_texts_that_nobody_wrote_raise_nothing(loads: Loads, name: str):
    """Under a checksum that is right: a reader that trusts it must still end in an answer or in none."""
    module = loads.module(KEPT[name])
    call = module.calls[0]
    f = tn.jit(module.f)
    f(*call)
    (path,) = loads.entries
    (texts,) = trace_cache._split(loads.cache.load(path.stem))
    bound = f._bind(call, {})
    entry = trace_cache.entry(module.f, None, bound, (bound.key, "cpu:0"))
    assert entry.key == path.stem and entry.load(bound) is not None
    rng = random.Random(0)
    served = 0
    for _ in range(150):
        parts = [bytearray(texts.assumed), bytearray(texts.program)]
        changed = parts[rng.randrange(2)]
        for _ in range(rng.randrange(1, 4)):
            place = rng.randrange(len(changed))
            changed[place] = rng.choice(b'[]{},:"0123456789-.entrufalsx')
        loads.cache.store(path.stem, trace_cache._joined(Texts(*map(bytes, parts))))
        served += entry.load(bound) is not None
    assert served < 150


def test_an_entry_that_is_cut_off_has_no_traces():
    whole = trace_cache._joined(Texts(b"assumed", b"program"))
    assert trace_cache._split(whole) == [Texts(b"assumed", b"program")]
    assert all(not trace_cache._split(whole[:n]) for n in range(len(whole)))
    assert trace_cache._split(None) == []


@pytest.mark.skipif(not hasattr(os, "chown") or os.geteuid() != 0, reason="only root gives files away")
def test_files_of_others_are_ignored(loads: Loads):
    module = loads.module("def f(x):\n    return x + 1\n")
    tn.jit(module.f)(np.ones(2))
    (entry,) = loads.entries
    os.chown(entry, 12345, -1)
    f = tn.jit(module.f)
    f(np.ones(2))
    assert counts(f) == (1, 0)
    assert entry.stat().st_uid == os.getuid()  # written anew


def test_threads_that_keep_the_same(loads: Loads):
    module = loads.module(KEPT["captured"])
    expected = module.f(np.ones(3))
    results: list[Any] = []

    def work() -> None:
        for _ in range(5):
            results.append(tn.jit(module.f)(np.ones(3)))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 20
    for r in results:
        np.testing.assert_array_equal(r, expected)
    f = tn.jit(module.f)
    f(np.ones(3))
    assert counts(f) == (0, 1)


# -- processes of their own --------------------------------------------------------------------------------------

SCRIPT = """
import sys
import numpy as np
import tenferro as tn

W = np.arange(3.0)

@tn.jit
def f(x):
    print("traced")
    return np.exp(x * W) + len(sys.argv[0]) * 0 if False else np.exp(x * W)

def main():
    print(f(np.ones(3)).tobytes().hex())
    print(f(np.ones(3)).shape, f.cache_info().compiles, f.cache_info().from_disk)
    print("tenferro.tracer.entry" in sys.modules)

main()
"""


def run(script: Path, cache: Path, **environment: str) -> list[str]:
    given = {"TENFERRO_CACHE_DIR": str(cache), "TENFERRO_CACHE_TRACES": "1"} | environment
    done = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, timeout=120, env=os.environ | given
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.fixture
def script(tmp_path: Path) -> Path:
    path = tmp_path / "script.py"
    path.write_text(SCRIPT.replace(" + len(sys.argv[0]) * 0 if False else np.exp(x * W)", ""))
    past = LOADED_AT - 10**12
    os.utime(path, ns=(past, past))
    return path


def test_a_process_skips_what_another_has_traced(script: Path, tmp_path: Path):
    cache = tmp_path / "cache"
    first, second = run(script, cache), run(script, cache)
    assert first[0] == "traced" and first[2] == "(3,) 1 0"
    assert second[0] == first[1]  # the same bits, and the function's body has not been run
    assert second[1] == "(3,) 0 1"
    for off in ({"TENFERRO_CACHE": "0"}, {"TENFERRO_CACHE_TRACES": "0"}):
        assert run(script, cache, **off)[0] == "traced"


def test_seeds_of_hashes_do_not_matter(script: Path, tmp_path: Path):
    text = script.read_text().replace("W = np.arange(3.0)", "W = np.arange(3.0)\nS = {'a', 'b', 'c', 'd'}")
    script.write_text(text.replace('print("traced")', 'print("traced", "b" in {"a", "b", "e"}, len(S))'))
    past = LOADED_AT - 10**12
    os.utime(script, ns=(past, past))
    run(script, tmp_path / "cache", PYTHONHASHSEED="1")
    assert run(script, tmp_path / "cache", PYTHONHASHSEED="2")[1] == "(3,) 0 1"


KILLED = """
import os, signal
from tenferro.engines import disk_cache
real = os.fdopen

def half(descriptor, mode):
    file = real(descriptor, mode)
    write = file.write
    def partly(data):
        write(data[: len(data) // 2])
        file.flush()
        if data.startswith(b"tenferro trace"):
            os.kill(os.getpid(), signal.SIGKILL)
    class Half:
        def __enter__(self): return self
        def __exit__(self, *error): file.close()
    Half.write = staticmethod(partly)
    return Half()

disk_cache.os = type("os", (), {**vars(os), "fdopen": staticmethod(half)})
"""


def test_a_writer_that_is_killed_leaves_nothing_broken(script: Path, tmp_path: Path):
    cache = tmp_path / "cache"
    killed = tmp_path / "killed.py"
    text = script.read_text()
    killed.write_text(KILLED + text)
    past = LOADED_AT - 10**12
    os.utime(killed, ns=(past, past))
    done = subprocess.run(
        [sys.executable, str(killed)], capture_output=True, text=True, timeout=120,
        env=os.environ | {"TENFERRO_CACHE_DIR": str(cache), "TENFERRO_CACHE_TRACES": "1"},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL, done.stderr
    left = list(cache.glob("*.tmp"))
    assert left and not list(cache.glob("*.tft"))
    assert run(script, cache)[2] == "(3,) 1 0"
    assert run(script, cache)[1] == "(3,) 0 1"
