"""``grad`` and ``value_and_grad``: what goes in and comes out, in every kind of call; and what is refused, in what
words."""

from __future__ import annotations

import dataclasses
from collections import namedtuple
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import DerivativeError, LeakError, MutationError, TraceError
from tests.table.agreement import bits

X = np.linspace(0.1, 1.0, 5)
W = np.linspace(1.0, 2.0, 5)


def cube(x: Any) -> Any:
    return (x**3).sum()


def equal(found: Any, wanted: Any) -> None:
    assert bits(np.asarray(found), np.asarray(wanted)) is None


# -- kinds of arguments ------------------------------------------------------------------------------------------------


@dataclasses.dataclass
class Weights:
    w: Any
    b: Any
    name: str = dataclasses.field(default="layer", metadata={"static": True})


Pair = namedtuple("Pair", "w b")


@pytest.mark.parametrize("make", [Weights, Pair, lambda w, b: {"w": w, "b": b}, lambda w, b: [w, (b, None)]])
def test_pytrees_have_gradients_of_their_own_structure(make: Callable[..., Any]):
    def loss(p: Any) -> Any:
        w, b = tn.tree.leaves(p)
        return (w * X).sum() * b

    for gradient in (tn.grad(loss), tn.jit(tn.grad(loss))):
        found = gradient(make(W, 2.0))
        assert tn.tree.structure(found) == tn.tree.structure(make(W, 2.0))
        first, second = tn.tree.leaves(found)
        equal(first, 2 * X)
        np.testing.assert_allclose(second, (W * X).sum())


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_numpy_scalars_and_arrays_of_rank_0(dtype: str):
    x = np.dtype(dtype).type(3)
    for value in (x, np.array(x)):
        found = tn.grad(lambda x: x**2)(value)
        assert type(found) is type(value)
        assert found.dtype == dtype
        assert found == 6


def test_python_floats_give_numpy_scalars():
    found = tn.grad(lambda x: x**2)(3.0)
    assert type(found) is np.float64
    assert found == 6
    # a Python number gives way
    assert tn.grad(lambda x: (np.float32(2) * x) ** 2)(3.0).dtype == np.float64
    assert tn.grad(lambda y, x: (y * x).sum(), 0)(np.ones(3, np.float32), 2.0).dtype == np.float32


def test_tenferro_arrays_in_and_out():
    found = tn.grad(lambda x, y: (x * y).sum(), (0, 1))(tn.array(X), W)
    assert [type(g) for g in found] == [tn.Array, tn.Array]
    equal(found[0], W)
    equal(found[1], X)


def test_fortran_order_and_slices():
    a = np.asfortranarray(np.arange(12.0).reshape(3, 4))[:, ::2]
    equal(tn.grad(cube)(a), 3 * a**2)


def test_arrays_of_no_elements():
    equal(tn.grad(cube)(np.zeros(0)), np.zeros(0))


def test_integers_among_the_arguments():
    def power(x: Any, n: Any) -> Any:
        return (x**n).sum()

    equal(tn.grad(power)(X, 3), tn.grad(cube)(X))
    equal(tn.jit(tn.grad(power), static_argnums=1)(X, 2), 2 * X)
    found = tn.grad(lambda p: (p["x"] * p["n"]).sum(), allow_int=True)({"x": X, "n": np.arange(5)})
    equal(found["x"], np.arange(5.0))
    equal(found["n"], np.zeros(5, np.int64))


def test_what_is_no_number_is_handed_on():
    def loss(p: Any) -> Any:
        return (p["w"] ** 2).sum() if p["mode"] == "square" else p["w"].sum()

    found = tn.grad(loss)({"w": X, "mode": "square"})
    assert found["mode"] == "square"
    equal(found["w"], 2 * X)


def test_argnums():
    def f(x: Any, y: Any, z: Any) -> Any:
        return x * y + z

    assert tn.grad(f, 1)(2.0, 3.0, 4.0) == 2
    assert tn.grad(f, -1)(2.0, 3.0, 4.0) == 1
    assert tn.grad(f, (1, 0))(2.0, 3.0, 4.0) == (2, 3)
    assert tn.value_and_grad(f, [0])(2.0, 3.0, 4.0) == (10, (3,))


