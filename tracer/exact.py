"""Values in, keys out that are equal exactly when the values are interchangeable in a program.

Python calls 1, 1.0 and True equal, and 0.0 and -0.0; a program traced with one of them is wrong for another.
"""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Hashable, Iterator
from typing import Any, TypeVar

import numpy as np

_SIMPLE = frozenset({str, int, bool, bytes, type(None)})
_exact: set[type] = set()
_Class = TypeVar("_Class", bound=type)


def exact(cls: _Class) -> _Class:
    """Class decorator: instances are equal exactly when they are interchangeable, so that each is its own key."""
    _exact.add(cls)
    return cls


def static_key(value: Any) -> Hashable:
    """The key of a value. TypeError for what cannot be hashed."""
    kind = type(value)
    if kind in _SIMPLE:
        return (kind, value)
    if isinstance(value, tuple | list):
        return (kind, tuple([static_key(v) for v in value]))
    if kind is dict:
        return (kind, static_key(tuple(value.items())))
    if isinstance(value, slice):
        return (slice, static_key((value.start, value.stop, value.step)))
    if issubclass(kind, float | complex):
        return (kind, repr(value))
    if isinstance(value, np.generic):
        return (kind, value.dtype, value.tobytes())
    if isinstance(value, frozenset):
        return (kind, frozenset(map(static_key, value)))
    hash(value)
    return (kind, value) if kind in _exact else (kind, value, *_fields(value))


def _fields(value: Any) -> Iterator[Hashable]:
    """The fields of a dataclass, which itself is equal where they are equal in Python's eyes."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        for f in dataclasses.fields(value):
            with contextlib.suppress(TypeError):  # a field that its hash leaves out
                yield static_key(getattr(value, f.name))


def told_apart(metadata: Any) -> Hashable:
    """The key of a container's metadata; None for names, which equal nothing else, and for what cannot be hashed."""
    if metadata is None or (type(metadata) is tuple and all(type(m) is str for m in metadata)):
        return None
    try:
        return static_key(metadata)
    except TypeError:  # whoever hashes the structure is told
        return None
