"""Functions of one real result, as models and losses have them: what gradients are taken of."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenferro as tn


def gelu(x: Any) -> Any:
    return (0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))).sum()


def layer_norm(x: Any, gain: Any, shift: Any) -> Any:
    normal = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    return ((normal * gain + shift - 0.5) ** 3).mean()


def log_sum_exp(x: Any) -> Any:
    largest = x.max(axis=1, keepdims=True)
    return (np.log(np.exp(x - largest).sum(axis=1)) + largest[:, 0]).mean()


def cross_entropy(x: Any, labels: Any) -> Any:
    z = x - tn.stop_gradient(x.max(axis=1, keepdims=True))
    return -(z - np.log(np.exp(z).sum(axis=1, keepdims=True)))[np.arange(x.shape[0]), labels].mean()


def mlp(first: Any, second: Any, x: Any) -> Any:
    return ((np.tanh(x @ first) @ second - 1) ** 2).mean()


def norm(x: Any) -> Any:
    return np.sqrt((x * x).sum(axis=1)).sum()


def running_sums(x: Any) -> Any:
    return (np.cumsum(x * x, axis=1) * x).sum()


def gathered(x: Any, index: Any) -> Any:
    return (x[index] * x[0] + np.take(x, index, axis=1).sum()).sum()


def scattered(x: Any, index: Any) -> Any:
    y = x * x
    y[index] += x[: len(index)]
    y[1:3] = 2 * x[3:5]
    return (y * x).sum()


def largest(x: Any) -> Any:
    """With ties, which share: every row's largest element stands in it twice."""
    twice = np.concatenate([x, x[:, ::-1]], axis=1)
    return (twice.max(axis=1) ** 2).sum() + twice.min() ** 2 + (np.maximum(x, x[::-1]) * x).sum()


def masked(x: Any) -> Any:
    """With an infinite slope on the side that is not taken, and a sum ``where=`` a condition holds."""
    return np.where(x > 0, np.sqrt(x), 0).sum() + np.sum(x * x, where=x < 1)


def waves(x: Any) -> Any:
    z = np.exp(1j * x) * (x + 2j)
    return (np.abs(z) ** 2 + (z * z.conj()[::-1]).imag).sum()


def products(x: Any) -> Any:
    near = 1 + x / 100
    return near.prod(axis=1).sum() + x[:, :3].prod()


def stencil(x: Any) -> Any:
    inner = x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2] - 4 * x[1:-1, 1:-1]
    return (inner * inner).sum() + (np.pad(x, 1).T[::-1] ** 3).sum()
