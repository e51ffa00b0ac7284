"""Where values stand outside a traced function: a root and steps from there in, the value that stands there now out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: a root (a cell, a globals dict and a name, or ``self``) and steps from there."""

    root: Any
    steps: tuple[tuple[str, Any], ...]
    text: str

    def attribute(self, name: str) -> Place:
        return Place(self.root, (*self.steps, ("attribute", name)), f"{self.text}.{name}")

    def item(self, key: Any) -> Place:
        return Place(self.root, (*self.steps, ("item", key)), f"{self.text}[{key!r}]")

    @property
    def key(self) -> tuple[Any, ...]:
        """Tells places apart that read alike: a closure's ``x`` and a global ``x``."""
        match self.root:
            case Self():
                return (Self, self.steps)
            case Held(value):
                return (id(value), self.steps)
            case (namespace, name):
                return (id(namespace), name, self.steps)
            case cell:
                return (id(cell), self.steps)


@dataclass(frozen=True, slots=True)
class Self:
    """The root of a method's own object, which differs from call to call."""


@dataclass(frozen=True, slots=True)
class Held:
    """The root that is an object held by the function itself: a bound method's ``self``, a partial's argument."""

    value: Any


@dataclass(frozen=True, slots=True)
class Found:
    place: Place
    value: Any


def read(place: Place, receiver: Any) -> Any:
    """The value that stands there now."""
    root = place.root
    if isinstance(root, Self):
        value = receiver
    elif isinstance(root, Held):
        value = root.value
    elif isinstance(root, tuple):
        value = root[0][root[1]]
    else:
        value = root.cell_contents
    for kind, key in place.steps:
        value = getattr(value, key) if kind == "attribute" else value[key]
    return value


NO_PLACES: Mapping[int, Place] = MappingProxyType({})
