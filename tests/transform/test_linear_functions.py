"""``jvp``, ``vjp``, ``linearize`` and ``linear_transpose``: the functions that they hand out, wherever they are
called."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import DerivativeError, LeakError, ShapeError
from tests.transform.peer import agrees, same

X = np.linspace(0.2, 1.4, 5)
Y = np.linspace(1.0, 2.0, 5)


def f(x: Any, y: Any) -> Any:
    return {"a": np.sin(x) * y, "b": (x * x).sum()}


CT = {"a": Y, "b": 2.0}
WANTED = (np.cos(X) * Y * Y + 4 * X, np.sin(X) * Y)


# -- pullbacks ---------------------------------------------------------------------------------------------------------


def test_a_pullback_is_called_again_and_again():
    value, pull = tn.vjp(f, X, Y)
    np.testing.assert_allclose(value["a"], np.sin(X) * Y)
    for k in (1.0, 2.0):
        found = pull({"a": k * Y, "b": 2.0 * k})
        assert type(found) is tuple
        for g, wanted in zip(found, WANTED, strict=True):
            np.testing.assert_allclose(g, k * wanted)


def test_pullbacks_inside_and_outside_have_equal_bits():
    wanted = tn.jit(lambda x, y, ct: tn.vjp(f, x, y)[1](ct))(X, Y, CT)
    _, pull = tn.vjp(f, X, Y)
    same(pull(CT), wanted, "outside")
    same(tn.jit(pull)(CT), wanted, "jitted")
    same(tn.jit(lambda p, ct: p(ct))(pull, CT), wanted, "as an argument")
    same(tn.jit(lambda ct: pull(ct))(CT), wanted, "captured")
    _, returned = tn.jit(lambda x, y: tn.vjp(f, x, y))(X, Y)
    same(returned(CT), wanted, "as a result")


def test_a_captured_pullback_may_be_exchanged():
    _, pull = tn.vjp(lambda x: x * x, X)

    @tn.jit
    def use(ct: Any) -> Any:
        return pull(ct)[0]

    same(use(Y), 2 * X * Y, "first")
    _, pull = tn.vjp(lambda x: 3 * x, X)
    same(use(Y), 3 * Y, "second")


def test_a_pullback_holds_values_of_its_own():
    x = X.copy()
    _, pull = tn.vjp(lambda x: x * x, x)
    x[:] = 0
    same(pull(Y)[0], 2 * X * Y, "after a write")


def test_a_pullback_is_transformed():
    _, pull = tn.vjp(f, X, Y)
    slope = tn.grad(lambda ct: (pull({"a": ct, "b": 0.0})[0] ** 2).sum())
    np.testing.assert_allclose(slope(Y), 2 * (np.cos(X) * Y) ** 2 * Y)
    lanes = tn.vmap(lambda ct: pull({"a": ct, "b": 1.0})[1])(np.stack([X, Y]))
    np.testing.assert_allclose(lanes, np.stack([X, Y]) * np.sin(X))


def test_a_pullback_in_lanes_of_its_points():
    def one(x: Any) -> Any:
        _, pull = tn.vjp(lambda x: np.sin(x) * x, x)
        return pull(1.0)[0]

    np.testing.assert_allclose(tn.vmap(one)(X), np.cos(X) * X + np.sin(X))


def test_one_pullback_serves_every_size_of_its_kind():
    prepared = tn.jit(lambda x, ct: tn.vjp(lambda x: x * x, x)[1](ct))
    for n in range(1, 20):
        x = np.linspace(0, 1, n)
        same(tn.vjp(lambda x: x * x, x)[1](x)[0], prepared(x, x)[0], str(n))
    assert prepared.cache_info().compiles == 1


def test_sizes_that_depend_on_elements():
    def g(x: Any) -> Any:
        big = x[x > 0.5]
        return big * big

    value, pull = tn.vjp(g, X)
    same(value, X[X > 0.5] ** 2, "value")
    wanted = np.where(X > 0.5, 2 * X, 0)
    same(pull(np.ones(value.shape))[0], wanted, "outside")
    value, returned = tn.jit(lambda x: tn.vjp(g, x))(X)
    same(returned(np.ones(value.shape))[0], wanted, "as a result")


def test_aux():
    value, pull, aux = tn.vjp(lambda x: (x.sum(), {"twice": 2 * x, "n": "text"}), X, has_aux=True)
    assert value == pytest.approx(X.sum())
    same(aux["twice"], 2 * X, "aux")
    assert aux["n"] == "text"
    same(pull(1.0)[0], np.ones(5), "pull")
    value, push, aux = tn.linearize(lambda x: (x * x, 3), X, has_aux=True)
    same(push(Y), 2 * X * Y, "push")
    assert aux == 3
    value, slope, aux = tn.jvp(lambda x: (x * x, x), (X,), (Y,), has_aux=True)
    same((slope, aux), (2 * X * Y, X), "jvp")


def test_integers_have_zeros():
    _, pull = tn.vjp(lambda x, n: x * n, X, np.arange(5))
    slope, zeros = pull(Y)
    same(slope, Y * np.arange(5), "slope")
    same(zeros, np.zeros(5, np.int64), "zeros")


def test_cotangents_of_other_types_are_refused():
    _, pull = tn.vjp(f, X, Y)
    for ct, text in (
        (3.0, r"the cotangent: of structure \*; that of the values, dict"),
        ({"a": Y[1:], "b": 1.0}, r"cotangent\['a'\]: float64 of shape \(4,\); float64 of shape \(5,\) is needed"),
        ({"a": np.float32(Y), "b": 1.0}, r"cotangent\['a'\]: float32 of shape \(5,\); float64"),
        ({"a": Y, "b": 1j}, r"cotangent\['b'\]: complex128 of shape \(\); float64"),
    ):
        with pytest.raises(ShapeError, match=text):
            pull(ct)
    with pytest.raises(TypeError, match="2 arguments; one is needed"):
        pull(CT, CT)


def test_a_pullback_that_leaks_from_its_trace_is_refused():
    kept: list[Any] = []

    @tn.jit
    def g(x: Any) -> Any:
        value, pull = tn.vjp(lambda x: x * x, x)
        kept.append(pull)
        return value

    with pytest.raises((LeakError, tn.MutationError)):
        g(X)
        kept[0](X)


def test_a_pullback_lets_its_arrays_go():
    x = np.ones(1000)
    before = sys.getrefcount(x)
    _, pull = tn.vjp(lambda x: np.sin(x) * x, x)
    pull(x)
    del pull
    assert sys.getrefcount(x) == before


# -- tangents ----------------------------------------------------------------------------------------------------------


def test_tangents():
    value, push = tn.linearize(f, X, Y)
    wanted = tn.jvp(f, (X, Y), (Y, X))
    same((value, push(Y, X)), wanted, "linearize")
    same(tn.jit(lambda x, y: tn.jvp(f, (x, y), (y, x)))(X, Y), wanted, "jitted")
    same(tn.jit(push)(Y, X), wanted[1], "jitted push")


def test_python_numbers_are_tangents_of_any_float():
    x = np.float32(2)
    value, slope = tn.jvp(lambda x: x * x, (x,), (1.0,))
    assert value.dtype == slope.dtype == np.float32
    assert tn.jvp(lambda x: x * x, (2.0,), (1,))[1] == 4


@pytest.mark.parametrize(
    ("primals", "tangents", "error", "text"),
    [
        ((X,), (Y, Y), ShapeError, r"the tangents: of structure tuple\(\*, \*\); .* tuple\(\*\), is needed"),
        ((X,), (Y[1:],), ShapeError, r"the tangents\[0\]: float64 of shape \(4,\)"),
        ((X,), (1j * Y,), ShapeError, r"the tangents\[0\]: complex128"),
        (X, (Y,), TypeError, "primals of class ndarray; a tuple with one entry for each argument"),
        ((X,), Y, TypeError, "tangents of class ndarray; a tuple"),
    ],
)
def test_tangents_that_do_not_fit_are_refused(primals: Any, tangents: Any, error: type[Exception], text: str):
    with pytest.raises(error, match=text):
        tn.jvp(np.sin, primals, tangents)


# -- transposes --------------------------------------------------------------------------------------------------------


def test_transposes():
    w = np.random.default_rng(0).standard_normal((3, 5))

    def make(np: Any, lib: Any) -> Any:
        def linear(x: Any, y: Any) -> Any:
            return {"p": w @ x + y.sum(), "q": x[::-1][1:] * 2}

        def transposed(x: Any, y: Any) -> Any:
            return lib.linear_transpose(linear, x, y)({"p": x[:3], "q": y[1:]})

        return transposed

    agrees(make, X, Y)


def test_transposes_need_nothing_but_shapes():
    shape = tn.ShapeDtypeStruct((5,), "float64")
    same(tn.linear_transpose(lambda x: 3 * x[1:], shape)(X[1:])[0], np.array([0, *(3 * X[1:])]), "transposed")
    same(tn.jit(tn.linear_transpose(np.sum, shape))(2.0)[0], np.full(5, 2.0), "jitted")


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (lambda x: x * x, "multiply, in which the result is not linear"),
        (np.sin, "sin, in which the result is not linear"),
        (lambda x: 1 / x, "divide, in which the result is not linear"),
        (lambda x: np.where(x > 0, x, 2 * x), "where, in which the result is not linear"),
        (lambda x: np.abs(x), "absolute, in which the result is not linear"),
        (lambda x: np.ones(5), "a result does not depend on the arguments"),
    ],
)
def test_what_is_not_linear_has_no_transpose(function: Any, text: str):
    with pytest.raises(DerivativeError, match=text):
        tn.linear_transpose(function, X)(Y)


def test_integers_have_no_transpose():
    with pytest.raises(DerivativeError, match="dtype int64; floats are needed"):
        tn.linear_transpose(lambda x: x * 2.0, np.arange(3))(X[:3])
