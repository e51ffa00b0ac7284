"""``tn.custom_vmap`` against ``jax.custom_batching.custom_vmap``: when the rule is asked, with what, and its errors."""

from __future__ import annotations

from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import BatchError

NOTES: dict[str, SimpleQueue[Any]] = {"ours": SimpleQueue(), "theirs": SimpleQueue()}
"""What rules were asked with, by the library. Lists would be watched: a trace may not change them."""


def taken(who: str) -> list[Any]:
    return [NOTES[who].get() for _ in range(NOTES[who].qsize())]


def made(custom: Any, lib: Any, who: str) -> Any:
    """A function whose rule notes what it is asked with; the rule's result is told from the function's."""

    @custom
    def f(x: Any, d: Any) -> Any:
        return {"sum": x + d["y"], "sin": lib.sin(x)}

    @f.def_vmap
    def rule(size: Any, batched: Any, x: Any, d: Any) -> Any:
        NOTES[who].put((int(size), list(batched), tuple(map(int, x.shape)), tuple(map(int, d["y"].shape))))
        on = batched[0] or batched[1]["y"]
        return {"sum": x + d["y"] + 10.0, "sin": 2.0 * lib.sin(x)}, {"sum": on, "sin": batched[0]}

    return f


WAYS: Any = {
    "both": (lambda v, f: v(f), (4,), (4,)),
    "first": (lambda v, f: v(f, in_axes=(0, None)), (4,), ()),
    "second": (lambda v, f: v(f, in_axes=(None, 0)), (), (4,)),
    "last axis": (lambda v, f: v(f, in_axes=(1, None)), (2, 3), (2,)),
    "twice": (lambda v, f: v(v(f)), (2, 3), (2, 3)),
    "twice apart": (lambda v, f: v(v(f, in_axes=(0, None)), in_axes=(None, 0)), (3,), (2,)),
}


def test_without_lanes_it_is_the_function():
    f = made(tn.custom_vmap, np, "ours")
    x, d = np.arange(3.0), {"y": np.ones(3)}
    for run in (f, tn.jit(f)):
        np.testing.assert_array_equal(run(x, d)["sum"], x + 1)
    np.testing.assert_allclose(tn.grad(lambda x: f(x, d)["sin"].sum())(x), np.cos(x))
    np.testing.assert_allclose(tn.jvp(lambda x: f(x, d)["sin"], (x,), (x,))[1], np.cos(x) * x)
    tn.vmap(lambda k: f(x, d)["sum"] + k)(np.ones(2))
    assert taken("ours") == []


def test_derivatives_of_what_vmap_made_are_the_rules():
    f = made(tn.custom_vmap, np, "ours")
    x = np.arange(3.0)
    d = {"y": np.float64(1.0)}

    def loss(x: Any) -> Any:
        return tn.vmap(lambda v: f(v, d)["sin"])(x).sum()

    for grad in (tn.grad(loss), tn.jit(tn.grad(loss))):
        np.testing.assert_allclose(grad(x), 2 * np.cos(x))  # JAX's as well
    # Inside of vmap it is the function's own derivative.
    np.testing.assert_allclose(tn.vmap(tn.grad(lambda v: f(v, d)["sin"]))(x), np.cos(x))


def test_what_it_closes_over_may_have_lanes():
    def f(z: Any, x: Any) -> Any:
        @tn.custom_vmap
        def g(x: Any) -> Any:
            return x * z

        g.def_vmap(lambda n, batched, x: (x * z + 100, True))
        return g(x)

    np.testing.assert_array_equal(tn.vmap(lambda z: f(z, np.float64(2.0)))(np.arange(3.0)), 2 * np.arange(3.0))


def test_of_any_number_of_lanes_it_is_one_program():
    @tn.custom_vmap
    def total(x: Any) -> Any:
        return x * 2

    @total.def_vmap
    def _(size: Any, batched: Any, x: Any) -> Any:
        return x * 2 + size, True

    f = tn.jit(tn.vmap(total))
    for n in (2, 5, 9):
        np.testing.assert_array_equal(f(np.arange(float(n))), 2 * np.arange(n) + n)
    assert f.cache_info().compiles == 1


def test_wrong_rules_are_refused():
    @tn.custom_vmap
    def f(x: Any) -> Any:
        return x * 2

    with pytest.raises(AttributeError, match=r"has no rule; custom_vmap\(f\).def_vmap sets one"):
        f(1.0)
    f.def_vmap(lambda n, batched, x: x)
    with pytest.raises(BatchError, match="a pair of the result and of which of it has lanes"):
        tn.vmap(f)(np.ones(3))
    f.def_vmap(lambda n, batched, x: ((x, x), (True, True)))
    with pytest.raises(BatchError, match="its rule returned the structures"):
        tn.vmap(f)(np.ones(3))
    f.def_vmap(lambda n, batched, x: (x.sum(), True))
    with pytest.raises(tn.ShapeError, match="the result of its rule is float64"):
        tn.vmap(f)(np.ones(3))
