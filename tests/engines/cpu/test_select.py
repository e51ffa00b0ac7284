"""Native selection by a mask against NumPy's, at every item size, density and thread count."""

from __future__ import annotations

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu import select


@pytest.mark.parametrize("dtype", ["?", "u1", "i2", "f2", "f4", "i4", "f8", "c8"])
@pytest.mark.parametrize("size", [select.WORTH_IT, select.WORTH_IT + 1, 5 * select.BLOCK - 3, 100_001])
def test_selection_is_numpys(dtype: str, size: int) -> None:
    rng = np.random.default_rng(size)
    x = (rng.standard_normal(size) * 50).astype(dtype)
    for density in (0.0, 0.01, 0.5, 1.0):
        mask = rng.random(size) < density
        assert select.serves(x, mask)
        for threads in (1, 3):
            with tn.threads(threads):
                found = select.mask_select(x, mask)
            assert found.dtype == x.dtype
            assert found.tobytes() == x[mask].tobytes()


def test_what_it_does_not_serve() -> None:
    x = np.zeros((200, 200))
    mask = np.ones((200, 200), bool)
    assert select.serves(x, mask)
    assert not select.serves(x.T, mask.T)
    assert not select.serves(x, mask[:, 0])
    assert not select.serves(x.astype("c16"), mask)
    assert not select.serves(x[:2], mask[:2])


def test_jitted_selection_of_another_layout() -> None:
    x = np.arange(40_000.0).reshape(200, 200)
    select_positive = tn.jit(lambda a: a[a % 3 == 1])
    for layout in (x, x.T, x[::-1], x[:, ::2], x[:50]):
        np.testing.assert_array_equal(select_positive(layout), layout[layout % 3 == 1])
