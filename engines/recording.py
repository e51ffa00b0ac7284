"""What is recorded while a profile is on: events of engines and of the runtime in, each recorder that is on keeps them.

Nobody measures anything unless ``recorders`` has one. While it has, calls of jitted functions go the long way, in every
thread (``switches.paused``): the native way knows nothing of profiles.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal

from tenferro.engines.events import is_worker
from tenferro.tracer import switches
from tenferro.tracer.forking import Renewed, in_child
from tenferro.tracer.lines import SourceLine, user_line
from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.engines.engine import Engine, Executable, RunResult
    from tenferro.lowering.donation import Donation


@dataclass(frozen=True, slots=True)
class Event:
    """What one thread did from ``start`` to ``end``, in nanoseconds of the system's monotonic clock.

    thread: its number in the system. program: the name of the jitted function, or of the eager operation."""

    start: int
    end: int
    thread: int
    program: str

    @property
    def ms(self) -> float:
        """How long it took."""
        return (self.end - self.start) / 1e6


@dataclass(frozen=True, slots=True)
class Run(Event):
    """A program, or its part on one engine, run once. ``line``: where it was called. ``read``, ``written``: bytes of
    its inputs and outputs. ``is_whole``: its engine records nothing inside of it."""

    engine: str
    line: SourceLine | None
    read: int
    written: int
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Launch(Event):
    """A kernel run once. ``region``: the name of the region, of the op for a matrix product. ``part``: which launch of
    the region it is, ``entry`` the kernel's entry. ``lines`` of the user's code that it computes. ``read``,
    ``written``: bytes of memory, as the arrays' layouts tell. ``threads``: on how many it might run."""

    engine: str
    region: str
    entry: str
    part: int
    lines: tuple[SourceLine, ...]
    read: int
    written: int
    threads: int

    @property
    def gb_per_second(self) -> float:
        """Bytes read and written, by the time."""
        return (self.read + self.written) / max(self.end - self.start, 1)

    @property
    def bandwidth(self) -> float:
        """That as a share of what a copy on all cores reaches, which is measured when this is first asked for. More
        than 1 where the data came from a cache."""
        return of_copy(self.gb_per_second)


def of_copy(gb_per_second: float) -> float:
    """A rate as a share of this machine's memory bandwidth."""
    from tenferro.engines.cpu.bandwidth import copy_rate

    return gb_per_second * 1e9 / copy_rate()


@dataclass(frozen=True, slots=True)
class Seam(Event):
    """A call of NumPy, of an extension family or of a collective between kernels. ``read``, ``written``: bytes of its
    operands and results."""

    engine: str
    name: str
    line: SourceLine | None
    read: int
    written: int


@dataclass(frozen=True, slots=True)
class Trace(Event):
    """A function's Python code run on symbols: why, and the operations that came of it."""

    reason: str
    line: SourceLine | None
    operations: int


@dataclass(frozen=True, slots=True)
class Prepare(Event):
    """Passes, placement and fusion of a traced program."""

    operations: int


Source = Literal["compiled", "disk cache", "same text"]
"""Where machine code came from: the compiler, a file, a kernel of the process with equal text."""


@dataclass(frozen=True, slots=True)
class Compile(Event):
    """A kernel's machine code made ready, its text and the functions that it calls included. ``level``: LLVM's code
    generation level; −1 for another compiler."""

    kernel: str
    level: int
    source: Source


@dataclass(frozen=True, slots=True)
class Transfer(Event):
    """An array brought from one engine's memory to another's. ``source`` is ``host`` for an array of NumPy's."""

    source: str
    destination: str
    bytes: int
    reason: str
    line: SourceLine | None


@dataclass(frozen=True, slots=True)
class MemorySample:
    """Bytes in live large buffers (128 kB and more) of tenferro's pool at a time of the monotonic clock."""

    time: int
    live: int


if hasattr(time, "clock_gettime_ns"):

    def now() -> int:
        """Nanoseconds of the clock that native code reads too."""
        return time.clock_gettime_ns(time.CLOCK_MONOTONIC)

else:
    now = time.monotonic_ns


class Recorder:
    """Keeps what is recorded between ``begin`` and ``end``, which may follow each other several times. Thread-safe."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.samples: list[MemorySample] = []
        self.threads: dict[int, str] = {}
        self.spans: list[tuple[int, int]] = []
        self.began: int | None = None
        self._owner = 0

    def begin(self) -> None:
        """Record from now on what begins from now on, in every thread."""
        self._owner = threading.get_ident()
        switches.pause()
        self.began = now()
        with _held.lock:
            recorders.append(self)
        sample()

    def end(self) -> None:
        """Record no more; what runs now is left out. Does nothing where it is off, as in a forked child."""
        if self.began is None:
            return
        sample()
        with _held.lock:
            recorders.remove(self)
        self._close()
        switches.resume()

    def _close(self) -> None:
        began, self.began = self.began, None
        if began is not None:
            self.spans.append((began, now()))

    def after_fork(self) -> None:
        """The child is another process: it records nothing of what the parent asked for."""
        self._close()
        if self._owner == threading.get_ident():  # the pauses of other threads have ended with them
            switches.resume()

    def take(self, event: Event) -> None:
        """An event of the calling thread."""
        if self.began is None or event.start < self.began:
            return
        if event.thread not in self.threads:
            self.threads[event.thread] = threading.current_thread().name
        self.events.append(event)

    def take_sample(self, found: MemorySample) -> None:
        """What the pool held."""
        if self.began is not None:
            self.samples.append(found)


_held = Renewed()
recorders: list[Recorder] = []
"""Those that are on."""
gauges: list[Callable[[], int]] = []
"""What tells the bytes in live buffers; empty until there is a pool."""


def emit(event: Event) -> None:
    """Give an event of the calling thread to every recorder."""
    for recorder in tuple(recorders):
        recorder.take(event)


def sample(found: MemorySample | None = None) -> None:
    """Give a sample of the pool to every recorder: of now, if none is given."""
    if found is None:
        if not gauges:
            return
        found = MemorySample(now(), sum(gauge() for gauge in gauges))
    for recorder in tuple(recorders):
        recorder.take_sample(found)


def thread() -> int:
    """The calling thread's number in the system."""
    return threading.get_native_id()


