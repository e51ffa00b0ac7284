"""Fused loops compiled and run: a ``FusedLoop`` and a call's arrays in, the loop's results out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tenferro.engines import recording
from tenferro.engines.cpu import memory, native, threads
from tenferro.engines.cpu.fused_loops import FusedLoop, fused_scan, fused_while, is_array, lanes_of, vectors
from tenferro.engines.cpu.kernel import GOOD, expansion_address, shared_library
from tenferro.engines.cpu.loop_text import (
    CONTROL,
    CONTROL_WORDS,
    COUNT,
    FROM,
    GOES_ON,
    TO,
    TURN,
    VECTOR,
    LoopText,
    Words,
)
from tenferro.engines.cpu.native import Block
from tenferro.engines.cpu.native_entry import WARNING_BIT
from tenferro.engines.cpu.toolchain import Library, Target
from tenferro.engines.cpu.vector_builder import ModuleText
from tenferro.engines.cpu.writer import INLINE_LIMIT
from tenferro.tracer.dims import Leaf, evaluate
from tenferro.tracer.records import dataclass

Array = np.ndarray[Any, Any]
SECONDS_PER_OPERATION = 0.6e-9
"""Of a vector of lanes, or of one scalar in a chain."""
CHUNK_SECONDS = 10e-3
"""What a vector computes between two looks at signals."""
GRAIN_SECONDS = 40e-6
LONG_SECONDS = 50e-6
FIRST_TURNS = 1024


@dataclass
class LoopKernel:
    """The kernels of a fused loop, by lanes."""

    loop: FusedLoop
    target: Target
    program: str
    libraries: dict[int, Library] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    compile_seconds: float = 0.0

    def address(self, lanes: int) -> int:
        """The function's."""
        found = self.libraries.get(lanes)
        if found is None:
            start = recording.now()
            module = ModuleText(share=f"{self.target.cpu} {self.target.features}", permutes=self.target.permutes)
            text = LoopText(self.loop, lanes, self.loop.cost > INLINE_LIMIT, module).text()
            symbols = {name: expansion_address(name, body, self.target) for name, body in module.shared.items()}
            found = shared_library(text, GOOD, self.target, symbols)
            self.libraries[lanes], self.texts[lanes] = found, text
            self.compile_seconds += 1e-9 * (recording.now() - start)
            recording.compiled(start, self.program, self.loop.name, GOOD, found.source)
        return found.address("loop")

    @property
    def code_bytes(self) -> int:
        return max((x.code_bytes for x in self.libraries.values()), default=0)

    def seconds_of(self, turns: int) -> float:
        """So many turns of one vector, roughly."""
        return max(1, self.loop.cost) * SECONDS_PER_OPERATION * turns


def turns_at_once(loop: FusedLoop) -> int:
    """Turns of a vector between two looks at signals."""
    return max(1024, int(CHUNK_SECONDS / (max(1, loop.cost) * SECONDS_PER_OPERATION)))


def loop_kernel(kind: str, params: Mapping[str, Any], target: Target, program: str) -> LoopKernel | None:
    """The kernel of a ``scan`` or ``while``, where its bodies are elementwise."""
    if kind == "scan":
        loop = fused_scan(params["body"], params["carry"], params["walked"])
    else:
        loop = fused_while(params["body"], params["condition"], params["carry"], params["lanes"])
    return None if loop is None else LoopKernel(loop, target, program)


