"""A profile in the trace event format that chrome://tracing and Perfetto read: events in, a dict for JSON out."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tenferro.engines.recording import Compile, Event, Launch, MemorySample, Prepare, Run, Seam, Trace, Transfer
from tenferro.profile_rows import where
from tenferro.tracer.lines import SourceLine

_BASE = frozenset(f.name for f in dataclasses.fields(Event))


def label(event: Event) -> str:
    """What it is, in a few words."""
    match event:
        case Launch(program=program, region=region):
            return f"{program} {region}"
        case Seam(name=name):
            return name
        case Run(program=program, engine=engine):
            return f"{program} on {engine}"
        case Trace(program=program):
            return f"trace {program}"
        case Prepare(program=program):
            return f"prepare {program}"
        case Compile(program=program, kernel=kernel):
            return f"compile {program} {kernel}".replace("  ", " ")
        case Transfer(source=source, destination=destination):
            return f"{source} → {destination}"
    return event.program


def details(event: Event) -> dict[str, Any]:
    """All else that is known of it, as JSON takes it."""
    found: dict[str, Any] = {"program": event.program} if event.program else {}
    for field in dataclasses.fields(event):
        value = getattr(event, field.name)
        if field.name in _BASE or value is None:
            continue
        if isinstance(value, SourceLine):
            value = str(value)
        elif isinstance(value, tuple):
            value = where(value)
        found[field.name] = value
    if isinstance(event, Launch | Seam) and event.ms:
        found["GB/s"] = round((event.read + event.written) / event.ms / 1e6, 2)
    return found


def trace(
    events: Sequence[Event], samples: Sequence[MemorySample], threads: Mapping[int, str], start: int, pid: int
) -> dict[str, Any]:
    """Complete events (``X``) by thread, the pool's live bytes as a counter (``C``), names of threads (``M``).

    Times are microseconds since ``start``."""

    def made(ph: str, name: str, at: int, tid: int, args: Mapping[str, Any], **more: Any) -> dict[str, Any]:
        return {"name": name, "ph": ph, "ts": (at - start) / 1e3, "pid": pid, "tid": tid, "args": args, **more}

    main = min(threads, default=pid)
    found = [made("M", "process_name", start, main, {"name": "tenferro"})]
    found += [made("M", "thread_name", start, tid, {"name": name}) for tid, name in threads.items()]
    for e in events:
        kind, took = type(e).__name__.lower(), (e.end - e.start) / 1e3
        found.append(made("X", label(e), e.start, e.thread, details(e), dur=took, cat=kind))
    found += [made("C", "live memory", s.time, main, {"bytes": s.live}) for s in samples]
    return {"traceEvents": found, "displayTimeUnit": "ms"}
