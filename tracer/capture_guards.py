"""What a program assumes of outside values: guards and sources of arrays in, one function that reads them all out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

import numpy as np

from tenferro.tracer.exact import static_key
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.places import Held, Place, Self, read


@dataclass(frozen=True, slots=True)
class Guard:
    """One assumption about a reachable value; ``text`` is for explain()."""

    place: Place
    relation: str  # "equals", "is", "length", "contents", "value", "shared" (value: the other place)
    value: Any
    asked: str = ""  # for contents: what asked for them
    line: SourceLine | None = None  # and where

    @property
    def text(self) -> str:
        match self.relation:
            case "contents":
                return f"the contents of {self.place.text}, asked for by {self.asked}, are the same"
            case "length":
                return f"len({self.place.text}) == {self.value}"
            case "is":
                return f"{self.place.text} is the same object"
            case "shared":
                return f"{self.place.text} is {self.value.text}"
            case _:
                return f"{self.place.text} == {self.value!r}"

    def failure(self, receiver: Any) -> str:
        """What to say where it does not hold: what was there and what is there now."""
        name = self.place.text
        try:
            value = read(self.place, receiver)
        except (LookupError, AttributeError, ValueError, TypeError):
            return f"{name} is there no longer"
        match self.relation:
            case "contents":
                return f"the contents of {name}, asked for by {self.asked}, have changed"
            case "shared":
                return f"{name} and {self.value.text} are one array no longer"
            case "length" if hasattr(value, "__len__"):
                return f"len({name}) was {self.value}, is {len(value)}"
            case "equals":
                return f"{name} was {self.value!r}, is {_short(value)}; pass it as an argument to keep one program"
            case _:
                return f"{name} is another object now"

    def holds(self, receiver: Any) -> bool:
        try:
            value = read(self.place, receiver)
        except (LookupError, AttributeError, ValueError, TypeError):
            return False
        match self.relation:
            case "contents":
                return bool(self.value.same(value))
            case "length":
                return bool(hasattr(value, "__len__") and len(value) == self.value)
            case "value":
                return type(value) is type(self.value) and bool(value == self.value)
            case "shared":
                return value is read(self.value, receiver)
            case "is":
                return value is self.value
            case _:
                return same_scalar(value, self.value)


def _short(value: Any) -> str:
    """The value as text; of an array or an object, the class."""
    is_scalar = isinstance(value, int | float | complex | str | bytes | Enum | np.generic | np.dtype | None)
    return repr(value) if is_scalar else f"of class {type(value).__qualname__}"


def same_scalar(a: Any, b: Any) -> bool:
    """Equal by type and value, 0.0 and −0.0 apart."""
    try:
        return type(a) is type(b) and bool(static_key(a) == static_key(b))
    except TypeError:
        return False


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
    """One Python function for all guards and arrays: about 50 ns each, where a loop over records takes 500."""
    constants: dict[str, Any] = {"same": same_scalar}
    expressions = _Expressions(constants)
    conditions = []
    for guard in guards:
        value = expressions.of(guard.place)
        is_shared = guard.relation == "shared"
        name = expressions.of(guard.value) if is_shared else expressions.constant(guard.value)
        match guard.relation:
            case "contents":
                conditions.append(f"{name}.same({value})")
            case "length":
                conditions.append(f"len({value}) == {guard.value}")
            case "is" | "shared":
                conditions.append(f"{value} is {name}")
            case "value":
                conditions.append(f"type(v := {value}) is type({name}) and v == {name}")
            case _:
                conditions.append(f"((v := {value}) is {name} or same(v, {name}))")
    arrays = [expressions.of(s.place) if s.place is not None else expressions.constant(s.held) for s in sources]
    lines = ["def read(receiver):", " try:"]
    lines += [f"  if not ({c}): return None" for c in conditions]
    lines += [f"  return [{', '.join(arrays)}]", " except (LookupError, AttributeError, ValueError, TypeError):"]
    lines += ["  return None"]
    exec(compile("\n".join(lines), "<tenferro captures>", "exec"), constants)
    reader: Reader = constants["read"]
    return reader


class _Expressions:
    """Places as Python text over a growing table of constants."""

    def __init__(self, constants: dict[str, Any]) -> None:
        self._constants = constants

    def constant(self, value: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants[name] = value
        return name

    def of(self, place: Place) -> str:
        root = place.root
        if isinstance(root, Self):
            text = "receiver"
        elif isinstance(root, Held):
            text = self.constant(root.value)
        elif isinstance(root, tuple):
            text = f"{self.constant(root[0])}[{root[1]!r}]"
        else:
            text = f"{self.constant(root)}.cell_contents"
        for kind, key in place.steps:
            if kind == "item":
                text = f"{text}[{self.constant(key)}]"
            elif key.isidentifier():
                text = f"{text}.{key}"
            else:
                text = f"getattr({text}, {self.constant(key)})"
        return text


NO_CAPTURES = Captures((), (), lambda receiver: [])
