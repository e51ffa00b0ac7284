"""Scans in a block: a scan whose body is elementwise and whose sizes are known goes in, launches of its kernel come
out.

So a program around a loop is one native block. A loop of many turns over numbers is several launches, between which
signals are seen; the carry goes back and forth between two places. What cannot be bound like this (arrays with gaps,
very long loops, ``while``) is left to ``tenferro.engines.cpu.loop_kernel``, at a seam.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.engines.cpu.donating import Place
from tenferro.engines.cpu.fused_loops import is_array, lanes_of, vectors
from tenferro.engines.cpu.kernel import GOOD
from tenferro.engines.cpu.layout import Strided, contiguous
from tenferro.engines.cpu.loop_kernel import GRAIN_SECONDS, LoopKernel, turns_at_once
from tenferro.engines.cpu.loop_text import COUNT, FROM, TO, Words
from tenferro.engines.cpu.native_entry import ENTRY_WORDS, EVEN, FIRST, ODD, SCAN_WORDS, STEP
from tenferro.engines.cpu.traffic import Traffic
from tenferro.engines.values import scalar_array
from tenferro.lowering.exec_program import Instruction, Slot, Source
from tenferro.tracer.dims import Leaf, evaluate
from tenferro.tracer.program import DimScalar, Literal

if TYPE_CHECKING:
    from tenferro.engines.cpu.binding import Binder, BoundPlan

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
    if count == 0 or launches > (1 if shape else MOST_LAUNCHES):
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
        binder.settle(seconds * total)

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


# -- bodies that are blocks -------------------------------------------------------------------------------------------


def add_block_scan(binder: Binder, instruction: Instruction) -> bool:
    """Append a scan whose body is one native block; False where it is to run at a seam."""
    params = instruction.params
    length = evaluate(params["length"], binder.env)
    if length == 0:
        return False
    operands = [_Operand(binder, s, k) for k, s in enumerate(instruction.inputs)]
    count, walked = params["carry"], params["walked"]
    if not all(o.is_dense() for o in operands[:count]):
        return False
    if not all(o.position is not None for o in operands[count : count + walked]):
        return False
    bound = _bound_body(binder, instruction, operands)
    if bound is None or bound.only is None or len(set(bound.picks)) < len(bound.picks):
        return False
    _BlockScan(binder, instruction, operands, bound, length).add()
    return True


def _bound_body(binder: Binder, instruction: Instruction, operands: Sequence[_Operand]) -> BoundPlan | None:
    """The body's plan on the layouts that its inputs have at each turn."""
    count, walked = instruction.params["carry"], instruction.params["walked"]
    plan = binder.kernels.body_plan(instruction.params["body"])
    env: dict[Leaf, int] = {}
    places: dict[int, Place] = {}
    for k, (declared, o) in enumerate(zip(plan.program.inputs, operands, strict=True)):
        strided = o.strided
        if declared.kind == "int":
            assert o.made is not None
            env[Leaf("int", k)] = int(o.made)
        elif k < count:
            strided = Strided(0, strided.shape, contiguous(strided.shape, o.itemsize))
        elif k < count + walked:
            strided = Strided(0, strided.shape[1:], strided.strides[1:])
        else:
            strided = Strided(0, strided.shape, strided.strides)
        env.update((Leaf("extent", k, axis), n) for axis, n in enumerate(strided.shape))
        places[declared.slot.index] = Place(k, strided)
    return type(binder)(plan, binder.kernels, env, places, len(operands), GOOD).bind(0)


