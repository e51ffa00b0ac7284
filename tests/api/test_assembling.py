"""Diagonals, blocks, parts and windows: NumPy's values and errors, jitted and eager on both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.oracle import agrees, both_engines

Function = Callable[..., Any]
windows = np.lib.stride_tricks.sliding_window_view
X = np.arange(30.0).reshape(5, 6)


@pytest.fixture(autouse=True, scope="module")
def _engines() -> Iterator[None]:
    with both_engines():
        yield


CASES: dict[str, Function] = {
    **{f"diag of a matrix, {k}": lambda a, k=k: np.diag(a, k) for k in (0, 1, -2, 5, -8)},
    **{f"diag of a vector, {k}": lambda a, k=k: np.diag(a[1], k) for k in (0, 1, -2)},
    **{f"diagflat, {k}": lambda a, k=k: np.diagflat(a[:2, :2], k) for k in (0, 2, -1)},
    "diag of nothing": lambda a: np.diag(a[0][:0], 2),
    "diag of a number": lambda a: np.diag(a[0, 0]),
    "diag of rank 3": lambda a: np.diag(np.stack([a, a])),
    "diagflat of a number": lambda a: np.diagflat(a[0, 1]),
    "hsplit": lambda a: np.hsplit(a, 2),
    "hsplit of a vector": lambda a: np.hsplit(a[0], [1, 3]),
    "hsplit of a number": lambda a: np.hsplit(a[0, 0], 2),
    "vsplit": lambda a: np.vsplit(a, [2]),
    "vsplit in unequal parts": lambda a: np.vsplit(a, 2),
    "vsplit of a vector": lambda a: np.vsplit(a[0], 2),
    "dsplit": lambda a: np.dsplit(a[None], 3),
    "dsplit of a matrix": lambda a: np.dsplit(a, 3),
    "block": lambda a: np.block([[a, a * 2], [a[:1], -a[1:2]]]),
    "block of vectors": lambda a: np.block([a[0], a[1], 7]),
    "block of one": lambda a: np.block(a),
    "block of mixed ranks": lambda a: np.block([[a], [a[0]]]),
    "block of depth 3": lambda a: np.block([[[a]], [[a]]]),
    "block of dtypes": lambda a: np.block([[a, np.ones((5, 2), int)], [np.zeros((1, 6), bool), 1j * a[:1, :2]]]),
    "block of other depths": lambda a: np.block([[a], a]),
    "block of nothing": lambda a: np.block([[a], []]),
    "block of unequal sizes": lambda a: np.block([[a, a[:2]]]),
    "windows": lambda a: windows(a, (2, 3)),
    "windows on an axis": lambda a: windows(a, 2, axis=0),
    "windows twice on an axis": lambda a: windows(a, (2, 2), axis=(1, 1)),
    "windows of size 0": lambda a: windows(a, 0, axis=0),
    "windows too large": lambda a: windows(a, (2, 9)),
    "windows of a negative size": lambda a: windows(a, -1, axis=0),
    "windows of the wrong rank": lambda a: windows(a, 2),
    "a window": lambda a: windows(a, (2, 3))[1, 2],
    "an element of a window": lambda a: windows(a, (2, 3))[1, 2, 0, 1],
    "means of windows": lambda a: windows(a, 3, axis=1).mean(-1),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_cases(name: str) -> None:
    for dtype in ("float64", "int16", "complex64"):
        agrees(CASES[name], X.astype(dtype))


@pytest.mark.parametrize(
    "function",
    [
        lambda a: np.diag(a[0], 1),
        lambda a: np.block([[a, a], [a, -a]]),
        lambda a: windows(a, 3, axis=0).max(-1),
        lambda a: np.hsplit(a, 2)[1],
        lambda a: np.diagflat(a, -1),
    ],
)
def test_one_program_for_any_size(function: Function) -> None:
    jitted = tn.jit(function)
    for n in (4, 6, 10):
        x = np.arange(float(n * n)).reshape(n, n)
        np.testing.assert_array_equal(jitted(x), function(x))
    assert jitted.cache_info().compiles == 1


def test_windows_see_later_writes() -> None:
    def function(a: Any) -> Any:
        b = a.copy()
        seen = windows(b, 3)
        b[1] = 70.0
        return seen, seen[0, 1], seen[1:, ::2] + 1

    agrees(function, np.arange(6.0))


def test_diagonals_see_later_writes() -> None:
    def function(a: Any) -> Any:
        b = a.copy()
        seen = np.diagonal(b, 1), np.diag(b), b.diagonal(-1), np.trace(b)
        b[1, 1] = b[0, 1] = 70.0
        return (*seen, seen[0][0], seen[1] * 2)

    agrees(function, X)
    agrees(lambda a: np.diagonal(np.stack([a, a * 2]), 1, 1, 2), X)
    agrees(lambda a: np.diagonal(np.stack([a, a * 2]), -3, 2, 0), X)
    agrees(lambda a: a[0] * np.diagonal(np.arange(36.0).reshape(6, 6)), X)

    def write(a: Any) -> Any:
        np.diagonal(a.copy())[0] = 1.0

    with pytest.raises(ValueError, match=r"^write: the array is a read-only view .*test_assembling"):
        tn.jit(write)(X)


def test_windows_are_not_written() -> None:
    def function(a: Any) -> Any:
        windows(a.copy(), 3)[0] = 1.0

    with pytest.raises(ValueError, match=r"^write: the array is a read-only view .*test_assembling"):
        tn.jit(function)(np.arange(6.0))
    with pytest.raises(tn.TraceError, match=r"^sliding_window_view: writeable"):
        tn.jit(lambda a: windows(a, 3, writeable=True))(np.arange(6.0))


def test_windows_of_what_the_trace_made() -> None:
    agrees(lambda a: a * windows(np.arange(8.0), 3).sum(-1), np.arange(6.0))
