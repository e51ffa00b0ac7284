"""Scans in a block: a scan whose body is elementwise and whose sizes are known goes in, launches of its kernel come
out.

So a program around a loop is one native block. A loop of many turns is several launches, between which signals are
seen;
the carry goes back and forth between two arrays. What cannot be bound like this (arrays with gaps, very long loops,
``while``) is left to ``tenferro.engines.cpu.loop_kernel``, at a seam.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.engines.cpu.fused_loops import is_array, lanes_of, vectors
from tenferro.engines.cpu.layout import Strided, contiguous
from tenferro.engines.cpu.loop_kernel import GRAIN_SECONDS, LoopKernel, turns_at_once
from tenferro.engines.cpu.loop_text import COUNT, FROM, TO, Words
from tenferro.engines.cpu.traffic import Traffic
from tenferro.engines.values import scalar_array
from tenferro.lowering.exec_program import Instruction, Slot, Source
from tenferro.tracer.dims import Leaf, evaluate
from tenferro.tracer.program import DimScalar, Literal

if TYPE_CHECKING:
    from tenferro.engines.cpu.binding import Binder

Array = np.ndarray[Any, Any]
MOST_LAUNCHES = 64


class _Operand:
    """Where an operand's elements are: an array of the run, or one made now."""

    def __init__(self, binder: Binder, source: Source, k: int) -> None:
        self.position: int | None = None
        self.made: Array | None = None
        if isinstance(source, Slot):
            place = binder.places[source.index]
            self.position, self.strided = place.position, place.strided
            self.itemsize = binder.types[source.index].dtype.itemsize
        else:
            self.made = scalar_array(source, binder.env)
            self.strided, self.itemsize = Strided(0, (), ()), self.made.itemsize

    def is_dense(self, axes: int = 0) -> bool:
        """Whether the elements behind the first axes lie in row-major order without gaps."""
        shape, strides = self.strided.shape[axes:], self.strided.strides[axes:]
        wanted = contiguous(shape, self.itemsize)
        return all(n == 1 or a == b for n, a, b in zip(shape, strides, wanted, strict=True))


