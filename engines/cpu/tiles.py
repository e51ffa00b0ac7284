"""Tiles for operands that disagree on the inner axis, as in ``x + x.T``.

A ``tiled`` access is contiguous along the last outer loop instead of the row. An item is a tile of ``rows × columns``:
each tiled access is transposed into scratch memory, whole cache lines at a time, and the rows of the tile then read
it as
if it were contiguous. Row tiles follow one another under one block of columns, so that the pages of the transposed
operand stay translated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.params import LENGTH
from tenferro.engines.cpu.vector_builder import ModuleText

if TYPE_CHECKING:
    from tenferro.engines.cpu.rows import RowKernel

TILE_BYTES = 128
"""Bytes of a tile along the operand's contiguous direction: two cache lines, so that a misaligned one is read whole."""
TILE_COLUMNS = 512
AHEAD = 16
"""Columns between a line's prefetch and its use."""
BLOCK_SIDES = {4: 16, 8: 8}
"""Item size → side of the square that is transposed in registers: one cache line."""


def tile_rows(itemsize: int) -> int:
    return TILE_BYTES // itemsize


def tile_entry(kernel: RowKernel) -> str:
    """``@tiles(params, begin, end)``: item = block of columns * (outer rest * row tiles) + row tile."""
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
    per_block = code.mul(outer, row_tiles)

    def item(i: str, _: list[str]) -> list[str]:
        block = code.emit(f"udiv i64 {i}, {per_block}")
        rest = code.sub(i, code.mul(block, per_block))
        group = code.emit(f"udiv i64 {rest}, {row_tiles}")
        first_row = code.mul(code.sub(rest, code.mul(group, row_tiles)), rows)
        count = code.minimum(rows, code.sub(inner, first_row))
        e0 = code.mul(block, TILE_COLUMNS)
        e1 = code.minimum(code.add(e0, TILE_COLUMNS), length)
        row = code.add(code.mul(group, inner), first_row)
        code.do(f"call void @prologue(ptr %P, ptr {context}, i64 {row})")
        for a in tiled:
            stride = code.word("%P", kernel.params["pr", a, 0])
            source = code.at(code.pointer(context, a), code.mul(e0, stride))
            name = transpose_function(kernel.module, kernel.itemsize(a))
            code.do(
                f"call void {name}(ptr {scratch[a]}, i64 {pitch * kernel.itemsize(a)}, ptr {source}, i64 {stride}, "
                f"i64 {kernel.itemsize(a)}, i64 {count}, i64 {code.sub(e1, e0)})"
            )

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


def transpose_function(module: ModuleText, itemsize: int, out: bool = False) -> str:
    """``scratch[r][c] = source[c][r]`` for ``rows × columns`` elements (``out``: the other way); pitches in bytes:
    ``pitch`` between scratch rows, ``stride`` between source columns, ``step`` between elements of one of them."""
    name = f"@{'untranspose' if out else 'transpose'}{itemsize}"
    if (name,) not in module.outlined:
        module.outlined[(name,)] = (name, None)
        module.functions.append(_transpose_text(name, itemsize, out))
        module.declare("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
    return name


def _transpose_text(name: str, itemsize: int, out: bool) -> str:
    """Square blocks in registers where elements are neighbours along a source column; what is left one by one."""
    code = Code()
    side = BLOCK_SIDES.get(itemsize, 0) if not out else 0
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
    row. The lines of the columns ahead are asked for early: they lie a whole row of the operand apart, which no
    hardware prefetcher follows."""
    kind = f"<{side} x i{8 * itemsize}>"

    def column(c: str, _: list[str]) -> list[str]:
        lines = [code.at("%source", code.mul(code.add(c, k), "%stride")) for k in range(side)]
        for k in range(side):
            ahead = code.at("%source", code.mul(code.add(c, AHEAD + k), "%stride"))
            for part in range(0, TILE_BYTES, 64):
                code.do(f"call void @llvm.prefetch.p0(ptr {code.at(ahead, part)}, i32 0, i32 3, i32 1)")

        def row(r: str, _: list[str]) -> list[str]:
            values = [
                code.emit(f"load {kind}, ptr {code.at(x, code.mul(r, itemsize))}, align {itemsize}") for x in lines
            ]
            for k, value in enumerate(_exchanged(code, values, kind)):
                near = code.at(code.at("%scratch", code.mul(code.add(r, k), "%pitch")), code.mul(c, itemsize))
                code.do(f"store {kind} {value}, ptr {near}, align {itemsize}")
            return []

        code.loop(0, rows, side, [], row)
        return []

    code.loop(0, columns, side, [], column)


def _exchanged(code: Code, values: list[str], kind: str) -> list[str]:
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
