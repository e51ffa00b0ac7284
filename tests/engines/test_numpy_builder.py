"""The NumPy builder's own claims: fma rounds once, contracts are enforced."""

from __future__ import annotations

from fractions import Fraction
from typing import Literal

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tenferro.engines.numpy_builder import NumpyBuilder

B = NumpyBuilder()


def exactly(x: float, y: float, z: float, dtype: str) -> float:
    """x y + z rounded once, for a result in range; float32 by comparing the two nearest."""
    total = Fraction(x) * Fraction(y) + Fraction(z)
    if dtype == "float64":
        return float(total)
    near = np.float32(float(total))
    choices = [near, np.nextafter(near, np.float32(np.inf)), np.nextafter(near, np.float32(-np.inf))]
    return float(min(choices, key=lambda c: (abs(Fraction(float(c)) - total), int(c.view(np.uint32)) & 1)))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@settings(max_examples=400, deadline=None)
@given(data=st.data())
def test_fma_rounds_once(dtype: str, data: st.DataObject) -> None:
    width: Literal[32, 64] = 32 if dtype == "float32" else 64
    limit = 2.0**50 if dtype == "float32" else 2.0**500
    numbers = st.floats(-limit, limit, width=width)
    x, y = data.draw(numbers), data.draw(numbers)
    product = np.dtype(dtype).type(x) * np.dtype(dtype).type(y)
    z = data.draw(st.one_of(numbers, st.just(float(-product))))
    a, b, c = (np.array([v], dtype) for v in (x, y, z))
    expected = exactly(x, y, z, dtype)
    assert B.fma(a, b, c)[0] == expected


def test_fma_double_where_two_roundings_differ() -> None:
    """(1 + 2**-30)**2 - (1 + 2**-29) keeps 2**-60, which a rounded product loses."""
    x = np.array([1 + 2.0**-30])
    assert B.fma(x, x, np.array([-(1 + 2.0**-29)]))[0] == 2.0**-60
    assert x[0] * x[0] - (1 + 2.0**-29) == 0


def test_contracts_are_enforced() -> None:
    x = np.array([3], np.int32)
    with pytest.raises(ValueError, match="shift"):
        B.shl(x, np.array([32], np.int32))
    with pytest.raises(ValueError, match="convert"):
        B.convert(np.array([3e9]), np.dtype(np.int32))
    with pytest.raises(ValueError, match="convert"):
        B.convert(np.array([np.nan]), np.dtype(np.int32))
    with pytest.raises(IndexError, match="lookup"):
        B.lookup((1, 2), np.dtype(np.int32), np.array([-1]))
    with pytest.raises(IndexError):
        B.lookup((1, 2), np.dtype(np.int32), np.array([2]))
    with pytest.raises(TypeError, match="div"):
        B.div(x, x)
