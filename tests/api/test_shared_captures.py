"""Captured things that part or are exchanged between calls: names of one array, functions, types, slices."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

import tenferro as tn

X = np.arange(4.0)


def test_two_names_of_one_array_part() -> None:
    first = second = np.ones(4)
    jitted = tn.jit(lambda x: x + first + second)
    np.testing.assert_array_equal(jitted(X), X + 2)
    second = np.full(4, 5.0)
    np.testing.assert_array_equal(jitted(X), X + 6)
    assert "are one array no longer" in str(jitted.explain())
    first += 1
    np.testing.assert_array_equal(jitted(X), X + 7)


class Layer:
    def __init__(self) -> None:
        self.weights = [np.ones(4)] * 2

    @tn.jit
    def apply(self, x: Any) -> Any:
        return x * self.weights[0] + self.weights[1]


def test_two_items_of_one_array_part() -> None:
    np.testing.assert_array_equal(Layer().apply(X), X + 1)
    layer = Layer()
    layer.weights = [np.full(4, 2.0), np.full(4, 5.0)]
    np.testing.assert_array_equal(layer.apply(X), X * 2 + 5)


@pytest.mark.parametrize(
    ("before", "after", "use"),
    [
        (np.sin, np.cos, lambda x, v: v(x)),
        (np.float32, np.float64, lambda x, v: x.astype(v)),
        (slice(0, 2), slice(1, 4), lambda x, v: x[v]),
        (range(2), range(3), lambda x, v: x * sum(v)),
        (Fraction(1, 2), Fraction(1, 4), lambda x, v: x * float(v)),
    ],
    ids=["ufunc", "type", "slice", "range", "fraction"],
)
def test_what_is_exchanged_is_noticed(before: Any, after: Any, use: Any) -> None:
    value = before
    jitted = tn.jit(lambda x: use(x, value))
    for value in (before, after, before):
        found, expected = jitted(X), use(X, value)
        assert found.dtype == expected.dtype
        np.testing.assert_allclose(found, expected, rtol=1e-12)
    assert jitted.cache_info().compiles == 2


def test_a_list_that_becomes_a_number() -> None:
    weights: Any = [1.0, 2.0, 3.0, 4.0]
    jitted = tn.jit(lambda x: x + np.asarray(weights))
    np.testing.assert_array_equal(jitted(X), X + weights)
    weights = 3.0
    np.testing.assert_array_equal(jitted(X), X + 3)
