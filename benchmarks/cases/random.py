"""Random numbers: those of tenferro and JAX by key, NumPy's by its Generator.

What the peers make differs, so that only shape, dtype and range are compared here; distributions have their tests.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.case import Array, ArrayCase, Inputs, scaled, whole
from benchmarks.words import Words

MILLION = 1 << 20
ANY_NUMBER = 2.0**60
"""A tolerance that finite numbers of one magnitude meet."""


def _sized(dtype: np.dtype[Any], scale: float) -> Inputs:
    """An array of the shape and dtype that are asked for, which nobody reads, and a key."""
    return np.zeros(scaled((16 * MILLION,), scale), dtype), np.array([0, 42], np.uint32)


def uniform(like: Array, key: Array) -> Any:
    return np.random.default_rng(int(key[1])).random(like.shape, like.dtype)


def uniform_written(w: Words) -> Callable[..., Any]:
    return lambda like, key: w.random.uniform(key, like.shape, like.dtype)


def normal(like: Array, key: Array) -> Any:
    return np.random.default_rng(int(key[1])).standard_normal(like.shape, like.dtype)


def normal_written(w: Words) -> Callable[..., Any]:
    return lambda like, key: w.random.normal(key, like.shape, like.dtype)


CASES = (
    ArrayCase("random_uniform", "16M uniform numbers", uniform, _sized, whole(1), ANY_NUMBER, uniform_written),
    ArrayCase("random_normal", "16M normal numbers", normal, _sized, whole(1), ANY_NUMBER, normal_written),
)
