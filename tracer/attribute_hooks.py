"""Attributes that hold arrays, while a function is traced: classes and names in, attributes giving traced arrays out.

A method reads ``self.w`` where no dispatch sees it. While a trace runs, such attributes are descriptors of the class
(for a module: of a class made for it):
in the tracing thread reading one gives the variable of the array, everywhere else what the object holds. The class is
as before when the last trace that needs it has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import MemberDescriptorType, ModuleType
from typing import Any

_MISSING = object()
_lock = threading.RLock()
_installed: dict[tuple[type, str], tuple[_Attribute, int]] = {}
_modules: dict[int, tuple[ModuleType, int]] = {}

# What the trace of this context gives instead of an attribute's value; None outside traces.
_giving: ContextVar[Callable[[Any], Any] | None] = ContextVar("tenferro_giving", default=None)


class _Attribute:
    """A data descriptor in front of an instance attribute, a slot, or a class attribute."""

    def __init__(self, name: str, own: Any, inherited: Any) -> None:
        self.name = name
        self.own = own  # the class's own entry of the name, put back at the end
        self.behind = inherited if own is _MISSING else own
        self.is_slot = isinstance(self.behind, MemberDescriptorType)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        if instance is None:
            if self.behind is _MISSING:
                raise AttributeError(f"type object has no attribute {self.name!r}")
            return self.behind
        if self.is_slot:
            value = self.behind.__get__(instance, owner)
        else:
            value = instance.__dict__.get(self.name, self.behind)
        if value is _MISSING:
            raise AttributeError(f"{type(instance).__name__!r} object has no attribute {self.name!r}")
        give = _giving.get()
        return value if give is None else give(value)

    def __set__(self, instance: Any, value: Any) -> None:
        if self.is_slot:
            self.behind.__set__(instance, value)
        else:
            instance.__dict__[self.name] = value

    def __delete__(self, instance: Any) -> None:
        if self.is_slot:
            self.behind.__delete__(instance)
            return
        if self.name not in instance.__dict__:
            raise AttributeError(self.name)
        del instance.__dict__[self.name]


def members(cls: type) -> dict[str, Any]:
    """A class's own members as they are outside traces."""
    own = {n: m.own if isinstance(m, _Attribute) else m for n, m in vars(cls).items()}
    return {n: m for n, m in own.items() if m is not _MISSING}


def _can_hook(cls: type, name: str) -> bool:
    """Whether the class is a Python class, and nothing but a value or a slot stands behind the name."""
    if not cls.__flags__ & (1 << 9):  # not a heap type: its attributes cannot be set
        return False
    behind = _inherited(cls, name)
    if behind is _MISSING or isinstance(behind, MemberDescriptorType | _Attribute):
        return True
    return not hasattr(type(behind), "__get__")


def _inherited(cls: type, name: str) -> Any:
    return next((vars(c)[name] for c in cls.__mro__ if name in vars(c)), _MISSING)


def _install(key: tuple[type, str]) -> bool:
    cls, name = key
    known = _installed.get(key)
    if known is not None:
        _installed[key] = (known[0], known[1] + 1)
        return True
    if not _can_hook(cls, name):
        return False
    behind = _inherited(cls, name)
    if isinstance(behind, _Attribute):
        behind = behind.behind  # a base class is hooked by another trace
    hook = _Attribute(name, vars(cls).get(name, _MISSING), behind)
    try:
        type.__setattr__(cls, name, hook)
    except (TypeError, AttributeError):
        return False
    _installed[key] = (hook, 1)
    return True


def _remove(key: tuple[type, str]) -> None:
    hook, count = _installed[key]
    if count > 1:
        _installed[key] = (hook, count - 1)
        return
    del _installed[key]
    cls, name = key
    if vars(cls).get(name) is not hook:  # the function assigned the class's attribute
        return
    if hook.own is _MISSING:
        type.__delattr__(cls, name)
    else:
        type.__setattr__(cls, name, hook.own)


def _class_of(module: ModuleType) -> type:
    """A class of the module's own, for descriptors; modules that have one already keep it."""
    if type(module) is ModuleType:
        module.__class__ = type("module", (ModuleType,), {})
        _modules[id(module)] = (module, 0)
    if id(module) in _modules:
        _modules[id(module)] = (module, _modules[id(module)][1] + 1)
    return type(module)


def _restore(module: ModuleType) -> None:
    known = _modules.get(id(module))
    if known is None:
        return
    _modules[id(module)] = (module, known[1] - 1)
    if known[1] == 1:
        del _modules[id(module)]
        module.__class__ = ModuleType


@contextmanager
def hooked(attributes: Iterable[tuple[type | ModuleType, str]], give: Callable[[Any], Any]) -> Iterator[None]:
    """Inside, reading these attributes of a module or of instances of a class gives ``give(value)`` in this context."""
    installed: list[tuple[type, str]] = []
    modules: list[ModuleType] = []
    token = _giving.set(give)
    try:
        with _lock:
            for owner, name in dict.fromkeys(attributes):
                if isinstance(owner, ModuleType):
                    key = _class_of(owner), name
                    modules.append(owner)
                else:
                    key = owner, name
                if _install(key):
                    installed.append(key)
        yield
    finally:
        with _lock:
            for key in installed:
                _remove(key)
            for module in modules:
                _restore(module)
        _giving.reset(token)
