"""What guards prove about sizes: facts on leaves in, an interval of an expression out.

Extents are never negative; a guard that holds tightens the interval of its leaf. Only recorded guards are facts, so
that whatever is proved here holds in every call that the program serves.
"""

from __future__ import annotations

from math import prod

from tenferro.tracer.dims import Atom, DimExpr, Extent, Leaf

Interval = tuple[int | None, int | None]
UNBOUNDED: Interval = (None, None)


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
    """Lower and upper bounds of leaves, as far as the guards so far imply them."""

    def __init__(self) -> None:
        self._known: dict[Leaf, Interval] = {}

    def leaf(self, leaf: Leaf) -> Interval:
        known = self._known.get(leaf)
        if known is not None:
            return known
        return UNBOUNDED if leaf.kind == "int" else (0, None)

    def learn_at_least(self, extent: Extent, least: int) -> None:
        """The guard ``least <= extent`` holds."""
        single = single_leaf(extent)
        if single is None:
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
        return (low, high)

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
