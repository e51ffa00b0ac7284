"""What a program assumes of outside values: guards and sources of arrays in, one function that reads them all out."""

from __future__ import annotations

import builtins
import weakref
from collections.abc import Callable, Iterable, Sequence
from enum import Enum
from operator import is_, itemgetter
from types import CellType
from typing import Any, TypeAlias

import numpy as np

from tenferro.tracer.attribute_hooks import instance_dict, lookup
from tenferro.tracer.exact import static_key
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.places import Held, Place, Self, read
from tenferro.tracer.records import dataclass

_MISSING = object()
_OF_FUNCTIONS = ("__code__", "__defaults__", "__func__")


@dataclass(frozen=True, slots=True)
class Guard:
    """One assumption about a reachable value; ``text`` is for explain().

    ``relation``: "equals" (a number or text), "value" (equal and of the same class), "is", "object" (the same object,
    not kept alive), "type", "length" (of a sequence: class and length), "keys" (of a dict: class and keys in order),
    "numbers" (in a long container), "contents" (of an array), "shared" (value: the other place), "member" (of a class:
    name and what stands there), "absent" (no attribute ``value``, no such name, nothing in the cell), "missing" (the
    same where ``hasattr`` tells it), "own" (``value`` is no attribute of the instance itself)."""

    place: Place
    relation: str
    value: Any
    asked: str = ""  # for contents: what asked for them
    line: SourceLine | None = None  # and where

    @property
    def key(self) -> tuple[Any, ...]:
        """One assumption of a kind is enough for a place; of names that are missing there may be many."""
        match self.relation:
            case "absent" | "missing" | "own":
                return (self.place.key, self.relation, self.value)
            case "member":
                return (self.place.key, self.relation, self.value[0])
            case "shared":
                return (self.place.key, self.relation, self.value.key)
            case _:
                return (self.place.key, self.relation)

    @property
    def is_shown(self) -> bool:
        """Whether explain() lists it where it holds: classes, their members, code and Python's names seldom change."""
        if self.relation in ("type", "member") or (self.relation == "absent" and self.place.text in vars(builtins)):
            return False
        return not self.place.steps or self.place.steps[-1][1] not in _OF_FUNCTIONS

    @property
    def text(self) -> str:
        name = self.place.text
        match self.relation:
            case "contents":
                return f"the contents of {name}, asked for by {self.asked}, are the same"
            case "length":
                return f"len({name}) == {self.value[1]}"
            case "keys":
                return f"{name} has the keys {_short(list(self.value[1]))}"
            case "numbers":
                return f"the numbers in {name} are the same"
            case "is" | "object":
                return f"{name} is the same object"
            case "type":
                return f"{name} is of class {self.value.__qualname__}"
            case "shared":
                return f"{name} is {self.value.text}"
            case "absent" | "missing":
                return f"{name} has no {self.value}" if self.value else f"there is no {name}"
            case "member":
                return f"{name}.{self.value[0]} is the same object"
            case "own":
                return f"{name} has no {self.value} of its own"
            case _:
                return f"{name} == {self.value!r}"

    def failure(self, receiver: Any) -> str:
        """What to say where it does not hold: what was there and what is there now."""
        name = self.place.text
        if self.relation in ("absent", "missing", "own"):
            return f"there is {name}.{self.value} now" if self.value else f"there is a {name} now"
        value = self._read(receiver)
        if value is _MISSING:
            return f"{name} is there no longer"
        match self.relation:
            case "contents":
                return f"the contents of {name}, asked for by {self.asked}, have changed"
            case "shared":
                kind = "array" if isinstance(value, np.ndarray) else "object"
                return f"{name} and {self.value.text} are one {kind} no longer"
            case "numbers":
                return f"numbers in {name} have changed"
            case "length" if type(value) is self.value[0]:
                return f"len({name}) was {self.value[1]}, is {len(value)}"
            case "keys" if type(value) is self.value[0]:
                return f"the keys of {name} were {_short(list(self.value[1]))}, are {_short(list(value))}"
            case "length" | "keys" | "type":
                was = self.value if self.relation == "type" else self.value[0]
                return f"{name} was of class {was.__qualname__}, is {_described(value)}"
            case "member":
                return f"{name}.{self.value[0]} is another object now"
            case "equals":
                return f"{name} was {self.value!r}, is {_described(value)}; pass it as an argument to keep one program"
            case _:
                return f"{name} is another object now"

    def _read(self, receiver: Any) -> Any:
        try:
            return read(self.place, receiver)
        except Exception:  # reading runs the user's own properties
            return _MISSING

    def holds(self, receiver: Any) -> bool:
        """Whether it does now, for the object of a method."""
        value = self._read(receiver)
        if self.relation == "absent" and not self.value:
            return value is _MISSING
        if value is _MISSING:
            return False
        other = self._read_other(receiver) if self.relation == "shared" else None
        return _HOLDS[self.relation](value, other if self.relation == "shared" else self.value)

    def _read_other(self, receiver: Any) -> Any:
        try:
            return read(self.value, receiver)
        except Exception:
            return _MISSING


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _described(value: Any) -> str:
    """The value as text; of an array or an object, the class."""
    is_scalar = isinstance(value, int | float | complex | str | bytes | Enum | np.generic | np.dtype | None)
    return repr(value) if is_scalar else f"of class {type(value).__qualname__}"


