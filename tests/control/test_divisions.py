"""Integer divisions by zero in the turns of loops: the loop goes on with 0, and np.errstate says who hears of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

Z = np.array([1, 0, 2])
ROWS = np.arange(12).reshape(4, 3)
LOOPS: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "scan of kernels": (lambda z, xs: tn.lax.scan(lambda c, x: (c + np.sum(x // z), c), np.int64(0), xs), (Z, ROWS)),
    "scan, elementwise": (lambda z, xs: tn.lax.scan(lambda c, x: (c + x % z, c), np.zeros(3, int), xs), (Z, ROWS)),
    "while of kernels": (
        lambda z: tn.lax.while_loop(lambda s: s[0] < 5, lambda s: (s[0] + 1, s[1] + np.sum(7 // z)), (0, 0)), (Z,)),
    "while, elementwise": (
        lambda z: tn.lax.while_loop(lambda s: s[0] < 500, lambda s: (s[0] + 1, s[1] + (s[0] + 7) // z), (0, z)), (Z,)),
    "scalars": (lambda z: tn.lax.fori_loop(0, 3000, lambda i, c: c + (i + 7) // z[1], 0), (Z,)),
    "a loop in a loop": (
        lambda z: tn.lax.fori_loop(
            0, 3, lambda i, c: c + tn.lax.fori_loop(0, 4, lambda j, d: d + np.sum((i + j) // z), 0), 0), (Z,)),
    "a seam in the body": (
        lambda z, xs: tn.lax.scan(lambda c, x: (c + np.sum(np.sort(x) // z), c), np.int64(0), xs), (Z, ROWS)),
}  # fmt: skip


def leaves(x: Any) -> list[Any]:
    return [np.asarray(leaf).tolist() for leaf in tn.tree.leaves(x)]


@pytest.mark.parametrize("case", LOOPS)
def test_all_turns_run(case: str) -> None:
    f, args = LOOPS[case]
    with np.errstate(divide="ignore"):
        with tn.disable_jit():
            wanted = leaves(f(*args))
        g = tn.jit(f)
        assert leaves(g(*args)) == wanted
        assert leaves(g(*args)) == wanted


@pytest.mark.parametrize("case", LOOPS)
def test_warned_of_or_raised(case: str) -> None:
    f, args = LOOPS[case]
    g = tn.jit(f)
    with pytest.warns(RuntimeWarning, match="divisor 0 under the dividend") as found:
        g(*args)
    assert len(found) <= 8
    with np.errstate(divide="raise"), pytest.raises(ZeroDivisionError, match="divisor 0"):
        g(*args)


def test_an_index_out_of_range_comes_first() -> None:
    f = tn.jit(lambda z, p, xs: tn.lax.scan(lambda c, x: (c + np.sum(x // z) + z[p], c), np.int64(0), xs))
    with pytest.raises(IndexError):
        f(Z, np.int64(7), ROWS)
