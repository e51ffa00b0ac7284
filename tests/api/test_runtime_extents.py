"""Results whose size depends on data, and reductions of them that may have nothing to reduce."""

from __future__ import annotations

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.engine import Engine
from tenferro.engines.reference import ReferenceEngine

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
