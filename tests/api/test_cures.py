"""What an error names in the place of a function that is not available gives what the function gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.tracer.api.registry  # noqa: F401 (fills API)
from tenferro.tracer.api.library import _NEAREST
from tenferro.tracer.api.record import API

Function = Callable[..., Any]
X = np.array([[3.0, -1.5, 0.0, 7.25], [2.0, 3.0, -4.0, 0.5], [3.0, 8.0, 0.0, -2.0]])
INDEX = np.array([[0, 1, 2, 1], [2, 2, 0, 0], [1, 0, 1, 2]])
CHOICES = np.stack([X, X * 10, X - 100])


def _writing(write: Callable[[Any], None]) -> Function:
    def function(x: Any) -> Any:
        out = x.copy()
        write(out)
        return out

    return function


def _set(key: Any, value: Any) -> Function:
    def write(x: Any) -> None:
        x[key] = value

    return _writing(write)


def _fill_diagonal(x: Any) -> None:
    n = min(x.shape)
    x[np.arange(n), np.arange(n)] = 9.0


def _put(x: Any) -> None:
    x.reshape(-1)[[1, 7, -1]] = [10.0, 20.0, 30.0]


def _putmask(x: Any) -> None:
    x[...] = np.where(x > 1, x * 2, x)


def _frexp(x: Any) -> Any:
    e = (x.view(np.int64) >> 52 & 2047) - 1022
    return x / 2.0**e, e


CURES: dict[str, tuple[Function, Function]] = {
    "isin": (
        lambda x: np.any(x[..., None] == np.ravel([[3.0], [0.5]]), axis=-1),
        lambda x: np.isin(x, [[3.0], [0.5]]),
    ),
    "fill_diagonal": (_writing(_fill_diagonal), _writing(lambda x: np.fill_diagonal(x, 9.0))),
    "choose": (
        lambda x: np.select([INDEX == k for k in range(3)], [x, x * 10, x - 100]),
        lambda x: np.choose(INDEX, CHOICES),
    ),
    "ix_": (lambda x: x[np.array([2, 0])][:, np.array([3, 1, 1])], lambda x: x[np.ix_([2, 0], [3, 1, 1])]),
    "put": (_writing(_put), _writing(lambda x: np.put(x, [1, 7, -1], [10.0, 20.0, 30.0]))),
    "place": (_set(X > 3, [1.0, 2.0]), _writing(lambda x: np.place(x, X > 3, [1.0, 2.0]))),
    "putmask": (_writing(_putmask), _writing(lambda x: np.putmask(x, x > 1, x * 2))),
    "delete": (lambda x: np.concatenate([x[:1], x[2:]]), lambda x: np.delete(x, 1, axis=0)),
    "insert": (lambda x: np.concatenate([x[:1], x[:2] * 2, x[1:]]), lambda x: np.insert(x, [1], x[:2] * 2, axis=0)),
    "frexp": (lambda x: _frexp(x + 20), lambda x: np.frexp(x + 20)),
    "modf": (lambda x: (np.copysign(x - np.trunc(x), x), np.trunc(x)), np.modf),
    "apply_along_axis": (
        lambda x: np.stack([row.sum() for row in x]), lambda x: np.apply_along_axis(np.sum, 1, x),
    ),
    "vectorize": (lambda x: np.where(x > 0, x, -x), np.vectorize(lambda v: v if v > 0 else -v)),
}  # fmt: skip


def test_every_cure_is_tried_and_needed() -> None:
    assert set(CURES) == set(_NEAREST)
    assert not set(_NEAREST) & set(API)


@pytest.mark.parametrize("name", CURES)
def test_cure(name: str) -> None:
    cure, function = CURES[name]
    found, wanted = tn.jit(cure)(X), function(X)
    for f, w in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else ((found, wanted),):
        np.testing.assert_allclose(f, w, rtol=1e-14)
