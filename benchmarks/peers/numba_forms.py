"""The cases as numba users write them: ``_loops`` explicit and parallel, ``_arrays`` array expressions, ``_serial``
without threads. Constants are converted to the operands' dtype: a bare literal would make float32 loops float64."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit, prange


@njit(parallel=True)  # type: ignore[untyped-decorator]
def axpy_loops(x: Any, y: Any, z: Any) -> Any:
    out = np.empty_like(x)
    a, b = x.dtype.type(2.5), x.dtype.type(0.5)
    for i in prange(x.size):
        out[i] = a * x[i] + y[i] * z[i] - b
    return out


@njit(parallel=True)  # type: ignore[untyped-decorator]
def axpy_arrays(x: Any, y: Any, z: Any) -> Any:
    return x.dtype.type(2.5) * x + y * z - x.dtype.type(0.5)


@njit  # type: ignore[untyped-decorator]
def _count(x: Any) -> Any:
    v = x
    for i in range(10_000_000):
        v = v * 0.999999 + i * 1e-7
    return v


def count_10m_serial(x: Any) -> Any:
    return np.asarray(_count(x[()]), x.dtype)


@njit(parallel=True)  # type: ignore[untyped-decorator]
def gelu_grad_loops(x: Any) -> Any:
    out = np.empty_like(x)
    flat, found = x.reshape(-1), out.reshape(-1)
    half, one, three = x.dtype.type(0.5), x.dtype.type(1), x.dtype.type(3)
    c, d = x.dtype.type(0.7978845608028654), x.dtype.type(0.044715)
    for i in prange(x.size):
        v = flat[i]
        t = np.tanh(c * (v + d * v * v * v))
        found[i] = half * (one + t) + half * v * (one - t * t) * c * (one + three * d * v * v)
    return out


@njit(parallel=True)  # type: ignore[untyped-decorator]
def gelu_loops(x: Any) -> Any:
    out = np.empty_like(x)
    half, one = x.dtype.type(0.5), x.dtype.type(1)
    c, d = x.dtype.type(0.7978845608028654), x.dtype.type(0.044715)
    for i in prange(x.size):
        v = x[i]
        out[i] = half * v * (one + np.tanh(c * (v + d * v * v * v)))
    return out


@njit(parallel=True)  # type: ignore[untyped-decorator]
def log_return_loops(a: Any, b: Any, r: Any, t: Any) -> Any:
    out = np.empty_like(a)
    for i in prange(a.size):
        out[i] = np.log(a[i] / b[i]) * np.sqrt(t[i]) + np.exp(-r[i] * t[i])
    return out


@njit(parallel=True)  # type: ignore[untyped-decorator]
def log_return_arrays(a: Any, b: Any, r: Any, t: Any) -> Any:
    return np.log(a / b) * np.sqrt(t) + np.exp(-r * t)


@njit(parallel=True)  # type: ignore[untyped-decorator]
def where_chain_loops(x: Any, y: Any) -> Any:
    out = np.empty_like(x)
    p, q = x.dtype.type(0.25), x.dtype.type(0.5)
    for i in prange(x.size):
        v, w = x[i], y[i]
        if v > w:
            out[i] = v - w
        elif v < -w:
            out[i] = v + w
        elif v > 0:
            out[i] = p * v
        else:
            out[i] = q * v
    return out


@njit(parallel=True)  # type: ignore[untyped-decorator]
def where_chain_arrays(x: Any, y: Any) -> Any:
    p, q = x.dtype.type(0.25), x.dtype.type(0.5)
    return np.where(x > y, x - y, np.where(x < -y, x + y, np.where(x > 0, p * x, q * x)))


@njit(parallel=True)  # type: ignore[untyped-decorator]
def complex_mul_loops(x: Any, y: Any) -> Any:
    out = np.empty_like(x)
    for i in prange(x.size):
        out[i] = x[i] * y[i]
    return out


@njit  # type: ignore[untyped-decorator]
def call_serial(x: Any, y: Any) -> Any:
    out = np.empty_like(x)
    for i in range(x.size):
        out[i] = x[i] * y[i] + x[i]
    return out


@njit  # type: ignore[untyped-decorator]
def call_arrays(x: Any, y: Any) -> Any:
    return x * y + x


@njit(parallel=True)  # type: ignore[untyped-decorator]
def expsum_loops(x: Any, y: Any) -> Any:
    # A sum per block: one running sum in float32 loses digits, and so would the answer.
    block = 4096
    sums = np.zeros((x.size + block - 1) // block, x.dtype)
    for k in prange(sums.size):
        total = x.dtype.type(0)
        for i in range(k * block, min((k + 1) * block, x.size)):
            total += np.exp(-x[i] * x[i]) * np.cos(y[i])
        sums[k] = total
    return x.dtype.type(np.sum(sums))


@njit(parallel=True)  # type: ignore[untyped-decorator]
def expsum_arrays(x: Any, y: Any) -> Any:
    return np.sum(np.exp(-x * x) * np.cos(y))


@njit(parallel=True)  # type: ignore[untyped-decorator]
def softmax_loops(x: Any) -> Any:
    out = np.empty_like(x)
    for i in prange(x.shape[0]):
        m = x[i, 0]
        for j in range(x.shape[1]):
            m = max(m, x[i, j])
        total = x.dtype.type(0)
        for j in range(x.shape[1]):
            e = np.exp(x[i, j] - m)
            out[i, j] = e
            total += e
        for j in range(x.shape[1]):
            out[i, j] /= total
    return out


@njit(parallel=True)  # type: ignore[untyped-decorator]
def softmax_long_loops(x: Any) -> Any:
    out = np.empty_like(x)
    block = 4096
    n = x.shape[1]
    m = x.max()
    sums = np.zeros((n + block - 1) // block, x.dtype)
    for k in prange(sums.size):
        total = x.dtype.type(0)
        for j in range(k * block, min((k + 1) * block, n)):
            e = np.exp(x[0, j] - m)
            out[0, j] = e
            total += e
        sums[k] = total
    whole = x.dtype.type(np.sum(sums))
    for j in prange(n):
        out[0, j] /= whole
    return out


@njit(parallel=True)  # type: ignore[untyped-decorator]
def softmax_axis0_loops(x: Any) -> Any:
    # Tiles of columns: each thread walks its rows in memory order.
    out = np.empty_like(x)
    rows, columns = x.shape
    tile = 64
    for k in prange((columns + tile - 1) // tile):
        low, high = k * tile, min((k + 1) * tile, columns)
        m = x[0, low:high].copy()
        for i in range(rows):
            for j in range(low, high):
                m[j - low] = max(m[j - low], x[i, j])
        total = np.zeros(high - low, x.dtype)
        for i in range(rows):
            for j in range(low, high):
                e = np.exp(x[i, j] - m[j - low])
                out[i, j] = e
                total[j - low] += e
        for i in range(rows):
            for j in range(low, high):
                out[i, j] /= total[j - low]
    return out


@njit(parallel=True)  # type: ignore[untyped-decorator]
def layer_norm_loops(x: Any, gain: Any, bias: Any) -> Any:
    out = np.empty_like(x)
    n = x.shape[1]
    for i in prange(x.shape[0]):
        total = x.dtype.type(0)
        for j in range(n):
            total += x[i, j]
        mean = x.dtype.type(total / n)
        spread = x.dtype.type(0)
        for j in range(n):
            spread += (x[i, j] - mean) * (x[i, j] - mean)
        scale = x.dtype.type(1.0 / np.sqrt(spread / n + 1e-5))
        for j in range(n):
            out[i, j] = (x[i, j] - mean) * scale * gain[j] + bias[j]
    return out


@njit(parallel=True)  # type: ignore[untyped-decorator]
def var_all_loops(x: Any) -> Any:
    block = 4096
    sums = np.zeros((x.size + block - 1) // block, x.dtype)
    for k in prange(sums.size):
        total = x.dtype.type(0)
        for i in range(k * block, min((k + 1) * block, x.size)):
            total += x[i]
        sums[k] = total
    mean = x.dtype.type(np.sum(sums) / x.size)
    for k in prange(sums.size):
        total = x.dtype.type(0)
        for i in range(k * block, min((k + 1) * block, x.size)):
            total += (x[i] - mean) * (x[i] - mean)
        sums[k] = total
    return x.dtype.type(np.sum(sums) / x.size)


@njit(parallel=True)  # type: ignore[untyped-decorator]
def var_all_arrays(x: Any) -> Any:
    return np.var(x)


@njit(parallel=True)  # type: ignore[untyped-decorator]
def sum_axis0_loops(x: Any) -> Any:
    out = np.zeros(x.shape[1:], x.dtype)
    for j in prange(x.shape[1]):
        for i in range(x.shape[0]):
            for k in range(x.shape[2]):
                out[j, k] += x[i, j, k]
    return out


@njit(parallel=True)  # type: ignore[untyped-decorator]
def mask_sum_loops(x: Any) -> Any:
    block = 4096
    sums = np.zeros((x.size + block - 1) // block, x.dtype)
    for k in prange(sums.size):
        total = x.dtype.type(0)
        for i in range(k * block, min((k + 1) * block, x.size)):
            if x[i] > 0:
                total += x[i]
        sums[k] = total
    return x.dtype.type(np.sum(sums))


@njit(parallel=True)  # type: ignore[untyped-decorator]
def heat_loops(u: Any) -> Any:
    out = np.empty_like(u)
    rows, columns = u.shape
    k, four = u.dtype.type(0.1), u.dtype.type(4)
    for i in prange(rows):
        if i == 0 or i == rows - 1:
            for j in range(columns):
                out[i, j] = u[i, j]
        else:
            out[i, 0] = u[i, 0]
            out[i, columns - 1] = u[i, columns - 1]
            for j in range(1, columns - 1):
                out[i, j] = u[i, j] + k * (u[i + 1, j] + u[i - 1, j] + u[i, j + 1] + u[i, j - 1] - four * u[i, j])
    return out


@njit(parallel=True)  # type: ignore[untyped-decorator]
def heat_arrays(u: Any) -> Any:
    out = u.copy()
    k, four = u.dtype.type(0.1), u.dtype.type(4)
    out[1:-1, 1:-1] = u[1:-1, 1:-1] + k * (
        u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - four * u[1:-1, 1:-1]
    )
    return out


@njit(parallel=True)  # type: ignore[untyped-decorator]
def x_plus_xt_loops(x: Any) -> Any:
    out = np.empty_like(x)
    n = x.shape[0]
    tile = 32
    for block in prange((n + tile - 1) // tile):
        top = min((block + 1) * tile, n)
        for left in range(0, n, tile):
            for i in range(block * tile, top):
                for j in range(left, min(left + tile, n)):
                    out[i, j] = x[i, j] + x[j, i]
    return out


@njit(parallel=True)  # type: ignore[untyped-decorator]
def x_plus_xt_arrays(x: Any) -> Any:
    return x + x.T


@njit  # type: ignore[untyped-decorator]
def mlp_arrays(x: Any, w1: Any, b1: Any, w2: Any, b2: Any) -> Any:
    return np.maximum(x @ w1 + b1, x.dtype.type(0)) @ w2 + b2


@njit(parallel=True)  # type: ignore[untyped-decorator]
def batched_loops(x: Any, y: Any) -> Any:
    out = np.empty_like(x)
    n = x.shape[1]
    for k in prange(x.shape[0]):
        for i in range(n):
            for j in range(n):
                total = x.dtype.type(0)
                for m in range(n):
                    total += x[k, i, m] * y[k, m, j]
                out[k, i, j] = total
    return out


@njit(parallel=True)  # type: ignore[untyped-decorator]
def max_all_arrays(x: Any) -> Any:
    return np.max(x)


@njit  # type: ignore[untyped-decorator]
def argmax_all_arrays(x: Any) -> Any:
    return np.argmax(x)


@njit(parallel=True)  # type: ignore[untyped-decorator]
def embedding_loops(table: Any, tokens: Any) -> Any:
    out = np.empty((tokens.size, table.shape[1]), table.dtype)
    for k in prange(tokens.size):
        out[k] = table[tokens[k]]
    return out