class Call:
    """One run of a fused loop: arrays brought into the form that the kernel takes, and its parameter words."""

    def __init__(self, kernel: LoopKernel, operands: Sequence[Any], turns: int, backwards: bool) -> None:
        self._kernel = kernel
        self.loop = loop = kernel.loop
        self.words = Words(loop)
        carry = [np.ascontiguousarray(x).reshape(np.shape(x)) for x in operands[: loop.carry]]
        self.shape = next((c.shape for c in carry if c.ndim), ())
        self.count = math.prod(self.shape)
        self._lanes = lanes_of(loop, self.count)
        self.carry = carry
        self._entries = 0
        self.control = np.zeros(CONTROL_WORDS, np.int64)
        self._values = [0] * self.words.count
        self._held: list[Array] = []
        self._put(operands)
        xs = operands[loop.carry : loop.carry + loop.walked]
        for k, x in enumerate(xs):
            self._walk(("x", k), ("x step", k), self._whole(np.asarray(x)), turns, backwards)
        self._backwards = backwards

    def _put(self, operands: Sequence[Any]) -> None:
        loop, values = self.loop, self._values
        values[COUNT], values[CONTROL] = self.count, self.control.ctypes.data
        inputs = loop.body.program.inputs
        env = {Leaf("int", i.value.id): int(operands[k]) for k, i in enumerate(inputs) if i.kind == "int"}
        for k, size in enumerate(loop.sizes):
            values[self.words["size", k]] = evaluate(size.expr, env)
        for k in loop.rest:
            x = np.asarray(operands[k])
            if is_array(loop, k):
                if x.ndim == 1:
                    values[self.words["rest stride", k]], values[self.words["rest size", k]] = x.strides[0], x.size
            else:
                x = np.ascontiguousarray(x).reshape(x.shape)
            self._held.append(x)
            values[self.words["rest", k]] = x.ctypes.data

    def _whole(self, x: Array) -> Array:
        """Slices of it are in row-major order."""
        return x if x.ndim == 1 or x[:1].flags.c_contiguous else np.ascontiguousarray(x)

    def _walk(self, name: tuple[str, int], step: tuple[str, int], x: Array, turns: int, backwards: bool) -> None:
        stride = x.strides[0] if len(x) > 1 else 0
        self._held.append(x)
        self._values[self.words[name]] = x.ctypes.data + (stride * (turns - 1) if backwards else 0)
        self._values[self.words[step]] = -stride if backwards else stride

    def stacks(self, turns: int) -> list[Array]:
        """Room for what so many turns leave, where the kernel writes it from now on."""
        loop, part = self.loop, self.loop.body
        made = []
        for k, y in enumerate(part.outputs[loop.carry :]):
            is_lane = getattr(y, "id", None) is not None and part.levels[y.id] == "lane"  # type: ignore[union-attr]
            made.append(memory.empty((turns, *(self.shape if is_lane else ())), y.type.dtype))
            self._walk(("y", k), ("y step", k), made[-1], turns, self._backwards)
        return made

    def move(self, stacks: Sequence[Array], turns: int) -> list[Array]:
        """The same with room for more turns, and what is there kept."""
        larger = self.stacks(turns)
        for old, new in zip(stacks, larger, strict=True):
            new[: len(old)] = old
        return larger

    def run(self, first: int, last: int, share: int | None) -> tuple[int, int, bool]:
        """Turns from ``first`` on and before ``last``; the latch, the turn that was come to, whether it goes on."""
        latch, goes_on, now = native.CLEAN, True, first
        tail = _Tail(self.count, self._lanes if self.count % self._lanes else 0)
        while now < last and goes_on and latch >= WARNING_BIT or not self._entries:
            stop = min(last, now + turns_at_once(self.loop))
            self._values[FROM], self._values[TO], self.control[GOES_ON] = now, stop, 0
            latch = min(latch, self._enter(stop - now, tail, share))
            goes_on = bool(self.control[GOES_ON]) or self.loop.condition is None
            now = stop if goes_on else int(self.control[TURN])
        tail.put_back(self.carry)
        return latch, now, goes_on

    def _enter(self, turns: int, tail: _Tail, share: int | None) -> int:
        """So many turns of all vectors; the latch. From the second time on arrays are written where they are read, but
        for the last vector's lanes, which the one before reads too."""
        total, seconds = vectors(self.count, self._lanes), self._kernel.seconds_of(turns)
        is_in_place = self._entries > 0
        made = [x if is_in_place and x.ndim else memory.empty(x.shape, x.dtype) for x in self.carry]
        is_apart = is_in_place and tail.lanes > 0
        block = Block(heavy=seconds * total > LONG_SECONDS)
        self._launch(block, 0, total - is_apart, seconds, self.carry, made)
        if is_apart:
            before, after = tail.turn(self.carry)
            shifted = [y if x.ndim else x for x, y in zip(self.carry, before, strict=True)]
            self._launch(block, total - 1, 1, seconds, shifted, after, tail.first)
        (latch,) = memory.enter(block, block.seal(), threads.count(share))
        self.carry, self._entries = made, self._entries + 1
        return int(latch)

    def _launch(
        self, block: Block, vector: int, total: int, seconds: float, source: Sequence[Array], target: Sequence[Array],
        first: int = 0,
    ) -> None:  # fmt: skip
        """Vectors of the loop; arrays of source and target begin with lane ``first``."""
        values = list(self._values)
        values[VECTOR] = vector
        for k, (x, y) in enumerate(zip(source, target, strict=True)):
            values[self.words["in", k]] = x.ctypes.data - (first * x.itemsize if x.ndim else 0)
            values[self.words["out", k]] = y.ctypes.data - (first * y.itemsize if y.ndim else 0)
        grain = max(1, round(GRAIN_SECONDS / max(seconds, 1e-9)))
        block.add_launch(self._kernel.address(self._lanes), total, grain, values)


class _Tail:
    """The lanes of a last vector that reads some of the lanes of the one before: their carry, apart from the rest.
    ``lanes``: how many; 0 where each vector has lanes of its own."""

    def __init__(self, count: int, lanes: int) -> None:
        self.lanes = lanes
        self.first = count - lanes
        self._own = count % lanes if lanes else 0
        self._now: list[Array] | None = None

    def turn(self, carry: Sequence[Array]) -> tuple[list[Array], list[Array]]:
        """Where the vector reads from and writes to in the next launch."""
        before = self._now
        if before is None:
            before = [x.reshape(-1)[self.first :].copy() if x.ndim else x.copy() for x in carry]
        self._now = [np.empty_like(x) for x in before]
        return before, self._now

    def put_back(self, carry: Sequence[Array]) -> None:
        """The vector's lanes go where they belong."""
        for x, apart in zip(carry, self._now or [], strict=False):
            if x.ndim:
                x.reshape(-1)[-self._own :] = apart[-self._own :]
        self._now = None


def scan(
    kernel: LoopKernel, operands: Sequence[Any], length: int, backwards: bool, share: int | None
) -> tuple[tuple[Array, ...], int]:
    """The results of a scan, and the latch."""
    call = Call(kernel, operands, length, backwards)
    stacks = call.stacks(length)
    latch, _, _ = call.run(0, length, share)
    return (*call.carry, *stacks), latch


def while_loop(kernel: LoopKernel, operands: Sequence[Any], share: int | None) -> tuple[tuple[Array, ...], int]:
    """The results of a while loop, and the latch."""
    call = Call(kernel, operands, 0, False)
    stacked = len(kernel.loop.body.outputs) > kernel.loop.carry
    room = FIRST_TURNS if stacked else 2**62
    stacks = call.stacks(room) if stacked else []
    now, goes_on, latch = 0, True, native.CLEAN
    while True:
        found, now, goes_on = call.run(now, room, share)
        latch = min(latch, found)
        if not goes_on or latch < WARNING_BIT:
            break
        room *= 2
        stacks = call.move(stacks, room)
    return (*call.carry, *(np.array(s[:now]) for s in stacks)), latch
