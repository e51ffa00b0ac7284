"""Ints and sizes that are the same in all lanes and on all sides are handed on as they are: they can be sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

X = np.arange(6.0)
BATCH = np.stack([X, -X])


def columns(x: Any, n: Any) -> Any:
    """Sums of the columns of ``n`` rows."""
    return x.reshape(n, -1).sum(0) * (n // 2)


@tn.custom_vjp
def columns_with_a_rule(x: Any, n: Any) -> Any:
    return columns(x, n)


columns_with_a_rule.defvjp(
    lambda x, n: (columns(x, n), n), lambda n, ct: (np.broadcast_to(ct * (n // 2), (n, *ct.shape)).reshape(-1), None)
)


@tn.custom_jvp
def columns_with_a_tangent(x: Any, n: Any) -> Any:
    return columns(x, n)


@columns_with_a_tangent.defjvp
def _(primals: Any, tangents: Any) -> Any:
    return columns(*primals), columns(tangents[0], primals[1])


ONE: dict[str, Callable[[Any, Any], Any]] = {
    "cond": lambda x, n: tn.lax.cond(x[1] > 0, columns, lambda x, n: columns(-x, n), x, n),
    "switch": lambda x, n: tn.lax.switch(1, [lambda x, n: columns(-x, n), columns], x, n),
    "checkpoint": tn.checkpoint(columns),
    "custom_vjp": columns_with_a_rule,
    "custom_jvp": columns_with_a_tangent,
    "jit": tn.jit(columns),
}


@pytest.mark.parametrize("name", ONE)
def test_an_int_is_a_size(name: str) -> None:
    function = ONE[name]
    for f in (function, tn.jit(lambda x, n: function(x, n))):
        for n in (2, 3):
            np.testing.assert_array_equal(f(X, n), columns(X, n))
    slope = tn.grad(lambda x, n: function(x, n)[0])
    for f in (slope, tn.jit(slope)):
        np.testing.assert_array_equal(f(X, 2), [1, 0, 0, 1, 0, 0])


@pytest.mark.parametrize("name", ONE)
def test_an_int_is_a_size_in_every_lane(name: str) -> None:
    function = ONE[name]
    for f in (mapped := tn.vmap(function, (0, None)), tn.jit(mapped)):
        np.testing.assert_array_equal(
            f(BATCH, 2), np.stack([columns(x, 2) for x in (X, abs(X) if name == "cond" else -X)])
        )
    slopes = tn.vmap(tn.grad(lambda x, n: function(x, n)[0]), (0, None))
    for f in (slopes, tn.jit(slopes)):
        assert f(BATCH, 2).shape == BATCH.shape


def test_ints_in_pytrees_of_arguments() -> None:
    mapped = tn.vmap(lambda d: columns(d["x"], d["n"]), ({"x": 0, "n": None},))
    for f in (mapped, tn.jit(mapped)):
        np.testing.assert_array_equal(f({"x": BATCH, "n": 3}), np.stack([columns(x, 3) for x in BATCH]))


def test_one_program_serves_every_size() -> None:
    f = tn.jit(tn.vmap(lambda k, n: tn.lax.iota(np.int64, n) + k, (0, None)))
    for n in (2, 5, 7):
        np.testing.assert_array_equal(f(np.array([0, 10]), n), np.arange(n) + [[0], [10]])
    assert f.cache_info().compiles == 1


def test_sizes_of_random_numbers() -> None:
    def draw(key: Any, n: Any) -> Any:
        return tn.random.normal(key, (n, 2))

    keys = tn.random.split(tn.random.key(0), 3)
    mapped = tn.vmap(draw, (0, None))
    for f in (mapped, tn.jit(mapped)):
        np.testing.assert_array_equal(np.asarray(f(keys, 4)), np.stack([np.asarray(draw(k, 4)) for k in keys]))


def test_flags_and_types() -> None:
    signed = tn.vmap(lambda v, flag: v if flag else -v, (0, None))
    for f in (signed, tn.jit(signed)):
        np.testing.assert_array_equal(f(X, True), X)
        np.testing.assert_array_equal(f(X, False), -X)
    scaled = tn.vmap(lambda v, n: v * n, (0, None))
    for f in (scaled, tn.jit(scaled)):
        assert f(X.astype(np.float32), 2).dtype == np.float32
    same = tn.vmap(lambda v, n: n, (0, None))
    for f in (same, tn.jit(same)):
        np.testing.assert_array_equal(f(X, 2), np.full(6, 2))
