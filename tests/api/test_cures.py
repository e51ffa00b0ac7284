"""What an error names in the place of a function that is not available gives what the function gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.tracer.api.registry  # noqa: F401 (fills API)
from tenferro.tracer.api.library import _NEAREST
from tenferro.tracer.api.record import API

Function = Callable[..., Any]
X = np.array([[3.0, -1.5, 0.0, 7.25], [2.0, 3.0, -4.0, 0.5], [3.0, 8.0, 0.0, -2.0]])


def _frexp(x: Any) -> Any:
    e = (x.view(np.int64) >> 52 & 2047) - 1022
    return x / 2.0**e, e


EDGES = np.array([-9.0, 1.0, 9.0])


def _bin(x: Any) -> Any:
    return np.digitize(x, EDGES) - 1


def _counted(x: Any) -> Any:
    counts = np.zeros((2, 2))
    np.add.at(counts, (_bin(x[0]), _bin(x[1])), 1)
    return counts


CURES: dict[str, tuple[Function, Function]] = {
    "frexp": (lambda x: _frexp(x + 20), lambda x: np.frexp(x + 20)),
    "apply_along_axis": (
        lambda x: tn.numpy.apply_along_axis(np.sum, 1, x), lambda x: np.apply_along_axis(np.sum, 1, x),
    ),
    "apply_over_axes": (
        lambda x: np.sum(x, axis=(0, 1), keepdims=True), lambda x: np.apply_over_axes(np.sum, x, (0, 1)),
    ),
    "eig": (lambda x: np.linalg.eigh(x @ x.T)[0], lambda x: np.sort(np.linalg.eig(x @ x.T)[0])),
    "eigvals": (lambda x: np.linalg.eigvalsh(x @ x.T), lambda x: np.sort(np.linalg.eigvals(x @ x.T))),
    "poly": (
        lambda x: np.polymul(np.stack([x[0, 1] * 0 + 1, -x[0, 0]]), np.stack([x[0, 1] * 0 + 1, -x[0, 1]])),
        lambda x: np.poly(x[0, :2]),
    ),
    "histogramdd": (
        lambda x: _counted(x[:2]),
        lambda x: np.histogramdd(x[:2].T, [EDGES, EDGES])[0],
    ),
    "reduceat": (
        lambda x: np.bincount(np.array([0, 0, 1, 1]), weights=x[0]), lambda x: np.add.reduceat(x[0], [0, 2]),
    ),
    "accumulate": (
        lambda x: tn.lax.associative_scan(np.hypot, abs(x)), lambda x: np.hypot.accumulate(abs(x)),
    ),
    "vectorize": (tn.numpy.vectorize(abs), np.vectorize(lambda v: v if v > 0 else -v)),
}  # fmt: skip


def test_every_cure_is_tried_and_needed() -> None:
    assert set(CURES) == set(_NEAREST)
    assert not set(_NEAREST) & set(API)


@pytest.mark.parametrize("name", CURES)
def test_cure(name: str) -> None:
    cure, function = CURES[name]
    found, wanted = tn.jit(cure)(X), function(X)
    for f, w in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else ((found, wanted),):
        np.testing.assert_allclose(f, w, rtol=1e-14)
