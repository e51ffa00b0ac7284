"""Arguments of a call in, a key and the program's inputs out: calls of one key run one program.

This is the short way of a call: what ``Binder`` sorts and names leaf by leaf is only told apart here, as precisely. An
entry for a key is made when the long way has served such a call with the very inputs that were found here.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tenferro.array import Array
from tenferro.tracer.exact import static_key
from tenferro.tracer.tree import container

_MIN, _MAX = -(2**63), 2**63 - 1
BY_VALUE = frozenset({str, bool, bytes, type(None)})


def add(values: Iterable[Any], key: list[Any], inputs: list[Any], originals: list[Any]) -> bool:
    """Open arguments as pytrees: what tells them apart goes to ``key``, their arrays and numbers to ``inputs`` in the
    program's order, and the objects that these were to ``originals``. Whether a tn.Array is among them.

    TypeError for what cannot be hashed and OverflowError for an int beyond int64: the long way says why."""
    wrapped = False
    for value in values:
        kind = type(value)
        if kind is np.ndarray:
            key += (value.dtype, value.shape, value.flags.num)
            inputs.append(value)
        elif kind is int:
            if not _MIN <= value <= _MAX:
                raise OverflowError
            key.append(kind)
            inputs.append(value)
        elif kind is float or kind is complex:
            key.append(kind)
            inputs.append(np.asarray(value))
        elif kind is Array:
            data, wrapped = value._data, True
            key += (value._engine, value._scalar, data.dtype, data.shape, data.flags.num)
            inputs.append(data)
        elif kind in BY_VALUE:
            key += (kind, value)
            continue
        elif issubclass(kind, np.generic):
            key.append(kind)
            inputs.append(np.asarray(value))
        else:
            wrapped = add(_opened(kind, value, key), key, inputs, originals) or wrapped
            continue
        originals.append(value)
    return wrapped


def _opened(kind: type, value: Any, key: list[Any]) -> Iterable[Any]:
    """The children of a container; none of a value such as a function, which the key holds."""
    if kind is dict:
        key += (kind, static_key(tuple(value)))
        return value.values()  # type: ignore[no-any-return]
    if kind is list or kind is tuple:
        key += (kind, len(value))
        return value  # type: ignore[no-any-return]
    node = container(kind)
    if node is None:
        key += (kind, static_key(value))
        return ()
    children, metadata = node.flatten(value)
    children = tuple(children)
    key += (kind, static_key(metadata), len(children))
    return children
