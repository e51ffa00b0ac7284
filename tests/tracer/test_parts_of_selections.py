"""Elements and slices of arrays whose sizes are known only when the program runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro as tn

X = np.array([0.5, -0.8, -0.6, -0.4, 0.0, 0.2, 0.4, -0.1, 0.6, 0.8, 1.0])
ROWS = np.arange(22.0).reshape(11, 2)
BOUNDS = (None, 0, 1, 3, 5, 6, 100, -1, -2, -6, -100)


def same(f: Any, *args: Any) -> None:
    wanted, found = f(*args), tn.jit(f)(*args)
    assert type(wanted) is type(found)
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("step", [None, 1, 2, -1, -2, -7])
@pytest.mark.parametrize("stop", BOUNDS)
def test_slices(stop: int | None, step: int | None) -> None:
    for start in BOUNDS:
        key = slice(start, stop, step)
        jitted = tn.jit(lambda x, least, key=key: x[x > least][key])
        for least in (0.0, 0.7, 5.0):
            np.testing.assert_array_equal(jitted(X, least), X[X > least][key], f"{key} above {least}")


@pytest.mark.parametrize(
    "f",
    [lambda x: x[x > 0][0], lambda x: x[x > 0][-1], lambda x: x[x > 0][len(x) - 8], lambda x: x[x > 0][0, None],
     lambda x: np.unique(x)[:1], lambda x: np.nonzero(x > 0)[0][0], lambda x: np.sort(x[x > 0])[:3] * 2,
     lambda x: x[x > 0][1:] - x[x > 0][:-1], lambda x: x[x > 0][:3].sum()],
)  # fmt: skip
def test_of_a_vector(f: Any) -> None:
    same(f, X)


@pytest.mark.parametrize(
    "key", [0, (0, 1), (slice(None), 1), (slice(2), slice(1, None)), (1, Ellipsis), ([0, 1], -1), (Ellipsis, None, 0)]
)
def test_of_rows(key: Any) -> None:
    same(lambda x, m: m[x > 0][key], X, ROWS)


def test_writes() -> None:
    def written(x: Any) -> Any:
        y = x[x > 0]
        y[0], y[-1] = 5, y[-1] + 2
        y[1:3] *= 10
        return y

    same(written, X)


@pytest.mark.parametrize("index", [6, -7])
def test_an_index_out_of_range(index: int) -> None:
    with pytest.raises(tn.BoundsError, match=rf"indices contain {index}; axis 0 has 6 elements.*{__file__}"):
        tn.jit(lambda x: x[x > 0][index])(X)

    def written(x: Any) -> Any:
        y = x[x > 0]
        y[index] = 1
        return y

    with pytest.raises(tn.BoundsError, match=rf"indices contain {index}; axis 0 has 6 elements.*{__file__}"):
        tn.jit(written)(X)


def test_slopes() -> None:
    places = np.flatnonzero(X > 0)
    found = tn.grad(lambda x: x[x > 0][1] * 2 + (x[x > 0][-2:] ** 2).sum())(X)
    wanted = np.zeros_like(X)
    wanted[places[1]] = 2
    wanted[places[-2:]] += 2 * X[places[-2:]]
    np.testing.assert_array_equal(found, wanted)


def test_two_selections_are_not_compared() -> None:
    with pytest.raises(tn.TraceError, match=rf"arrays selected by one mask have one size.*{__file__}"):
        tn.jit(lambda x: x[x > 0] + x[x < 0])(X)
