"""Reading of attributes while a function is traced: classes and modules in, every read of them told to the trace.

Two kinds of hooks stand in a class while a trace needs them. ``__getattribute__`` tells which attributes of its
instances are read, those that are missing included; a module has a class made for it that does the same. A member of
the class, an array or a function in which arrays are read, may have a descriptor in front that gives something else
in its place. Both do so in the context of the trace alone: other threads read what is there. The class is as before
when the last trace that needs it has ended.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import ModuleType
from typing import Any, TypeAlias

from tenferro.tracer.forking import Renewed

Behind: TypeAlias = Callable[[Any, str], Any]
"""Reads an attribute as if nothing were hooked."""
Read: TypeAlias = Callable[[Any, str, Behind], Any]
"""What a trace gives for an attribute of an object."""
Give: TypeAlias = Callable[[Any], Any]
"""What a trace gives for a member of a class."""

_MISSING = object()
_GETATTRIBUTE = "__getattribute__"
_held = Renewed(threading.RLock)
_classes: dict[type, tuple[Any, Any, int]] = {}  # the hook, the class's own entry behind it, the traces that need it
_members: dict[tuple[type, str], tuple[Any, Any, int]] = {}
_modules: dict[int, tuple[ModuleType, int]] = {}

_reading: ContextVar[Read | None] = ContextVar("tenferro_reading", default=None)
_giving: ContextVar[Give | None] = ContextVar("tenferro_giving", default=None)


def lookup(cls: type, name: str, default: Any = None) -> Any:
    """What stands behind the name in the class or the classes that it derives from, hooks aside."""
    for base in cls.__mro__:
        value = own_member(base, name, _MISSING)
        if value is not _MISSING:
            return value
    return default


def own_member(cls: type, name: str, default: Any = None) -> Any:
    """The class's own entry of the name, hooks aside."""
    value = vars(cls).get(name, _MISSING)
    known = _members.get((cls, name)) if name != _GETATTRIBUTE else _classes.get(cls)
    if known is not None and value is known[0]:
        value = known[1]
    return default if value is _MISSING else value


def members(cls: type) -> dict[str, Any]:
    """A class's own members as they are outside traces."""
    own = {n: own_member(cls, n, _MISSING) for n in list(vars(cls))}
    return {n: m for n, m in own.items() if m is not _MISSING}


def instance_dict(value: Any) -> dict[str, Any]:
    """The object's own dict, read past every hook; a new one where it has none."""
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return {}
    return found if isinstance(found, dict) else {}


def can_hook(cls: type) -> bool:
    """Whether attributes of the class can be set: classes written in Python, and few others."""
    is_heap, is_immutable = cls.__flags__ & (1 << 9), cls.__flags__ & (1 << 8)
    return bool(is_heap and not is_immutable)


class _Member:
    """In front of a member of a class: a value, or a function, which the trace may give in another form.

    It has no ``__set__``: an attribute of the instance comes first, as with what it stands for."""

    def __init__(self, own: Any) -> None:
        self.own = own

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        own, give = self.own, _giving.get()
        if isinstance(own, functools.cached_property) and give is not None and instance is not None:
            value = give(own.func)(instance)
            instance_dict(instance)[str(own.attrname)] = value
            return value
        value = own.__get__(instance, owner) if hasattr(type(own), "__get__") else own
        return value if give is None else give(value)


def _getter(own: property) -> property:
    """The property with a getter that the trace may give in another form."""
    get = own.fget
    assert get is not None

    def getter(instance: Any) -> Any:
        give = _giving.get()
        return (get if give is None else give(get))(instance)

    return property(getter, own.fset, own.fdel, own.__doc__)


def _reader(behind: Behind) -> Behind:
    def __getattribute__(self: Any, name: str) -> Any:
        read = _reading.get()
        return behind(self, name) if read is None else read(self, name, behind)

    return __getattribute__


def _original(cls: type) -> Behind:
    """The first ``__getattribute__`` of the class and its bases that is no hook."""
    for base in cls.__mro__:
        value = own_member(base, _GETATTRIBUTE, _MISSING)
        if value is not _MISSING:
            return value  # type: ignore[no-any-return]
    return object.__getattribute__


