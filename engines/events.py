"""Event domains: launches go in with what they wait for, tokens come out.

An engine is one domain. A *driver* begins a *run* of its domain for each execution; ``enqueue`` gives a token that is
done when the launch is. Launches of one domain happen in the order in which they were enqueued. ``drain`` waits for all
of them, so that no array is let go while a launch may still use it.
"""

from __future__ import annotations

import os
import queue
import threading
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from typing import Literal

from tenferro.engines.errors import EventError
from tenferro.tracer.forking import Renewed

Launch = Callable[[], None]
State = Literal["pending", "retired", "failed"]


class Gate:
    """Closed until it is opened, once. A lock in C: an interrupt of a wait leaves nothing behind, where one inside
    ``threading.Event``, which is Python code around a condition, can leave its lock taken or given back twice."""

    __slots__ = ("_closed", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._closed = threading.Lock()
        self._closed.acquire()

    def open(self) -> None:
        """Let everybody through, now and later. An interrupt behind the first opening may lead to a second."""
        if not self.is_open:
            self.is_open = True
            self._closed.release()

    def wait(self) -> None:
        """Return once it is open. Any number of threads may wait."""
        # An interrupt comes before the lock is taken, or inside the block, whose end gives it back.
        with self._closed:
            pass


class Token:
    """One launch's end. ``wait`` may be called by any thread, any number of times."""

    __slots__ = ("_done", "failure", "origin", "skipped")

    def __init__(self, origin: str) -> None:
        self.origin = origin
        self.failure: BaseException | None = None
        self.skipped = False  # a launch that never happened, since something it waits for failed
        self._done = Gate()

    def finish(self, failure: BaseException | None = None, skipped: bool = False) -> None:
        """The launch has ended. Called once."""
        self.failure, self.skipped = failure, skipped
        self._done.open()

    def wait(self) -> bool:
        """Wait for the end; whether the launch succeeded."""
        self._done.wait()
        return self.failure is None and not self.skipped

    def forget(self) -> None:
        """Let go of the failure: its traceback has frames that hold this token, and arrays."""
        if self.failure is not None:
            self.failure, self.skipped = None, True


class DomainRun(ABC):
    """The launches of one execution in one domain. It ends once: retired or failed."""

    def __init__(self, domain: str) -> None:
        self.domain = domain
        self.state: State = "pending"
        self._tokens: list[Token] = []

    def enqueue(self, dependencies: Sequence[Token], launch: Launch, bridge: bool = False) -> Token:
        """Have ``launch`` happen once all dependencies have succeeded; if one fails it never does.

        A dependency of another domain is admitted for a ``bridge`` (a transfer or a collective) only. Raises EventError
        otherwise, and for a run that has ended."""
        if self.state != "pending":
            raise EventError(f"enqueue: the run of {self.domain} is {self.state}; a pending one is needed")
        foreign = [t.origin for t in dependencies if t.origin != self.domain]
        if foreign and not bridge:
            raise EventError(f"enqueue: a dependency of {foreign[0]} in a run of {self.domain}; only transfers bridge")
        token = self._token()
        self._tokens.append(token)
        try:
            self._submit(tuple(dependencies), launch, token)
        except BaseException:
            token.finish(skipped=True)  # nobody else will, and ``drain`` waits for it
            raise
        return token

    def _token(self) -> Token:
        """A fresh one of this domain."""
        return Token(self.domain)

    @abstractmethod
    def _submit(self, dependencies: tuple[Token, ...], launch: Launch, token: Token) -> None:
        """Arrange for ``carry_out(dependencies, launch, token)``, after what was submitted before."""

    def drain(self) -> list[BaseException]:
        """Wait for every launch; the failures in order of submission. A drained run has ended."""
        failures = []
        for token in self._tokens:
            token.wait()
            if token.failure is not None:
                failures.append(token.failure)
        self.state = "failed" if failures else "retired"
        return failures


def carry_out(dependencies: Sequence[Token], launch: Launch, token: Token) -> None:
    """Wait, launch, and finish the token whatever happens, an interrupt of the waiting included."""
    try:
        if not all(d.wait() for d in dependencies):
            token.finish(skipped=True)
            return
        launch()
    except BaseException as failure:  # reported by ``drain``, with the primary error
        token.finish(failure)
        return
    token.finish()


class Driver(ABC):
    """How an engine's launches happen."""

    @abstractmethod
    def begin_run(self, domain: str) -> DomainRun:
        """A fresh run."""


class _ImmediateRun(DomainRun):
    def _submit(self, dependencies: tuple[Token, ...], launch: Launch, token: Token) -> None:
        carry_out(dependencies, launch, token)


class ImmediateDriver(Driver):
    """Launches happen on the calling thread, before ``enqueue`` returns."""

    def begin_run(self, domain: str) -> DomainRun:
        return _ImmediateRun(domain)


class Work:
    """A worker's queue. The thread holds this and not the driver, so that a forgotten driver ends its thread."""

    def __init__(self) -> None:
        self.jobs: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self.pid = os.getpid()

    def loop(self) -> None:
        _here.is_worker = True
        while (job := self.jobs.get()) is not None:
            job()
            del job  # arrays of a finished launch must not live until the next one


class WorkerRun(DomainRun):
    """Launches are carried out by a worker, one after the other. ``driver`` is held: its end is that of the worker."""

    def __init__(self, domain: str, work: Work, driver: WorkerDriver) -> None:
        super().__init__(domain)
        self._work = work
        self._driver = driver

    def _submit(self, dependencies: tuple[Token, ...], launch: Launch, token: Token) -> None:
        self._work.jobs.put(partial(self._carry_out, dependencies, launch, token))

    def _carry_out(self, dependencies: tuple[Token, ...], launch: Launch, token: Token) -> None:
        """What the worker does; it never raises."""
        carry_out(dependencies, launch, token)


class _Here(threading.local):
    is_worker = False


_here = _Here()


def is_worker() -> bool:
    """Whether the calling thread is an engine's own."""
    return _here.is_worker


class WorkerDriver(Driver):
    """Launches happen on a thread of the engine's own, which starts at the first run and ends with the driver.

    A run that begins inside a launch (an executor that calls a jitted function) stays on that launch's thread: waiting
    there for other workers, which may be waiting for this launch, would never end."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._held = Renewed()
        self._work: Work | None = None

    def begin_run(self, domain: str) -> DomainRun:
        if _here.is_worker:
            return _ImmediateRun(domain)
        with self._held.lock:
            if self._work is None or self._work.pid != os.getpid():  # a forked child has no such thread
                work = self._work = Work()
                threading.Thread(target=work.loop, name=self._name, daemon=True).start()
                weakref.finalize(self, work.jobs.put, None)
            return self._run(domain, self._work)

    def _run(self, domain: str, work: Work) -> DomainRun:
        return WorkerRun(domain, work, self)


def combined(failures: Sequence[BaseException]) -> BaseException:
    """The first failure, with the others as notes."""
    primary, *others = failures
    for other in others:
        if other is not primary:
            primary.add_note(f"suppressed: {type(other).__name__}: {other}")
    return primary
