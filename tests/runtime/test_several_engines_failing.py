"""Programs over several CPU engines: errors, warnings, settings, reconfiguration and threads, as on one."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from operator import methodcaller

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.engine import Engine
from tenferro.engines.errors import UnknownEngineError
from tenferro.runtime import OperationNode, TransferNode
from tenferro.tracer.errors import BoundsError, DivisionError, LoweringError
from tests.runtime.agreement import agrees, x
from tests.runtime.engines import prepared_on, several

NAMES = ("cpu:0", "cpu:1", "cpu:2")


@pytest.fixture(scope="module", autouse=True)
def engines() -> Iterator[list[Engine]]:
    with several(3) as found:
        yield found


# Errors, warnings and settings inside workers


def test_an_error_has_the_users_line():
    @tn.jit
    def f(a, i):
        b = a + 1
        with tn.on("cpu:1"):
            return b[i]

    with pytest.raises(BoundsError, match=r"contain 77.*test_several_engines_failing.py:(\d+)\)") as caught:
        f(x, np.array([77]))
    line = f.__wrapped__.__code__.co_firstlineno + 4
    assert f"test_several_engines_failing.py:{line})" in str(caught.value)
    assert f(x, np.array([0])).tolist() == [1]


@tn.jit
def divided(a, b):
    c = a + 0
    with tn.on("cpu:1"):
        return c // b


def test_errstate_holds_in_workers():
    ones, zeros = np.ones(3, int), np.zeros(3, int)
    with np.errstate(divide="raise"), pytest.raises(DivisionError, match="divisor 0"):
        divided(ones, zeros)
    with np.errstate(divide="ignore"):
        assert divided(ones, zeros).tolist() == [0, 0, 0]
    with pytest.warns(RuntimeWarning, match="divisor 0 under the dividend 1"):
        divided(ones, zeros)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeWarning, match="divisor 0"):
            divided(ones, zeros)
    seen: list[str] = []
    with np.errstate(divide="call", call=lambda kind, flag: seen.append(kind)):
        divided(ones, zeros)
    assert seen == ["divide by zero"]


@pytest.mark.parametrize("where", ["cpu:0", "cpu:1", "cpu:2"])
def test_lanes_that_a_where_on_another_engine_discards_do_not_count(where):
    def f(a, b):
        with tn.on("cpu:1"):
            q = a // b
        with tn.on("cpu:2"):
            r = q * 2 + 1
        with tn.on(where):
            return np.where(b != 0, r, -1)

    a, b = np.array([7, 8, 9]), np.array([2, 0, 3])
    jitted = tn.jit(f)
    with np.errstate(divide="raise"):
        assert jitted(a, b).tolist() == [7, -1, 7]

    @tn.jit
    def counted(a, b):
        with tn.on("cpu:1"):
            q = a // b
        with tn.on("cpu:2"):
            return np.where(b > 1, q, -1), q.sum()

    with np.errstate(divide="raise"), pytest.raises(DivisionError):
        counted(a, b)


def test_threads_scope_holds_in_workers():
    from tenferro.engines.cpu import threads

    seen = []
    real = threads.count

    def spy(share=None):
        seen.append((threading.current_thread().name, real(share)))
        return real(share)

    def f(a):
        with tn.on("cpu:1"):
            b = a + 1
        with tn.on("cpu:2"):
            return b * 2, a - 1

    jitted = agrees(f, x)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threads, "count", spy)
        with tn.threads(1):
            jitted(x)
    assert len(seen) >= 2 and {n for _, n in seen} == {1}


def test_failures_leave_no_memory_behind():
    """Pooled buffers of every part go back, the collector's help or not, once the error has been dealt with."""
    import gc

    from tenferro.engines.cpu import memory

    @tn.jit
    def f(a, i):
        with tn.on("cpu:1"):
            b = a * 2
        with tn.on("cpu:2"):
            c = a + 1
        return b[i] + c.sum()

    big = np.ones(100_000)
    f(big, np.array([0]))
    gc.collect()
    gc.disable()
    try:
        before = memory.stats().live
        for _ in range(3):
            try:
                f(big, np.array([100_000]))
            except BoundsError:
                pass
            assert memory.stats().live == before
        assert f(big, np.array([5])).tolist() == [200_002]
        assert memory.stats().live == before
    finally:
        gc.enable()


