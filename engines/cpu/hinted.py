"""Numbers that remember how they were computed: sizes of one call in, a formula for those of others out.

What binds a plan to the layouts of a call is ordinary Python on ints. Run on ``Hinted`` numbers in their place, it
makes the same decisions, since each has the value of the call being bound; meanwhile a ``Formula`` notes every
operation, and every comparison as a condition under which another call's sizes would have led the same way. Native code
evaluates formulas (``native_sizes``).
"""

from __future__ import annotations

import operator
import struct
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from tenferro.engines.cpu import native_sizes as n

Ref: TypeAlias = tuple[str, int]
"""A number of a formula: "leaf", "constant" or "result", and which."""

_INTEGERS: dict[int, Callable[[Any, Any], Any]] = {
    n.ADD: operator.add, n.SUBTRACT: operator.sub, n.MULTIPLY: operator.mul, n.FLOOR: operator.floordiv,
    n.REST: operator.mod,
}  # fmt: skip
_FLOATS: dict[int, tuple[int, Callable[[Any, Any], Any]]] = {
    n.ADD: (n.FLOAT_ADD, operator.add), n.SUBTRACT: (n.FLOAT_SUBTRACT, operator.sub),
    n.MULTIPLY: (n.FLOAT_MULTIPLY, operator.mul), n.FLOAT_DIVIDE: (n.FLOAT_DIVIDE, operator.truediv),
}  # fmt: skip
_AS_FLOATS = {
    n.EQUAL: n.FLOAT_EQUAL, n.DIFFERENT: n.FLOAT_DIFFERENT, n.LESS: n.FLOAT_LESS, n.AT_LEAST: n.FLOAT_AT_LEAST,
}  # fmt: skip
_LARGEST, _LARGEST_FLOAT = 1 << 62, 1 << 53


class Unfollowed(Exception):
    """Something that no formula is made of: numbers or operations that native code does not compute as Python does."""


class Formula:
    """Operations and conditions over leaves, in the order in which they were met."""

    def __init__(self) -> None:
        self.leaves: list[int] = []
        self.lines: list[tuple[int, Ref, Ref]] = []
        self._constants: dict[tuple[type, Any], int] = {}
        self._results = 0
        self._known: dict[tuple[int, Ref, Ref], Ref | None] = {}

    def leaf(self, value: int) -> Hinted:
        """A number that each call gives."""
        self.leaves.append(value)
        return Hinted(self, ("leaf", len(self.leaves) - 1), value)

    def ref(self, x: Any) -> Ref:
        """Of a number; a plain one is a constant."""
        if isinstance(x, Hinted):
            return x.ref
        if abs(x) > _LARGEST:
            raise Unfollowed(x)
        key = (type(x), x if type(x) is int else struct.pack("<d", x))
        return ("constant", self._constants.setdefault(key, len(self._constants)))

    def operation(self, code: int, a: Ref, b: Ref) -> Ref:
        """What an operation gives: the same as before where it is the same."""
        found = self._known.get((code, a, b))
        if found is None:
            self._add(code, a, b)
            found = self._known[code, a, b] = ("result", self._results)
            self._results += 1
        return found

    def condition(self, code: int, a: Ref, b: Ref) -> None:
        """Something that holds for this call's sizes and has to for another's."""
        if (code, a, b) not in self._known:
            self._known[code, a, b] = None
            self._add(code, a, b)

    def _add(self, code: int, a: Ref, b: Ref) -> None:
        if len(self.lines) == n.MAX_LINES:
            raise Unfollowed("too many lines")
        self.lines.append((code, a, b))

    def written(self, patches: Iterable[tuple[Hinted, int]]) -> tuple[list[int], list[int]]:
        """The constants, and the lines as native code reads them; ``patches``: numbers and the bytes in the block where
        they belong. Unfollowed where there are too many numbers."""
        first = {"leaf": 0, "constant": len(self.leaves), "result": len(self.leaves) + len(self._constants)}
        if self.numbers > n.MAX_NUMBERS:
            raise Unfollowed("too many numbers")
        words: list[int] = []
        for code, a, b in self.lines:
            words += [code, *(8 * (first[kind] + k) for kind, k in (a, b))]
        for x, place in patches:
            words += [n.PATCH, 8 * (first[x.ref[0]] + x.ref[1]), place]
        constants = [c if kind is int else struct.unpack("<q", c)[0] for kind, c in self._constants]
        return constants, words

    def words(self, patches: Iterable[tuple[Hinted, int]]) -> list[int]:
        """What ``native_sizes.follow`` reads: the block is as the leaves in the call that was bound."""
        constants, lines = self.written(patches)
        return [len(self.leaves), len(constants), 8 * len(lines), *self.leaves, *constants, *lines]

    @property
    def numbers(self) -> int:
        """Leaves, constants and results."""
        return len(self.leaves) + len(self._constants) + self._results

    def is_open(self) -> bool:
        """Whether some leaf may have another value."""
        equal = [{a, b} for code, a, b in self.lines if code == n.EQUAL]
        fixed = {ref for pair in equal for ref in pair if any(other[0] == "constant" for other in pair)}
        return any(("leaf", k) not in fixed for k in range(len(self.leaves)))


