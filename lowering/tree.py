"""The fixed reduction tree: in which order a reduction combines its elements, on every engine.

The order is a function of the accumulator's dtype and of the number n of reduced elements alone, taken in row-major
logical order. Layout, batch extents, fusion, vector width, threads and schedule never enter.

1. Elements are cut into chunks of ``CHUNK_STEPS * lanes`` elements; the last one may be shorter.
2. In a chunk, element e goes to lane ``e % lanes``; a lane starts from +0.0 and adds its elements in order.
3. The lanes are halved: lane j takes lane j + h, for h = lanes/2, …, 1. Lane 0 is the chunk's result.
4. The chunks' results are reduced by the same rule, until one is left.

Since lanes start from +0.0, as NumPy's sums do, no sum is −0.0: not of no elements, nor of zeros of that sign alone.
``max``, ``min``, ``argmax``, ``argmin`` and integer sums are exact in any order, so engines may combine them as they
like.

``moments`` (the sum of squared deviations): per chunk the mean is the tree's sum over the count, the squared deviations
from it are summed along the tree; chunks are then combined in order, in float64, by Chan, Golub and LeVeque (1979):
``d = mean_b - mean; mean += d * n_b / n; m2 += m2_b + d * d * n_a * n_b / n`` (with n = n_a + n_b).
"""

from __future__ import annotations

from typing import Any

import numpy as np

CHUNK_STEPS = 128
"""Steps of a chunk: 16 kB of either float dtype, so that a second pass over a chunk finds it in the nearest cache."""


def accumulator(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype that a reduction of ``dtype`` accumulates in: float32 for float16, else the dtype itself."""
    return np.dtype(np.float32) if dtype == np.float16 else dtype


def lanes(dtype: np.dtype[Any]) -> int:
    """32 for components of up to 4 bytes, 16 for 8 bytes. A complex number is two components in one lane."""
    component = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    return 32 if component <= 4 else 16


def chunk(dtype: np.dtype[Any]) -> int:
    """Elements of a chunk."""
    return CHUNK_STEPS * lanes(dtype)


def _halve(acc: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    half = acc.shape[-1] // 2
    while half:
        acc = acc[..., :half] + acc[..., half : 2 * half]
        half //= 2
    return acc[..., 0]


def _chunk_sum(part: np.ndarray[Any, Any], width: int) -> np.ndarray[Any, Any]:
    acc = np.zeros((*part.shape[:-1], width), part.dtype)
    for start in range(0, part.shape[-1], width):
        step = part[..., start : start + width]
        acc[..., : step.shape[-1]] += step
    return _halve(acc)


def tree_sum(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Sum over the last axis with exactly the tree's bits; ``x`` has the accumulator's dtype. Result: one axis less."""
    if x.shape[-1] == 0:
        return np.zeros(x.shape[:-1], x.dtype)
    with np.errstate(all="ignore"):
        size, width = chunk(x.dtype), lanes(x.dtype)
        while True:
            parts = [_chunk_sum(x[..., s : s + size], width) for s in range(0, x.shape[-1], size)]
            if len(parts) == 1:
                return parts[0]
            x = np.stack(parts, axis=-1)


def tree_moments(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The sum of squared deviations from the mean over the last axis, with exactly the tree's bits."""
    n = x.shape[-1]
    mean = np.zeros(x.shape[:-1], np.float64)
    m2 = np.zeros(x.shape[:-1], np.float64)
    size, width = chunk(x.dtype), lanes(x.dtype)
    with np.errstate(all="ignore"):
        for start in range(0, n, size):
            part = x[..., start : start + size]
            count = part.shape[-1]
            centre = _chunk_sum(part, width) / x.dtype.type(count)
            deviation = part - centre[..., None]
            spread = _chunk_sum(deviation * deviation, width).astype(np.float64)
            if start == 0:
                mean, m2 = centre.astype(np.float64), spread
                continue
            total = np.float64(start + count)
            delta = centre.astype(np.float64) - mean
            mean = mean + delta * np.float64(count) / total
            m2 = m2 + spread + delta * delta * np.float64(start) * np.float64(count) / total
    return m2.astype(x.dtype)
