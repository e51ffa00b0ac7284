"""Tiles for operands that disagree on the inner axis, as in ``x + x.T``.

A ``tiled`` access is contiguous along the last outer loop instead of the row. An item is a tile of ``rows × columns``:
each tiled access is transposed into scratch memory, whole cache lines at a time, and the rows of the tile then read it
as if it were contiguous. Row tiles follow one another under one block of columns, so that the pages of the transposed
operand stay translated; an operand that is read both ways is visited square by square, each after its mirror image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenferro.engines.cpu import elements
from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.params import BLOCK, LENGTH
from tenferro.engines.cpu.permute import Permutes
from tenferro.engines.cpu.vector_builder import ModuleText
from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.engines.cpu.rows import RowKernel

TILE_BYTES = 128
"""Bytes of a tile along the operand's contiguous direction: two cache lines, so that a misaligned one is read whole."""
TILE_COLUMNS = 256
TILES_AHEAD = 8
"""Tiles whose lines are asked for at once, 256 kB: a second-level cache's share. The lines of one tile lie a whole row
of the operand apart, which no hardware prefetcher follows, and eight tiles' are neighbours (x + x.T, 4096 x 4096 on two
cores of an AVX2 machine: 27 ms when each line was asked for 16 columns ahead, 21 ms so)."""


def tile_rows(itemsize: int) -> int:
    return TILE_BYTES // itemsize


