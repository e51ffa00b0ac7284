"""Numbers against their distributions, with fixed keys: the largest distance between two distribution functions for
continuous ones (Kolmogorov), the sum of squared deviations of counts for whole numbers (Pearson)."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

import tenferro as tn
from tenferro import random
from tenferro.tracer.scalar.counts import MANY

Array = np.ndarray[Any, Any]
Draw = Callable[[Any, str], Any]
Cdf = Callable[[Array], Array]
KEY = np.array([0x13198A2E, 0x03707344], np.uint32)
N = 40_000
COV = np.array([[2.0, 0.5], [0.5, 1.0]])


def kolmogorov(x: Array, cdf: Callable[[Array], Array]) -> float:
    """√n times the largest distance between the share of numbers up to x and what the distribution function says; above
    1.95 once in a thousand times (Kolmogorov, 1933)."""
    x = np.sort(np.asarray(x, np.float64).ravel())
    wanted, places = cdf(x), np.arange(len(x) + 1) / len(x)
    return float(math.sqrt(len(x)) * max((places[1:] - wanted).max(), (wanted - places[:-1]).max()))


def pearson(counts: Array, wanted: Array) -> float:
    """The sum of squared deviations by what is expected, less its mean, by its standard deviation: rarely above 4."""
    few = wanted < 8
    counts, wanted = (np.append(v[~few], v[few].sum()) for v in (counts, wanted))
    counts, wanted = (v[wanted > 0] for v in (counts, wanted))
    freedom = len(counts) - 1
    return float((((counts - wanted) ** 2 / wanted).sum() - freedom) / math.sqrt(2 * freedom))


_erf = np.vectorize(math.erf, [float])


def _phi(x: Array) -> Array:
    return np.asarray((1 + _erf(x / math.sqrt(2))) / 2)


def _gamma_cdf(x: Array, a: float) -> Array:
    """The regularised lower incomplete gamma function: mpmath's at 400 nodes, between which it is nearly straight."""
    nodes = np.quantile(x, np.linspace(0, 1, 400))
    values = [float(mpmath.gammainc(a, 0, float(v), regularized=True)) for v in nodes]
    return np.interp(x, nodes, values)


def _beta_cdf(x: Array, a: float, b: float) -> Array:
    nodes = np.quantile(x, np.linspace(0, 1, 400))
    values = [float(mpmath.betainc(a, b, 0, float(v), regularized=True)) for v in nodes]
    return np.interp(x, nodes, values)


def _wald_cdf(x: Array, mu: float) -> Array:
    root = np.sqrt(1 / x)
    return _phi(root * (x / mu - 1)) + np.exp(2 / mu) * _phi(-root * (x / mu + 1))


def _maxwell_cdf(x: Array) -> Array:
    return np.asarray(_erf(x / math.sqrt(2)) - math.sqrt(2 / math.pi) * x * np.exp(-x * x / 2))


def _truncated(x: Array, low: float, high: float) -> Array:
    ends = _phi(np.array([low, high]))
    return (_phi(x) - ends[0]) / (ends[1] - ends[0])


def _gammas(a: float) -> tuple[Draw, Cdf]:
    return lambda k, d: random.gamma(k, a, (N,), d), lambda x: _gamma_cdf(x, a)


