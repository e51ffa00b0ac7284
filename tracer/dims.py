"""Sizes as symbols: integer expressions over a program's leaves, in normal form.

In: leaves (input extents, int arguments, run-time extents) and integer arithmetic on them.
Out: ``DimExpr``, hashable, equal exactly when their normal forms are equal; evaluation against an environment.

An ``Extent`` is an ``int`` or a ``DimExpr``; an expression that turns out constant *is* an ``int``, so that shapes of
known size look as NumPy's do. What users hold under tracing is ``tenferro.tracer.dim.Dim``, which wraps one of these
together with a hint.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Any, Literal, TypeAlias, Union

from tenferro.tracer.records import dataclass

LeafKind = Literal["extent", "int", "runtime"]
Extent: TypeAlias = Union[int, "DimExpr"]
Monomial: TypeAlias = tuple["Atom", ...]


@dataclass(frozen=True, slots=True, order=True)
class Leaf:
    """One symbol. ``extent``: axis ``axis`` of program input ``index``; ``int``: the value of int input ``index``;
    ``runtime``: axis ``axis`` of the result of operation ``index``, known only when it has run."""

    kind: LeafKind
    index: int
    axis: int = 0

    def __str__(self) -> str:
        match self.kind:
            case "extent":
                return f"d{self.index}_{self.axis}"
            case "int":
                return f"n{self.index}"
            case "runtime":
                return f"r{self.index}_{self.axis}"


AtomKind = Literal["leaf", "floordiv", "mod", "min", "max"]


@dataclass(frozen=True, slots=True)
class Atom:
    """An indivisible factor of a monomial: a leaf, or a non-polynomial function of two extents."""

    kind: AtomKind
    leaf: Leaf | None = None
    args: tuple[Extent, ...] = ()

    def __hash__(self) -> int:
        # Sizes are looked up all the time, and nearly all of their factors are leaves.
        leaf = self.leaf
        return hash((self.kind, self.args)) if leaf is None else leaf.index << 8 ^ leaf.axis

    def __str__(self) -> str:
        if self.leaf is not None:
            return str(self.leaf)
        match self.kind:
            case "floordiv" | "mod":
                left, right = (_operand_text(a) for a in self.args)
                return f"{left}//{right}" if self.kind == "floordiv" else f"{left} % {right}"
            case _:
                return f"{self.kind}({', '.join(map(str, self._flat()))})"

    def _flat(self) -> Iterator[Extent]:
        """The operands of min or max, and those of operands that are the same."""
        for x in self.args:
            inner = _single_atom(x)
            if inner is not None and inner.kind == self.kind:
                yield from inner._flat()
            else:
                yield x


@dataclass(frozen=True, slots=True)
class DimExpr:
    """A polynomial with integer coefficients over atoms, terms sorted by their text; never constant."""

    terms: tuple[tuple[Monomial, int], ...]

    def __str__(self) -> str:
        """As Python would read it: what is added first, then what is taken away, the constant last."""
        ordered = sorted(self.terms, key=lambda term: (not term[0], term[1] < 0))
        (monomial, coefficient), *rest = ordered
        text = ("-" if coefficient < 0 else "") + _term_text(monomial, abs(coefficient), coefficient < 0)
        for monomial, coefficient in rest:
            text += (" - " if coefficient < 0 else " + ") + _term_text(monomial, abs(coefficient), False)
        return text

    __repr__ = __str__

    def __add__(self, other: Extent) -> Extent:
        return add(self, other)

    __radd__ = __add__

    def __sub__(self, other: Extent) -> Extent:
        return sub(self, other)

    def __rsub__(self, other: Extent) -> Extent:
        return sub(other, self)

    def __mul__(self, other: Extent) -> Extent:
        return mul(self, other)

    __rmul__ = __mul__

    def __floordiv__(self, other: Extent) -> Extent:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Extent) -> Extent:
        return floordiv(other, self)

    def __mod__(self, other: Extent) -> Extent:
        return mod(self, other)

    def __neg__(self) -> Extent:
        return mul(self, -1)


def _term_text(monomial: Monomial, coefficient: int, negated: bool) -> str:
    """A product; quotients and rests in it stand in parentheses, and behind a sign too."""
    if not monomial:
        return str(coefficient)
    is_alone = len(monomial) == 1 and coefficient == 1 and not negated
    factors = [f"({a})" if a.kind in ("floordiv", "mod") and not is_alone else str(a) for a in monomial]
    return "*".join(factors if coefficient == 1 else [str(coefficient), *factors])


def _operand_text(extent: Extent) -> str:
    """An operand of // or %, in parentheses unless it is a number or one name."""
    atom = _single_atom(extent)
    is_plain = extent >= 0 if isinstance(extent, int) else atom is not None and atom.kind in ("leaf", "min", "max")
    return str(extent) if is_plain else f"({extent})"


