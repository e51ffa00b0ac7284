"""Sizes and parameters at their edges, dtypes, and what is refused: in every way of running a function."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import random
from tests.lax.checking import refuses

KEY = np.array([0x13198A2E, 0x03707344], np.uint32)
P = np.array([0.2, 0.3, 0.5])

# Each with a shape that it is asked for; results of others depend on more than that.
SHAPED: dict[str, Callable[..., Any]] = {
    "bits": lambda k, s: random.bits(k, s), "uniform": lambda k, s: random.uniform(k, s),
    "randint": lambda k, s: random.randint(k, s, 0, 9), "normal": lambda k, s: random.normal(k, s),
    "complex normal": lambda k, s: random.normal(k, s, complex), "bernoulli": lambda k, s: random.bernoulli(k, 0.5, s),
    "truncated_normal": lambda k, s: random.truncated_normal(k, -1, 1, s), "wald": lambda k, s: random.wald(k, 2.0, s),
    "exponential": lambda k, s: random.exponential(k, s), "gamma": lambda k, s: random.gamma(k, 0.5, s),
    "loggamma": lambda k, s: random.loggamma(k, 0.5, s), "beta": lambda k, s: random.beta(k, 0.5, 2, s),
    "poisson": lambda k, s: random.poisson(k, 20.0, s), "binomial": lambda k, s: random.binomial(k, 90, 0.5, s),
    "laplace": lambda k, s: random.laplace(k, s), "logistic": lambda k, s: random.logistic(k, s),
    "gumbel": lambda k, s: random.gumbel(k, s), "gumbel high": lambda k, s: random.gumbel(k, s, mode="high"),
    "cauchy": lambda k, s: random.cauchy(k, s), "chisquare": lambda k, s: random.chisquare(k, 3, s),
    "f": lambda k, s: random.f(k, 3, 5, s), "t": lambda k, s: random.t(k, 3, s),
    "geometric": lambda k, s: random.geometric(k, 0.5, s), "rayleigh": lambda k, s: random.rayleigh(k, 1.0, s),
    "pareto": lambda k, s: random.pareto(k, 2.0, s), "maxwell": lambda k, s: random.maxwell(k, s),
    "triangular": lambda k, s: random.triangular(k, 0, 1, 2, s), "rademacher": lambda k, s: random.rademacher(k, s),
    "double_sided_maxwell": lambda k, s: random.double_sided_maxwell(k, 0, 1, s),
    "weibull_min": lambda k, s: random.weibull_min(k, 1, 2, s), "lognormal": lambda k, s: random.lognormal(k, 1.0, s),
    "generalized_normal": lambda k, s: random.generalized_normal(k, 3.0, s),
    "categorical": lambda k, s: random.categorical(k, np.log(P), shape=s),
    "choice": lambda k, s: random.choice(k, 5, s), "weighted choice": lambda k, s: random.choice(k, 3, s, p=P),
}  # fmt: skip


@pytest.mark.parametrize("name", SHAPED)
def test_shapes(name: str) -> None:
    """Of no elements, one, or many axes; NumPy scalars at rank 0; at once, jitted, and of a tn.Array."""
    draw = SHAPED[name]
    for shape in ((), (1,), (0,), (0, 3), (3, 0), (1, 1), (2, 1, 3)):
        found = draw(KEY, shape)
        assert np.shape(found) == shape, shape
        assert isinstance(found, np.ndarray if shape else np.generic)
        jitted = tn.jit(lambda k, s=shape: draw(k, s))(KEY)
        np.testing.assert_array_equal(jitted, found)
        assert type(jitted) is type(found) and jitted.dtype == found.dtype
        of_array = draw(tn.array(KEY), shape)
        assert type(of_array) is tn.Array
        np.testing.assert_array_equal(of_array, found)


@pytest.mark.parametrize("name", SHAPED)
def test_sizes_may_be_numpy_integers(name: str) -> None:
    draw, wanted = SHAPED[name], SHAPED[name](KEY, (2, 3))
    for shape in ((np.int64(2), np.int8(3)), [2, 3], np.array([2, 3])):
        np.testing.assert_array_equal(draw(KEY, shape), wanted)


def test_one_size_needs_no_tuple() -> None:
    np.testing.assert_array_equal(random.normal(KEY, 3), random.normal(KEY, (3,)))
    np.testing.assert_array_equal(random.uniform(KEY, shape=np.int64(3)), random.uniform(KEY, (3,)))


def test_parameters_make_shapes() -> None:
    a, b = np.array([[1.0], [2.0]]), np.array([1.0, 2.0, 3.0])
    assert random.gamma(KEY, b).shape == (3,)
    assert random.beta(KEY, a, b).shape == (2, 3)
    assert random.uniform(KEY, (4, 2, 3), None, a - 2, b).shape == (4, 2, 3)
    assert random.poisson(KEY, a).shape == (2, 1) and random.binomial(KEY, b, a / 4).shape == (2, 3)
    assert random.dirichlet(KEY, np.ones((2, 3))).shape == (2, 3)
    assert random.dirichlet(KEY, np.ones(3), (5, 2)).shape == (5, 2, 3)
    assert random.multinomial(KEY, np.array([5.0, 6.0]), np.ones((2, 3)) / 3).shape == (2, 3)
    assert random.multivariate_normal(KEY, np.zeros((4, 3)), np.eye(3)).shape == (4, 3)
    assert random.multivariate_normal(KEY, np.zeros(3), np.eye(3), (5,)).shape == (5, 3)
    assert random.ball(KEY, 3, shape=(2,)).shape == (2, 3) and random.orthogonal(KEY, 3, (2,)).shape == (2, 3, 3)
    assert random.permutation(KEY, np.zeros((4, 2)), axis=1).shape == (4, 2)
    assert random.choice(KEY, np.zeros((3, 4, 2)), (5, 6), axis=1).shape == (3, 5, 6, 2)


# -- parameters ------------------------------------------------------------------------------------------------------


def test_ranges_that_are_none() -> None:
    assert (np.asarray(random.randint(KEY, (9,), 5, 5)) == 5).all()
    assert (np.asarray(random.randint(KEY, (9,), 5, 2)) == 5).all()
    assert (np.asarray(random.uniform(KEY, (9,), None, 5.0, 2.0)) == 5).all()
    assert (np.asarray(random.randint(KEY, (9,), 0, 2**63 - 1, np.uint8)) >= 0).all()


def test_whole_ranges() -> None:
    """One more than the largest number is an upper bound too, also of 64 bits."""
    for dtype in (np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64):
        info = np.iinfo(dtype)
        x = np.asarray(
            tn.jit(lambda k, i=info, d=dtype: random.randint(k, (4000,), int(i.min), int(i.max) + 1, d))(KEY)
        )
        half = int(info.min) + 2 ** (info.bits - 1)
        assert x.dtype == dtype and 1800 < (x.astype(object) < half).sum() < 2200
        if info.bits == 8:
            assert len(np.unique(x)) == 256


def test_probabilities_outside_their_range() -> None:
    for p, wanted in ((-0.5, False), (0.0, False), (1.0, True), (1.5, True), (math.nan, False)):
        assert (np.asarray(random.bernoulli(KEY, p, (50,))) == wanted).all()
        assert (np.asarray(random.bernoulli(KEY, p, (50,), "high")) == wanted).all()
    assert np.isnan(np.asarray(random.binomial(KEY, 5, np.array([-0.1, 1.1, math.nan])))).all()
    assert np.isnan(np.asarray(random.binomial(KEY, np.array([-1.0, math.nan, math.inf]), 0.5))).all()
    np.testing.assert_array_equal(random.binomial(KEY, np.array([0.0, 7.0, 7.0]), np.array([0.5, 0.0, 1.0])), [0, 0, 7])
    np.testing.assert_array_equal(random.geometric(KEY, np.ones(4)), 1)
    assert (np.asarray(random.geometric(KEY, np.zeros(4), dtype=np.int32)) == 2**31 - 1).all()
    assert np.isnan(np.asarray(random.multinomial(KEY, 5.0, np.zeros(3)))).any()


def test_shapes_and_rates_outside_their_range() -> None:
    a = np.array([math.nan, math.inf, -1.0, 0.0, 5e-324, 1e308])
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(random.gamma(KEY, a), [math.nan, math.inf, math.nan, 0, 0, 1e308])
        logs = np.asarray(random.loggamma(KEY, a))
    np.testing.assert_array_equal(logs[:5], [math.nan, math.inf, math.nan, -math.inf, -math.inf])
    np.testing.assert_array_equal(random.poisson(KEY, a), [-1, 2**63 - 1, -1, 0, 0, 2**63 - 1])
    np.testing.assert_array_equal(random.poisson(KEY, a[:4], dtype=np.uint8), [255, 255, 255, 0])


def test_finite_numbers_from_every_block() -> None:
    """A million numbers without an infinity where the formula has one at 0 or 1."""
    for name in ("normal", "exponential", "gumbel", "laplace", "logistic", "cauchy"):
        for dtype in (np.float32, np.float64):
            assert np.isfinite(np.asarray(getattr(random, name)(KEY, (1_000_000,), dtype))).all(), name
    for name in ("float16", "float32", "float64"):
        u = np.asarray(random.uniform(KEY, (1_000_000,), name))
        assert u.min() >= 0 and u.max() < 1


def test_multinomial_of_any_number_of_categories() -> None:
    for count in (1, 2, 3, 4, 5, 8, 9, 17):
        x = np.asarray(random.multinomial(KEY, 1000.0, np.ones(count), shape=(50, count)))
        assert (x.sum(-1) == 1000).all() and (x >= 0).all()
        assert abs(x.mean() - 1000 / count) < 1e-9


# -- dtypes ----------------------------------------------------------------------------------------------------------


def test_default_dtypes_are_those_of_numpy() -> None:
    assert random.uniform(KEY).dtype == random.normal(KEY).dtype == random.gamma(KEY, np.float32(2)).dtype == np.float64
    assert random.randint(KEY, (), 0, 3).dtype == random.poisson(KEY, 3.0).dtype == np.int64
    assert random.bits(KEY).dtype == np.uint64 and random.bernoulli(KEY).dtype == np.bool_
    for dtype in (float, "f8", np.float64, np.dtype(np.float64)):
        np.testing.assert_array_equal(random.normal(KEY, (3,), dtype), random.normal(KEY, (3,)))


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_results_have_the_dtype(dtype: Any) -> None:
    x = np.array([0.5, 2.0])
    made = [
        random.gamma(KEY, x, dtype=dtype), random.beta(KEY, x, 2.0, dtype=dtype), random.dirichlet(KEY, x, dtype=dtype),
        random.t(KEY, x, dtype=dtype), random.pareto(KEY, x, dtype=dtype), random.wald(KEY, x, dtype=dtype),
        random.binomial(KEY, 5, 0.5, (2,), dtype), random.multinomial(KEY, 5, x, dtype=dtype),
        random.orthogonal(KEY, 2, dtype=dtype), random.multivariate_normal(KEY, x, np.eye(2), dtype=dtype),
        random.ball(KEY, 2, dtype=dtype), random.rademacher(KEY, (2,), dtype),
    ]  # fmt: skip
    assert {m.dtype for m in made} == {np.dtype(dtype)}


# -- refused ---------------------------------------------------------------------------------------------------------

REFUSED: tuple[tuple[Callable[..., Any], type[Exception], str], ...] = (
    (lambda k: random.uniform(k, (3,), int), TypeError, r"^uniform: dtype int64; a floating dtype is needed"),
    (lambda k: random.normal(k, (3,), bool), TypeError, r"^normal: dtype bool; a floating or complex dtype is needed"),
    (lambda k: random.randint(k, (3,), 0, 9, float), TypeError, r"^randint: dtype float64; an integer dtype is needed"),
    (lambda k: random.randint(k, (3,), 0.5, 9), TypeError, r"^randint: minval of dtype float64; integers are needed"),
    (lambda k: random.bits(k, (3,), np.int32), TypeError, r"^bits: dtype int32; an unsigned dtype is needed"),
    (lambda k: random.gamma(k, 1j), TypeError, r"^gamma: a of dtype complex128; real numbers are needed"),
    (lambda k: random.rademacher(k, (3,), np.uint8), TypeError, r"^rademacher: dtype uint8; one that holds -1"),
    (lambda k: random.normal(k, (-1,)), ValueError, r"^normal: size -1; sizes cannot be negative"),
    (lambda k: random.normal(k, (2.5,)), Exception, r"^normal: size .*an integer is needed"),
    (
        lambda k: random.uniform(k, (3,), None, np.zeros(4)),
        ValueError,
        r"^uniform: shapes \(3,\) and \(4,\); they do not broadcast",
    ),
    (
        lambda k: random.gamma(k, np.ones((2, 3)), (3,)),
        ValueError,
        r"^gamma: a of shape \(2, 3\) for results of shape \(3,\); one that broadcasts to it is needed",
    ),
    (lambda k: random.gumbel(k, mode="mid"), Exception, r"^gumbel: mode 'mid'; 'low' or 'high' is needed"),
    (lambda k: random.choice(k, 3, (5,), replace=False), ValueError, r"^choice: 5 draws without replacement from 3"),
    (lambda k: random.choice(k, 0, (2,)), ValueError, r"^choice: 2 draws from 0; 1 element or more is needed"),
    (lambda k: random.choice(k, 4, (2,), p=P), ValueError, r"^choice: p of shape \(3,\) for 4 elements"),
    (lambda k: random.choice(k, np.float64(3.0)), ValueError, r"^choice: an array of rank 0; a size, or rank 1"),
    (lambda k: random.permutation(k, np.ones(())), ValueError, r"^permutation: an array of rank 0; a size, or rank 1"),
    (lambda k: random.permutation(k, np.ones(3), axis=1), IndexError, r"^permutation: axis 1"),
    (lambda k: random.categorical(k, np.float64(1.0)), ValueError, r"^categorical: logits of rank 0"),
    (
        lambda k: random.categorical(k, np.ones((2, 3)), shape=(3,)),
        ValueError,
        r"^categorical: shape \(3,\) for logits whose other axes have sizes \(2,\)",
    ),
    (lambda k: random.dirichlet(k, 2.0), ValueError, r"^dirichlet: alpha of rank 0; rank 1 or more is needed"),
    (lambda k: random.multinomial(k, 5, 0.5), ValueError, r"^multinomial: p of rank 0; rank 1 or more is needed"),
    (
        lambda k: random.multivariate_normal(k, np.zeros(2), np.eye(3)),
        ValueError,
        r"^multivariate_normal: cov of shape \(3, 3\) for a mean of 2 elements",
    ),
    (
        lambda k: random.multivariate_normal(k, np.zeros(2), -np.eye(2)),
        ValueError,
        r"^cholesky: .*not positive definite",
    ),
)


@pytest.mark.parametrize("number", range(len(REFUSED)))
def test_refused(number: int) -> None:
    function, error, text = REFUSED[number]
    refuses(function, error, text, KEY)


def test_numpy_s_own_numbers_would_be_frozen() -> None:
    """The error names what to use instead."""
    for draw, name in (
        (lambda: np.random.rand(3), "uniform"), (lambda: np.random.randn(3), "normal"),
        (lambda: np.random.standard_gamma(2.0), "gamma"), (lambda: np.random.default_rng(0), "key"),
        (lambda: np.random.choice(3), "choice"), (lambda: np.random.weibull(2.0), "weibull_min"),
    ):  # fmt: skip
        with pytest.raises(tn.TraceError, match=rf"frozen; tenferro\.random\.{name} makes numbers"):
            tn.jit(lambda x, draw=draw: x + draw())(np.ones(3))  # type: ignore[misc]
    generator = np.random.default_rng(0)
    with pytest.raises(tn.TraceError, match=r"drew random numbers while tracing; .* tenferro\.random makes"):
        tn.jit(lambda x: x + generator.random(3))(np.ones(3))


@pytest.mark.parametrize("n", [0, 1, 6, 1625, 1626])
def test_orders_of_selections_are_those_of_arrays_of_that_size(n: int) -> None:
    key, x = tn.random.key(5), np.arange(2 * n) - n + 0.5
    y = x[x > 0]
    np.testing.assert_array_equal(
        tn.jit(lambda x: tn.random.permutation(key, x[x > 0]))(x), tn.random.permutation(key, y)
    )
    np.testing.assert_array_equal(tn.jit(lambda x: tn.random.shuffle(key, x[x > 0]))(x), tn.random.shuffle(key, y))
