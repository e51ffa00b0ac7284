"""Results whose size depends on data, and reductions of them that may have nothing to reduce."""

from __future__ import annotations

from contextlib import nullcontext

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.engine import Engine
from tenferro.engines.reference import ReferenceEngine
from tests.runtime.engines import several

X = np.arange(6.0) - 2.5


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin", "any", "all", "sum"])
def test_a_selection_is_reduced(name: str) -> None:
    jitted = tn.jit(lambda x: getattr(np, name)(x[x > 0]))
    for x in (X, X + 2, -X):
        np.testing.assert_array_equal(jitted(x), getattr(np, name)(x[x > 0]))
    assert jitted.cache_info().compiles == 1


@pytest.mark.parametrize("name", ["max", "min", "argmax", "argmin"])
def test_the_largest_of_a_selection_of_none(name: str) -> None:
    jitted = tn.jit(lambda x: getattr(np, name)(x[x > 0]))
    with pytest.raises(tn.ShapeError, match=rf"{name}: zero-size array .*test_runtime_extents"):
        jitted(-abs(X))
    np.testing.assert_array_equal(jitted(X), getattr(np, name)(X[X > 0]))


INITIAL = {
    "max": lambda x: np.max(x[x > 0], initial=1.0),
    "min": lambda x: np.min(x[x > 0], initial=1.0, keepdims=True),
    "an axis": lambda x: np.max(np.outer(x, x)[x > 0], axis=0, initial=0.5),
    "the other axis": lambda x: np.max(np.outer(x, x)[x > 0], axis=1, initial=0.5),
    "two selections": lambda x: np.min(np.outer(x, x)[x > 0][:, x > 0], initial=3.0),
    "where": lambda x: np.max(x[x > 0], initial=0.0, where=x[x > 0] < 2),
    "integers": lambda x: (x[x > 0] * 10).astype(np.int32).max(initial=-7),
    "norm": lambda x: np.linalg.norm(x[x > 0], np.inf),
}


@pytest.mark.parametrize("name", INITIAL)
def test_an_extreme_of_a_selection_and_a_number(name: str) -> None:
    jitted = tn.jit(INITIAL[name])
    for x in (X, X + 2, -abs(X), X[:0]):
        found, wanted = jitted(x), INITIAL[name](x)
        assert type(found) is type(wanted) and found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_reductions_of_none_that_have_an_answer() -> None:
    none = -abs(X)
    assert tn.jit(lambda x: (x[x > 0] > 1).any())(none) == np.False_
    assert tn.jit(lambda x: (x[x > 0] > 1).all())(none) == np.True_
    assert tn.jit(lambda x: x[x > 0].sum())(none) == 0.0


def test_the_reference_engine_says_the_same() -> None:
    reference: Engine = ReferenceEngine()
    jitted = tn.jit(lambda x: x[x > 0].max())
    executable = reference.compile(jitted.lower(X).plan)
    assert executable.run([X]).outputs[0] == 2.5
    with pytest.raises(tn.ShapeError, match="zero-size array"):
        executable.run([-abs(X)])


def _zeros(x: np.ndarray) -> np.ndarray:
    return np.zeros(x[x > 0].size)


SIZES = {
    "shape": lambda x: x[x > 0].shape[0],
    "size": lambda x: x[x > 0].size + 1,
    "beside another": lambda x: (x.sum(), x[x > 0].shape[0]),
    "before another": lambda x: (x[x > 0].size, x[x > 0].sum(), (x * 2)[x > 0].size),
    "two masks": lambda x: x[x > 0].size * 10 + x[x < 0].size,
    "flatnonzero": lambda x: np.flatnonzero(x > 0).size,
    "nonzero": lambda x: len(np.nonzero(x > 0)) + np.nonzero(x > 0)[0].size,
    "as an array": lambda x: np.asarray(x[x > 0].size),
    "as a factor": lambda x: x * x[x > 0].size,
    "as another's size": _zeros,
}


@pytest.mark.parametrize("place", ["", "cpu:1"])
@pytest.mark.parametrize("name", SIZES)
def test_the_size_of_a_selection_that_is_not_used_otherwise(name: str, place: str) -> None:
    function = SIZES[name]

    def placed(x: np.ndarray) -> object:
        with tn.on(place) if place else nullcontext():
            return function(x)

    jitted = tn.jit(placed)
    with several(2) if place else nullcontext():
        for x in (X, X + 2, -abs(X)):
            got, expected = jitted(x), function(x)
            assert type(got) is type(expected)
            np.testing.assert_array_equal(got, expected)
    assert jitted.cache_info().compiles == 1


def test_a_size_waits_for_what_measures_it() -> None:
    def f(x: np.ndarray) -> object:
        late = np.sort(x * 2)
        n = late[late > x.sum()].size
        return np.arange(n) * 2, np.broadcast_to(x[0], (n,)).sum(), (x * n).sum() + np.full(n, 2.0)

    jitted = tn.jit(f)
    for x in (X, X + 2, -abs(X)):
        for got, expected in zip(jitted(x), f(x), strict=True):
            np.testing.assert_array_equal(got, expected)


def test_the_size_of_a_selection_by_other_engines() -> None:
    lowered = tn.jit(lambda x: (x[x > 0].size, x * 2)).lower(X)
    reference: Engine = ReferenceEngine()
    assert reference.compile(lowered.plan).run([X]).outputs[0] == 3
