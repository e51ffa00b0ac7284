"""Dicts whose keys stand in another order are one structure, wherever two are compared."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

X, Y = np.arange(3.0), np.arange(4.0) + 1


def turned(x: Any) -> Any:
    """The tree with the keys of its dicts the other way round."""
    if isinstance(x, dict):
        return {k: turned(x[k]) for k in reversed(x)}
    return tuple([turned(v) for v in x]) if isinstance(x, tuple) else x


def both(f: Callable[..., Any]) -> list[Callable[..., Any]]:
    return [f, tn.jit(f)]


def same(found: Any, wanted: Any) -> None:
    """Keys in the same order, and the same elements."""
    assert tn.tree.structure(found) == tn.tree.structure(wanted)
    for a, b in zip(tn.tree.leaves(found), tn.tree.leaves(wanted), strict=True):
        np.testing.assert_allclose(a, b)


def step(c: Any, x: Any = 0.0) -> Any:
    """A carry of the same keys, in another order."""
    return {"n": {"q": c["n"]["q"] * 2.0, "p": c["n"]["p"] + x}, "a": c["a"] + 1.0}


CARRY = {"a": 0.5, "n": {"p": X, "q": Y}}


@pytest.mark.parametrize("disabled", [False, True])
def test_carries(disabled: bool) -> None:
    wanted = {"a": 3.5, "n": {"p": X + 6.0, "q": Y * 8.0}}
    loops: list[Callable[[Any], Any]] = [
        lambda c: tn.lax.scan(lambda c, x: (step(c, x), None), c, np.arange(1.0, 4.0))[0],
        lambda c: tn.lax.fori_loop(0, 3, lambda k, c: step(c, k + 1.0), c),
        lambda c: tn.lax.while_loop(lambda c: c["a"] < 3.0, lambda c: step(c, c["a"] + 0.5), c),
    ]
    with tn.disable_jit(disabled):
        for loop in loops:
            for f in both(loop):
                same(f(CARRY), wanted)


def test_branches() -> None:
    def one(p: Any) -> Any:
        return tn.lax.cond(p, lambda: {"u": X, "v": 1}, lambda: {"v": 2.0, "u": X + 1})

    for f in both(one):
        same(f(True), {"u": X, "v": 1.0})
        same(f(False), {"u": X + 1, "v": 2.0})
    branches = [lambda: {"u": 1.0, "v": X}, lambda: {"v": X + 1, "u": 2.0}, lambda: {"v": X, "u": 3.0}]
    for f in both(lambda k: tn.lax.switch(k, branches)):
        for k, (u, v) in enumerate([(1.0, X), (2.0, X + 1), (3.0, X)]):
            same(f(k), {"u": u, "v": v})


def test_associative_scan() -> None:
    def combined(a: Any, b: Any) -> Any:
        return {"v": a["v"] * b["v"], "u": a["u"] + b["u"]}

    for f in both(lambda e: tn.lax.associative_scan(combined, e)):
        same(f({"u": Y, "v": Y}), {"u": np.cumsum(Y), "v": np.cumprod(Y)})


def f(p: Any) -> Any:
    return {"s": p["a"] ** 2, "t": p["n"]["p"].sum() * p["n"]["q"]}


def test_tangents_and_cotangents() -> None:
    tangent = {"a": 2.0, "n": {"p": X + 1, "q": Y}}
    value, slope = tn.jvp(f, (CARRY,), (tangent,))
    for g in both(lambda p, t: tn.jvp(f, (p,), (t,))):
        same(g(CARRY, turned(tangent)), (value, slope))
    same(tn.linearize(f, CARRY)[1](turned(tangent)), slope)
    _, pull = tn.vjp(f, CARRY)
    cotangent = {"s": 3.0, "t": Y}
    same(pull(turned(cotangent)), pull(cotangent))
    assert list(pull(turned(cotangent))[0]) == ["a", "n"]

    def linear(p: Any) -> Any:
        return {"s": 2.0 * p["a"], "t": 3.0 * p["n"]["q"]}

    same(tn.linear_transpose(linear, CARRY)(turned(cotangent)), tn.linear_transpose(linear, CARRY)(cotangent))
    with pytest.raises(ValueError, match="structure"):
        pull({"s": 3.0, "u": Y})


def test_rules_of_derivatives() -> None:
    @tn.custom_vjp
    def g(p: Any) -> Any:
        return {"u": p["a"] * 2.0, "v": p["b"] * 3.0}

    g.defvjp(
        lambda p: (turned(g(p)), None),
        lambda _, ct: ({"b": ct["v"] * 30.0, "a": ct["u"] * 20.0},),
    )

    @tn.custom_jvp
    def h(p: Any) -> Any:
        return {"u": p["a"] * 2.0, "v": p["b"] * 3.0}

    h.defjvp(lambda p, t: (turned(h(*p)), {"u": t[0]["a"] * 20.0, "v": t[0]["b"] * 30.0}))
    p = {"a": 1.0, "b": 2.0}
    for rule in (g, h):
        for slopes in both(tn.value_and_grad(lambda p, rule=rule: rule(p)["u"] + 10.0 * rule(p)["v"])):  # type: ignore[misc]
            value, found = slopes(p)
            assert value == 62.0
            same(found, {"a": 20.0, "b": 300.0})


def test_cotangents_of_arguments_that_hold_none() -> None:
    @tn.custom_vjp
    def g(p: Any) -> Any:
        return p["a"] * 2.0 + p["c"]

    def slope(ct: Any, like: Any) -> Any:
        g.defvjp(lambda p: (g(p), None), lambda _, c: (ct(c),))
        return tn.grad(lambda a: g({**like, "a": a}))(1.0)

    like = {"b": None, "a": 1.0, "c": 2.0}
    assert slope(lambda c: {"a": c * 20.0, "b": None, "c": None}, like) == 20.0
    assert slope(lambda c: {"c": c, "b": None, "a": c * 30.0}, like) == 30.0
    with pytest.raises(ValueError, match="cotangent 0 of bwd has the structure"):
        slope(lambda c: {"b": c, "a": c, "c": c}, like)
    with pytest.raises(ValueError, match="cotangent 0 of bwd has the structure"):
        slope(lambda c: {"a": c, "c": c}, like)


@pytest.mark.parametrize("other", [{"u": 1.0, "w": 1.0}, (1.0, 1.0), OrderedDict(u=1.0, v=1.0)])
def test_values_of_rules_of_another_structure_are_refused(other: Any) -> None:
    @tn.custom_jvp
    def h(x: Any) -> Any:
        return {"u": x, "v": x}

    h.defjvp(lambda p, t: (other, other))

    @tn.custom_vjp
    def g(x: Any) -> Any:
        return {"u": x, "v": x}

    g.defvjp(lambda x: (other, None), lambda _, ct: (ct["u"],))
    for rule in (h, g):
        with pytest.raises(ValueError, match="has the structure"):
            tn.grad(lambda x, rule=rule: rule(x)["v"])(2.0)  # type: ignore[misc]


def test_rules_of_vmap() -> None:
    @tn.custom_vmap
    def g(x: Any) -> Any:
        return {"u": x, "v": x * 2.0}

    @g.def_vmap
    def _(size: Any, batched: Any, x: Any) -> Any:
        return {"v": x * 20.0, "u": 5.0}, {"v": True, "u": False}

    for mapped in both(tn.vmap(g)):
        same(mapped(Y), {"u": np.full(4, 5.0), "v": Y * 20.0})


def test_callbacks() -> None:
    declared = {"u": tn.ShapeDtypeStruct((3,), np.float64), "v": tn.ShapeDtypeStruct((3,), np.float64)}
    for g in both(lambda x: tn.pure_callback(lambda x: {"v": x * 2.0, "u": x}, declared, x)):
        same(g(X), {"u": X, "v": X * 2.0})


def test_transposed_trees() -> None:
    outer, inner = tn.tree.structure({"a": 0, "b": 0}), tn.tree.structure({"u": 0, "v": 0})
    found = tn.tree.transpose(outer, inner, {"b": {"v": 4, "u": 3}, "a": {"u": 1, "v": 2}})
    same(found, {"u": {"a": 1, "b": 3}, "v": {"a": 2, "b": 4}})
