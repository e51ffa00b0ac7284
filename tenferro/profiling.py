"""``with tn.profile() as p:``: what runs inside, in any thread, is timed; ``print(p)`` says where the time went.

The engines record (``tenferro.engines.recording``); this is what users hold. Not ``tenferro/profile.py``: a module of
that name would take the place of the function ``tn.profile`` once it is loaded.
"""

from __future__ import annotations

import json
import os
from dataclasses import field
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from tenferro.engines.recording import (
    Compile as Compile,
    Event as Event,
    Launch as Launch,
    MemorySample as MemorySample,
    Prepare as Prepare,
    Recorder,
    Run as Run,
    Seam as Seam,
    Trace as Trace,
    Transfer as Transfer,
    now,
)
from tenferro.profile_drawing import html_of, memory, timeline
from tenferro.profile_rows import Row as Row, heading, rows, tables, text_of
from tenferro.profile_trace import trace
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.records import dataclass

E = TypeVar("E", bound=Event)


@dataclass(repr=False, eq=False)
class Profile:
    """What ran in its scope: print it, or read ``events`` and ``table()``. Made by ``tn.profile()``.

    It may be entered again after its end, and adds to what it has; while it is on that is a RuntimeError. Profiles may
    be nested: each records what runs in its own scope. A process forked inside a scope records nothing of it."""

    _recorder: Recorder = field(default_factory=Recorder)

    def __enter__(self) -> Profile:
        if self._recorder.began is not None:
            raise RuntimeError(f"profile: it is on already; another tn.profile() is needed{at(user_line())}")
        self._recorder.begin()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._recorder.end()

    # -- what was recorded -------------------------------------------------------------------------------------------

    @property
    def events(self) -> tuple[Event, ...]:
        """Everything, in the order in which it began; what holds other events comes before them."""
        return tuple(sorted(self._recorder.events, key=lambda e: (e.start, -e.end)))

    def _of(self, kind: type[E]) -> tuple[E, ...]:
        return tuple(e for e in self.events if isinstance(e, kind))

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Kernels of the CPU engines."""
        return self._of(Launch)

    @property
    def seams(self) -> tuple[Seam, ...]:
        """Calls of NumPy, of extension families and of collectives between kernels."""
        return self._of(Seam)

    @property
    def runs(self) -> tuple[Run, ...]:
        """Programs; those of several engines as a whole, and each part on its engine."""
        return self._of(Run)

    @property
    def traces(self) -> tuple[Trace, ...]:
        """Traces of functions."""
        return self._of(Trace)

    @property
    def preparations(self) -> tuple[Prepare, ...]:
        """Passes and fusion of programs; equal ones share one."""
        return self._of(Prepare)

    @property
    def compiles(self) -> tuple[Compile, ...]:
        """Machine code made, or found in the disk cache."""
        return self._of(Compile)

    @property
    def transfers(self) -> tuple[Transfer, ...]:
        """Arrays that went from one engine to another."""
        return self._of(Transfer)

    @property
    def memory(self) -> tuple[MemorySample, ...]:
        """Bytes in live large arrays of the CPU engines, when kernels and seams began, and at the ends of the scope."""
        return tuple(sorted(self._recorder.samples, key=lambda s: s.time))

    @property
    def threads(self) -> dict[int, str]:
        """The system's numbers of the threads that did something, and their names."""
        return dict(self._recorder.threads)

    @property
    def ms(self) -> float:
        """How long the scope took, so far if it is on; of several scopes all together."""
        return sum(end - start for start, end in self._spans()) / 1e6

    def _spans(self) -> list[tuple[int, int]]:
        began = self._recorder.began
        return [*self._recorder.spans, *([] if began is None else [(began, now())])]

    # -- what is made of it ------------------------------------------------------------------------------------------

    def table(self) -> tuple[Row, ...]:
        """A row for each region, seam, and program on an engine that is not looked into; of each the dearest first."""
        return rows(self.events, self.ms)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a JSON file that chrome://tracing and ui.perfetto.dev show."""
        start = self._ends()[0]
        made = trace(self.events, self.memory, self.threads, start, os.getpid())
        Path(path).write_text(json.dumps(made), encoding="utf-8")

    def _ends(self) -> tuple[int, int]:
        spans = self._spans()
        return (spans[0][0], spans[-1][1]) if spans else (0, 0)

    def __str__(self) -> str:
        events, ms = self.events, self.ms
        return "\n\n".join([heading(events, ms, len(self.threads)), *map(text_of, tables(events, ms))])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        events, ms, ends = self.events, self.ms, self._ends()
        pictures = [timeline(events, self.threads, *ends), memory(self.memory, *ends)] if events else []
        return html_of(heading(events, ms, len(self.threads)), tables(events, ms), pictures)


def profile() -> Profile:
    """``with tn.profile() as p:`` records what jitted functions and operations on ``tn.Array`` do inside, in every
    thread of the process: each kernel's time, bytes and lines, calls between kernels, traces, compiles, transfers.

    ``print(p)`` is a summary by region; ``p.events`` is everything, ``p.table()`` the summary as data, ``p.save(path)``
    a file for chrome://tracing; notebooks show a timeline. Inside the scope calls go through Python, which costs some
    tens of microseconds each; outside nothing is measured."""
    return Profile()
