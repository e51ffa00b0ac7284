"""NumPy's functions jitted as they are, with the arguments that NumPy takes: arrays, numbers and lists of them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.oracle import both_engines, jitted_agrees


@pytest.fixture(scope="module", autouse=True)
def _both_engines() -> Iterator[None]:
    with both_engines():
        yield


CASES: dict[str, tuple[Any, ...]] = {
    "sum": ([1, 2, 3],), "sum, floats": ([1.5, 2.5],), "sum, tuple": ((1, 2),), "sum, nested": ([[1, 2], [3, 4]],),
    "sum, empty": ([],), "sum, number": (3,), "sum, mixed": ([1, 2.5],), "sum, complex": ([1, 2 + 3j],),
    "sum, bools": ([True, False],), "sum, array": (np.arange(6.0).reshape(2, 3), 1), "sum, rows": ([[1, 2], [3, 4]], 0),
    "mean": ([1, 2, 4],), "max": ([1, 3, 2],), "argmax": ([1, 5, 2],), "any": ([True, False],), "prod": ([2, 3.5],),
    "exp": ([1.0, 2.0],), "add": ([1, 2], [3, 4]), "add, array": ([1, 2], np.ones(2)), "add, numbers": (1, 2.5),
    "maximum": ([1, 5], 3), "clip": ([1, 5], 2, 3), "where": ([True, False], [1, 2], [3, 4]), "dot": ([1, 2], [3, 4]),
    "matmul": ([[1, 2], [3, 4]], [[1, 0], [0, 2]]), "outer": ([1, 2], [3, 4]), "stack": ([[1, 2], [3, 4]],),
    "concatenate": ([[1, 2], [3, 4]],), "concatenate, mixed": ([np.ones(2), [3, 4]],), "hstack": ([[1], [2]],),
    "sort": ([3, 1, 2],), "cumsum": ([1, 2],), "diff": ([1, 4, 9],), "median": ([1, 2, 9],), "round": ([1.234], 1),
    "reshape": ([1, 2, 3, 4], (2, 2)), "transpose": ([[1, 2], [3, 4]],), "take": ([1, 2, 3], [0, 2]),
    "roll": ([1, 2, 3], 1), "tile": ([1, 2], 2), "broadcast_to": ([1, 2], (3, 2)), "meshgrid": ([1, 2], [3, 4, 5]),
    "interp": (1.5, [1, 2], [3, 4]), "isclose": ([1.0], [1.0]), "allclose": ([1.0], [1.5]), "array": ([1, 2],),
    "asarray": ([1.5, 2],), "array, number": (3,), "arange": (5,), "full": ((2, 2), 7.5), "zeros": (3,), "eye": (3,),
    "linspace": (0, 1, 5), "zeros_like": ([1, 2],), "ones_like": (np.ones((2, 3)),), "copy": ([1, 2],),
    "shape": ([[1, 2]],), "size": ([1, 2],), "ndim": ([1, 2],), "nonzero": ([0, 3],), "expand_dims": ([1, 2], 0),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_jitted_as_they_are(case):
    function = getattr(np, case.partition(",")[0])
    jitted_agrees(function, *CASES[case])


def test_as_a_partial_and_inside_another():
    assert tn.jit(functools.partial(np.sum, axis=0))([[1, 2], [3, 4]]).tolist() == [4, 6]
    inner = tn.jit(np.sum)
    assert tn.jit(lambda a, b: inner([a, b]) * 2)(1.0, 2.5) == 7.0


def test_one_program_for_every_list_of_a_length():
    f = tn.jit(np.sum)
    assert [f([1, 2, 3]), f([4, 5, 6]), f((7, 8))] == [6, 15, 15]
    assert f.cache_info().compiles == 2


def test_what_has_no_function_of_ours_is_refused_with_the_cure():
    with pytest.raises(
        tn.DtypeError, match=r"an array of objects, which NumPy made of a list of traced numbers; numpy.arr"
    ):
        tn.jit(np.real_if_close)([1, 1])
