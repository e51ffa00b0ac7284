"""Every pair of transformations on every loop and choice, against the same function written out in Python."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

Function = Callable[[Any], Any]
"""(3,) → (3,)."""

A = np.array([[0.3, -0.2, 0.5], [0.1, 0.4, -0.3], [-0.6, 0.2, 0.1]])
XS = np.linspace(-0.5, 0.8, 12).reshape(4, 3)


def _turn(c: Any, x: Any) -> Any:
    return np.tanh(A @ c) + x * c


def _scanned(x: Any) -> Any:
    return tn.lax.scan(lambda c, v: (_turn(c, v), c.sum()), x, XS)[0]


def _scanned_back(x: Any) -> Any:
    _, ys = tn.lax.scan(lambda c, v: (_turn(c, v), c * v), x, XS, reverse=True)
    return ys.sum(axis=0)


def _written_back(x: Any) -> Any:
    total = 0.0
    for v in XS[::-1]:
        total = total + x * v
        x = _turn(x, v)
    return total


def _written(x: Any) -> Any:
    for v in XS:
        x = _turn(x, v)
    return x


def _while(x: Any) -> Any:
    """Until the sum is small, which is sooner in one lane than in another; six turns at most."""
    state = (0, x)
    return tn.lax.while_loop(
        lambda s: (s[0] < 6) & (abs(s[1].sum()) > 0.2), lambda s: (s[0] + 1, _shrunk(s[1])), state
    )[1]


def _shrunk(x: Any) -> Any:
    return np.sin(A @ x) + 0.1 * x


def _written_while(x: Any) -> Any:
    for _ in range(6):
        on = abs(x.sum()) > 0.2
        x = np.where(on, _shrunk(x), x)
    return x


def _counted(x: Any) -> Any:
    return tn.lax.fori_loop(1, 4, lambda i, c: np.sin(A @ c) * i, x)


def _written_counted(x: Any) -> Any:
    for i in range(1, 4):
        x = np.sin(A @ x) * i
    return x


def _chosen(x: Any) -> Any:
    return tn.lax.cond(x.sum() > 0, lambda x: np.exp(x) * x.sum(), lambda x: A @ x, x)


def _written_choice(x: Any) -> Any:
    return np.where(x.sum() > 0, np.exp(x) * x.sum(), A @ x)


def _switched(x: Any) -> Any:
    index = (x[0] > 0).astype(np.int64) + (x[1] > 0)
    return tn.lax.switch(index, [lambda x: x**3, lambda x: np.cos(x) * x.sum(), lambda x: A @ x], x)


def _written_switch(x: Any) -> Any:
    index = (x[0] > 0).astype(np.int64) + (x[1] > 0)
    return np.where(index == 0, x**3, np.where(index == 1, np.cos(x) * x.sum(), A @ x))


def _mapped(x: Any) -> Any:
    return tn.lax.map(lambda v: np.tanh(v) * (v * x).sum(), x)


def _written_map(x: Any) -> Any:
    return np.tanh(x) * x * x.sum()


def _prefix(x: Any) -> Any:
    return tn.lax.associative_scan(np.multiply, np.sin(x) + 1.5)


def _written_prefix(x: Any) -> Any:
    y = np.sin(x) + 1.5
    return np.stack([y[0], y[0] * y[1], y[0] * y[1] * y[2]])


PAIRS: dict[str, tuple[Function, Function]] = {
    "scan": (_scanned, _written),
    "scan backwards": (_scanned_back, _written_back),
    "while_loop": (_while, _written_while),
    "fori_loop": (_counted, _written_counted),
    "cond": (_chosen, _written_choice),
    "switch": (_switched, _written_switch),
    "map": (_mapped, _written_map),
    "associative_scan": (_prefix, _written_prefix),
}
"""By the name in ``tn.lax``: with it, and written out."""
DIRECTION = np.array([0.3, -1.0, 0.7])
TRANSFORMATIONS: dict[str, Callable[[Function], Function]] = {
    "jit": tn.jit,
    "grad": lambda f: tn.grad(lambda x: (f(x) * DIRECTION).sum()),
    "jvp": lambda f: lambda x: tn.jvp(f, (x,), (DIRECTION,))[1],
    "vjp": lambda f: lambda x: tn.vjp(f, x)[1](DIRECTION)[0],
    "linearize": lambda f: lambda x: tn.linearize(f, x)[1](DIRECTION),
    "vmap": lambda f: lambda x: tn.vmap(f)(np.stack([x, -x, 0.5 * x])).sum(axis=0),
    "jacfwd": lambda f: lambda x: tn.jacfwd(f)(x) @ DIRECTION,
    "checkpoint": tn.checkpoint,
}
"""(3,) → (3,) becomes another such function."""
X = np.array([0.4, -0.3, 0.9])


def each(outer: str, f: Function, engine: str) -> dict[str, Any]:
    """Of one program for all pairs with this outer transformation, by the inner one."""

    def together(x: Any) -> dict[str, Any]:
        return {inner: TRANSFORMATIONS[outer](TRANSFORMATIONS[inner](f))(x) for inner in TRANSFORMATIONS}

    return tn.jit(together, engine=engine)(X)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("outer", TRANSFORMATIONS)
def test_pairs(name: str, outer: str) -> None:
    mine, written = PAIRS[name]
    found, expected = each(outer, mine, "cpu:0"), each(outer, written, "reference:0")
    for inner in TRANSFORMATIONS:
        np.testing.assert_allclose(found[inner], expected[inner], rtol=1e-9, atol=1e-12, err_msg=f"{outer} of {inner}")


@pytest.mark.parametrize("name", PAIRS)
def test_outside_jit(name: str) -> None:
    mine, written = PAIRS[name]
    for outer, inner in itertools.product(("grad", "vmap", "jvp"), repeat=2):
        found = TRANSFORMATIONS[outer](TRANSFORMATIONS[inner](mine))(X)
        expected = tn.jit(TRANSFORMATIONS[outer](TRANSFORMATIONS[inner](written)))(X)
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-12, err_msg=f"{outer} of {inner}")
