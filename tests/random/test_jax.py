"""JAX as the oracle where it is installed: equal bits of what is made of random words alone, and numbers within
rounding where both use one formula. Dtypes are stated on both sides, and JAX has its 64-bit dtypes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import random
from tests.lax.checking import same

jax = pytest.importorskip("jax")
KEY = np.array([0x13198A2E, 0x03707344], np.uint32)
SHAPES: tuple[tuple[int, ...], ...] = ((), (1,), (5,), (3, 4), (2, 1, 3), (0, 4), (1, 1), (1000, 3), (5000,))
INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def both(function: Callable[..., Any], *args: Any, ulps: float = 0) -> None:
    """``function(module, key, *args)`` gives the same of both modules, jitted and at once."""
    wanted = np.asarray(function(jax.random, KEY, *args))
    for found in (function(random, KEY, *args), tn.jit(lambda k, *xs: function(random, k, *xs))(KEY, *args)):
        same(found, wanted, ulps)


# -- equal bits ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", [0, 1, -1, 2**31, 2**32 + 5, -(2**40), 2**63 - 1, np.int32(-1), np.uint64(2**63 + 3)])
def test_keys(seed: Any) -> None:
    same(random.key(seed), jax.random.key_data(jax.random.key(seed)))


@pytest.mark.parametrize("num", [0, 1, 2, 100, (3, 2)])
def test_split(num: Any) -> None:
    both(lambda m, k: m.split(k, num))


@pytest.mark.parametrize("data", [0, 7, 2**32 - 1, np.int64(-3), np.int8(-2), np.uint32(9)])
def test_fold_in(data: Any) -> None:
    both(lambda m, k: m.fold_in(k, data))


@pytest.mark.parametrize("dtype", ["uint8", "uint16", "uint32", "uint64", None])
@pytest.mark.parametrize("shape", SHAPES)
def test_bits(shape: tuple[int, ...], dtype: Any) -> None:
    both(lambda m, k: m.bits(k, shape, dtype))


BOUNDS = ((0.0, 1.0), (-1.0, 1.0), (3.3, 7.7), (-0.1, 0.3), (1e-3, 1e3), (5.0, 2.0), (-1e30, 1e-30))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("low_high", BOUNDS)
def test_uniform(low_high: tuple[float, float], dtype: str) -> None:
    low, high = low_high
    if dtype == "float16" and abs(low) > 1e4:
        low, high = -6e4, 1e-3
    ulps = 1 if dtype == "float16" else 0  # JAX's own bits differ where a processor computes in float16
    both(lambda m, k: m.uniform(k, (20_000,), dtype, low, high), ulps=ulps)
    both(lambda m, k, a, b: m.uniform(k, (30, 5), dtype, a, b), np.linspace(low, high, 5), np.float64(high), ulps=ulps)
    for shape in SHAPES if (low, high) == (3.3, 7.7) else ():
        both(lambda m, k, shape=shape: m.uniform(k, shape, dtype, low, high), ulps=ulps)


def _ranges(dtype: str) -> Iterator[tuple[int, int]]:
    info = np.iinfo(dtype)
    low, high = int(info.min), int(info.max)
    yield from ((0, 10), (0, 1), (3, 3), (5, 2), (low, high), (0, 100), (-5, 7), (low, high + 1), (0, high + 1))
    yield from (
        (high, high + 1),
        (high - 3, high + 1),
        (0, high + 50),
        (0, high),
        (-300, 300),
        (-300, -250),
        (300, 400),
    )


@pytest.mark.parametrize("dtype", INTEGERS)
def test_randint(dtype: str) -> None:
    for low, high in _ranges(dtype):
        if max(abs(low), abs(high)) < 2**63:  # JAX takes no more
            both(lambda m, k, low=low, high=high: m.randint(k, (3000,), low, high, dtype))
            both(lambda m, k, a, b: m.randint(k, (50, 3), a, b, dtype), np.int64(low), np.array([high, low, low + 1]))


@pytest.mark.parametrize("size", [0, 1, 2, 5, 100, 1625, 1626, 5000])
def test_permutation_of_numbers(size: int) -> None:
    both(lambda m, k: m.permutation(k, size))


@pytest.mark.parametrize("independent", [False, True])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_permutation_of_arrays(axis: int, independent: bool) -> None:
    for shape in ((3, 4), (2, 1000), (0, 3), (1, 1)):
        x = np.arange(np.prod(shape, dtype=int), dtype=float).reshape(shape)
        both(lambda m, k, x: m.permutation(k, x, axis, independent), x)


P = np.array([0.1, 0.2, 0.3, 0.4])


@pytest.mark.parametrize("p", [None, P], ids=["alike", "weighted"])
@pytest.mark.parametrize("replace", [True, False])
@pytest.mark.parametrize("a", [4, np.arange(4) * 2.0, np.arange(12).reshape(4, 3)], ids=["number", "vector", "matrix"])
def test_choice(a: Any, replace: bool, p: Any) -> None:
    for shape in ((), (3,), (2, 2)):
        same(random.choice(KEY, a, shape, replace, p), jax.random.choice(KEY, a, shape, replace, p))
    matrix = np.arange(12).reshape(3, 4)
    both(lambda m, k, x: m.choice(k, x, (3,), replace, p, axis=1), matrix)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_categorical(axis: int) -> None:
    logits = np.random.default_rng(0).normal(size=(3, 4))
    lanes = tuple(n for a, n in enumerate(logits.shape) if a != axis % 2)
    for shape, replace in ((None, True), ((5, *lanes), True), ((2, 2, *lanes), True), ((2, *lanes), False)):
        wanted = np.asarray(jax.random.categorical(KEY, logits, axis, shape, replace), np.int64)
        same(random.categorical(KEY, logits, axis, shape, replace), wanted)


# -- one formula -----------------------------------------------------------------------------------------------------

N = (2000,)
COV = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 0.5]])
FORMULAS: dict[str, Callable[..., Any]] = {
    "normal": lambda m, k, d: m.normal(k, N, d),
    "truncated_normal": lambda m, k, d: m.truncated_normal(k, -1.0, 2.0, N, d),
    "lognormal": lambda m, k, d: m.lognormal(k, 0.5, N, d),
    "maxwell": lambda m, k, d: m.maxwell(k, N, d),
    "double_sided_maxwell": lambda m, k, d: m.double_sided_maxwell(k, 1.0, 2.0, N, d),
    "wald": lambda m, k, d: m.wald(k, 2.0, N, d),
    "exponential": lambda m, k, d: m.exponential(k, N, d),
    "pareto": lambda m, k, d: m.pareto(k, 2.0, N, d),
    "weibull_min": lambda m, k, d: m.weibull_min(k, 1.5, 2.0, N, d),
    "rayleigh": lambda m, k, d: m.rayleigh(k, 2.0, N, d),
    "laplace": lambda m, k, d: m.laplace(k, N, d),
    "logistic": lambda m, k, d: m.logistic(k, N, d),
    "cauchy": lambda m, k, d: m.cauchy(k, N, d),
    "triangular": lambda m, k, d: m.triangular(k, -1.0, 0.5, 3.0, N, d),
    "gumbel": lambda m, k, d: m.gumbel(k, N, d),
    "orthogonal": lambda m, k, d: m.orthogonal(k, 5, (3,), d),
    "wide orthogonal": lambda m, k, d: m.orthogonal(k, 3, (), d, 5),
    "tall orthogonal": lambda m, k, d: m.orthogonal(k, 5, (), d, 3),
    "multivariate_normal": lambda m, k, d: m.multivariate_normal(k, np.arange(3, dtype=d), COV.astype(d), (4,), d),
}
FORMULA_ULPS = {"float32": 256.0, "float64": 32_768.0}
"""JAX's logarithms of 1 + x and inverse error functions lose so much in the tails (0.61 against 68 units in the last
place for Laplace numbers of float32); what these formulas give is compared with true values in ``test_formulas``."""


@pytest.mark.parametrize("dtype", FORMULA_ULPS)
@pytest.mark.parametrize("name", FORMULAS)
def test_formulas(name: str, dtype: str) -> None:
    both(lambda m, k: FORMULAS[name](m, k, dtype), ulps=FORMULA_ULPS[dtype])


def test_complex_normal_numbers() -> None:
    for dtype in ("complex64", "complex128"):
        ulps = FORMULA_ULPS["float32" if dtype == "complex64" else "float64"]
        both(lambda m, k, dtype=dtype: m.normal(k, (500,), dtype), ulps=ulps)


def test_truth_values_and_counts() -> None:
    both(lambda m, k, p: m.bernoulli(k, p, (300, 3)), np.array([0.1, 0.5, 0.9]))
    both(lambda m, k, p: m.bernoulli(k, p, (300,)), np.float32(0.3))
    both(lambda m, k: m.rademacher(k, (300,), "int32"))
    both(lambda m, k: m.rademacher(k, (300,), "float64"))
    both(lambda m, k, p: m.geometric(k, p, (300,), "int64"), np.float64(0.3))
    both(lambda m, k, p: m.geometric(k, p, (300, 2), "int32"), np.array([0.9, 0.01]))


def test_default_dtypes_are_those_of_jax_with_64_bits() -> None:
    calls: tuple[Callable[[Any, Any], Any], ...] = (
        lambda m, k: m.bits(k, (2,)), lambda m, k: m.uniform(k), lambda m, k: m.normal(k, (2,)),
        lambda m, k: m.randint(k, (2,), 0, 3), lambda m, k: m.poisson(k, 3.0), lambda m, k: m.binomial(k, 5, 0.5),
        lambda m, k: m.rademacher(k), lambda m, k: m.geometric(k, 0.5), lambda m, k: m.gamma(k, 2.0),
        lambda m, k: m.multinomial(k, 5, P), lambda m, k: m.beta(k, 1.0, 2.0), lambda m, k: m.bernoulli(k),
        lambda m, k: m.permutation(k, 3), lambda m, k: m.choice(k, 3),
    )  # fmt: skip
    for call in calls:
        found, wanted = np.asarray(call(random, KEY)), jax.eval_shape(lambda k, call=call: call(jax.random, k), KEY)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)


SIGNATURES = {"out_sharding", "unroll"}


def test_parameters_are_those_of_jax() -> None:
    """By name and place; what JAX says of shardings is not taken."""
    import inspect

    for name in dir(random):
        theirs = getattr(jax.random, name, None)
        if theirs is None:
            assert name == "shuffle"
            continue
        wanted = [p for p in inspect.signature(theirs).parameters if p not in SIGNATURES]
        found = [p for p in inspect.signature(getattr(random, name)).parameters if p not in SIGNATURES]
        assert found == wanted, name
