"""``tn.profile``: what it records of kernels, seams, traces and compiles, where, and what it costs outside."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines import recording
from tenferro.profiling import Compile, Event, Launch, Profile, Run, Seam
from tenferro.tracer import switches

N = 200_000
X, Y = np.arange(float(N)), np.ones(N)
M = np.arange(600.0 * 500).reshape(600, 500)


def profiled(f: Callable[..., Any], *args: Any) -> tuple[Profile, Any]:
    """A call that has been made before, in a profile."""
    f(*args)
    with tn.profile() as p:
        result = f(*args)
    return p, result


def here(offset: int = 0) -> int:
    """The caller's line."""
    return sys._getframe(1).f_lineno + offset


def output_of(script: str) -> str:
    """What a process of its own prints."""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


# -- launches ----------------------------------------------------------------------------------------------------------


def test_a_launch_says_when_where_and_what():
    @tn.jit
    def axpy(x, y):
        z = 2.0 * x
        return z + y

    line = here(-3)
    before = recording.now()
    p, result = profiled(axpy, X, Y)
    (e,) = p.launches
    assert before < e.start < e.end < recording.now()
    assert (e.program, e.region, e.engine, e.entry, e.part) == ("axpy", "r0", "cpu:0", "row", 0)
    assert [(x.line, x.function) for x in e.lines] == [(line, "axpy"), (line + 1, "axpy")]
    assert e.lines[0].file == __file__
    assert (e.read, e.written) == (16 * N, 8 * N)
    assert e.ms == (e.end - e.start) / 1e6
    assert p.threads == {e.thread: threading.current_thread().name}
    assert e.thread == threading.get_native_id()
    assert (result == 2.0 * X + Y).all()
    (run,) = p.runs
    assert run.start <= e.start and e.end <= run.end and not run.is_whole
    assert (run.program, run.engine, run.read, run.written) == ("axpy", "cpu:0", 16 * N, 8 * N)
    assert p.events == (run, e)


def stencil(a):
    return a[2:] + a[1:-1] + a[:-2]


def written_box(a):
    b = a.copy()
    b[1:-1, 1:-1] = 0.0
    return b


