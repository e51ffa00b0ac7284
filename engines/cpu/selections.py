"""Selections by masks, bound: an instruction in, an action that native code carries out and the tail after it out."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tenferro.engines.cpu import memory
from tenferro.engines.cpu.actions import Drop, Select
from tenferro.engines.cpu.donating import Place
from tenferro.engines.cpu.layout import Strided, common_stride, is_ordered
from tenferro.lowering.exec_program import Instruction, Slot
from tenferro.tracer.dims import Leaf
from tenferro.tracer.errors import ShapeError

if TYPE_CHECKING:
    from tenferro.engines.cpu.binding import Binder, Tail


def note_extents(tail: Tail, extents: Sequence[int], runtime: dict[Leaf, int]) -> None:
    """What a run has measured. ShapeError where that was another number before, as of a mask that was written to."""
    for (leaf, _, _), n in zip(tail.leaves, extents, strict=True):
        before = runtime.setdefault(leaf, n)
        if before != n:
            raise ShapeError(
                f"mask_select: a mask selects {n} and has selected {before}; needed one that nobody writes to meanwhile"
            )


def bind_selection(binder: Binder, instruction: Instruction, number: int) -> Tail | None:
    """Step ``number``, a selection of rows that lie at equal distances; None of others, which NumPy is to make."""
    from tenferro.engines.cpu.binding import Tail

    x, mask = instruction.inputs
    if not isinstance(x, Slot) or not isinstance(mask, Slot):
        return None
    whole, chosen = (binder.places[s.index].strided for s in (x, mask))
    dtype, leading = binder.types[x.index].dtype, len(chosen.shape)
    row = Strided(0, whole.shape[leading:], whole.strides[leading:])
    stride = common_stride(whole.shape[:leading], whole.strides[:leading])
    if stride is None or not is_ordered(row, dtype.itemsize) or not is_ordered(chosen, 1):
        return None
    first = binder.positions
    source, by = binder.array_of(x.index), binder.array_of(mask.index)
    binder.close_block()
    output, slot = binder.new_position(), instruction.outputs[0].index
    rows, tag = math.prod(chosen.shape), memory.line_tag(instruction.line)
    binder.actions.append(Select(instruction, source, by, output, rows, row.shape, stride, dtype, tag, number))
    if views := tuple([p for p in dict.fromkeys((source, by)) if p >= first]):  # they hold what they are views of
        binder.actions.append(Drop(views))
    binder.owned.add(output)
    binder.put(slot, Place(output, Strided(0, (), ())))
    leaf = instruction.runtime_extent(0, 0)
    return Tail(number + 1, binder, (slot,), () if leaf is None else ((leaf, output, 0),))
