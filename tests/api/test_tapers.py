"""Windows and diagonals of a size: NumPy's numbers, one program for every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

WINDOWS: dict[str, Callable[[Any], Any]] = {
    "hanning": lambda n: np.hanning(n),
    "hamming": lambda n: np.hamming(n),
    "blackman": lambda n: np.blackman(n),
    "bartlett": lambda n: np.bartlett(n),
    "kaiser": lambda n: np.kaiser(n, 8.6),
    "kaiser, flat": lambda n: np.kaiser(n, 0),
}


@pytest.mark.parametrize("name", WINDOWS)
def test_a_window_of_a_size(name: str) -> None:
    window = WINDOWS[name]
    f = tn.jit(lambda x: x * window(x.shape[0]))
    for n in (7, 2, 3, 64, 1, 0, 65):
        found = f(np.ones(n))
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, window(n), rtol=1e-13, atol=1e-16)
    assert f.cache_info().compiles == 2  # 0 and 1 stand for themselves
    np.testing.assert_array_equal(tn.jit(lambda x: x * window(5))(np.ones(5)), window(5))
    outside = getattr(tn.numpy, name.split(",")[0])
    given = (9, 8.6) if name == "kaiser" else (9, 0) if "kaiser" in name else (9,)
    np.testing.assert_allclose(np.asarray(outside(*given)), window(9), rtol=1e-13, atol=1e-16)


def test_an_int_argument_and_a_traced_beta() -> None:
    f = tn.jit(lambda n, beta: np.kaiser(n, beta))
    for n, beta in ((5, 3.0), (12, 8.0)):
        np.testing.assert_allclose(f(n, beta), np.kaiser(n, beta), rtol=1e-13)
    assert f.cache_info().compiles == 1
    with pytest.raises(tn.DtypeError, match=r"hanning: M .*; a size is needed \(at .*test_tapers"):
        tn.jit(lambda x: np.hanning(x[0]))(np.ones(3))


def test_the_diagonal_of_a_size() -> None:
    f = tn.jit(lambda x: x[np.diag_indices(x.shape[0])])
    for n in (3, 5):
        np.testing.assert_array_equal(f(np.arange(n * n * 1.0).reshape(n, n)), np.arange(n) * (n + 1.0))
    assert f.cache_info().compiles == 1
    np.testing.assert_array_equal(tn.jit(lambda x: x[np.diag_indices(2)])(np.arange(9.0).reshape(3, 3)), [0.0, 4.0])
