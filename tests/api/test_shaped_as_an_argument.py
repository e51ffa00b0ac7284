"""NumPy calls whose result has an argument's shape: one program for every size, also for sizes that the run tells."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

RANDOM = np.random.default_rng(5)
FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "interp": lambda x: np.interp(x, np.array([0.0, 0.5, 1.0]), np.array([3.0, 4.0, 5.0]), left=-1),
    "interp of a number": lambda x: np.interp(0.5, x.cumsum(), x),
    "searchsorted": lambda x: np.searchsorted(np.sort(x), x, side="right"),
    "searchsorted of a number": lambda x: np.searchsorted(np.sort(x), 0.5),
    "digitize": lambda x: np.digitize(x, np.array([0.2, 0.5])),
    "nancumsum": lambda x: np.nancumsum(x.reshape(-1, 1) * np.ones(2), axis=0, dtype=np.float32),
    "nancumsum of all": lambda x: np.nancumsum(x.reshape(-1, 1) * np.ones(2), axis=None),
    "unwrap": lambda x: np.unwrap(x * 20),
    "sinc": lambda x: np.sinc(x),
    "sinc of ints": lambda x: np.sinc((x * 3).astype(int)),
    "i0": lambda x: np.i0(x),
    "partition": lambda x: np.partition(x, [0, 2]),
    "partition of all": lambda x: np.partition(x.reshape(-1, 1) * np.ones(2), 2, axis=None),
    "argpartition": lambda x: np.sort(x)[np.argpartition(np.sort(x), 2)[2]],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_one_program_serves_every_size(name: str) -> None:
    f = tn.jit(FUNCTIONS[name])
    for n in (5, 9, 6, 3):
        x = RANDOM.random(n)
        found, wanted = f(x), FUNCTIONS[name](x)
        assert type(found) is type(wanted) and found.dtype == wanted.dtype and found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=1e-14)
    assert f.cache_info().compiles == 1


def test_sizes_that_the_run_tells() -> None:
    x = np.array([0.7, 0.2, 0.9, 0.6])
    f = tn.jit(lambda x: (np.sinc(x[x > 0.5]), np.interp(x[x > 0.5], [0.0, 1.0], [0.0, 2.0])))
    for found, wanted in zip(f(x), (np.sinc(x[x > 0.5]), x[x > 0.5] * 2), strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-14)
    with pytest.raises(tn.TraceError, match="partition: a size known only when the program runs"):
        tn.jit(lambda x: np.partition(x[x > 0.5], 2))(x)


def test_what_numpy_refuses_has_the_users_line_at_every_size() -> None:
    f = tn.jit(lambda x: np.partition(x, 5))
    assert f(np.ones(9)).shape == (9,)
    for g in (f, tn.jit(lambda x: np.partition(x, 5))):
        with pytest.raises(tn.ShapeError, match=r"partition: kth\(=5\) out of bounds \(3\) \(at .*\)"):
            g(np.ones(3))
