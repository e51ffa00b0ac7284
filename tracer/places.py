"""Where values stand outside a traced function: a root and steps from there in, the value that stands there now out."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any, Literal, TypeAlias

from tenferro.tracer.records import dataclass

Step: TypeAlias = tuple[Literal["attribute", "item", "call"], Any]


@dataclass(frozen=True, slots=True)
class Place:
    """Where a value stands: a root (a cell, a globals dict and a name, an object held, or ``self``) and steps from
    there: an attribute, an item, or a call with (positional, keyword) arguments of a function that remembers."""

    root: Any
    steps: tuple[Step, ...]
    text: str

    def attribute(self, name: str) -> Place:
        return Place(self.root, (*self.steps, ("attribute", name)), f"{self.text}.{name}")

    def item(self, key: Any) -> Place:
        return Place(self.root, (*self.steps, ("item", key)), f"{self.text}[{key!r}]")

    def call(self, args: tuple[Any, ...], kwargs: tuple[tuple[str, Any], ...]) -> Place:
        words = ", ".join([*map(_word, args), *(f"{k}={_word(v)}" for k, v in kwargs)])
        return Place(self.root, (*self.steps, ("call", (args, kwargs))), f"{self.text}({words})")

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


def _word(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"a {type(value).__name__}"


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


def of_class(cls: type | ModuleType) -> Place:
    """The place of a class or a module itself, whatever name it goes by."""
    return Place(Held(cls), (), cls.__name__)


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
        if kind == "attribute":
            value = getattr(value, key)
        elif kind == "item":
            value = value[key]
        else:
            value = value(*key[0], **dict(key[1]))
    return value


def plain_function(function: Callable[..., Any]) -> tuple[FunctionType | None, list[Found]]:
    """The Python function behind bound methods, partials and callable objects (None for a builtin), and the objects
    that these hold."""
    held: list[Found] = []
    while True:
        if isinstance(function, FunctionType):
            return function, held
        if isinstance(function, MethodType):
            held.append(Found(Place(Held(function.__self__), (), "self"), function.__self__))
            function = function.__func__
        elif isinstance(function, functools.partial):
            parts = (*function.args, *function.keywords.values())
            held += [Found(Place(Held(x), (), f"partial[{k}]"), x) for k, x in enumerate(parts)]
            function = function.func
        elif hasattr(function, "__wrapped__"):
            function = function.__wrapped__
        else:
            held.append(Found(Place(Held(function), (), "self"), function))
            calls = [vars(c)["__call__"] for c in type(function).__mro__ if "__call__" in vars(c)]
            return (calls[0] if calls and isinstance(calls[0], FunctionType) else None), held


_OURS = frozenset({"tenferro.jit", "tenferro.transformed", "tenferro.forward_rules", "tenferro.reverse_rules"})


def is_jitted(value: Any) -> bool:
    """Whether the value is a function of this package around a user's: inside a trace it is part of what calls it."""
    return type(value).__module__ in _OURS and isinstance(getattr(value, "__wrapped__", None), FunctionType)


def is_linear(value: Any) -> bool:
    """Whether the value is a function that a derivative has handed out, which holds arrays for good."""
    return type(value).__module__ == "tenferro.linearization"
