"""``check_grads`` finds wrong derivatives, and passes right ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro as tn

check_grads = tn.test_util.check_grads
X = np.linspace(0.2, 1.4, 5)


@pytest.mark.parametrize("order", [1, 2, 3])
@pytest.mark.parametrize("modes", [("fwd",), ("rev",), ("fwd", "rev"), "rev"])
def test_right_derivatives_pass(order: int, modes: Any):
    check_grads(lambda x, p: np.sin(x) * p["a"].sum() + p["b"] ** 3, (X, {"a": X[:2], "b": 1.5}), order, modes)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_dtypes(dtype: str):
    x = (X * (1 + 0.5j)).astype(dtype) if dtype.startswith("c") else X.astype(dtype)
    check_grads(lambda x: x**3 / (1 + x), (x,), 2)


def test_jitted_functions():
    check_grads(tn.jit(lambda x: np.exp(-x) * x), (X,), 2)


def wrong(slope: Any) -> Any:
    @tn.custom_jvp
    def f(x: Any) -> Any:
        return x**3

    f.defjvp(lambda primals, tangents: (primals[0] ** 3, slope(primals[0], tangents[0])))
    return f


@pytest.mark.parametrize("modes", ["fwd", "rev"])
def test_wrong_derivatives_are_found(modes: str):
    with pytest.raises(AssertionError, match=r"check_grads: .*the largest difference is .*atol=1e-05"):
        check_grads(wrong(lambda x, t: 2 * x * x * t), (X,), 1, modes)


def test_wrong_second_derivatives_are_found():
    f = wrong(lambda x, t: 3 * tn.stop_gradient(x) * x * t)
    check_grads(f, (X,), 1)
    with pytest.raises(AssertionError, match="of JVP"):
        check_grads(f, (X,), 2, "fwd")


def test_tolerances():
    f = wrong(lambda x, t: 3.001 * x * x * t)
    check_grads(f, (X,), 1, atol=1e-1, rtol=1e-1)
    with pytest.raises(AssertionError, match="atol=1e-09"):
        check_grads(f, (X,), 1, atol=1e-9, rtol=1e-9)
    check_grads(lambda x: abs(x) ** 1.5, (X,), 1, eps=1e-4)


def test_settings():
    with pytest.raises(ValueError, match="order is 0"):
        check_grads(np.sin, (X,), 0)
    with pytest.raises(ValueError, match="modes"):
        check_grads(np.sin, (X,), 1, ["both"])
