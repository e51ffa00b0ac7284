"""Copies between a strided row and contiguous scratch memory, in scalar code: one function per element size and rank.

``@pack{size}x{rank}(scratch, base, sizes, strides, first, count)`` brings elements [first, first + count) of the row,
in row-major order over its loops; ``@unpack…`` takes them back.
"""

from __future__ import annotations

from tenferro.engines.cpu import elements
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


def padding_function(module: ModuleText, size: int) -> str:
    """The name of ``(pad, source, count)``: ``count`` bytes, and zeros up to ``size``; written into the module once."""
    name = f"@padded{size}"
    if (name,) not in module.outlined:
        module.outlined[(name,)] = (name, None)
        code = Code()
        elements.clear(module, code, "%pad", size)
        module.declare("declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)")
        code.do("call void @llvm.memcpy.p0.p0.i64(ptr %pad, ptr %source, i64 %count, i1 false)")
        code.do("ret void")
        header = f"define internal void {name}(ptr noalias %pad, ptr noalias %source, i64 %count) noinline nounwind"
        module.functions.append(code.function(header))
    return name


def _text(name: str, itemsize: int, rank: int, pack: bool) -> str:
    """Runs along the last loop, one after another; the indices of the other loops are carried like an odometer's."""
    code = Code()
    sizes = [code.word("%sizes", j) for j in range(rank)]
    strides = [code.word("%strides", j) for j in range(rank)]
    start = _indices(code, "%first", sizes)
    head, run, done = code.new_label("head"), code.new_label("run"), code.new_label("done")
    before = code.block
    code.jump(head)
    code.start(head)
    so_far, index = code.fresh(), [code.fresh() for _ in range(rank)]
    mark = len(code.lines)
    code.branch(code.compare("slt", so_far, "%count"), run, done)
    code.start(run)
    base = "%base"
    for j in range(rank):
        base = code.at(base, code.mul(index[j], strides[j]))
    length = code.minimum(code.sub("%count", so_far), code.sub(sizes[-1], index[-1]))
    _copy_run(code, base, strides[-1], code.at("%scratch", code.mul(so_far, itemsize)), length, itemsize, pack)
    following = code.add(so_far, length)
    after = _advanced(code, index, sizes)
    back = code.block
    code.jump(head)
    code.lines[mark:mark] = [
        f"  {name} = phi i64 [ {first}, %{before} ], [ {then}, %{back} ]"
        for name, first, then in zip([so_far, *index], ["0", *start], [following, *after], strict=True)
    ]
    code.start(done)
    code.do("ret void")
    return code.function(f"define internal void {name}{SIGNATURE} noinline nounwind")


def _indices(code: Code, number: str, sizes: list[str]) -> list[str]:
    """The indices of a row-major number. A row of no elements is copied too: division by its size would be a trap."""
    found: list[str] = []
    for size in reversed(sizes[1:]):
        empty = code.compare("eq", size, 0)
        size = code.emit(f"select i1 {empty}, i64 1, i64 {size}")
        found.insert(0, code.emit(f"urem i64 {number}, {size}"))
        number = code.emit(f"udiv i64 {number}, {size}")
    return [number, *found]


def _advanced(code: Code, index: list[str], sizes: list[str]) -> list[str]:
    """The indices of the next run: the last one is 0 again, and a carry goes up."""
    if len(index) == 1:
        return ["0"]
    found, carry = ["0"], "1"
    for j in reversed(range(len(index) - 1)):
        moved = code.add(index[j], carry)
        if j == 0:
            found.insert(0, moved)
            break
        wraps = code.compare("eq", moved, sizes[j])
        found.insert(0, code.emit(f"select i1 {wraps}, i64 0, i64 {moved}"))
        carry = code.emit(f"zext i1 {wraps} to i64")
    return found


def _copy_run(code: Code, base: str, stride: str, target: str, length: str, itemsize: int, pack: bool) -> None:
    kind = f"i{8 * itemsize}"

    def element(k: str, _: list[str]) -> list[str]:
        far = code.at(base, code.mul(k, stride))
        near = code.at(target, code.mul(k, itemsize))
        source, sink = (far, near) if pack else (near, far)
        value = code.emit(f"load {kind}, ptr {source}, align 1")
        code.do(f"store {kind} {value}, ptr {sink}, align 1")
        return []

    code.loop(0, length, 1, [], element)