def tile_entry(kernel: RowKernel) -> str:
    """``@tiles(params, begin, end)``: one tile an item, in the order that ``_place`` gives."""
    code = Code()
    context = code.alloca(8 * kernel.context_words)
    rank = kernel.variant.outer_rank
    tiled = [a for a, kind in enumerate(kernel.variant.kinds) if kind == "tiled"]
    rows = kernel.tile_rows
    pitch = TILE_COLUMNS + kernel.lanes
    scratch = {a: code.alloca(rows * pitch * kernel.itemsize(a)) for a in tiled}
    length = code.word("%P", LENGTH)
    inner = code.word("%P", kernel.params["o", rank - 1])
    outer = "1"
    for j in range(rank - 1):
        outer = code.mul(outer, code.word("%P", kernel.params["o", j]))
    row_tiles = code.emit(f"udiv i64 {code.add(inner, rows - 1)}, {rows}")
    order = _Order(code.word("%P", BLOCK), row_tiles, code.mul(outer, row_tiles), TILE_COLUMNS // rows)

    def item(i: str, _: list[str]) -> list[str]:
        group, row_tile, block = _place(code, i, order)
        first_row = code.mul(row_tile, rows)
        count = code.maximum(0, code.minimum(rows, code.sub(inner, first_row)))
        e0 = code.mul(block, TILE_COLUMNS)
        e1 = code.minimum(code.add(e0, TILE_COLUMNS), length)
        row = code.add(code.mul(group, inner), first_row)
        code.do(f"call void @prologue(ptr %P, ptr {context}, i64 {row})")
        for a in tiled:
            stride = code.word("%P", kernel.params["pr", a, 0])
            source = code.at(code.pointer(context, a), code.mul(e0, stride))
            _ask_ahead(code, kernel, a, row_tile, source, stride, code.sub(inner, first_row), code.sub(e1, e0))
            name = transpose_function(kernel.module, kernel.itemsize(a))
            code.do(
                f"call void {name}(ptr {scratch[a]}, i64 {pitch * kernel.itemsize(a)}, ptr {source}, i64 {stride}, "
                f"i64 {kernel.itemsize(a)}, i64 {count}, i64 {code.sub(e1, e0)})"
            )
            lines = Lines(scratch[a], pitch * kernel.itemsize(a), count, code.sub(e1, e0))
            zero_tails(kernel.module, code, lines, kernel.lanes, kernel.itemsize(a))

        def one_row(k: str, _: list[str]) -> list[str]:
            code.do(f"call void @prologue(ptr %P, ptr {context}, i64 {code.add(row, k)})")
            for a in tiled:
                here = code.at(scratch[a], code.mul(k, pitch * kernel.itemsize(a)))
                code.do(f"store ptr {here}, ptr {code.at(context, 8 * a)}, align 8")
            code.do(f"call void @pass0(ptr %P, ptr {context}, i64 {e0}, i64 {e1}, ptr null, i64 0)")
            return []

        code.loop(0, count, 1, [], one_row)
        return []

    code.loop("%begin", "%end", 1, [], item)
    code.do("ret void")
    return code.function("define void @tiles(ptr noalias %P, i64 %begin, i64 %end) nounwind")


def _ask_ahead(
    code: Code, kernel: RowKernel, a: int, row_tile: str, source: str, stride: str, rows: str, columns: str
) -> None:
    """At the first of ``TILES_AHEAD`` tiles, ask for the lines of all of them, column by column of the operand."""
    kernel.module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    most = TILES_AHEAD * kernel.tile_rows
    is_first = code.compare("eq", code.emit(f"urem i64 {row_tile}, {TILES_AHEAD}"), 0)
    end = code.mul(code.minimum(rows, most), kernel.itemsize(a))

    def sweep() -> None:
        def column(c: str, _: list[str]) -> list[str]:
            start = code.at(source, code.mul(c, stride))

            def line(b: str, _: list[str]) -> list[str]:
                code.do(f"call void @llvm.prefetch.p0(ptr {code.at(start, b)}, i32 0, i32 2, i32 1)")
                return []

            code.loop(0, end, 64, [], line)
            return []

        code.loop(0, columns, 1, [], column)

    code.when(is_first, sweep)


@dataclass(frozen=True, slots=True)
class _Order:
    """What every item's place is found from: squares on a side (0 for the plain order), tiles of all rows, items of a
    block of columns, tiles of a square."""

    sides: str
    row_tiles: str
    per_block: str
    tiles: int


def _place(code: Code, i: str, order: _Order) -> tuple[str, str, str]:
    """Item → (index of the outer loops, tile of rows, block of columns), by ``items``."""
    block = code.emit(f"udiv i64 {i}, {order.per_block}")
    rest = code.sub(i, code.mul(block, order.per_block))
    group = code.emit(f"udiv i64 {rest}, {order.row_tiles}")
    plain = (group, code.sub(rest, code.mul(group, order.row_tiles)), block)
    paired = _paired_place(code, i, code.maximum(1, order.sides), order.tiles)
    is_plain = code.compare("eq", order.sides, 0)
    group, row_tile, block = (
        code.emit(f"select i1 {is_plain}, i64 {x}, i64 {y}") for x, y in zip(plain, paired, strict=True)
    )
    return group, row_tile, block


def _paired_place(code: Code, i: str, sides: str, tiles: int) -> tuple[str, str, str]:
    """Squares of ``TILE_COLUMNS`` on a side in the order (0, 0), (0, 1), (1, 0), (0, 2), (2, 0), …, (1, 1), (1, 2), …:
    square k's diagonal, then the pairs of row and column k."""
    square = code.emit(f"udiv i64 {i}, {tiles}")
    per_group = code.mul(sides, sides)
    group = code.emit(f"udiv i64 {square}, {per_group}")
    first = code.sub(square, code.mul(group, per_group))

    def next_diagonal(k: str, values: list[str]) -> list[str]:
        number, diagonal = values
        size = code.sub(code.mul(2, code.sub(sides, k)), 1)
        beyond = code.emit(f"icmp sge i64 {number}, {size}")
        here = code.compare("eq", diagonal, k)
        moves = code.emit(f"and i1 {beyond}, {here}")
        step = code.emit(f"zext i1 {moves} to i64")
        return [code.sub(number, code.mul(step, size)), code.add(diagonal, step)]

    number, diagonal = code.loop(0, sides, 1, [("i64", first), ("i64", "0")], next_diagonal)
    other = code.add(diagonal, code.emit(f"lshr i64 {code.add(number, 1)}, 1"))
    is_upper = code.emit(f"trunc i64 {number} to i1")
    row = code.emit(f"select i1 {is_upper}, i64 {diagonal}, i64 {other}")
    column = code.emit(f"select i1 {is_upper}, i64 {other}, i64 {diagonal}")
    within = code.sub(i, code.mul(square, tiles))
    return group, code.add(code.mul(row, tiles), within), column


def items(groups: int, inner: int, length: int, rows: int, paired: bool) -> tuple[int, int]:
    """Tiles to visit, and what stands in the ``BLOCK`` word. Plain order (0): blocks of columns, in each the outer
    loops, in each the tiles of rows. ``paired`` (squares on a side): a square and its mirror image in turn, for an
    operand that is read both ways: the second time its lines are still in the cache, so that memory sends them once."""
    if paired:
        sides = -(-inner // TILE_COLUMNS)
        return groups * sides * sides * (TILE_COLUMNS // rows), sides
    return groups * -(-inner // rows) * -(-length // TILE_COLUMNS), 0


@dataclass(frozen=True, slots=True)
class Lines:
    """Rows of a tile in scratch memory: where, bytes from one to the next, how many, elements of each."""

    base: str
    pitch: int
    rows: str
    width: str


def zero_tails(module: ModuleText, code: Code, lines: Lines, lanes: int, itemsize: int) -> None:
    """Zeros behind rows that end within a vector."""
    left = code.emit(f"and i64 {code.sub(0, lines.width)}, {lanes - 1}")

    def row(r: str, _: list[str]) -> list[str]:
        end = code.at(lines.base, code.add(code.mul(r, lines.pitch), code.mul(lines.width, itemsize)))
        elements.clear(module, code, end, code.mul(left, itemsize))
        return []

    def all_rows() -> None:
        code.loop(0, lines.rows, 1, [], row)

    code.when(code.compare("sgt", left, 0), all_rows)


def transpose_function(module: ModuleText, itemsize: int, out: bool = False) -> str:
    """``scratch[r][c] = source[c][r]`` for ``rows × columns`` elements (``out``: the other way); pitches in bytes:
    ``pitch`` between scratch rows, ``stride`` between source columns, ``step`` between elements of one of them."""
    name = f"@{'untranspose' if out else 'transpose'}{itemsize}"
    if (name,) not in module.outlined:
        module.outlined[(name,)] = (name, None)
        module.functions.append(_transpose_text(name, itemsize, out, module.permutes))
    return name


def block_side(itemsize: int, permutes: Permutes) -> int:
    """The side of the square that is transposed in registers: a register's elements, so that none is spilled. 0 where
    elements go one by one."""
    return (64 if permutes == "avx512" else 32) // itemsize if itemsize in (4, 8) else 0


def _transpose_text(name: str, itemsize: int, out: bool, permutes: Permutes) -> str:
    """Square blocks in registers where elements are neighbours along a source column; what is left one by one."""
    code = Code()
    side = block_side(itemsize, permutes) if not out else 0
    whole_rows = whole_columns = "0"
    if side:
        neighbours = code.compare("eq", "%step", itemsize)
        whole_columns = code.emit(f"and i64 %columns, -{side}")
        full = code.emit(f"and i64 %rows, -{side}")
        whole_rows = code.emit(f"select i1 {neighbours}, i64 {full}, i64 0")
        _blocks(code, itemsize, side, whole_rows, whole_columns)
    _one_by_one(code, itemsize, out, (whole_rows, "%rows"), ("0", whole_columns))
    _one_by_one(code, itemsize, out, ("0", "%rows"), (whole_columns, "%columns"))
    code.do("ret void")
    arguments = "ptr noalias %scratch, i64 %pitch, ptr noalias %source, i64 %stride, i64 %step, i64 %rows, i64 %columns"
    return code.function(f"define internal void {name}({arguments}) noinline nounwind")


def _one_by_one(code: Code, itemsize: int, out: bool, rows: tuple[str, str], columns: tuple[str, str]) -> None:
    kind = f"i{8 * itemsize}"

    def column(c: str, _: list[str]) -> list[str]:
        line = code.at("%source", code.mul(c, "%stride"))

        def element(r: str, _: list[str]) -> list[str]:
            near = code.at(code.at("%scratch", code.mul(r, "%pitch")), code.mul(c, itemsize))
            pair = (code.at(line, code.mul(r, "%step")), near)
            source, sink = reversed(pair) if out else pair
            value = code.emit(f"load {kind}, ptr {source}, align 1")
            code.do(f"store {kind} {value}, ptr {sink}, align 1")
            return []

        code.loop(rows[0], rows[1], 1, [], element)
        return []

    code.loop(columns[0], columns[1], 1, [], column)


def _blocks(code: Code, itemsize: int, side: int, rows: str, columns: str) -> None:
    """``side`` columns at a time: load a vector of each, exchange halves, quarters, … of pairs, store a vector of each
    row."""
    kind = f"<{side} x i{8 * itemsize}>"

    def column(c: str, _: list[str]) -> list[str]:
        lines = [code.at("%source", code.mul(code.add(c, k), "%stride")) for k in range(side)]

        def row(r: str, _: list[str]) -> list[str]:
            values = [
                code.emit(f"load {kind}, ptr {code.at(x, code.mul(r, itemsize))}, align {itemsize}") for x in lines
            ]
            for k, value in enumerate(exchanged(code, values, kind)):
                near = code.at(code.at("%scratch", code.mul(code.add(r, k), "%pitch")), code.mul(c, itemsize))
                code.do(f"store {kind} {value}, ptr {near}, align {itemsize}")
            return []

        code.loop(0, rows, side, [], row)
        return []

    code.loop(0, columns, side, [], column)


def exchanged(code: Code, values: list[str], kind: str) -> list[str]:
    """The transpose of a square of vectors: at distance d, element i of vector k and element i ± d of vector k ± d
    change places, for d = side/2, …, 1."""
    side = len(values)
    distance = side // 2
    while distance:
        following = list(values)
        for k in range(side):
            if k & distance:
                continue
            a, b = values[k], values[k + distance]
            low = [i if not i & distance else side + i - distance for i in range(side)]
            high = [i + distance if not i & distance else side + i for i in range(side)]
            for target, order in ((k, low), (k + distance, high)):
                mask = ", ".join(f"i32 {i}" for i in order)
                following[target] = code.emit(f"shufflevector {kind} {a}, {kind} {b}, <{side} x i32> <{mask}>")
        values = following
        distance //= 2
    return values
