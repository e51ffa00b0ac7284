"""Plans of several blocks as one native call: a bound plan and the paths that its runs took in, a chain's frame out.

A run that selects goes from *stage* to stage: what follows a selection is bound on numbers that remember how they were
computed, so that its words are brought to other extents by formula. Each path that Python has seen becomes such stages;
paths that begin alike share theirs. ``native_chain`` carries a frame out.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from tenferro.engines.cpu import native_chain as c, threads
from tenferro.engines.cpu.actions import BoundPlan, Call, Drop, Enter, Path, Recheck, Select, ViewOf
from tenferro.engines.cpu.direct import UnsealedBinder, words_of
from tenferro.engines.cpu.hinted import Formula, Hinted, hint
from tenferro.engines.cpu.native_entry import FIXED_WORDS, NOTHING_FOUND
from tenferro.engines.cpu.native_match import MAX_VALUES
from tenferro.engines.cpu.select import functions
from tenferro.engines.engine import Shortcut
from tenferro.engines.values import layout_sizes
from tenferro.tracer.dims import Environment, Leaf, evaluate
from tenferro.tracer.program import DimScalar
from tenferro.tracer.records import dataclass


class Unchained(Exception):
    """A plan with something that no chain carries out."""


@dataclass
class Stage:
    """What is done between two selections. ``words``: templates, then operations from ``first`` on. ``formula``: gives
    those of them that sizes change, from the ``known`` extents (sizes of the call among them). ``signature``: the same
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
class Asked:
    """The calls that a chain is to serve: those of the layouts of ``bound``, or of any like these ``layouts`` where
    ``bind`` binds the plan to others. ``paths``: that runs have taken."""

    bound: BoundPlan
    layouts: Sequence[Any]
    paths: Sequence[Path]
    bind: Callable[[Sequence[Any]], BoundPlan] | None = None

    @property
    def leaves(self) -> list[Any]:
        """The numbers that the calls differ in."""
        return [] if self.bind is None else list(_numbers(self.layouts))

    def begin(self, formula: Formula) -> tuple[BoundPlan, dict[Leaf, Any]]:
        """The plan up to its first selection, and the sizes of the call, by leaves of a formula."""
        if self.bind is None:
            return self.bound, layout_sizes(self.layouts)
        again = [with_numbers(x, lambda n: formula.leaf(hint(n))) for x in self.layouts]
        return self.bind(again), layout_sizes(again)


def with_numbers(layout: Any, of: Callable[[Any], Any]) -> Any:
    """An input's layout, with another number for each of its own."""
    return tuple([tuple(map(of, part)) for part in layout]) if isinstance(layout, tuple) else of(layout)


def _numbers(layouts: Sequence[Any]) -> Iterator[Any]:
    for x in layouts:
        if isinstance(x, tuple):
            yield from (*x[0], *x[1])
        else:
            yield x


@dataclass(frozen=True)
class Chain:
    """``plans``: what its words point into. ``held``: inputs that it needs as arrays; ``operands``: those whose memory
    it takes."""

    asked: Asked
    root: Stage
    plans: Sequence[BoundPlan]
    held: Sequence[int]
    operands: Sequence[int]

    def shortcut(self, owner: object, share: int | None, calls: int) -> Shortcut:
        """For entries; ``owner`` keeps the plans' code alive. ``share``: of the process's threads."""
        positions = max(plan.positions + len(plan.outputs) for plan in self.plans)
        results, leaves = len(self.plans[-1].outputs), self.asked.leaves
        table = FIXED_WORDS + c.EXTRA_WORDS
        addresses = table + positions + results
        extents = addresses + positions
        held = extents + max(s.known for s in _stages(self.root))
        words: list[Any] = [0, 0, 0, 0, NOTHING_FOUND, positions + results, table, 0]
        words += [8 * addresses, 8 * extents, len(self.asked.layouts), results, len(self.held), 8 * held]
        words += [0] * (held - table)
        words[extents : extents + len(leaves)] = leaves
        words += [word for number in self.held for word in (number, 0)]
        _, first = _lay_out(self.root, words)
        return Shortcut(
            (owner, self.plans), words, threads.usual_count(share), {p: p for p in self.operands},
            tuple([("made", k) for k in range(results)]), tuple([8 * (table + positions + k) for k in range(results)]),
            (), calls, share or 0, first, tuple([(held + 2 * k + 1, number) for k, number in enumerate(self.held)]),
        )  # fmt: skip


