"""Programs of several arrays, for the memory table alone: what must be held between their steps, and what need not.

Each has a form for every library that is compared. ``donated``: arguments that the call may use up: tenferro and JAX
are told so, torch's form writes them in place, as one would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.case import Array, Inputs, scaled

SIDE = 2048


@dataclass(frozen=True)
class MemoryCase:
    """``function`` in NumPy's words; ``jax(jnp)`` and ``torch(torch)`` give the other libraries' forms."""

    name: str
    formula: str
    function: Callable[..., Any]
    jax: Callable[[Any], Callable[..., Any]]
    torch: Callable[[Any], Callable[..., Any]]
    operands: int = 1
    donated: tuple[int, ...] = ()

    def inputs(self, dtype: np.dtype[Any], scale: float) -> Inputs:
        """Square matrices with values near 1."""
        rng = np.random.default_rng(0)
        shape = scaled((SIDE, SIDE), scale)
        return tuple(rng.standard_normal(shape, dtype) / dtype.type(SIDE**0.5) for _ in range(self.operands))


def layers(x: Array, w: Array) -> Any:
    for _ in range(3):
        x = np.maximum(x @ w, 0) + 1
    return x


def attention(q: Array, k: Array, v: Array) -> Any:
    scores = q @ k.T
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return (e / e.sum(axis=-1, keepdims=True)) @ v


def running(x: Array) -> Any:
    return np.cumsum(np.cumsum(x, axis=0) * 2, axis=1) + 1


def sgd(w: Array, g: Array) -> Any:
    return w - 0.1 * (g + 0.01 * w)


def momentum(w: Array, m: Array, g: Array) -> Any:
    m = 0.9 * m + g
    return w - 0.1 * m, m


def diffuse(u: Array) -> Any:
    u[1:-1, 1:-1] *= 0.5
    u[0] = 0
    return u


def _torch_layers(torch: Any) -> Callable[..., Any]:
    def run(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = torch.relu(x @ w) + 1
        return x

    return run


def _jax_layers(jnp: Any) -> Callable[..., Any]:
    def run(x: Any, w: Any) -> Any:
        for _ in range(3):
            x = jnp.maximum(x @ w, 0) + 1
        return x

    return run


def _torch_momentum(_: Any) -> Callable[..., Any]:
    def run(w: Any, m: Any, g: Any) -> Any:
        m.mul_(0.9).add_(g)
        return w.sub_(m, alpha=0.1), m

    return run


def _torch_diffuse(_: Any) -> Callable[..., Any]:
    def run(u: Any) -> Any:
        u[1:-1, 1:-1] *= 0.5
        u[0] = 0
        return u

    return run


MEMORY_CASES = {
    case.name: case
    for case in (
        MemoryCase("layers", "three times relu(x @ w) + 1", layers, _jax_layers, _torch_layers, 2),
        MemoryCase(
            "attention", "softmax(q @ k.T) @ v", attention,
            lambda jnp: lambda q, k, v: _softmax(jnp.exp, q @ k.T, lambda s: s.max(axis=-1, keepdims=True)) @ v,
            lambda torch: lambda q, k, v: torch.softmax(q @ k.T, -1) @ v,
            3,
        ),
        MemoryCase(
            "running", "cumsum(2 * cumsum(x)) + 1", running,
            lambda jnp: lambda x: jnp.cumsum(jnp.cumsum(x, axis=0) * 2, axis=1) + 1,
            lambda torch: lambda x: torch.cumsum(torch.cumsum(x, 0) * 2, 1) + 1,
        ),
        MemoryCase(
            "sgd", "w - 0.1 * (g + 0.01 * w), w donated", sgd, lambda jnp: sgd,
            lambda torch: lambda w, g: w.mul_(0.999).sub_(g, alpha=0.1), 2, (0,),
        ),
        MemoryCase(
            "momentum", "w and m of a step with momentum, both donated", momentum, lambda jnp: momentum,
            _torch_momentum, 3, (0, 1),
        ),
        MemoryCase(
            "diffuse", "u[1:-1, 1:-1] *= 0.5; u[0] = 0, u donated", diffuse,
            lambda jnp: lambda u: u.at[1:-1, 1:-1].multiply(0.5).at[0].set(0.0), _torch_diffuse, 1, (0,),
        ),
    )
}  # fmt: skip


def _softmax(exp: Callable[[Any], Any], scores: Any, largest: Callable[[Any], Any]) -> Any:
    e = exp(scores - largest(scores))
    return e / e.sum(axis=-1, keepdims=True)
