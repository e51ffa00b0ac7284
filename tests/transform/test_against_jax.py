"""Every transformation of functions of many kinds, against JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.transform.peer import agrees, same

X = np.linspace(0.2, 1.4, 6)
M = np.random.default_rng(0).standard_normal((4, 3))
A = np.random.default_rng(1).standard_normal((3, 3))


def _updated(np: Any, x: Any) -> Any:
    """An in-place update, which JAX writes as ``at``."""
    if hasattr(x, "at") and not hasattr(x, "_cell"):
        return x.at[1:].multiply(2 * x[:-1])
    y = x.copy()
    y[1:] *= 2 * x[:-1]
    return y


FUNCTIONS: dict[str, tuple[Callable[..., Any], Any]] = {
    "polynomial": (lambda np, x: 3 * x**3 - x**2 / 2 + 1, X),
    "elementary": (lambda np, x: np.exp(np.sin(x)) * np.log1p(x) + np.tanh(x) / np.sqrt(x), X),
    "softmax": (lambda np, x: np.exp(x - x.max()) / np.exp(x - x.max()).sum(), X),
    "variance": (lambda np, x: (x - x.mean()) / np.sqrt(x.var() + 1e-3), X),
    "layout": (lambda np, x: (x.reshape(2, 3).T[::-1] * np.concatenate([x[2:], x[:2]]).reshape(3, 2)).ravel(), X),
    "where": (lambda np, x: np.where(x > 0.8, x**2, np.sin(x)), X),
    "matrix product": (lambda np, x: np.tanh(x @ x.T).sum(axis=0), M),
    "broadcast": (lambda np, x: (x[:, None] * x[None, :] / (1 + x[None, :])).sum(axis=1), X),
    "take": (lambda np, x: x[np.array([0, 2, 2, 5])] * x[1:5], X),
    "in place": (lambda np, x: _updated(np, x) * x, X),
    "cumsum": (lambda np, x: np.cumsum(x) * x, X),
    "prod": (lambda np, x: x.prod() * x, X),
    "maximum": (lambda np, x: np.maximum(x, x[::-1]) * np.minimum(x, 1.0), X),
    "norm": (lambda np, x: x / np.sqrt((x * x).sum()), X),
    "number": (lambda np, x: np.sin(x) * x**2 + np.exp(-x), 0.7),
    "hypot": (lambda np, x: np.hypot(x, x[::-1]) + np.arctan2(x, 2.0), X),
}
NAMES = list(FUNCTIONS)


def _of(name: str) -> tuple[Callable[..., Any], Any]:
    return FUNCTIONS[name]


@pytest.mark.parametrize("name", NAMES)
def test_gradient(name: str):
    f, x = _of(name)
    agrees(lambda np, lib: lib.value_and_grad(lambda x: (f(np, x) ** 2).sum()), x)


@pytest.mark.parametrize("name", NAMES)
def test_jvp(name: str):
    f, x = _of(name)
    agrees(lambda np, lib: lambda x, t: lib.jvp(lambda x: f(np, x), (x,), (t,)), x, np.cos(x))


@pytest.mark.parametrize("name", NAMES)
def test_vjp(name: str):
    f, x = _of(name)

    def make(np: Any, lib: Any) -> Callable[..., Any]:
        def both(x: Any) -> Any:
            value, pull = lib.vjp(lambda x: f(np, x), x)
            return value, pull(value / 2 + 1)

        return both

    agrees(make, x)


@pytest.mark.parametrize("name", NAMES)
def test_linearize(name: str):
    f, x = _of(name)

    def make(np: Any, lib: Any) -> Callable[..., Any]:
        def both(x: Any) -> Any:
            value, push = lib.linearize(lambda x: f(np, x), x)
            return value, push(x), push(np.sin(x))

        return both

    agrees(make, x)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["jacfwd", "jacrev"])
def test_jacobian(name: str, kind: str):
    f, x = _of(name)
    agrees(lambda np, lib: getattr(lib, kind)(lambda x: f(np, x)), x)


@pytest.mark.parametrize("name", NAMES)
def test_hessian(name: str):
    f, x = _of(name)
    agrees(lambda np, lib: lib.hessian(lambda x: (f(np, x) ** 2).sum()), x, rtol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_gradient_of_a_gradient(name: str):
    f, x = _of(name)

    def make(np: Any, lib: Any) -> Callable[..., Any]:
        first = lib.grad(lambda x: (f(np, x) ** 2).sum())
        return lib.grad(lambda x: (first(x) * np.cos(x)).sum())  # type: ignore[no-any-return]

    agrees(make, x, rtol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_third_order(name: str):
    f, x = _of(name)

    def make(np: Any, lib: Any) -> Callable[..., Any]:
        first = lib.grad(lambda x: f(np, x).sum())
        second = lib.grad(lambda x: (first(x) * np.cos(x)).sum())
        return lambda x: lib.jvp(second, (x,), (np.sin(x),))[1]

    agrees(make, x, rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_forward_over_reverse_and_back(name: str):
    f, x = _of(name)

    def make(np: Any, lib: Any) -> Callable[..., Any]:
        def slope(x: Any) -> Any:
            return (lib.jvp(lambda x: f(np, x), (x,), (np.cos(x),))[1] ** 2).sum()

        return lib.grad(slope)  # type: ignore[no-any-return]

    agrees(make, x, rtol=1e-8)


@pytest.mark.parametrize("name", NAMES)
def test_gradients_of_lanes(name: str):
    f, x = _of(name)
    lanes = np.stack([x, 1.1 * x, 0.9 * x])

    def make(np: Any, lib: Any) -> Callable[..., Any]:
        def loss(x: Any) -> Any:
            return (f(np, x) ** 2).sum()

        return lambda x: (lib.vmap(lib.grad(loss))(x), lib.grad(lambda x: lib.vmap(loss)(x).sum())(x))

    agrees(make, lanes)


FLOAT32 = {"polynomial", "elementary", "softmax", "matrix product", "in place", "number"}


@pytest.mark.parametrize("name", sorted(FLOAT32))
def test_float32_stays_float32(name: str):
    f, x = _of(name)
    found = agrees(
        lambda np, lib: lib.value_and_grad(lambda x: f(np, x).sum()), np.float32(x), rtol=2e-5, atol=2e-5
    )  # fmt: skip
    assert {np.asarray(y).dtype for y in found} == {np.dtype(np.float32)}


COMPLEX: dict[str, Callable[..., Any]] = {
    "product": lambda np, z: z * z * (1 + 2j),
    "elementary": lambda np, z: np.exp(z) / (1 + z * z),
    "parts": lambda np, z: z.real**2 - 3 * z.imag * z.real,
    "absolute": lambda np, z: np.abs(z) * z,
    "conjugate": lambda np, z: np.conj(z) * z**2,
    "angle": lambda np, z: np.arctan2(z.imag, z.real) * z,
}
Z = np.linspace(0.3, 1.1, 4) + 1j * np.linspace(-0.7, 0.9, 4)


@pytest.mark.parametrize("name", list(COMPLEX))
def test_real_functions_of_complex_numbers(name: str):
    f = COMPLEX[name]

    def make(np: Any, lib: Any) -> Callable[..., Any]:
        return lambda z: lib.vjp(lambda z: np.abs(f(np, z)).sum(), z)[1](1.5)

    agrees(make, Z)


@pytest.mark.parametrize("name", list(COMPLEX))
def test_complex_tangents_and_cotangents(name: str):
    f = COMPLEX[name]

    def make(np: Any, lib: Any) -> Callable[..., Any]:
        def both(z: Any) -> Any:
            value, pull = lib.vjp(lambda z: f(np, z), z)
            return lib.jvp(lambda z: f(np, z), (z,), (z / 2,)), pull(value / 2)

        return both

    agrees(make, Z)


@pytest.mark.parametrize("name", ["product", "elementary"])
def test_holomorphic_functions(name: str):
    f = COMPLEX[name]
    agrees(lambda np, lib: lib.grad(lambda z: f(np, z).sum(), holomorphic=True), Z)
    agrees(lambda np, lib: lib.jacfwd(lambda z: f(np, z), holomorphic=True), Z)
    agrees(lambda np, lib: lib.jacrev(lambda z: f(np, z), holomorphic=True), Z)
    agrees(lambda np, lib: lib.hessian(lambda z: f(np, z).sum(), holomorphic=True), Z)


@pytest.mark.parametrize("name", list(COMPLEX))
def test_gradients_by_complex_numbers(name: str):
    """Their gradients, also where complex and real numbers stand in one pytree."""
    f = COMPLEX[name]
    agrees(lambda np, lib: lib.value_and_grad(lambda z: (abs(f(np, z)) ** 2).sum()), Z)
    agrees(lambda np, lib: lib.jacrev(lambda z: abs(f(np, z)) + f(np, z).imag), Z)
    agrees(lambda np, lib: lib.grad(lambda p: (abs(f(np, p["z"])) * p["x"][:1]).sum()), {"z": Z, "x": X})


def test_a_complex_function_of_real_numbers_has_a_forward_jacobian():
    agrees(lambda np, lib: lib.jacfwd(lambda x: np.exp(1j * x) * x), X)


@pytest.mark.parametrize("kind", ["jacfwd", "jacrev", "hessian"])
def test_one_program_serves_every_size(kind: str):
    transformed = getattr(tn, kind)(lambda x: np.sin(x) * x.sum())
    jitted = tn.jit(transformed)
    for n in range(12):
        x = np.linspace(0, 1, n)
        same(jitted(x), transformed(x), str(n))
    assert jitted.cache_info().compiles == 1


def test_jacobians_with_aux():
    def f(x: Any) -> Any:
        return (x**3, {"x": x})

    for kind, shape in ((tn.jacfwd, (6, 6)), (tn.jacrev, (6, 6)), (tn.hessian, (6, 6, 6))):
        found, aux = kind(f, has_aux=True)(X)
        assert found.shape == shape
        np.testing.assert_array_equal(aux["x"], X)
