"""Event domains of GPUs: a launch puts work into the engine's stream, and its token is an event of that stream.

A thread of the domain's own submits, in order, without waiting for the device. How a launch comes after what it depends
on goes by whose that is: the engine's own work comes before it in the stream; for another GPU's event the stream waits;
for an engine of the host the thread waits. What the kernels of a launch have found to report is looked at when its
token is waited for, or when the run is drained.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import field
from typing import Any

from tenferro.engines.cuda.device import DeviceError, Event, Stream
from tenferro.engines.errors import EngineFailure
from tenferro.engines.events import DomainRun, Launch, Token, Work, WorkerDriver, WorkerRun
from tenferro.tracer.records import dataclass

Check = Callable[[], None]
"""Looks at what kernels have found, when they are done; raises or warns. It may be called again after an interrupt."""


class NotNeededError(Exception):
    """Raised by a launch that will not happen, since something it follows has failed."""


@contextmanager
def device_failures(what: str, engine: str) -> Iterator[None]:
    """A device's errors as the runtime knows them."""
    try:
        yield
    except DeviceError as error:
        raise EngineFailure(f"{what}: {error}", engine) from error


class StreamToken(Token):
    """A launch's end: its event has come, and what its kernels have found is known.

    ``followed``: tokens whose work comes before it by the order of streams, so that nobody has waited for them."""

    __slots__ = ("_run", "checks", "event", "followed", "is_settled")

    def __init__(self, origin: str, run: StreamRun) -> None:
        super().__init__(origin)
        self._run = run
        self.event: Event | None = None
        self.checks: list[Check] = []
        self.followed: list[StreamToken] = []
        self.is_settled = False

    def submitted(self) -> bool:
        """Wait until its work is in the stream; whether it is there."""
        self._done.wait()
        return self.failure is None and not self.skipped

    def wait(self) -> bool:
        self._done.wait()
        self._run.settle(self)
        return self.failure is None and not self.skipped

    def settle(self, is_skipped: bool = False, failure: BaseException | None = None) -> None:
        """All about it is known. What is of no use any more is let go."""
        if self.failure is None:
            self.failure, self.skipped = failure, self.skipped or is_skipped
        self.checks, self.followed, self.event = [], [], None
        self.is_settled = True


_settling = threading.RLock()
"""Held while checks are looked at. Tokens of several runs may follow each other: one lock for all. The events that are
asked under it have come, so that nobody waits for a device here."""


@dataclass
class Submission:
    """A launch that is being submitted: what it follows, and the checks that it leaves."""

    followed: list[StreamToken]
    checks: list[Check] = field(default_factory=list)

    def admit(self) -> None:
        """Wait for all that the launch follows. NotNeededError where some of it failed."""
        if not all(t.wait() for t in self.followed):
            raise NotNeededError


class _Here(threading.local):
    submission: Submission | None = None


_here = _Here()


def submission() -> Submission | None:
    """That of the launch on this thread, for the first who asks: what is called inside it looks at its checks itself.
    None outside of launches."""
    found, _here.submission = _here.submission, None
    return found


class StreamRun(WorkerRun):
    """``submitting`` is held while something is put into the stream."""

    def __init__(
        self, domain: str, work: Work, driver: WorkerDriver, stream: Stream, submitting: AbstractContextManager[Any]
    ) -> None:
        super().__init__(domain, work, driver)
        self._stream = stream
        self._submitting = submitting
        self._settled = 0  # tokens about which all is known, from the first one on
        self._lost = False  # the device has failed in this run

    def _token(self) -> Token:
        return StreamToken(self.domain, self)

    # On the domain's thread.

    def _carry_out(self, dependencies: tuple[Token, ...], launch: Launch, token: Token) -> None:
        assert isinstance(token, StreamToken)
        try:
            if self._lost or not all(self._follows(token, d) for d in dependencies):
                token.finish(skipped=True)
                return
        except BaseException as error:
            token.finish(self._noted(error))
            return
        failure: BaseException | None = None
        skipped = False
        found = _here.submission = Submission(token.followed)
        try:
            launch()
        except NotNeededError:
            skipped = True
        except BaseException as error:  # reported by ``drain``, with the primary error
            failure = self._noted(error)
        _here.submission = None
        try:
            # A launch that failed may have submitted some of its work.
            with self._submitting, device_failures("record", self.domain):
                token.event = self._stream.record()
        except BaseException as error:
            failure = failure or self._noted(error)
        token.checks = found.checks
        token.finish(failure, skipped)

    def _follows(self, token: StreamToken, dependency: Token) -> bool:
        """Have what is submitted next come after a dependency; False where that has failed already."""
        if not isinstance(dependency, StreamToken):
            return dependency.wait()
        if not dependency.submitted():
            return False
        event = dependency.event
        if event is None:  # it is settled
            return dependency.wait()
        if dependency.origin != self.domain:
            with self._submitting, device_failures("wait", self.domain):
                self._stream.wait(event)
        token.followed.append(dependency)
        return True

    def _noted(self, failure: BaseException) -> BaseException:
        self._lost = self._lost or isinstance(failure, EngineFailure)
        return failure

    # On whose thread ever waits.

    def settle(self, token: StreamToken) -> None:
        """Wait for the device to come to the end of ``token``, and look at all checks up to there, in order."""
        for before in self._tokens[self._settled :]:
            if token.is_settled:  # others may settle it meanwhile, and what comes after it is not waited for
                break
            assert isinstance(before, StreamToken)
            if (event := before.event) is not None:
                with suppress(DeviceError):  # found again below
                    event.synchronize()
            if before is token:
                break
        with _settling:
            while not token.is_settled:
                earliest = self._tokens[self._settled]
                assert isinstance(earliest, StreamToken)
                self._settle(earliest)
                self._settled += 1

    def _settle(self, token: StreamToken) -> None:
        """One whose event has come. An interrupt leaves it as it was."""
        if token.failure is not None or token.skipped:
            token.settle()
            return
        if not all(t.wait() for t in token.followed) or self._lost:
            token.settle(is_skipped=True)
            return
        try:
            if token.event is not None:
                with device_failures("wait", self.domain):
                    token.event.synchronize()
            for check in token.checks:
                check()
        except Exception as failure:
            token.settle(failure=self._noted(failure))
            return
        token.settle()


class StreamDriver(WorkerDriver):
    """Of one engine and its stream. ``submitting`` is held while something is put into the stream."""

    def __init__(self, name: str, stream: Stream, submitting: AbstractContextManager[Any]) -> None:
        super().__init__(name)
        self._stream = stream
        self._submitting = submitting

    def _run(self, domain: str, work: Work) -> DomainRun:
        return StreamRun(domain, work, self, self._stream, self._submitting)


__all__ = ["Check", "NotNeededError", "StreamDriver", "StreamRun", "StreamToken", "Submission", "submission"]
