"""Sizes and numbers made of them that outgrow 64 bits in a later call: refused, with the line, as in the first call."""

from __future__ import annotations

import re

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import RangeError, ShapeError

X = np.arange(1.0, 4.0)
BIG = 2**40

NUMBERS = {
    "times": lambda x, n: x * (n * n),
    "plus": lambda x, n: x + n * n,
    "half": lambda x, n: x * (n * n / 2),
    "narrow": lambda x, n: x.astype(np.float32) * (n * n),
    "where": lambda x, n: np.where(x > 1, n * n, x),
    "arange": lambda x, n: x + np.arange(n * n, n * n + 3),
    "shift": lambda x, n: x * (n << 40),
    "power": lambda x, n: x + n**3,
    "take": lambda x, n: np.take(np.concatenate([x, x]), n * n),
    "library": lambda x, n: np.sort(x * (n * n)),
}
SHAPES = {
    "zeros": lambda x, n: np.zeros(n * n),
    "square": lambda x, n: np.ones((n, n)) + x[0],
    "sum": lambda x, n: np.ones((n, n)).sum() + x,
    "broadcast": lambda x, n: np.broadcast_to(x, (n * n, 3)) + 1,
    "repeat": lambda x, n: np.repeat(x, n * n),
}


def refused(run, function):
    """Refused, with the line; or NumPy's result, on an engine whose numbers are Python's."""
    try:
        result = run(X, BIG)
    except RangeError as error:
        assert re.search(r"n.* is \d+; an int between .* is needed.*test_too_large.py:\d+", str(error)), error
    else:
        assert tn.list_engines()[0] != "cpu:0"
        np.testing.assert_allclose(result, function(X, BIG))


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers(name):
    function = NUMBERS[name]
    jitted = tn.jit(function)
    np.testing.assert_allclose(jitted(X, 2), function(X, 2))
    for run in (jitted, tn.jit(function)):
        refused(run, function)
    np.testing.assert_allclose(jitted(X, 1), function(X, 1))
    assert issubclass(RangeError, OverflowError)


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("n", [2**32, 3 * 2**31, BIG])
def test_shapes(name, n):
    function = SHAPES[name]
    jitted = tn.jit(function)
    np.testing.assert_allclose(jitted(X, 2), function(X, 2))
    text = r"array of shape \(\d.*\), which is larger than any memory; at most .*test_too_large.py:\d+"
    for run in (jitted, tn.jit(function)):
        with pytest.raises(ShapeError, match=text):
            run(X, n)
    np.testing.assert_allclose(jitted(X, 1), function(X, 1))


def test_a_number_that_is_returned():
    square = tn.jit(lambda n: np.asarray(n * n))
    assert square(3) == 9
    with pytest.raises(RangeError, match=r"n\*n is 1208925819614629174706176"):
        square(BIG)
    assert tn.jit(lambda n: n * n)(BIG) == BIG * BIG


def test_what_stays_within_64_bits_in_the_end():
    """Python's ints have no bound, so a formula may pass beyond 64 bits and come back."""
    function = lambda x, n: x * (n * n // (n + 1)) + (n * n) % 7  # noqa: E731
    jitted = tn.jit(function)
    for n in (3, BIG, 2**62):
        np.testing.assert_allclose(jitted(X, n), function(X, n))
    assert jitted.cache_info().compiles == 1


def test_other_overflows_pass_through():
    def function(x):
        raise OverflowError("mine")

    with pytest.raises(OverflowError, match="^mine$"):
        tn.jit(function)(X)
