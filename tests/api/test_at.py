"""``x.at[i]`` with an index out of range as in JAX, eagerly, jitted, mapped, differentiated; and ``ufunc.at``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro as tn

X = np.arange(12.0).reshape(3, 4)
KEYS: list[Any] = [
    5, -1, -4, np.array([0, 3, -1, -9]), (1, np.array([4, 0, 2])), (slice(1), np.array([7, 1])), (..., -5),
    (np.array([[0], [4]]), np.array([1, 9])), (np.array([3, 1]), slice(None, 2)), (None, np.array([1, 8])),
    np.array([0, 200], np.uint8), (np.array([True, False, True]), np.array([1, 4])), np.int64(7), [2, 6],
]  # fmt: skip


@pytest.mark.parametrize("mode", ["clip", "drop"])
@pytest.mark.parametrize("key", KEYS)
def test_out_of_range_against_jax(key: Any, mode: str) -> None:
    jax = pytest.importorskip("jax")
    with jax.enable_x64(True):
        place = jax.numpy.asarray(X).at[np.asarray(key) if isinstance(key, list) else key]
        read = "fill" if mode == "drop" else mode
        found = place.get(mode=read), place.get(mode=read, fill_value=7), place.set(50.0, mode=mode)
        want = (*found, place.add(0.5, mode=mode), place.max(6.0, mode=mode), place.multiply(2.0, mode=mode))

    def f(x: Any) -> Any:
        place = x.at[key]
        got = place.get(mode=read), place.get(mode=read, fill_value=7), place.set(50.0, mode=mode)
        return (*got, place.add(0.5, mode=mode), place.max(6.0, mode=mode), place.multiply(2.0, mode=mode))

    for got in (f(tn.asarray(X)), tn.jit(f)(X), [y[1] for y in tn.vmap(f)(np.stack([X, X]))]):
        for w, g in zip(want, got, strict=True):
            np.testing.assert_array_equal(np.asarray(g), np.asarray(w))


def test_a_traced_index() -> None:
    f = tn.jit(lambda x, i: (x.at[i].set(9.0, mode="drop"), x.at[i].get(mode="clip"), x.at[i].get(mode="fill")))
    for i in (np.int64(1), np.int64(-1), np.int64(5), np.int64(-6)):
        written, clipped, filled = f(np.arange(3.0), i)
        inside = -3 <= i < 3
        expected = np.arange(3.0)
        if inside:
            expected[i] = 9.0
        np.testing.assert_array_equal(written, expected)
        assert clipped == np.arange(3.0)[i if inside else -1 if i > 0 else 0]
        assert filled == i % 3 if inside else np.isnan(filled)
    assert f.cache_info().compiles == 1


def test_slopes_pass_by_what_is_dropped() -> None:
    i = np.array([0, 9, 2])
    slope = tn.grad(lambda x, v: (x.at[i].set(v, mode="drop") ** 2).sum(), (0, 1))(np.ones(3), np.full(3, 2.0))
    np.testing.assert_array_equal(slope[0], [0.0, 2.0, 0.0])
    np.testing.assert_array_equal(slope[1], [4.0, 0.0, 4.0])


@pytest.mark.parametrize(("dtype", "lost"), [("i1", -128), ("u2", 65535), ("?", True), ("i8", -(2**63))])
def test_what_is_read_out_of_range(dtype: str, lost: int) -> None:
    assert tn.asarray(np.zeros(3, dtype)).at[np.array([4])].get(mode="fill")[0] == lost


def test_apply_and_the_hints() -> None:
    x = tn.asarray(np.array([0.0, 1.0, 4.0]))
    np.testing.assert_array_equal(x.at[1:].apply(np.sqrt), [0.0, 1.0, 2.0])
    np.testing.assert_array_equal(x.at[7].apply(np.sqrt, mode="drop"), x)
    hints = x.at[1].add(1.0, indices_are_sorted=True, unique_indices=True, mode="promise_in_bounds")
    np.testing.assert_array_equal(hints, [0.0, 2.0, 4.0])


def test_refusals() -> None:
    with pytest.raises(
        tn.TraceError, match=r"at\[\.\.\.\]\.set: mode 'wrap'; 'clip', 'drop', .* is needed \(at .*test_at"
    ):
        tn.asarray(X).at[9].set(1.0, mode="wrap")
    with pytest.raises(IndexError):
        tn.asarray(X).at[9].set(1.0)


@pytest.mark.parametrize("ufunc", [np.add, np.subtract, np.multiply, np.maximum, np.minimum])
@pytest.mark.parametrize("dtype", ["f8", "f4", "i4"])
def test_ufuncs_at_repeated_places(ufunc: np.ufunc, dtype: str) -> None:
    x, values = X[:, :3].astype(dtype), np.arange(1, 9).reshape(4, 2)[::-1].astype(dtype)
    wide = np.append(values[0], values[0, 0])

    def g(x: Any, values: Any, wide: Any) -> Any:
        out = x.copy()
        ufunc.at(out, (np.array([0, 2, 0, 1]), slice(1, None)), values)
        ufunc.at(out, 1, wide)
        ufunc.at(out, out > 4, values[1, 0])
        return out

    expected = g(x, values, wide)
    for got in (tn.jit(g)(x, values, wide), np.asarray(g(*map(tn.asarray, (x, values, wide))))):
        np.testing.assert_array_equal(got, expected)
        assert got.dtype == expected.dtype


@pytest.mark.parametrize("name", ["add", "multiply", "divide", "min", "max"])
def test_slopes_at_repeated_places(name: str) -> None:
    i = np.array([0, 2, 0, 1])
    values = np.array([0.5, 3.5, 1.25, 2.0])
    f = tn.jit(lambda x, v: getattr(x.at[i], name)(v))
    tn.test_util.check_grads(f, (np.array([1.0, 3.0, 2.0]), values), order=2)


def test_segments_by_extremes() -> None:
    """The largest of each group, as graph networks write it."""
    groups = np.array([0, 1, 0, 1, 2])
    x = np.array([3.0, 1.0, 5.0, 2.0, 4.0])

    @tn.jit
    def largest(x: Any) -> Any:
        zeros: Any = np.zeros_like(x, shape=3)
        return zeros.at[groups].max(x)

    np.testing.assert_array_equal(largest(x), [5.0, 2.0, 4.0])
    np.testing.assert_array_equal(tn.grad(lambda x: largest(x).sum())(x), [0.0, 0.0, 1.0, 1.0, 1.0])
