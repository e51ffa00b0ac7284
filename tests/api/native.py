"""Native calls as tests see them: whether a call was one, and whether two results are the same."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenferro as tn

RUNS = 5
"""Enough for an entry: calls are learnt from the second on."""


def native_hits(f: Any) -> int:
    return 0 if f._shortcuts is None else f._shortcuts.hits


def served(f: Any, *args: Any, **kwargs: Any) -> Any:
    """The last of a few calls with these arguments, which must have been a native one."""
    for _ in range(100):  # what is called in many forms learns them one by one, ever more seldom
        before = native_hits(f)
        result = f(*args, **kwargs)
        if native_hits(f) == before + 1:
            return result
    raise AssertionError("the call took the long way")


def same(found: Any, expected: Any) -> None:
    """Equal in class, dtype, shape and bits, in containers too."""
    assert type(found) is type(expected), (type(found), type(expected))
    if isinstance(expected, tuple | list):
        assert len(found) == len(expected)
        for a, b in zip(found, expected, strict=True):
            same(a, b)
        return
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        same(list(found.values()), list(expected.values()))
        return
    if isinstance(expected, tn.Array):
        assert found.engine is expected.engine and found._scalar == expected._scalar
    a, b = np.asarray(found), np.asarray(expected)
    assert a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
