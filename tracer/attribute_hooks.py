"""Attributes that hold arrays, while a function is traced: classes and names in, attributes giving traced arrays out.

A method reads ``self.w`` where no dispatch sees it. While a trace runs, such attributes are descriptors of the class:
in the tracing thread reading one gives the variable of the array, everywhere else what the object holds. The class is
as before when the last trace that needs it has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from types import MemberDescriptorType
from typing import Any

_MISSING = object()
_lock = threading.RLock()
_installed: dict[tuple[type, str], tuple[_Attribute, int]] = {}

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
    if hook.own is _MISSING:
        type.__delattr__(cls, name)
    else:
        type.__setattr__(cls, name, hook.own)


@contextmanager
def hooked(attributes: Iterable[tuple[type, str]], give: Callable[[Any], Any]) -> Iterator[None]:
    """Inside, reading these attributes gives ``give(value)`` in this context."""
    installed: list[tuple[type, str]] = []
    token = _giving.set(give)
    try:
        with _lock:
            installed += [key for key in dict.fromkeys(attributes) if _install(key)]
        yield
    finally:
        with _lock:
            for key in installed:
                _remove(key)
        _giving.reset(token)
