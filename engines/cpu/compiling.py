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


class CodeSource(Protocol):
    """What is compiled once for each code generation level that is asked for. Hashable."""

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
    asks for it, and fails there. The smallest comes first, then the largest: the texts are written one after the other,
    and a thread that has written its own compiles while the longest is written."""
    missing = [(source, level) for source, level in dict.fromkeys(wanted) if not source.is_ready(level)]
    missing.sort(key=lambda x: -x[0].size)
    if len(missing) > 1 and threads > 1:
        missing.insert(0, missing.pop())
        together([partial(source.library, level) for source, level in missing], threads)


def together(works: Sequence[Callable[[], object]], threads: int) -> None:
    """Do all of the works, in this order, on up to so many threads; the caller's is one. Exceptions end a work only;
    an interrupt of the caller leaves out those that are not begun."""
    left = deque(works)

    def run() -> None:
        while left:
            try:
                work = left.popleft()
            except IndexError:  # another thread was faster
                return
            with suppress(Exception):
                work()

    helpers = []
    for _ in range(min(threads, len(works)) - 1):
        helper = threading.Thread(target=recording.inherited(run), name="tenferro-compiler")
        try:
            helper.start()
        except RuntimeError:  # the system grants no more threads
            break
        helpers.append(helper)
    try:
        run()
    finally:
        left.clear()
        for helper in helpers:
            helper.join()
