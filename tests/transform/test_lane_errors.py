"""Indices of lanes that are out of range are named as the lane gave them, not as places in all lanes together."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

W = np.arange(18.0).reshape(3, 6)


@pytest.mark.parametrize("jitted", [True, False])
@pytest.mark.parametrize(
    ("function", "index", "text"),
    [
        (lambda x, i: x[i], 7, "take: indices contain 7; axis 0 has 6 elements"),
        (lambda x, i: x[i], -7, "take: indices contain -7; axis 0 has 6 elements"),
        (
            lambda x, i: tn.lax.dynamic_slice(x, (i,), (2,)),
            5,
            "dynamic_slice: a window of size 2 starts at 5 on axis 0",
        ),
        (
            lambda x, i: tn.lax.dynamic_update_slice(x, np.ones(2), (i,)),
            -1,
            "dynamic_update_slice: a window of size 2 starts at -1 on axis 0, which has 6 elements",
        ),
    ],
)
def test_texts(function: Callable[..., Any], index: int, text: str, jitted: bool) -> None:
    mapped = tn.vmap(function)
    for f, x, i in (
        (mapped, W, np.array([0, index, 0])),
        (tn.vmap(mapped), W[None], np.array([[0, index, 0]])),
    ):
        with pytest.raises(tn.BoundsError) as caught:
            (tn.jit(f) if jitted else f)(x, i)
        assert text in str(caught.value)


def _written(x: Any, i: Any, j: Any) -> Any:
    y = x.copy()
    y[i, j] = 1.0
    return y


@pytest.mark.parametrize(
    ("function", "index", "text"),
    [
        (lambda x, i: x[np.array([0, 1, 2]), i], 7, "take: indices contain 7; axis 1 has 6 elements"),
        (lambda x, i: x[i, np.array([0, 1, 2])], -4, "take: indices contain -4; axis 0 has 3 elements"),
        (lambda x, i: np.take_along_axis(x, i[:, None], 1), 6, "take: indices contain 6; axis 1 has 6 elements"),
        (lambda x, i: _written(x, np.array([0, 1, 2]), i), -7, "scatter: indices contain -7; axis 1 has 6 elements"),
    ],
)
def test_indices_of_several_axes(function: Callable[..., Any], index: int, text: str) -> None:
    """The index, axis and size are those that were asked for, also under vmap and in a gradient."""
    i = np.array([0, index, 1])
    for f, args in (
        (function, (W, i)),
        (tn.vmap(function, (None, 0)), (W, i[None])),
        (tn.vmap(function), (W[None], i[None])),
        (tn.grad(lambda x, i: (function(x, i) ** 2).sum()), (W, i)),
        (tn.grad(lambda x, i: function(x, i).sum()), (W, i)),
    ):
        with pytest.raises(tn.BoundsError, match="indices contain") as caught:
            tn.jit(f)(*args)
        assert text.partition(":")[2] in str(caught.value)
