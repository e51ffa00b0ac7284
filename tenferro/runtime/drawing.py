"""Schedules as pictures: boxes in a column for each engine, arrows for what waits for what. Out: SVG text.

A box lies below all that it waits for. Arrows run between the columns, so that none passes through a box of its own or
a neighbouring column: straight down to the box right below, else from side to side.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from tenferro.tracer.records import dataclass

WIDTH, HEIGHT, HEAD = 220, 46, 36
GUTTER, SPACE, MARGIN = 60, 22, 36
LETTERS = 36
"""How many letters of size 11 a box holds."""
COLOURS = {"operation": "#dbe9f6", "transfer": "#fdebd0", "collective": "#e4dcf1", "barrier": "#eeeeee"}
LINE = "#777777"


@dataclass(frozen=True, slots=True)
class Box:
    """A node: its column, its kind, what it says in the box and when pointed at, and the numbers of the boxes before
    it."""

    column: int
    kind: str
    label: str
    tip: str
    after: tuple[int, ...]


def drawing(columns: Sequence[str], boxes: Sequence[Box]) -> str:
    """An SVG document."""
    rows = _rows(boxes)
    width = 2 * MARGIN + len(columns) * WIDTH + (len(columns) - 1) * GUTTER
    height = HEAD + (max(rows, default=-1) + 1) * (HEIGHT + SPACE) + SPACE
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
        f'font-family="sans-serif" fill="#222222">',
        '<defs><marker id="arrow" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0,0 L8,4 L0,8 z" fill="{LINE}"/></marker></defs>',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
    ]
    parts += [_head(c, name, height) for c, name in enumerate(columns)]
    for box, row in zip(boxes, rows, strict=True):
        parts += [_arrow(boxes[k].column, rows[k], box.column, row) for k in box.after]
    parts += [_box(k, box, row) for k, (box, row) in enumerate(zip(boxes, rows, strict=True))]
    return "\n".join([*parts, "</svg>"])


def _rows(boxes: Sequence[Box]) -> list[int]:
    """Below what is waited for, and below the boxes of the column so far: an engine's nodes happen in their order."""
    rows: list[int] = []
    free: dict[int, int] = {}
    for box in boxes:
        row = max([free.get(box.column, 0), *(rows[k] + 1 for k in box.after)])
        free[box.column] = row + 1
        rows.append(row)
    return rows


def _x(column: int) -> int:
    return MARGIN + column * (WIDTH + GUTTER)


def _y(row: int) -> int:
    return HEAD + row * (HEIGHT + SPACE)


def _head(column: int, name: str, height: int) -> str:
    x = _x(column)
    return (
        f'<text x="{x + WIDTH // 2}" y="{HEAD - 14}" text-anchor="middle" font-size="13" font-weight="bold">'
        f'{escape(name)}</text><rect x="{x - 8}" y="{HEAD - 8}" width="{WIDTH + 16}" height="{height - HEAD}" rx="6" '
        f'fill="none" stroke="#dddddd"/>'
    )


def _arrow(column: int, row: int, to_column: int, to_row: int) -> str:
    left, right = _x(column), _x(column) + WIDTH
    middle, to_middle = _y(row) + HEIGHT // 2, _y(to_row) + HEIGHT // 2
    if column == to_column and to_row == row + 1:
        x = left + WIDTH // 2
        path = f"M{x},{_y(row) + HEIGHT} L{x},{_y(to_row)}"
    elif column == to_column:
        path = f"M{left},{middle} C{left - 34},{middle} {left - 34},{to_middle} {left},{to_middle}"
    else:
        start, end = (right, _x(to_column)) if column < to_column else (left, _x(to_column) + WIDTH)
        bend = GUTTER // 2 if column < to_column else -GUTTER // 2
        path = f"M{start},{middle} C{start + bend},{middle} {end - bend},{to_middle} {end},{to_middle}"
    return f'<path d="{path}" fill="none" stroke="{LINE}" marker-end="url(#arrow)"/>'


def _box(number: int, box: Box, row: int) -> str:
    x, y = _x(box.column), _y(row)
    label = box.label if len(box.label) <= LETTERS else box.label[: LETTERS - 1] + "…"
    return (
        f'<g><title>{escape(box.tip)}</title><rect x="{x}" y="{y}" width="{WIDTH}" height="{HEIGHT}" rx="4" '
        f'fill="{COLOURS[box.kind]}" stroke="#666666"/><text x="{x + 8}" y="{y + 17}" font-size="11" '
        f'font-weight="bold">{number} {box.kind}</text><text x="{x + 8}" y="{y + 35}" font-size="11">{escape(label)}'
        f"</text></g>"
    )
