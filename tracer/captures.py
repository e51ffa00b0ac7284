"""What a function reads besides its arguments, followed while it is traced: guards on what is there, places of arrays.

What the code of the user's functions names (closure cells, globals, defaults) is visited before it runs, through
containers and the functions found there. Attributes of objects and modules are visited when they are read: what is
there, and that something is not. Every value visited is an assumption of the program: numbers are compared at each
call, objects by class, and arrays are read again where they stand.
"""

from __future__ import annotations

import functools
import random
import sys
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextvars import ContextVar
from copy import copy
from datetime import date, time, timedelta
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CellType,
    FunctionType,
    MappingProxyType,
    MethodType,
    ModuleType,
    SimpleNamespace,
)
from typing import Any, TypeAlias

import numpy as np

from tenferro.tracer.attribute_hooks import Hooks, instance_dict
from tenferro.tracer.capture_guards import Captures, Guard, Numbers, Source, kept, reader_of, same_object
from tenferro.tracer.code_names import asked_names, imported_names, names_of
from tenferro.tracer.contents import MAX_COMPARED_BYTES, Asked, Contents
from tenferro.tracer.errors import TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ownership import Ownership, Whose
from tenferro.tracer.places import Found, Held, Place, Self, is_jitted, is_linear, plain_function, read
from tenferro.tracer.trace import is_supported, is_tenferro_array

MAX_FUNCTIONS = 512
MAX_GUARDS = 16384
MAX_DEPTH = 32  # of containers in containers
MANY = 64  # numbers in a container: from here on they are compared as one
MAX_NUMBERS = 1 << 18  # comparing as many at each call takes 5 to 10 ms

LRU = type(functools.lru_cache(lambda: None))
Generator: TypeAlias = np.random.Generator | np.random.RandomState | random.Random
_SCALARS = (bool, int, float, complex, str, bytes, type(None), Enum, np.generic, np.dtype)
_CALLED = (np.ufunc, BuiltinFunctionType, type(np.concatenate), LRU)
_VALUES = (
    slice, range, set, frozenset, Fraction, Decimal, date, time, timedelta, PurePath, bytearray, array, type(...)
)  # fmt: skip
"""Compared by value; copies are kept of what can change."""
_TYPES = (np.generic, bool, int, float, complex)  # they stand for dtypes
_SEQUENCES = (tuple, list, deque)
_MAPPINGS = (dict, MappingProxyType)


def is_scalar(value: Any) -> bool:
    """Whether the value is compared as a number or a text."""
    # A leaked Dim says that it is an int.
    return isinstance(value, _SCALARS) and not type(value).__module__.startswith("tenferro.")


def is_captured_array(value: Any) -> bool:
    """Whether a value from outside becomes an input of the program."""
    kind = type(value)
    return (kind is np.ndarray or kind is np.memmap or is_tenferro_array(value)) and is_supported(np.dtype(value.dtype))


def generator_of(value: Any) -> Generator | None:
    """The generator that draws through the value: itself, Python's own behind ``random`` and ``random.gauss``."""
    if value is random:
        return random.random.__self__  # type: ignore[attr-defined, no-any-return]
    if isinstance(value, BuiltinFunctionType | MethodType):
        value = value.__self__
    return value if isinstance(value, Generator) else None


def _generator_state(generator: Generator) -> str:
    if isinstance(generator, random.Random):
        return str(hash(generator.getstate()))
    if isinstance(generator, np.random.RandomState):
        name, keys, *rest = generator.get_state()
        return f"{name} {hash(np.asarray(keys).tobytes())} {rest}"
    return repr(generator.bit_generator.state)