def _single_atom(extent: Extent) -> Atom | None:
    """The atom that the expression is, None where it is more or less than one."""
    if isinstance(extent, int) or len(extent.terms) > 1:
        return None
    ((monomial, coefficient),) = extent.terms
    return monomial[0] if len(monomial) == 1 and coefficient == 1 else None


@lru_cache(4096)
def leaf(kind: LeafKind, index: int, axis: int = 0) -> DimExpr:
    """The expression that is this leaf alone."""
    return DimExpr((((Atom("leaf", Leaf(kind, index, axis)),), 1),))


def _terms(extent: Extent) -> dict[Monomial, int]:
    if isinstance(extent, DimExpr):
        return dict(extent.terms)
    return {(): extent} if extent else {}


def _from_terms(terms: Mapping[Monomial, int]) -> Extent:
    kept = {m: c for m, c in terms.items() if c}
    if not kept:
        return 0
    if len(kept) == 1 and () in kept:
        return kept[()]
    if len(kept) == 1:
        return DimExpr(tuple(kept.items()))
    return DimExpr(tuple(sorted(kept.items(), key=lambda item: (-len(item[0]), [str(a) for a in item[0]]))))


def add(a: Extent, b: Extent) -> Extent:
    if isinstance(a, int):
        a, b = b, a
    if isinstance(a, int):
        return a + b
    if b == 0:
        return a
    terms = _terms(a)
    for monomial, coefficient in _terms(b).items():
        terms[monomial] = terms.get(monomial, 0) + coefficient
    return _from_terms(terms)


def sub(a: Extent, b: Extent) -> Extent:
    return add(a, mul(b, -1))


def mul(a: Extent, b: Extent) -> Extent:
    if isinstance(a, int):
        a, b = b, a
    if isinstance(a, int):
        return a * b
    if isinstance(b, int):
        return _multiple(a, b)
    terms: dict[Monomial, int] = {}
    for left, c in a.terms:
        for right, d in b.terms:
            monomial = tuple(sorted(left + right, key=str)) if left and right else left + right
            terms[monomial] = terms.get(monomial, 0) + c * d
    return _from_terms(terms)


def _multiple(a: DimExpr, by: int) -> Extent:
    if by in (0, 1):
        return a if by else 0
    return DimExpr(tuple([(monomial, coefficient * by) for monomial, coefficient in a.terms]))


def _atom(kind: AtomKind, a: Extent, b: Extent) -> DimExpr:
    return DimExpr((((Atom(kind, None, (a, b)),), 1),))


