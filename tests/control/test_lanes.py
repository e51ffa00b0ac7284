"""``vmap``: axes of arguments and results, names of lanes, what cannot be mapped."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import BatchError, TraceError

RNG = np.random.default_rng(3)
X = RNG.uniform(-1, 1, (5, 3))
Y = RNG.uniform(-1, 1, (3, 5, 2))


def both(f: Callable[..., Any]) -> list[Callable[..., Any]]:
    return [f, tn.jit(f)]


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("out", [0, 1, -1])
def test_axes(axis: int, out: int) -> None:
    def one(v: Any) -> Any:
        return np.stack([v.sum(), v.max()])

    expected = np.stack([one(v) for v in np.moveaxis(X, axis, 0)], out)
    for f in both(tn.vmap(one, in_axes=axis, out_axes=out)):
        np.testing.assert_array_equal(f(X), expected)


@pytest.mark.parametrize("out", [0, 1, -1])
def test_functions_that_do_nothing(out: int) -> None:
    for f in both(tn.vmap(lambda v: v, out_axes=out)):
        np.testing.assert_array_equal(f(X), X if out == 0 else X.T)
    for f in both(tn.vmap(lambda v: (v, v), out_axes=(out, 0))):
        np.testing.assert_array_equal(f(X)[1], X)
    for f in both(lambda x: tn.lax.map(lambda row: row, x)):
        np.testing.assert_array_equal(f(X), X)


def test_axes_are_prefixes_of_pytrees() -> None:
    def one(p: Any, s: Any, k: Any) -> Any:
        return {"a": p["w"] @ s, "b": (p["b"] + k, k)}

    p = {"w": Y, "b": RNG.uniform(0, 1, 5)}
    s = RNG.uniform(0, 1, 2)
    axes = ({"w": 1, "b": 0}, None, None)
    for f in both(tn.vmap(one, in_axes=axes, out_axes={"a": 1, "b": (0, None)})):
        found = f(p, s, 2.0)
        np.testing.assert_allclose(found["a"], np.stack([Y[:, k] @ s for k in range(5)], 1))
        np.testing.assert_array_equal(found["b"][0], p["b"] + 2.0)
        assert found["b"][1] == 2.0


Point = namedtuple("Point", "x y")
Pair = namedtuple("Pair", "first second")


def test_axes_of_dicts_are_matched_by_key() -> None:
    p = {"w": Y, "b": Y[0]}
    axes = ({"b": None, "w": 1},)
    for f in both(tn.vmap(lambda p: {"u": p["w"], "v": p["b"]}, in_axes=axes, out_axes={"v": 0, "u": 1})):
        found = f(p)
        np.testing.assert_array_equal(found["u"], Y)
        np.testing.assert_array_equal(found["v"], np.stack([Y[0]] * 5))


@pytest.mark.parametrize(
    ("axes", "value", "text"),
    [
        ({"bias": None, "weight": 0}, {"w": X, "b": 1.0}, "keys 'bias', 'weight' for one with the keys 'w', 'b'"),
        ({}, {"w": X}, "no keys for one with the keys 'w'"),
        ({1: 0}, {True: X}, "keys 1 for one with the keys True"),
        (Pair(0, None), Point(X, 1.0), "of class Pair for one of class Point"),
        ((0, None), Point(X, 1.0), "of class tuple for one of class Point"),
        ([0, 0], (X, X), "of class list for one of class tuple"),
        (OrderedDict(w=0), {"w": X}, "of class OrderedDict for one of class dict"),
        ((0,), (X, X), "with 1 entries for one with 2"),
        ((0,), X, "of class tuple for a leaf"),
    ],
)
def test_axes_of_another_structure_are_refused(axes: Any, value: Any, text: str) -> None:
    for f in both(tn.vmap(lambda v: 0, in_axes=(axes,))):
        with pytest.raises(BatchError, match=text):
            f(value)
    for f in both(tn.vmap(lambda x: value, out_axes=axes)):
        with pytest.raises(BatchError, match=text):
            f(X)


def test_one_program_serves_any_number_of_lanes() -> None:
    f = tn.jit(tn.vmap(lambda v: np.exp(v).sum()))
    for n in (1, 4, 0, 9):
        x = RNG.uniform(0, 1, (n, 3))
        np.testing.assert_allclose(f(x), np.exp(x).sum(1))
    assert len(f.explain().traces) == 1


def test_names_of_axes_that_nothing_bears_are_named_with_those_in_scope() -> None:
    for f in both(tn.vmap(tn.vmap(lambda v: tn.psum(v, "k"), axis_name="i"), axis_name="j")):
        with pytest.raises(
            TraceError, match=r"^psum: axis name 'k' names no axis here; 'j' or 'i', of vmap, is needed"
        ):
            f(X)
    for f in both(tn.vmap(lambda v: tn.axis_size("k"))):
        with pytest.raises(TraceError, match=r"outside shard_map; .* or under tn.vmap\(f, axis_name='k'\), is needed"):
            f(X)


def test_sums_over_lanes() -> None:
    for f in both(tn.vmap(lambda v: v / tn.psum(v, "i"), axis_name="i")):
        np.testing.assert_allclose(f(X), X / X.sum(0))
    for f in both(tn.vmap(lambda v: (tn.pmax(v, "i"), tn.pmin(v, "i"), tn.pmean(v, "i")), axis_name="i")):
        most, least, mean = f(X)
        np.testing.assert_array_equal(most, np.broadcast_to(X.max(0), X.shape))
        np.testing.assert_array_equal(least, np.broadcast_to(X.min(0), X.shape))
        np.testing.assert_allclose(mean, np.broadcast_to(X.mean(0), X.shape))
    found = tn.vmap(lambda v: tn.psum(v, "i"), axis_name="i", out_axes=None)(X)
    np.testing.assert_allclose(found, X.sum(0))


def test_nested_names() -> None:
    def one(v: Any) -> Any:
        return v - tn.psum(v, "j") + 10 * tn.psum(v, ("i", "j"))

    f = tn.vmap(tn.vmap(one, axis_name="j"), axis_name="i")
    expected = X - X.sum(1, keepdims=True) + 10 * X.sum()
    for g in both(f):
        np.testing.assert_allclose(g(X), expected)


def test_the_other_collectives() -> None:
    index = tn.vmap(lambda v: tn.axis_index("i") * 1.0 + v[0] * 0, axis_name="i")(X)
    np.testing.assert_array_equal(index, np.arange(5.0))
    assert float(tn.vmap(lambda v: tn.axis_size("i") * v.sum() * 0 + tn.axis_size("i"), axis_name="i")(X)[0]) == 5
    gathered = tn.vmap(lambda v: tn.all_gather(v, "i"), axis_name="i")(X)
    np.testing.assert_array_equal(gathered, np.broadcast_to(X, (5, 5, 3)))
    square = RNG.uniform(0, 1, (4, 4))
    scattered = tn.vmap(lambda v: tn.psum_scatter(v, "i"), axis_name="i")(square)
    np.testing.assert_allclose(scattered, square.sum(0))
    turned = tn.vmap(lambda v: tn.ppermute(v, "i", [(0, 1), (1, 2), (2, 0)]), axis_name="i")(X)
    np.testing.assert_array_equal(turned, np.stack([X[2], X[0], X[1], 0 * X[0], 0 * X[0]]))
    sent = tn.vmap(lambda v: tn.pbroadcast(v, "i", 3), axis_name="i")(X)
    np.testing.assert_array_equal(sent, np.broadcast_to(X[3], X.shape))


def test_gradients_of_sums_over_lanes() -> None:
    def loss(x: Any) -> Any:
        return tn.vmap(lambda v: (v * tn.psum(v, "i")).sum(), axis_name="i")(x).sum()

    np.testing.assert_allclose(tn.grad(loss)(X), 2 * np.broadcast_to(X.sum(0), X.shape))


def test_what_is_refused() -> None:
    with pytest.raises(BatchError, match="no argument has lanes"):
        tn.vmap(lambda v: v, in_axes=None)(X)
    with pytest.raises(BatchError, match="lanes, others have"):
        tn.vmap(lambda a, b: a + b)(X, X[:3])
    with pytest.raises(BatchError, match="entries for"):
        tn.vmap(lambda a: a, in_axes=(0, 0))(X)
    with pytest.raises(BatchError, match="axis 2"):
        tn.vmap(lambda a: a, in_axes=2)(X)
    with pytest.raises(BatchError, match="differs between lanes"):
        tn.vmap(lambda a: a, out_axes=None)(X)
    with pytest.raises(BatchError, match="another size in each lane"):
        tn.vmap(lambda v: v[v > 0])(X)
    with pytest.raises(TypeError, match="in_axes"):
        tn.vmap(lambda v: v, in_axes="0")


def test_axis_size_alone_makes_lanes() -> None:
    found = tn.vmap(lambda v: v * 2, in_axes=None, axis_size=4)(X)
    np.testing.assert_array_equal(found, np.broadcast_to(X * 2, (4, *X.shape)))


@pytest.mark.parametrize("size", [-3, 3.5, "a"])
def test_axis_size_is_a_size(size: Any) -> None:
    with pytest.raises(BatchError, match="axis_size"):
        tn.vmap(lambda v: v * 2, in_axes=None, axis_size=size)(X)


def test_a_mask_that_is_the_same_in_all_lanes_selects() -> None:
    mask = np.array([True, False, True])
    for f in both(tn.vmap(lambda v: v[mask])):
        np.testing.assert_array_equal(f(X), X[:, mask])


def test_gradients_of_loops_whose_outer_lanes_stop_one_by_one() -> None:
    """Inner lanes stop together, outer ones do not: whether a turn was one is told of each."""

    def f(x: Any, n: Any) -> Any:
        return tn.lax.while_loop(lambda s: s[1] < n, lambda s: (s[0] * x, s[1] + 1), (x, 0))[0]

    x, n = np.array([0.5, 1.0, 2.0]), np.array([4, 0, 3, 1])
    expected = (n[:, None] + 1) * x ** n[:, None]
    for g in both(tn.vmap(tn.vmap(tn.grad(f), (0, None)), (None, 0))):
        np.testing.assert_allclose(g(x, n), expected)
    for g in both(tn.vmap(tn.vmap(tn.grad(f), (None, 0)), (0, None))):
        np.testing.assert_allclose(g(x, n), expected.T)
