"""JAX: ``jit``, arrays already on its device, waiting for the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.case import ArrayCase, Inputs
from benchmarks.peers.peer import Call, Peer
from benchmarks.words import jax_words


def softmax(x: Any) -> Any:
    e = jnp.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_axis0(x: Any) -> Any:
    e = jnp.exp(x - x.max(axis=0, keepdims=True))
    return e / e.sum(axis=0, keepdims=True)


def layer_norm(x: Any, gain: Any, bias: Any) -> Any:
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) / jnp.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) * gain + bias


def gelu(x: Any) -> Any:
    return 0.5 * x * (1.0 + jnp.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def where_chain(x: Any, y: Any) -> Any:
    return jnp.where(x > y, x - y, jnp.where(x < -y, x + y, jnp.where(x > 0.0, 0.25 * x, 0.5 * x)))


def mlp(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return jnp.maximum(x @ w1 + b1, 0) @ w2 + b2


def heat(u: Any) -> Any:
    step = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1]
    return u.at[1:-1, 1:-1].set(u[1:-1, 1:-1] + 0.1 * step)


# A boolean mask has no place under jax.jit: its sum is written with where.
FORMS: dict[str, Callable[..., Any]] = {
    "axpy": lambda x, y, z: 2.5 * x + y * z - 0.5,
    "gelu": gelu,
    "log_return": lambda a, b, r, t: jnp.log(a / b) * jnp.sqrt(t) + jnp.exp(-r * t),
    "where_chain": where_chain,
    "complex_mul": lambda x, y: x * y,
    "call": lambda x, y: x * y + x,
    "expsum": lambda x, y: jnp.sum(jnp.exp(-x * x) * jnp.cos(y)),
    "softmax": softmax,
    "softmax_long": softmax,
    "softmax_axis0": softmax_axis0,
    "layer_norm": layer_norm,
    "var_all": jnp.var,
    "sum_axis0": lambda x: x.sum(axis=0),
    "mask_sum": lambda x: jnp.where(x > 0, x, 0).sum(),
    "heat": heat,
    "x_plus_xT": lambda x: x + x.T,
    "mlp_1": mlp,
    "mlp_256": mlp,
    "batched_3x3": jnp.matmul,
    "batched_4x4": jnp.matmul,
    "max_all": jnp.max,
    "argmax_all": jnp.argmax,
    "hand_ten": lambda x, y: jnp.sqrt(x * x + y * y) * jnp.exp(-x) + jnp.tanh(x - y) / (1 + y * y),
    "embedding": lambda table, tokens: table[tokens],
}


class JaxPeer(Peer):
    name = "jax"

    def __init__(self, threads: int) -> None:
        jax.config.update("jax_enable_x64", True)
        jax.config.update("jax_platforms", "cpu")
        jax.config.update("jax_enable_compilation_cache", False)

    def version(self) -> str:
        return str(jax.__version__)

    def forms(self, case: ArrayCase, inputs: Inputs) -> Mapping[str, Call]:
        arrays = [jax.device_put(x) for x in inputs]
        compiled = jax.jit(FORMS[case.name] if case.written is None else case.written(jax_words()))
        return {"jit": lambda: compiled(*arrays).block_until_ready()}
