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
    LoopText,
    Words,
)
from tenferro.engines.cpu.native import Block
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
        self.begin = carry
        self.buffers = [[memory.empty(c.shape, c.dtype) for c in carry] for _ in range(2)]
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
        lanes = lanes_of(self.loop, self.count)
        address, total = self._kernel.address(lanes), vectors(self.count, lanes)
        most = turns_at_once(self.loop)
        latch, goes_on, entries = native.CLEAN, True, 0
        source, now = self.begin, first
        while now < last and goes_on and latch == native.CLEAN or not entries:
            target = self.buffers[entries & 1]
            stop = min(last, now + most)
            self._values[FROM], self._values[TO], self.control[GOES_ON] = now, stop, 0
            for k, (x, y) in enumerate(zip(source, target, strict=True)):
                self._values[self.words["in", k]], self._values[self.words["out", k]] = x.ctypes.data, y.ctypes.data
            seconds = self._kernel.seconds_of(stop - now)
            block = Block(heavy=seconds * total > LONG_SECONDS)
            block.add_launch(address, total, max(1, round(GRAIN_SECONDS / max(seconds, 1e-9))), self._values)
            (latch,) = memory.enter(block, block.seal(), threads.count(share))
            goes_on = bool(self.control[GOES_ON]) or self.loop.condition is None
            now = stop if goes_on else int(self.control[TURN])
            source, entries = target, entries + 1
        if last < 2**62 and goes_on and self.loop.condition is not None:  # it will be entered again
            self.buffers = [[memory.empty(c.shape, c.dtype) for c in source] for _ in range(2)]
        self.begin = source
        return latch, now, goes_on


def scan(
    kernel: LoopKernel, operands: Sequence[Any], length: int, backwards: bool, share: int | None
) -> tuple[tuple[Array, ...], int]:
    """The results of a scan, and the latch."""
    call = Call(kernel, operands, length, backwards)
    stacks = call.stacks(length)
    latch, _, _ = call.run(0, length, share)
    return (*call.begin, *stacks), latch


def while_loop(kernel: LoopKernel, operands: Sequence[Any], share: int | None) -> tuple[tuple[Array, ...], int]:
    """The results of a while loop, and the latch."""
    call = Call(kernel, operands, 0, False)
    stacked = len(kernel.loop.body.outputs) > kernel.loop.carry
    room = FIRST_TURNS if stacked else 2**62
    stacks = call.stacks(room) if stacked else []
    now, goes_on, latch = 0, True, native.CLEAN
    while True:
        latch, now, goes_on = call.run(now, room, share)
        if not goes_on or latch != native.CLEAN:
            break
        room *= 2
        stacks = call.move(stacks, room)
    return (*call.begin, *(np.array(s[:now]) for s in stacks)), latch
