"""``tn.nn.initializers`` against JAX's, of one key."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

jax = pytest.importorskip("jax")

MADE: list[Callable[[Any], Any]] = [
    lambda i: i.zeros, lambda i: i.ones, lambda i: i.constant(0.5), lambda i: i.constant(np.arange(6)),
    lambda i: i.uniform(), lambda i: i.normal(0.3), lambda i: i.truncated_normal(0.3),
    lambda i: i.truncated_normal(1.0, lower=-1.0, upper=3.0), lambda i: i.glorot_uniform(), lambda i: i.xavier_normal(),
    lambda i: i.lecun_uniform(), lambda i: i.lecun_normal(), lambda i: i.he_uniform(), lambda i: i.kaiming_normal(),
    lambda i: i.glorot_normal(in_axis=0, out_axis=1), lambda i: i.he_normal(batch_axis=(0,)),
    lambda i: i.variance_scaling(3.0, "fan_out", "normal"), lambda i: i.variance_scaling(1.0, "fan_avg", "uniform"),
    lambda i: i.lecun_normal(in_axis=(0, 1), out_axis=2), lambda i: i.orthogonal(), lambda i: i.orthogonal(2.0, 0),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("shape", [(3, 5, 6), (7, 2, 6)])
@pytest.mark.parametrize("number", range(len(MADE)))
def test_the_weights_are_those_of_jax(number: int, shape: tuple[int, ...], dtype: str) -> None:
    make, key = MADE[number], np.asarray(tn.random.key(5))
    with jax.enable_x64(True):
        want = np.asarray(make(jax.nn.initializers)(jax.numpy.asarray(key), shape, dtype))
    mine = make(tn.nn.initializers)
    for got in (np.asarray(mine(tn.random.key(5), shape, dtype)), tn.jit(lambda key: mine(key, shape, dtype))(key)):
        assert got.dtype == dtype and got.shape == shape
        np.testing.assert_allclose(got, want, rtol=0, atol=5e-6 if dtype == "f4" else 1e-14)


def test_the_dtype_is_float64_unless_it_is_given() -> None:
    assert tn.nn.initializers.he_normal()(tn.random.key(0), (2, 3)).dtype == np.float64
    assert tn.nn.initializers.he_normal(dtype=np.float32)(tn.random.key(0), (2, 3)).dtype == np.float32


def test_sizes_may_be_symbols() -> None:
    f = tn.jit(lambda key, x: x @ tn.nn.initializers.glorot_normal()(key, (x.shape[1], 4)))
    for n in (3, 5):
        expected = np.ones((2, n)) @ np.asarray(tn.nn.initializers.glorot_normal()(tn.random.key(0), (n, 4)))
        np.testing.assert_allclose(f(np.asarray(tn.random.key(0)), np.ones((2, n))), expected, rtol=1e-13)
    assert f.cache_info().compiles == 1


def test_refusals() -> None:
    with pytest.raises(tn.ShapeError, match=r"variance_scaling: weights of shape \(3,\); at least two axes .*\(at "):
        tn.nn.initializers.glorot_normal()(tn.random.key(0), (3,))
    with pytest.raises(tn.TraceError, match=r"variance_scaling: mode 'fan'; 'fan_in', 'fan_out', 'fan_avg' is needed"):
        tn.nn.initializers.variance_scaling(1.0, "fan", "normal")(tn.random.key(0), (3, 2))
    with pytest.raises(tn.ShapeError, match=r"orthogonal: weights of shape \(3,\); at least two axes"):
        tn.nn.initializers.orthogonal()(tn.random.key(0), (3,))
