"""Attributes that a traced function reads of outside objects, modules and classes: each read in, what is assumed of it
and the value to go on with out.

An attribute of an object is assumed when it is read, as what it is: a value of the instance, a method, a property,
which reads more in its turn, or nothing. No hook tells what is read of a class itself, so those of its members are
assumed that the code names.
"""

from __future__ import annotations

import dataclasses
import functools
import sys
from collections.abc import Callable, Iterator
from enum import Enum
from types import FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import Any

from tenferro.tracer.attribute_hooks import Behind, Hooks, instance_dict, lookup, own_member, unhooked
from tenferro.tracer.captures import LRU, MAX_DEPTH, Captured, is_captured_array, is_scalar
from tenferro.tracer.code_names import asked_names, mentioned_names
from tenferro.tracer.ownership import Ownership
from tenferro.tracer.places import Place, of_class

_MISSING = object()
_MAKING = frozenset({"__new__", "__init__", "__post_init__"})
_WHOLE = frozenset({"__dict__", "__reduce_ex__", "__reduce__", "__getstate__", "__deepcopy__"})
"""Special attributes through which everything in an object is read."""
_UNCALLED = frozenset(
    "__del__ __repr__ __str__ __format__ __init_subclass__ __class_getitem__ __set_name__ __getattribute__ "
    "__reduce__ __reduce_ex__ __getstate__ __setstate__ __copy__ __deepcopy__ __sizeof__ __dir__".split()
)
_OF_CLASSES = frozenset({"type", "__class__"})  # code with these names, and methods that call super, read the class


def functions_of(member: Any) -> Iterator[FunctionType]:
    """The Python functions behind a member of a class."""
    if isinstance(member, staticmethod | classmethod):
        member = member.__func__
    elif isinstance(member, property):
        member = member.fget
    elif isinstance(member, functools.cached_property):
        member = member.func
    if isinstance(member, FunctionType):
        yield member


def open_once(
    hooks: Hooks, owner: Ownership, value: Any, words: frozenset[str], is_given: Callable[[Any], bool]
) -> None:
    """Be asked for the attributes of an object or a module of the user's own, without assuming anything of them. Of a
    class, its arrays and the functions of these names in which arrays are read: ``is_given``."""
    if isinstance(value, MethodType):
        value = value.__self__
    if isinstance(value, ModuleType):
        if owner.of(value.__name__) == "own":
            hooks.add_module(value)
    elif not isinstance(value, type):
        if owner.of_class(type(value)) == "own":
            hooks.add_class(type(value))
    else:
        for base in [b for b in value.__mro__ if owner.of_class(b) == "own"]:
            members = [(name, own_member(base, name)) for name in list(vars(base))]
            for name, member in members:
                is_read = name in words and any(map(is_given, functions_of(member)))
                if is_read or is_captured_array(member):
                    hooks.add_member(base, name)


