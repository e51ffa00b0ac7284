"""Arrays joined along the first axis: each is copied to its place, by kernels that every program shares."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.values import filled

JOINED: dict[str, Callable[..., Any]] = {
    "vectors": lambda a, b: np.concatenate([a.reshape(-1), b.reshape(-1)]),
    "rows": lambda a, b: np.concatenate([a, b, a]),
    "views": lambda a, b: np.concatenate([a[::2], b[:, ::-1], b[1:]]),
    "a view of each turn": lambda a, b: np.concatenate([a.T, b.T], axis=0) if a.shape == b.shape else np.vstack([a, b]),
    "reshaped views": lambda a, b: np.concatenate([a.T.reshape(-1), b.T.reshape(-1), a[0]]),
    "inside": lambda a, b: np.concatenate([a, b]) * 2,
    "computed parts": lambda a, b: np.concatenate([a + a, b]),
    "the last axis": lambda a, b: np.concatenate([a.T, b.T], axis=1),
    "one that was padded": lambda a, b: np.concatenate([np.pad(a, ((1, 2), (0, 0))), b]),
    "beside others": lambda a, b: (np.concatenate([a, b]), np.concatenate([b, a])),
}
SHAPES = [
    ((3, 4), (5, 4)),
    ((1, 4), (1, 4)),
    ((0, 4), (2, 4)),
    ((2, 4), (0, 4)),
    ((3, 1), (5, 1)),
    ((70, 33), (40, 33)),
]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "complex128", "int8", "bool"])
@pytest.mark.parametrize("case", JOINED)
def test_as_numpy(case: str, dtype: str) -> None:
    f = JOINED[case]
    g = tn.jit(f)
    for shape_a, shape_b in SHAPES:
        if shape_a[0] == 0 and case == "reshaped views":
            continue  # there is no first row
        a, b = filled(shape_a, dtype, 1), filled(shape_b, dtype, 2)
        with np.errstate(over="ignore"):
            found, wanted = g(a, b), f(a, b)
        pairs = zip(found, wanted, strict=True) if isinstance(found, tuple) else [(found, wanted)]
        for x, y in pairs:
            assert x.dtype == y.dtype
            np.testing.assert_array_equal(x, y)


def test_another_program_compiles_nothing() -> None:
    a, b = filled((7, 3), "float32", 1), filled((9, 3), "float32", 2)
    tn.jit(lambda a, b: np.concatenate([a, b]))(a, b)
    with tn.profile() as p:
        tn.jit(lambda a, b: np.concatenate([b, a, b]))(a, b)
    assert {c.source for c in p.compiles} <= {"same text"}


def test_a_derivative_of_parts() -> None:
    g = tn.grad(lambda a, b: (np.concatenate([a, b]) * np.arange(8.0)).sum(), argnums=(0, 1))
    a, b = g(np.ones(3), np.ones(5))
    assert a.tolist() == [0.0, 1.0, 2.0] and b.tolist() == [3.0, 4.0, 5.0, 6.0, 7.0]
