"""What native calls can run of a bound plan: at most one block, and views.

In: a ``BoundPlan``. Out: the block, the views, and for each of the program's outputs what it is; None for a plan with
anything between that Python does.
"""

from __future__ import annotations

from typing import Any

from tenferro.engines.cpu import threads
from tenferro.engines.cpu.binding import Binder, BoundPlan, Drop, Enter, ViewOf
from tenferro.engines.cpu.native import Block
from tenferro.engines.cpu.native_entry import OUTPUTS, OUTPUTS_AT
from tenferro.engines.cpu.native_match import MAX_VALUES
from tenferro.engines.engine import ArrayFrom, Shortcut, ViewFrom
from tenferro.tracer.records import dataclass


class Unsealed(Block):
    """A block that is read as words: its numbers may be more than ints."""

    template: list[int] | None = None

    def seal(self, level: int = 0, longest: float = 0.0) -> int:
        self.template = self.words(level, longest)
        return 0


class UnsealedBinder(Binder):
    """A binder of such blocks."""

    make_block = Unsealed


def words_of(block: Block) -> list[Any]:
    """A block's template."""
    if isinstance(block, Unsealed) and block.template is not None:
        return block.template
    return block.words() if block.buffer is None else block.buffer.tolist()


@dataclass(frozen=True, slots=True)
class Direct:
    """positions: of the block's arrays among the program's inputs."""

    block: Block | None
    positions: tuple[int, ...]
    views: tuple[ViewFrom, ...]
    outputs: tuple[ArrayFrom, ...]

    def shortcut(self, owner: object, share: int | None, calls: int) -> Shortcut:
        """For entries; ``owner`` keeps the block's code alive. ``share``: of the process's threads."""
        block = self.block or Block()
        words = words_of(block)
        made = tuple([8 * (words[OUTPUTS_AT] + k) for k in range(words[OUTPUTS])])
        places = {p: k for k, p in enumerate(self.positions)}
        usual = threads.usual_count(share)
        return Shortcut(owner, words, usual, places, self.outputs, made, self.views, calls, share or 0)


def direct(bound: BoundPlan, inputs: int) -> Direct | None:
    """The plan of a program with so many inputs as native calls run it, None where they cannot."""
    found: dict[int, ArrayFrom] = {k: ("input", k) for k in range(inputs)}
    views: list[ViewFrom] = []
    enter: Enter | None = None
    if bound.tail is not None:
        return None
    for action in bound.actions:
        match action:
            case Enter() if enter is None and all(p < inputs for p in action.positions):
                enter = action
                found |= {p: ("made", k) for k, p in enumerate(action.made)}
            case ViewOf() if action.source in found:
                of = found[action.source]
                found[action.position] = ("view", len(views))
                views.append(ViewFrom(of, action.offset, action.shape, action.strides, action.dtype))
            case Drop():
                pass  # what is no result is dropped at the end
            case _:
                return None
    outputs = [found.get(o) if isinstance(o, int) else None for o in bound.outputs]
    known = tuple([o for o in outputs if o is not None])
    positions = () if enter is None else enter.positions
    if len(known) < len(outputs) or max(len(positions), len(known) + len(views)) > MAX_VALUES:
        return None
    return Direct(None if enter is None else enter.block, positions, tuple(views), known)
