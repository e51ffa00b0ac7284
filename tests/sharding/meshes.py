"""Meshes of CPU engines for the tests: sizes in, a mesh with axes i, j, … out."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenferro as tn

Array = np.ndarray[Any, Any]


def engines(count: int) -> list[str]:
    return [e.id for e in tn.cpu_engines(count)]


def mesh(*sizes: int) -> tn.Mesh:
    """Sizes (2, 2) give axes i and j."""
    return tn.Mesh(np.array(engines(int(np.prod(sizes)))).reshape(sizes), tuple("ijk"[: len(sizes)]))


def rows(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).normal(size=shape)
