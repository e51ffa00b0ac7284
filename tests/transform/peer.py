"""JAX as the oracle of derivatives: a function of a module and of arguments in; what both packages make of it compared.

Functions are written against ``np``: NumPy (whose calls trace) on one side, ``jax.numpy`` on the other, and against
``lib``: ``tenferro`` on one side, ``jax`` on the other.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.table.agreement import bits

jax = pytest.importorskip("jax")

Make = Callable[[Any, Any], Callable[..., Any]]
"""(module like NumPy, package) → a function of arrays."""


def theirs(make: Make, *args: Any) -> Any:
    """JAX's result, in float64."""
    with jax.enable_x64(True):
        found = jax.jit(make(jax.numpy, jax))(*args)
        return tn.tree.map(np.asarray, found)


def agrees(make: Make, *args: Any, rtol: float = 1e-9, atol: float = 1e-9) -> Any:
    """Traced for the one call, jitted, and on one thread: equal bits; and the values of JAX. The result."""
    function = make(np, tn)
    found = function(*args)
    jitted = tn.jit(function)
    same(jitted(*args), found, "jitted")
    with tn.threads(1):
        same(jitted(*args), found, "jitted, on one thread")
    close(found, theirs(make, *args), rtol, atol)
    return found


def same(found: Any, wanted: Any, what: str) -> None:
    """Equal structure and bits."""
    values, definition = tn.tree.flatten(found)
    others, expected = tn.tree.flatten(wanted)
    assert definition == expected, what
    for x, y, path in zip(values, others, tn.tree.paths(definition), strict=True):
        wrong = bits(np.asarray(x), np.asarray(y))
        assert wrong is None, f"{what}{path}: {wrong}"


def close(found: Any, wanted: Any, rtol: float, atol: float) -> None:
    """Leaf by leaf; dicts by their keys, whatever their order."""
    if isinstance(found, dict):
        assert found.keys() == wanted.keys()
        for key in found:
            close(found[key], wanted[key], rtol, atol)
    elif isinstance(found, tuple | list):
        assert len(found) == len(wanted)
        for x, y in zip(found, wanted, strict=True):
            close(x, y, rtol, atol)
    elif found is not None:
        x, y = np.asarray(found), np.asarray(wanted)
        assert x.shape == y.shape
        assert x.dtype == y.dtype
        with np.errstate(invalid="ignore"):
            np.testing.assert_allclose(x, y, rtol=rtol, atol=atol)