CONTINUOUS: dict[str, tuple[Draw, Cdf]] = {
    "uniform": (lambda k, d: random.uniform(k, (N,), d), lambda x: x),
    "uniform between": (lambda k, d: random.uniform(k, (N,), d, -3.0, 5.0), lambda x: (x + 3) / 8),
    "normal": (lambda k, d: random.normal(k, (N,), d), _phi),
    "truncated_normal": (lambda k, d: random.truncated_normal(k, -1.0, 2.0, (N,), d), lambda x: _truncated(x, -1, 2)),
    "truncated tail": (lambda k, d: random.truncated_normal(k, 2.0, 3.0, (N,), d), lambda x: _truncated(x, 2, 3)),
    "lognormal": (lambda k, d: random.lognormal(k, 0.5, (N,), d), lambda x: _phi(np.log(x) / 0.5)),
    "exponential": (lambda k, d: random.exponential(k, (N,), d), lambda x: -np.expm1(-x)),
    "laplace": (
        lambda k, d: random.laplace(k, (N,), d),
        lambda x: np.where(x < 0, np.exp(x) / 2, 1 - np.exp(-np.abs(x)) / 2),
    ),
    "logistic": (lambda k, d: random.logistic(k, (N,), d), lambda x: 1 / (1 + np.exp(-x))),
    "gumbel": (lambda k, d: random.gumbel(k, (N,), d), lambda x: np.exp(-np.exp(-x))),
    "gumbel high": (lambda k, d: random.gumbel(k, (N,), d, "high"), lambda x: np.exp(-np.exp(-x))),
    "cauchy": (lambda k, d: random.cauchy(k, (N,), d), lambda x: np.arctan(x) / math.pi + 0.5),
    "rayleigh": (lambda k, d: random.rayleigh(k, 2.0, (N,), d), lambda x: -np.expm1(-x * x / 8)),
    "pareto": (lambda k, d: random.pareto(k, 3.0, (N,), d), lambda x: 1 - x**-3.0),
    "weibull_min": (lambda k, d: random.weibull_min(k, 2.0, 1.5, (N,), d), lambda x: -np.expm1(-((x / 2) ** 1.5))),
    "triangular": (
        lambda k, d: random.triangular(k, -1.0, 0.5, 3.0, (N,), d),
        lambda x: np.where(x < 0.5, (x + 1) ** 2 / 6, 1 - (3 - x) ** 2 / 10),
    ),
    "maxwell": (lambda k, d: random.maxwell(k, (N,), d), _maxwell_cdf),
    "double_sided_maxwell": (
        lambda k, d: random.double_sided_maxwell(k, 1.0, 2.0, (N,), d),
        lambda x: 0.5 + np.sign(x - 1) / 2 * _maxwell_cdf(np.abs(x - 1) / 2),
    ),
    "wald": (lambda k, d: random.wald(k, 1.5, (N,), d), lambda x: _wald_cdf(x, 1.5)),
    **{f"gamma {a}": _gammas(a) for a in (0.2, 1.0, 2.5, 40.0)},
    "loggamma": (lambda k, d: np.exp(random.loggamma(k, 0.7, (N,), d)), lambda x: _gamma_cdf(x, 0.7)),
    "beta": (lambda k, d: random.beta(k, 0.5, 2.0, (N,), d), lambda x: _beta_cdf(x, 0.5, 2.0)),
    "dirichlet": (
        lambda k, d: random.dirichlet(k, np.array([1.0, 2.0, 3.0]), (N,), d)[:, 1],
        lambda x: _beta_cdf(x, 2.0, 4.0),
    ),
    "chisquare": (lambda k, d: random.chisquare(k, 3.0, (N,), d), lambda x: _gamma_cdf(x / 2, 1.5)),
    "f": (lambda k, d: random.f(k, 3.0, 5.0, (N,), d), lambda x: _beta_cdf(3 * x / (3 * x + 5), 1.5, 2.5)),
    "t": (
        lambda k, d: random.t(k, 4.0, (N,), d),
        lambda x: 0.5 + np.sign(x) / 2 * (1 - _beta_cdf(4 / (4 + x * x), 2.0, 0.5)),
    ),
    "generalized_normal": (
        lambda k, d: random.generalized_normal(k, 3.0, (N,), d),
        lambda x: 0.5 + np.sign(x) / 2 * _gamma_cdf(np.abs(x) ** 3, 1 / 3),
    ),
    "radius of a ball": (lambda k, d: np.linalg.norm(random.ball(k, 3, 2.0, (N,), d), axis=-1), lambda x: x**3),
    "multivariate_normal": (
        lambda k, d: random.multivariate_normal(k, np.array([1.0, 2.0]), np.array([[2.0, 0.5], [0.5, 1.0]]), (N,), d)[
            :, 0
        ],
        lambda x: _phi((x - 1) / math.sqrt(2)),
    ),
    "orthogonal": (  # the first coordinate of a point on a sphere of three dimensions
        lambda k, d: random.orthogonal(k, 3, (N,), d)[:, 0, 0],
        lambda x: (x + 1) / 2,
    ),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", CONTINUOUS)
def test_continuous(name: str, dtype: str) -> None:
    draw, cdf = CONTINUOUS[name]
    x = np.asarray(draw(KEY, dtype))
    assert x.dtype == dtype and np.isfinite(x).all()
    assert kolmogorov(x, cdf) < 1.95


def test_the_measure_tells_distributions_apart() -> None:
    x = np.asarray(random.normal(KEY, (N,)))
    assert kolmogorov(x * 1.05, _phi) > 1.95 and kolmogorov(x + 0.03, _phi) > 1.95
    counts = np.bincount(np.asarray(random.poisson(KEY, 3.0, (N,))), minlength=30)
    assert pearson(counts, N * _poisson(3.05, 30)) > 4 > pearson(counts, N * _poisson(3.0, 30))


# -- whole numbers ---------------------------------------------------------------------------------------------------


def _poisson(rate: float, count: int) -> Array:
    k = np.arange(count)
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.where(rate > 0, k * np.log(rate), np.where(k == 0, 0.0, -np.inf)) - rate
    return np.asarray(np.exp(logs - np.array([math.lgamma(n + 1) for n in k])))


def _binomial(n: int, p: float) -> Array:
    return np.array([math.comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)])


