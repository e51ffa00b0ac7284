"""Derivatives of what runs on a mesh: outside of ``shard_map`` and inside, against central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.gradients import grad, value_and_grad
from tests.sharding.meshes import mesh, rows
from tests.table.agreement import bits

Array = np.ndarray[Any, Any]
P = tn.P
Local = Callable[[Any, Any], Any]
CASES: dict[str, tuple[Local, Any]] = {
    "nothing": (lambda w, x: np.sin(w * x), P("i")),
    "psum": (lambda w, x: tn.psum((np.sin(w * x) ** 2).sum(axis=0), "i"), P()),
    "psum of what is the same": (lambda w, x: tn.psum(w**3, "i") * x, P("i")),
    "pmean": (lambda w, x: x - tn.pmean(np.exp(w * x).mean(axis=0), "i"), P("i")),
    "pmax": (lambda w, x: tn.pmax((w * x).max(axis=0), "i"), P()),
    "pmin of equals": (lambda w, x: tn.pmin(w * w, "i") * x, P("i")),
    "all_gather": (lambda w, x: (w * tn.all_gather(x, "i") ** 2).sum(axis=0), P()),
    "all_gather, tiled": (lambda w, x: tn.all_gather(np.sin(w * x), "i", axis=1, tiled=True) ** 2, P()),
    "all_gather, each its own": (
        lambda w, x: (tn.all_gather(w * x, "i", tiled=True) ** 2).sum(axis=0) * (tn.axis_index("i") + 1.0), P("i"),
    ),
    "psum_scatter": (
        lambda w, x: tn.psum_scatter(np.cos(w * x), "i", scatter_dimension=1, tiled=True), P(None, "i"),
    ),
    "ppermute": (lambda w, x: x * tn.ppermute(w * x * x, "i", [(0, 1)]), P("i")),
    "ppermute round": (lambda w, x: w * tn.ppermute(x, "i", [(0, 1), (1, 0)]) ** 3, P("i")),
    "pbroadcast": (lambda w, x: tn.pbroadcast(np.sin(w * x), "i", 1) * w, P()),
    "two in turn": (lambda w, x: x * w / np.sqrt(tn.psum((x**2).sum(), "i") + tn.psum(w**2, "i")), P("i")),
}  # fmt: skip


def weighted(y: Any) -> Any:
    """Σ y · cos(k), k the place: every element counts differently."""
    flat = y.reshape(-1)
    return (flat * np.cos(np.arange(flat.shape[0]) + 1.0)).sum()


def differences(function: Callable[..., Any], *arguments: Array) -> list[Array]:
    """Central differences of a number with respect to every element."""
    found, step = [], 1e-5
    for k, x in enumerate(arguments):
        slopes = np.zeros_like(x)
        for place in np.ndindex(x.shape):
            ends = []
            for sign in (1, -1):
                there = [np.array(a, np.float64) for a in arguments]
                there[k][place] += sign * step
                ends.append(float(function(*there)))
            slopes[place] = (ends[0] - ends[1]) / (2 * step)
        found.append(slopes)
    return found


W, X = np.array(0.7), rows(4, 2, seed=3)


@pytest.mark.parametrize("name", CASES)
def test_gradient_of_a_sharded_function(name: str) -> None:
    local, out = CASES[name]
    sharded = tn.shard_map(local, mesh(2), (P(), P("i")), out)

    def loss(w: Any, x: Any) -> Any:
        return weighted(sharded(w, x))

    found = grad(loss, argnums=(0, 1))(W, X)
    jitted = tn.jit(grad(loss, argnums=(0, 1)))(W, X)
    for actual, again, expected in zip(found, jitted, differences(tn.jit(loss), W, X), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-8)
        assert bits(np.asarray(actual), np.asarray(again)) is None


LOSSES: dict[str, tuple[Local, bool]] = {
    "of each engine": (lambda w, x: np.sin(w * x).sum() * (tn.axis_index("i") + 1.0), False),
    "psum": (lambda w, x: tn.psum((np.sin(w * x) ** 2).sum(), "i"), True),
    "pmean": (lambda w, x: tn.pmean(np.exp(w * x).sum(), "i"), True),
    "pmax": (lambda w, x: tn.pmax((w * x).max(), "i"), True),
    "all_gather": (lambda w, x: (w * tn.all_gather(x, "i", tiled=True) ** 2).sum(), True),
    "psum_scatter": (lambda w, x: (tn.psum_scatter(w * x, "i", scatter_dimension=1) ** 2).sum(), False),
    "ppermute": (lambda w, x: (w * x * tn.ppermute(x**2, "i", [(1, 0)])).sum(), False),
    "pbroadcast": (lambda w, x: (w * tn.pbroadcast(x, "i", 1) ** 2).sum(), True),
    "of w alone": (lambda w, x: np.sin(w), True),
    "of nothing that is cut": (lambda w, x: tn.psum(w**2, "i") * w, True),
}  # fmt: skip
"""Losses as an engine has them, and whether they are the same on all: then they count once, else their sum does."""


@pytest.mark.parametrize("name", LOSSES)
def test_gradient_inside(name: str) -> None:
    """What is the same everywhere gets the sum of what every engine gives back for it."""
    local, same = LOSSES[name]
    where = mesh(2)

    def step(w: Any, x: Any) -> Any:
        value, (dw, dx) = value_and_grad(local, argnums=(0, 1))(w, x)
        return (value if same else tn.psum(value, "i")), dw, dx

    loss, dw, dx = tn.shard_map(step, where, (P(), P("i")), (P(), P(), P("i")))(W, X)
    total = tn.shard_map(lambda w, x: local(w, x) if same else tn.psum(local(w, x), "i"), where, (P(), P("i")), P())
    np.testing.assert_allclose(loss, total(W, X))
    for actual, expected in zip((dw, dx), differences(total, W, X), strict=True):
        np.testing.assert_allclose(actual, expected, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("sizes", [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_data_and_model_parallel(sizes: tuple[int, ...]) -> None:
    """A layer whose rows are data along i and whose inner axis is cut along j; the loss is a mean over i."""
    x, weights, y = rows(8, 4), rows(4, 3, seed=1), rows(8, 3, seed=2)

    def loss(p: Any, q: Any, z: Any) -> Any:
        return ((np.tanh(p @ q) - z) ** 2).mean()

    def local(q: Any, p: Any, z: Any) -> Any:
        return tn.pmean(((np.tanh(tn.psum(p @ q, "j")) - z) ** 2).mean(), "i")

    step = tn.shard_map(value_and_grad(local), mesh(*sizes), (P("j"), P("i", "j"), P("i")), (P(), P("j")))
    value, slope = step(weights, x, y)
    expected_value, expected = value_and_grad(lambda q: loss(x, q, y))(weights)
    np.testing.assert_allclose(value, expected_value, rtol=1e-12)
    np.testing.assert_allclose(slope, expected, rtol=1e-10, atol=1e-12)


def test_second_order_through_collectives() -> None:
    def local(x: Any) -> Any:
        return tn.psum((x**3).sum() * tn.psum(x.sum(), "i"), "i")

    sharded = tn.shard_map(local, mesh(2), P("i"), P())
    plain = lambda x: (x**3).sum() * x.sum()  # noqa: E731
    v, x = rows(4, seed=5), rows(4)

    def curved(f: Any) -> Any:
        return grad(lambda x: (grad(f)(x) * v).sum())(x)

    np.testing.assert_allclose(curved(sharded), curved(plain), rtol=1e-10)
    inside = tn.shard_map(
        lambda x, v: grad(lambda x: tn.psum((grad(local)(x) * v).sum(), "i"))(x), mesh(2), P("i"), P("i")
    )
    np.testing.assert_allclose(inside(x, v), curved(plain), rtol=1e-10)


def test_integers_and_untouched_arguments() -> None:
    """Arguments that a loss does not depend on get zeros, of each engine's own part."""
    step = tn.shard_map(
        lambda w, x: grad(lambda w, x: w**2, argnums=(0, 1))(w, x), mesh(2), (P(), P("i")), (P(), P("i"))
    )
    dw, dx = step(W, X)
    np.testing.assert_allclose(dw, 2 * W)
    np.testing.assert_array_equal(dx, np.zeros_like(X))


def test_zero_beside_infinity_meets_as_zero() -> None:
    """Where one engine's part is left out, its infinite slope does not matter."""

    def local(x: Any) -> Any:
        safe = np.where(x > 0, np.log(x), 0.0)
        return tn.psum(safe.sum(), "i")

    x = np.array([0.0, 2.0, -1.0, 4.0])
    found = tn.shard_map(grad(local), mesh(2), P("i"), P("i"))(x)
    np.testing.assert_array_equal(found, [0.0, 0.5, 0.0, 0.25])
