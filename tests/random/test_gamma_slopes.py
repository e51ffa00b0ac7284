"""Derivatives of gamma numbers along their shape: of the number below which a fixed share lies, to second order, and of
what is made of gamma numbers; against mpmath's distribution and against JAX."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import tenferro as tn

KEY = np.array([0, 3], np.uint32)
SHAPES = np.array([0.02, 0.3, 0.8, 1.0, 1.5, 4.0, 30.0, 700.0])
LARGE = np.array([1e-3, 1e4, 1e5])


def share(shape: Any, logarithm: Any, upper: bool) -> Any:
    """Of smaller numbers, or of larger ones."""
    x = mpmath.exp(logarithm)
    return mpmath.gammainc(shape, x, mpmath.inf, True) if upper else mpmath.gammainc(shape, 0, x, True)


def slopes(shape: float, logarithm: float) -> tuple[float, float]:
    """The first and second derivative of the logarithm of a number with its share held: L' = -P_a / P_L by differences
    of P in 50 digits, and L'' by differences of L' along the curve."""

    def first(a: Any, log_x: Any) -> Any:
        step, upper = a * mpmath.mpf(10) ** -15, mpmath.exp(log_x) > a
        along = (share(a + step, log_x, upper) - share(a - step, log_x, upper)) / (2 * step)
        density = mpmath.exp(a * log_x - mpmath.exp(log_x) - mpmath.loggamma(a))
        return along / density if upper else -along / density

    with mpmath.workdps(50):
        a, log_x = mpmath.mpf(shape), mpmath.mpf(logarithm)
        slope = first(a, log_x)
        step = a * mpmath.mpf(10) ** -8
        turn = (first(a + step, log_x + step * slope) - first(a - step, log_x - step * slope)) / (2 * step)
        return float(slope), float(turn)


def drawn(shapes: Any, **options: Any) -> Any:
    return tn.random.loggamma(KEY, shapes, **options)


@pytest.mark.parametrize("seed", range(4))
def test_logarithms_to_second_order(seed: int) -> None:
    key = np.array([0, seed], np.uint32)

    def f(a: Any) -> Any:
        return tn.random.loggamma(key, a)

    ones = np.ones_like(SHAPES)
    logarithms = np.asarray(f(SHAPES))
    expected = np.array([slopes(a, x) for a, x in zip(SHAPES, logarithms, strict=True)]).T
    first = tn.grad(lambda a: f(a).sum())
    second = tn.grad(lambda a: first(a).sum())
    for wrapped in (lambda g: g, tn.jit):
        np.testing.assert_allclose(wrapped(first)(SHAPES), expected[0], rtol=1e-11)
        np.testing.assert_allclose(wrapped(second)(SHAPES), expected[1], rtol=1e-7)
        np.testing.assert_allclose(tn.jvp(f, (SHAPES,), (ones,))[1], expected[0], rtol=1e-11)


def test_numbers_are_powers_of_their_logarithms() -> None:
    """And so are their slopes; also of shapes whose numbers are too small for their dtype."""
    for shapes in (SHAPES, LARGE):
        x, slope = tn.jvp(lambda a: tn.random.gamma(KEY, a), (shapes,), (np.ones_like(shapes),))
        log_x, log_slope = tn.jvp(drawn, (shapes,), (np.ones_like(shapes),))
        np.testing.assert_allclose(x, np.exp(log_x), rtol=1e-9)
        np.testing.assert_allclose(slope, np.exp(log_x) * np.asarray(log_slope), rtol=1e-9)
        for a, log_value, found in zip(shapes, np.asarray(log_x), np.asarray(log_slope), strict=True):
            assert found == pytest.approx(slopes(a, log_value)[0], rel=1e-10)


