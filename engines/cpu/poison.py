"""Dead memory made useless, to find what reads it: with ``TENFERRO_POISON=1`` every byte of a temporary that is dead
becomes 0xFF, which is a NaN of each float and −1 of each integer, and so does memory when the pool hands it out and
when it comes back.

In: the binder of a block, and positions that nothing reads any more. Out: a launch in the block that overwrites them.
Results keep their bits, or something has been read too late.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING

from tenferro.engines.cpu import native
from tenferro.engines.cpu.code import Code
from tenferro.engines.cpu.kernel import FAST, shared_library
from tenferro.engines.cpu.toolchain import Library, host_target
from tenferro.tracer.config import config

if TYPE_CHECKING:
    from tenferro.engines.cpu.binding import Binder

PATTERN = 0xFF
BLOCK = 1 << 16
"""Bytes of a work item."""
SIZE, TARGET = 1, 2

_forced = False


def is_on() -> bool:
    """Whether blocks that are bound now overwrite what dies in them."""
    return _forced or config().poison


@contextmanager
def poisoned() -> Iterator[None]:
    """As with the setting, for programs that are bound inside, and for the pool meanwhile."""
    global _forced
    _forced = True
    native.function("set_poison")(1)
    try:
        yield
    finally:
        _forced = False
        native.function("set_poison")(int(config().poison))


def overwrite(binder: Binder, positions: Sequence[int]) -> None:
    """Launches of the open block that overwrite these arrays of the run."""
    block = binder.open_block()
    for position in positions:
        size = binder.sizes[position]
        launch = block.add_launch(_library().address("poison"), -(-size // BLOCK), 1, [0, size, 0])
        block.add_patch(binder.patch(position), launch, TARGET)


@cache
def _library() -> Library:
    return shared_library(text(), FAST, host_target())


def text() -> str:
    """The module: ``poison``, a kernel over blocks of bytes."""
    code = Code()
    size, target = code.word("%P", SIZE), code.pointer("%P", TARGET)

    def item(b: str, _: list[str]) -> list[str]:
        first = code.mul(b, BLOCK)
        count = code.minimum(code.sub(size, first), BLOCK)
        place = code.at(target, first)
        code.do(f"call void @llvm.memset.p0.i64(ptr {place}, i8 {PATTERN - 256}, i64 {count}, i1 false)")
        return []

    code.loop("%begin", "%end", 1, [], item)
    code.do("ret void")
    function = code.function("define void @poison(ptr noalias %P, i64 %begin, i64 %end) nounwind")
    return f"{function}\ndeclare void @llvm.memset.p0.i64(ptr, i8, i64, i1)\n"
