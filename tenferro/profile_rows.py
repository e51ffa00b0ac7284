"""What a profile has recorded, added up: events in, rows and tables of texts out."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeVar

from tenferro.engines.recording import Compile, Event, Launch, Prepare, Run, Seam, Trace, Transfer, of_copy
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.records import dataclass

MOST_ROWS = 40
"""Rows of a printed table; ``Profile.table`` gives all."""
E = TypeVar("E", bound=Event)


@dataclass(frozen=True, slots=True)
class Row:
    """All runs of one region, of one call at a seam, or of a program on an engine that is not looked into.

    calls: how often. ms: in all, without what other events inside of them took, as those of a loop's body; whole_ms:
    with it. share: that of ``ms`` in the profile's time; of a profile of several threads they may add up to more than
    1. read, written: bytes. lines: of the user's code."""

    kind: Literal["region", "seam", "run"]
    program: str
    name: str
    engine: str
    lines: tuple[SourceLine, ...]
    calls: int
    ms: float
    share: float
    read: int
    written: int
    whole_ms: float

    @property
    def gb_per_second(self) -> float:
        """Bytes read and written, by the whole time."""
        return (self.read + self.written) / self.whole_ms / 1e6 if self.whole_ms else 0.0

    @property
    def bandwidth(self) -> float:
        """That as a share of what a copy on all cores reaches, as of a ``Launch``."""
        return of_copy(self.gb_per_second)


@dataclass(frozen=True, slots=True)
class Table:
    """Texts. ``left``: columns that begin at the left."""

    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    left: frozenset[int]
    note: str = ""


def rows(events: Iterable[Event], total_ms: float) -> tuple[Row, ...]:
    """Regions, then seams, then other runs; of each the dearest first."""
    found: list[Row] = []
    own = own_times(events)
    for kind in ("region", "seam", "run"):
        groups = _grouped(events, _KEYS[kind])
        made = [_row(kind, group, own, total_ms) for group in groups]
        found += sorted(made, key=lambda r: -r.ms)
    return tuple(found)


def own_times(events: Iterable[Event]) -> dict[int, float]:
    """For each event, by its identity, its milliseconds without those of the events inside of it. Runs of programs
    whose engine is looked into are left out: they are made of the others."""
    found: dict[int, float] = {}
    around: list[Event] = []
    looked_at = [e for e in events if not (isinstance(e, Run) and not e.is_whole)]
    for event in sorted(looked_at, key=lambda e: (e.thread, e.start, -e.end)):
        found[id(event)] = event.ms
        while around and (around[-1].thread != event.thread or around[-1].end < event.end):
            around.pop()
        if around:
            found[id(around[-1])] -= event.ms
        around.append(event)
    return found


def _region_key(event: Event) -> Hashable:
    return (event.program, event.region, event.engine, event.lines) if isinstance(event, Launch) else None


def _seam_key(event: Event) -> Hashable:
    return (event.program, event.name, event.engine, event.line) if isinstance(event, Seam) else None


def _run_key(event: Event) -> Hashable:
    return (event.program, event.engine, event.line) if isinstance(event, Run) and event.is_whole else None


_KEYS: dict[str, Callable[[Event], Hashable]] = {"region": _region_key, "seam": _seam_key, "run": _run_key}


def _grouped(events: Iterable[E], key: Callable[[E], Hashable]) -> list[list[E]]:
    groups: dict[Hashable, list[E]] = {}
    for event in events:
        if (of := key(event)) is not None:
            groups.setdefault(of, []).append(event)
    return list(groups.values())


def _row(
    kind: Literal["region", "seam", "run"], group: Sequence[Any], own: Mapping[int, float], total_ms: float
) -> Row:
    first, ms = group[0], sum(own[id(e)] for e in group)
    calls = sum(e.part == 0 for e in group) if kind == "region" else len(group)
    name = {"region": "region", "seam": "name", "run": "program"}[kind]
    lines = first.lines if kind == "region" else () if first.line is None else (first.line,)
    read, written = sum(e.read for e in group), sum(e.written for e in group)
    share = ms / total_ms if total_ms else 0.0
    whole = sum(e.ms for e in group)
    return Row(kind, first.program, getattr(first, name), first.engine, lines, calls, ms, share, read, written, whole)


# -- texts -------------------------------------------------------------------------------------------------------------


def where(lines: Sequence[SourceLine]) -> str:
    """Files below the present folder by their short names, and the lines in each from the first to the last."""
    files: dict[str, list[int]] = {}
    for line in lines:
        files.setdefault(line.file, []).append(line.line)
    here = os.getcwd() + os.sep
    texts = []
    for file, numbers in files.items():
        first, last = min(numbers), max(numbers)
        texts.append(f"{file.removeprefix(here)}:{first}" + (f"-{last}" if last > first else ""))
    return ", ".join(texts)