class _BlockScan:
    """One scan of a block being appended."""

    def __init__(
        self, binder: Binder, instruction: Instruction, operands: Sequence[_Operand], bound: BoundPlan, length: int
    ) -> None:
        assert bound.only is not None and bound.only.block.buffer is not None
        self._binder = binder
        self._instruction = instruction
        self._operands = operands
        self._bound = bound
        self._only = bound.only
        self._length = length
        self._made = len(bound.only.block.outputs)
        entries = self._made + len(bound.only.positions)
        body = bound.only.block.buffer.tolist()
        table = SCAN_WORDS + self._made * ENTRY_WORDS  # where entry 0 stands; those of outputs stand before it
        self._words = [0, length, table, SCAN_WORDS + entries * ENTRY_WORDS]
        self._words += [0] * (entries * ENTRY_WORDS) + body
        self._patches: list[tuple[int, int, int]] = []

    def add(self) -> None:
        """The launch."""
        binder, instruction = self._binder, self._instruction
        count, walked = instruction.params["carry"], instruction.params["walked"]
        results = [binder.fresh(s.index, instruction.line).position for s in instruction.outputs]
        spare = [binder.allocate(*binder.declared[p], None) if self._length > 1 else p for p in results[:count]]
        # The last turn writes to the results.
        written = [(r, s) if self._length % 2 else (s, r) for r, s in zip(results[:count], spare, strict=True)]
        for place, k in enumerate(self._only.positions):
            o = self._operands[k]
            if k < count:
                self._entry(place, o, o.strided.offset)
                self._patch(place, EVEN, written[k][1], 0)
                self._patch(place, ODD, written[k][0], 0)
            elif k < count + walked:
                self._walk(place, o.position, o.strided.offset, o.strided.strides[0])
            else:
                self._entry(place, o, o.strided.offset)
        roles = {pick - 1: k for k, pick in enumerate(self._bound.picks)}
        for j, (shape, dtype, _) in enumerate(self._only.block.outputs):
            role = roles.get(j)
            if role is None:
                position = binder.allocate(shape, dtype, None)
                self._fixed(-1 - j, position)
            elif role < count:
                self._fixed(-1 - j, written[role][0])
                self._patch(-1 - j, ODD, written[role][1], 0)
            else:
                whole, kind = binder.declared[results[role]]
                self._walk(-1 - j, results[role], 0, math.prod(whole[1:]) * kind.itemsize)
        self._launch()

    def _launch(self) -> None:
        binder, block = self._binder, self._binder.open_block()
        origin = binder.stage.launch("scan", self._traffic)
        launch = block.add_launch(0, 1, 1, self._words, origin)
        for word, position, offset in self._patches:
            block.add_patch(binder.patch(position), launch, word, offset)
        block.held.append(self._bound)
        binder.settle(self._bound.estimate * self._length)
        binder.checked = True

    def _word(self, entry: int, field: int) -> int:
        return int(SCAN_WORDS + (self._made + entry) * ENTRY_WORDS + field // 8)

    def _patch(self, entry: int, field: int, position: int, offset: int) -> None:
        """One of the addresses of an entry, in place of what it was before."""
        word = self._word(entry, field)
        self._patches = [p for p in self._patches if p[0] != word]
        self._patches.append((word, position, offset))

    def _fixed(self, entry: int, position: int, offset: int = 0) -> None:
        for field in (FIRST, EVEN, ODD):
            self._patch(entry, field, position, offset)

    def _entry(self, entry: int, operand: _Operand, offset: int) -> None:
        """An operand that stays the same."""
        if operand.position is not None:
            self._fixed(entry, operand.position, offset)
            return
        assert operand.made is not None
        for field in (FIRST, EVEN, ODD):
            self._words[self._word(entry, field)] = operand.made.ctypes.data
        self._binder.open_block().held.append(operand.made)

    def _walk(self, entry: int, position: int | None, offset: int, step: int) -> None:
        """What advances from turn to turn."""
        assert position is not None
        backwards = self._instruction.params["reverse"]
        self._fixed(entry, position, offset + (step * (self._length - 1) if backwards else 0))
        self._words[self._word(entry, STEP)] = -step if backwards else step

    def _traffic(self) -> Traffic:
        """Arrays in, each once; what comes out of it is small beside them."""
        return Traffic(sum(math.prod(o.strided.shape) * o.itemsize for o in self._operands), 0)
