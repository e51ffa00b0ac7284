"""C's integer types of one width are one dtype: results carry NumPy's own name of it, whoever came first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

# What is another name of some intN or uintN on this platform.
TWINS = [c for c in "bhilqBHILQ" if np.dtype(np.dtype(c).name).char != c]
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "add": lambda x: x + 1,
    "view": lambda x: x[1:],
    "sum": lambda x: x.sum(),
    "element": lambda x: x[0],
    "sort": lambda x: np.sort(x),
    "like": lambda x: np.zeros_like(x),
    "astype": lambda x: x.astype(np.float64).astype(x.dtype),
    "product": lambda x: x @ x,
}


@pytest.mark.parametrize("char", TWINS)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize("first", [True, False])
def test_results_have_one_name(name: str, char: str, first: bool) -> None:
    function = FUNCTIONS[name]
    twin = np.arange(4).astype(char)
    plain = twin.astype(twin.dtype.name)
    assert twin.dtype == plain.dtype and twin.dtype.char != plain.dtype.char
    jitted = tn.jit(function)
    for x in (twin, plain, twin) if first else (plain, twin, plain):
        for found in (jitted(x), np.asarray(function(tn.asarray(x)))):
            wanted = function(plain)
            assert found.dtype == wanted.dtype and found.dtype.char == wanted.dtype.char
            np.testing.assert_array_equal(found, wanted)
    assert jitted.cache_info().compiles == 1


def test_memory_is_shared_and_arguments_come_back_as_they_are() -> None:
    for char in TWINS:
        x = np.arange(4).astype(char)
        assert tn.jit(lambda x: x)(x) is x
        a = tn.asarray(x)
        a[0] = 7
        assert x[0] == 7
        doubled = tn.jit(lambda x: np.multiply(x, 2, out=x), donate_argnums=0)(x)
        assert doubled is x and x.tolist() == [14, 2, 4, 6]


def test_there_is_a_twin_to_try() -> None:
    assert TWINS, "C has more integer types than there are widths"
