"""Selection by a mask, natively: ``x[mask]`` for contiguous arrays of one shape, on all threads.

In: x and a bool mask. Out: the selected elements, in order. Two launches with a sum between them: ``count`` leaves how
many elements each block selects; from their running sums every block knows where its elements go, and ``select`` puts
them there. A block compresses vectors into scratch memory first, since whole vectors are written and would run over the
neighbour's elements.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from tenferro.engines import recording
from tenferro.engines.cpu import elements, memory, native, threads
from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.kernel import GOOD, shared_library
from tenferro.engines.cpu.native import Block
from tenferro.engines.cpu.toolchain import Library, host_target

Array = np.ndarray[Any, Any]

BLOCK = 1 << 12
"""Elements of a work item: their scratch memory stays in the first-level caches."""
WORTH_IT = 1 << 14
"""Elements from which on two native launches are faster than NumPy."""
LENGTH, MASK, SOURCE, COUNTS, TARGET = range(1, 6)
ITEM_SIZES = (1, 2, 4, 8)


def serves(x: Array, mask: Array) -> bool:
    """Whether this selection is one for native code."""
    return (
        x.size >= WORTH_IT
        and x.shape == mask.shape
        and x.flags.c_contiguous
        and mask.flags.c_contiguous
        and x.itemsize in ITEM_SIZES
    )


def mask_select(x: Array, mask: Array) -> Array:
    """The elements of ``x`` where ``mask`` is True, in row-major order, in memory of their own."""
    if not serves(x, mask):
        return np.ascontiguousarray(x[mask])
    library = _library(x.itemsize)
    blocks = -(-x.size // BLOCK)
    counts = memory.empty((blocks + 1,), np.dtype(np.int64))
    _run(library.address("count"), blocks, x.size, {MASK: mask, COUNTS: counts})
    offsets = np.zeros(blocks + 1, np.int64)
    np.cumsum(counts[:blocks], out=offsets[1:])
    out = memory.empty((int(offsets[-1]),), x.dtype)
    _run(library.address("select"), blocks, x.size, {MASK: mask, SOURCE: x, COUNTS: offsets, TARGET: out})
    return out


def _run(address: int, blocks: int, length: int, arrays: dict[int, Array]) -> None:
    block = Block(heavy=True)
    launch = block.add_launch(address, blocks, max(1, blocks // 64), [0, length, 0, 0, 0, 0])
    for position, parameter in enumerate(arrays):
        block.add_patch(position, launch, parameter)
    native.module().enter(block.seal(), threads.count(), *arrays.values())


@cache
def _library(itemsize: int) -> Library:
    start = recording.now()
    found = shared_library(text(itemsize), GOOD, host_target())
    recording.compiled(start, "", f"mask_select of {itemsize}-byte elements", GOOD, found.source)
    return found


def text(itemsize: int) -> str:
    """The module for elements of ``itemsize`` bytes: ``count`` and ``select``, each ``void (ptr params, i64, i64)``."""
    lanes = 64 // itemsize
    kind, bools = f"<{lanes} x i{8 * itemsize}>", f"<{lanes} x i1>"
    declarations = [
        f"declare {kind} @llvm.experimental.vector.compress.v{lanes}i{8 * itemsize}({kind}, {bools}, {kind})",
        f"declare i{lanes} @llvm.ctpop.i{lanes}(i{lanes})",
        "declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)",
    ]
    functions = [_entry("count", itemsize, lanes), _entry("select", itemsize, lanes)]
    return "\n".join([*functions, *declarations]) + "\n"


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
        offset = code.emit(f"load i64, ptr {here}, align 8")
        place = code.at(target, code.mul(offset, itemsize))
        size = code.mul(total, itemsize)
        code.do(f"call void @llvm.memcpy.p0.p0.i64(ptr {place}, ptr {scratch}, i64 {size}, i1 false)")
        return []

    code.loop("%begin", "%end", 1, [], item)
    code.do("ret void")
    return code.function(f"define void @{name}(ptr noalias %P, i64 %begin, i64 %end) nounwind")


def _compress(code: Code, itemsize: int, lanes: int, source: str, chosen: str, scratch: str, count: str) -> None:
    """The chosen elements of a vector behind the ``count`` that scratch memory holds."""
    kind = f"<{lanes} x i{8 * itemsize}>"
    x = code.emit(f"load {kind}, ptr {source}, align {itemsize}")
    packed = code.emit(
        f"call {kind} @llvm.experimental.vector.compress.v{lanes}i{8 * itemsize}({kind} {x}, <{lanes} x i1> {chosen}, "
        f"{kind} poison)"
    )
    code.do(f"store {kind} {packed}, ptr {code.at(scratch, code.mul(count, itemsize))}, align {itemsize}")
