"""Operands that lie the other way round: every element once, whatever the order of tiles."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu.tiles import TILE_COLUMNS, items

ROWS = 32


def place(i: int, sides: int) -> tuple[int, int, int]:
    """The order that ``items`` describes, written out: (group, tile of rows, block of columns)."""
    squares = [(k, k) if j == k else pair for k in range(sides) for j in range(k, sides) for pair in pairs(k, j)]
    square, within = divmod(i, TILE_COLUMNS // ROWS)
    group, number = divmod(square, sides * sides)
    row, column = squares[number]
    return group, row * (TILE_COLUMNS // ROWS) + within, column


def pairs(k: int, j: int) -> list[tuple[int, int]]:
    return [(k, k)] if j == k else [(k, j), (j, k)]


@pytest.mark.parametrize(("groups", "sides"), [(1, 1), (2, 1), (1, 2), (3, 5)])
def test_paired_order_visits_each_tile_once(groups: int, sides: int) -> None:
    n = sides * TILE_COLUMNS - 3
    total, word = items(groups, n, n, ROWS, True)
    visited = [place(i, sides) for i in range(total)]
    wanted = itertools.product(range(groups), range(-(-n // ROWS)), range(sides))
    assert word == sides
    assert len(set(visited)) == total
    assert set(visited) >= set(wanted)


@pytest.mark.parametrize("dtype", ["int8", "int16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("n", [8, 9, 31, 255, 256, 257, 700])
def test_square_read_both_ways(dtype: str, n: int) -> None:
    both = tn.jit(lambda x: x + 2 * x.swapaxes(-1, -2))
    for leading in ((), (1,), (3,)):
        x = (np.random.default_rng(n).random((*leading, n, n)) * 30).astype(dtype)
        np.testing.assert_array_equal(both(x), x + x.dtype.type(2) * x.swapaxes(-1, -2))


@pytest.mark.parametrize("shape", [(8, 900), (900, 8), (257, 300), (300, 257), (40, 1000)])
def test_oblong_operands(shape: tuple[int, int]) -> None:
    other = tn.jit(lambda x, y: x - y.T)
    rng = np.random.default_rng(0)
    x, y = rng.random(shape), rng.random(shape[::-1])
    np.testing.assert_array_equal(other(x, y), x - y.T)
    part = rng.random((shape[1] + 3, shape[0] + 5))[3:, 5:]
    np.testing.assert_array_equal(other(x, part), x - part.T)


def test_square_part_of_a_larger_array() -> None:
    both = tn.jit(lambda x: x * x.T)
    x = np.random.default_rng(0).random((640, 700))[20:, 80:]
    np.testing.assert_array_equal(both(x), x * x.T)