# Reconfiguration and concurrency


def test_reconfiguration_during_calls():
    """Eight threads call, one adds and removes an engine: every call gives its result."""

    def f(a, k):
        with tn.on("cpu:1"):
            b = a + k
        return b * 2

    jitted = tn.jit(f)
    jitted(x, 1)
    stop = threading.Event()
    wrong: list[object] = []

    def call(k: int) -> None:
        while not stop.is_set():
            try:
                found = jitted(x, k)
            except BaseException as error:
                wrong.append(error)
                return
            if found.tolist() != ((x + k) * 2).tolist():
                wrong.append(found)

    threads = [threading.Thread(target=call, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    runtime = tn.default_runtime()
    from tenferro.engines.reference import ReferenceEngine

    for k in range(20):
        extra = ReferenceEngine(100 + k)
        runtime.reconfigure(methodcaller("register_engine", extra))
        runtime.reconfigure(methodcaller("remove_engine", extra.id))
    stop.set()
    for t in threads:
        t.join(60)
    assert not wrong


def test_a_replaced_engine_serves_programs_of_old():
    from tenferro.engines.cpu.engine import CpuEngine

    def f(a):
        with tn.on("cpu:2"):
            return a + 1

    jitted = tn.jit(f)
    jitted(x)
    runtime = tn.default_runtime()
    before = runtime.engines()
    before[2].broken = "a test"
    with pytest.raises(LoweringError, match="make another"):
        jitted(x)
    fresh = CpuEngine(2)

    def replace(configuration) -> None:
        configuration.engines[2] = fresh

    try:
        runtime.reconfigure(replace)
        assert jitted(x).tolist() == (x + 1).tolist()
        runtime.reconfigure(lambda c: c.remove_engine("cpu:2"))
        with pytest.raises(UnknownEngineError, match="'cpu:2'"):
            jitted(x)
    finally:
        before[2].broken = ""
        runtime.reconfigure(lambda c: c.engines.__setitem__(slice(None), before))
    assert jitted(x).tolist() == (x + 1).tolist()


def test_schedules_run_side_by_side(engines):
    """Two parts of one level are under way at the same time."""
    meeting = threading.Barrier(2, timeout=30)

    def f(a):
        with tn.on("cpu:1"):
            b = a + 1
        with tn.on("cpu:2"):
            c = a + 2
        return b, c

    prepared = prepared_on(tn.jit(f).trace(x), engines)
    units = [u for u in prepared.units if u is not None]
    assert len(units) == 2
    originals = [type(u).run for u in units]
    with pytest.MonkeyPatch.context() as patch:
        for unit, run in zip(units, originals, strict=True):
            patch.setattr(unit, "run", lambda inputs, u=unit, r=run: (meeting.wait(), r(u, inputs))[1])
        outputs = tn.default_runtime().run(engines, prepared, [x]).outputs
    assert [o.tolist() for o in outputs] == [(x + 1).tolist(), (x + 2).tolist()]


def test_nodes_and_texts():
    def f(a):
        with tn.on("cpu:1"):
            b = a + 1
        return b * 2

    schedule = agrees(f, x).lower(x).schedule
    assert isinstance(schedule.nodes[0], OperationNode) and isinstance(schedule.nodes[1], TransferNode)
    lines = str(schedule).splitlines()
    assert lines[0] == "schedule on cpu:0, cpu:1" and len(lines) == 4
    assert lines[1].split()[:3] == ["0", "cpu:1", "operation"]
    assert "cpu:1/host → cpu:0/host: 8*d0_0 bytes, read by multiply (at " in lines[2] and lines[2].endswith("after 0")