def _set(cls: type, name: str, hook: Any) -> bool:
    try:
        type.__setattr__(cls, name, hook)
    except (TypeError, AttributeError):
        return False
    return True


def _put_back(cls: type, name: str, hook: Any, own: Any) -> None:
    if vars(cls).get(name) is not hook:  # the function assigned the class's attribute
        return
    if own is _MISSING:
        type.__delattr__(cls, name)
    else:
        type.__setattr__(cls, name, own)


class Hooks:
    """The hooks that one trace has asked for."""

    def __init__(self) -> None:
        self._classes: set[type] = set()
        self._members: set[tuple[type, str]] = set()
        self._modules: dict[int, ModuleType] = {}

    def add_class(self, cls: type) -> bool:
        """Be told what is read of the instances of a class. False where that cannot be."""
        if cls in self._classes:
            return True
        with _held.lock:
            known = _classes.get(cls)
            if known is not None:
                _classes[cls] = (known[0], known[1], known[2] + 1)
            else:
                own = vars(cls).get(_GETATTRIBUTE, _MISSING)
                hook = _reader(_original(cls))
                if not can_hook(cls) or not _set(cls, _GETATTRIBUTE, hook):
                    return False
                _classes[cls] = (hook, own, 1)
            self._classes.add(cls)
        return True

    def add_member(self, cls: type, name: str) -> None:
        """Give something else for a class's own member."""
        key = (cls, name)
        if key in self._members or not can_hook(cls):
            return
        with _held.lock:
            known = _members.get(key)
            if known is not None:
                _members[key] = (known[0], known[1], known[2] + 1)
            else:
                own = vars(cls)[name]
                hook = _getter(own) if type(own) is property else _Member(own)
                if not _set(cls, name, hook):
                    return
                _members[key] = (hook, own, 1)
            self._members.add(key)

    def add_module(self, module: ModuleType) -> bool:
        """Be told what is read of a module. False for one that has a class of its own."""
        if id(module) in self._modules:
            return True
        with _held.lock:
            known = _modules.get(id(module))
            if known is not None:
                _modules[id(module)] = (module, known[1] + 1)
            elif type(module) is ModuleType:
                hook = _reader(ModuleType.__getattribute__)
                module.__class__ = type("module", (ModuleType,), {_GETATTRIBUTE: hook})
                _modules[id(module)] = (module, 1)
            else:
                return False
            self._modules[id(module)] = module
        return True

    def remove(self) -> None:
        """Put back what is needed by no other trace."""
        with _held.lock:
            for cls in self._classes:
                self._drop(_classes, cls, cls, _GETATTRIBUTE)
            for key in self._members:
                self._drop(_members, key, *key)
            for number, module in self._modules.items():
                _, count = _modules[number]
                if count > 1:
                    _modules[number] = (module, count - 1)
                    continue
                del _modules[number]
                module.__class__ = ModuleType
        self._classes.clear()
        self._members.clear()
        self._modules.clear()

    def _drop(self, table: dict[Any, tuple[Any, Any, int]], key: Any, cls: type, name: str) -> None:
        hook, own, count = table[key]
        if count > 1:
            table[key] = (hook, own, count - 1)
            return
        _put_back(cls, name, hook, own)
        del table[key]


@contextmanager
def hooked(hooks: Hooks, read: Read, give: Give) -> Iterator[None]:
    """Inside, in this context, ``read`` and ``give`` answer for what is added to the hooks; then they are removed."""
    tokens = _reading.set(read), _giving.set(give)
    try:
        yield
    finally:
        _reading.reset(tokens[0])
        _giving.reset(tokens[1])
        hooks.remove()


@contextmanager
def unhooked() -> Iterator[None]:
    """Inside, attributes are read as they are."""
    tokens = _reading.set(None), _giving.set(None)
    try:
        yield
    finally:
        _reading.reset(tokens[0])
        _giving.reset(tokens[1])
