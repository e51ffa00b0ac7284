"""Transformations and ``jit`` on methods: as decorators, on bound methods, one around the other."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import DerivativeError

X = np.arange(3.0)
ROWS = np.stack([X, X + 1])


class Model:
    def __init__(self, weight: float = 2.0) -> None:
        self.weight = np.full(3, weight)

    def plain(self, x: Any) -> Any:
        return (self.weight * x * x).sum()

    @tn.jit
    def jitted(self, x: Any) -> Any:
        return (self.weight * x * x).sum()

    @partial(tn.jit, static_argnums=0)
    def static(self, x: Any) -> Any:
        return (self.weight * x * x).sum()

    @tn.checkpoint
    def again(self, x: Any) -> Any:
        return (self.weight * x * x).sum()

    @partial(tn.grad, argnums=1)
    def slope(self, x: Any) -> Any:
        return (self.weight * x * x).sum()

    @tn.jit
    @partial(tn.grad, argnums=1)
    def jitted_slope(self, x: Any) -> Any:
        return (self.weight * x * x).sum()

    @partial(tn.grad, argnums=1)
    @tn.jit
    def slope_of_jitted(self, x: Any) -> Any:
        return (self.weight * x * x).sum()

    @partial(tn.vmap, in_axes=(None, 0))
    def rows(self, x: Any) -> Any:
        return (self.weight * x * x).sum()

    @tn.jit
    @partial(tn.vmap, in_axes=(None, 0))
    def jitted_rows(self, x: Any) -> Any:
        return (self.weight * x * x).sum()

    @tn.grad
    def of_all(self, x: Any) -> Any:
        return (self.weight * x).sum()

    @tn.jit
    @tn.grad
    def jitted_of_all(self, x: Any) -> Any:
        return (self.weight * x).sum()


VALUES = ["plain", "jitted", "static", "again"]
SLOPES = ["slope", "jitted_slope", "slope_of_jitted"]


def test_decorated_methods_read_their_object_at_each_call() -> None:
    model, other = Model(), Model(7.0)
    for _ in range(2):
        for m in (model, other):
            w = m.weight
            for name in VALUES:
                np.testing.assert_allclose(getattr(m, name)(X), (w * X * X).sum())
            for name in SLOPES:
                np.testing.assert_allclose(getattr(m, name)(X), 2 * w * X)
            for name in ("rows", "jitted_rows"):
                np.testing.assert_allclose(getattr(m, name)(ROWS), (w * ROWS * ROWS).sum(1))
        model.weight[:] = 5.0


@pytest.mark.parametrize("name", VALUES)
def test_bound_methods_are_transformed_and_jitted(name: str) -> None:
    model = Model()
    method = getattr(model, name)
    for weight in (2.0, 3.0):
        model.weight[:] = weight
        np.testing.assert_allclose(tn.jit(method)(X), weight * (X * X).sum())
        for f in (g := tn.grad(method), tn.jit(g), tn.jit(lambda x: tn.grad(method)(x))):
            np.testing.assert_allclose(f(X), 2 * weight * X)
        for f in (h := tn.vmap(method), tn.jit(h)):
            np.testing.assert_allclose(f(ROWS), weight * (ROWS * ROWS).sum(1))


@pytest.mark.parametrize("name", SLOPES)
def test_bound_methods_that_are_transformed_are_transformed_again(name: str) -> None:
    model = Model()
    method = getattr(model, name)
    for f in (h := tn.jacfwd(method), tn.jit(h)):
        np.testing.assert_allclose(f(X), 4 * np.eye(3))
    for f in (method, tn.jit(method), tn.jit(lambda x: method(x))):
        np.testing.assert_allclose(f(X), 4 * X)
    np.testing.assert_allclose(tn.lax.map(method, ROWS), 4 * ROWS)


@pytest.mark.parametrize("name", ["of_all", "jitted_of_all"])
def test_the_object_of_a_method_has_no_derivative_unless_it_is_a_pytree(name: str) -> None:
    with pytest.raises(DerivativeError, match="argument 0 of class Model; .*argnums=1 leaves the object"):
        getattr(Model(), name)(X)


@dataclass
class Linear:
    weight: Any

    @tn.grad
    def slope(self, x: Any) -> Any:
        return (self.weight * x).sum()

    @tn.jit
    @partial(tn.grad, argnums=(0, 1))
    def slopes(self, x: Any) -> Any:
        return (self.weight * x).sum()

    @partial(tn.vmap, in_axes=(0, None))
    def each(self, x: Any) -> Any:
        return (self.weight * x).sum()


def test_pytrees_with_methods_are_differentiated_and_mapped() -> None:
    linear = Linear(X + 1)
    np.testing.assert_allclose(linear.slope(X).weight, X)
    of_self, of_x = linear.slopes(X)
    np.testing.assert_allclose(of_self.weight, X)
    np.testing.assert_allclose(of_x, X + 1)
    np.testing.assert_allclose(Linear(ROWS).each(X), ROWS @ X)


def test_what_is_no_function_of_arrays_is_refused() -> None:
    def generator(x: Any) -> Any:
        yield x

    for transformation in (tn.jit, tn.grad, tn.vmap, tn.checkpoint):
        with pytest.raises(TypeError, match="is generator, a generator; a function that returns arrays"):
            transformation(generator)
        method: Any = classmethod(generator)
        with pytest.raises(TypeError, match=f"@classmethod stands above @tn.{transformation.__name__}"):
            transformation(method)
