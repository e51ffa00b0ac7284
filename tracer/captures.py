"""What a function reads besides its arguments: a function in, guards on its numbers and sources of its arrays out.

Walked are the closure cells, the globals that the function's own code names, and ``vars(self)`` of a method, through
containers and plain objects. Python scalars found there are guards; arrays that the trace captured are read again, at
each call, from the place where they stood. What helpers read from their own globals is frozen at the trace.
"""

from __future__ import annotations

import dis
import functools
import random
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from itertools import islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any, TypeAlias

import numpy as np

from tenferro.tracer.attributes import attributes_read
from tenferro.tracer.capture_guards import Captures, Guard, Source, reader_of
from tenferro.tracer.contents import MAX_COMPARED_BYTES, Asked, Contents
from tenferro.tracer.errors import TraceError
from tenferro.tracer.exact import static_key
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.places import NO_PLACES, Found, Held, Place, Self, read
from tenferro.tracer.trace import is_supported, is_tenferro_array

MAX_DEPTH = 4
MAX_PLACES = 4096
MAX_FOREIGN_BYTES = 1 << 16  # of arrays that no program can hold, compared at each call

_SCALARS = (bool, int, float, complex, str, bytes, type(None), Enum, np.generic, np.dtype)
_PARTS = (tuple, list, dict)
_CALLED = (np.ufunc, BuiltinFunctionType, type(np.concatenate))
_VALUES = (slice, range, set, frozenset, Fraction, Decimal, date)
"""Compared by value; copies are kept of what can change."""

Generator: TypeAlias = np.random.Generator | np.random.RandomState | random.Random


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


