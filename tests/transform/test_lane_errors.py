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