class Captured:
    """What one trace reads from outside. ``hooks`` tells which attributes are read.

    ``entered(function)`` is called for each function of the user's own that is found, before it runs, and
    ``opened(cls, is_class)`` for the class of each object, or each class itself."""

    def __init__(self, function: Callable[..., Any], name: str, hooks: Hooks) -> None:
        plain, _ = plain_function(function)
        self.owner = Ownership(getattr(plain if plain is not None else function, "__module__", None))
        self.hooks = hooks
        self.objects: dict[int, tuple[Place, Any, Whose]] = {}  # by id, as below; holding them keeps ids unique
        self.arrays: dict[int, tuple[Place, Any]] = {}
        self.entered: Callable[[FunctionType], None] = lambda function: None
        self.opened: Callable[[type, bool], None] = lambda cls, is_class: None
        self.functions: dict[int, FunctionType] = {}  # by id: those that are followed
        # What no guard says, since it does not change while a process runs; another process may be told otherwise.
        self.foreign: list[tuple[Place, Any]] = []  # places of modules and classes of Python, NumPy and this package
        self.doubts: list[tuple[Place | None, str]] = []  # what is taken as it is now, and where
        self._name = name
        self._guards: dict[tuple[Any, ...], Guard] = {}
        self._again: list[tuple[Place, Any]] = []  # further places of an array that is known
        self._generators: list[tuple[str, Generator, str]] = []
        self._waiting: list[FunctionType] = []

    # -- what is assumed ---------------------------------------------------------------------------------------------

    def guard(self, place: Place, relation: str, value: Any, **more: Any) -> None:
        """Assume something of a place, unless the same is assumed there already."""
        if len(self._guards) >= MAX_GUARDS:
            raise self._too_many(place, MAX_GUARDS)
        made = Guard(place, relation, value, **more)
        self._guards.setdefault(made.key, made)

    def _too_many(self, place: Place, most: int) -> TraceError:
        return TraceError(
            f"{self._name}: {place.text} and what stands around it are more than {most} values, which would be "
            f"compared at each call; pass as an argument what the function needs{at(user_line())}"
        )

    def check_generators(self) -> None:
        """TraceError where the trace drew random numbers: they would be the same in every later call."""
        for text, generator, state in self._generators:
            if _generator_state(generator) != state:
                raise TraceError(
                    f"{self._name}: generator {text} drew random numbers while tracing; they would be frozen into the "
                    f"program, tenferro.random makes numbers of a key, or pass the numbers as an "
                    f"argument{at(user_line())}"
                )

    def captures(
        self, receiver: Any, arrays: Sequence[Any], places: Mapping[int, Place], asked: Sequence[Asked] = ()
    ) -> Captures:
        """To be taken after the trace that captured ``arrays``. ``places`` says where others were found, by id;
        ``asked`` are the arrays whose elements the trace asked for."""
        self._settle(receiver)
        known = {**places, **{number: place for number, (place, _) in self.arrays.items()}}
        guards = kept(self._guards.values(), receiver)
        sources = []
        for found in arrays:
            place = known.get(id(found))
            sources.append(Source(place, found if place is None else None))
            base = getattr(found, "base", None)
            if place is None and base is not None and id(base) in known:
                # A view that the function took: another array in that place must be viewed anew.
                guards.append(Guard(known[id(base)], "is", base))
        taken = {id(a) for a in arrays}
        # One array under two names is one input: it is two when the names part.
        guards += [Guard(p, "shared", known[id(a)]) for p, a in self._again if id(a) in taken]
        for a in asked:
            place = known.get(id(a.array), Place(Held(a.array), (), "an array made while tracing"))
            guards.append(Guard(place, "contents", a.contents, a.what, a.line))
        unique = tuple({g.key: g for g in guards}.values())
        return Captures(unique, tuple(sources), reader_of(unique, sources))

    def _settle(self, receiver: Any) -> None:
        """What the trace itself has put beside a member of a class, as a cached property does, is there from now on."""
        for guard in [g for g in self._guards.values() if g.relation == "own" and not g.holds(receiver)]:
            place = guard.place.attribute(guard.value)
            self.visit(place, read(place, receiver))

    # -- functions ---------------------------------------------------------------------------------------------------

    def start(self, function: Callable[..., Any], receiver: Any) -> None:
        """Visit what the function reaches by name, its object and what it holds."""
        plain, held = plain_function(function)
        if receiver is not None:
            held.append(Found(Place(Self(), (), "self"), receiver))
        for found in held:
            self.visit(found.place, found.value, is_own=True)
        if plain is not None:
            self.function(plain)

    def argument(self, name: str, value: Any) -> None:
        """Visit an argument that counts by identity, a function or an object: what it holds is read where it is."""
        if is_scalar(value) or isinstance(value, type) or is_captured_array(value):
            return
        if callable(value) or self.owner.of_class(type(value)) == "own":
            self.visit(Place(Held(value), (), name), value, is_own=True)

    def function(self, function: FunctionType) -> None:
        """Visit what a function of the user's own, and those that it reaches, read by name."""
        self._waiting.append(function)
        if len(self._waiting) > 1:  # the call that is running comes to it
            return
        while self._waiting:
            current = self._waiting[0]
            if len(self.functions) >= MAX_FUNCTIONS:
                self.doubts.append((None, f"it reaches more than {MAX_FUNCTIONS} functions"))
            elif id(current) not in self.functions:
                self.functions[id(current)] = current
                self.entered(current)
                self._enter(current)
            self._waiting.pop(0)

    def _enter(self, function: FunctionType) -> None:
        code, namespace = function.__code__, function.__globals__
        read, stored = names_of(code)
        # A function of this package, of Python or NumPy is not the user's, but what it holds may be.
        is_foreign = self.owner.of(function.__module__) == "foreign"
        for name in () if is_foreign else read:
            place = Place((namespace, name), (), name)
            if name in namespace:
                if name not in stored:
                    self.visit(place, namespace[name])
            else:
                self.guard(place, "absent", "")
        if "globals" in read and not is_foreign:
            self._by_text(namespace, asked_names(code))
        for name in () if is_foreign else imported_names(code):
            for full in (name, f"{namespace.get('__package__')}.{name}"):
                if full in sys.modules:
                    self.visit(Place((sys.modules, full), (), full), sys.modules[full])
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            if name not in stored:  # what the function itself counts or remembers is an effect of the trace
                self._cell(Place(cell, (), name), cell)
        self._defaults(function)

    def _by_text(self, namespace: dict[str, Any], names: Iterable[str]) -> None:
        """Globals that the function may ask for by a text: it gets them as they are."""
        for name in names:
            place = Place((namespace, name), (), name)
            if name not in namespace:
                self.guard(place, "absent", "")
                continue
            self.visit(place, namespace[name])
            if is_captured_array(namespace[name]):
                self.compared(place, namespace[name])

    def _cell(self, place: Place, cell: CellType) -> None:
        try:
            value = cell.cell_contents
        except ValueError:  # still empty
            self.guard(place, "absent", "")
            return
        self.visit(place, value)

    def _defaults(self, function: FunctionType) -> None:
        """The default arguments that can change: numbers cannot."""
        code, root = function.__code__, Held(function)
        defaults = function.__defaults__ or ()
        names = code.co_varnames[: code.co_argcount][code.co_argcount - len(defaults) :]
        for k, (name, value) in enumerate(zip(names, defaults, strict=True)):
            if not is_scalar(value):
                self.visit(Place(root, (("attribute", "__defaults__"), ("item", k)), name), value)
        for name, value in (function.__kwdefaults__ or {}).items():
            if not is_scalar(value):
                self.visit(Place(root, (("attribute", "__kwdefaults__"), ("item", name)), name), value)
        for name, value in function.__dict__.items():
            if not name.startswith("__"):
                self.visit(Place(root, (("attribute", name),), f"{function.__name__}.{name}"), value)

    # -- values ------------------------------------------------------------------------------------------------------

    def visit(self, place: Place, value: Any, depth: int = 0, is_own: bool = False) -> None:
        """Assume that this value stands in the place, and go through what stands in it. ``is_own``: an object is
        followed whatever its class is."""
        generator = generator_of(value)
        if generator is not None:
            self._generators.append((place.text, generator, _generator_state(generator)))
            self.doubts.append((place, f"{place.text} draws random numbers"))
        if is_scalar(value):
            self.guard(place, "equals", value)
        elif type(value).__module__.startswith("tenferro.tracer."):
            self.doubts.append((place, f"{place.text} is a {type(value).__qualname__}"))  # the trace's own
        elif isinstance(value, np.ndarray) or is_tenferro_array(value):
            self._array(place, value)
        elif isinstance(value, _VALUES):
            self.guard(place, "value", copy(value))
            if isinstance(value, set | frozenset):
                self._members(place, "an element", value)
        elif isinstance(value, _SEQUENCES + _MAPPINGS):
            self._container(place, value, depth)
        elif not self._callable(place, value):
            self._object(place, value, is_own)

    def _array(self, place: Place, value: Any) -> None:
        if not is_captured_array(value):
            # No input of the program can hold strings and dates: what NumPy computes of them is the trace's.
            self.compared(place, value)
            return
        known = self.arrays.setdefault(id(value), (place, value))
        if known[0].key != place.key:
            self._again.append((place, value))

    def compared(self, place: Place, value: Any) -> None:
        """An array that the function gets as it is: what NumPy computes of its elements is not seen."""
        if value.dtype.hasobject:
            self.guard(place, *same_object(value))
            self.visit(place.attribute("shape"), value.shape)
            for k, element in enumerate(value.flat):
                self.visit(place.attribute("flat").item(k), element)
            return
        if value.nbytes > MAX_COMPARED_BYTES:
            raise TraceError(
                f"{self._name}: {place.text} is a {type(value).__name__} of {value.nbytes} bytes, which would be "
                f"compared at each call; at most {MAX_COMPARED_BYTES} are; pass it as an argument{at(user_line())}"
            )
        self.guard(place, "contents", Contents.of(value), asked="NumPy")

    def _container(self, place: Place, value: Any, depth: int) -> None:
        if isinstance(value, _MAPPINGS):
            keys = list(value)
            self.guard(place, "keys", (type(value), keys))
            items = list(value.items())
        else:
            self.guard(place, "length", (type(value), len(value)))
            items = list(enumerate(value))
        if depth >= MAX_DEPTH:
            self.doubts.append((place, f"{place.text} is nested deeply"))
            return
        numbers = [(k, v) for k, (_, v) in enumerate(items) if is_scalar(v)]
        if len(numbers) > MAX_NUMBERS:
            raise self._too_many(place, MAX_NUMBERS)
        if len(numbers) > MANY:
            positions, values = zip(*numbers, strict=True)
            self.guard(place, "numbers", Numbers(positions, values))
            items = [(k, v) for k, v in items if not is_scalar(v)]
        for key, part in items:
            self.visit(place.item(key), part, depth + 1)
        if isinstance(value, _MAPPINGS):
            self._members(place, "a key", value)
        if hasattr(type(value), "__dict__") and self.owner.of_class(type(value)) == "own":
            self._object(place, value, False)

    def _members(self, place: Place, what: str, values: Iterable[Any]) -> None:
        """Objects that are found by no key; that they are still there is assumed by whoever calls."""
        for value in values:
            if not is_scalar(value) and not isinstance(value, tuple | FunctionType):
                self.visit(Place(Held(value), (), f"{what} of {place.text}"), value)

    def _callable(self, place: Place, value: Any) -> bool:
        """Functions, classes and modules; False for anything else."""
        if is_jitted(value):
            self.guard(place, "is", value)
            self.function(value.__wrapped__)
            for name in getattr(type(value), "_rules", ()):  # functions that give its derivatives
                self.visit(place.attribute(name), getattr(value, name))
        elif is_linear(value):
            self.guard(place, "is", value)
        elif isinstance(value, FunctionType):
            self.guard(place, "is", value)
            self.followed(place, value)
        elif isinstance(value, MethodType):
            self.guard(place.attribute("__func__"), "is", value.__func__)
            self.visit(place.attribute("__self__"), value.__self__)
            if isinstance(value.__func__, FunctionType):
                self.followed(place.attribute("__func__"), value.__func__)
        elif isinstance(value, functools.partial):
            self.visit(place.attribute("func"), value.func)
            self.visit(place.attribute("args"), value.args)
            self.visit(place.attribute("keywords"), value.keywords)
        elif isinstance(value, _CALLED):
            self.guard(place, "is", value)
        elif isinstance(value, ModuleType):
            if self.owner.of(value.__name__) != "foreign":
                self.guard(place, "is", value)
                self._open(place, value, "own")
            else:
                self.foreign.append((place, value))
        elif isinstance(value, type):
            whose = self.owner.of_class(value)
            if whose != "foreign" or issubclass(value, _TYPES):
                self.guard(place, "is", value)
            else:
                self.foreign.append((place, value))
            if whose == "own":
                self.opened(value, True)
        elif isinstance(value, ContextVar):
            self.guard(place, "is", value)
            held = value.get(None)
            self.visit(place.attribute("get").call((None,), ()), held)
            if is_captured_array(held):
                self.compared(place.attribute("get").call((None,), ()), held)
        elif isinstance(value, weakref.ref):
            self.guard(place, "is", value)
            self.visit(place.call((), ()), value())
        else:
            return False
        return True

    def followed(self, place: Place, function: FunctionType) -> None:
        """Assume that a function of the user's own, which stands in the place, stays what it is."""
        if self.owner.of(function.__module__) == "foreign" and function.__closure__:
            self.function(function)
        if self.owner.of(function.__module__) != "own":
            return
        # Editors that reload a module put new code into the functions that are there.
        self.guard(place.attribute("__code__"), "is", function.__code__)
        if function.__defaults__ is not None:
            self.guard(place.attribute("__defaults__"), "is", function.__defaults__)
        self.function(function)

    def _object(self, place: Place, value: Any, is_own: bool) -> None:
        known = self.objects.get(id(value))
        if known is not None:
            if known[0].key != place.key:
                self.guard(place, "shared", known[0])
            return
        cls = type(value)
        whose = self.owner.of_class(cls)
        if (is_own and whose == "other") or cls is SimpleNamespace:
            whose = "own"
        if not isinstance(place.root, Self) or place.steps:
            self.guard(place, "type", cls)
        if whose == "other":
            self.guard(place, *same_object(value))
        if whose != "foreign":
            self._open(place, value, whose)
            self.opened(cls, False)
        else:
            self.doubts.append(
                (place, f"what {place.text}, a {cls.__module__}.{cls.__qualname__}, holds is not compared")
            )

    def _open(self, place: Place, value: Any, whose: Whose) -> None:
        """Be told what is read of an object or a module; where that cannot be, everything in it is assumed."""
        self.objects.setdefault(id(value), (place, value, whose))
        hooks = self.hooks
        is_hooked = hooks.add_module(value) if isinstance(value, ModuleType) else hooks.add_class(type(value))
        if not is_hooked and whose == "own":
            self.whole(place, value)

    def whole(self, place: Place, value: Any) -> None:
        """Assume all that an object holds."""
        held = instance_dict(value)
        self.guard(place.attribute("__dict__"), "keys", (dict, list(held)))
        for name, part in list(held.items()):
            self.visit(place.attribute(name), part)
