"""Functions whose bits must not depend on how they are run: one of every kind of region, with their inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tests.values import uniform

Array = np.ndarray[Any, Any]


def axpy(x, y):
    return 2.5 * x + y * x - 0.5


def gelu(x, y):
    return 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))


def log_return(x, y):
    return np.log(np.abs(x) / (np.abs(y) + 0.5) + 1) * np.sqrt(np.abs(y)) + np.exp(-0.3 * y)


def waves(x, y):
    return np.sin(3 * x) + np.cos(100 * y), np.maximum(x, y)


def exp_sum(x, y):
    return np.sum(np.exp(-x * x) * np.cos(y))


def softmax(x, y):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def softmax_leading(x, y):
    e = np.exp(x - x.max(axis=0, keepdims=True))
    return e / e.sum(axis=0, keepdims=True)


def layer_norm(x, y):
    centred = x - x.mean(axis=-1, keepdims=True)
    return centred / np.sqrt((centred * centred).mean(axis=-1, keepdims=True) + 1e-5) + y


def deviations(x, y):
    return x.var(), x.var(axis=0), y.var(axis=1)


def sums(x, y):
    return x.sum(), (x * y).sum(axis=0), (x + y).sum(axis=1), x.mean()


def products(x, y):
    near = 1 + 0.01 * x
    return near.prod(), (near - 0.02 * y).prod(axis=0), near.prod(axis=1), (near + 1j * 0.01 * y).prod(axis=1)


def extremes(x, y):
    return x.argmax(axis=1), (x * y).max(axis=0), np.argmax(x - y), y.min()


def stencil(x, y):
    out = x.copy()
    out[1:-1, 1:-1] = 0.25 * (x[2:, 1:-1] + x[:-2, 1:-1] + x[1:-1, 2:] + x[1:-1, :-2]) - y[1:-1, 1:-1]
    return out


def chain(x, y):
    return np.where(x > y, x * y, np.where(x < -y, x - y, np.where(x * x < 1, y, -x)))


def glued(x, y):
    return np.concatenate([x, y[:, ::-1]], axis=1) * 3, np.pad(x * y, 1)


def converted(x, y):
    return (x * 100).astype(np.int32) // 7, (y * 100).astype(np.int16) % 5, y.astype(np.float64), x > y


def halves(x, y):
    h = x.astype(np.float16)
    return h * h + 1, h.sum(axis=1), np.exp(h)


def spiral(x, y):
    z = x + 1j * y
    return z * z + np.conj(z), np.abs(z)


def picked(x, y):
    return np.take(x, np.arange(x.shape[0]) // 2, axis=0) + y, x[::2, ::-1]


FUNCTIONS: tuple[Callable[..., Any], ...] = (
    axpy, gelu, log_return, waves, exp_sum, softmax, softmax_leading, layer_norm, deviations, sums, products, extremes,
    stencil, chain, glued, converted, halves, spiral, picked,
)  # fmt: skip
POINTWISE = (axpy, gelu, log_return, waves, chain, converted, spiral)
NARROW = tuple(f for f in FUNCTIONS if f is not halves)
"""Without float16, which x86 converts only where it has registers of 256 bits."""
REDUCING = (softmax, softmax_leading, layer_norm, deviations, sums, extremes, halves)
BY_ROW = (*POINTWISE, softmax, layer_norm)


@dataclass(frozen=True)
class Inputs:
    shape: tuple[int, int]
    dtype: str

    def arrays(self) -> tuple[Array, Array]:
        return uniform(self.shape, self.dtype, 1), uniform(self.shape, self.dtype, 2)


def as_tuple(result: Any) -> tuple[Array, ...]:
    return tuple(np.asarray(x) for x in (result if isinstance(result, tuple) else (result,)))
