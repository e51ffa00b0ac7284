"""``np.mgrid`` and ``np.ogrid`` over sizes: NumPy's numbers, one program for every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.numpy as tnp

KEYS: list[Callable[[Any, Any], Any]] = [
    lambda n, m: slice(n), lambda n, m: slice(0, n), lambda n, m: slice(1, n, 2), lambda n, m: (slice(0, n),),
    lambda n, m: (slice(0, n), slice(0, m)), lambda n, m: (slice(n), slice(0.0, 2.0, 0.5)),
    lambda n, m: (slice(0, 3), slice(m), slice(n)), lambda n, m: (slice(0, n, 5j), slice(0, m)),
    lambda n, m: slice(0, n, 3j), lambda n, m: (slice(-n, n), slice(2)), lambda n, m: (slice(2), slice(0, 1, 3j)),
]  # fmt: skip


@pytest.mark.parametrize("name", ["mgrid", "ogrid"])
@pytest.mark.parametrize("number", range(len(KEYS)))
def test_a_grid_of_sizes(number: int, name: str) -> None:
    key = KEYS[number]
    f = tn.jit(lambda x: getattr(np, name)[key(*x.shape)])
    g = tn.jit(lambda x: getattr(tnp, name)[key(*x.shape)])
    for shape in ((4, 3), (7, 5), (2, 9)):
        expected = getattr(np, name)[key(*shape)]
        for found in (f(np.ones(shape)), g(np.ones(shape)), getattr(tnp, name)[key(*shape)]):
            assert type(found) is type(expected)
            parts = (found, expected) if isinstance(expected, tuple) else ((found,), (expected,))
            for part, wanted in zip(*parts, strict=True):
                assert part.dtype == wanted.dtype and part.shape == wanted.shape
                np.testing.assert_allclose(part, wanted, rtol=1e-15)
    assert f.cache_info().compiles == 1


def test_coordinates_of_an_image() -> None:
    @tn.jit
    def moment(image: Any) -> Any:
        y, x = np.mgrid[: image.shape[0], : image.shape[1]]
        return (y * image).sum() / image.sum(), (x * image).sum() / image.sum()

    for shape in ((3, 5), (6, 4)):
        np.testing.assert_allclose(moment(np.ones(shape)), [(n - 1) / 2 for n in shape])
    assert moment.cache_info().compiles == 1
