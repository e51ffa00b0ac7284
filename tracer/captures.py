"""What a function reads besides its arguments: a function in, guards on its numbers and sources of its arrays out.

Walked are the closure cells, the globals that the function's own code names, and ``vars(self)`` of a method, through
containers and plain objects. Python scalars found there are guards; arrays that the trace captured are read again, at
each call, from the place where they stood. What helpers read from their own globals is frozen at the trace.
"""

from __future__ import annotations

import dis
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice
from types import CodeType, FunctionType, MappingProxyType, MethodType, ModuleType
from typing import Any, TypeAlias

import numpy as np

from tenferro.tracer.attributes import attributes_read
from tenferro.tracer.contents import Asked, Contents
from tenferro.tracer.errors import TraceError
from tenferro.tracer.lines import SourceLine, at, user_line
from tenferro.tracer.signature import static_key
from tenferro.tracer.trace import is_supported, is_tenferro_array

MAX_DEPTH = 4
MAX_PLACES = 4096
MAX_FOREIGN_BYTES = 1 << 16  # of arrays that no program can hold, compared at each call

_SCALARS = (bool, int, float, complex, str, bytes, type(None), Enum, np.generic, np.dtype)
_PARTS = (tuple, list, dict)

Generator: TypeAlias = np.random.Generator | np.random.RandomState


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


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _codes(constant)


@functools.lru_cache(maxsize=1024)
def names_of(code: CodeType) -> tuple[tuple[str, ...], frozenset[str]]:
    """The globals that the code and the functions inside it read, and the variables outside that they assign."""
    read: dict[str, None] = {}
    stored: set[str] = set()
    for part in _codes(code):
        for instruction in dis.get_instructions(part):
            if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                read[instruction.argval] = None
            elif instruction.opname in ("STORE_GLOBAL", "STORE_NAME"):
                stored.add(instruction.argval)
            elif instruction.opname == "STORE_DEREF" and instruction.argval in part.co_freevars:
                stored.add(instruction.argval)
    return tuple(read), frozenset(stored)


def _cells(function: FunctionType) -> Iterator[tuple[str, Any]]:
    stored = names_of(function.__code__)[1]
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if name not in stored:  # what the function itself counts or remembers is an effect of the trace
            yield name, cell


def _is_scalar(value: Any) -> bool:
    # A leaked Dim says that it is an int.
    return isinstance(value, _SCALARS) and not type(value).__module__.startswith("tenferro.")


def _contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # still empty
        return None


def _roots(function: FunctionType) -> Iterator[Found]:
    read, stored = names_of(function.__code__)
    for name in read:
        if name in function.__globals__ and name not in stored:
            yield Found(Place((function.__globals__, name), (), name), function.__globals__[name])
    yield from (Found(Place(cell, (), name), _contents(cell)) for name, cell in _cells(function))
    yield from _defaults(function)


def _defaults(function: FunctionType) -> Iterator[Found]:
    """The default arguments in which arrays stand; numbers among them cannot change."""
    code = function.__code__
    defaults = function.__defaults__ or ()
    names = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
    root = Held(function)
    for k, (name, value) in enumerate(zip(names, defaults, strict=True)):
        if _holds_array(value):
            yield Found(Place(root, (("attribute", "__defaults__"), ("item", k)), name), value)
    for name, value in (function.__kwdefaults__ or {}).items():
        if _holds_array(value):
            yield Found(Place(root, (("attribute", "__kwdefaults__"), ("item", name)), name), value)


def _holds_array(value: Any) -> bool:
    if isinstance(value, tuple | list):
        return any(_holds_array(v) for v in value[:16])
    if isinstance(value, dict):
        return any(_holds_array(v) for v in islice(value.values(), 16))
    return isinstance(value, np.ndarray) or is_tenferro_array(value)