def codes_of(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from codes_of(constant)


@functools.lru_cache(maxsize=1024)
def names_of(code: CodeType) -> tuple[tuple[str, ...], frozenset[str]]:
    """The globals that the code and the functions inside it read, and the variables outside that they assign."""
    read: dict[str, None] = {}
    stored: set[str] = set()
    for part in codes_of(code):
        for opcode, argument in _namings(part.co_code):
            if opcode == _LOAD_GLOBAL:
                read[part.co_names[argument >> 1]] = None  # the lowest bit says whether it will be called
            elif opcode == _LOAD_NAME:
                read[part.co_names[argument]] = None
            elif opcode == _STORE_DEREF:
                name = part._varname_from_oparg(argument)  # type: ignore[attr-defined]
                if name in part.co_freevars:
                    stored.add(name)
            else:
                stored.add(part.co_names[argument])
    return tuple(read), frozenset(stored)


_LOAD_GLOBAL, _LOAD_NAME, _STORE_DEREF = (dis.opmap[n] for n in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_DEREF"))
_NAMING = frozenset({_LOAD_GLOBAL, _LOAD_NAME, _STORE_DEREF, dis.opmap["STORE_GLOBAL"], dis.opmap["STORE_NAME"]})


def _namings(code: bytes) -> Iterator[tuple[int, int]]:
    """The instructions that name variables outside, with their arguments. ``dis`` describes every instruction, which
    for a function of 3,000 operations takes a sixth of its compilation."""
    extended = 0
    for position in range(0, len(code), 2):
        opcode = code[position]
        if opcode == dis.EXTENDED_ARG:
            extended = (extended | code[position + 1]) << 8
            continue
        if opcode in _NAMING:
            yield opcode, extended | code[position + 1]
        extended = 0


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


@functools.lru_cache(maxsize=1024)
def mentioned_names(code: CodeType) -> frozenset[str]:
    """Every name in the code and in the functions inside it, attributes included."""
    return frozenset(name for part in codes_of(code) for name in part.co_names)


def is_foreign(name: str) -> bool:
    """Whether the module belongs to Python, NumPy or this package: what stands there does not change."""
    top = name.split(".")[0]
    return top in sys.stdlib_module_names or top in ("numpy", "tenferro")


def _members(found: Found, mentioned: frozenset[str]) -> Iterator[Found]:
    """The arrays and numbers of a module or a class that the code mentions by name."""
    value = found.value
    module = value.__name__ if isinstance(value, ModuleType) else value.__module__
    if is_foreign(module) or (isinstance(value, type) and issubclass(value, Enum)):
        return
    for name in sorted(mentioned & vars(value).keys()):
        member = vars(value)[name]
        if _is_scalar(member) or _holds_array(member):
            yield Found(found.place.attribute(name), member)


def _children(found: Found, names: frozenset[str] | None, package: str, mentioned: frozenset[str]) -> Iterator[Found]:
    """What stands in a container or an object. ``names``: the attributes of ``self`` that count, None for all.
    ``mentioned``: the names that count in modules and classes."""
    value, place = found.value, found.place
    if isinstance(value, tuple | list):
        yield from (Found(place.item(k), v) for k, v in enumerate(value))
    elif isinstance(value, dict):
        yield from (Found(place.item(k), v) for k, v in value.items() if isinstance(k, str | int | tuple))
    elif _is_jitted(value):
        yield from _roots(value.__wrapped__)
    elif isinstance(value, FunctionType) and not isinstance(place.root, tuple):
        # A helper in a closure is part of the function as written; a global helper is not.
        yield from (Found(Place(cell, (), name), _contents(cell)) for name, cell in _cells(value))
    elif isinstance(value, ModuleType | type):
        yield from _members(found, mentioned)
    elif isinstance(value, MethodType):
        yield Found(place.attribute("__self__"), value.__self__)
    elif isinstance(value, functools.partial):
        yield Found(place.attribute("args"), value.args)
        yield Found(place.attribute("keywords"), value.keywords)
    elif isinstance(place.root, Self | Held) and not place.steps and not isinstance(value, FunctionType):
        yield from (Found(place.attribute(k), v) for k, v in _attributes(value, names))
    elif is_plain_object(value, package):
        yield from (Found(place.attribute(k), v) for k, v in _attributes(value, None))


def _attributes(value: Any, names: frozenset[str] | None) -> Iterator[tuple[str, Any]]:
    """What the object holds, in its dict or in slots; of its class, arrays and, where they are named, numbers."""
    held: dict[str, Any] = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        for name, member in vars(cls).items():
            if name in held or name.startswith("__") or (names is not None and name not in names):
                continue
            if isinstance(member, MemberDescriptorType):
                if hasattr(value, name):
                    held[name] = getattr(value, name)
            elif _holds_array(member) or (names is not None and _is_scalar(member)):
                held[name] = member
    yield from ((k, v) for k, v in held.items() if names is None or k in names)


def _is_jitted(value: Any) -> bool:
    """Whether the value is a jitted function: inside a trace it is part of the function that calls it."""
    return type(value).__module__ == "tenferro.jit" and isinstance(getattr(value, "__wrapped__", None), FunctionType)


def is_plain_object(value: Any, package: str) -> bool:
    """Whether an object is opened: one of the user's own classes, or a namespace. Loggers, figures and models of other
    packages change for reasons of their own."""
    if isinstance(value, type | ModuleType | FunctionType | MethodType):
        return False
    if not hasattr(value, "__dict__") and not hasattr(type(value), "__slots__"):
        return False
    return type(value).__module__.split(".")[0] in (package, "__main__", "types", "argparse")


def walk(function: Callable[..., Any], receiver: Any = None) -> list[Found]:
    """Everything that the function can reach, nearest first, at most ``MAX_PLACES`` places."""
    plain, level = plain_function(function)
    if receiver is not None:
        level.append(Found(Place(Self(), (), "self"), receiver))
    package = getattr(function, "__module__", None) or ""
    names = None
    mentioned: frozenset[str] = frozenset()
    if plain is not None:
        package = plain.__module__ or ""
        owner = next((f.value for f in level if f.place.text == "self"), None)
        names = attributes_read(plain, type(owner)) if owner is not None else None
        level += _roots(plain)
        mentioned = mentioned_names(plain.__code__)
    package = "" if is_foreign(package) else package.split(".")[0]
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
            inner += islice(_children(f, names, package, mentioned), room)
        level = inner
    return found


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What was reachable when the trace began, so that what the trace itself changed can be told apart."""

    scalars: dict[tuple[Any, ...], Any]
    lengths: dict[tuple[Any, ...], int]
    values: dict[tuple[Any, ...], Any]
    generators: tuple[tuple[str, Generator, str], ...]
    found: tuple[Found, ...]


def _generator_state(generator: Generator) -> str:
    if isinstance(generator, random.Random):
        return str(hash(generator.getstate()))
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
        {f.place.key: copy(f.value) for f in found if isinstance(f.value, _VALUES)},
        tuple((f.place.text, g, _generator_state(g)) for f in found if (g := _generator(f.value)) is not None),
        tuple(found),
    )


def _generator(value: Any) -> Generator | None:
    """The generator that draws through the value: itself, Python's own behind ``random`` and ``random.gauss``."""
    if value is random:
        return random.random.__self__  # type: ignore[attr-defined, no-any-return]
    if isinstance(value, BuiltinFunctionType | MethodType):
        value = value.__self__
    return value if isinstance(value, Generator) else None


def check_generators(before: Snapshot, function_name: str) -> None:
    """TraceError where the trace drew random numbers: they would be the same in every later call."""
    for text, generator, state in before.generators:
        if _generator_state(generator) != state:
            raise TraceError(
                f"{function_name}: generator {text} drew random numbers while tracing; they would be frozen into the "
                f"program, pass the numbers as an argument{at(user_line())}"
            )


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
    taken = {id(a) for a in arrays}
    # One array under two names is one input: it is two when the names part.
    guards += [
        Guard(f.place, "shared", by_id[id(f.value)])
        for f in found
        if id(f.value) in taken and f.place.key != by_id[id(f.value)].key
    ]
    guards += [_of_class(f) for f in found if id(f.value) not in taken and _is_class_array(f)]
    for a in asked:
        place = by_id.get(id(a.array), Place(Held(a.array), (), "an array made while tracing"))
        guards.append(Guard(place, "contents", a.contents, a.what, a.line))
    unique = {(g.place.key, g.relation): g for g in guards}
    kept = tuple(unique.values())
    return Captures(kept, tuple(sources), reader_of(kept, sources))


def _is_class_array(f: Found) -> bool:
    """Whether an array stands in a class that the function names: NumPy work on it is not seen."""
    if type(f.value) is not np.ndarray or not f.place.steps or not is_supported(f.value.dtype):
        return False
    owner = Place(f.place.root, f.place.steps[:-1], "")
    return not isinstance(owner.root, Self) and isinstance(read(owner, None), type)


def _of_class(f: Found) -> Guard:
    if f.value.nbytes > MAX_COMPARED_BYTES:
        raise TraceError(
            f"{f.place.text}: an array of {f.value.nbytes} bytes in a class, which would be compared at each call; at "
            f"most {MAX_COMPARED_BYTES} are; pass it as an argument{at(user_line())}"
        )
    return Guard(f.place, "contents", Contents.of(f.value), "NumPy")


def _guard(f: Found, before: Snapshot) -> Guard | None:
    """None for what needs no guard, and for what the trace itself changed."""
    if _is_scalar(f.value):
        unchanged = before.scalars.get(f.place.key, _MISSING) == static_key(f.value)
        return Guard(f.place, "equals", f.value) if unchanged else None
    if isinstance(f.value, _PARTS):
        unchanged = before.lengths.get(f.place.key) == len(f.value)
        return Guard(f.place, "length", len(f.value)) if unchanged else None
    if isinstance(f.value, (FunctionType, *_CALLED)) or _is_number_type(f.value):
        return Guard(f.place, "is", f.value)
    if isinstance(f.value, _VALUES):
        unchanged = before.values.get(f.place.key, _MISSING) == f.value
        return Guard(f.place, "value", copy(f.value)) if unchanged else None
    if type(f.value) is np.ndarray and not is_supported(f.value.dtype):
        # No input of the program can hold strings and dates: what NumPy computes of them is the trace's.
        small = f.value.nbytes <= MAX_FOREIGN_BYTES and not f.value.dtype.hasobject
        return Guard(f.place, "contents", Contents.of(f.value), "NumPy") if small else None
    return None


def _is_number_type(value: Any) -> bool:
    """Whether a type stands for a dtype, as in ``x.astype(DT)``."""
    return isinstance(value, type) and (issubclass(value, np.generic) or value in (bool, int, float, complex))


_MISSING = object()