def test_keyword_arguments_are_constants():
    assert tn.grad(lambda x, *, y: x * y)(2.0, y=3.0) == 3


def test_aux_comes_along():
    def loss(x: Any) -> Any:
        return x.sum(), {"twice": x * 2, "name": "loss"}

    for gradient in (tn.grad(loss, has_aux=True), tn.jit(tn.grad(loss, has_aux=True))):
        slope, aux = gradient(X)
        equal(slope, np.ones(5))
        equal(aux["twice"], X * 2)
        assert aux["name"] == "loss"
    (value, aux), slope = tn.value_and_grad(loss, has_aux=True)(X)
    assert value == X.sum()
    assert aux["name"] == "loss"


# -- functions of all kinds --------------------------------------------------------------------------------------------


def test_jit_and_grad_in_every_order():
    wanted = tn.grad(cube)(X)
    for gradient in (
        tn.jit(tn.grad(cube)), tn.grad(tn.jit(cube)), tn.jit(tn.grad(tn.jit(cube))), tn.jit(tn.jit(tn.grad(cube))),
    ):  # fmt: skip
        equal(gradient(X), wanted)
    second = tn.grad(lambda x: tn.jit(tn.grad(cube))(x).sum())
    np.testing.assert_allclose(second(X), 6 * X)
    equal(tn.jit(second)(X), second(X))


def test_as_decorators():
    @tn.jit
    @tn.grad
    def slope(x: Any) -> Any:
        return x**3

    @tn.grad
    @tn.jit
    def other(x: Any) -> Any:
        return x**3

    assert slope(2.0) == other(2.0) == 12
    assert slope.__name__ == "grad(slope)"
    assert "multiply" in str(slope.trace(2.0))


class Model:
    def __init__(self, scale: float) -> None:
        self.scale = scale
        self.w = np.ones(5)

    def loss(self, x: Any) -> Any:
        return (x * x * self.scale * self.w).sum()

    @tn.jit
    def jitted(self, x: Any) -> Any:
        return (x * x * self.scale).sum()

    @tn.jit
    @partial(tn.grad, argnums=1)
    def slope(self, x: Any) -> Any:
        return (x * x * self.scale * self.w).sum()


def test_methods():
    model = Model(3.0)
    equal(tn.grad(model.loss)(X), 6 * X)
    equal(tn.grad(model.jitted)(X), 6 * X)
    equal(tn.jit(tn.grad(model.loss))(X), 6 * X)
    equal(model.slope(X), 6 * X)
    model.scale, model.w = 5.0, np.full(5, 2.0)
    for found in (tn.grad(model.loss)(X), model.slope(X)):
        np.testing.assert_allclose(found, 20 * X)


def test_numpy_functions_and_partials():
    assert tn.grad(np.sin)(0.0) == 1
    equal(tn.grad(np.sum)(X), np.ones(5))
    assert tn.grad(partial(np.power, 2.0))(1.0) == pytest.approx(2 * np.log(2))
    assert tn.jit(tn.grad(partial(lambda a, x: a * x, 3.0)))(1.0) == 3


GLOBAL = np.ones(5)


def test_captured_arrays_are_read_at_each_call():
    own = np.ones(5)

    def loss(x: Any) -> Any:
        return (x * own * GLOBAL).sum()

    gradient, jitted = tn.grad(loss), tn.jit(tn.grad(loss))
    for k in range(1, 4):
        own[:] = k
        equal(gradient(X), own)
        equal(jitted(X), own)
    assert jitted.cache_info().compiles == 1


def test_captured_numbers_are_followed_through_a_transformed_function():
    factor = 2.0
    slope = tn.grad(lambda x: factor * x)

    @tn.jit
    def use(x: Any) -> Any:
        return slope(x)

    assert use(1.0) == 2
    factor = 3.0
    assert use(1.0) == 3


def test_closures_over_traced_values_are_constants():
    def outer(x: Any) -> Any:
        return tn.grad(lambda y: x * y * y)(3.0)

    assert outer(2.0) == 12
    assert tn.grad(outer)(2.0) == 6
    assert tn.jit(tn.grad(outer))(2.0) == 6


# -- what a function may do --------------------------------------------------------------------------------------------