def add_scan(binder: Binder, instruction: Instruction) -> bool:
    """Append a scan to the binder's block; False where it is to run at a seam."""
    params = instruction.params
    kernel = binder.kernels.loop("scan", params)
    length = evaluate(params["length"], binder.env)
    if kernel is None or length == 0:
        return False
    loop, operands = kernel.loop, [_Operand(binder, s, k) for k, s in enumerate(instruction.inputs)]
    if not _are_dense(kernel, operands):
        return False
    shape: tuple[int, ...] = next((o.strided.shape for o in operands[: loop.carry] if o.strided.shape), ())
    count, most = math.prod(shape), turns_at_once(loop)
    launches = -(-length // most)
    if count == 0 or launches > MOST_LAUNCHES:
        return False
    _Scan(binder, instruction, kernel, operands, count, length).add(most)
    return True


def _are_dense(kernel: LoopKernel, operands: Sequence[_Operand]) -> bool:
    loop = kernel.loop
    for k, o in enumerate(operands):
        if k < loop.carry:
            fits = o.is_dense()
        elif k < loop.carry + loop.walked:
            fits = o.position is not None and o.is_dense(1)
        elif k in loop.rest:
            fits = len(o.strided.shape) == 1 if is_array(loop, k) else o.is_dense()
        else:
            fits = True
        if not fits:
            return False
    return True


class _Scan:
    """One scan being appended."""

    def __init__(
        self, binder: Binder, instruction: Instruction, kernel: LoopKernel, operands: Sequence[_Operand], count: int,
        length: int,
    ) -> None:  # fmt: skip
        self._binder = binder
        self._instruction = instruction
        self._kernel = kernel
        self._operands = operands
        self._count = count
        self._length = length
        self._words = Words(kernel.loop)
        self._results: list[int] = []

    def add(self, most: int) -> None:
        """The launches, each of so many turns at most."""
        binder, loop, instruction = self._binder, self._kernel.loop, self._instruction
        results = [binder.fresh(s.index, instruction.line) for s in instruction.outputs]
        self._results = [place.position for place in results]
        source: list[tuple[_Operand | None, int]] = [(o, 0) for o in self._operands[: loop.carry]]
        ends = list(range(most, self._length, most)) + [self._length]
        final = [(None, place.position) for place in results[: loop.carry]]
        between = [(None, self._spare(k)) for k in range(loop.carry)] if len(ends) > 1 else final
        first = 0
        for number, end in enumerate(ends):
            target = final if (len(ends) - 1 - number) % 2 == 0 else between
            self._launch(source, target, [place.position for place in results[loop.carry :]], first, end)
            source, first = list(target), end

    def _spare(self, k: int) -> int:
        operand, dtype = self._operands[k], self._kernel.loop.body.program.inputs[k].value.type.dtype
        return self._binder.allocate(operand.strided.shape, dtype, None)

    def _launch(
        self, source: Sequence[tuple[_Operand | None, int]], target: Sequence[tuple[_Operand | None, int]],
        stacks: Sequence[int], first: int, end: int,
    ) -> None:  # fmt: skip
        binder, kernel, words = self._binder, self._kernel, self._words
        loop, lanes = kernel.loop, lanes_of(kernel.loop, self._count)
        values = [0] * words.count
        values[COUNT], values[FROM], values[TO] = self._count, first, end
        total = vectors(self._count, lanes)
        seconds = kernel.seconds_of(end - first)
        grain = max(1, min(total, round(GRAIN_SECONDS / max(seconds, 1e-9))))
        self._fill_sizes(values)
        backwards = self._instruction.params["reverse"]
        patches: list[tuple[int, int, int]] = []  # (word, position, bytes)
        for k, (operand, position) in enumerate(source):
            if operand is None:
                patches.append((words["in", k], position, 0))
            else:
                self._read(operand, words["in", k], values, patches)
        patches += [(words["out", k], position, 0) for k, (_, position) in enumerate(target)]
        for k, operand in enumerate(self._operands[loop.carry : loop.carry + loop.walked]):
            assert operand.position is not None
            step = operand.strided.strides[0] if self._length > 1 else 0
            start = operand.strided.offset + (step * (self._length - 1) if backwards else 0)
            patches.append((words["x", k], operand.position, start))
            values[words["x step", k]] = -step if backwards else step
        for k, position in enumerate(stacks):
            shape, dtype = binder.declared[position]
            step = math.prod(shape[1:]) * dtype.itemsize
            patches.append((words["y", k], position, step * (self._length - 1) if backwards else 0))
            values[words["y step", k]] = -step if backwards else step
        for k in loop.rest:
            self._read(self._operands[k], words["rest", k], values, patches)
        block = binder.open_block()
        origin = binder.stage.launch("loop", self._traffic)
        launch = block.add_launch(lambda level: kernel.address(lanes), total, grain, values, origin)
        for word, position, offset in patches:
            block.add_patch(binder.patch(position), launch, word, offset)
        binder.block_seconds += seconds * total

    def _read(
        self, operand: _Operand, word: int, values: list[int], patches: list[tuple[int, int, int]]
    ) -> None:  # fmt: skip
        if operand.position is not None:
            patches.append((word, operand.position, operand.strided.offset))
            return
        assert operand.made is not None
        values[word] = operand.made.ctypes.data
        self._binder.open_block().held.append(operand.made)

    def _fill_sizes(self, values: list[int]) -> None:
        loop, words = self._kernel.loop, self._words
        env: dict[Leaf, int] = {}
        for k, declared in enumerate(loop.body.program.inputs):
            source = self._instruction.inputs[k]
            if declared.kind == "int":
                assert isinstance(source, Literal | DimScalar)
                env[Leaf("int", declared.value.id)] = int(scalar_array(source, self._binder.env))
        for k, size in enumerate(loop.sizes):
            values[words["size", k]] = evaluate(size.expr, env)
        for k in loop.rest:
            if is_array(loop, k):
                strided = self._operands[k].strided
                values[words["rest stride", k]], values[words["rest size", k]] = strided.strides[0], strided.shape[0]

    def _traffic(self) -> Traffic:
        """Arrays in, arrays out, each once."""
        sizes = [math.prod(o.strided.shape) * o.itemsize for o in self._operands]
        made = [self._binder.declared[position] for position in self._results]
        return Traffic(sum(sizes), sum(math.prod(shape) * dtype.itemsize for shape, dtype in made))