def _value(x: Any) -> Any:
    return x.value if isinstance(x, Hinted) else x


class Hinted:
    """An int or float with the formula that gives it. What asks for the bare number (an index, a hash, a text) makes
    its value a condition."""

    __slots__ = ("formula", "ref", "value")
    __array_ufunc__ = None  # NumPy's scalars leave operations to this class

    def __init__(self, formula: Formula, ref: Ref, value: Any) -> None:
        if type(value) is int and abs(value) > _LARGEST:
            raise Unfollowed(value)
        self.formula, self.ref, self.value = formula, ref, value

    @property  # type: ignore[misc]
    def __class__(self) -> type:
        return type(self.value)  # isinstance() takes it for what it stands for

    # -- arithmetic --------------------------------------------------------------------------------------------------

    def _as_float(self, x: Any) -> Ref:
        value = _value(x)
        if type(value) is float:
            return self.formula.ref(x)
        if abs(value) > _LARGEST_FLOAT:
            raise Unfollowed(value)
        if not isinstance(x, Hinted):
            return self.formula.ref(float(x))
        return self.formula.operation(n.AS_FLOAT, x.ref, x.ref)

    def _with(self, code: int, a: Any, b: Any) -> Any:
        x, y = _value(a), _value(b)
        if type(x) not in (int, float) or type(y) not in (int, float):
            return NotImplemented
        if code == n.FLOAT_DIVIDE or type(x) is float or type(y) is float:
            if code not in _FLOATS:
                raise Unfollowed("floor of floats")
            code, apply = _FLOATS[code]
            if code == n.FLOAT_DIVIDE:
                self._not_zero(b)
            ref = self.formula.operation(code, self._as_float(a), self._as_float(b))
            return Hinted(self.formula, ref, float(apply(x, y)))
        known = _simple(code, a, b)
        if known is not None:
            return known
        if code in (n.FLOOR, n.REST):
            self._not_zero(b)
        value = _INTEGERS[code](x, y)
        return Hinted(self.formula, self.formula.operation(code, self.formula.ref(a), self.formula.ref(b)), value)

    def _not_zero(self, divisor: Any) -> None:
        if not divisor:
            raise ZeroDivisionError("division by zero")

    def __add__(self, other: Any) -> Any:
        return self._with(n.ADD, self, other)

    def __radd__(self, other: Any) -> Any:
        return self._with(n.ADD, other, self)

    def __sub__(self, other: Any) -> Any:
        return self._with(n.SUBTRACT, self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._with(n.SUBTRACT, other, self)

    def __mul__(self, other: Any) -> Any:
        return self._with(n.MULTIPLY, self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._with(n.MULTIPLY, other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self._with(n.FLOOR, self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._with(n.FLOOR, other, self)

    def __mod__(self, other: Any) -> Any:
        return self._with(n.REST, self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._with(n.REST, other, self)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return self._with(n.FLOAT_DIVIDE, self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._with(n.FLOAT_DIVIDE, other, self)

    def __neg__(self) -> Any:
        return self._with(n.SUBTRACT, 0, self)

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __round__(self, digits: int | None = None) -> Any:
        if digits is not None:
            raise Unfollowed("rounding to digits")
        if type(self.value) is int:
            return self
        ref = self.formula.operation(n.ROUND, self.ref, self.ref)
        return Hinted(self.formula, ref, round(self.value))

    # -- comparison --------------------------------------------------------------------------------------------------

    def _compared(self, other: Any, code: int, opposite: int, swapped: bool = False) -> Any:
        """Whether the relation holds; that it does, or its opposite, becomes a condition."""
        if type(_value(other)) not in (int, float, bool):
            return NotImplemented
        other = int(other) if type(other) is bool else other
        a, b = (other, self) if swapped else (self, other)
        holds = bool(_RELATIONS[code](_value(a), _value(b)))
        if isinstance(other, Hinted) and other.ref == self.ref:
            return holds
        if type(self.value) is float or type(_value(other)) is float:
            self.formula.condition(_AS_FLOATS[code if holds else opposite], self._as_float(a), self._as_float(b))
        else:
            self.formula.condition(code if holds else opposite, self.formula.ref(a), self.formula.ref(b))
        return holds

    def __eq__(self, other: object) -> Any:
        return self._compared(other, n.EQUAL, n.DIFFERENT)

    def __ne__(self, other: object) -> Any:
        return self._compared(other, n.DIFFERENT, n.EQUAL)

    def __lt__(self, other: Any) -> Any:
        return self._compared(other, n.LESS, n.AT_LEAST)

    def __ge__(self, other: Any) -> Any:
        return self._compared(other, n.AT_LEAST, n.LESS)

    def __gt__(self, other: Any) -> Any:
        return self._compared(other, n.LESS, n.AT_LEAST, swapped=True)

    def __le__(self, other: Any) -> Any:
        return self._compared(other, n.AT_LEAST, n.LESS, swapped=True)

    def __bool__(self) -> bool:
        return bool(self != 0)

    # -- the bare number ---------------------------------------------------------------------------------------------

    def _pinned(self) -> Any:
        assert self == self.value
        return self.value

    def __index__(self) -> int:
        return operator.index(self._pinned())

    def __int__(self) -> int:
        return int(self._pinned())

    def __float__(self) -> float:
        return float(self._pinned())

    def __hash__(self) -> int:
        return hash(self._pinned())

    def __str__(self) -> str:
        return str(self._pinned())

    def __format__(self, spec: str) -> str:
        return format(self._pinned(), spec)

    def __repr__(self) -> str:
        return f"<{self.value} of {self.ref[0]} {self.ref[1]}>"


_RELATIONS: dict[int, Callable[[Any, Any], bool]] = {
    n.EQUAL: operator.eq, n.DIFFERENT: operator.ne, n.LESS: operator.lt, n.AT_LEAST: operator.ge,
}  # fmt: skip


def _simple(code: int, a: Any, b: Any) -> Any:
    """The result of an operation of ints that needs none; else None."""
    if code == n.MULTIPLY:
        for x, y in ((a, b), (b, a)):
            if type(x) is int and x in (0, 1):
                return y if x else 0
    if type(b) is int and b == 0 and code in (n.ADD, n.SUBTRACT):
        return a
    if type(a) is int and a == 0 and code == n.ADD:
        return b
    if type(b) is int and b == 1 and code in (n.FLOOR, n.REST):
        return a if code == n.FLOOR else 0
    if code == n.SUBTRACT and isinstance(a, Hinted) and isinstance(b, Hinted) and a.ref == b.ref:
        return 0
    return None


def hint(x: Any) -> Any:
    """The number in the call being bound, without a condition."""
    return _value(x)