def test_python_sees_present_values_outside_jit(capsys: pytest.CaptureFixture[str]):
    def f(x: Any) -> Any:
        while x < 100:
            x = x * x
        print(x > 10)
        return x if x > 0 else -x

    assert tn.grad(f)(3.0) == 8 * 3.0**7
    assert capsys.readouterr().out == "True\n"
    with pytest.raises(TraceError, match="while|if|bool"):
        tn.jit(tn.grad(f))(3.0)


def test_updates_in_place():
    def f(x: Any) -> Any:
        y = x.copy()
        y[1:] *= 2
        y[0] += y[-1]
        return (y * y).sum()

    wanted = np.array([2 * (X[0] + 2 * X[-1]), *(8 * X[1:])])
    wanted[-1] += 4 * (X[0] + 2 * X[-1])
    np.testing.assert_allclose(tn.grad(f)(X), wanted)
    equal(tn.jit(tn.grad(f))(X), tn.grad(f)(X))


def test_elements_written_in_a_loop():
    def f(x: Any) -> Any:
        out = np.zeros(4)
        for k in range(4):
            out[k] = x[k] * x[k + 1]
        return out.sum()

    wanted = np.array([X[1], X[0] + X[2], X[1] + X[3], X[2] + X[4], X[3]])
    np.testing.assert_allclose(tn.grad(f)(X), wanted)
    equal(tn.jit(tn.grad(f))(X), tn.grad(f)(X))


def test_sizes_that_depend_on_elements():
    def f(x: Any) -> Any:
        big = x[x > 0.3]
        return (big**2).sum() / big.shape[0]

    wanted = np.where(X > 0.3, 2 * X / 4, 0)
    for gradient in (tn.grad(f), tn.jit(tn.grad(f))):
        np.testing.assert_allclose(gradient(X), wanted)


def test_a_zero_cotangent_is_no_nan():
    x = np.array([0.0, 1.0, -1.0])
    with np.errstate(all="ignore"):
        for f, wanted in (
            (lambda x: np.where(x > 0, np.sqrt(x), 0.0), [0, 0.5, 0]),
            (lambda x: np.where(x > 0, np.log(x) / x, x), [1, 1, 1]),
            (lambda x: np.where(x == 0, x, np.sin(x) / x), [1, np.cos(1) - np.sin(1), np.sin(1) - np.cos(1)]),
        ):  # fmt: skip
            for gradient in (tn.grad(lambda x, f=f: f(x).sum()), tn.jit(tn.grad(lambda x, f=f: f(x).sum()))):
                np.testing.assert_allclose(gradient(x), wanted, atol=1e-15)
            second = tn.grad(lambda x, f=f: tn.grad(lambda y: f(y).sum())(x).sum())
            assert not np.isnan(second(x)).any()


def test_constant_functions():
    equal(tn.grad(lambda x: 3.0)(X), np.zeros(5))
    equal(tn.grad(lambda x: np.floor(x).sum())(X), np.zeros(5))
    equal(tn.grad(lambda x: (x > 0.5).sum() * 1.0)(X), np.zeros(5))


def test_stop_gradient():
    assert tn.stop_gradient(X) is X
    equal(tn.grad(lambda x: (tn.stop_gradient(x) * x).sum())(X), X)
    equal(tn.jit(tn.grad(lambda x: (tn.stop_gradient({"a": x})["a"] * x).sum()))(X), X)
    equal(tn.vmap(tn.grad(lambda x: tn.stop_gradient(x) * x))(X), X)
    assert "stop_gradient" not in str(tn.jit(lambda x: tn.stop_gradient(x) * x).trace(X))


def test_many_sizes_are_one_program():
    gradient = tn.jit(tn.grad(cube))
    for n in range(1, 40):
        x = np.linspace(0, 1, n)
        np.testing.assert_allclose(gradient(x), 3 * x**2)
    assert gradient.cache_info().compiles == 1


def test_places_may_be_numpys_integers():
    for place in (np.int64(1), np.int8(-1), True):
        assert tn.grad(lambda x, y: x * y**2, place)(3.0, 2.0) == 12.0
        assert tn.jacfwd(lambda x, y: x * y**2, place)(3.0, 2.0) == 12.0
    assert tn.grad(lambda x, y: x * y**2, np.array([1, 0]))(3.0, 2.0) == (12.0, 4.0)


