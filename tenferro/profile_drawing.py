"""A profile as pictures: what each thread did over time, and how much memory lived. Events in, SVG and HTML out."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from tenferro.engines.recording import Event, MemorySample
from tenferro.profile_rows import Table, milliseconds
from tenferro.profile_trace import details, label

WIDTH, NAMES, ROW, GAP, AXIS = 960, 150, 18, 10, 24
MEMORY_HEIGHT = 90
MOST_MARKS = 3000
"""Marks of a timeline; the shortest events beyond them are left out, and said to be."""
COLOURS = {
    "Launch": "#4c8fd0", "Seam": "#e08a3c", "Run": "#dbe9f6", "Trace": "#b79ad6", "Prepare": "#d5c8ea",
    "Compile": "#7fb77e", "Transfer": "#d9b44a",
}  # fmt: skip


def timeline(events: Sequence[Event], threads: Mapping[int, str], start: int, end: int) -> str:
    """An SVG document: a band for each thread, what happened inside something else below it."""
    kept = sorted(sorted(events, key=lambda e: e.start - e.end)[:MOST_MARKS], key=lambda e: (e.start, -e.end))
    lanes = {t: [e for e in kept if e.thread == t] for t in dict.fromkeys(e.thread for e in kept)}
    parts, top = [], AXIS
    for thread, own in lanes.items():
        depths = _depths(own)
        parts.append(
            f'<text x="4" y="{top + 13}" font-size="11">{escape(threads.get(thread, str(thread))[:22])}</text>'
        )
        parts += [_mark(e, top + depth * ROW, start, end) for e, depth in zip(own, depths, strict=True)]
        top += (max(depths) + 1) * ROW + GAP
    left_out = len(events) - len(kept)
    if left_out:
        parts.append(f'<text x="4" y="{top + 12}" font-size="11">the {left_out} shortest events are not drawn</text>')
        top += ROW
    used = dict.fromkeys(type(e).__name__ for e in kept)
    return _svg(top + ROW + GAP, [*_axis(start, end, top), *parts, *_legend(used, top + GAP)])


def _legend(kinds: Iterable[str], y: int) -> list[str]:
    found = []
    for k, kind in enumerate(kinds):
        x = NAMES + 90 * k
        found.append(f'<rect x="{x}" y="{y}" width="10" height="10" fill="{COLOURS[kind]}"/>')
        found.append(f'<text x="{x + 14}" y="{y + 9}" font-size="10">{kind.lower()}</text>')
    return found


def _depths(events: Sequence[Event]) -> list[int]:
    """How many events of the thread each lies inside of."""
    open_ends: list[int] = []
    found = []
    for event in events:
        while open_ends and open_ends[-1] <= event.start:
            open_ends.pop()
        found.append(len(open_ends))
        open_ends.append(event.end)
    return found


def _x(at: int, start: int, end: int) -> float:
    return NAMES + (WIDTH - NAMES - 12) * (at - start) / max(end - start, 1)


def _mark(event: Event, y: int, start: int, end: int) -> str:
    x = _x(event.start, start, end)
    width = _x(event.end, start, end) - x
    width = width - 0.5 if width > 3 else max(width, 0.6)  # neighbours stay apart
    known = "; ".join(f"{k} {v}" for k, v in details(event).items())
    tip = escape(f"{label(event)}: {milliseconds(event.ms)}; {known}")
    colour = COLOURS[type(event).__name__]
    mark = f'<rect x="{x:.2f}" y="{y}" width="{width:.2f}" height="{ROW - 2}" fill="{colour}"/>'
    letters = int(width / 6.5)
    text = f'<text x="{x + 3:.2f}" y="{y + 12}" font-size="10">{escape(label(event)[:letters])}</text>'
    return f"<g><title>{tip}</title>{mark}{text if letters > 3 else ''}</g>"


def _axis(start: int, end: int, bottom: int) -> list[str]:
    found = []
    for k in range(5):
        x = _x(start + (end - start) * k // 4, start, end)
        anchor = "end" if k == 4 else "start"
        found.append(f'<line x1="{x:.1f}" y1="14" x2="{x:.1f}" y2="{bottom}" stroke="#dddddd"/>')
        found.append(
            f'<text x="{x:.1f}" y="11" font-size="10" text-anchor="{anchor}">'
            f"{milliseconds((end - start) * k / 4e6)}</text>"
        )
    return found


def memory(samples: Sequence[MemorySample], start: int, end: int) -> str:
    """An SVG document: bytes in live large buffers over time."""
    most = max((s.live for s in samples), default=0)
    base = AXIS + MEMORY_HEIGHT
    points = []
    y = float(base)
    for s in _thinned(samples):
        x = _x(s.time, start, end)
        points.append(f"{x:.2f},{y:.2f}")  # until then as before
        y = base - MEMORY_HEIGHT * s.live / max(most, 1)
        points.append(f"{x:.2f},{y:.2f}")
    points.append(f"{_x(end, start, end):.2f},{y:.2f}")
    line = f'<polyline points="{" ".join(points)}" fill="none" stroke="#c0504d" stroke-width="1.5"/>'
    names = [
        f'<text x="4" y="{AXIS + 10}" font-size="11">live memory</text>',
        f'<text x="4" y="{AXIS + 26}" font-size="10">most: {most / 1e6:,.1f} MB</text>',
        f'<text x="4" y="{base}" font-size="10">0</text>',
    ]
    return _svg(base + GAP, [*_axis(start, end, base), *names, line])


def _thinned(samples: Sequence[MemorySample]) -> Iterable[MemorySample]:
    """At most ``MOST_MARKS``: of neighbours the one with most memory."""
    step = -(-len(samples) // MOST_MARKS) or 1
    return (max(samples[k : k + step], key=lambda s: s.live) for k in range(0, len(samples), step))


def _svg(height: int, parts: Sequence[str]) -> str:
    return "\n".join([
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
        f'font-family="sans-serif" fill="#222222">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        *parts,
        "</svg>",
    ])  # fmt: skip


def html_of(heading: str, tables: Sequence[Table], pictures: Sequence[str]) -> str:
    """The tables and the pictures, one below the other."""
    return "\n".join([f"<div><p>{escape(heading)}</p>", *pictures, *map(_html_table, tables), "</div>"])


def _html_table(table: Table) -> str:
    def cells(tag: str, line: Sequence[str]) -> str:
        sides = ["left" if k in table.left else "right" for k in range(len(line))]
        return "".join(f'<{tag} style="text-align:{s}">{escape(c)}</{tag}>' for c, s in zip(line, sides, strict=True))

    rows = "\n".join(f"<tr>{cells('td', line)}</tr>" for line in table.rows)
    note = f"<p>{escape(table.note)}</p>" if table.note else ""
    return f"<table><thead><tr>{cells('th', table.head)}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>{note}"
