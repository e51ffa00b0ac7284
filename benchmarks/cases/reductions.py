"""Reductions fused with what produces them and with what uses them."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Array, ArrayCase, Inputs, normal, whole

MILLION = 1 << 20


def expsum(x: Array, y: Array) -> Any:
    return np.sum(np.exp(-x * x) * np.cos(y))


def softmax(x: Array) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softmax_axis0(x: Array) -> Any:
    e = np.exp(x - x.max(axis=0, keepdims=True))
    return e / e.sum(axis=0, keepdims=True)


def layer_norm(x: Array, gain: Array, bias: Array) -> Any:
    mean = x.mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5) * gain + bias


def var_all(x: Array) -> Any:
    return np.var(x)


def sum_axis0(x: Array) -> Any:
    return x.sum(axis=0)


def mask_sum(x: Array) -> Any:
    return x[x > 0].sum()


def _layer(dtype: np.dtype[Any], scale: float) -> Inputs:
    (x,) = normal(1, (4096, 2048))(dtype, scale)
    rng = np.random.default_rng(1)
    return x, rng.standard_normal(x.shape[-1], dtype), rng.standard_normal(x.shape[-1], dtype)


# Sums over millions of elements: a running sum may lose hundreds of epsilons and still be a fair way to write it.
SUM_TOLERANCE = 4096.0

CASES = (
    ArrayCase("expsum", "sum(exp(-x*x)*cos(y))", expsum, normal(2, (16 * MILLION,)), tolerance=SUM_TOLERANCE),
    ArrayCase("softmax", "rows of 2048", softmax, normal(1, (4096, 2048)), whole(2)),
    ArrayCase("softmax_long", "one row of 16M", softmax, normal(1, (1, 16 * MILLION)), whole(2), SUM_TOLERANCE),
    ArrayCase("softmax_axis0", "columns of 4096", softmax_axis0, normal(1, (4096, 2048)), whole(2)),
    ArrayCase("layer_norm", "rows of 2048", layer_norm, _layer, whole(2)),
    ArrayCase("var_all", "var of 16M", var_all, normal(1, (16 * MILLION,)), tolerance=SUM_TOLERANCE),
    ArrayCase("sum_axis0", "256^3 over axis 0", sum_axis0, normal(1, (256, 256, 256))),
    ArrayCase("mask_sum", "x[x > 0].sum()", mask_sum, normal(1, (16 * MILLION,)), tolerance=SUM_TOLERANCE),
)