def chained(asked: Asked) -> Chain | None:
    """The chain that serves such calls; None where Python has to do something between."""
    bound, inputs = asked.bound, len(asked.layouts)
    if bound.lent:
        return None
    try:
        operands: dict[int, None] = {}
        root, plans = _stage(bound, layout_sizes(asked.layouts), None, len(asked.leaves), operands), [bound]
        for path in asked.paths if bound.tail is not None else ():
            plans += _follow(root, asked, path, operands)
        held = _held(plans, asked.layouts)
        if (bound.tail is not None and not root.following) or max(inputs, len(plans[-1].outputs)) > MAX_VALUES:
            return None
        return Chain(asked, root, plans, held, [p for p in operands if p < inputs])
    except Exception:  # some step of a binding asks for what such numbers cannot do
        return None


def _follow(root: Stage, asked: Asked, path: Path, operands: dict[int, None]) -> list[BoundPlan]:
    """Have the stages of a path come after the root; their plans."""
    formula = Formula()
    bound, env = asked.begin(formula)
    stage, known, plans = root, len(asked.leaves), [bound]
    for extents in path:
        tail = plans[-1].tail
        if tail is None:
            raise Unchained
        leaves: list[Any] = [formula.leaf(n) for n in extents]
        for (leaf, _, _), n in zip(tail.leaves, leaves, strict=True):
            if env.setdefault(leaf, n) != n:  # a condition: what one mask selects twice has one size
                raise Unchained
        plans.append(tail.bind(tuple(leaves), UnsealedBinder))
        known += len(extents)
        stage = stage.add(_stage(plans[-1], env, formula, known, operands))
    if plans[-1].tail is not None:
        raise Unchained
    return plans


def _held(plans: Sequence[BoundPlan], layouts: Sequence[Any]) -> list[int]:
    """The inputs that are there as arrays, and not as memory alone. Unchained where one may be a number."""
    views = {a.source for plan in plans for a in plan.actions if isinstance(a, ViewOf)}
    outputs = {o for plan in plans for o in plan.outputs if isinstance(o, int)}
    found = sorted(p for p in views | outputs if p < len(layouts))
    if not all(isinstance(layouts[p], tuple) and layouts[p][0] for p in found):
        raise Unchained
    return found


def _stage(bound: BoundPlan, env: Environment, formula: Formula | None, known: int, operands: dict[int, None]) -> Stage:
    """The stage of a bound plan; ``formula``: of its numbers, None where the entry's own gives them. ``operands`` gains
    the positions whose memory it takes."""
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
                if len(taken) > MAX_VALUES:
                    raise Unchained
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
        words += _results(bound, env)
    if formula is None:
        return Stage(words, first, [], (), known)
    followed = [(x, 8 * k) for k, x in enumerate(words) if isinstance(x, Hinted)]
    signature = (tuple([x.ref if isinstance(x, Hinted) else x for x in words]), tuple(formula.lines))
    return Stage([hint(x) for x in words], first, formula.words(followed), signature, known)


def _results(bound: BoundPlan, env: Environment) -> list[Any]:
    """The end of a plan: its results, numbers among them."""
    words: list[Any] = []
    positions = []
    for position, output in enumerate(bound.outputs, bound.positions):
        if isinstance(output, int):
            positions.append(output)
            continue
        if not isinstance(output, DimScalar) or output.dtype != np.int64:
            raise Unchained
        positions.append(position)
        words += _operation(c.NUMBER, position, id(output.dtype), output.dtype.itemsize, evaluate(output.expr, env))
    return words + _operation(c.RETURN, *positions)


def _selection(action: Select, extent: int) -> list[Any]:
    """A selection that measures this extent."""
    dtype, row, stride = action.dtype, action.row, action.stride
    size = dtype.itemsize * math.prod(row)
    return _operation(
        c.SELECT, action.source, action.mask, action.output, extent, action.rows, size, stride, id(dtype), action.tag,
        *functions(size, stride), 1 + len(row), 0, *row,
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
