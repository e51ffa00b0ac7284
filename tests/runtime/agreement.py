"""Programs over several engines against plain Python."""

from __future__ import annotations

import numpy as np

import tenferro as tn
from tenferro.jit import JitFunction


def agrees(f, *args) -> JitFunction:
    """The function jitted, once its result equals the undecorated function's."""
    jitted = tn.jit(f)
    for actual, expected in zip(as_tuple(jitted(*args)), as_tuple(plain(f, *args)), strict=True):
        np.testing.assert_array_equal(actual, expected)
        assert np.asarray(actual).dtype == np.asarray(expected).dtype
    return jitted


def plain(f, *args):
    """The function on NumPy arrays, where ``tn.on`` means nothing."""
    from contextlib import nullcontext
    from unittest.mock import patch

    with patch.object(tn, "on", lambda engine: nullcontext()):
        return f(*args)


def as_tuple(x):
    return x if isinstance(x, tuple) else (x,)


def kinds(jitted, *args) -> list[str]:
    return [type(n).__name__ for n in jitted.lower(*args).schedule.nodes]


x = np.arange(6.0)
