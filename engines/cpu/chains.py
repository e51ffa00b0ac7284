"""Plans of several blocks as one native call: a bound plan and the paths that its runs took in, a chain's frame out.

A run that selects goes from *stage* to stage: what follows a selection is bound on numbers that remember how they were
computed, so that its words are brought to other extents by formula. Each path that Python has seen becomes such stages;
paths that begin alike share theirs. ``native_chain`` carries a frame out.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

from tenferro.engines.cpu import native_chain as c, threads
from tenferro.engines.cpu.actions import BoundPlan, Call, Drop, Enter, Path, Recheck, Select, ViewOf
from tenferro.engines.cpu.direct import UnsealedBinder, words_of
from tenferro.engines.cpu.hinted import Formula, Hinted, hint
from tenferro.engines.cpu.native_entry import FIXED_WORDS, NOTHING_FOUND
from tenferro.engines.cpu.native_match import MAX_VALUES
from tenferro.engines.cpu.select import functions
from tenferro.engines.engine import ArrayFrom, Shortcut
from tenferro.tracer.records import dataclass


class Unchained(Exception):
    """A plan with something that no chain carries out."""


@dataclass
class Stage:
    """What is done between two selections. ``words``: templates, then operations from ``first`` on. ``formula``: gives
    those of them that are more than ints, from the ``known`` extents that were measured before. ``signature``: the same
    for stages that do the same under the same conditions."""

    words: list[Any]
    first: int
    formula: list[int]
    signature: tuple[Any, ...]
    known: int
    following: list[Stage] = field(default_factory=list)

    def add(self, other: Stage) -> Stage:
        """One more that may follow, or the one like it that does."""
        for stage in self.following:
            if stage.signature == other.signature:
                return stage
        self.following.append(other)
        return other


@dataclass(frozen=True)
class Chain:
    """``plans``: what its words point into. ``inputs``: of the call. ``held``: those that it needs as arrays;
    ``operands``: those whose memory it takes."""

    root: Stage
    plans: Sequence[BoundPlan]
    inputs: int
    held: Sequence[int]
    operands: Sequence[int]

    def shortcut(self, owner: object, share: int | None, calls: int) -> Shortcut:
        """For entries; ``owner`` keeps the plans' code alive. ``share``: of the process's threads."""
        positions = max(plan.positions for plan in self.plans)
        results, extents = len(self.plans[-1].outputs), max(s.known for s in _stages(self.root))
        table = FIXED_WORDS + c.EXTRA_WORDS
        addresses = table + positions + results
        held = addresses + positions + extents
        words: list[Any] = [0, 0, 0, 0, NOTHING_FOUND, positions + results, table, 0]
        words += [8 * addresses, 8 * (addresses + positions), self.inputs, results, len(self.held), 8 * held]
        words += [0] * (held - table)
        words += [word for number in self.held for word in (number, 0)]
        _, first = _lay_out(self.root, words)
        made = tuple([8 * (table + positions + k) for k in range(results)])
        outputs: tuple[ArrayFrom, ...] = tuple([("made", k) for k in range(results)])
        return Shortcut(
            (owner, self.plans), [hint(word) for word in words], threads.usual_count(share),
            {p: p for p in self.operands}, outputs, made, (), calls, share or 0, first,
            tuple([(held + 2 * k + 1, number) for k, number in enumerate(self.held)]),
        )  # fmt: skip


def chained(bound: BoundPlan, inputs: int, arrays: Sequence[int], paths: Iterable[Path]) -> Chain | None:
    """The chain of a plan that was bound to a call of so many inputs, for runs that measure extents like these paths.
    ``arrays``: the inputs that are arrays of some rank. None where Python has to do something between."""
    if bound.lent:
        return None
    try:
        operands: dict[int, None] = {}
        root, plans = _stage(bound, Formula(), 0, operands), [bound]
        for path in paths:
            plans += _follow(root, bound, path, operands)
        held = _held(plans, inputs, arrays)
        if (bound.tail is not None and not root.following) or max(inputs, len(plans[-1].outputs)) > MAX_VALUES:
            return None
        return Chain(root, plans, inputs, held, [p for p in operands if p < inputs])
    except Exception:  # some step of a binding asks for what such numbers cannot do
        return None


def _follow(root: Stage, bound: BoundPlan, path: Path, operands: dict[int, None]) -> list[BoundPlan]:
    """Have the stages of a path come after the root; their plans."""
    stage, formula, known, plans = root, Formula(), 0, [bound]
    for extents in path:
        tail = plans[-1].tail
        if tail is None:
            raise Unchained
        plans.append(tail.bind(tuple([formula.leaf(n) for n in extents]), UnsealedBinder))  # type: ignore[misc]
        known += len(extents)
        stage = stage.add(_stage(plans[-1], formula, known, operands))
    if plans[-1].tail is not None:
        raise Unchained
    return plans[1:]


def _held(plans: Sequence[BoundPlan], inputs: int, arrays: Sequence[int]) -> list[int]:
    """The inputs that are there as arrays, and not as memory alone. Unchained where one is a number."""
    views = {a.source for plan in plans for a in plan.actions if isinstance(a, ViewOf)}
    outputs = {o for plan in plans for o in plan.outputs if isinstance(o, int)}
    found = sorted(p for p in views | outputs if p < inputs)
    if not set(found) <= set(arrays):
        raise Unchained
    return found


def _stage(bound: BoundPlan, formula: Formula, known: int, operands: dict[int, None]) -> Stage:
    """The stage of a bound plan. ``operands`` gains the positions whose memory it takes."""
    words: list[Any] = []
    templates: list[int] = []
    for action in bound.actions:
        if isinstance(action, Enter):
            templates.append(len(words))
            words += words_of(action.block)
    first = len(words)
    for action in bound.actions:
        match action:
            case Enter(positions=taken, made=made):
                operands |= dict.fromkeys(taken)
                back = 8 * (templates.pop(0) - len(words))
                words += _operation(c.BLOCK_RUN, back, len(taken), len(made), *taken, *made)
            case Select():
                operands |= dict.fromkeys((action.source, action.mask))
                words += _selection(action, known)
            case ViewOf(source=source, offset=offset, shape=shape, strides=strides):
                view = [0, source, id(action.dtype), offset, len(shape), *shape, *strides]
                words += _operation(c.VIEW, action.position, *view)
            case Drop(positions=positions):
                words += _operation(c.DROP, *positions)
            case Call() | Recheck():
                raise Unchained
    if bound.tail is None:
        if not all(isinstance(o, int) for o in bound.outputs):
            raise Unchained
        words += _operation(c.RETURN, *bound.outputs)
    followed = [(x, 8 * k) for k, x in enumerate(words) if isinstance(x, Hinted)]
    signature = (tuple([x.ref if isinstance(x, Hinted) else x for x in words]), tuple(formula.lines))
    return Stage(words, first, formula.words(followed), signature, known)


def _selection(action: Select, extent: int) -> list[Any]:
    """A selection that measures this extent."""
    dtype, row = action.dtype, action.row
    size = dtype.itemsize * math.prod(row)
    return _operation(
        c.SELECT, action.source, action.mask, action.output, extent, action.rows, size, id(dtype), action.tag,
        *functions(size), 1 + len(row), 0, *row,
    )  # fmt: skip


def _operation(kind: int, *words: Any) -> list[Any]:
    return [8 * (2 + len(words)), kind, *words]


def _stages(stage: Stage) -> list[Stage]:
    return [stage, *(below for one in stage.following for below in _stages(one))]


def _lay_out(stage: Stage, words: list[Any]) -> tuple[int, int]:
    """Append a stage and what follows it to a frame; the bytes where its words and its operations begin."""
    origin = len(words)
    words += stage.words
    if stage.following:
        leads = len(words) + 3
        words += _operation(c.FOLLOW, stage.following[0].known, *[0] * (3 * len(stage.following)))
        for k, one in enumerate(stage.following):
            formula = len(words)
            words += one.formula
            words[leads + 3 * k : leads + 3 * k + 3] = [8 * formula, *_lay_out(one, words)]
    return 8 * origin, 8 * (origin + stage.first)