def _one(line: SourceLine | None) -> str:
    return where(() if line is None else (line,))


def percent(share: float) -> str:
    return f"{100 * share:.0f} %"


def milliseconds(ms: float) -> str:
    return f"{ms:.3f} ms"


def heading(events: Sequence[Event], total_ms: float, threads: int) -> str:
    """What took how much of the time."""
    kinds = (
        ("kernels", Launch), ("seams", Seam), ("traces", Trace), ("preparation", Prepare), ("compiles", Compile),
        ("transfers", Transfer),
    )  # fmt: skip
    on = f" on {threads} threads" if threads > 1 else ""
    text = f"profile: {milliseconds(total_ms)}{on}"
    if not events:
        return f"{text}; nothing ran"
    own = own_times(events)
    parts = [(name, sum(own[id(e)] for e in events if isinstance(e, kind))) for name, kind in kinds]
    whole = sum(own[id(e)] for e in events if isinstance(e, Run) and e.is_whole)
    parts.insert(2, ("other engines", whole))
    return f"{text}: " + ", ".join(f"{name} {percent(ms / total_ms)}" for name, ms in parts if ms)


def tables(events: Sequence[Event], total_ms: float) -> list[Table]:
    """Those that have rows: regions, seams, runs of other engines, traces, compiles, transfers."""
    every = rows(events, total_ms)
    engines = {r.engine for r in every}
    found = [_of_rows(k, [r for r in every if r.kind == k], len(engines) > 1) for k in ("region", "seam", "run")]
    found += [_of_traces(events), _of_compiles(events), _of_transfers(events)]
    return [t for t in found if t.rows]


def _of_rows(kind: str, found: Sequence[Row], with_engine: bool) -> Table:
    made = []
    for r in found[:MOST_ROWS]:
        name = r.program if kind == "run" else f"{r.program} {r.name}"
        name += f" on {r.engine}" if with_engine or kind == "run" else ""
        rate, share = (f"{r.gb_per_second:.1f} GB/s", percent(r.bandwidth)) if r.read + r.written else ("", "")
        made.append((name, str(r.calls), milliseconds(r.ms), percent(r.share), rate, share, where(r.lines)))
    left = found[MOST_ROWS:]
    note = f"and {len(left)} more: {milliseconds(sum(r.ms for r in left))}" if left else ""
    head = (kind, "calls", "total", "time", "moved", "bandwidth", "line")
    return Table(head, tuple(made), frozenset((0, 6)), note)


def _of_traces(events: Iterable[Event]) -> Table:
    made = [
        (e.program, str(e.operations), milliseconds(e.ms), e.reason, _one(e.line))
        for e in events
        if isinstance(e, Trace)
    ]
    return _cut(("trace", "operations", "took", "reason", "line"), made, {0, 3, 4})


def _of_compiles(events: Iterable[Event]) -> Table:
    made = [
        (f"{e.program} {e.kernel}".strip(), str(e.level) if e.level >= 0 else "", milliseconds(e.ms), e.source)
        for e in events
        if isinstance(e, Compile)
    ]
    return _cut(("compile", "level", "took", "from"), made, {0, 3})


def _of_transfers(events: Iterable[Event]) -> Table:
    groups = _grouped(
        (e for e in events if isinstance(e, Transfer)), lambda e: (e.source, e.destination, e.reason, e.line)
    )
    made = []
    for group in groups:
        e, size, ms = group[0], sum(t.bytes for t in group), sum(t.ms for t in group)
        rate = f"{size / ms / 1e6:.1f} GB/s" if ms else ""
        name = f"{e.source} → {e.destination}"
        made.append((name, str(len(group)), f"{size:,} bytes", milliseconds(ms), rate, e.reason, _one(e.line)))
    return _cut(("transfer", "times", "size", "took", "moved", "reason", "line"), made, {0, 5, 6})


def _cut(head: tuple[str, ...], made: Sequence[tuple[str, ...]], left: set[int]) -> Table:
    more = len(made) - MOST_ROWS
    note = f"and {more} more" if more > 0 else ""
    return Table(head, tuple(made[:MOST_ROWS]), frozenset(left), note)


_LEAST = {"total": 12, "took": 12, "time": 5, "moved": 10}
"""Widths of columns of numbers: the same for all usual ones."""


def text_of(table: Table) -> str:
    """The table in columns."""
    lines = [table.head, *table.rows]
    widths = [max(_LEAST.get(name, 0), *(len(line[k]) for line in lines)) for k, name in enumerate(table.head)]
    signs = ["<" if k in table.left else ">" for k in range(len(widths))]
    formats = [f"{{:{sign}{width}}}" for sign, width in zip(signs, widths, strict=True)]
    texts = ["  ".join(f.format(cell) for f, cell in zip(formats, line, strict=True)).rstrip() for line in lines]
    return "\n".join([*texts, *([table.note] if table.note else [])])
