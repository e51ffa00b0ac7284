"""Schedules as pictures: boxes in a column for each engine, lines for what waits for what. Out: SVG text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT, GAP, MARGIN = 230, 40, 24, 16
COLOURS = {"operation": "#dbe9f6", "transfer": "#fdebd0", "collective": "#e4dcf1", "barrier": "#eeeeee"}


@dataclass(frozen=True, slots=True)
class Box:
    """A node: its column, its kind, what it says, and the numbers of the boxes before it."""

    column: int
    kind: str
    label: str
    after: tuple[int, ...]


def drawing(columns: Sequence[str], boxes: Sequence[Box]) -> str:
    """An SVG document; a box lies below all that it waits for."""
    rows: list[int] = []
    taken: set[tuple[int, int]] = set()
    for box in boxes:
        row = max((rows[k] + 1 for k in box.after), default=0)
        while (box.column, row) in taken:
            row += 1
        taken.add((box.column, row))
        rows.append(row)
    width = MARGIN + len(columns) * (WIDTH + GAP)
    height = 2 * MARGIN + 20 + (max(rows, default=-1) + 1) * (HEIGHT + GAP)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" font-family="sans-serif">']
    parts += [
        f'<text x="{_x(c) + WIDTH // 2}" y="{MARGIN + 8}" text-anchor="middle" font-size="13">{escape(name)}</text>'
        for c, name in enumerate(columns)
    ]
    for box, row in zip(boxes, rows, strict=True):
        parts += [_line(boxes[k].column, rows[k], box.column, row) for k in box.after]
    parts += [_box(k, box, row) for k, (box, row) in enumerate(zip(boxes, rows, strict=True))]
    return "\n".join([*parts, "</svg>"])


def _x(column: int) -> int:
    return MARGIN + column * (WIDTH + GAP)


def _y(row: int) -> int:
    return MARGIN + 20 + row * (HEIGHT + GAP)


def _line(column: int, row: int, to_column: int, to_row: int) -> str:
    x, y, x2, y2 = _x(column) + WIDTH // 2, _y(row) + HEIGHT, _x(to_column) + WIDTH // 2, _y(to_row)
    return f'<line x1="{x}" y1="{y}" x2="{x2}" y2="{y2}" stroke="#888888"/>'


def _box(number: int, box: Box, row: int) -> str:
    x, y = _x(box.column), _y(row)
    label = box.label if len(box.label) <= 36 else box.label[:35] + "…"
    return (
        f'<rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4" fill="{COLOURS[box.kind]}" stroke="#666666"/>'
        f'<text x="{x + 8}" y="{y + 25}" font-size="11">{number}: {escape(label)}'
        f"<title>{escape(box.label)}</title></text>"
    )