@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_narrow_dtypes(dtype: str) -> None:
    """Their own numbers, differentiated in double precision and rounded once more than those."""
    shapes = SHAPES[:-1].astype(dtype)
    numbers, found = tn.jvp(lambda a: drawn(a, dtype=dtype), (shapes,), (np.ones_like(shapes),))
    assert np.asarray(found).dtype == dtype
    expected = [slopes(float(a), float(x))[0] for a, x in zip(shapes, np.asarray(numbers), strict=True)]
    np.testing.assert_allclose(found, expected, rtol=3e-3 if dtype == "float16" else 2e-6)


def test_edges() -> None:
    shapes = np.array([0.0, -1.0, np.nan, 1e-5])
    for tangent, expected in ((np.ones(4), [0, np.nan, np.nan, 0]), (np.zeros(4), [0, 0, 0, 0])):
        np.testing.assert_array_equal(tn.jvp(lambda a: tn.random.gamma(KEY, a), (shapes,), (tangent,))[1], expected)


@pytest.mark.parametrize("mean", ["gamma", "chisquare"])
def test_slopes_of_means(mean: str) -> None:
    """The mean of many numbers changes as the distribution's mean does, and so does that of their squares."""
    count = 200_000
    for a in (0.4, 3.0):

        def moment(a: Any, power: int) -> Any:
            return (getattr(tn.random, mean)(KEY, a, (count,)) ** power).mean()

        k = 2.0 if mean == "chisquare" else 1.0
        shape = a / k  # k times a gamma number of shape a/k
        assert tn.grad(lambda a: moment(a, 1))(a) == pytest.approx(1.0, rel=0.03)
        assert tn.grad(lambda a: moment(a, 2))(a) == pytest.approx(k * (2 * shape + 1), rel=0.06)


def test_slopes_of_shares() -> None:
    """E[B²] of beta numbers is a (a + 1) / ((a + b) (a + b + 1)); E[D₀²] of Dirichlet numbers likewise."""
    a, b = 1.5, 2.5
    total = (a + b) * (a + b + 1)
    value = a * (a + 1) / total
    expected = ((2 * a + 1) / total - value * (2 * (a + b) + 1) / total, -value * (2 * (a + b) + 1) / total)
    found = tn.grad(lambda a, b: (tn.random.beta(KEY, a, b, (100_000,)) ** 2).mean(), (0, 1))(a, b)
    np.testing.assert_allclose(found, expected, rtol=0.05)
    pair = np.array([a, b])
    found = tn.grad(lambda p: (tn.random.dirichlet(KEY, p, (100_000,))[:, 0] ** 2).mean())(pair)
    np.testing.assert_allclose(found, expected, rtol=0.05)


def test_students_numbers() -> None:
    """E[T²] of Student's is n / (n - 2)."""
    found = tn.grad(lambda n: (tn.random.t(KEY, n, (400_000,)) ** 2).mean())(12.0)
    assert found == pytest.approx(-2 / 100, rel=0.1)


def test_slopes_are_jax() -> None:
    jax = pytest.importorskip("jax")
    shapes = np.concatenate([SHAPES, [1e4]])
    x, slope = tn.jvp(lambda a: tn.random.gamma(KEY, a), (shapes,), (np.ones_like(shapes),))
    with jax.enable_x64(True):
        expected = jax.lax.random_gamma_grad(shapes, np.asarray(x))
    np.testing.assert_allclose(slope, np.asarray(expected), rtol=1e-11)


def test_lanes_and_sizes() -> None:
    """In lanes as alone; one program for every size."""

    def total(a: Any) -> Any:
        return drawn(a).sum()

    gradient = tn.jit(tn.grad(total))
    for count in (1, 5, 300):
        shapes = np.linspace(0.1, 9, count)
        np.testing.assert_array_equal(gradient(shapes), tn.grad(total)(shapes))
    assert gradient.cache_info().compiles == 1
    lanes = np.linspace(0.5, 3, 6).reshape(3, 2)
    found = tn.vmap(tn.grad(total))(lanes)
    np.testing.assert_array_equal(found, [tn.grad(total)(row) for row in lanes])
