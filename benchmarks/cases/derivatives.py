"""Gradients of what networks are made of. NumPy has them written out by hand, and results are held to that."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.case import Array, ArrayCase, Inputs, normal, scaled, whole
from benchmarks.words import Words

C, D = 0.7978845608028654, 0.044715
ROWS = (2048, 2048)


def gelu_gradient(x: Array) -> Any:
    t = np.tanh(C * (x + D * x * x * x))
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * C * (1 + 3 * D * x * x)


def gelu_written(w: Words) -> Callable[..., Any]:
    def total(x: Any) -> Any:
        return w.np.sum(0.5 * x * (1 + w.np.tanh(C * (x + D * x * x * x))))

    return w.grad(total)  # type: ignore[no-any-return]


def log_sum_exp_gradient(x: Array) -> Any:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_sum_exp_written(w: Words) -> Callable[..., Any]:
    def loss(x: Any) -> Any:
        most = x.max(axis=-1, keepdims=True)
        return w.np.sum(w.np.log(w.np.sum(w.np.exp(x - most), axis=-1)) + most[:, 0])

    return w.grad(loss)  # type: ignore[no-any-return]


def layer_norm_gradient(x: Array, weight: Array) -> Any:
    centred = x - x.mean(-1, keepdims=True)
    inverse = 1 / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
    y = centred * inverse
    mean = weight.mean(-1, keepdims=True)
    return inverse * (weight - mean - y * (weight * y).mean(-1, keepdims=True))


def layer_norm_written(w: Words) -> Callable[..., Any]:
    def loss(x: Any, weight: Any) -> Any:
        mean = x.mean(axis=-1, keepdims=True)
        return w.np.sum((x - mean) / w.np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) * weight)

    return w.grad(loss)  # type: ignore[no-any-return]


def _pieces(x: Array, w1: Array, b1: Array, w2: Array, b2: Array, y: Array) -> tuple[Array, ...]:
    h = np.maximum(x @ w1 + b1, 0)
    z = h @ w2 + b2
    e = np.exp(z - z.max(1, keepdims=True))
    dz = (e / e.sum(1, keepdims=True) - y) / x.dtype.type(len(x))
    dh = np.where(h > 0, dz @ w2.T, x.dtype.type(0))
    return x.T @ dh, dh.sum(0), h.T @ dz, dz.sum(0)


def mlp_gradient(*inputs: Array) -> Any:
    return np.concatenate([g.reshape(-1) for g in _pieces(*inputs)])


def mlp_written(w: Words) -> Callable[..., Any]:
    def loss(p: Any, x: Any, y: Any) -> Any:
        w1, b1, w2, b2 = p
        z = w.np.maximum(x @ w1 + b1, 0) @ w2 + b2
        z = z - z.max(axis=1, keepdims=True)
        return w.np.sum((w.np.log(w.np.sum(w.np.exp(z), axis=1, keepdims=True)) - z) * y) / x.shape[0]

    def gradient(x: Any, w1: Any, b1: Any, w2: Any, b2: Any, y: Any) -> Any:
        found = w.grad(loss)((w1, b1, w2, b2), x, y)
        return w.np.concatenate([g.reshape(-1) for g in found])

    return gradient


def _network(dtype: np.dtype[Any], scale: float) -> Inputs:
    rng = np.random.default_rng(0)
    rows = max(1, round(256 * min(scale, 1.0)))
    y = np.eye(10, dtype=dtype)[rng.integers(0, 10, rows)]
    w1 = rng.standard_normal((784, 512), dtype) * dtype.type(784**-0.5)
    w2 = rng.standard_normal((512, 10), dtype) * dtype.type(512**-0.5)
    return rng.standard_normal((rows, 784), dtype), w1, np.zeros(512, dtype), w2, np.zeros(10, dtype), y


def ten(x: Array, y: Array) -> Any:
    return np.sqrt(x * x + y * y) * np.exp(-x) + np.tanh(x - y) / (1 + y * y)


def ten_written(w: Words) -> Callable[..., Any]:
    def lane(x: Any, y: Any) -> Any:
        return w.np.sqrt(x * x + y * y) * w.np.exp(-x) + w.np.tanh(x - y) / (1 + y * y)

    return w.vmap(lane)  # type: ignore[no-any-return]


def _lanes(dtype: np.dtype[Any], scale: float) -> Inputs:
    return normal(2, scaled((1 << 20,), scale))(dtype, 1.0)


CASES = (
    ArrayCase(
        "gelu_grad", "gradient of sum(gelu(x)), 4M", gelu_gradient, normal(1, ROWS), whole(2), written=gelu_written
    ),
    ArrayCase(
        "lse_grad", "gradient of a log-sum-exp loss, rows of 2048", log_sum_exp_gradient, normal(1, ROWS), whole(2),
        256.0, written=log_sum_exp_written,
    ),
    ArrayCase(
        "norm_grad", "gradient of a weighted layer norm, rows of 2048", layer_norm_gradient, normal(2, ROWS), whole(3),
        written=layer_norm_written,
    ),
    ArrayCase(
        "mlp_grad", "gradient of the loss of a network 784-512-10, 256 rows", mlp_gradient, _network, tolerance=256.0,
        written=mlp_written,
    ),
    ArrayCase("vmap_ten", "ten operations mapped over a million lanes", ten, _lanes, whole(3), written=ten_written),
    ArrayCase("hand_ten", "the same written with arrays", ten, _lanes, whole(3)),
)  # fmt: skip
