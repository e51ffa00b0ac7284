"""Elements and slices of arrays whose sizes are known only when the program runs."""

from __future__ import annotations

import operator
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


def _in_turn(y: Any) -> None:
    for k in range(3):
        y[k][0] = k


WRITES: dict[str, Any] = {
    "an element of a row": lambda y: operator.setitem(y[0], 1, 77),
    "a row in place": lambda y: operator.iadd(y[-1], 100),
    "a row of a slice": lambda y: operator.setitem(y[1:][0], ..., 5),
    "a part of a row": lambda y: operator.setitem(y[2, :1], slice(None), -1),
    "a row from the back": lambda y: operator.imul(y[::-1][1], 3),
    "a row by another": lambda y: operator.setitem(y[0], slice(None), y[1]),
    "rows in turn": _in_turn,
    "an element with an axis": lambda y: operator.iadd(y[:, 1][0, None], 9),
    "an element of rank 0": lambda y: operator.iadd(y[0, 0, ...], 9),
    "a row under another shape": lambda y: operator.setitem(y[0].reshape(2, 1), 0, 5),
    "of the transposed": lambda y: operator.setitem(y.T[:, 1], slice(None), 6),
    "fill, sort and copyto": lambda y: (y[0].fill(3), y[1].sort(), np.copyto(y[2], 8)),
}


@pytest.mark.parametrize("name", WRITES)
def test_a_row_is_a_view(name: str) -> None:
    def written(x: Any, m: Any) -> Any:
        y = m[x > 0]
        row = y[0]
        WRITES[name](y)
        return row, y

    for found, wanted in zip(tn.jit(written)(X, ROWS), written(X, ROWS), strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_an_element_is_a_number() -> None:
    def written(x: Any) -> Any:
        y = x[x > 0]
        first = y[0]
        first += 1
        y[0] = 9
        return first, y

    for found, wanted in zip(tn.jit(written)(X), written(X), strict=True):
        np.testing.assert_array_equal(found, wanted)


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


def test_sizes_that_bodies_find_are_their_own() -> None:
    """One body's selection has the number that another's had before: what was known of that one is forgotten."""

    def sizes(p: Any) -> Any:
        return (
            tn.lax.cond(p > 0, lambda: len(X[X > 0]), lambda: len(X[X < 0])),
            tn.lax.cond(p > 0, lambda: (X[X > 0] + np.ones(6)).sum(), lambda: (X[X < 0] + np.ones(4)).sum()),
            tn.lax.cond(p > 0, lambda: lax_sum(X > 0), lambda: lax_sum(X < 0)),
        )

    def lax_sum(mask: Any) -> Any:
        return tn.lax.truncate(X, mask.sum()).sum()

    for f in (sizes, tn.jit(sizes)):
        np.testing.assert_allclose(f(1.0), (6, X[X > 0].sum() + 6, X[:6].sum()))
        np.testing.assert_allclose(f(-1.0), (4, X[X < 0].sum() + 4, X[:4].sum()))


def _least(v: Any, c: Any, x: Any) -> Any:
    k = x * v > 0
    return c + x[k][0], x[k].sum() + (x[k] ** 2)[::-1][0]


def test_selections_in_turns() -> None:
    def scanned(x: Any) -> Any:
        return tn.lax.scan(lambda c, v: _least(v, c, x), 0.0, x)

    x = X[X != 0]
    carry, found = 0.0, []
    for v in x:
        carry, y = _least(v, carry, x)
        found.append(y)
    for got, wanted in zip(tn.jit(scanned)(x), (carry, np.array(found)), strict=True):
        np.testing.assert_allclose(got, wanted)
    tn.test_util.check_grads(scanned, (x,), order=2)


def test_selections_in_branches() -> None:
    def chosen(x: Any, p: Any) -> Any:
        return tn.lax.cond(p > 0, lambda: x[x > 0].sum() * x[x > 0][1], lambda: (x[x < 0] ** 2).sum())

    for p in (1.0, -1.0):
        tn.test_util.check_grads(lambda x, p=p: chosen(x, p), (X[X != 0],), order=2)


@pytest.mark.parametrize(
    "f",
    [lambda x: tn.lax.cond(x[0] > 0, lambda: x[x > 0], lambda: x[x < 0]),
     lambda x: tn.lax.switch(1, [lambda: x, lambda: x[x < 0]]),
     lambda x: tn.lax.scan(lambda c, v: (c, x[x > v]), 0.0, x),
     lambda x: tn.lax.scan(lambda c, v: (c[c > v], v), x, x),
     lambda x: tn.lax.map(lambda v: x[x > v], x),
     lambda x: tn.lax.fori_loop(0, 3, lambda i, c: c[c > 0], x),
     lambda x: tn.lax.while_loop(lambda c: c.sum() > 1, lambda c: c[c > 0], x),
     tn.checkpoint(lambda x: x[x > 0])],
)  # fmt: skip
def test_results_of_bodies_have_known_sizes(f: Any) -> None:
    for called in (f, tn.jit(f)):
        with pytest.raises(tn.ShapeError, match=rf"(cond|switch|scan|map|fori_loop|while_loop|checkpoint).* has a size "
                           rf"that is known only when the program runs.*{__file__}"):  # fmt: skip
            called(X)


def test_sizes_from_around_bodies_are_known_there() -> None:
    def f(x: Any) -> Any:
        y = x[x > 0]
        doubled = tn.lax.cond(x.sum() > 0, lambda y: y * 2, lambda y: y, y)
        return tn.checkpoint(lambda y: y**2)(doubled).sum()

    np.testing.assert_allclose(tn.jit(f)(X), ((2 * X[X > 0]) ** 2).sum())
    np.testing.assert_allclose(tn.jit(tn.grad(f))(X), np.where(X > 0, 8 * X, 0))


def test_linear_functions_of_selections() -> None:
    def f(x: Any) -> Any:
        return x[x > 0][::-1] * 2

    tangent = np.arange(11.0)
    np.testing.assert_array_equal(tn.linearize(f, X)[1](tangent), 2 * tangent[X > 0][::-1])
    np.testing.assert_array_equal(tn.jit(lambda x, t: tn.linearize(f, x)[1](t))(X, tangent), 2 * tangent[X > 0][::-1])
    wanted = np.zeros(11)
    wanted[X > 0] = 2 * np.arange(6.0)[::-1]
    np.testing.assert_array_equal(tn.vjp(f, X)[1](np.arange(6.0))[0], wanted)


@pytest.mark.parametrize("least", [-5.0, 0.0, 5.0])
@pytest.mark.parametrize(
    "f",
    [lambda x, m: x.max(initial=0.0), lambda x, m: x.min(initial=9.0), lambda x, m: m.max(axis=0, initial=-1),
     lambda x, m: m.max(axis=0, keepdims=True, initial=-1), lambda x, m: m.max(axis=0, where=m > 3, initial=-1),
     lambda x, m: np.roll(x, 1), lambda x, m: np.roll(x, -2), lambda x, m: np.roll(x, 9),
     lambda x, m: np.roll(m, 3, axis=0), lambda x, m: np.roll(m, 3)],
)  # fmt: skip
def test_of_any_size_nothing_included(f: Any, least: float) -> None:
    same(lambda x, m: f(x[x > least], m[x > least]), X, ROWS)
