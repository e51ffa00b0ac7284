"""What guards prove about sizes: facts on leaves in, an interval of an expression out.

Extents are never negative; a guard that holds tightens the interval of its leaf. Only recorded guards are facts, so
that whatever is proved here holds in every call that the program serves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Literal

from tenferro.tracer.dims import Atom, DimExpr, Extent, Leaf, add, leaf, mul, sub, substitute
from tenferro.tracer.program import ShapeGuard

Interval = tuple[int | None, int | None]
Relation = Literal["==", "<", "<="]
UNBOUNDED: Interval = (None, None)
_DEPTH, _TERMS = 3, 8  # functions that are taken apart one inside the other, in sums of so many terms
_COMPARED = 30  # guards that are compared with one another


def single_leaf(extent: Extent) -> tuple[Leaf, int, int] | None:
    """``(leaf, coefficient, constant)`` where the expression is ``coefficient * leaf + constant``."""
    if isinstance(extent, int):
        return None
    found: tuple[Leaf, int] | None = None
    constant = 0
    for monomial, coefficient in extent.terms:
        if not monomial:
            constant = coefficient
        elif found is None and len(monomial) == 1 and monomial[0].leaf is not None:
            found = (monomial[0].leaf, coefficient)
        else:
            return None
    return None if found is None else (*found, constant)


class Bounds:
    """Lower and upper bounds of leaves, and lower ones of sums, as far as the guards so far imply them."""

    def __init__(self) -> None:
        self._known: dict[Leaf, Interval] = {}
        self._sums: dict[Extent, int] = {}

    def learn(self, relation: Relation, difference: Extent, holds: bool) -> None:
        """``(0 relation difference) == holds``."""
        if relation != "==" and not holds:  # not 0 < x is 0 <= -x
            relation, difference = "<=" if relation == "<" else "<", mul(difference, -1)
        match relation:
            case "<":
                self.learn_at_least(difference, 1)
            case "<=":
                self.learn_at_least(difference, 0)
            case "==" if holds:
                self.learn_at_least(difference, 0)
                self.learn_at_least(mul(difference, -1), 0)
            case "==":
                low, high = self.of(difference)
                if low == 0:
                    self.learn_at_least(difference, 1)
                if high == 0:
                    self.learn_at_least(mul(difference, -1), 1)

    def forget(self, stays: Callable[[Extent], bool]) -> None:
        """Forget what is known of other leaves than those that stay."""
        self._known = {s: known for s, known in self._known.items() if stays(leaf(s.kind, s.index, s.axis))}
        self._sums = {extent: least for extent, least in self._sums.items() if stays(extent)}

    def proves(self, relation: Relation, difference: Extent) -> bool | None:
        """Whether ``0 relation difference`` in every call, None where what is known does not tell."""
        found = _answer(relation, *self.of(difference))
        if (
            found is None
            and isinstance(difference, DimExpr)
            and any(a.leaf is None for m, _ in difference.terms for a in m)
        ):
            most = self._least(mul(difference, -1), _DEPTH)
            found = _answer(relation, self._least(difference, _DEPTH), None if most is None else -most)
        return found

    def leaf(self, leaf: Leaf) -> Interval:
        known = self._known.get(leaf)
        if known is not None:
            return known
        return UNBOUNDED if leaf.kind == "int" else (0, None)

    def learn_at_least(self, extent: Extent, least: int) -> None:
        """The guard ``least <= extent`` holds."""
        single = single_leaf(extent)
        if single is None:
            rest, constant = split_constant(extent)
            if not isinstance(rest, int):
                self._sums[rest] = max(least - constant, self._sums.get(rest, least - constant))
            return
        leaf, coefficient, constant = single
        low, high = self.leaf(leaf)
        if coefficient > 0:
            bound = -((constant - least) // coefficient)
            low = bound if low is None else max(low, bound)
        else:
            bound = (constant - least) // -coefficient
            high = bound if high is None else min(high, bound)
        self._known[leaf] = (low, high)

    def of(self, extent: Extent) -> Interval:
        """An interval that holds the expression's value in every call."""
        if isinstance(extent, int):
            return (extent, extent)
        low: int | None = 0
        high: int | None = 0
        for monomial, coefficient in extent.terms:
            least, most = self._monomial(monomial)
            if coefficient < 0:
                least, most = most, least
            low = None if low is None or least is None else low + coefficient * least
            high = None if high is None or most is None else high + coefficient * most
        if not self._sums:
            return (low, high)
        rest, constant = split_constant(extent)
        known, opposite = self._sums.get(rest), self._sums.get(mul(rest, -1))
        if known is not None and (low is None or known + constant > low):
            low = known + constant
        if opposite is not None and (high is None or constant - opposite < high):
            high = constant - opposite
        return (low, high)

    def _least(self, extent: Extent, depth: int) -> int | None:
        """A lower bound that knows how a quotient, a remainder, the larger and the smaller relate to their operands."""
        low = self.of(extent)[0]
        if depth == 0 or isinstance(extent, int) or len(extent.terms) > _TERMS:
            return low
        for monomial, coefficient in extent.terms:
            if len(monomial) == 1 and monomial[0].leaf is None:
                rest = sub(extent, DimExpr(((monomial, coefficient),)))
                low = _larger(low, self._without(monomial[0], coefficient, rest, depth - 1))
        return low

    def _without(self, atom: Atom, coefficient: int, rest: Extent, depth: int) -> int | None:
        """A lower bound of ``coefficient * atom + rest``."""
        a, b = atom.args
        if atom.kind in ("max", "min"):
            first, second = (self._least(add(rest, mul(x, coefficient)), depth) for x in (a, b))
            if (atom.kind == "max") != (coefficient > 0):  # it is one of them
                return None if first is None or second is None else min(first, second)
            # Both are bounds then, and so is half of their sum: max(n, -n) >= 0.
            both = self._least(add(mul(rest, 2), mul(add(a, b), coefficient)), depth)
            return _larger(_larger(first, second), None if both is None else -(-both // 2))
        divisor = self.of(b)[0]
        if divisor is None or divisor <= 0:
            return None
        if atom.kind == "mod":  # 0 <= a % b <= b - 1
            return self._least(rest if coefficient > 0 else add(rest, mul(sub(b, 1), coefficient)), depth)
        if not isinstance(b, int):
            return None
        part = sub(a, b - 1) if coefficient > 0 else a  # a - (b - 1) <= b * (a // b) <= a
        scaled = self._least(add(mul(rest, b), mul(part, coefficient)), depth)
        return None if scaled is None else -(-scaled // b)

    def _monomial(self, monomial: tuple[Atom, ...]) -> Interval:
        intervals = [self._atom(a) for a in monomial]
        if len(intervals) == 1:
            return intervals[0]
        lows = [low for low, _ in intervals if low is not None and low >= 0]
        if len(lows) < len(intervals):
            return UNBOUNDED
        highs = [high for _, high in intervals if high is not None]
        return (prod(lows), prod(highs) if len(highs) == len(intervals) else None)

    def _atom(self, atom: Atom) -> Interval:
        if atom.leaf is not None:
            return self.leaf(atom.leaf)
        (a_low, a_high), (b_low, b_high) = (self.of(x) for x in atom.args)
        match atom.kind:
            case "max":
                lows = [x for x in (a_low, b_low) if x is not None]
                return (max(lows, default=None), None if a_high is None or b_high is None else max(a_high, b_high))
            case "min":
                highs = [x for x in (a_high, b_high) if x is not None]
                return (None if a_low is None or b_low is None else min(a_low, b_low), min(highs, default=None))
            case "mod" if b_low is not None and b_low > 0:
                return (0, None if b_high is None else b_high - 1)
            case "floordiv" if b_low is not None and b_low > 0 and a_low is not None and a_low >= 0:
                return (0 if b_high is None else a_low // b_high, None if a_high is None else a_high // b_low)
            case _:
                return UNBOUNDED


def split_constant(extent: Extent) -> tuple[Extent, int]:
    """The expression without its constant term, and the constant."""
    if isinstance(extent, int):
        return 0, extent
    constant = dict(extent.terms).get((), 0)
    if not constant:
        return extent, 0
    return DimExpr(tuple((m, c) for m, c in extent.terms if m)), constant


def _larger(a: int | None, b: int | None) -> int | None:
    return b if a is None else a if b is None else max(a, b)


def _answer(relation: Relation, low: int | None, high: int | None) -> bool | None:
    """Whether ``0 relation x`` for an x between the two."""
    if relation == "==":
        if low == high == 0:
            return True
        return False if (low is not None and low > 0) or (high is not None and high < 0) else None
    least = 1 if relation == "<" else 0
    return True if low is not None and low >= least else (False if high is not None and high < least else None)


def needed(guards: Sequence[ShapeGuard]) -> list[ShapeGuard]:
    """The guards without those that the others imply. Divisors that are sizes are left with what keeps them from 0."""
    if len(guards) > _COMPARED or any(_divides_by_size(x) for g in guards for x in (g.lhs, g.rhs)):
        return list(guards)
    differences = [sub(g.rhs, g.lhs) for g in guards]
    equations = [_equation(g, d) for g, d in zip(guards, differences, strict=True)]
    numbers = dict(e for e in equations if e is not None)
    solved = [_solved(g, d, numbers) for g, d in zip(guards, differences, strict=True)]
    kept = list(range(len(guards)))
    for k, guard in enumerate(guards):
        others = [j for j in kept if j != k]
        bounds = Bounds()
        for j in others:
            bounds.learn(guards[j].relation, differences[j], guards[j].holds)
        implied = bounds.proves(guard.relation, differences[k]) is guard.holds
        if implied or (equations[k] is None and solved[k] in [solved[j] for j in others]):
            kept = others
    return [guards[k] for k in kept]


def _equation(guard: ShapeGuard, difference: Extent) -> tuple[Leaf, int] | None:
    """The leaf and its number where the guard says ``leaf == number``; ``difference`` of its sides."""
    single = single_leaf(difference) if guard.relation == "==" and guard.holds else None
    return None if single is None or abs(single[1]) != 1 else (single[0], -single[1] * single[2])


def _solved(guard: ShapeGuard, difference: Extent, numbers: dict[Leaf, int]) -> tuple[object, ...]:
    """What the guard says of the leaves that have no number."""
    difference = substitute(difference, lambda s: numbers.get(s, leaf(s.kind, s.index, s.axis)))
    if guard.relation == "==" and str(mul(difference, -1)) < str(difference):
        difference = mul(difference, -1)
    return guard.relation, difference, guard.holds


def _divides_by_size(extent: Extent) -> bool:
    atoms = [] if isinstance(extent, int) else [a for m, _ in extent.terms for a in m]
    divisors = [a.args[1] for a in atoms if a.kind in ("floordiv", "mod")]
    return not all(isinstance(d, int) for d in divisors) or any(_divides_by_size(x) for a in atoms for x in a.args)


def seniority(symbol: Leaf) -> tuple[int, int, int]:
    """Of two equal sizes the one that comes first stands for both."""
    return ({"extent": 0, "int": 1, "runtime": 2}[symbol.kind], symbol.index, symbol.axis)


def presentable(relation: Relation, difference: Extent) -> tuple[Extent, Extent]:
    """``0 relation difference`` with negative terms moved to the left, constants included: ``2 <= n``, ``n == m``."""
    rest, constant = split_constant(difference)
    assert isinstance(rest, DimExpr)
    left: Extent = 0
    right: Extent = 0
    for monomial, coefficient in rest.terms:
        term = DimExpr(((monomial, abs(coefficient)),))
        if coefficient > 0:
            right = term if isinstance(right, int) else right + term
        else:
            left = term if isinstance(left, int) else left + term
    if isinstance(left, int) or (constant < 0 and not isinstance(right, int)):
        left = -constant if isinstance(left, int) else left - constant
    elif isinstance(right, int):
        right = constant
    else:
        right = right + constant
    return (right, left) if relation == "==" and isinstance(left, int) else (left, right)
