"""Loops on the CPU: a control instruction and its arrays in, its results out, the turns run natively where they can be.

A body that is one native block is entered by native code turn after turn (``native_loop``): the carry goes back and
forth between two buffers, slices are addresses that advance, stacked results are written where they belong. Other
bodies (with seams, or loops of their own) are run turn by turn from Python.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.engines.cpu import memory, native, threads
from tenferro.engines.cpu.native_entry import ENTRY_WORDS, LATCH, WARNING_BIT
from tenferro.engines.cpu.native_loop import (
    ANSWER,
    BODY,
    BODY_TABLE,
    CONDITION,
    CONDITION_TABLE,
    ENDED,
    IS_LONG,
    LOOP_WORDS,
    THREADS,
    TURN,
    TURNS,
)
from tenferro.tracer.records import dataclass

if TYPE_CHECKING:
    from tenferro.engines.cpu.binding import BoundPlan, Enter
    from tenferro.engines.cpu.engine import CpuExecutable

Array = np.ndarray[Any, Any]
LONG_SECONDS = 50e-6
FIRST_TURNS = 256
"""Turns of a loop that stacks what it has done for which there is room at first; the room doubles."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a native loop did: its results, and the latch of its kernels."""

    results: tuple[Array, ...]
    latch: int


class _Table:
    """A block's own copy, and where its arrays lie at each turn. Entries are named as patches name arrays."""

    def __init__(self, only: Enter) -> None:
        template = only.block.buffer
        assert template is not None
        self.only = only
        self.block = template.copy()
        self._outputs = len(only.block.outputs)
        self.words = np.zeros((self._outputs + len(only.positions), ENTRY_WORDS), np.int64)
        self.held: list[Array] = []

    @property
    def origin(self) -> int:
        """The address of entry 0; outputs stand before it."""
        return int(self.words.ctypes.data) + self._outputs * ENTRY_WORDS * 8

    def put(self, position: int, first: int, even: int, odd: int, step: int) -> None:
        """The addresses of array ``position``: a place among those handed to the block, or −1 minus an output's."""
        self.words[self._outputs + position] = (first, even, odd, step)

    def fixed(self, position: int, array: Array) -> None:
        """The same array at every turn."""
        address = array.ctypes.data
        self.held.append(array)
        self.put(position, address, address, address, 0)


@dataclass(slots=True)
class _Carry:
    """One value that is carried: where it begins, and two buffers that it is written to in turn."""

    begin: Array
    buffers: tuple[Array, Array]

    @classmethod
    def of(cls, begin: Array) -> _Carry:
        """With buffers of its own."""
        begin = np.ascontiguousarray(begin).reshape(begin.shape)
        made = (memory.empty(begin.shape, begin.dtype), memory.empty(begin.shape, begin.dtype))
        return cls(begin, made)

    def read(self, table: _Table, position: int) -> None:
        """Entry of the value before the turn."""
        first, (a, b) = self.begin.ctypes.data, self.buffers
        table.put(position, first, b.ctypes.data, a.ctypes.data, 0)

    def write(self, table: _Table, position: int) -> None:
        """Entry of the value after the turn."""
        a, b = self.buffers
        table.put(position, a.ctypes.data, a.ctypes.data, b.ctypes.data, 0)

    def after(self, turns: int) -> Array:
        """The value after so many turns."""
        return self.begin.copy() if not turns else self.buffers[(turns - 1) & 1]


def scan(unit: CpuExecutable, operands: Sequence[Any], params: Mapping[str, Any], share: int | None) -> Found | None:
    """``scan`` by native turns; None where its body is no single block."""
    count, walked, length = params["carry"], params["walked"], params["length"]
    if not length:
        return None
    xs = [np.asarray(x) for x in operands[count : count + walked]]
    carried = [_Carry.of(np.asarray(x)) for x in operands[:count]]
    rest = _rest(unit, operands[count + walked :], count + walked)
    bound = unit.bound([*(c.begin for c in carried), *(x[0] for x in xs), *rest])
    if not _is_native(bound):
        return None
    assert bound.only is not None
    table = _Table(bound.only)
    backwards = params["reverse"]
    stacks = _stacks(bound, count, length)
    for place, position in enumerate(bound.only.positions):
        if position < count:
            carried[position].read(table, place)
        elif position < count + walked:
            _walk(table, place, xs[position - count], length, backwards)
        else:
            table.fixed(place, np.asarray(rest[position - count - walked]))
    _outputs(table, bound, carried, stacks, length, backwards)
    latch = _run([table], 0, length, bound.estimate * length, share)[0]
    return Found((*(c.after(length) for c in carried), *stacks), latch)


