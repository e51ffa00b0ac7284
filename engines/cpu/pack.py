"""Copies between a strided row and contiguous scratch memory, in scalar code: one function per element size and rank.

``@pack{size}x{rank}(scratch, base, sizes, strides, first, count)`` brings elements [first, first + count) of the row,
in row-major order over its loops; ``@unpack…`` takes them back.
"""

from __future__ import annotations

from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.vector_builder import ModuleText

SIGNATURE = "(ptr noalias %scratch, ptr noalias %base, ptr %sizes, ptr %strides, i64 %first, i64 %count)"


def copy_function(module: ModuleText, itemsize: int, rank: int, pack: bool) -> str:
    """The name of the copy for elements of ``itemsize`` bytes and ``rank`` row loops; written into the module once."""
    name = f"@{'pack' if pack else 'unpack'}{itemsize}x{rank}"
    if (name,) not in module.outlined:
        module.outlined[(name,)] = (name, None)
        module.functions.append(_text(name, itemsize, rank, pack))
    return name


def _text(name: str, itemsize: int, rank: int, pack: bool) -> str:
    code = Code()
    sizes = [code.word("%sizes", j) for j in range(rank)]
    strides = [code.word("%strides", j) for j in range(rank)]
    place = code.alloca(8)  # elements done
    code.do(f"store i64 0, ptr {place}, align 8")
    head, run, done = code.new_label("head"), code.new_label("run"), code.new_label("done")
    code.jump(head)
    code.start(head)
    so_far = code.emit(f"load i64, ptr {place}, align 8")
    code.branch(code.compare("slt", so_far, "%count"), run, done)
    code.start(run)
    rest = code.add("%first", so_far)
    base, column = "%base", rest
    for j in reversed(range(1, rank)):
        column = code.emit(f"urem i64 {rest}, {sizes[j]}")
        rest = code.emit(f"udiv i64 {rest}, {sizes[j]}")
        base = code.at(base, code.mul(column, strides[j]))
        if j == rank - 1:
            inner = column
    if rank == 1:
        inner = rest
    base = code.at(base, code.mul(rest, strides[0]))
    length = code.minimum(code.sub("%count", so_far), code.sub(sizes[-1], inner))
    target = code.at("%scratch", code.mul(so_far, itemsize))
    kind = f"i{8 * itemsize}"

    def element(k: str, _: list[str]) -> list[str]:
        far = code.at(base, code.mul(k, strides[-1]))
        near = code.at(target, code.mul(k, itemsize))
        source, sink = (far, near) if pack else (near, far)
        value = code.emit(f"load {kind}, ptr {source}, align 1")
        code.do(f"store {kind} {value}, ptr {sink}, align 1")
        return []

    code.loop(0, length, 1, [], element)
    code.do(f"store i64 {code.add(so_far, length)}, ptr {place}, align 8")
    code.jump(head)
    code.start(done)
    code.do("ret void")
    return code.function(f"define internal void {name}{SIGNATURE} noinline nounwind")
