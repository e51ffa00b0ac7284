"""The fixed reduction tree: in which order a reduction combines its elements, on every engine.

The order is a function of the accumulator's dtype and of the number n of reduced elements alone, taken in row-major
logical order. Layout, batch extents, fusion, vector width, threads and schedule never enter.

1. Elements are cut into chunks of ``CHUNK_STEPS * lanes`` elements; the last one may be shorter.
2. In a chunk, element e goes to lane ``e % lanes``; a lane starts from +0.0 and adds its elements in order.
3. The lanes are halved: lane j takes lane j + h, for h = lanes/2, …, 1. Lane 0 is the chunk's result.
4. The chunks' results are reduced by the same rule, until one is left.

Since lanes start from +0.0, as NumPy's sums do, no sum is −0.0: not of no elements, nor of zeros of that sign alone.
``max``, ``min``, ``argmax``, ``argmin`` and sums and products of integers are exact in any order, so engines may
combine them as they like.

``product`` follows the same tree; lanes start from 1 and multiply. A complex factor that is 1 + 0i to the bit leaves
the other as it is, where the formula would make a NaN of an infinity: lanes that no element reaches change nothing.

``moments`` (the sum of squared deviations): per chunk the mean is the tree's sum over the count, the squared deviations
from it are summed along the tree; chunks are then combined in order, in float64, by Chan, Golub and LeVeque (1979):
``d = mean_b - mean; mean += d * n_b / n; m2 += m2_b + d * d * n_a * n_b / n`` (with n = n_a + n_b).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np

Array: TypeAlias = np.ndarray[Any, Any]
Parts: TypeAlias = tuple[Array, ...]  # the components of a number: one, or real and imaginary part
Combine: TypeAlias = Callable[[Parts, Parts], Parts]

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


def in_tree_order(kind: str, dtype: np.dtype[Any]) -> bool:
    """Whether the order of combination shows in the result of a reduction of this kind."""
    return has_identity(kind) and dtype.kind in "fc"


def has_identity(kind: str) -> bool:
    """Whether a reduction of no elements has a result."""
    return kind in ("sum", "product", "moments")


def _add(x: Parts, y: Parts) -> Parts:
    return tuple(a + b for a, b in zip(x, y, strict=True))


def _multiply(x: Parts, y: Parts) -> Parts:
    if len(x) == 1:
        return (x[0] * y[0],)
    (a, b), (c, d) = x, y
    re, im = a * c - b * d, a * d + b * c
    one_first, one_last = ((p == 1) & (q == 0) & ~np.signbit(q) for p, q in (x, y))
    return (
        np.where(one_last, a, np.where(one_first, c, re)),
        np.where(one_last, b, np.where(one_first, d, im)),
    )


def _halve(acc: Parts, combine: Combine) -> Parts:
    half = acc[0].shape[-1] // 2
    while half:
        acc = combine(tuple(a[..., :half] for a in acc), tuple(a[..., half : 2 * half] for a in acc))
        half //= 2
    return tuple(a[..., 0] for a in acc)


def _of_chunk(parts: Parts, width: int, combine: Combine) -> Parts:
    """A lane starts from 0, or from 1 for products (1 + 0i)."""
    start = (0, 0) if combine is _add else (1, 0)
    acc = tuple(np.full((*p.shape[:-1], width), s, p.dtype) for p, s in zip(parts, start, strict=False))
    for first in range(0, parts[0].shape[-1], width):
        step = tuple(p[..., first : first + width] for p in parts)
        count = step[0].shape[-1]
        combined = combine(tuple(a[..., :count] for a in acc), step)
        for a, new in zip(acc, combined, strict=True):
            a[..., :count] = new
    return _halve(acc, combine)


def _tree(parts: Parts, size: int, width: int, combine: Combine) -> Parts:
    with np.errstate(all="ignore"):
        while True:
            chunks = range(0, max(parts[0].shape[-1], 1), size)
            found = [_of_chunk(tuple(p[..., s : s + size] for p in parts), width, combine) for s in chunks]
            if len(found) == 1:
                return found[0]
            parts = tuple(np.stack(component, axis=-1) for component in zip(*found, strict=True))


def tree_sum(x: Array) -> Array:
    """Sum over the last axis with exactly the tree's bits; ``x`` is real and has the accumulator's dtype. Result: one
    axis less."""
    return _tree((x,), chunk(x.dtype), lanes(x.dtype), _add)[0]


def tree_product(x: Array) -> Array:
    """Product over the last axis with exactly the tree's bits; ``x`` has the accumulator's dtype, real or complex."""
    if x.dtype.kind != "c":
        return _tree((x,), chunk(x.dtype), lanes(x.dtype), _multiply)[0]
    out = np.empty(x.shape[:-1], x.dtype)
    out.real, out.imag = _tree((x.real, x.imag), chunk(x.dtype), lanes(x.dtype), _multiply)
    return out


def _chunk_sum(part: Array, width: int) -> Array:
    return _of_chunk((part,), width, _add)[0]


def tree_moments(x: Array) -> Array:
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
