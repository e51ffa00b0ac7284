"""What rules emit is fused like anything else: gradients of losses are a kernel or two, without idle guards."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

X = np.random.default_rng(0).normal(size=(40, 50)).astype(np.float32)
LABELS = np.arange(40) % 50


def gelu(x: Any) -> Any:
    return (0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x**3)))).sum()


def log_sum_exp(x: Any) -> Any:
    largest = x.max(axis=1, keepdims=True)
    return (np.log(np.exp(x - largest).sum(axis=1)) + largest[:, 0]).mean()


def layer_norm(x: Any) -> Any:
    normal = (x - x.mean(axis=-1, keepdims=True)) / np.sqrt(x.var(axis=-1, keepdims=True) + 1e-5)
    return ((normal - 0.5) ** 3).mean()


def cross_entropy(x: Any) -> Any:
    z = x - tn.stop_gradient(x.max(axis=1, keepdims=True))
    return -(z - np.log(np.exp(z).sum(axis=1, keepdims=True)))[np.arange(40), LABELS].mean()


def squared_error(x: Any) -> Any:
    return ((np.tanh(x) - 1) ** 2).mean()


LARGE: dict[Callable[[Any], Any], tuple[int, int]] = {
    gelu: (1, 0), log_sum_exp: (1, 0), layer_norm: (1, 0), cross_entropy: (2, 1), squared_error: (1, 0),
}  # fmt: skip
"""Regions over all elements, and calls: only what was picked by index goes back through one."""


@pytest.mark.parametrize("loss", LARGE)
def test_gradients_are_few_regions(loss: Callable[[Any], Any]) -> None:
    text = tn.jit(tn.grad(loss)).lower(X).as_text("regions")
    headers = [line for line in text.splitlines() if line.startswith("region ")]
    large = [line for line in headers if "d0_0, d0_1" in line or "d0_0*d0_1" in line]
    calls = [line for line in text.splitlines() if line.startswith("call ")]
    assert (len(large), len(calls)) == LARGE[loss], text


@pytest.mark.parametrize("loss", LARGE)
def test_one_program_serves_every_size(loss: Callable[[Any], Any]) -> None:
    """And has the bits of a program made for each."""
    if loss is cross_entropy:
        pytest.skip("its labels have a size")
    everywhere = tn.jit(tn.grad(loss))
    for shape in ((40, 50), (1, 1), (3, 1000), (129, 7)):
        x = np.random.default_rng(shape[1]).normal(size=shape).astype(np.float32)
        np.testing.assert_array_equal(everywhere(x), tn.jit(tn.grad(loss))(x))
    assert everywhere.cache_info().compiles == 1


def test_a_seed_of_one_is_no_factor() -> None:
    text = tn.jit(tn.grad(lambda x: np.sin(x).sum())).lower(X).as_text("regions")
    assert "tangent_product" not in text and "multiply" not in text, text