def _poissons(rate: float) -> tuple[Callable[[Any], Any], Array]:
    return lambda k: random.poisson(k, rate, (N,)), _poisson(rate, 200)


def _binomials(n: int, p: float) -> tuple[Callable[[Any], Any], Array]:
    return lambda k: random.binomial(k, n, p, (N,)), _binomial(n, p)


DISCRETE: dict[str, tuple[Callable[[Any], Any], Array]] = {
    **{f"poisson {rate}": _poissons(rate) for rate in (0.0, 0.3, 4.0, MANY - 0.01, MANY, 35.0, 90.0)},
    **{
        f"binomial {n} {p}": _binomials(n, p)
        for n, p in ((1, 0.3), (10, 0.5), (12, 0.95), (100, 0.02), (40, 0.25), (200, 0.7), (7, 0.0), (7, 1.0))
    },
    "geometric": (lambda k: random.geometric(k, 0.2, (N,)), np.append(0, 0.2 * 0.8 ** np.arange(200))),
    "bernoulli": (lambda k: random.bernoulli(k, 0.3, (N,)), np.array([0.7, 0.3])),
    "bernoulli high": (lambda k: random.bernoulli(k, 0.3, (N,), "high"), np.array([0.7, 0.3])),
    "rademacher": (lambda k: random.rademacher(k, (N,)) + 1, np.array([0.5, 0, 0.5])),
    "randint": (lambda k: random.randint(k, (N,), 0, 13), np.full(13, 1 / 13)),
    "randint of 8 bits": (lambda k: random.randint(k, (N,), 0, 13, np.int8), np.full(13, 1 / 13)),
    "categorical": (
        lambda k: random.categorical(k, np.log(np.array([0.1, 0.2, 0.3, 0.4])), shape=(N,)),
        np.array([0.1, 0.2, 0.3, 0.4]),
    ),
    "choice": (lambda k: random.choice(k, 7, (N,)), np.full(7, 1 / 7)),
    "choice by weights": (
        lambda k: random.choice(k, 4, (N,), p=np.array([0.1, 0.2, 0.3, 0.4])),
        np.array([0.1, 0.2, 0.3, 0.4]),
    ),
    "bits": (lambda k: random.bits(k, (N,), np.uint8) >> 3, np.full(32, 1 / 32)),
    "low bits": (lambda k: (random.bits(k, (N,), np.uint64) & np.uint64(31)).astype(int), np.full(32, 1 / 32)),
    "permutation": (  # where the first of five elements goes
        lambda k: np.argmin(random.permutation(k, np.tile(np.arange(5), (N, 1)), axis=1, independent=True), axis=1),
        np.full(5, 1 / 5),
    ),
    "multinomial": (
        lambda k: random.multinomial(k, 10, np.array([0.2, 0.5, 0.3]), shape=(N, 3))[:, 1],
        _binomial(10, 0.5),
    ),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete(name: str) -> None:
    draw, chances = DISCRETE[name]
    found = np.bincount(np.asarray(draw(KEY)).astype(int), minlength=len(chances))
    assert len(found) == len(chances) and not found[chances == 0].any()
    assert np.count_nonzero(chances) == 1 or pearson(found, N * chances) < 4


def test_large_parameters() -> None:
    """Mean and variance within six standard deviations, where probabilities are too many to add."""
    for rate in (1e3, 1e6, 1e10, 1e15):
        x = np.asarray(random.poisson(KEY, rate, (N,))).astype(float)
        assert abs(x.mean() / rate - 1) < 6 / math.sqrt(rate * N)
        assert abs(x.var() / rate - 1) < 6 * math.sqrt(2 / N)
    for n, p in ((10**6, 0.3), (10**9, 0.5), (10**12, 1e-6), (10**6, 1e-5), (10**9, 0.999)):
        x = np.asarray(random.binomial(KEY, float(n), p, (N,)))
        assert abs(x.mean() / (n * p) - 1) < 6 * math.sqrt((1 - p) / (n * p * N))
        assert abs(x.var() / (n * p * (1 - p)) - 1) < 6 * math.sqrt(2 / N)
    for a in (1e4, 1e8):
        x = np.asarray(random.gamma(KEY, a, (N,)))
        assert abs(x.mean() / a - 1) < 6 / math.sqrt(a * N) and abs(x.var() / a - 1) < 6 * math.sqrt(2 / N)


def test_small_shapes_in_logarithms() -> None:
    """The logarithm of a gamma number of shape a has mean ψ(a) and variance ψ′(a), where the number itself is 0."""
    for a in (1e-4, 0.01, 0.5):
        x = np.asarray(random.loggamma(KEY, a, (N,)))
        mean, variance = float(mpmath.digamma(a)), float(mpmath.polygamma(1, a))
        assert abs(x.mean() - mean) < 6 * math.sqrt(variance / N)
        assert abs(x.var() / variance - 1) < 0.1


def test_together() -> None:
    """Covariances, directions and sums of what comes in vectors."""
    cov = np.array([[2.0, 0.3, 0.1], [0.3, 1.0, 0.2], [0.1, 0.2, 0.5]])
    for method in ("cholesky", "eigh", "svd"):
        z = random.multivariate_normal(KEY, np.arange(3.0), cov, (N,), method=method)
        np.testing.assert_allclose(np.cov(np.asarray(z).T), cov, atol=0.05)
        np.testing.assert_allclose(np.asarray(z).mean(0), np.arange(3), atol=0.05)
    q = np.asarray(random.orthogonal(KEY, 4, (500,)))
    np.testing.assert_allclose(np.matmul(q, np.swapaxes(q, -1, -2)), np.broadcast_to(np.eye(4), q.shape), atol=1e-12)
    assert abs(np.linalg.det(q).mean()) < 0.2  # of both kinds
    shares = np.asarray(random.dirichlet(KEY, np.array([0.1, 1.0, 5.0]), (N,)))
    np.testing.assert_allclose(shares.sum(-1), 1, rtol=1e-12)
    np.testing.assert_allclose(shares.mean(0), np.array([0.1, 1.0, 5.0]) / 6.1, atol=0.01)
    counts = np.asarray(random.multinomial(KEY, 20, np.array([1.0, 0.0, 2.0, 3.0, 4.0]), shape=(N, 5)))
    assert (counts.sum(-1) == 20).all() and not counts[:, 1].any()
    np.testing.assert_allclose(counts.mean(0), 2 * np.arange(1, 6) - 2 * np.array([0, 2, 1, 1, 1]), atol=0.05)
    ball = np.asarray(random.ball(KEY, 2, 1.0, (N,)))
    assert (np.abs(ball).sum(-1) <= 1).all() and abs(ball.mean()) < 0.01


def test_numbers_of_two_keys_are_independent() -> None:
    first, second = np.asarray(random.split(KEY))
    x, y = (np.asarray(random.normal(k, (N,))) for k in (first, second))
    assert abs(np.corrcoef(x, y)[0, 1]) < 5 / math.sqrt(N)
    assert abs(np.corrcoef(x[1:], x[:-1])[0, 1]) < 5 / math.sqrt(N)
    keys = np.asarray(random.split(KEY, 2000))
    first_numbers = np.asarray(tn.vmap(lambda k: random.uniform(k))(keys))
    assert kolmogorov(first_numbers, lambda u: u) < 1.95
