"""Arrays of no elements, in every memory order: a kernel that divides by a size of 0 would end the process."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.values import laid_out

Function = Callable[[Any], Any]
FUNCTIONS: dict[str, Function] = {
    "sum of two axes": lambda x: x.sum(axis=(0, 1)),
    "sum of outer axes": lambda x: x.sum(axis=(0, 2)),
    "sum of all": lambda x: x.sum(),
    "row program": lambda x: np.exp(x) / np.exp(x).sum(axis=(0, 2), keepdims=True),
    "flat transpose": lambda x: x.transpose(2, 1, 0).reshape(-1) + 1,
    "flat reversal": lambda x: x[::-1, :, ::2].reshape(-1).sum(),
    "padded": lambda x: np.pad(x, 1).sum(axis=(0, 2)),
    "joined": lambda x: np.concatenate([x, x], axis=1).sum(axis=(0, 1)),
    "indexed": lambda x: x[:, np.arange(x.shape[1])[::-1]] * 2,
    "written": lambda x: _written(x),
    "selected": lambda x: x[x > 0].sum(),
    "counted": lambda x: np.cumsum(x, axis=1) + np.arange(x.shape[2]),
}


def _written(x: Any) -> Any:
    out = x.copy()
    out[..., 1:] += x[..., :-1]
    return out


@pytest.mark.parametrize("order", ["C", "F", "strided", "reversed", "offset"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_sizes_of_zero(name: str, order: str) -> None:
    function = FUNCTIONS[name]
    jitted = tn.jit(function)
    for shape in product((0, 1, 3), (0, 2), (0, 1, 5)):
        x = laid_out(np.ones(shape), order)
        actual, expected = np.asarray(jitted(x)), np.asarray(function(x))
        assert actual.shape == expected.shape
        np.testing.assert_allclose(actual, expected, rtol=1e-14, err_msg=f"{shape}")
