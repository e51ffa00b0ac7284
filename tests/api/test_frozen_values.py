"""What would freeze or cannot be told apart is refused; constants come back as they are."""

from __future__ import annotations

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import TraceError
from tests.api.outside import X


def test_constants_of_rank_0_come_back_as_what_they_are():
    @tn.jit
    def f(x):
        return np.asarray(np.float32(2)), np.array(3, np.int8), np.float16(1), 2.0, np.ones((), np.complex64)

    out = f(X)
    assert [type(v) for v in out] == [np.ndarray, np.ndarray, np.float16, float, np.ndarray]
    assert [v.dtype for v in (out[0], out[1], out[4])] == [np.float32, np.int8, np.complex64]
    assert [complex(v) for v in out] == [2, 3, 1, 2, 1]
    assert [type(v) for v in f(X)] == [type(v) for v in out]


@pytest.mark.parametrize("make", [lambda: np.random.RandomState(0), lambda: np.random.Generator(np.random.PCG64(0))])
def test_generators_made_inside_raise(make):
    with pytest.raises(TraceError, match=r"numpy\.random\.(RandomState|Generator): inside a traced function"):
        tn.jit(lambda x: x + make().uniform())(X)
    assert 0 <= make().uniform() < 1


def test_random_classes_stay_classes_inside():
    state = np.random.RandomState(0)
    f = tn.jit(lambda x: x * 2 if isinstance(state, np.random.RandomState) else x)
    assert f(X)[0] == 2.0


def test_outside_random_state_that_draws_raises():
    state = np.random.RandomState(0)
    with pytest.raises(TraceError, match="generator state drew random numbers"):
        tn.jit(lambda x: x + state.uniform(size=3))(X)


@pytest.mark.parametrize("value", [[1, 2], np.ones(2), {1: 2}, (1, [2])])
def test_unhashable_static_arguments_raise(value):
    f = tn.jit(lambda x, k: x, static_argnums=1)
    with pytest.raises(TraceError, match="static argument k is .* which cannot be hashed; .* a tuple is needed"):
        f(X, value)
    assert f(X, (1, 2)) is X and f.cache_info().compiles == 1
