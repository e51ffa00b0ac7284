"""Indices out of range are refused where no element is picked by them, as NumPy refuses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

NONE = np.zeros((3, 0))


@pytest.mark.parametrize(
    ("f", "x", "index"),
    [(lambda x, i: x[i], NONE, [5]), (lambda x, i: x[:, i], NONE.T, [-4]), (lambda x, i: x[i], np.zeros(0), [0]),
     (lambda x, i: (x[i] * 2).sum(axis=1), NONE, [0, 3]), (lambda x, i: np.take(x, i, axis=0), NONE, [[1, 3]])],
)  # fmt: skip
def test_out_of_range(f: Callable[..., Any], x: Any, index: Any) -> None:
    places = np.array(index)
    with pytest.raises(IndexError):
        f(x, places)
    jitted = tn.jit(f)
    for _ in range(3):
        with pytest.raises(tn.BoundsError, match=rf"indices contain -?\d.*{__file__}"):
            jitted(x, places)
    inside = np.zeros_like(places) if x.shape[0] or x.ndim == 2 else np.zeros(0, np.int64)
    np.testing.assert_array_equal(jitted(x, inside), f(x, inside))


def test_an_element_of_no_selection() -> None:
    with pytest.raises(tn.BoundsError, match="axis 0 has 0 elements"):
        tn.jit(lambda x: np.add.outer(x[x > 0], x[x > 0])[0])(-np.ones(3))


def test_outside_of_jit() -> None:
    with pytest.raises(tn.BoundsError, match="indices contain 5"):
        tn.numpy.take(tn.asarray(NONE), np.array([5]), axis=0)


def test_effects_are_not_repeated() -> None:
    seen: list[float] = []

    def f(x: Any, i: Any) -> Any:
        tn.io_callback(lambda v: seen.append(float(v)), None, x.sum(), ordered=True)
        return x[i]

    assert tn.jit(f)(NONE, np.array([1])).shape == (1, 0)
    assert seen == [0.0]