def while_loop(
    unit: CpuExecutable, asks: CpuExecutable, operands: Sequence[Any], params: Mapping[str, Any], share: int | None
) -> Found | None:
    """``while`` by native turns; None where its bodies are no single blocks."""
    count = params["carry"]
    carried = [_Carry.of(np.asarray(x)) for x in operands[:count]]
    rest, other = _rest(unit, operands[count:], count), _rest(asks, operands[count:], count)
    begin = [c.begin for c in carried]
    bound, question = unit.bound([*begin, *rest]), asks.bound([*begin, *other])
    if not (_is_native(bound) and _is_native(question)):
        return None
    assert bound.only is not None and question.only is not None
    table, asked = _Table(bound.only), _Table(question.only)
    for one, values in ((table, rest), (asked, other)):
        for place, position in enumerate(one.only.positions):
            if position < count:
                carried[position].read(one, place)
            else:
                one.fixed(place, np.asarray(values[position - count]))
    answer = _made(asked, question.picks[0] - 1)
    for j in range(len(question.only.made)):
        asked.fixed(-1 - j, answer if j == question.picks[0] - 1 else _made(asked, j))
    room = FIRST_TURNS if params["shapes"] else 2**62
    stacks = _stacks(bound, count, room)
    turn, is_over = 0, False
    while True:
        _outputs(table, bound, carried, stacks, room, False)
        latch, turn, is_over = _run([table, asked], turn, room, 1.0, share, answer)
        if is_over or latch < WARNING_BIT:
            break
        room *= 2
        stacks = [_grown(s, room) for s in stacks]
    return Found((*(c.after(turn) for c in carried), *(np.array(s[:turn]) for s in stacks)), latch)


def _grown(stack: Array, room: int) -> Array:
    larger = memory.empty((room, *stack.shape[1:]), stack.dtype)
    larger[: len(stack)] = stack
    return larger


def _rest(unit: CpuExecutable, operands: Sequence[Any], first: int) -> list[Any]:
    """What stays the same, as the body's program takes it: sizes as ints."""
    declared = unit.plan.program.inputs[first:]
    return [int(x) if i.kind == "int" else np.asarray(x) for x, i in zip(operands, declared, strict=True)]


def _is_native(bound: BoundPlan) -> bool:
    """Whether the body is one block, and each of its results an array of its own."""
    return bound.only is not None and len(set(bound.picks)) == len(bound.picks)


def _made(table: _Table, number: int) -> Array:
    shape, dtype, tag = table.only.block.outputs[number]
    return memory.empty(shape, dtype, tag)


def _stacks(bound: BoundPlan, count: int, length: int) -> list[Array]:
    """Room for what every turn leaves."""
    assert bound.only is not None
    described = [bound.only.block.outputs[pick - 1] for pick in bound.picks[count:]]
    return [memory.empty((length, *shape), dtype, tag) for shape, dtype, tag in described]


def _walk(table: _Table, place: int, x: Array, length: int, backwards: bool) -> None:
    """Entry of the slices of an array, one a turn."""
    step = x.strides[0]
    first = x.ctypes.data + (step * (length - 1) if backwards else 0)
    table.held.append(x)
    table.put(place, first, first, first, -step if backwards else step)


def _outputs(
    table: _Table, bound: BoundPlan, carried: Sequence[_Carry], stacks: Sequence[Array], length: int, backwards: bool
) -> None:
    """Entries of what the body makes: the carry, what is stacked, and memory for a turn alone."""
    roles = {pick - 1: k for k, pick in enumerate(bound.picks)}
    assert bound.only is not None
    for j in range(len(bound.only.made)):
        role = roles.get(j)
        if role is None:
            table.fixed(-1 - j, _made(table, j))
        elif role < len(carried):
            carried[role].write(table, -1 - j)
        else:
            _walk(table, -1 - j, stacks[role - len(carried)], length, backwards)


@cache
def _run_loop() -> Callable[[int], int]:
    """The native function, looked up once."""
    return native.function("run_loop")


def _run(
    tables: Sequence[_Table], turn: int, turns: int, seconds: float, share: int | None, answer: Array | None = None
) -> tuple[int, int, bool]:
    """The latch, the turn that was come to, and whether the condition ended the loop."""
    words = np.zeros(LOOP_WORDS, np.int64)
    body = tables[0]
    words[[BODY, BODY_TABLE, THREADS]] = body.block.ctypes.data, body.origin, threads.count(share)
    words[[TURN, TURNS, IS_LONG]] = turn, turns, seconds > LONG_SECONDS
    if answer is not None:
        asked = tables[1]
        words[[CONDITION, CONDITION_TABLE, ANSWER]] = asked.block.ctypes.data, asked.origin, answer.ctypes.data
    if _run_loop()(int(words.ctypes.data)):
        raise RuntimeError("a signal handler forked inside a loop; the parent's threads are needed to finish it")
    return int(body.block[LATCH]), int(words[TURN]), bool(words[ENDED])
