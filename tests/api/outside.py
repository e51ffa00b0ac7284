"""A function and changes of what it reads from outside in; jitted and plain calls are compared after each of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import tenferro as tn

X = np.arange(1.0, 4.0)
X.flags.writeable = False  # shared by the tests
Case = tuple[Callable[..., Any], Sequence[Callable[[], object]]]


def agree(
    function: Callable[..., Any], changes: Sequence[Callable[[], object]], compiles: int | None = None
) -> None:  # fmt: skip
    """Jitted and plain calls give the same numbers, before and after each change; without one nothing is traced."""
    jitted = tn.jit(function)
    follow(jitted, function, changes)
    if compiles is not None:
        assert jitted.cache_info().compiles == compiles, jitted.explain()


def follow(jitted: Any, function: Callable[..., Any], changes: Sequence[Callable[[], object]]) -> None:
    """``agree`` for a function that is jitted already."""
    for step, change in enumerate((lambda: None, *changes)):
        change()
        np.testing.assert_allclose(jitted(X), function(X), rtol=1e-13, err_msg=f"change {step}")
        known = jitted.cache_info().compiles
        for _ in range(4):  # the last ones go the native way where there is one
            np.testing.assert_allclose(jitted(X), function(X), rtol=1e-13, err_msg=f"change {step}, again")
        assert jitted.cache_info().compiles == known, jitted.explain()
