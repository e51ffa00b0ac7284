"""Streams as event domains, on devices that work as late as they may: what waits for what, and what failures leave."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tenferro.engines.cuda.device import DeviceError, Event, Memory
from tenferro.engines.cuda.engine import CudaEngine
from tenferro.engines.cuda.streams import StreamRun, StreamToken, submission
from tenferro.engines.errors import EngineFailure, EventError
from tenferro.engines.events import DomainRun, ImmediateDriver, Token, WorkerDriver
from tests.cuda.shim_device import device, shim_engine, view

SECONDS = 30.0


@pytest.fixture
def engines() -> Iterator[list[CudaEngine]]:
    found = [shim_engine(0), shim_engine(1)]
    yield found
    for engine in found:
        assert device(engine).faults == []


def begun(engine: CudaEngine) -> StreamRun:
    run = engine.driver().begin_run(engine.id)
    assert isinstance(run, StreamRun)
    return run


def enqueued(run: DomainRun, launch: Callable[[], None], *after: Token, bridge: bool = False) -> StreamToken:
    token = run.enqueue(after, launch, bridge)
    assert isinstance(token, StreamToken)
    return token


def event_of(token: StreamToken) -> Event:
    """The event of a token that has been submitted and not been waited for."""
    assert token.submitted() and token.event is not None
    return token.event


class Bytes:
    """Device memory of 64 bytes, and launches that write it."""

    def __init__(self, engine: CudaEngine) -> None:
        self.engine = engine
        self.memory: Memory = engine.allocate(64, "a test")
        engine.synchronize()  # fresh memory has known contents then

    def fill(self, byte: int) -> Callable[[], None]:
        return lambda: self.engine.device.fill(self.memory.address, byte, 64, self.engine.stream)

    def copy(self, source: Bytes) -> Callable[[], None]:
        return lambda: self.engine.device.copy(self.memory.address, source.memory.address, 64, self.engine.stream)

    @property
    def now(self) -> set[int]:
        return set(view(self.memory.address, (64,), (1,), np.uint8).tolist())


def test_a_launch_is_submitted_and_not_waited_for(engines: list[CudaEngine]):
    data = Bytes(engines[0])
    run = begun(engines[0])
    tokens = [enqueued(run, data.fill(1))]
    tokens.append(enqueued(run, data.fill(2), tokens[0]))  # by the order of the stream
    events = [event_of(t) for t in tokens]
    assert not any(e.is_done for e in events) and data.now.isdisjoint({1, 2})
    assert tokens[0].wait() and events[0].is_done and not events[1].is_done and data.now == {1}
    assert run.drain() == [] and run.state == "retired"
    assert events[1].is_done and data.now == {2}
    with pytest.raises(EventError, match="retired"):
        enqueued(run, data.fill(3))


def test_a_token_that_is_settled_waits_for_nothing(engines: list[CudaEngine]):
    data = Bytes(engines[0])
    run = begun(engines[0])
    first = enqueued(run, data.fill(1))
    assert first.wait() and data.now == {1}
    after = enqueued(run, data.fill(2), first)  # its thread finds ``first`` settled
    assert not event_of(after).is_done and first.wait() and not event_of(after).is_done and data.now == {1}
    last = enqueued(run, data.fill(3), first)
    assert not event_of(last).is_done and data.now == {1}
    assert run.drain() == [] and data.now == {3}


def test_a_stream_waits_for_another_gpu_and_no_thread_does(engines: list[CudaEngine]):
    here, there = (Bytes(e) for e in engines)
    runs = [begun(e) for e in engines]
    first = enqueued(runs[0], here.fill(7))
    with pytest.raises(EventError, match="only transfers bridge"):
        enqueued(runs[1], there.copy(here), first)
    second = enqueued(runs[1], there.copy(here), first, bridge=True)
    back = enqueued(runs[0], here.fill(9), second, bridge=True)
    before = event_of(first)
    assert [event_of(t).is_done for t in (second, back)] == [False, False] and not before.is_done
    assert second.wait() and there.now == {7} and before.is_done and first.is_settled
    assert not back.is_settled and here.now == {7}  # it comes after the copy
    assert [r.drain() for r in reversed(runs)] == [[], []] and here.now == {9}


def test_the_thread_waits_for_an_engine_of_the_host_and_the_caller_does_not(engines: list[CudaEngine]):
    data, gate = Bytes(engines[0]), threading.Event()
    host = WorkerDriver("host").begin_run("host:0")
    run = begun(engines[0])

    def slow() -> None:
        assert gate.wait(SECONDS)

    before = host.enqueue([], slow)
    token = enqueued(run, data.fill(5), before, bridge=True)
    other = enqueued(run, lambda: None)
    assert not token._done.is_open and not other._done.is_open  # launches keep their order
    gate.set()
    assert token.wait() and data.now == {5}
    assert host.drain() == run.drain() == []


def test_a_host_engine_waits_for_the_event(engines: list[CudaEngine]):
    data, seen = Bytes(engines[0]), list[set[int]]()
    run, host = begun(engines[0]), WorkerDriver("host").begin_run("host:0")
    token = enqueued(run, data.fill(6))
    host.enqueue([token], lambda: seen.append(data.now), bridge=True).wait()
    assert seen == [{6}] and host.drain() == run.drain() == []


def test_a_run_inside_a_launch_stays_on_its_thread(engines: list[CudaEngine]):
    data, inner = Bytes(engines[0]), list[Token]()

    def launch() -> None:
        nested = engines[0].driver().begin_run("cuda:0")
        inner.append(nested.enqueue([], data.fill(4)))
        assert nested.drain() == []

    run = begun(engines[0])
    assert enqueued(run, launch).wait() and type(inner[0]) is Token and data.now == {4}


# Failures


def raising(failure: BaseException) -> Callable[[], None]:
    def launch() -> None:
        raise failure

    return launch


def test_what_depends_on_a_failed_launch_never_happens(engines: list[CudaEngine]):
    data, trouble = Bytes(engines[0]), ValueError("no")
    run, other = begun(engines[0]), begun(engines[1])
    failed = enqueued(run, raising(trouble))
    after = enqueued(run, data.fill(1), failed)
    across = enqueued(other, data.fill(2), after, bridge=True)
    free = enqueued(run, data.fill(3))
    assert [t.wait() for t in (failed, after, across, free)] == [False, False, False, True]
    assert data.now == {3} and (failed.failure, after.skipped, across.skipped) == (trouble, True, True)
    assert run.drain() == [trouble] and other.drain() == [] and (run.state, other.state) == ("failed", "retired")


def test_a_failure_of_the_host_is_not_submitted_after(engines: list[CudaEngine]):
    data = Bytes(engines[0])
    host, run = ImmediateDriver().begin_run("host:0"), begun(engines[0])
    before = host.enqueue([], raising(ValueError("host")))
    token = enqueued(run, data.fill(1), before, bridge=True)
    assert not token.wait() and token.skipped and token.failure is None and run.drain() == []


def test_work_of_a_launch_that_failed_half_way_is_drained(engines: list[CudaEngine]):
    data = Bytes(engines[0])

    def half() -> None:
        data.fill(1)()
        raise ValueError("half way")

    run = begun(engines[0])
    enqueued(run, half)
    assert [str(f) for f in run.drain()] == ["half way"]
    assert data.now == {1}


def late(engine: CudaEngine, text: str) -> Callable[[], None]:
    """Work that is submitted well and fails when its turn comes."""

    def fail() -> None:
        raise DeviceError(text)

    def launch() -> None:
        device(engine)._submit(engine.stream, fail)

    return launch


def test_a_device_that_is_lost_late_is_told_once(engines: list[CudaEngine]):
    data = Bytes(engines[0])
    run, other = begun(engines[0]), begun(engines[1])
    tokens = [enqueued(run, data.fill(1))]
    assert tokens[0].wait()
    tokens += [enqueued(run, late(engines[0], "illegal address")), enqueued(run, data.fill(2))]
    across = enqueued(other, lambda: None, tokens[-1], bridge=True)
    assert all(t.submitted() for t in (*tokens, across))
    assert not across.wait() and across.skipped and across.failure is None
    (failure,) = run.drain()
    assert isinstance(failure, EngineFailure) and failure.engine_id == "cuda:0" and "illegal address" in str(failure)
    assert [t.failure for t in tokens] == [None, failure, None] and tokens[2].skipped and data.now == {1}
    assert other.drain() == [] and not enqueued(begun(engines[0]), data.fill(3)).wait()


# Checks


def checked(check: Callable[[], None], work: Callable[[], None] = lambda: None) -> Callable[[], None]:
    """A launch whose kernels have something to be looked at."""

    def launch() -> None:
        within = submission()
        assert within is not None and submission() is None  # what is called from here looks for itself
        work()
        within.checks.append(check)

    return launch


def test_checks_are_looked_at_when_somebody_waits_and_once(engines: list[CudaEngine]):
    looked: list[int] = []
    data, run = Bytes(engines[0]), begun(engines[0])
    tokens = [enqueued(run, checked(lambda k=k: looked.append(k), data.fill(k))) for k in range(3)]  # type: ignore[misc]
    assert all(t.submitted() for t in tokens) and looked == []
    assert tokens[1].wait() and looked == [0, 1] and data.now == {1}
    assert tokens[0].wait() and run.drain() == [] and looked == [0, 1, 2]
    assert submission() is None


def test_a_check_that_fails_is_the_launchs_failure(engines: list[CudaEngine]):
    trouble, seen = IndexError("9"), list[str]()
    run, other, host = begun(engines[0]), begun(engines[1]), WorkerDriver("host").begin_run("host:0")
    first = enqueued(run, checked(raising(trouble)))
    second = enqueued(run, checked(lambda: seen.append("second")), first)
    free = enqueued(run, checked(lambda: seen.append("free")))
    across = enqueued(other, checked(lambda: seen.append("across")), second, bridge=True)
    on_host = host.enqueue([across], lambda: seen.append("host"), bridge=True)
    assert not on_host.wait() and free.wait()
    assert seen == ["free"] and [t.skipped for t in (second, across, on_host)] == [True, True, True]
    assert run.drain() == [trouble] and other.drain() == host.drain() == []


def test_what_cannot_be_taken_back_waits_for_what_it_follows(engines: list[CudaEngine]):
    seen: list[str] = []

    def careful() -> None:
        within = submission()
        assert within is not None
        within.admit()
        seen.append("done")

    run = begun(engines[0])
    good = enqueued(run, checked(lambda: seen.append("looked")))
    assert enqueued(run, careful, good).wait() and seen == ["looked", "done"]
    bad = enqueued(run, checked(raising(IndexError("9"))))
    assert not enqueued(run, careful, bad).wait() and seen == ["looked", "done"]
    assert [str(f) for f in run.drain()] == ["9"]


def test_an_interrupt_of_a_check_leaves_it_for_the_drain(engines: list[CudaEngine]):
    left: list[Any] = [KeyboardInterrupt, IndexError]
    run = begun(engines[0])

    def check() -> None:
        raise left.pop(0)

    token = enqueued(run, checked(check))
    with pytest.raises(KeyboardInterrupt):
        token.wait()
    assert not token.is_settled
    assert [type(f) for f in run.drain()] == [IndexError]


def test_many_threads_wait_for_tokens_that_follow_each_other(engines: list[CudaEngine]):
    looked: list[int] = []
    runs = [begun(e) for e in engines]
    tokens: list[StreamToken] = []
    for k in range(200):
        after = tokens[-1:]
        tokens.append(
            enqueued(runs[k % 2], checked(lambda k=k: looked.append(k)), *after, bridge=True)  # type: ignore[misc]
        )
    found: list[bool] = []
    threads = [threading.Thread(target=lambda t=t: found.append(t.wait())) for t in tokens[::-7]]  # type: ignore[misc]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS)
    assert found == [True] * len(threads)
    assert [r.drain() for r in runs] == [[], []] and sorted(looked) == list(range(200)) and len(looked) == 200
