"""``cond`` and ``switch`` against Python's ``if``: one side runs, both have derivatives, lanes choose on their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import ShapeError

RNG = np.random.default_rng(11)
X = RNG.uniform(0.5, 2.0, 5)


def both(f: Callable[..., Any]) -> list[Callable[..., Any]]:
    return [f, tn.jit(f)]


def cheap(p: Any, x: Any) -> Any:
    return tn.lax.cond(p > 0, np.sin, lambda x: x * 2, x)


def costly(p: Any, x: Any) -> Any:
    """A loop on one side, a call at a seam on the other."""

    def looping(x: Any) -> Any:
        return tn.lax.while_loop(lambda y: y.sum() < 50.0, lambda y: y * 1.5, x)

    return tn.lax.cond(p > 0, looping, np.cumsum, x)


def plainly(choice: Any, p: float, x: Any) -> Any:
    if choice is cheap:
        return np.sin(x) if p > 0 else x * 2
    if p <= 0:
        return np.cumsum(x)
    while x.sum() < 50.0:
        x = x * 1.5
    return x


@pytest.mark.parametrize("choice", [cheap, costly], ids=["cheap", "costly"])
@pytest.mark.parametrize("p", [1.0, -1.0])
def test_one_side(choice: Any, p: float) -> None:
    for f in both(choice):
        np.testing.assert_allclose(f(p, X), plainly(choice, p, X), rtol=1e-14)


@pytest.mark.parametrize("choice", [cheap, costly], ids=["cheap", "costly"])
@pytest.mark.parametrize("p", [1.0, -1.0])
def test_derivatives_of_the_side_that_was_taken(choice: Any, p: float) -> None:
    def loss(x: Any) -> Any:
        return (choice(p, x) ** 2).sum()

    step, expected = 1e-6, np.zeros_like(X)
    for k in range(len(X)):
        d = np.zeros_like(X)
        d[k] = step
        pair = [(plainly(choice, p, X + s * d) ** 2).sum() for s in (1, -1)]
        expected[k] = (pair[0] - pair[1]) / (2 * step)
    for f in both(tn.grad(loss)):
        np.testing.assert_allclose(f(X), expected, rtol=1e-6)
    second = tn.grad(lambda x: tn.grad(loss)(x).sum())(X)
    nearby = tn.jit(tn.grad(loss))
    differences = [(nearby(X + step * e).sum() - nearby(X - step * e).sum()) / (2 * step) for e in np.eye(len(X))]
    np.testing.assert_allclose(second, differences, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("choice", [cheap, costly], ids=["cheap", "costly"])
@pytest.mark.parametrize("signs", [[1, -1, 1, -1], [1, 1, 1, 1], [-1, -1, -1, -1]])
def test_each_lane_chooses(choice: Any, signs: list[int]) -> None:
    p, x = np.array(signs, float), RNG.uniform(0.5, 2.0, (4, 5))
    for f in both(tn.vmap(choice)):
        found = f(p, x)
        for k in range(4):
            np.testing.assert_array_equal(found[k], choice(p[k], x[k]))
    gradient = tn.grad(lambda x: tn.vmap(choice)(p, x).sum())(x)
    for k in range(4):
        alone = tn.grad(lambda x, k=k: choice(p[k], x).sum())(x[k])
        np.testing.assert_allclose(gradient[k], alone, rtol=1e-13)


def test_one_choice_for_all_lanes_is_no_choice_of_lanes() -> None:
    x = RNG.uniform(0.5, 2.0, (3, 5))
    for f in both(tn.vmap(costly, in_axes=(None, 0))):
        np.testing.assert_array_equal(f(-1.0, x), np.cumsum(x, axis=1))
    text = str(tn.jit(tn.vmap(costly, in_axes=(None, 0))).trace(1.0, x))
    assert "mask_select" not in text


@pytest.mark.parametrize("index", [-3, 0, 1, 2, 9])
def test_switch_takes_the_nearest(index: int) -> None:
    sides = [lambda x: x, lambda x: x * 10, lambda x: -x]
    expected = sides[min(max(index, 0), 2)](X)
    for f in both(lambda i, x: tn.lax.switch(i, sides, x)):
        np.testing.assert_array_equal(f(np.int64(index), X), expected)
        np.testing.assert_array_equal(f(index, X), expected)


def test_an_error_on_the_other_side_does_not_happen() -> None:
    f = tn.jit(lambda i, x: tn.lax.cond(i < len(x), lambda: x[i], lambda: 0.0))
    assert float(f(np.int64(2), X)) == X[2]
    assert float(f(np.int64(20), X)) == 0.0


def test_branches_must_agree() -> None:
    with pytest.raises(ShapeError, match="branches return"):
        tn.lax.cond(True, lambda x: x, lambda x: x[1:], X)
    with pytest.raises(ShapeError, match=r"float64 of shape \(2,\) and float64 of shape \(1,\)"):  # true_fun's first
        tn.lax.cond(False, lambda x: x[:2], lambda x: x[:1], X)
    with pytest.raises(ShapeError, match=r"structures tuple\(\*, \*\) and \*;"):
        tn.lax.cond(False, lambda x: (x, x), lambda x: x, X)
    with pytest.raises(ShapeError, match="structures"):
        tn.lax.cond(True, lambda x: (x, x), lambda x: x, X)
    with pytest.raises(ShapeError, match="one bool"):
        tn.lax.cond(X > 0, lambda x: x, lambda x: x, X)
    with pytest.raises(ValueError, match="no branches"):
        tn.lax.switch(0, [], X)


def test_numbers_give_way_to_arrays_of_the_other_branch() -> None:
    for f in both(lambda p, x: tn.lax.cond(p, lambda x: x.sum(), lambda x: 0.0, x)):
        assert f(True, X.astype(np.float32)).dtype == np.float32
        assert float(f(False, X)) == 0.0


def test_a_choice_inside_a_loop() -> None:
    def walk(x: Any) -> Any:
        return tn.lax.scan(lambda c, v: (tn.lax.cond(c > 2, lambda c: c - v, lambda c: c + v, c), c), 0.0, x)

    def plain(x: Any) -> Any:
        c, ys = 0.0, []
        for v in x:
            ys.append(c)
            c = c - v if c > 2 else c + v
        return c, ys

    for f in both(walk):
        last, ys = f(X)
        expected, stacked = plain(X)
        assert float(last) == pytest.approx(expected)
        np.testing.assert_allclose(ys, stacked)
    lanes = RNG.uniform(0.5, 2, (3, 5))
    for k, last in enumerate(tn.vmap(walk)(lanes)[0]):
        assert float(last) == pytest.approx(plain(lanes[k])[0])


def test_lanes_choose_at_every_turn() -> None:
    """A branch that sums is computed for the lanes that chose it, in sizes of the program around the loop."""

    def f(c0: Any, xs: Any) -> Any:
        def body(c: Any, x: Any) -> Any:
            c = tn.lax.cond(c.sum() > 0, lambda c: c - (c * c).sum() * 0.01 + x, lambda c: c + x * 2, c)
            return c, c.sum()

        return tn.lax.scan(body, c0, xs)

    rng = np.random.default_rng(0)
    lanes, xs = rng.normal(size=(5, 3)), rng.normal(size=7)
    mapped = tn.jit(tn.vmap(f, in_axes=(0, None)))
    for some in (lanes, lanes[:1], lanes[:0]):
        last, sums = mapped(some, xs)
        one = [tn.jit(f)(c, xs) for c in some]
        assert last.shape == some.shape and sums.shape == (len(some), 7)
        for k, (final, path) in enumerate(one):
            np.testing.assert_array_equal(last[k], final)
            np.testing.assert_array_equal(sums[k], path)
    slopes = tn.jit(tn.grad(lambda c: mapped(c, xs)[1].sum()))(lanes)
    alone = [tn.jit(tn.grad(lambda c: f(c, xs)[1].sum()))(c) for c in lanes]
    np.testing.assert_allclose(slopes, alone, rtol=1e-12)


def test_lanes_of_lanes_choose() -> None:
    """Loops and singular matrices of a side that a lane did not choose are not met, whatever number of lanes chose."""

    def f(x: Any) -> Any:
        def doubled(x: Any) -> Any:
            return tn.lax.while_loop(lambda s: s.sum() < 10, lambda s: s * 2, x)

        return tn.lax.cond(x.sum() > 0, doubled, lambda x: np.linalg.solve(np.diag(x), x), x)

    lanes = np.random.default_rng(0).normal(size=(4, 5, 3))
    lanes[0, 0] = [0.0, 1.0, 2.0]  # whose matrix is singular
    expected = np.stack([[tn.jit(f)(x) for x in row] for row in lanes])
    np.testing.assert_array_equal(tn.jit(tn.vmap(tn.vmap(f)))(lanes), expected)
    slopes = tn.jit(tn.grad(lambda x: tn.vmap(tn.vmap(f))(x).sum()))(lanes)
    alone = np.stack([[tn.jit(tn.grad(lambda x: f(x).sum()))(x) for x in row] for row in lanes])
    np.testing.assert_allclose(slopes, alone, rtol=1e-12)
