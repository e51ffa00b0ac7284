"""Functions, classes and modules by name: an object in, the names by which another process finds it out."""

from __future__ import annotations

import functools
import sys
from types import FunctionType, ModuleType
from typing import Any, TypeAlias

import numpy as np

from tenferro.tracer.attribute_hooks import own_member

Name: TypeAlias = tuple[str, str]
"""A module, and what leads there from it, with dots; empty for the module itself."""

_MISSING = object()


def name_of(value: Any) -> Name | None:
    """Where the object stands by its own account, or None where something else or nothing stands there."""
    if isinstance(value, ModuleType):
        return (value.__name__, "") if sys.modules.get(value.__name__) is value else None
    qualname = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    module = "numpy" if isinstance(value, np.ufunc) else getattr(value, "__module__", None)
    if module is None and isinstance(owner := getattr(value, "__self__", None), type):  # tuple.__new__
        module = owner.__module__
    if not isinstance(module, str) or not isinstance(qualname, str):
        return None
    for name in ((module, qualname), ("types", qualname)):  # NoneType and its like say that they are builtins
        if named(name) is value:
            return name
    return None


def named(name: Name) -> Any:
    """What stands there now, members of classes as their class holds them; None where nothing does."""
    module, path = name
    found: Any = sys.modules.get(module)
    for part in path.split(".") if path else ():
        if isinstance(found, ModuleType):
            found = vars(found).get(part, _MISSING)
        elif isinstance(found, type):
            found = own_member(found, part, _MISSING)
        else:
            return None
    return None if found is _MISSING else found


def behind(member: Any) -> FunctionType | None:
    """The function behind a member of a class."""
    inner: Any
    match member:
        case FunctionType():
            return member
        case staticmethod() | classmethod():
            inner = member.__func__
        case property():
            inner = member.fget
        case functools.cached_property():
            inner = member.func
        case _:
            return None
    return inner if isinstance(inner, FunctionType) else None