ROW = np.ones((1, 500))
BYTES: list[tuple[str, Callable[..., Any], tuple[Any, ...], list[tuple[str, int, int]]]] = [
    ("float32", lambda a: a + 1, (X.astype("f4"),), [("r0", 4 * N, 4 * N)]),
    ("a comparison", lambda a: a > 1, (X,), [("r0", 8 * N, N)]),
    ("every other element", lambda a: a + 1, (X[::2],), [("r0", 4 * N, 4 * N)]),
    ("backwards", lambda a: a + 1, (X[::-1],), [("r0", 8 * N, 8 * N)]),
    ("a repeated row", lambda a, r: a + r, (M, ROW), [("r0", M.nbytes + 4000, M.nbytes)]),
    ("a repeated input", lambda a, b: a + b, (M, np.broadcast_to(ROW, M.shape)), [("r0", M.nbytes + 4000, M.nbytes)]),
    ("a number", lambda a, s: a * s, (X, 2.5), [("r0", 8 * N + 8, 8 * N)]),
    ("read twice", lambda a: a[: N // 2] + a[N // 2 :], (X,), [("r0", 8 * N, 4 * N)]),
    ("read in three places", stencil, (X,), [("r0", 8 * N, 8 * N - 16)]),
    ("read both ways", lambda a: a + a.T, (M[:500],), [("r0", 8 * 250_000, 8 * 250_000)]),
    ("gathered", lambda a, k: a[k] + 1.0, (X, np.arange(1000)), [("r0", 16_000, 8_000)]),
    ("gathered often", lambda a, k: a[k] + 1.0, (X[:10], np.arange(N) % 10), [("r0", 8 * N + 80, 8 * N)]),
    ("rows", lambda a: np.exp(a - a.max(axis=1, keepdims=True)).sum(axis=1), (M,), [("r0", M.nbytes, 4800)]),
    ("columns", lambda a: a.sum(axis=0), (M,), [("r0", M.nbytes, 4000)]),
    ("a product", lambda a, b: a @ b, (M[:, :300], M[:300]), [("matmul", 8 * (180_000 + 150_000), M.nbytes)]),
    ("a vector's product", lambda a, v: a @ v, (M, np.ones(500)), [("matmul", M.nbytes + 4000, 4800)]),
]  # fmt: skip


@pytest.mark.parametrize(("f", "args", "expected"), [c[1:] for c in BYTES], ids=[c[0] for c in BYTES])
def test_bytes_are_those_of_the_layouts(f, args, expected):
    p, result = profiled(tn.jit(f), *args)
    assert [(e.region, e.read, e.written) for e in p.launches] == expected
    np.testing.assert_allclose(result, f(*args), rtol=1e-12)


def test_a_long_row_has_several_launches_and_is_one_call():
    f = tn.jit(lambda a: a / a.sum())
    p, _ = profiled(f, X)
    assert [(e.entry, e.part) for e in p.launches] == [("sweep0", 0), ("close0", 1), ("sweep1", 2)]
    sweep, close, last = p.launches
    assert sweep.read == 8 * N and sweep.written == close.read < 8 * N / 10
    assert close.written < 100
    assert (last.read, last.written) == (8 * N, 8 * N)
    (row,) = p.table()
    assert row.calls == 1 and row.read == 16 * N + close.read


def test_copies_round_a_written_box():
    p, _ = profiled(tn.jit(written_box), M)
    found = [(e.region, e.part, e.read, e.written) for e in p.launches]
    assert found == [
        *(("slice_update", k, b, b) for k, b in enumerate([8 * 500, 8 * 500, 8 * 598, 8 * 598])),
        ("r0", 0, 0, 8 * 598 * 498),
    ]
    assert all(e.lines for e in p.launches)


def test_a_step_without_elements_is_not_launched():
    p, _ = profiled(tn.jit(lambda a: a + 1), np.zeros((0, 3)))
    assert p.launches == () and len(p.runs) == 1


def test_threads_of_a_launch():
    f = tn.jit(lambda a: a + 1)
    with tn.threads(1), tn.profile() as p:
        f(X)
    with tn.profile() as q, tn.threads(3):
        f(X)
    share: Any = getattr(tn.default_runtime().engines()[0], "share", None)  # less than all beside other engines
    assert [e.threads for e in (*p.launches, *q.launches)] == [1, min(3, share or 3)]


# -- seams -------------------------------------------------------------------------------------------------------------


def test_a_seam_is_recorded_with_its_line():
    @tn.jit
    def ranked(a):
        b = a * -1.0
        return np.sort(b) + 1.0

    line = here(-2)
    p, _ = profiled(ranked, X)
    (seam,) = p.seams
    assert (seam.program, seam.name, seam.engine) == ("ranked", "sort", "cpu:0")
    assert (seam.read, seam.written) == (8 * N, 8 * N)
    assert seam.line is not None and (seam.line.file, seam.line.line) == (__file__, line)
    first, second = p.launches
    assert first.end <= seam.start <= seam.end <= second.start


def test_a_reshape_that_copies_is_a_launch():
    p, _ = profiled(tn.jit(lambda a: a.T.reshape(-1) + 1.0), M)
    copy, _ = p.launches
    assert not p.seams and (copy.read, copy.written) == (M.nbytes, M.nbytes)


def test_results_of_sizes_known_at_run_time():
    f = tn.jit(lambda a: a[a > 10] * 2.0)
    p, result = profiled(f, X)
    assert result.size == N - 11
    seam = p.seams[-1]
    assert seam.written == 8 * (N - 11)
    assert p.launches[-1].read == 8 * (N - 11)


# -- eager operations --------------------------------------------------------------------------------------------------


def test_eager_operations_have_their_callers_line():
    a = tn.asarray(X)
    a + a
    with tn.profile() as p:
        b = a + a
        line = here(-1)
        np.exp(b)
    assert [(e.program, e.lines[0].line) for e in p.launches] == [("add", line), ("exp", line + 2)]
    assert [r.line.line for r in p.runs] == [line, line + 2]


# -- traces, preparations, compiles ------------------------------------------------------------------------------------


def test_a_trace_a_preparation_and_compiles():
    @tn.jit
    def fresh(a):
        return np.arctan(a * 1.2345) - 77.0

    with tn.profile() as p:
        fresh(X)
        line = here(-1)
        fresh(X.astype("f4"))
    first, second = p.traces
    assert (first.program, first.reason, first.operations) == ("fresh", "first call", 3)
    assert first.line is not None and first.line.line == line
    assert second.reason == "argument a is float32 of rank 1, was float64 of rank 1"
    assert [e.program for e in p.preparations] == ["fresh", "fresh"]
    made = [e for e in p.compiles if e.kernel == "r0"]
    assert [(e.program, e.level in (0, 2), e.source) for e in made[:1]] == [("fresh", True, "compiled")]
    order = [type(e).__name__ for e in p.events if e.end <= p.launches[0].end]
    assert [k for k in order if k != "Compile"] == ["Trace", "Prepare", "Launch"]
    with tn.profile() as again:
        fresh(X)
    assert not again.traces and not again.preparations and again.launches
    text = str(p)
    assert re.search(r"^fresh +3 +\d+\.\d{3} ms  first call", text, re.MULTILINE)
    assert re.search(r"^fresh r0 +[02] +\d+\.\d{3} ms  compiled$", text, re.MULTILINE)


def test_equal_texts_are_compiled_once():
    with tn.profile() as p:
        for _ in range(2):
            tn.jit(lambda a: a * 4321.5 - 1.0)(X)
    assert len(p.traces) == 2
    assert [e.source for e in p.compiles] == ["compiled"]  # equal programs share one preparation


def test_a_library_of_products_is_named():
    script = (
        "import numpy as np, tenferro as tn\n"
        "f = tn.jit(lambda a: a @ a)\n"
        "with tn.profile() as p: f(np.ones((40, 40)))\n"
        "print(*sorted(e.kernel for e in p.compiles), sep=', ')"
    )
    assert output_of(script).strip() == "native module, product of float64"


# -- other engines -----------------------------------------------------------------------------------------------------


def test_the_reference_engine_is_recorded_as_a_whole():
    p, _ = profiled(tn.jit(lambda a: np.sin(a) + 1, engine="reference:0"), X)
    (run,) = p.events
    assert isinstance(run, Run) and run.is_whole
    assert (run.engine, run.read, run.written) == ("reference:0", 8 * N, 8 * N)
    (row,) = p.table()
    assert (row.kind, row.calls, row.program) == ("run", 1, "<lambda>")
    assert "<lambda> on reference:0" in str(p)


# -- the scope ---------------------------------------------------------------------------------------------------------


def native_hits(f: Any) -> int:
    return 0 if f._shortcuts is None else int(f._shortcuts.hits)


def natively_served(f: Any) -> bool:
    """Whether the next calls go the native way; a few may not, where a kernel is compiled again meanwhile."""
    before = native_hits(f)
    for _ in range(20):
        f(X, Y)
    return native_hits(f) >= before + 15


def test_native_calls_stop_inside_and_go_on_outside():
    f = tn.jit(lambda a, b: a - b * 3.0)
    for _ in range(6):
        outside = f(X, Y)
    before = native_hits(f)
    assert before > 0
    with tn.profile() as p:
        inside = [f(X, Y) for _ in range(4)]
    assert native_hits(f) == before and len(p.launches) == 4
    assert all(r.tobytes() == outside.tobytes() for r in inside)
    assert not switches.is_paused() and recording.recorders == []
    assert natively_served(f) and len(p.launches) == 4


def test_a_function_met_inside_is_native_at_once_outside():
    f = tn.jit(lambda a, b: a - b * 5.0)
    with tn.profile():
        for _ in range(50):
            f(X, Y)
    assert natively_served(f)


def test_an_operator_of_arrays_stays_native_outside():
    a = tn.asarray(X)
    for _ in range(6):
        a * a
    with tn.profile() as p:
        a * a
    assert [e.program for e in p.launches] == ["multiply"]
    with tn.profile() as q:
        pass
    a * a
    assert q.events == ()


def test_nested_profiles_have_what_runs_in_their_own_scopes():
    f = tn.jit(lambda a: a + 3)
    f(X)
    with tn.profile() as outer:
        f(X)
        with tn.profile() as inner:
            f(X)
            f(X)
        f(X)
    assert (len(outer.launches), len(inner.launches)) == (4, 2)
    assert set(inner.events) <= set(outer.events)
    assert not switches.is_paused()


def test_profiles_may_overlap():
    f = tn.jit(lambda a: a + 3)
    first, second = tn.profile(), tn.profile()
    first.__enter__()
    second.__enter__()
    f(X)
    first.__exit__(None, None, None)
    f(X)
    assert switches.is_paused()
    second.__exit__(None, None, None)
    assert (len(first.launches), len(second.launches)) == (1, 2)
    assert not switches.is_paused()


def test_an_exception_ends_the_scope():
    f = tn.jit(lambda a, k: (a + 1)[k])
    f(X, np.arange(3))
    with pytest.raises(ZeroDivisionError), tn.profile() as p:
        f(X, np.arange(3))
        1 / 0  # noqa: B018
    assert len(p.runs) == 1
    with pytest.raises(IndexError), tn.profile() as q:
        f(X, np.array([0, N, 1]))
    assert len(q.runs) == 1 and len(q.launches) == len(p.launches)  # the kernel ran, and found it
    assert q.runs[0].written == 0
    assert not switches.is_paused() and recording.recorders == []


def test_a_seam_that_fails_is_recorded():
    f = tn.jit(lambda a: np.bincount(a) * 2)
    f(np.array([1, 2]))
    with tn.profile() as p, pytest.raises(tn.ShapeError, match="negative"):
        f(np.array([1, -2]))
    assert [(e.name, e.read, e.written) for e in p.seams] == [("bincount", 16, 0)]
    assert [e.written for e in p.runs] == [0]
    assert not p.launches


def test_entering_again():
    f = tn.jit(lambda a: a + 4)
    p = tn.profile()
    with p:
        f(X)
        with pytest.raises(
            RuntimeError, match=r"profile: it is on already; another tn.profile\(\) is needed \(at .*\.py:"
        ):
            p.__enter__()
        f(X)
    f(X)
    once, ms = p.launches, p.ms
    with p:
        f(X)
    assert len(once) == 2 and len(p.launches) == 3 and p.ms > ms
    f(X)
    assert len(p.launches) == 3
    p.__exit__(None, None, None)  # it is off: nothing happens
    assert not switches.is_paused()


def test_it_can_be_read_while_it_is_on():
    f = tn.jit(lambda a: a + 5)
    with tn.profile() as p:
        f(X)
        early, ms = str(p), p.ms
        f(X)
    assert "<lambda> r0" in early and 0 < ms < p.ms
    assert p.ms == p.ms


def test_an_empty_profile():
    with tn.profile() as p:
        pass
    for q in (p, tn.profile()):
        assert q.events == () and q.table() == () and q.launches == () and q.threads == {}
        assert re.fullmatch(r"profile: \d+\.\d{3} ms; nothing ran", str(q))
        assert "nothing ran" in q._repr_html_() and "<svg" not in q._repr_html_()
    assert tn.profile().ms == 0


def test_every_thread_is_recorded_under_its_own_name():
    f = tn.jit(lambda a: np.exp(a) + 1)
    f(X)
    meeting = threading.Barrier(3)

    def work(_: int) -> int:
        meeting.wait(30)
        for _ in range(5):
            f(X)
        return threading.get_native_id()

    with tn.profile() as p, ThreadPoolExecutor(3, thread_name_prefix="mine") as pool:
        numbers = list(pool.map(work, range(3)))
    assert {n: p.threads[n] for n in numbers} == p.threads
    assert sorted(p.threads.values()) == ["mine_0", "mine_1", "mine_2"]
    for n in numbers:
        own = [e for e in p.launches if e.thread == n]
        assert len(own) == 5
        assert all(a.end <= b.start for a, b in zip(own, own[1:], strict=False))
        runs = [e for e in p.runs if e.thread == n]
        assert all(r.start <= e.start and e.end <= r.end for r, e in zip(runs, own, strict=True))
    assert "on 3 threads" in str(p)


def test_what_began_before_or_ends_after_is_left_out():
    began, go_on, p = threading.Event(), threading.Event(), tn.profile()

    def wait(a: Any) -> Any:
        began.set()
        assert go_on.wait(30)
        return a

    waiting = tn.jit(lambda a: wait(a) + 1.0)  # its trace waits
    for enter_first in (False, True):
        waiting.cache_clear()
        began.clear()
        go_on.clear()
        if enter_first:
            p.__enter__()
        thread = threading.Thread(target=waiting, args=(X,))
        thread.start()
        assert began.wait(30)
        if enter_first:
            p.__exit__(None, None, None)
        else:
            p.__enter__()
        go_on.set()
        thread.join(30)
        if not enter_first:
            p.__exit__(None, None, None)
            assert p.traces == () and len(p.launches) == 1
    assert p.traces == () and len(p.launches) == 1


def test_a_forked_child_records_nothing_of_it():
    script = """
import os, threading
import numpy as np, tenferro as tn
from tenferro.tracer import switches
x = np.ones(1000)
f = tn.jit(lambda a: a + 1)
f(x)
other = tn.profile()
thread = threading.Thread(target=other.__enter__)
thread.start(); thread.join()
with tn.profile() as p:
    f(x)
    pid = os.fork()
    if pid == 0:
        f(x)
        child = len(p.launches), len(other.launches), switches.is_paused()
        with tn.profile() as q: f(x)
        own = len(q.launches)
    else:
        os.waitpid(pid, 0)
        f(x)
if pid == 0:
    for _ in range(5): f(x)
    print('child', child, own, f._shortcuts.hits > 0, switches.is_paused(), flush=True)
    os._exit(0)
other.__exit__(None, None, None)
print('parent', len(p.launches), len(other.launches))
"""
    assert output_of(script).split("\n")[:2] == ["child (1, 1, False) 1 True False", "parent 2 2"]


def test_kinds_of_events_are_exported():
    f = tn.jit(lambda a: np.sort(a) + 1)
    p, _ = profiled(f, X)
    assert {type(e) for e in p.events} - {Compile} == {Run, Launch, Seam}  # a kernel may be compiled again
    assert issubclass(Compile, Event)