class _Here(threading.local):
    program = ""


_here = _Here()


def running(otherwise: str = "") -> str:
    """The name of the program that the calling thread runs: of the whole, where a part runs on one of its engines."""
    return _here.program or otherwise


def inherited(work: Callable[[], None]) -> Callable[[], None]:
    """``work``, for another thread, as a part of the program that the calling thread runs."""
    program = _here.program

    def run() -> None:
        _here.program = program
        work()

    return run


def callers_line() -> SourceLine | None:
    """Where the user's code stands; None on a thread that serves an engine."""
    return None if is_worker() else user_line()


def nbytes(values: Iterable[Any]) -> int:
    """Bytes of the arrays among the values."""
    return sum(getattr(x, "nbytes", 0) for x in values)


# -- hooks: each is called whether or not there is a recorder ----------------------------------------------------------


def recorded_run(
    unit: Executable, engine: Engine, program: str, inputs: Any, donation: Donation | None = None
) -> RunResult:
    """``unit.run(inputs)`` as an event. A device is waited for, before and after: the time is that of the work, and not
    of its submission."""

    def alone() -> RunResult:
        return unit.run(inputs) if donation is None else unit.run_donated(inputs, donation)

    if engine.is_host:
        return recorded_call(alone, engine.id, program, inputs, not unit.records_launches)

    def run() -> RunResult:
        result = alone()
        engine.synchronize()
        return result

    engine.synchronize()
    return recorded_call(run, engine.id, program, inputs, not unit.records_launches)


def recorded_call(
    run: Callable[[], RunResult], engine: str, program: str, inputs: Iterable[Any], is_whole: bool = False
) -> RunResult:
    """``run()`` as an event, also where it fails."""
    line = callers_line()
    before, _here.program = _here.program, program
    start, written = now(), 0
    try:
        result = run()
        written = nbytes(result.outputs)
        return result
    finally:
        _here.program = before
        emit(Run(start, now(), thread(), program, engine, line, nbytes(inputs), written, is_whole))


def traced(start: int, program: str, reason: str, line: SourceLine | None, operations: int) -> None:
    """A function has been traced since ``start``."""
    if recorders:
        emit(Trace(start, now(), thread(), program, reason, line, operations))


def prepared(start: int, program: str, operations: int) -> None:
    """A program has been prepared since ``start``."""
    if recorders:
        emit(Prepare(start, now(), thread(), program, operations))


def called(
    start: int,
    program: str,
    engine: str,
    name: str,
    line: SourceLine | None,
    operands: Iterable[Any],
    results: Iterable[Any],
) -> None:
    """An operation has been called at a seam since ``start``."""
    if recorders:
        read, written = nbytes(operands), nbytes(results)
        emit(Seam(start, now(), thread(), running(program), engine, name, line or callers_line(), read, written))


def compiled(start: int, program: str, kernel: str, level: int, source: Source) -> None:
    """A kernel has been made ready since ``start``."""
    if recorders:
        emit(Compile(start, now(), thread(), running(program), kernel, level, source))


def transferred(
    start: int, program: str, source: str, destination: str, size: int, reason: str, line: SourceLine | None
) -> None:
    """An array has come from one engine to another since ``start``."""
    if recorders:
        emit(Transfer(start, now(), thread(), program, source, destination, size, reason, line))


def received(engine: Engine, value: Any, source: str, reason: str, copy: bool = False) -> Any:
    """``engine.receive(value)``, of a copy if asked for; an event where it crosses."""
    if not recorders or (engine.is_host and source == "host"):
        return engine.receive(value.copy() if copy else value)
    start = now()
    arrived = engine.receive(value.copy() if copy else value)
    if not engine.is_host:
        engine.synchronize()
    transferred(start, "", source, engine.id, value.nbytes, reason, callers_line())
    return arrived


def fetched(engine: Engine, value: Any, reason: str) -> Any:
    """``engine.fetch(value)``, an event."""
    if not recorders:
        return engine.fetch(value)
    engine.synchronize()
    start = now()
    found = engine.fetch(value)
    transferred(start, "", engine.id, "host", value.nbytes, reason, callers_line())
    return found


@in_child
def _after_fork() -> None:
    for recorder in recorders:
        recorder.after_fork()
    recorders.clear()
