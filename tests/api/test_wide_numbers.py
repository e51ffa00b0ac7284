"""Python numbers beside arrays whose dtype cannot hold them: wrapped, promoted or refused where NumPy does so."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tenferro as tn

Function = Callable[[Any, Any], Any]
pytestmark = pytest.mark.filterwarnings("ignore:.*overflow")

FUNCTIONS: dict[str, Function] = {
    "where": lambda x, s: np.where(x > 0, x, s),
    "where, first": lambda x, s: np.where(x > 0, s, x),
    "where of numbers": lambda x, s: np.where(x > 0, s, 1),
    "select, default": lambda x, s: np.select([x > 0], [x], s),
    "pad": lambda x, s: np.pad(x, 1, constant_values=s),
    "add": lambda x, s: x + s,
    "maximum": lambda x, s: np.maximum(x, s),
    "less": lambda x, s: x < s,
    "clip": lambda x, s: np.clip(x, 0, s),
    "clip of a number": lambda x, s: np.clip(s, x, x + 1),
    "dot": lambda x, s: np.dot(x, s),
    "dot, first": lambda x, s: np.dot(s, x),
    "inner": lambda x, s: np.inner(x, s),
    "outer": lambda x, s: np.outer(x, s),
    "append": lambda x, s: np.append(x, s),
    "sum, initial": lambda x, s: np.sum(x, initial=s),
    "max, initial": lambda x, s: np.max(x, initial=s),
}
NUMBERS = {"-2": -2, "300": 300, "2**40": 2**40, "1.5": 1.5, "True": True}


def _outcome(call: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = np.asarray(call())
        except (OverflowError, ValueError, TypeError) as error:
            return next(kind for kind in (OverflowError, ValueError, TypeError) if isinstance(error, kind))
    return found.dtype, (found + 0).tolist()  # a product of 0 and a negative number is -0.0, and in BLAS 0.0


@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_as_numpy_does(name: str, number: str) -> None:
    function, s = FUNCTIONS[name], NUMBERS[number]
    for dtype in (np.uint8, np.int8, np.int64, np.float32, np.bool_, np.complex64):
        if name.startswith("clip") and dtype is np.complex64:
            continue
        x = np.array([1, 0], dtype)
        wanted = _outcome(partial(function, x, s))
        assert _outcome(partial(tn.jit(lambda x: function(x, s)), x)) == wanted, dtype
        assert _outcome(partial(function, tn.asarray(x), s)) == wanted, dtype


@pytest.mark.parametrize("name", ["where", "where, first", "select, default", "pad"])
def test_an_int_argument_wraps_too(name: str) -> None:
    function = FUNCTIONS[name]
    x, jitted = np.array([1, 0], np.uint8), tn.jit(FUNCTIONS[name])
    for n in (5, 300, -2, 7, 2**40):
        found, wanted = jitted(x, n), function(x, n)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)


def test_ints_that_no_int64_holds() -> None:
    x = np.array([1, 2], np.uint64)
    for function in (lambda x: np.append(x, 2**63), lambda x: np.outer(x, 2**63), lambda x: np.diff(x, prepend=2**63)):
        found, wanted = tn.jit(function)(x), function(x)
        assert found.dtype == wanted.dtype
        np.testing.assert_array_equal(found, wanted)
    with pytest.raises(tn.RangeError, match=r"concatenate: 18446744073709551616; an int .* \(at .*test_wide_numbers"):
        tn.jit(lambda x: np.append(x, 2**64))(x)


def test_initial_values_must_fit() -> None:
    for initial in (1e300, -1e300):
        with pytest.raises(OverflowError, match=r"max: Python float .* out of bounds for int8.*test_wide_numbers"):
            tn.jit(lambda x, i=initial: np.max(x, initial=i))(np.ones(2, np.int8))
