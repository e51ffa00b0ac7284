"""Gradients with operands: what ``jit(grad(f))`` lowers, of functions as models and losses have them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import tenferro as tn
from tests import losses as f
from tests.values import laid_out, uniform

Array = np.ndarray[Any, Any]
Call = tuple[str, Callable[..., Any], tuple[Any, ...]]


def calls(order: str, dtype: str, number: int) -> list[Call]:
    """Every function's gradient with operands in this order of memory, and of some the product with the Hessian."""
    x, wide = (laid_out(uniform(s, dtype, number + k), order) for k, s in enumerate(((12, 20), (5, 300))))
    gain, shift = uniform((300,), dtype, 3), uniform((300,), dtype, 4)
    index = np.array([3, -1, 0, 3])
    labels = np.arange(12) % 20
    weights = (uniform((20, 8), dtype, 5), uniform((8, 2), dtype, 6))
    found: list[tuple[Callable[..., Any], tuple[Array, ...]]] = [
        (f.gelu, (x,)), (f.layer_norm, (wide, gain, shift)), (f.log_sum_exp, (wide,)), (f.cross_entropy, (x, labels)),
        (f.mlp, (*weights, x)), (f.norm, (wide,)), (f.running_sums, (x,)), (f.gathered, (x, index)),
        (f.scattered, (x, index)), (f.largest, (x,)), (f.masked, (x,)), (f.waves, (x,)), (f.products, (x,)),
        (f.stencil, (x,)),
    ]  # fmt: skip
    firsts = [(f"gradient of {loss.__name__}", _gradient(loss, operands), operands) for loss, operands in found]
    return firsts + [
        (f"second order of {loss.__name__}", _turned(loss), (operands[0], *operands))
        for loss, operands in found
        if loss in (f.gelu, f.log_sum_exp, f.masked)
    ]


def _gradient(function: Callable[..., Any], operands: tuple[Array, ...]) -> Callable[..., Any]:
    """By all operands that vary."""
    places = tuple(k for k, x in enumerate(operands) if x.dtype.kind == "f")
    return tn.grad(function, argnums=places)


def _turned(function: Callable[..., Any]) -> Callable[..., Any]:
    """The derivative of the gradient along a direction."""
    return lambda t, x: tn.grad(lambda x: (tn.grad(function)(x) * t).sum())(x)
