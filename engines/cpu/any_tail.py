"""The rest of a plan for whatever a run measures: a ``Tail`` in, actions for the extents of each run out.

Binding the rest anew for every count of selected elements would take longer than most runs. So it is bound once on
numbers that remember how they were computed (``hinted``), and each run brings a copy of the blocks' words to its own
extents by the formula (``native_sizes``), as far as the same decisions hold for them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np

from tenferro.engines.cpu import native
from tenferro.engines.cpu.actions import Action, BoundPlan, Call, Drop, Enter, Recheck, Select, ViewOf
from tenferro.engines.cpu.binding import Tail
from tenferro.engines.cpu.direct import Unsealed, UnsealedBinder
from tenferro.engines.cpu.hinted import Formula, Hinted, hint
from tenferro.engines.cpu.native import OUTPUT_WORDS, Block
from tenferro.engines.cpu.native_entry import OUTPUTS_AT
from tenferro.tracer.records import dataclass

Words = np.ndarray[Any, np.dtype[np.int64]]
VARIANTS = 4
"""Bindings of one tail that are tried in turn: each serves the extents for which it would decide as it did."""


@cache
def _follow() -> Callable[..., int]:
    """The native function, looked up once."""
    return native.function("follow")


class Brought(Block):
    """A block for one run, whose template stands among ``words`` from ``place`` on."""

    def __init__(self, block: Block, words: Words, place: int) -> None:
        super().__init__(heavy=block.heavy)
        self._launches, self.outputs, self.held = block._launches, block.outputs, block.held
        self._words, self._place = words, place

    def described(self) -> list[tuple[tuple[int, ...], np.dtype[Any], int]]:
        words = self._words[self._place :].tolist()
        at, found = words[OUTPUTS_AT] + len(self.outputs), []
        for shape, dtype, tag in self.outputs:
            sizes = at + OUTPUT_WORDS
            at = sizes + len(shape)
            found.append((tuple(words[sizes:at]), dtype, tag))
        return found


@dataclass(frozen=True)
class AnyTail:
    """One binding. ``template``: the formula's words, from ``first`` on those that it writes. ``places``: of the words
    of each block and view, by the action's number. ``numbers``: of the formula, in all."""

    bound: BoundPlan
    template: Words
    first: int
    places: dict[int, int]
    numbers: int

    def actions(self, extents: Sequence[int]) -> list[Action] | None:
        """What to do under these extents; None where the binding does not serve them."""
        words, numbers = self.template.copy(), np.empty(self.numbers, np.int64)
        numbers[: len(extents)] = extents
        origin = int(words.ctypes.data)
        if not _follow()(origin, int(numbers.ctypes.data), origin + 8 * self.first):
            return None
        found: list[Action] = []
        for number, action in enumerate(self.bound.actions):
            place = self.places.get(number, 0)
            match action:
                case Enter(block=block):
                    found.append(replace(action, block=Brought(block, words, place), address=origin + 8 * place))
                case ViewOf(shape=shape):
                    offset, *rest = words[place : place + 1 + 2 * len(shape)].tolist()
                    sizes, strides = tuple(rest[: len(shape)]), tuple(rest[len(shape) :])
                    found.append(replace(action, offset=offset, shape=sizes, strides=strides))
                case _:
                    found.append(action)
        return found


def brought(tail: Tail, extents: Sequence[int]) -> tuple[BoundPlan, list[Action]] | None:
    """The rest under these extents by a binding for any, where there is one or can be."""
    for known in tail.any:
        actions = known.actions(extents)
        if actions is not None:
            return known.bound, actions
    if len(tail.any) == VARIANTS or (made := any_tail(tail, extents)) is None:
        return None
    tail.any.append(made)
    actions = made.actions(extents)
    return None if actions is None else (made.bound, actions)


def any_tail(tail: Tail, extents: Sequence[int]) -> AnyTail | None:
    """The binding that decides as for these extents; None where it cannot be brought to others."""
    formula = Formula()
    try:
        leaves: list[Any] = [formula.leaf(n) for n in extents]
        bound = tail.bind(tuple(leaves), UnsealedBinder)
        if bound.tail is not None or any(isinstance(a, Call) for a in bound.actions) or not formula.is_open():
            return None
        return _written(bound, formula)
    except Exception:  # some step of the binding asks for what such numbers cannot do
        return None


def _written(bound: BoundPlan, formula: Formula) -> AnyTail:
    numbers: list[Any] = []
    places: dict[int, int] = {}
    for number, action in enumerate(bound.actions):
        places[number] = len(numbers)
        match action:
            case Enter(block=block):
                assert isinstance(block, Unsealed) and block.template is not None
                numbers += block.template
            case ViewOf(offset=offset, shape=shape, strides=strides):
                numbers += [offset, *shape, *strides]
            case Call() | Select() | Drop() | Recheck():
                pass
    followed = [(x, 8 * k) for k, x in enumerate(numbers) if isinstance(x, Hinted)]
    head = formula.words(followed)
    template = np.array([*head, *map(hint, numbers)], np.int64)
    places = {number: len(head) + place for number, place in places.items()}
    return AnyTail(bound, template, len(head), places, formula.numbers)
