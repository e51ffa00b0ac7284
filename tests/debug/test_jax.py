"""Callbacks, prints and rules of lanes are called as often, in the order and with what JAX calls them with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.debug.seen import NAMES, POINT, SCALAR, Seen, like, programs
from tests.debug.test_custom_vmap import WAYS, made, taken

jax = pytest.importorskip("jax")
jax_batching = pytest.importorskip("jax.custom_batching")
jnp = pytest.importorskip("jax.numpy")


def both(name: str) -> tuple[Any, Seen, Any, Seen]:
    ours, theirs = Seen(), Seen()
    f = programs(lambda *xs: tn.debug.callback(ours, *xs), (tn.lax, tn.numpy))[name]
    g = programs(lambda *xs: jax.debug.callback(theirs, *xs, ordered=True), (jax.lax, jnp))[name]
    return f, ours, g, theirs


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("point", [POINT, POINT[::-1].copy()])
@pytest.mark.parametrize("way", ["call", "jit", "grad", "jit grad", "jvp", "jit jvp", "vjp", "value_and_grad"])
def test_calls_are_those_of_jax(name: str, point: Any, way: str):
    f, ours, g, theirs = both(name)
    with jax.enable_x64(True):
        if way == "call":
            found, wanted = f(point), g(point)
        elif way == "jit":
            found, wanted = tn.jit(f)(point), jax.jit(g)(point)
        elif "grad" in way and "value" not in way and name == "looped":
            found = (tn.jit(tn.grad(f)) if "jit" in way else tn.grad(f))(point)  # JAX has no reverse mode here
            wanted = jax.jvp(g, (point,), (np.ones(3),))[1] * np.ones(3)
            wanted = wanted / 3
        elif way in ("grad", "jit grad"):
            found, wanted = tn.grad(f)(point), jax.grad(g)(point)
            if way == "jit grad":
                ours.taken()
                found = tn.jit(tn.grad(f))(point)
        elif way in ("vjp", "value_and_grad") and name == "looped":
            return
        elif way == "vjp":
            y, back = tn.vjp(f, point)
            found = back(np.ones_like(y))[0]
            y, back = jax.vjp(g, point)
            wanted = back(jnp.ones_like(y))[0]
        elif way == "value_and_grad":
            found, wanted = tn.value_and_grad(f)(point)[1], jax.value_and_grad(g)(point)[1]
        else:
            run = lambda t: tn.jvp(f, (t,), (np.ones(3),))[1]  # noqa: E731
            found = (tn.jit(run) if "jit" in way else run)(point)
            wanted = jax.jvp(g, (point,), (np.ones(3),))[1]
        jax.effects_barrier()
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-12)
    assert ours.taken() == theirs.taken()


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_methods_of_vmap_are_those_of_jax(method: Any):
    shapes: list[Any] = []
    theirs: list[Any] = []

    def of(into: list[Any]) -> Any:
        def f(a: Any, b: Any) -> Any:
            into.append((np.shape(a), np.shape(b)))
            return np.asarray(a) + np.asarray(b)

        return f

    a, b = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    found = tn.vmap(
        lambda a, b: tn.pure_callback(of(shapes), like(a), a, b, vmap_method=method), in_axes=(0, None)
    )(a, b)  # fmt: skip
    with jax.enable_x64(True):
        wanted = jax.vmap(
            lambda a, b: jax.pure_callback(
                of(theirs), jax.ShapeDtypeStruct((3,), np.float64), a, b, vmap_method=method
            ),
            in_axes=(0, None),
        )(a, b)
    np.testing.assert_array_equal(found, np.asarray(wanted))
    assert shapes == theirs
    with pytest.raises(ValueError, match="vmap_method is 'other'; one of sequential"):
        tn.pure_callback(np.sin, SCALAR, 1.0, vmap_method="other")


@pytest.mark.parametrize("jitted", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_the_rule_is_asked_as_by_jax(way: str, jitted: bool):
    map_, *shapes = WAYS[way]
    taken("ours")  # what other tests left
    x, y = (np.random.default_rng(k).normal(size=s) for k, s in enumerate(shapes))
    run = map_(tn.vmap, made(tn.custom_vmap, np, "ours"))
    found = (tn.jit(run) if jitted else run)(np.asarray(x), {"y": np.asarray(y)})
    with jax.enable_x64(True):
        wanted = map_(jax.vmap, made(jax_batching.custom_vmap, jnp, "theirs"))(jnp.asarray(x), {"y": jnp.asarray(y)})
    for name in ("sum", "sin"):
        np.testing.assert_allclose(found[name], np.asarray(wanted[name]), rtol=1e-14)
    assert taken("ours") == taken("theirs")


def test_prints_are_as_many_as_jaxs(capsys: Any):
    def f(x: Any, lib: Any) -> Any:
        def body(c: Any, v: Any) -> Any:
            lib.debug.print("c {c} v {v}", c=c, v=v)
            return c * v, c

        return lib.lax.scan(body, x[0], x)[0]

    point = np.array([0.5, 1.5, 2.0])
    tn.grad(lambda x: f(x, tn))(point)
    ours = capsys.readouterr().out
    with jax.enable_x64(True):
        jax.grad(lambda x: f(x, jax))(point)
        jax.effects_barrier()
    assert ours == capsys.readouterr().out
