"""``tn.nn``, ``tn.special``, convolutions and windows: values and slopes as JAX's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import ShapeError

jax = pytest.importorskip("jax")
jax.config.update("jax_enable_x64", True)
jnp = jax.numpy
from jax.scipy import special as jax_special  # noqa: E402

RNG = np.random.default_rng(0)
X = RNG.normal(size=(2, 3, 8, 9))
W = RNG.normal(size=(4, 3, 3, 2))
V = np.linspace(-5, 5, 31)
U = np.linspace(0.01, 0.99, 20)


def compare(mine: Callable[..., Any], theirs: Callable[..., Any], *arguments: Any) -> None:
    expected = theirs(*arguments)
    for f in (mine, tn.jit(mine)):
        found = f(*arguments)
        assert np.shape(found) == expected.shape
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-12)
    places = tuple(range(len(arguments)))
    slopes = tn.grad(lambda *a: np.sin(mine(*a)).sum(), places)(*arguments)
    others = jax.grad(lambda *a: jnp.sin(theirs(*a)).sum(), places)(*map(jnp.asarray, arguments))
    for a, b in zip(slopes, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("padding", ["SAME", "VALID", [(1, 2), (0, 1)]], ids=str)
@pytest.mark.parametrize("strides", [(1, 1), (2, 3)])
def test_convolutions(padding: Any, strides: Any) -> None:
    compare(
        lambda x, w: tn.lax.conv_general_dilated(x, w, strides, padding),
        lambda x, w: jax.lax.conv_general_dilated(x, w, strides, padding), X, W,
    )  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {"padding": "VALID", "rhs_dilation": (2, 3)},
        {"padding": [(1, 1), (2, 0)], "lhs_dilation": (2, 3)},
        {"padding": "SAME", "dimension_numbers": ("NCHW", "OIHW", "NHWC")},
    ],
    ids=["rhs", "lhs", "numbers"],
)
def test_dilation_and_numbers(options: Any) -> None:
    compare(
        lambda x, w: tn.lax.conv_general_dilated(x, w, (1, 1), **options),
        lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), **options), X, W,
    )  # fmt: skip


def test_features_last_groups_and_one_axis() -> None:
    numbers = ("NHWC", "HWIO", "NHWC")
    compare(
        lambda x, w: tn.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers),
        lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", dimension_numbers=numbers),
        X.transpose(0, 2, 3, 1), W.transpose(2, 3, 1, 0),
    )  # fmt: skip
    compare(
        lambda x, w: tn.lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=3),
        lambda x, w: jax.lax.conv_general_dilated(x, w, (1, 1), "SAME", feature_group_count=3),
        X, RNG.normal(size=(6, 1, 3, 3)),
    )  # fmt: skip
    compare(
        lambda x, w: tn.lax.conv(x, w, (2,), "VALID"),
        lambda x, w: jax.lax.conv(x, w, (2,), "VALID"),
        X[..., 0],
        W[..., 0],
    )


def test_one_program_serves_any_batch_and_size() -> None:
    f = tn.jit(lambda x, w: tn.lax.conv_general_dilated(x, w, (1, 1), "VALID"))
    for shape in ((1, 3, 5, 6), (4, 3, 9, 7), (0, 3, 5, 5)):
        x = RNG.normal(size=shape)
        np.testing.assert_allclose(f(x, W), jax.lax.conv_general_dilated(x, W, (1, 1), "VALID"))
    assert len(f.explain().traces) == 1


@pytest.mark.parametrize("name", ["max", "min", "add"])
@pytest.mark.parametrize("padding", ["SAME", "VALID"])
def test_windows(name: str, padding: str) -> None:
    init = {"max": -np.inf, "min": np.inf, "add": 0.0}[name]
    compare(
        lambda x: tn.lax.reduce_window(x, init, getattr(tn.lax, name), (1, 1, 3, 2), (1, 1, 2, 1), padding),
        lambda x: jax.lax.reduce_window(x, init, getattr(jax.lax, name), (1, 1, 3, 2), (1, 1, 2, 1), padding), X,
    )  # fmt: skip


def test_top_k() -> None:
    compare(lambda x: tn.lax.top_k(x, 3)[0], lambda x: jax.lax.top_k(x, 3)[0], X)
    ties = np.array([[1, 3, 3, 2], [5, 5, 5, 0]])
    np.testing.assert_array_equal(tn.lax.top_k(ties, 3)[1], jax.lax.top_k(ties, 3)[1])


NN = (
    "relu", "relu6", "sigmoid", "log_sigmoid", "softplus", "silu", "gelu", "elu", "celu", "selu", "leaky_relu",
    "hard_tanh",
    "hard_sigmoid", "hard_silu", "soft_sign", "mish", "softmax", "log_softmax", "logsumexp", "standardize",
)  # fmt: skip


@pytest.mark.parametrize("name", NN)
def test_activations(name: str) -> None:
    compare(getattr(tn.nn, name), getattr(jax.nn, name), V)


@pytest.mark.parametrize("name", ["expit", "erf", "erfc", "ndtr", "logit", "entr", "erfinv"])
def test_special(name: str) -> None:
    compare(getattr(tn.special, name), getattr(jax_special, name), U)


@pytest.mark.parametrize("name", ["xlogy", "xlog1py", "rel_entr"])
def test_special_of_two(name: str) -> None:
    compare(getattr(tn.special, name), getattr(jax_special, name), U, U[::-1] + 0.1)


def test_masked_rows() -> None:
    x, mask = V.reshape(1, -1), (V > -1).reshape(1, -1)
    for name in ("softmax", "log_softmax"):
        np.testing.assert_allclose(
            getattr(tn.nn, name)(x, where=mask), getattr(jax.nn, name)(x, where=mask), rtol=1e-12
        )
    np.testing.assert_allclose(
        tn.nn.logsumexp(x, axis=1, b=mask * 2.0), jax.nn.logsumexp(jnp.asarray(x), axis=1, b=mask * 2.0), rtol=1e-12
    )


def test_one_hot() -> None:
    for axis in (-1, 0):
        np.testing.assert_array_equal(
            tn.nn.one_hot(np.array([0, 2, 5]), 4, axis=axis), jax.nn.one_hot(np.array([0, 2, 5]), 4, axis=axis)
        )


def test_what_does_not_fit() -> None:
    with pytest.raises(ShapeError, match="one rank"):
        tn.lax.conv_general_dilated(X, W[0], (1, 1), "SAME")
    with pytest.raises(ShapeError, match="features"):
        tn.lax.conv_general_dilated(X, W[:, :2], (1, 1), "SAME")
    with pytest.raises(ShapeError, match="padding"):
        tn.lax.conv_general_dilated(X[..., :1, :1], W, (1, 1), "VALID")
    with pytest.raises(ShapeError, match="padding 'EVEN'"):
        tn.lax.conv_general_dilated(X, W, (1, 1), "EVEN")
