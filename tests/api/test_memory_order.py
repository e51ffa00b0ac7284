"""reshape, ravel and flatten in the orders "C" and "F"; orders that ask how memory lies; views permuted twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.oracle import agrees, both_engines

X = np.arange(24.0).reshape(2, 3, 4)
ARRAYS = {
    "C": X,
    "F": np.asfortranarray(X),
    "transposed": X.T,
    "sliced": X[:, ::-1, ::2],
    "one axis": X[0, 0],
    "none": X[0, 0, 0],
}


@pytest.fixture(scope="module", autouse=True)
def _both_engines() -> Iterator[None]:
    with both_engines():
        yield


@pytest.mark.parametrize("order", "CF")
@pytest.mark.parametrize("array", ARRAYS)
def test_orders(array: str, order: Any) -> None:
    x = np.asarray(ARRAYS[array])
    agrees(lambda v: v.ravel(order), x)
    agrees(lambda v: v.flatten(order), x)
    agrees(lambda v: np.reshape(v, (-1, 1), order=order), x)
    agrees(lambda v: (v.T + 1).reshape(-1, order=order), x)


@pytest.mark.parametrize("order", "AK")
def test_how_memory_lies_is_known_of_own_arrays_alone(order: Any) -> None:
    agrees(lambda v: (v + 1).ravel(order), X)
    agrees(lambda v: v[0, 0].ravel(order), X)
    for array in ("F", "transposed", "C"):
        with pytest.raises(tn.TraceError, match=rf"ravel: order '{order}', which asks how the memory lies; 'C' or 'F'"):
            tn.jit(lambda v: v.ravel(order))(ARRAYS[array])
    eager = tn.asarray(ARRAYS["F"]).ravel(order)
    assert eager.tolist() == ARRAYS["F"].ravel(order).tolist()


def test_one_program_for_every_size() -> None:
    f = tn.jit(lambda v: v.reshape((3, -1), order="F"))
    for n in (3, 6, 9):
        x = np.arange(4.0 * n).reshape(n, 4)
        assert f(x).tolist() == x.reshape((3, -1), order="F").tolist()
    assert f.cache_info().compiles == 1


WRITES = {
    "permuted twice": lambda y: y.T.T.reshape(-1),
    "swapped twice": lambda y: y.swapaxes(0, 1).swapaxes(1, 0).ravel(),
    "rolled around": lambda y: np.moveaxis(np.moveaxis(y[None], 0, 2), 2, 0).reshape(6),
    "columns of a transposed array": lambda y: y.T.reshape(-1, order="F"),
    "columns, copied": lambda y: y.reshape(-1, order="F"),
    "flattened": lambda y: y.flatten(),
}


@pytest.mark.parametrize("view", WRITES)
def test_what_is_a_view_is_written_through(view: str) -> None:
    def f(x: Any) -> Any:
        y = x * 1
        z = WRITES[view](y)
        z[1] = 9
        return y, z

    agrees(f, np.arange(6.0).reshape(3, 2))
