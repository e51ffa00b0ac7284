"""``tnp.vectorize`` and ``tnp.apply_along_axis`` against JAX's, jitted, eager, mapped and differentiated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.numpy as tnp

A, B = np.arange(24.0).reshape(2, 1, 3, 4), np.arange(20.0).reshape(5, 4)
CALLS: list[Callable[[Any, Any, Any], Any]] = [
    lambda np, a, b: np.vectorize(lambda x, y: x * y + 1)(a, b[:3]),
    lambda np, a, b: np.vectorize(lambda m, v: m @ v, signature="(m,n),(n)->(m)")(a, b),
    lambda np, a, b: np.vectorize(lambda m, v: (m @ v, v.sum()), signature="(m,n),(n)->(m),()")(a, b),
    lambda np, a, b: np.vectorize(lambda v: v[::-1], signature="(n)->(n)")(a),
    lambda np, a, b: np.vectorize(lambda x, k, y: x**k + y, excluded={1})(a, 2, 1.5),
    lambda np, a, b: np.vectorize(lambda x, y: x - y, signature="(n),(n)->(n)")(a[:1], b[:1]),
    lambda np, a, b: np.vectorize(lambda x: x + 1)(3.0),
    lambda np, a, b: np.apply_along_axis(lambda v: v.sum(), 1, a),
    lambda np, a, b: np.apply_along_axis(lambda v: np.convolve(v, np.asarray([1.0, 2.0])), -1, a),
    lambda np, a, b: np.apply_along_axis(lambda v, w: np.outer(v, v) * w, 0, b, 2.0),
    lambda np, a, b: np.apply_along_axis(lambda v: v - v.mean(), -2, a),
]


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_against_jax(number: int) -> None:
    jax = pytest.importorskip("jax")
    call = CALLS[number]
    with jax.enable_x64(True):
        want = jax.tree.leaves(call(jax.numpy, jax.numpy.asarray(A), jax.numpy.asarray(B)))
    f = tn.jit(lambda a, b: call(tnp, a, b))
    assert number == 6 or not [x for x in tn.tree.leaves(call(tnp, A, B)) if type(x) is tn.Array]
    for got in (f(A, B), call(tnp, A, B), call(tnp, tn.asarray(A), tn.asarray(B))):
        leaves = tn.tree.leaves(got)
        assert len(leaves) == len(want)
        for g, w in zip(leaves, want, strict=True):
            assert np.shape(g) == w.shape
            np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-13)


def test_numpys_own_agrees() -> None:
    expected = np.apply_along_axis(lambda v: np.outer(v, v), 1, B)
    np.testing.assert_array_equal(tnp.apply_along_axis(lambda v: np.outer(v, v), 1, B), expected)
    product = np.vectorize(np.matmul, signature="(m,n),(n)->(m)")
    np.testing.assert_array_equal(tnp.vectorize(np.matmul, signature="(m,n),(n)->(m)")(A, B), product(A, B))


def test_slopes() -> None:
    f = tnp.vectorize(lambda x, y: np.sin(x) * y)
    slope = tn.grad(lambda x: f(x, B[0]).sum())(B)
    np.testing.assert_allclose(slope, np.cos(B) * B[0], rtol=1e-12, atol=1e-12)


def test_refusals() -> None:
    f = tnp.vectorize(lambda m, v: m @ v, signature="(m,n),(n)->(m)")
    with pytest.raises(tn.ShapeError, match=r"vectorize: axis 'n' has sizes 4 and 5; one size is needed \(at .*test_v"):
        f(A, np.ones(5))
    with pytest.raises(
        tn.ShapeError, match=r"vectorize: argument 0 has rank 1; its signature \(m,n\) needs at least 2"
    ):
        f(np.ones(4), np.ones(4))
    with pytest.raises(tn.TraceError, match=r"vectorize: 1 arrays for signature '\(m,n\),\(n\)->\(m\)'; 2 are needed"):
        f(A)
    with pytest.raises(tn.TraceError, match=r"vectorize: signature '\(n'; one like '\(m,n\),\(n\)->\(m\)' is needed"):
        tnp.vectorize(abs, signature="(n")
    with pytest.raises(tn.ShapeError, match=r"apply_along_axis: axis 2 for rank 2; one of its axes is needed"):
        tnp.apply_along_axis(np.sum, 2, B)