class AttributeReads:
    """The reads of one trace. ``give``: what the function gets for a value from outside; ``is_given(value)``: whether
    that is something else than the value."""

    def __init__(self, captured: Captured, give: Callable[[Any], Any], is_given: Callable[[Any], bool]) -> None:
        self._captured = captured
        self._give = give
        self._is_given = is_given
        self._seen: set[tuple[int, str]] = set()
        self._words: set[str] = set()  # the names that the functions mention
        self._asked: set[str] = set()  # those of attributes that may be missing
        self._classes: dict[type, bool] = {}  # whether the class itself is read, not just its instances
        captured.entered = self._entered
        captured.opened = self._opened

    # -- objects and modules -----------------------------------------------------------------------------------------

    def read(self, owner: Any, name: str, behind: Behind) -> Any:
        """What the function gets for ``owner.name``."""
        known = self._captured.objects.get(id(owner))
        is_special = name.startswith("__") and name.endswith("__")
        if known is None or (is_special and name not in _WHOLE):
            value = behind(owner, name)
            return value if is_special or known is not None or not self._is_own(type(owner)) else self._give(value)
        if known[2] == "other" and self._captured.owner.of_frame(sys._getframe(2)) != "own":
            value = behind(owner, name)
            with unhooked():
                self._register(known[0].attribute(name), value, 0)
            return value
        value = _MISSING
        try:
            value = behind(owner, name)
        finally:  # what is missing is an assumption too
            if (id(owner), name) not in self._seen:
                self._seen.add((id(owner), name))
                with unhooked():
                    self._assume(known[0], owner, name)
                    if known[2] == "other" and (is_scalar(value) or is_captured_array(value)):
                        self._captured.visit(known[0].attribute(name), value)
        return self._give(value)

    def _is_own(self, cls: type) -> bool:
        return self._captured.owner.of_class(cls) == "own"

    def _assume(self, place: Place, owner: Any, name: str) -> None:
        captured, cls = self._captured, type(owner)
        if name in _WHOLE:
            captured.whole(place, owner)
            if name == "__deepcopy__":
                self._compare(place, instance_dict(owner), 0)
            return
        held = vars(owner) if isinstance(owner, ModuleType) else instance_dict(owner)
        member = _MISSING if isinstance(owner, ModuleType) else lookup(cls, name, _MISSING)
        if isinstance(member, MemberDescriptorType):
            held = {}
            try:
                held = {name: member.__get__(owner, cls)}
            except AttributeError:  # the slot is empty
                captured.guard(place, "absent", name)
                return
        elif member is not _MISSING and _is_data(member):
            self._behind(cls, name, member)
            return
        if name in held:
            captured.visit(place.attribute(name), held[name])
        elif member is _MISSING:
            maker = held.get("__getattr__") if isinstance(owner, ModuleType) else lookup(cls, "__getattr__")
            captured.guard(place, "missing" if maker is None else "absent", name)
            if isinstance(maker, FunctionType):
                captured.function(maker)
        else:
            self._of_class(place, cls, name, member)

    def _of_class(self, place: Place, cls: type, name: str, member: Any) -> None:
        """A member of the class, read through an instance that has no such attribute of its own."""
        captured, found = self._captured, place.attribute(name)
        if isinstance(member, FunctionType):
            captured.guard(found.attribute("__func__"), "is", member)
            captured.followed(found.attribute("__func__"), member)
        elif isinstance(member, classmethod):
            captured.guard(found.attribute("__func__"), "is", member.__func__)
            self._read_class(cls)
        elif isinstance(member, staticmethod):
            captured.visit(found, member.__func__)
        elif hasattr(type(member), "__get__"):
            captured.guard(place, "own", name)
            self._behind(cls, name, member)
        else:
            captured.visit(found, member)
        for function in functions_of(member):
            captured.function(function)

    def _behind(self, cls: type, name: str, member: Any) -> None:
        """A property or another descriptor: it is assumed to be the same, and what it reads is told by itself."""
        for function in functions_of(member):
            self._captured.function(function)
        for reading in functions_of(lookup(type(member), "__get__")):
            if not isinstance(member, property):
                self._captured.function(reading)
        self._captured.guard(of_class(cls), "member", (name, member))

    def _register(self, place: Place, value: Any, depth: int) -> None:
        """Note where arrays and objects stand that another package's code reads; nothing else is assumed of them."""
        captured = self._captured
        if is_captured_array(value):
            captured.arrays.setdefault(id(value), (place, value))
        elif isinstance(value, list | tuple | dict) and depth < 3:
            for key, part in value.items() if isinstance(value, dict) else enumerate(value):
                if isinstance(key, int | str):
                    self._register(place.item(key), part, depth + 1)
        elif captured.owner.of_class(type(value)) != "foreign" and not isinstance(value, type | ModuleType):
            if not callable(value) or not isinstance(value, FunctionType):
                captured.objects.setdefault(id(value), (place, value, "other"))
                captured.hooks.add_class(type(value))

    def _compare(self, place: Place, value: Any, depth: int) -> None:
        """Assume the elements of the arrays in a value: a copy of them is made that no place leads to."""
        if is_captured_array(value):
            self._captured.compared(place, value)
        elif isinstance(value, list | tuple | dict) and depth < MAX_DEPTH:
            for key, part in value.items() if isinstance(value, dict) else enumerate(value):
                self._compare(place.item(key) if depth else place.attribute(str(key)), part, depth + 1)

    # -- classes -----------------------------------------------------------------------------------------------------

    def _entered(self, function: FunctionType) -> None:
        """A function was found: what it names counts in all classes."""
        code = function.__code__
        words = mentioned_names(code) - self._words
        asked = asked_names(code) - self._asked
        if "__class__" in code.co_freevars:
            words |= {"__class__"} - self._words
        self._words |= words
        self._asked |= asked
        if words & _OF_CLASSES:
            for cls in list(self._classes):
                self._read_class(cls)
        for cls in list(self._classes):
            self._members(cls, words | asked)

    def _opened(self, cls: type, is_class: bool) -> None:
        """An object of the class, or the class itself, was found."""
        is_new = cls not in self._classes
        self._classes.setdefault(cls, False)
        if is_class or not _OF_CLASSES.isdisjoint(self._words):
            self._read_class(cls)
        elif is_new:
            self._members(cls, self._words | self._asked)

    def _read_class(self, cls: type) -> None:
        """The class itself may be read: its members that the code names are assumed."""
        if self._classes.get(cls):
            return
        self._classes[cls] = True
        self._members(cls, self._words | self._asked)
        if self._is_own(type(cls)):
            self._opened(type(cls), True)
        if "__class__" in self._words:  # super() reads the bases
            for base in filter(self._is_own, cls.__mro__[1:]):
                self._read_class(base)

    def _members(self, cls: type, words: set[str] | frozenset[str]) -> None:
        if issubclass(cls, Enum):
            return
        bases = list(filter(self._is_own, cls.__mro__))
        is_read = self._classes[cls]
        for base in bases:
            for name in [n for n in list(vars(base)) if n in words or _is_special(n, is_read)]:
                member = own_member(base, name, _MISSING)
                if member is not _MISSING:
                    self._member(cls, base, name, member)
        if is_read:
            for name in words & self._asked:
                if lookup(cls, name, _MISSING) is _MISSING:
                    self._captured.guard(of_class(cls), "missing", name)

    def _member(self, cls: type, base: type, name: str, member: Any) -> None:
        captured = self._captured
        functions = list(functions_of(member))
        is_made = dataclasses.is_dataclass(base) and functions and functions[0].__code__.co_filename == "<string>"
        if name.startswith("__") and (not functions or is_made):
            return
        for function in functions:
            captured.function(function)
        if self._is_given(member) or any(map(self._is_given, functions)):
            captured.hooks.add_member(base, name)
        is_called = _is_special(name, False) and isinstance(member, FunctionType)
        if not (self._classes[cls] or is_called) or lookup(cls, name) is not member:
            return
        if isinstance(member, FunctionType | staticmethod | classmethod | LRU) or hasattr(type(member), "__get__"):
            captured.guard(of_class(cls), "member", (name, member))
        elif not name.startswith("__"):
            captured.visit(of_class(cls).attribute(name), member)


def _is_data(member: Any) -> bool:
    """Whether a member of a class comes before the instance's own attribute."""
    return hasattr(type(member), "__set__") or hasattr(type(member), "__delete__")


def _is_special(name: str, is_read: bool) -> bool:
    """Whether Python itself calls the method; where the class is read, instances may be made."""
    if not (name.startswith("__") and name.endswith("__")) or name in _UNCALLED:
        return False
    return is_read or name not in _MAKING