def _children(found: Found, names: frozenset[str] | None, package: str) -> Iterator[Found]:
    """What stands in a container or an object. ``names``: the attributes of ``self`` that count, None for all."""
    value, place = found.value, found.place
    if isinstance(value, tuple | list):
        yield from (Found(place.item(k), v) for k, v in enumerate(value))
    elif isinstance(value, dict):
        yield from (Found(place.item(k), v) for k, v in value.items() if isinstance(k, str | int | tuple))
    elif isinstance(value, FunctionType) and not isinstance(place.root, tuple):
        # A helper in a closure is part of the function as written; a global helper is not.
        yield from (Found(Place(cell, (), name), _contents(cell)) for name, cell in _cells(value))
    elif isinstance(value, MethodType):
        yield Found(place.attribute("__self__"), value.__self__)
    elif isinstance(value, functools.partial):
        yield Found(place.attribute("args"), value.args)
        yield Found(place.attribute("keywords"), value.keywords)
    elif isinstance(place.root, Self | Held) and not place.steps and hasattr(value, "__dict__"):
        yield from (Found(place.attribute(k), v) for k, v in vars(value).items() if names is None or k in names)
    elif _is_plain_object(value, package):
        yield from (Found(place.attribute(k), v) for k, v in vars(value).items())


def _is_plain_object(value: Any, package: str) -> bool:
    """Whether an object is opened: one of the user's own classes, or a namespace. Loggers, figures and models of other
    packages change for reasons of their own."""
    if isinstance(value, type | ModuleType | FunctionType | MethodType) or not hasattr(value, "__dict__"):
        return False
    return type(value).__module__.split(".")[0] in (package, "__main__", "types", "argparse")


