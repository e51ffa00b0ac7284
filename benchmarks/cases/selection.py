"""The largest element, where it stands, and rows by index: little arithmetic, so that the way to memory shows."""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.case import Array, ArrayCase, Inputs, normal

MILLION = 1 << 20


def max_all(x: Array) -> Any:
    return np.max(x)


def argmax_all(x: Array) -> Any:
    return np.argmax(x)


def embedding(table: Array, tokens: Array) -> Any:
    return table[tokens]


def _tokens(dtype: np.dtype[Any], scale: float) -> Inputs:
    """A table of 32,768 words with 256 numbers each, and 8,192 words."""
    words, width, count = max(2, round(32768 * scale)), 256, max(2, round(8192 * scale))
    rng = np.random.default_rng(0)
    return rng.standard_normal((words, width), dtype), rng.integers(0, words, count)


CASES = (
    ArrayCase("max_all", "max of 1M", max_all, normal(1, (MILLION,)), small=True),
    ArrayCase("argmax_all", "argmax of 1M", argmax_all, normal(1, (MILLION,)), small=True),
    ArrayCase(
        "embedding",
        "8192 rows of a table of 32768 x 256",
        embedding,
        _tokens,
        lambda x: 2 * x[1].size * 256 * x[0].itemsize,
    ),
)
