"""Element by element: bound by memory (axpy, where_chain, complex_mul) or by arithmetic (gelu, log_return)."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Array, ArrayCase, Inputs, normal, scaled, whole

MILLION = 1 << 20


def axpy(x: Array, y: Array, z: Array) -> Any:
    return 2.5 * x + y * z - 0.5


def gelu(x: Array) -> Any:
    return 0.5 * x * (1.0 + np.tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def log_return(a: Array, b: Array, r: Array, t: Array) -> Any:
    return np.log(a / b) * np.sqrt(t) + np.exp(-r * t)


def where_chain(x: Array, y: Array) -> Any:
    return np.where(x > y, x - y, np.where(x < -y, x + y, np.where(x > 0.0, 0.25 * x, 0.5 * x)))


def complex_mul(x: Array, y: Array) -> Any:
    return x * y


def call(x: Array, y: Array) -> Any:
    return x * y + x


def _prices(dtype: np.dtype[Any], scale: float) -> Inputs:
    rng = np.random.default_rng(0)
    (n,) = scaled((4 * MILLION,), scale)

    def uniform(low: float, high: float) -> Array:
        return rng.uniform(low, high, n).astype(dtype)

    return uniform(50, 150), uniform(50, 150), uniform(0, 0.1), uniform(0.1, 2)


def _complex(dtype: np.dtype[Any], scale: float) -> Inputs:
    return normal(2, (4 * MILLION,))(np.dtype(f"c{2 * dtype.itemsize}"), scale)


def _small(dtype: np.dtype[Any], scale: float) -> Inputs:
    return normal(2, (8,))(dtype, 1.0)


CASES = (
    ArrayCase("axpy", "2.5*x + y*z - 0.5", axpy, normal(3, (16 * MILLION,)), whole(4)),
    ArrayCase("gelu", "0.5*x*(1 + tanh(0.798*(x + 0.0447*x^3)))", gelu, normal(1, (16 * MILLION,)), whole(2)),
    ArrayCase("log_return", "log(a/b)*sqrt(t) + exp(-r*t)", log_return, _prices, whole(5)),
    ArrayCase("where_chain", "three nested where", where_chain, normal(2, (16 * MILLION,)), whole(3)),
    ArrayCase("complex_mul", "x*y, complex", complex_mul, _complex, whole(3)),
    ArrayCase("call", "x*y + x, 8 elements", call, _small, small=True),
)
