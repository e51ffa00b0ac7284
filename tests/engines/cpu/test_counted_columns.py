"""Column kernels whose nodes count: an index along any axis, beside reductions of short and of leading axes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

Array = np.ndarray[Any, Any]


def _along_rows(x: Array) -> Any:
    return (x * np.arange(x.shape[1])).sum(axis=-1)


def _along_columns(x: Array) -> Any:
    return (x * np.arange(x.shape[0])[:, None]).sum(axis=-1)


def _both(x: Array) -> Any:
    numbered = x + np.arange(x.shape[0])[:, None] * 0.5 + np.arange(x.shape[1])
    return numbered / numbered.sum(axis=-1, keepdims=True)


def _after(x: Array) -> Any:
    return (np.arange(x.shape[0]) + x.sum(axis=-1)) * 2.0


def _place(x: Array) -> Any:
    return np.argmax(x * (np.arange(x.shape[1]) + 1), axis=-1)


FUNCTIONS: tuple[Callable[..., Any], ...] = (_along_rows, _along_columns, _both, _after, _place)


@pytest.mark.parametrize("length", [2, 3, 7, 31, 64, 100])
@pytest.mark.parametrize("function", FUNCTIONS)
def test_many_rows_have_the_bits_of_few(function: Callable[..., Any], length: int) -> None:
    """Few rows are walked along, many across: whole vectors of columns and what is left of a tile."""
    x = np.random.default_rng(0).normal(size=(5003, length))
    jitted = tn.jit(function)
    for _ in range(3):  # kernels of a row length of their own come later
        whole = jitted(x)
        np.testing.assert_array_equal(whole[:3], jitted(x[:3]))
        np.testing.assert_array_equal(jitted(np.asfortranarray(x)), whole)
    np.testing.assert_allclose(whole, function(x), rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("shape", [(5, 40, 3), (3, 1500, 7), (4, 17, 64), (2, 5, 1100)])
@pytest.mark.parametrize("axis", [0, 1, 2, (0, 1), (1, 2), (0, 2)])
def test_three_axes(shape: tuple[int, ...], axis: Any) -> None:
    def function(x: Array) -> Any:
        a, b, c = x.shape
        numbers = np.arange(a)[:, None, None] * np.arange(c) + np.arange(b)[:, None]
        return (x * numbers).sum(axis=axis)

    x = np.random.default_rng(1).normal(size=shape)
    np.testing.assert_allclose(tn.jit(function)(x), function(x), rtol=1e-11, atol=1e-8)
