"""Functions, callable objects and static objects as arguments: what they hold is read at each call."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn


class Layer:
    def __init__(self, weight: Any) -> None:
        self.weight = weight

    def __call__(self, x: Any) -> Any:
        return (x * self.weight).sum()

    def scaled(self, x: Any) -> Any:
        return x * self.weight


def apply(f: Callable[[Any], Any], x: Any) -> Any:
    return f(x)


def total(layers: list[Layer], x: Any) -> Any:
    return sum(layer(x) for layer in layers)


X = np.arange(1.0, 4.0)


@pytest.mark.parametrize("weight", [np.ones(3), 2.5])
@pytest.mark.parametrize("member", ["__call__", "scaled", "itself", "partial"])
def test_attributes_are_read_at_each_call(member: str, weight: Any) -> None:
    layer, jitted = Layer(weight), tn.jit(apply)
    made: dict[str, Callable[[Any], Any]] = {"itself": layer, "partial": functools.partial(Layer.scaled, layer)}
    function = made.get(member) or getattr(layer, member)
    for change in (lambda w: w, lambda w: w + 1.0, lambda w: w * -3.0):
        layer.weight = change(layer.weight)
        np.testing.assert_array_equal(jitted(function, X), function(X))
    if isinstance(layer.weight, np.ndarray):
        layer.weight *= 2
        np.testing.assert_array_equal(jitted(function, X), function(X))
        assert jitted.cache_info().compiles == 1


def test_objects_in_containers() -> None:
    first, second = Layer(np.ones(3)), Layer(np.full(3, 2.0))
    jitted = tn.jit(total)
    for layer in (first, second, first):
        layer.weight = layer.weight + X
        assert jitted([first, second], X) == total([first, second], X)


def test_static_objects() -> None:
    jitted = tn.jit(lambda layer, x: layer.weight * x, static_argnums=0)
    layer = Layer(2.0)
    for weight in (2.0, 3.0, np.arange(3.0), X):
        layer.weight = weight
        np.testing.assert_array_equal(jitted(layer, X), weight * X)


def test_gradients_see_them() -> None:
    layer = Layer(np.ones(3))
    slope = tn.jit(tn.grad(lambda x, f: f(x)))
    for _ in range(3):
        layer.weight = layer.weight + 1.0
        np.testing.assert_array_equal(slope(X, layer), layer.weight)


def test_what_an_argument_changes_is_refused_as_elsewhere() -> None:
    def counting(f: Layer, x: Any) -> Any:
        f.weight = f.weight + 1.0
        return f(x)

    with pytest.raises(tn.MutationError, match="weight"):
        tn.jit(counting)(Layer(1.0), X)


def test_another_object_is_another_program_and_the_first_one_stays() -> None:
    jitted, first, second = tn.jit(apply), Layer(1.0), Layer(5.0)
    for f in (first, second, first, second):
        assert jitted(f, X) == f(X)
    assert jitted.cache_info().compiles == 2
