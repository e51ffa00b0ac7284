"""Numbers against the formulas that make them, in a wider format: uniform numbers in, numbers of distributions out."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import tenferro as tn
from tenferro import random
from tenferro.tracer.scalar.error_function import erf, erfinv
from tests.table.agreement import ulps
from tests.tracer.scalar.kernels import compiled

Array = np.ndarray[Any, Any]
KEY = np.array([0x13198A2E, 0x03707344], np.uint32)
N = (20_000,)
SINGLE = np.dtype(np.float32)
TINY, EPS = float(np.finfo(SINGLE).tiny), float(np.finfo(SINGLE).eps)


def _u(low: float = 0.0, key: Any = KEY) -> Array:
    return np.asarray(random.uniform(key, N, SINGLE, low, 1.0)).astype(np.float64)


def _z(key: Any = KEY, shape: tuple[int, ...] = N) -> Array:
    return np.asarray(random.normal(key, shape, SINGLE)).astype(np.float64)


FORMULAS: dict[str, tuple[Callable[[], Any], Callable[[], Array], float]] = {
    "exponential": (lambda: random.exponential(KEY, N, SINGLE), lambda: -np.log1p(-_u()), 1),
    "pareto": (lambda: random.pareto(KEY, 2.0, N, SINGLE), lambda: np.exp(-np.log1p(-_u()) / 2), 4),
    "weibull": (lambda: random.weibull_min(KEY, 3.0, 2.0, N, SINGLE), lambda: 3 * np.sqrt(-np.log1p(-_u())), 2),
    "rayleigh": (lambda: random.rayleigh(KEY, 2.0, N, SINGLE), lambda: 2 * np.sqrt(-2 * np.log(_u(TINY))), 2),
    "laplace": (
        lambda: random.laplace(KEY, N, SINGLE),
        lambda: (lambda u: np.sign(u) * np.log1p(-np.abs(u)))(_u(-1 + EPS)),
        1,
    ),
    "lognormal": (lambda: random.lognormal(KEY, 0.5, N, SINGLE), lambda: np.exp(0.5 * _z()), 1),
    "maxwell": (lambda: random.maxwell(KEY, N, SINGLE), lambda: np.sqrt((_z(shape=(*N, 3)) ** 2).sum(-1)), 2),
}
"""The numbers, the formula in float64 and how many units in the last place lie between them."""


@pytest.mark.parametrize("name", FORMULAS)
def test_numbers_are_their_formula(name: str) -> None:
    made, formula, bound = FORMULAS[name]
    found, wanted = np.asarray(made()), formula()
    assert ulps(found, wanted, SINGLE).max() <= bound


def test_what_formulas_lose() -> None:
    """Near 1 the logarithm of a uniform number has few digits left, and near a quarter turn its angle."""
    u = _u(TINY)
    gumbel, logistic = random.gumbel(KEY, N, SINGLE), random.logistic(KEY, N, SINGLE)
    np.testing.assert_allclose(gumbel, -np.log(-np.log(u)), rtol=4 * EPS, atol=4 * EPS)
    np.testing.assert_allclose(logistic, np.log(u / (1 - u)), rtol=4 * EPS, atol=4 * EPS)
    angle = np.arctan(np.asarray(random.cauchy(KEY, N, SINGLE)).astype(np.float64)) / math.pi + 0.5
    np.testing.assert_allclose(angle, _u(EPS), rtol=0, atol=EPS)


def test_normal_numbers_are_the_inverse_error_function() -> None:
    """Against mpmath: float32 within 2 ulp, float64 within 3, one of them for the product with the root of 2."""
    for dtype, bound in (("float32", 2.0), ("float64", 3.0)):
        lowest = float(np.nextafter(np.array(-1, dtype), np.array(0, dtype)))
        u = np.asarray(random.uniform(KEY, (1500,), dtype, lowest, 1.0))
        with mpmath.workdps(40):
            true = [mpmath.sqrt(2) * mpmath.erfinv(mpmath.mpf(float(v))) for v in u]
            wide = np.array([_longdouble(t) for t in true])
        assert ulps(np.asarray(random.normal(KEY, (1500,), dtype)), wide, np.dtype(dtype)).max() <= bound


def _longdouble(value: Any) -> np.longdouble:
    high = float(value)
    return np.longdouble(high) + np.longdouble(float(value - mpmath.mpf(high)))


RARE = 2.0 ** -np.arange(1, 53)


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1.5), ("float64", 2.0)])
def test_inverse_error_function(dtype: str, bound: float) -> None:
    """Near 0, in the middle, near 1 and at the ends of the polynomials, against mpmath."""
    rng = np.random.default_rng(0)
    ends = np.sqrt(-np.expm1(-np.array([5.0, 6.25, 16.0]))) * (1 + np.linspace(-1e-3, 1e-3, 41)[:, None])
    x = np.concatenate([rng.uniform(-1, 1, 600), RARE, 1 - RARE, ends.ravel(), [0.0, -0.0, 1e-300, -1e-38]]).astype(
        dtype
    )
    x = x[np.abs(x) < 1]
    with mpmath.workdps(40):
        wide = np.array([_longdouble(mpmath.erfinv(mpmath.mpf(float(v)))) for v in x])
    found = compiled(erfinv, [np.dtype(dtype)])(x)
    assert ulps(found, wide, np.dtype(dtype)).max() <= bound
    np.testing.assert_array_equal(np.signbit(found), np.signbit(x))
    edge = np.array([1, -1, 1.5, -2, np.nan, np.inf, -np.inf], dtype)
    wanted = [np.inf, -np.inf, *[np.nan] * 5]
    np.testing.assert_array_equal(compiled(erfinv, [np.dtype(dtype)])(edge), wanted)


@pytest.mark.parametrize(("dtype", "bound"), [("float32", 1.0), ("float64", 1.0)])
def test_error_function(dtype: str, bound: float) -> None:
    rng = np.random.default_rng(1)
    x = np.concatenate([rng.uniform(-6.5, 6.5, 800), rng.uniform(0.9, 1.1, 300), RARE, -RARE, [0.0, -0.0]]).astype(
        dtype
    )
    with mpmath.workdps(40):
        wide = np.array([_longdouble(mpmath.erf(mpmath.mpf(float(v)))) for v in x])
    found = compiled(erf, [np.dtype(dtype)])(x)
    assert ulps(found, wide, np.dtype(dtype)).max() <= bound
    edge = compiled(erf, [np.dtype(dtype)])(np.array([np.inf, -np.inf, np.nan], dtype))
    np.testing.assert_array_equal(edge, [1, -1, np.nan])


def test_half_precision_is_rounded_single_precision() -> None:
    """float16 takes 16 random bits, and each operation is rounded."""
    u = np.asarray(random.uniform(KEY, (5000,), np.float16))
    assert u.dtype == np.float16 and 0 <= u.min() and u.max() < 1
    z = np.asarray(tn.jit(lambda k: random.normal(k, (5000,), np.float16))(KEY))
    assert z.dtype == np.float16 and abs(float(z.astype(float).std()) - 1) < 0.05