def same_scalar(a: Any, b: Any) -> bool:
    """Equal by type and value, 0.0 and −0.0 apart."""
    try:
        return type(a) is type(b) and bool(static_key(a) == static_key(b))
    except TypeError:
        return False


def is_absent(value: Any, name: str) -> bool:
    """Whether neither the object nor its class has the attribute; ``__getattr__`` may make one up."""
    if isinstance(value, type):
        return lookup(value, name, _MISSING) is _MISSING
    try:
        object.__getattribute__(value, name)
    except AttributeError:
        return True
    return False


def has_own(value: Any, name: str) -> bool:
    """Whether the instance itself has the attribute."""
    return name in instance_dict(value)


@dataclass(frozen=True, slots=True)
class Numbers:
    """The numbers and texts among the elements of a long container, by position; arrays and objects are left out."""

    positions: tuple[int, ...]
    values: tuple[Any, ...]

    def same(self, container: Any) -> bool:
        """Whether the container, whose length is known to be the same, holds the same ones at these places."""
        elements = list(container.values() if hasattr(container, "values") else container)
        found = elements if len(self.positions) == len(elements) else itemgetter(*self.positions)(elements)
        if all(map(is_, found, self.values)):  # as a rule, at 15 ns each
            return True
        return all(v is value or same_scalar(v, value) for v, value in zip(found, self.values, strict=True))


_HOLDS: dict[str, Callable[[Any, Any], bool]] = {
    "equals": same_scalar,
    "value": lambda v, value: type(v) is type(value) and bool(v == value),
    "is": lambda v, value: v is value,
    "object": lambda v, value: v is value(),
    "type": lambda v, value: type(v) is value,
    "length": lambda v, value: type(v) is value[0] and len(v) == value[1],
    "keys": lambda v, value: type(v) is value[0] and list(v) == value[1],
    "numbers": lambda v, value: value.same(v),
    "contents": lambda v, value: bool(value.same(v)),
    "shared": lambda v, other: v is other,
    "absent": is_absent,
    "missing": lambda v, value: not hasattr(v, value),
    "member": lambda v, value: lookup(v, value[0]) is value[1],
    "own": lambda v, value: not has_own(v, value),
}


def same_object(value: Any) -> tuple[str, Any]:
    """The relation that holds for this very object, without keeping it alive where that is possible."""
    try:
        return "object", weakref.ref(value)
    except TypeError:
        return "is", value


@dataclass(frozen=True, slots=True)
class Source:
    """Where a captured array is read: a place, or the very object where it stands in none."""

    place: Place | None
    held: Any

    @property
    def text(self) -> str:
        return self.place.text if self.place is not None else "an array made while tracing"


Reader: TypeAlias = Callable[[Any], "list[Any] | None"]


@dataclass(frozen=True)
class Captures:
    """``read(self)``: the captured arrays as they are now, in order, or None where a guard fails. ``is_empty``: there
    is nothing to look at."""

    guards: tuple[Guard, ...]
    sources: tuple[Source, ...]
    read: Reader

    @property
    def is_empty(self) -> bool:
        return not self.guards and not self.sources

    def failing(self, receiver: Any) -> Guard | None:
        """The first guard that does not hold."""
        return next((g for g in self.guards if not g.holds(receiver)), None)


def reader_of(guards: Sequence[Guard], sources: Sequence[Source]) -> Reader:
    """One Python function for all guards and arrays: some 50 ns each, where a loop over records takes 500."""
    text = _Text()
    for guard in guards:
        text.lines.append(f"  if not ({text.condition(guard)}): return None")
    arrays = [text.of(s.place) if s.place is not None else text.constant(s.held) for s in sources]
    lines = ["def read(receiver):", " try:", *text.lines, f"  return [{', '.join(arrays)}]"]
    lines += [" except Exception:", "  return None"]  # reading runs the user's own properties
    exec(compile("\n".join(lines), "<tenferro captures>", "exec"), text.constants)
    reader: Reader = text.constants["read"]
    return reader


