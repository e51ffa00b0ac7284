"""Matrix products: a small network, one row at a time (bound by the bandwidth of the caches) and in batches (bound by
arithmetic), and many products of tiny matrices (bound by memory)."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Array, ArrayCase, Inputs, MakeInputs, normal, whole

MILLION = 1 << 20
LAYERS = (784, 512, 10)


def mlp(x: Array, w1: Array, b1: Array, w2: Array, b2: Array) -> Any:
    return np.maximum(x @ w1 + b1, 0) @ w2 + b2


def batched(x: Array, y: Array) -> Any:
    return x @ y


def _network(rows: int) -> MakeInputs:
    """``rows`` rows of data, weights scaled so that every layer's values are near 1. Widths stay: they are what a
    network has."""

    def make(dtype: np.dtype[Any], scale: float) -> Inputs:
        rng = np.random.default_rng(0)
        x = rng.standard_normal((max(1, round(rows * min(scale, 1.0))), LAYERS[0]), dtype)
        made = [x]
        for n, m in zip(LAYERS[:-1], LAYERS[1:], strict=True):
            made += [rng.standard_normal((n, m), dtype) * dtype.type(n**-0.5), rng.standard_normal(m, dtype)]
        return tuple(made)

    return make


def _pairs(n: int) -> MakeInputs:
    def make(dtype: np.dtype[Any], scale: float) -> Inputs:
        return normal(2, (max(1, round(MILLION * scale)), n, n))(dtype, 1.0)

    return make


CASES = (
    ArrayCase("mlp_1", "relu(x @ W1 + b1) @ W2 + b2, 784-512-10, one row", mlp, _network(1), small=True),
    ArrayCase("mlp_256", "the same, 256 rows", mlp, _network(256)),
    ArrayCase("batched_3x3", "a million pairs of 3x3 matrices, a @ b", batched, _pairs(3), whole(3)),
    ArrayCase("batched_4x4", "a million pairs of 4x4 matrices, a @ b", batched, _pairs(4), whole(3)),
)