# -- refusals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: tn.grad(cube)(3), DerivativeError, r"argument\[0\] of dtype int64; floats are needed: x.astype"),
        (lambda: tn.grad(cube)(np.arange(3)), DerivativeError, "dtype int64; floats are needed"),
        (lambda: tn.grad(cube)(np.array([True])), DerivativeError, "dtype bool; floats are needed"),
        (lambda: tn.grad(cube)({"a": X, "b": 1}["b"]), DerivativeError, "dtype int64"),
        (
            lambda: tn.grad(lambda p: p["a"])({"a": 1j}),
            DerivativeError,
            "complex128 of shape .*; one real .* holomorphic",
        ),
        (lambda: tn.jacfwd(abs)(1j), DerivativeError, r"argument\[0\] of dtype complex128; holomorphic"),
        (lambda: tn.grad(cube, holomorphic=True)(X), DerivativeError, "complex numbers are needed for holomorphic"),
        (lambda: tn.grad(lambda x: x * 2)(X), DerivativeError, r"float64 of shape \(5,\); one real number is needed"),
        (lambda: tn.grad(lambda x: (x.sum(), x.sum()))(X), DerivativeError, "returned 2 values; one real number"),
        (lambda: tn.grad(lambda x: None)(X), DerivativeError, "returned no values; one real number"),
        (lambda: tn.grad(lambda x: x.astype(int).sum())(X), DerivativeError, "int64 of shape"),
        (lambda: tn.grad(lambda x: "text")(X), TraceError, "result: of class builtins.str"),
        (lambda: tn.grad(cube, 1)(X), TypeError, "argument 1 of a call with 1 positional"),
        (lambda: tn.grad(cube)(x=X), TypeError, "argument 0 of a call with 0 positional"),
        (lambda: tn.grad(cube, (0, -1))(X), ValueError, "names an argument twice"),
        (lambda: tn.grad(cube, "x")(X), TypeError, "argnums is 'x'; an int or a sequence"),
        (lambda: tn.grad(cube, has_aux=True)(X), DerivativeError, "an array under has_aux=True; a pair"),
        (lambda: tn.grad(lambda x: x.sum())(np.array(["a"])), tn.DtypeError, r"argument\[0\]: dtype <U1"),
        (
            lambda: tn.grad(cube)({"a": np.ma.array(X)}),
            tn.DtypeError,
            r"argument\[0\]\['a'\]: an array of class numpy.ma",
        ),
        (lambda: tn.grad(cube)("text"), DerivativeError, "argument 0 of class str; an array or a number of floats"),
        (lambda: tn.grad(3), TypeError, "an object of class int; a function is needed"),
    ],
)
def test_what_has_no_gradient_is_refused(call: Callable[[], Any], error: type[Exception], text: str):
    with pytest.raises(error, match=text) as found:
        call()
    assert __file__ in str(found.value)


def test_writing_an_argument_is_refused():
    def f(x: Any) -> Any:
        x[1:] *= 2
        return x.sum()

    with pytest.raises(MutationError, match=r"argument\[0\] of grad\(f\) is not the function's own; .* x.copy\(\)"):
        tn.grad(f)(X)


def test_leaked_values_are_refused():
    kept: list[Any] = []
    tn.grad(lambda x: (kept.append(x), x)[1])(1.0)
    with pytest.raises(LeakError, match="used after the trace"):
        kept[0] + 1


def test_second_derivatives_of_products_of_sums():
    """One-hot numbers of a single lane beside a sum: what counts along an axis of size 1 is no axis of the sum."""
    a, b = np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.5, -1.0, 2.0])
    h = tn.hessian(lambda a, b: np.sum(a**2) * np.sum(b), (0, 1))
    for f in (h, tn.jit(h)):
        (aa, ab), (ba, bb) = f(a, b)
        np.testing.assert_allclose(aa, 2 * b.sum() * np.eye(4))
        np.testing.assert_allclose(ab, np.outer(2 * a, np.ones(3)))
        np.testing.assert_allclose(ba, ab.T)
        np.testing.assert_allclose(bb, np.zeros((3, 3)))
    ones = tn.jit(lambda x: np.where(tn.lax.iota(np.int64, 1) == 0, 1.0, 2.0) * x.sum())
    np.testing.assert_allclose(ones(a), [10.0])
