"""The same bits of gradients at any number of threads, jitted or not, of arrays that are handed out in many chunks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests import losses
from tests.table.agreement import bits
from tests.values import uniform

Array = np.ndarray[Any, Any]
SHAPE = (517, 1031)
INDEX = np.random.default_rng(0).integers(-517, 517, 400)
GAIN, SHIFT = uniform(SHAPE[1:], "float64", 3), uniform(SHAPE[1:], "float64", 4)


def cross_entropy(x: Any) -> Any:
    return losses.cross_entropy(x, np.arange(SHAPE[0]))


def layer_norm(x: Any) -> Any:
    return losses.layer_norm(x, GAIN, SHIFT)


def mlp(x: Any) -> Any:
    first, second = np.ones((1031, 40), x.dtype) / 64, np.ones((40, 3), x.dtype) / 8
    return losses.mlp(first, second, x)


def gathered(x: Any) -> Any:
    return losses.gathered(x, INDEX)


def scattered(x: Any) -> Any:
    return losses.scattered(x, INDEX)


FUNCTIONS = (
    losses.gelu, layer_norm, losses.log_sum_exp, cross_entropy, mlp, losses.norm, losses.running_sums, gathered,
    scattered, losses.largest, losses.masked, losses.waves, losses.products, losses.stencil,
)  # fmt: skip


def of(function: Callable[[Any], Any], dtype: str, shape: tuple[int, int] = SHAPE) -> list[Array]:
    """Gradients at one point, jitted and not, at 1, 2, 3 and 8 threads."""
    x = uniform(shape, dtype, 1)
    found = []
    for gradient in (tn.jit(tn.grad(function)), tn.grad(function)):
        for count in (1, 2, 3, 8):
            with tn.threads(count):
                found.append(gradient(x))
    return found


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda f: f.__name__)
def test_threads_jitted_and_not(function: Callable[[Any], Any], dtype: str) -> None:
    first, *others = of(function, dtype)
    assert first.dtype == dtype and np.isfinite(first).all() and len(np.unique(first)) > 100
    for k, other in enumerate(others):
        assert bits(other, first) is None, f"way {k + 1}: {bits(other, first)}"


@pytest.mark.parametrize("shape", [(1, 300_000), (300_000, 4)])
@pytest.mark.parametrize("function", [losses.log_sum_exp, losses.norm, losses.products], ids=lambda f: f.__name__)
def test_long_rows_and_many(function: Callable[[Any], Any], shape: tuple[int, int]) -> None:
    """A row that is split into phases across threads goes back through phases of its own."""
    first, *others = of(function, "float32", shape)
    assert all(bits(other, first) is None for other in others)


def test_second_order() -> None:
    def curvature(x: Any) -> Any:
        return (tn.grad(losses.log_sum_exp)(x) * x).sum()

    first, *others = of(curvature, "float64")
    assert all(bits(other, first) is None for other in others)
