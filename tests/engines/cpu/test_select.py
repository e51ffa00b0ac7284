"""Native selection by a mask against NumPy's, at every item size, density and thread count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu import select


def selected(x: Any, mask: Any) -> Any:
    """The first run of a program, by Python."""
    return tn.jit(lambda x, mask: x[mask])(x, mask)


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "f2", "f4", "i4", "f8", "c8", "c16"])
@pytest.mark.parametrize("size", [select.WORTH_IT - 1, select.WORTH_IT, 5 * select.BLOCK - 3, 100_001])
def test_selection_is_numpys(dtype: str, size: int) -> None:
    rng = np.random.default_rng(size)
    x = (rng.standard_normal(size) * 50).astype(dtype)
    for density in (0.0, 0.01, 0.5, 1.0):
        mask = rng.random(size) < density
        for threads in (1, 3):
            with tn.threads(threads):
                found = selected(x, mask)
            assert found.dtype == x.dtype
            assert found.tobytes() == x[mask].tobytes()


@pytest.mark.parametrize("size", [300, 40_000])
def test_rows_at_equal_distances(size: int) -> None:
    rng = np.random.default_rng(size)
    x, mask = rng.standard_normal((size, 4, 3)), rng.random(size) < 0.3
    for rows in (x, x[:, 1], x[:, :, 1], x[:, 2, 0], x[::-1], x[:, :0], np.broadcast_to(x[0], x.shape)):
        found = selected(rows, mask)
        assert found.shape == rows[mask].shape and found.tobytes() == rows[mask].tobytes()
    grid = rng.random((size // 4, 4)) < 0.5
    for rows in (x[: grid.shape[0]], x[: 2 * grid.shape[0] : 2], x[: grid.shape[0], ::-1]):
        assert selected(rows, grid).tobytes() == rows[grid].tobytes()


def test_jitted_selection_of_another_layout() -> None:
    x = np.arange(40_000.0).reshape(200, 200)
    select_positive = tn.jit(lambda a: a[a % 3 == 1])
    for layout in (x, x.T, x[::-1], x[:, ::2], x[:50]):
        np.testing.assert_array_equal(select_positive(layout), layout[layout % 3 == 1])