def walk(function: Callable[..., Any], receiver: Any = None) -> list[Found]:
    """Everything that the function can reach, nearest first, at most ``MAX_PLACES`` places."""
    plain, level = plain_function(function)
    if receiver is not None:
        level.append(Found(Place(Self(), (), "self"), receiver))
    package = getattr(function, "__module__", None) or ""
    names = None
    if plain is not None:
        package = plain.__module__ or ""
        owner = next((f.value for f in level if f.place.text == "self"), None)
        names = attributes_read(plain, type(owner)) if owner is not None else None
        level += _roots(plain)
    package = package.split(".")[0]
    found: list[Found] = []
    seen: set[int] = set()
    for _ in range(MAX_DEPTH + 1):
        found += level
        inner: list[Found] = []
        for f in level:
            room = MAX_PLACES - len(found) - len(inner)
            if id(f.value) in seen or room <= 0:
                continue
            seen.add(id(f.value))
            inner += islice(_children(f, names, package), room)
        level = inner
    return found


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was reachable when the trace began, so that what the trace itself changed can be told apart."""

    scalars: dict[tuple[Any, ...], Any]
    lengths: dict[tuple[Any, ...], int]
    generators: tuple[tuple[str, Generator, str], ...]
    found: tuple[Found, ...]


def _generator_state(generator: Generator) -> str:
    if isinstance(generator, np.random.RandomState):
        name, keys, *rest = generator.get_state()
        return f"{name} {hash(np.asarray(keys).tobytes())} {rest}"
    return repr(generator.bit_generator.state)


def snapshot(function: Callable[..., Any], receiver: Any = None) -> Snapshot:
    """To be taken before the trace."""
    found = walk(function, receiver)
    return Snapshot(
        {f.place.key: static_key(f.value) for f in found if _is_scalar(f.value)},
        {f.place.key: len(f.value) for f in found if isinstance(f.value, _PARTS)},
        tuple((f.place.text, f.value, _generator_state(f.value)) for f in found if _is_generator(f.value)),
        tuple(found),
    )


def _is_generator(value: Any) -> bool:
    return isinstance(value, np.random.Generator | np.random.RandomState)


def check_generators(before: Snapshot, function_name: str) -> None:
    """TraceError where the trace drew random numbers: they would be the same in every later call."""
    for text, generator, state in before.generators:
        if _generator_state(generator) != state:
            raise TraceError(
                f"{function_name}: generator {text} drew random numbers while tracing; they would be frozen into the "
                f"program, pass the numbers as an argument{at(user_line())}"
            )


@dataclass(frozen=True, slots=True)
class Guard:
    """One assumption about a reachable value; ``text`` is for explain()."""

    place: Place
    relation: str  # "equals", "is", "length", "contents"
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
            case _:
                return f"{self.place.text} == {self.value!r}"

    @property
    def failure(self) -> str:
        """What to say where it does not hold."""
        if self.relation == "contents":
            return f"the contents of {self.place.text}, asked for by {self.asked}, have changed"
        return f"{self.text} holds no longer"

    def holds(self, receiver: Any) -> bool:
        try:
            value = read(self.place, receiver)
        except (LookupError, AttributeError, ValueError, TypeError):
            return False
        match self.relation:
            case "contents":
                return bool(self.value.same(value))
            case "length":
                return bool(len(value) == self.value)
            case "is":
                return value is self.value
            case _:
                return same_scalar(value, self.value)


def same_scalar(a: Any, b: Any) -> bool:
    """Equal by type and value, 0.0 and −0.0 apart."""
    try:
        return type(a) is type(b) and bool(static_key(a) == static_key(b))
    except TypeError:
        return False


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


@dataclass(frozen=True, slots=True)
class Source:
    """Where a captured array is read: a place, or the very object where it stands in none."""

    place: Place | None
    held: Any

    @property
    def text(self) -> str:
        return self.place.text if self.place is not None else "an array made while tracing"


NO_PLACES: Mapping[int, Place] = MappingProxyType({})
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


def captures(
    function: Callable[..., Any],
    receiver: Any,
    before: Snapshot,
    arrays: Sequence[Any],
    places: Mapping[int, Place] = NO_PLACES,
    asked: Sequence[Asked] = (),
) -> Captures:
    """To be taken after the trace that captured ``arrays``. ``places`` says where other functions found theirs, by id;
    ``asked`` are the arrays whose elements the trace asked for."""
    found = walk(function, receiver)
    guards = [g for f in found if (g := _guard(f, before)) is not None]
    by_id = dict(places) | {id(f.value): f.place for f in reversed(found)}
    sources = []
    for array in arrays:
        place = by_id.get(id(array))
        sources.append(Source(place, array if place is None else None))
        base = getattr(array, "base", None)
        if place is None and base is not None and id(base) in by_id:
            # A view that the function took: another array in that place must be viewed anew.
            guards.append(Guard(by_id[id(base)], "is", base))
    for a in asked:
        place = by_id.get(id(a.array), Place(Held(a.array), (), "an array made while tracing"))
        guards.append(Guard(place, "contents", a.contents, a.what, a.line))
    unique = {(g.place.key, g.relation): g for g in guards}
    kept = tuple(unique.values())
    return Captures(kept, tuple(sources), _reader(kept, sources))


def _guard(f: Found, before: Snapshot) -> Guard | None:
    """None for what needs no guard, and for what the trace itself changed."""
    if _is_scalar(f.value):
        unchanged = before.scalars.get(f.place.key, _MISSING) == static_key(f.value)
        return Guard(f.place, "equals", f.value) if unchanged else None
    if isinstance(f.value, _PARTS):
        unchanged = before.lengths.get(f.place.key) == len(f.value)
        return Guard(f.place, "length", len(f.value)) if unchanged else None
    if isinstance(f.value, FunctionType):
        return Guard(f.place, "is", f.value)
    if type(f.value) is np.ndarray and not is_supported(f.value.dtype):
        # No input of the program can hold strings and dates: what NumPy computes of them is the trace's.
        small = f.value.nbytes <= MAX_FOREIGN_BYTES and not f.value.dtype.hasobject
        return Guard(f.place, "contents", Contents.of(f.value), "NumPy") if small else None
    return None


_MISSING = object()


def _reader(guards: Sequence[Guard], sources: Sequence[Source]) -> Reader:
    """One Python function for all guards and arrays: about 50 ns each, where a loop over records takes 500."""
    constants: dict[str, Any] = {"same": same_scalar}
    expressions = _Expressions(constants)
    conditions = []
    for guard in guards:
        value = expressions.of(guard.place)
        name = expressions.constant(guard.value)
        match guard.relation:
            case "contents":
                conditions.append(f"{name}.same({value})")
            case "length":
                conditions.append(f"len({value}) == {guard.value}")
            case "is":
                conditions.append(f"{value} is {name}")
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