class _Text:
    """Places and guards as Python text over a growing table of constants. What several places have in common is read
    once, in the order of the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.constants: dict[str, Any] = {
            "same": same_scalar, "is_absent": is_absent, "has_own": has_own, "is_empty": is_empty,
            "lookup": lookup,
        }  # fmt: skip
        self._names: dict[int, tuple[str, Any]] = {}
        self._variables: dict[tuple[Any, ...], str] = {}

    def constant(self, value: Any) -> str:
        """The name of an object, the same one for the same object."""
        known = self._names.get(id(value))
        if known is None:
            known = self._names[id(value)] = (f"c{len(self._names)}", value)
            self.constants[known[0]] = value
        return known[0]

    def of(self, place: Place) -> str:
        """The variable that holds what stands there, read by the lines so far."""
        key = place.key
        known = self._variables.get(key)
        if known is None:
            expression = self._expression(place)
            known = expression if expression == "receiver" else f"v{len(self._variables)}"
            if known != expression:
                self.lines.append(f"  {known} = {expression}")
            self._variables[key] = known
        return known

    def _expression(self, place: Place) -> str:
        root = place.root
        if place.steps:
            base = self.of(Place(root, place.steps[:-1], ""))
            return self._step(base, *place.steps[-1])
        if isinstance(root, Self):
            return "receiver"
        if isinstance(root, Held):
            return self.constant(root.value)
        if isinstance(root, tuple):
            return f"{self.constant(root[0])}[{root[1]!r}]"
        return f"{self.constant(root)}.cell_contents"

    def _step(self, base: str, kind: str, key: Any) -> str:
        if kind == "item":
            return f"{base}[{repr(key) if type(key) in (int, str) else self.constant(key)}]"
        if kind == "call":
            words = [self.constant(a) for a in key[0]]
            words += [f"{name}={self.constant(a)}" for name, a in key[1]]
            return f"{base}({', '.join(words)})"
        return f"{base}.{key}" if key.isidentifier() else f"getattr({base}, {key!r})"

    def condition(self, guard: Guard) -> str:
        """An expression that is true where the guard holds."""
        if guard.relation == "absent" and not guard.value:
            return self._no_such(guard.place)
        v, value = self.of(guard.place), guard.value
        match guard.relation:
            case "equals":
                return self._equals(v, value)
            case "value":
                name = self.constant(value)
                return f"type({v}) is {self.constant(type(value))} and {v} == {name}"
            case "is":
                return f"{v} is {self.constant(value)}"
            case "object":
                return f"{v} is {self.constant(value)}()"
            case "type":
                return f"type({v}) is {self.constant(value)}"
            case "length":
                return f"type({v}) is {self.constant(value[0])} and len({v}) == {value[1]}"
            case "keys":
                return f"type({v}) is {self.constant(value[0])} and list({v}) == {self.constant(value[1])}"
            case "numbers" | "contents":
                return f"{self.constant(value)}.same({v})"
            case "shared":
                return f"{v} is {self.of(value)}"
            case "absent":
                return f"is_absent({v}, {value!r})"
            case "missing":
                return f"not hasattr({v}, {value!r})"
            case "member":
                return self._is_member(v, *value)
            case _:
                return f"not has_own({v}, {value!r})"

    def _equals(self, v: str, value: Any) -> str:
        name, kind = self.constant(value), type(value)
        if kind in (bool, type(None)):
            return f"{v} is {name}"
        if kind in (int, str, bytes) or (kind is float and value == value and value):
            return f"({v} is {name} or (type({v}) is {self.constant(kind)} and {v} == {name}))"
        return f"({v} is {name} or same({v}, {name}))"

    def _is_member(self, v: str, name: str, member: Any) -> str:
        # While another thread traces, a hook may stand in front of it.
        there = f"lookup({v}, {name!r}) is {self.constant(member)}"
        plain = member.__func__ if isinstance(member, staticmethod) else member
        if isinstance(member, classmethod) or not name.isidentifier():
            return there
        return f"({v}.{name} is {self.constant(plain)} or {there})"

    def _no_such(self, place: Place) -> str:
        if isinstance(place.root, CellType):
            return f"is_empty({self.constant(place.root)})"
        namespace, name = place.root
        return f"{name!r} not in {self.constant(namespace)}"


def is_empty(cell: CellType) -> bool:
    """Whether nothing stands in the cell yet."""
    try:
        _ = cell.cell_contents
    except ValueError:
        return True
    return False


def kept(guards: Iterable[Guard], receiver: Any) -> list[Guard]:
    """Those that hold: what the trace changed and put back is no assumption."""
    return [g for g in guards if g.holds(receiver)]


NO_CAPTURES = Captures((), (), lambda receiver: [])
