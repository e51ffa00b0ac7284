"""Native selection by a mask against NumPy's, at every item size, density and thread count."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu import native_chain, select


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


def test_what_was_counted_and_is_not_there_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A mask that loses elements between the two launches is read anew, and refused in the end."""
    x = np.arange(40_000.0)
    rows, run = x.reshape(-1, 2), select._run
    left = 1

    def losing(address: int, blocks: int, sizes: Any, arrays: Any) -> None:
        nonlocal left
        run(address, blocks, sizes, arrays)
        if native_chain.TARGET_WORD not in arrays and left:
            arrays[native_chain.MASK_WORD][:5_000] = False
            left -= 1

    monkeypatch.setattr(select, "_run", losing)
    for given in (x, rows):
        mask, left = np.ones(len(given), bool), 1
        np.testing.assert_array_equal(selected(given, mask), given[5_000:])
    left = 0
    monkeypatch.setattr(select, "TRIES", 0)
    with pytest.raises(tn.ShapeError, match=r"the mask changes.*test_select.py"):
        selected(x, np.ones(x.size, bool))


def test_one_mask_selects_one_number(monkeypatch: pytest.MonkeyPatch) -> None:
    f = tn.jit(lambda x, y, m: x[m] + y[m])
    x, mask = np.arange(40_000.0), np.arange(40_000) % 2 == 0
    take = select.mask_select

    def losing(action: Any, x: Any, chosen: Any) -> Any:
        found = take(action, x, chosen)
        mask[:10] = False
        return found

    monkeypatch.setattr(select, "mask_select", losing)
    with pytest.raises(tn.ShapeError, match="selects 19995 and has selected 20000"):
        f(x, x, mask)
