"""Selection by a mask, natively: ``x[mask]`` for contiguous arrays, on all threads.

In: x and a bool mask over its leading axes. Out: the selected elements, or *rows* of them, in order. Two launches
with a sum between them: ``count`` leaves how many each block selects; from their running sums every block knows where
its own go, and ``select`` puts them there. Of elements, a block compresses vectors into scratch memory first, since
whole vectors are written and would run over the neighbour's elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.engines import recording
from tenferro.engines.cpu import elements, memory, native, native_chain, threads
from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.kernel import GOOD, shared_library
from tenferro.engines.cpu.native import Block
from tenferro.engines.cpu.native_chain import (
    CHANGED_WORD as CHANGED,
    COUNTS_WORD as COUNTS,
    LENGTH_WORD as LENGTH,
    MASK_WORD as MASK,
    ROW_WORD as ROW,
    SELECT_WORDS,
    SOURCE_WORD as SOURCE,
    STRIDE_WORD as STRIDE,
    TARGET_WORD as TARGET,
)
from tenferro.engines.cpu.toolchain import Library, host_target
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at

if TYPE_CHECKING:
    from tenferro.engines.cpu.actions import Select

Array = np.ndarray[Any, Any]

BLOCK = native_chain.ITEM_ROWS
"""Elements of a work item: their scratch memory stays in the first-level caches."""
WORTH_IT = 1 << 14
"""Rows from which on two native launches by Python are faster than NumPy."""
ITEM_SIZES = (1, 2, 4, 8)
TRIES = 3


def mask_select(action: Select, x: Array, mask: Array) -> Array:
    """What an action selects, in memory of its own, where Python carries it out."""
    rows, row = action.rows, action.dtype.itemsize * math.prod(action.row)
    if rows < WORTH_IT:
        return np.ascontiguousarray(x[mask])
    sizes = {LENGTH: rows, ROW: row, STRIDE: action.stride}
    for _ in range(TRIES):
        out = _selected(functions(row, action.stride), sizes, action, x, mask)
        if out is not None:
            return out
    raise ShapeError(
        f"mask_select: the mask changes while it is read; needed one that nobody writes to{at(action.instruction.line)}"
    )


def _selected(
    functions: tuple[int, int], sizes: Mapping[int, int], action: Select, x: Array, mask: Array
) -> Array | None:
    """None where fewer are there than were counted."""
    count, copy = functions
    blocks = -(-sizes[LENGTH] // BLOCK)
    counts = memory.empty((blocks + 1,), np.dtype(np.int64))
    _run(count, blocks, sizes, {MASK: mask, COUNTS: counts})
    offsets, changed = np.zeros(blocks + 1, np.int64), np.zeros(1, np.int64)
    np.cumsum(counts[:blocks], out=offsets[1:])
    out = memory.empty((int(offsets[-1]), *action.row), action.dtype)
    _run(copy, blocks, sizes, {MASK: mask, SOURCE: x, COUNTS: offsets, TARGET: out, CHANGED: changed})
    return None if changed[0] else out


def functions(row: int, stride: int) -> tuple[int, int]:
    """The addresses of ``count`` and ``select`` for rows of so many bytes, and so many bytes from one to the next."""
    library = next((_library(size) for size in ITEM_SIZES if size == row == stride), None) or _library(0)
    return library.address("count"), library.address("select")


def _run(address: int, blocks: int, sizes: Mapping[int, int], arrays: Mapping[int, Array]) -> None:
    block = Block(heavy=True)
    params = [sizes.get(word, 0) for word in range(SELECT_WORDS)]
    launch = block.add_launch(address, blocks, max(1, blocks // 64), params)
    for position, parameter in enumerate(arrays):
        block.add_patch(position, launch, parameter)
    native.module().enter(block.seal(), threads.count(), *arrays.values())


@cache
def _library(itemsize: int) -> Library:
    start = recording.now()
    found = shared_library(text(itemsize), GOOD, host_target())
    what = f"mask_select of {itemsize}-byte elements" if itemsize else "mask_select of rows"
    recording.compiled(start, "", what, GOOD, found.source)
    return found


def text(itemsize: int) -> str:
    """The module for elements of ``itemsize`` bytes, 0 for rows of any number: ``count`` and ``select``, each
    ``void (ptr params, i64, i64)``."""
    lanes = 64 // (itemsize or 1)
    declarations = [
        f"declare i{lanes} @llvm.ctpop.i{lanes}(i{lanes})", "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)"
    ]  # fmt: skip
    if itemsize:
        kind, bools = f"<{lanes} x i{8 * itemsize}>", f"<{lanes} x i1>"
        name = f"@llvm.experimental.vector.compress.v{lanes}i{8 * itemsize}"
        declarations.append(f"declare {kind} {name}({kind}, {bools}, {kind})")
    selecting = _entry("select", itemsize, lanes) if itemsize else _select_rows()
    return "\n".join([_entry("count", itemsize, lanes), selecting, *declarations]) + "\n"


def _entry(name: str, itemsize: int, lanes: int) -> str:
    code = Code()
    selects = name == "select"
    scratch = code.alloca((BLOCK + lanes) * itemsize) if selects else ""
    length = code.word("%P", LENGTH)
    mask, counts = code.pointer("%P", MASK), code.pointer("%P", COUNTS)
    source, target = (code.pointer("%P", SOURCE), code.pointer("%P", TARGET)) if selects else ("", "")

    def item(b: str, _: list[str]) -> list[str]:
        first = code.mul(b, BLOCK)
        stop = code.minimum(code.add(first, BLOCK), length)
        whole = code.add(first, code.emit(f"and i64 {code.sub(stop, first)}, -{lanes}"))

        def vector(i: str, carried: list[str]) -> list[str]:
            chosen = elements.load_real(code, code.at(mask, i), lanes, elements.BOOL)
            if selects:
                _compress(code, itemsize, lanes, code.at(source, code.mul(i, itemsize)), chosen, scratch, carried[0])
            bits = code.emit(f"bitcast <{lanes} x i1> {chosen} to i{lanes}")
            found = code.emit(f"call i{lanes} @llvm.ctpop.i{lanes}(i{lanes} {bits})")
            return [code.add(carried[0], found if lanes == 64 else code.emit(f"zext i{lanes} {found} to i64"))]

        def single(i: str, carried: list[str]) -> list[str]:
            chosen = elements.load_real(code, code.at(mask, i), 1, elements.BOOL)
            if selects:
                element = f"i{8 * itemsize}"
                x = code.emit(f"load {element}, ptr {code.at(source, code.mul(i, itemsize))}, align {itemsize}")
                place = code.at(scratch, code.mul(carried[0], itemsize))
                code.do(f"store {element} {x}, ptr {place}, align {itemsize}")
            return [code.add(carried[0], code.emit(f"zext i1 {chosen} to i64"))]

        (so_far,) = code.loop(first, whole, lanes, [("i64", "0")], vector)
        (total,) = code.loop(whole, stop, 1, [("i64", so_far)], single)
        here = code.at(counts, code.mul(b, 8))
        if not selects:
            code.do(f"store i64 {total}, ptr {here}, align 8")
            return []
        offset, most = _counted(code, here)
        _note_change(code, total, most)
        place = code.at(target, code.mul(offset, itemsize))
        size = code.mul(code.minimum(total, most), itemsize)
        code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {place}, ptr {scratch}, i64 {size}, i1 false)")
        return []

    return _over_items(code, name, item)


def _over_items(code: Code, name: str, item: Callable[[str, list[str]], list[str]]) -> str:
    """The function that does this for its work items."""
    code.loop("%begin", "%end", 1, [], item)
    code.do("ret void")
    return code.function(f"define void @{name}(ptr noalias %P, i64 %begin, i64 %end) nounwind")


def _counted(code: Code, here: str) -> tuple[str, str]:
    """Where the rows of a work item go, and how many were counted: others may have written to the mask since."""
    first, after = (code.emit(f"load i64, ptr {code.at(here, 8 * k)}, align 8") for k in range(2))
    return first, code.sub(after, first)


def _note_change(code: Code, total: str, counted: str) -> None:
    """Tell that fewer are there than were counted."""
    changed = code.pointer("%P", CHANGED)
    store = f"store atomic i64 1, ptr {changed} monotonic, align 8"
    code.when(code.compare("slt", total, counted), lambda: code.do(store))


def _select_rows() -> str:
    code = Code()
    length, row, stride = (code.word("%P", word) for word in (LENGTH, ROW, STRIDE))
    mask, counts, source, target = (code.pointer("%P", word) for word in (MASK, COUNTS, SOURCE, TARGET))

    def item(b: str, _: list[str]) -> list[str]:
        first = code.mul(b, BLOCK)

        def single(i: str, carried: list[str]) -> list[str]:
            is_next = elements.load_real(code, code.at(mask, i), 1, elements.BOOL)
            has_place = code.compare("slt", carried[0], end)
            chosen = code.emit(f"and i1 {is_next}, {has_place}")
            to, of = code.at(target, code.mul(carried[0], row)), code.at(source, code.mul(i, stride))
            code.when(
                chosen, lambda: code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {to}, ptr {of}, i64 {row}, i1 false)")
            )
            return [code.add(carried[0], code.emit(f"zext i1 {chosen} to i64"))]

        offset, most = _counted(code, code.at(counts, code.mul(b, 8)))
        end = code.add(offset, most)
        (after,) = code.loop(first, code.minimum(code.add(first, BLOCK), length), 1, [("i64", offset)], single)
        _note_change(code, after, end)
        return []

    return _over_items(code, "select", item)


def _compress(code: Code, itemsize: int, lanes: int, source: str, chosen: str, scratch: str, count: str) -> None:
    """The chosen elements of a vector behind the ``count`` that scratch memory holds."""
    kind = f"<{lanes} x i{8 * itemsize}>"
    x = code.emit(f"load {kind}, ptr {source}, align {itemsize}")
    packed = code.emit(
        f"call {kind} @llvm.experimental.vector.compress.v{lanes}i{8 * itemsize}({kind} {x}, <{lanes} x i1> {chosen}, "
        f"{kind} poison)"
    )
    code.do(f"store {kind} {packed}, ptr {code.at(scratch, code.mul(count, itemsize))}, align {itemsize}")