def floordiv(a: Extent, b: Extent) -> Extent:
    """Floor division; exact where every term of ``a`` is divisible by the constant or single-monomial ``b``. Of a
    positive constant ``b`` multiples stand outside, quotients of quotients are one, and extremes stand outside too."""
    if isinstance(a, int) and isinstance(b, int):
        return a // b
    if b == 1:
        return a
    if a == b:
        return 1
    exact = _exact_quotient(a, b)
    if exact is not None:
        return exact
    if not isinstance(b, int) or b <= 0:
        return _atom("floordiv", a, b)
    terms = _terms(a)
    outside = _from_terms({m: c // b for m, c in terms.items() if not (m and c % b)})
    rest = sub(a, mul(outside, b))
    return add(outside, _quotient_of_rest(rest, b))


def _quotient_of_rest(rest: Extent, b: int) -> Extent:
    """``rest // b`` where no term but a constant below ``b`` is left to stand outside."""
    if isinstance(rest, int):
        return rest // b
    moving = [(m, c) for m, c in rest.terms if m]
    constant = _terms(rest).get((), 0)
    if len(moving) == 1 and len(moving[0][0]) == 1:
        (atom,), coefficient = moving[0]
        match atom.kind:
            case "floordiv" if coefficient == 1 and isinstance(k := atom.args[1], int) and k > 0:
                return floordiv(add(atom.args[0], constant * k), b * k)
            case ("min" | "max") as kind if coefficient > 0:
                left, right = (floordiv(add(mul(x, coefficient), constant), b) for x in atom.args)
                return _extreme(kind, left, right)
            case _:
                pass
    return _atom("floordiv", rest, b)


def _exact_quotient(a: Extent, b: Extent) -> Extent | None:
    divisor = list(_terms(b).items())
    if len(divisor) != 1:
        return None
    (factors, scale) = divisor[0]
    quotient: dict[Monomial, int] = {}
    for monomial, coefficient in _terms(a).items():
        rest = list(monomial)
        for factor in factors:
            if factor not in rest:
                return None
            rest.remove(factor)
        if coefficient % scale:
            return None
        quotient[tuple(rest)] = coefficient // scale
    return _from_terms(quotient)


def mod(a: Extent, b: Extent) -> Extent:
    if isinstance(a, int) and isinstance(b, int):
        return a % b
    if b == 1 or _exact_quotient(a, b) is not None:
        return 0
    if isinstance(b, int) and b > 0:
        a = _from_terms({m: c if m else c % b for m, c in _terms(a).items() if c % b})
        if isinstance(a, int):
            return a % b
    return _atom("mod", a, b)


def minimum(a: Extent, b: Extent) -> Extent:
    return _extreme("min", a, b)


def maximum(a: Extent, b: Extent) -> Extent:
    return _extreme("max", a, b)


def _extreme(kind: Literal["min", "max"], a: Extent, b: Extent) -> Extent:
    difference = sub(a, b)
    if isinstance(difference, int):
        return a if (difference <= 0) == (kind == "min") else b
    if is_natural(difference):
        return b if kind == "min" else a
    if is_natural(mul(difference, -1)):
        return a if kind == "min" else b
    first, second = sorted((a, b), key=lambda x: (not isinstance(x, int), str(x)))
    return _atom(kind, first, second)


def is_natural(extent: Extent) -> bool:
    """Whether the form itself says that the value is never negative: sizes of arrays are not, and what adds up, is
    multiplied or divided of such."""
    if isinstance(extent, int):
        return extent >= 0
    return all(c > 0 and all(map(_is_natural_atom, m)) for m, c in extent.terms)


def _is_natural_atom(atom: Atom) -> bool:
    if atom.leaf is not None:
        return atom.leaf.kind != "int"
    match atom.kind:
        case "max":
            return any(map(is_natural, atom.args))
        case "mod":
            return is_natural(atom.args[1])
        case _:
            return all(map(is_natural, atom.args))


def product(extents: Iterable[Extent]) -> Extent:
    result: Extent = 1
    for extent in extents:
        result = mul(result, extent)
    return result


def leaves(extent: Extent) -> frozenset[Leaf]:
    """Every leaf that the expression reads."""
    if isinstance(extent, int):
        return frozenset()
    found: set[Leaf] = set()
    for monomial, _ in extent.terms:
        for atom in monomial:
            if atom.leaf is not None:
                found.add(atom.leaf)
            for arg in atom.args:
                found |= leaves(arg)
    return frozenset(found)


def extents_in(value: object) -> list[DimExpr]:
    """The symbolic sizes in a parameter: itself, or those in a tuple of any depth."""
    if isinstance(value, DimExpr):
        return [value]
    return [n for v in value for n in extents_in(v)] if isinstance(value, tuple) else []


def mapped(value: Any, replace: Callable[[Extent], Extent]) -> Any:
    """A parameter with every symbolic size in it replaced; whole as it is where there is none."""
    if isinstance(value, DimExpr):
        return replace(value)
    return tuple([mapped(v, replace) for v in value]) if type(value) is tuple else value


def is_runtime(extent: Extent) -> bool:
    """Whether the size is known only when the program runs."""
    return any(leaf.kind == "runtime" for leaf in leaves(extent))


Environment: TypeAlias = Mapping[Leaf, int]


def evaluate(extent: Extent, env: Environment) -> int:
    """The value under ``env``; a KeyError names a leaf that has no value yet (a run-time extent)."""
    if isinstance(extent, int):
        return extent
    return sum(c * prod(_evaluate_atom(a, env) for a in monomial) for monomial, c in extent.terms)


def _evaluate_atom(atom: Atom, env: Environment) -> int:
    if atom.leaf is not None:
        return env[atom.leaf]
    a, b = (evaluate(x, env) for x in atom.args)
    return _APPLY[atom.kind](a, b)


_APPLY: dict[str, Callable[[int, int], int]] = {
    "floordiv": lambda a, b: a // b if b else 0,
    "mod": lambda a, b: a % b if b else 0,
    "min": min,
    "max": max,
}


def evaluate_shape(shape: Sequence[Extent], env: Environment) -> tuple[int, ...]:
    return tuple(evaluate(e, env) for e in shape)


def substitute(extent: Extent, replace: Callable[[Leaf], Extent]) -> Extent:
    """Rebuild the expression with every leaf replaced (used when one program is traced into another)."""
    if isinstance(extent, int):
        return extent
    total: Extent = 0
    for monomial, coefficient in extent.terms:
        term: Extent = coefficient
        for atom in monomial:
            term = mul(term, _substitute_atom(atom, replace))
        total = add(total, term)
    return total


def _substitute_atom(atom: Atom, replace: Callable[[Leaf], Extent]) -> Extent:
    if atom.leaf is not None:
        return replace(atom.leaf)
    a, b = (substitute(x, replace) for x in atom.args)
    match atom.kind:
        case "floordiv":
            return floordiv(a, b)
        case "mod":
            return mod(a, b)
        case "min":
            return minimum(a, b)
        case _:
            return maximum(a, b)


def walk_text(offset: Extent, step: int) -> str:
    """``offset + step * i`` without what says nothing."""
    moving = "i" if abs(step) == 1 else f"{abs(step)}*i"
    if step < 0:
        return f"-{moving}" if offset == 0 else f"{offset} - {moving}"
    return moving if offset == 0 else f"{moving} + {offset}".replace("+ -", "- ")


def shape_text(shape: Sequence[Extent]) -> str:
    return "(" + ", ".join(str(e) for e in shape) + ("," if len(shape) == 1 else "") + ")"
