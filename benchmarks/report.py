"""In: results. Out: a table to read, JSON, and docs/benchmarks.md.

``ratio`` is the best correct peer's time over tenferro's; ``floor`` is tenferro's time over that of a copy that moves
the bytes which the case must move.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.case import Case, ProcessCase
from benchmarks.measure import FLOOR, Result

MINE = "tenferro"
EXPLANATION = """\
Medians of interleaved rounds: in each round every peer has its turn in one process, a call that wakes its threads and a
call that is timed; calls of microseconds are repeated. *ratio*: the best
correct peer's time over tenferro's. *copy*: a copy into mapped memory, on the same threads, that moves the bytes which
the case must read and write; *floor*: tenferro's time over it. *wrong*: no form of that peer comes near NumPy's result
in float64. —: no time; the reason stands below. complex_mul uses the complex dtype of each dtype."""


@dataclass(frozen=True)
class Report:
    """One run: where, with what, and what came out."""

    machine: Mapping[str, str]
    versions: Mapping[str, str]
    settings: Mapping[str, Any]
    results: Sequence[Result]


def machine(threads: int) -> dict[str, str]:
    """The processor, its vector sets, memory and system."""
    found = {
        "processor": platform.processor() or platform.machine(),
        "system": f"{platform.system()} {platform.machine()}",
    }
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        text = ""
    fields = dict(_pair(line) for line in text.split("\n\n")[0].splitlines() if ":" in line)
    found["processor"] = fields.get("model name", found["processor"])
    flags = set(fields.get("flags", "").split())
    found["vectors"] = ", ".join(f for f in ("avx2", "fma", "avx512f", "avx512_fp16") if f in flags) or "unknown"
    found["cores"] = f"{os.cpu_count()}, {threads} used"
    found["python"] = platform.python_version()
    return found


def gpu() -> dict[str, str]:
    """The GPU that ``cuda:0`` is."""
    from tenferro import cuda_engine

    device: Any = cuda_engine(0).device  # type: ignore[attr-defined]
    major, minor = device.capability
    return {"gpu": f"{device.name}, {device.processors} multiprocessors, compute capability {major}.{minor}"}


def _pair(line: str) -> tuple[str, str]:
    key, _, value = line.partition(":")
    return key.strip(), value.strip()


def groups(results: Iterable[Result]) -> dict[tuple[str, str], list[Result]]:
    found: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        found.setdefault((result.case, result.dtype), []).append(result)
    return found


def best_peer(results: Sequence[Result], case: Case | None) -> Result | None:
    """The fastest correct peer of those that the case is measured against."""
    against = case.against if isinstance(case, ProcessCase) else None
    rivals = [
        r
        for r in results
        if r.status == "ok"
        and r.seconds is not None
        and r.peer not in (MINE, FLOOR)
        and (against is None or r.peer in against)
    ]
    return min(rivals, key=lambda r: r.seconds or 0.0, default=None)


def of(results: Sequence[Result], peer: str) -> Result | None:
    return next((r for r in results if r.peer == peer), None)


def duration(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-9:.3g} ns"


def cell(result: Result | None) -> str:
    if result is None:
        return ""
    if result.status == "ok":
        return f"{result.extra / 2**20:.0f} MiB" if result.extra is not None else duration(result.seconds)
    return "wrong" if result.status == "wrong" else "—"


def ratio(results: Sequence[Result], case: Case | None) -> tuple[str, str]:
    mine, best = of(results, MINE), best_peer(results, case)
    if mine is None or mine.status != "ok" or not mine.seconds or best is None or best.seconds is None:
        return "", best.peer if best is not None else ""
    return f"{best.seconds / mine.seconds:.2f}", best.peer


def floor(results: Sequence[Result]) -> str:
    mine, copy = of(results, MINE), of(results, FLOOR)
    if mine is None or copy is None or not mine.seconds or not copy.seconds or mine.status != "ok":
        return ""
    return f"{mine.seconds / copy.seconds:.2f}"


def rows(report: Report, cases: Mapping[str, Case]) -> list[list[str]]:
    peers = [p for p in (MINE, *report.versions) if p in {r.peer for r in report.results}]
    peers = list(dict.fromkeys(peers))
    table = [["case", "dtype", *peers, FLOOR, "ratio", "best peer", "floor"]]
    for (name, dtype), results in groups(report.results).items():
        times = [cell(of(results, p)) for p in (*peers, FLOOR)]
        table.append([name, dtype, *times, *ratio(results, cases.get(name)), floor(results)])
    return table


def text_table(table: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[k]) for row in table) for k in range(len(table[0]))]
    return "\n".join("  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in table)


def markdown_table(table: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([lines[0], "|" + " --- |" * len(table[0]), *lines[1:]])


def notes(report: Report) -> list[str]:
    """One line for each result without a time, each wrong one, and each form that was chosen."""
    found = []
    for r in report.results:
        if r.status == "wrong":
            found.append(f"{r.case} {r.dtype}: {r.peer} ({r.form or 'its only form'}) is off by {r.error:.3g} epsilons")
        elif r.status != "ok":
            found.append(f"{r.case} {r.dtype}: {r.peer}: {r.status}")
    return found


def forms(report: Report) -> list[str]:
    chosen: dict[tuple[str, str], list[str]] = {}
    for r in report.results:
        if r.status == "ok" and r.form and r.peer in ("numba", "torch"):
            chosen.setdefault((r.peer, r.form), []).append(f"{r.case} {r.dtype}")
    return [f"{peer}, {form}: {', '.join(names)}" for (peer, form), names in chosen.items()]


def to_json(report: Report) -> str:
    return json.dumps(asdict(report), indent=1)


def from_json(text: str) -> Report:
    raw = json.loads(text)
    results = tuple(Result(**r) for r in raw["results"])
    return Report(raw["machine"], raw["versions"], raw["settings"], results)


def merge(reports: Sequence[Report]) -> Report:
    """Several runs of one machine as one: a later run's results for a case and dtype replace an earlier run's."""
    if len({tuple(sorted(r.machine.items())) for r in reports}) > 1:
        raise SystemExit("benchmarks: runs of different machines cannot be reported as one")
    kept: dict[tuple[str, str], list[Result]] = {}
    versions: dict[str, str] = {}
    for one in reports:
        kept.update(groups(one.results))
        versions.update(one.versions)
    commands = "`, `".join(dict.fromkeys(str(r.settings["command"]) for r in reports))
    settings = {**reports[-1].settings, "command": commands}
    return Report(reports[-1].machine, versions, settings, [r for results in kept.values() for r in results])


MEMORY_TITLE = "## Memory"
"""Where `python -m benchmarks.memory` puts its table; all that follows is its part of the page."""


def markdown(report: Report, cases: Mapping[str, Case], gates: Sequence[Sequence[str]]) -> str:
    """The text of docs/benchmarks.md."""
    parts = [
        "# Benchmarks",
        f"Made by `{report.settings['command']}`; `python -m benchmarks` measures on your machine.",
        EXPLANATION,
        "\n".join(f"- {k}: {v}" for k, v in report.machine.items()),
        "Versions: " + ", ".join(f"{k} {v}" for k, v in report.versions.items()) + ".",
        markdown_table(rows(report, cases)),
        "## Gates",
        "What a run is measured against, as the project set it for itself.",
        markdown_table(gates),
        "## Cases",
        "\n".join(f"- `{name}`: {cases[name].formula}" for name in dict.fromkeys(r.case for r in report.results)),
    ]
    starts = [r for r in report.results if r.startup is not None and r.status == "ok"]
    if starts:
        table = [["case", "dtype", "peer", "time", "compiles", "start-up"]]
        table += [
            [
                r.case,
                r.dtype,
                r.peer,
                duration(r.seconds),
                "" if r.compiles is None else str(r.compiles),
                duration(r.startup),
            ]
            for r in starts
        ]
        parts += [
            "## Compilation",
            "Fresh processes, no compilation cache. Start-up is loading the library and compiling `x + x`; it is not "
            "part of the time. `restart_100` is a process that finds what an earlier one has compiled: its time is "
            "from NumPy's import, which is its start-up, to the first result.",
            markdown_table(table),
        ]
    for title, lines in (("## Forms chosen", forms(report)), ("## Without a time, or wrong", notes(report))):
        if lines:
            parts += [title, "\n".join(f"- {line}" for line in lines)]
    return "\n\n".join(parts) + "\n"
