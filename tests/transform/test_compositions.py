"""Transformations of transformations, drawn at random: JAX's values, and equal bits jitted and not.

Every step makes of a function from four numbers to four another such function. Functions are called with ``tn.Array``,
whose operations outside traces have the bits of those inside.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.transform.peer import close, same, theirs

F = Callable[[Any], Any]
Step = Callable[[Any, Any, F], F]
X = np.linspace(0.3, 1.1, 4)
C = np.linspace(0.5, 1.0, 4)
M = np.linspace(-1, 1, 16).reshape(4, 4)

BASES: dict[str, Callable[[Any], F]] = {
    "sin": lambda np: lambda x: np.sin(x) * x[::-1],
    "tanh": lambda np: lambda x: np.tanh(x.sum() * x) + x**2 * 0.2,
    "product": lambda np: lambda x: np.tanh(M @ x) * x,
    "softmax": lambda np: lambda x: np.exp(x - x.max()) / np.exp(x - x.max()).sum(),
}


def _vjp(np: Any, lib: Any, f: F) -> F:
    def g(x: Any) -> Any:
        value, pull = lib.vjp(f, x)
        return pull(value * 0.75)[0]

    return g


def _linearize(np: Any, lib: Any, f: F) -> F:
    def g(x: Any) -> Any:
        value, push = lib.linearize(f, x)
        return push(x * 0.25) + value

    return g


def _scan(np: Any, lib: Any, f: F) -> F:
    def g(x: Any) -> Any:
        last, every = lib.lax.scan(lambda c, s: (f(c) * 0.5 + x * s, c.sum()), x, C[:3])
        return last + every.sum() * 0.125

    return g


def _forward_rule(np: Any, lib: Any, f: F) -> F:
    g = lib.custom_jvp(f)
    g.defjvp(lambda primals, tangents: (f(*primals), 2 * lib.jvp(f, primals, tangents)[1]))
    return g  # type: ignore[no-any-return]


def _reverse_rule(np: Any, lib: Any, f: F) -> F:
    g = lib.custom_vjp(f)
    g.defvjp(lambda x: (f(x), x), lambda x, ct: (3 * lib.vjp(f, x)[1](ct)[0],))
    return g  # type: ignore[no-any-return]


STEPS: dict[str, Step] = {
    "grad": lambda np, lib, f: lib.grad(lambda x: (f(x) * C).sum()),
    "jvp": lambda np, lib, f: lambda x: lib.jvp(f, (x,), (x * 0.5,))[1],
    "vjp": _vjp,
    "linearize": _linearize,
    "vmap": lambda np, lib, f: lambda x: lib.vmap(f)(np.stack([x, 0.5 * x])).sum(axis=0),
    "vmap of axis 1": lambda np, lib, f: lambda x: lib.vmap(f, 1, 1)(np.stack([x, 0.5 * x], axis=1)).sum(axis=1),
    "vmap of a closure": lambda np, lib, f: lambda x: lib.vmap(lambda s: f(x * s))(C[:2]).sum(axis=0),
    "checkpoint": lambda np, lib, f: lib.checkpoint(f),
    "jit": lambda np, lib, f: lib.jit(f),
    "scan": _scan,
    "cond": lambda np, lib, f: lambda x: lib.lax.cond(x.sum() > 0, f, lambda y: -f(y * 0.5), x),
    "fori_loop": lambda np, lib, f: lambda x: lib.lax.fori_loop(0, 2, lambda k, c: f(c) * 0.5 + x, x),
    "custom_jvp": _forward_rule,
    "custom_vjp": _reverse_rule,
    "jacfwd": lambda np, lib, f: lambda x: (lib.jacfwd(f)(x) * x).sum(axis=1),
    "jacrev": lambda np, lib, f: lambda x: (lib.jacrev(f)(x) * x).sum(axis=1),
    "stop_gradient": lambda np, lib, f: lambda x: f(x) * lib.lax.stop_gradient(x),
}


def made(np: Any, lib: Any, base: str, steps: tuple[str, ...]) -> F:
    f = BASES[base](np)
    for name in steps:
        f = STEPS[name](np, lib, f)
    return f


def drawn(count: int) -> list[tuple[str, tuple[str, ...]]]:
    """Compositions of two to four steps, in which no derivative goes forward through a reverse rule."""
    rng, found = random.Random(7), list[tuple[str, tuple[str, ...]]]()
    forward = {"jvp", "linearize", "jacfwd", "custom_jvp"}
    while len(found) < count:
        steps = tuple(rng.choice(list(STEPS)) for _ in range(rng.randint(2, 4)))
        if "custom_vjp" in steps and forward & set(steps[steps.index("custom_vjp") :]):
            continue
        found.append((rng.choice(list(BASES)), steps))
    return found


@pytest.mark.parametrize(("base", "steps"), drawn(48), ids=lambda v: v if isinstance(v, str) else ", ".join(v))
def test_compositions(base: str, steps: tuple[str, ...]):
    function, x = made(np, tn, base, steps), tn.array(X)
    found = function(x)
    same(tn.jit(function)(x), found, "jitted")
    with tn.threads(1):
        same(tn.jit(function)(x), found, "jitted, on one thread")
    wanted = theirs(lambda np, lib: made(np, lib, base, steps), X)
    close(np.asarray(found), np.asarray(wanted), 1e-7, 1e-8)
