"""Arguments of ``jax.numpy`` that NumPy has not: against JAX, eagerly, jitted and mapped."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.numpy as tnp

jax = pytest.importorskip("jax")

X = np.array([[3.0, 0.0, 1.0], [0.0, 3.0, 2.0]])
CALLS: list[Callable[[Any, Any], Any]] = [
    lambda np, x: np.nonzero(x, size=3), lambda np, x: np.nonzero(x, size=6, fill_value=-1),
    lambda np, x: np.nonzero(x, size=5, fill_value=(7, 8)), lambda np, x: np.where(x > 1, size=2),
    lambda np, x: np.flatnonzero(x, size=6, fill_value=99), lambda np, x: np.argwhere(x > 0.5, size=6),
    lambda np, x: np.argwhere(x, size=2, fill_value=4), lambda np, x: np.where(x > 50, size=2, fill_value=1),
    lambda np, x: np.unique(x, size=3), lambda np, x: np.unique(x, size=6),
    lambda np, x: np.unique(x, size=6, fill_value=-5),
    lambda np, x: np.unique(x, return_inverse=True, return_counts=True, size=5, fill_value=9),
    lambda np, x: np.unique(x, return_counts=True, size=2), lambda np, x: np.unique(x, return_index=True, size=4),
    lambda np, x: np.bincount(x.ravel().astype("int64"), length=6),
    lambda np, x: np.bincount(x.ravel().astype("int64"), length=2),
    lambda np, x: np.bincount(x.ravel().astype("int64") - 1, x.ravel(), length=3),
    lambda np, x: np.dot(x, x.T, precision="highest"),
    lambda np, x: np.einsum("ij,kj->ik", x, x, precision="float32", preferred_element_type="float64"),
    lambda np, x: np.matmul(x.astype("float32"), x.T.astype("float32"), preferred_element_type="float64"),
    lambda np, x: np.tensordot(x, x, 2, preferred_element_type="float32"),
    lambda np, x: np.fill_diagonal(x, 5.0, inplace=False),
    lambda np, x: np.put_along_axis(x, np.asarray([[2], [0]]), 9.0, 1, inplace=False),
    lambda np, x: np.put(x, np.asarray([0, 4]), np.asarray([8.0, 9.0]), inplace=False),
    lambda np, x: np.place(x, x > 2, np.asarray([7.0]), inplace=False),
    lambda np, x: np.take(x, np.asarray([0, 5, 1]), axis=1, mode="fill"),
    lambda np, x: np.take(x, np.asarray([[0, 5], [9, -1]]), mode="fill", fill_value=4.0),
    lambda np, x: np.take(x, np.asarray([0, 5, -1, -7]), axis=-1, mode="fill"),
]  # fmt: skip


def _same(got: Any, want: Any) -> None:
    got, want = (v if isinstance(v, tuple | list) else (v,) for v in (got, want))
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        np.testing.assert_allclose(np.asarray(g), np.asarray(w), rtol=1e-6)
        assert np.asarray(g).dtype == np.asarray(w).dtype


@pytest.mark.parametrize("number", range(len(CALLS)))
def test_against_jax(number: int) -> None:
    call = CALLS[number]
    with jax.enable_x64(True):
        want = call(jax.numpy, jax.numpy.asarray(X))
    before = X.copy()
    _same(call(tnp, tn.asarray(X)), want)
    outside = call(tnp, X)
    _same(outside, want)
    assert not [x for x in tn.tree.leaves(outside) if type(x) is tn.Array]  # type in, type out
    _same(tn.jit(lambda x: call(tnp, x))(X), want)
    lanes = tn.vmap(lambda x: call(tnp, x))(np.stack([X[::-1], X]))
    _same(tn.tree.map(lambda y: y[1], lanes), want)
    np.testing.assert_array_equal(X, before)


def test_a_size_keeps_a_program_for_every_length() -> None:
    f = tn.jit(lambda x, n: tnp.nonzero(x > 0, size=n, fill_value=-1)[0])
    np.testing.assert_array_equal(f(np.array([0.0, 1.0, 2.0]), 4), [1, 2, -1, -1])
    np.testing.assert_array_equal(f(np.array([3.0, 0.0, 2.0, 1.0]), 2), [0, 2])
    assert f.cache_info().compiles == 1


def test_slopes_pass_through_what_is_found() -> None:
    f = tn.jit(lambda x: (tnp.take(x, np.array([0, 9, 1]), mode="fill", fill_value=0.0) ** 2).sum())
    np.testing.assert_array_equal(tn.grad(f)(np.array([1.0, 2.0, 3.0])), [2.0, 4.0, 0.0])


def test_refusals() -> None:
    with pytest.raises(tn.TraceError, match=r"nonzero: fill_value without size; both are needed \(at .*test_jax_keyw"):
        tnp.nonzero(X, fill_value=1)
    with pytest.raises(tn.TraceError, match=r"where: size beside other arguments; a condition alone is needed"):
        tnp.where(X > 0, X, X, size=3)
    with pytest.raises(tn.TraceError, match=r"unique: size beside axis; size alone is needed"):
        tnp.unique(X, axis=0, size=3)
