"""Elementwise loops of more turns than are run at once: entered again, in the memory that they have just written."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu import loop_binding, loop_kernel, toolchain

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)

SIZES = (1, 5, 16, 31, 32, 33, 47, 64, 1000)


def carried_with_a_number(x):
    def turn(i, c):
        y, s = c
        return y * 1.01 + s, s + 0.5 * i

    return tn.lax.fori_loop(0, 50, turn, (x, 0.25))


def numbers_of_lanes(x):
    return tn.lax.fori_loop(0, 40, lambda i, y: y * 0.5 + np.arange(len(x)), x)


def complex_lanes(x):
    return tn.lax.fori_loop(0, 23, lambda i, y: y * y * 0.5 + 1j * x, x * (1 + 0.5j))


def until_a_number_says_so(x):
    return tn.lax.while_loop(lambda c: c[1] < 29, lambda c: (np.sin(c[0]) + x, c[1] + 1), (x, 0))


def lanes_that_stop(x):
    return tn.vmap(lambda v: tn.lax.while_loop(lambda c: c[1] < 40 * v, lambda c: (c[0] + v, c[1] + 1), (v, 0)))(x)


def stacked(x):
    return tn.lax.scan(lambda c, v: (c * 0.9 + v, c + v), x, np.linspace(0, 1, 30))


def numbers_alone(x):
    return tn.lax.fori_loop(0, 1000, lambda i, c: c * 0.999 + i, x[0])


def stacked_for_a_derivative(x):
    end = lambda v: tn.lax.while_loop(lambda c: c[1] < 29, lambda c: (np.sin(c[0]) + v, c[1] + 1), (v, 0))[0]  # noqa: E731
    return tn.grad(end)(x[0])


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "f",
    [carried_with_a_number, numbers_of_lanes, complex_lanes, until_a_number_says_so, lanes_that_stop, stacked,
     numbers_alone, stacked_for_a_derivative],
    ids=lambda f: f.__name__,
)  # fmt: skip
def test_the_same_bits(f: Callable[[Any], Any], size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.linspace(0.1, 1, size)
    wanted = tn.tree.leaves(tn.jit(lambda x: f(x))(x))
    for module in (loop_kernel, loop_binding):
        monkeypatch.setattr(module, "turns_at_once", lambda loop: 7)
    found = tn.tree.leaves(tn.jit(lambda x: f(x))(x))
    for a, b in zip(wanted, found, strict=True):
        np.testing.assert_array_equal(a, b)
    assert x.tolist() == np.linspace(0.1, 1, size).tolist()
