"""Functions of compiled kernels, and kernels compiled side by side: sources of code in, their libraries ready."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol

from tenferro.engines import recording
from tenferro.engines.cpu.toolchain import Library
from tenferro.tracer.records import dataclass

PATIENCE_SECONDS = 60.0
"""How long a thread waits for something to compile: it ends though an interrupt left it without a word."""


class CodeSource(Protocol):
    """What is compiled once for each code generation level that is asked for. Hashable."""

    def prepare(self, level: int) -> object:
        """Do what ``library`` does in Python: write the text."""

    def library(self, level: int) -> Library:
        """Compiled now, if it is not yet."""

    def ready(self) -> Sequence[Library]:
        """Those that are compiled."""

    def is_ready(self, level: int) -> bool:
        """Whether ``library`` has nothing to do."""

    @property
    def size(self) -> int:
        """Of its text, roughly."""


@dataclass(frozen=True, slots=True)
class FunctionOf:
    """A function of a source, by its name: its address at a level is what a call returns."""

    source: CodeSource
    name: str

    def __call__(self, level: int) -> int:
        return self.source.library(level).address(self.name)


def compile_all(wanted: Iterable[tuple[CodeSource, int]], threads: int) -> None:
    """Compile the sources that are not ready at their levels, on up to so many threads. What fails is left to whoever
    asks for it, and fails there. The largest comes first. The caller writes all texts before it compiles any: Python's
    lock goes to another thread only every 5 ms, and each step of a compilation asks for it."""
    missing = [(source, level) for source, level in dict.fromkeys(wanted) if not source.is_ready(level)]
    missing.sort(key=lambda x: -x[0].size)
    if len(missing) > 1 and threads > 1:
        together([(partial(s.prepare, level), partial(s.library, level)) for s, level in missing], threads)


def together(works: Sequence[tuple[Callable[[], object], Callable[[], object]]], threads: int) -> None:
    """Do all of the works, in this order, on up to so many threads; the caller's is one, and does the first part of
    each, after which any thread may do the second. Exceptions end a part only; an interrupt of the caller leaves out
    those that are not begun."""
    left: deque[Callable[[], object]] = deque()
    arrived = threading.Semaphore(0)  # a unit for each work, then one for each thread

    def run() -> None:
        while arrived.acquire(timeout=PATIENCE_SECONDS):
            try:
                work = left.popleft()
            except IndexError:
                return
            with suppress(Exception):
                work()

    helpers: list[threading.Thread] = []
    count = min(threads, len(works)) - 1
    try:
        with suppress(RuntimeError):  # the system grants no more threads
            for _ in range(count):
                helper = threading.Thread(target=recording.inherited(run), name="tenferro-compiler", daemon=True)
                helpers.append(helper)
                helper.start()
        for first, second in works:
            with suppress(Exception):
                first()
            left.append(second)
            arrived.release()
        arrived.release(count + 1)
        run()
    finally:
        left.clear()
        arrived.release(count + 1)  # for those that an interrupt left waiting
        for helper in helpers:
            if helper.ident is not None:
                helper.join()
