"""Functions of networks and special functions where arguments are infinite, huge, or poles."""

from __future__ import annotations

from typing import Any

import mpmath
import numpy as np
import pytest

import tenferro as tn

INF, NAN = np.inf, np.nan
POINTS = np.array([-INF, -1.0, 1.0, INF, NAN])
E = float(np.e)
ACTIVATIONS: dict[str, tuple[float, ...]] = {
    "relu": (0, 0, 1, INF, NAN),
    "relu6": (0, 0, 1, 6, NAN),
    "hard_tanh": (-1, -1, 1, 1, NAN),
    "hard_sigmoid": (0, 1 / 3, 2 / 3, 1, NAN),
    "softplus": (0, np.log1p(1 / E), np.log1p(E), INF, NAN),
    "log_sigmoid": (-INF, -np.log1p(E), -np.log1p(1 / E), 0, NAN),
    "elu": (-1, 1 / E - 1, 1, INF, NAN),
    "celu": (-1, 1 / E - 1, 1, INF, NAN),
}


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name: str, dtype: str) -> None:
    function = getattr(tn.nn, name)
    for run in (function, tn.jit(function)):
        found = run(POINTS.astype(dtype))
        assert found.dtype == dtype
        np.testing.assert_allclose(
            found, np.array(ACTIVATIONS[name], dtype), rtol=1e-6 if dtype == "float32" else 1e-14
        )


def test_no_zero_of_relu_is_negative() -> None:
    assert not np.signbit(tn.nn.relu(np.array([-3.0, -0.0, -INF]))).any()


def test_sums_of_exponentials() -> None:
    with np.errstate(divide="ignore"):
        assert tn.nn.logsumexp(np.full(3, -INF)) == -INF
        assert tn.nn.logsumexp(np.array([INF, 1.0])) == INF
        masked = tn.nn.softmax(np.array([1.0, INF, 2.0]), where=np.array([True, False, True]))
    np.testing.assert_allclose(masked, np.array([1 / (1 + E), 0, E / (1 + E)]), rtol=1e-14)


def _exact(function: Any, *args: float) -> float:
    with mpmath.workdps(400):  # 1e300 + 1.5 is another number
        return float(function(*map(mpmath.mpf, args)))


FAR = [(1e8, 1.5), (1e15, 1.5), (1e300, 1.5), (1e6, 50.0), (50.0, 60.0), (7.0, 0.25), (2.0, 3.0), (-0.5, 1.2)]


@pytest.mark.parametrize(("a", "b"), FAR)
def test_beta(a: float, b: float) -> None:
    wanted = _exact(lambda a, b: mpmath.log(abs(mpmath.gamma(a) * mpmath.gamma(b) / mpmath.gamma(a + b))), a, b)
    for x, y in ((a, b), (b, a)):
        np.testing.assert_allclose(tn.special.betaln(np.array([x]), y), [wanted], rtol=1e-13)
        value = _exact(mpmath.beta, x, y)
        np.testing.assert_allclose(tn.special.beta(np.array([x]), y), [value], rtol=1e-12, atol=1e-300)


@pytest.mark.parametrize(("z", "m"), [(1e8, 1.5), (1e15, -2.5), (0.5, -0.25), (-2.5, 3.0), (10.0, -3.0), (9.0, 4.0)])
def test_rising_factorials(z: float, m: float) -> None:
    wanted = _exact(lambda z, m: mpmath.gamma(z + m) / mpmath.gamma(z), z, m)
    np.testing.assert_allclose(tn.special.poch(np.array([z]), m), [wanted], rtol=1e-12)


def test_poles() -> None:
    z, m = np.array([-3.0, -1.0, -3.0, -4.0, -1.5]), np.array([2.0, 2.0, 5.0, 3.0, 0.5])
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(tn.special.poch(z, m), [6.0, 0.0, 0.0, -24.0, INF], rtol=1e-13)
        np.testing.assert_array_equal(tn.special.beta(np.array([-1.0, 0.0]), 1.5), [INF, INF])


def test_slopes_of_beta() -> None:
    digamma = lambda x: _exact(mpmath.digamma, x)  # noqa: E731
    for a, b in ((20.0, 3.0), (3.0, 20.0), (8.0, 8.0), (2.0, 3.0)):
        wanted = digamma(a) - digamma(a + b)
        np.testing.assert_allclose(tn.grad(tn.special.betaln)(a, b), wanted, rtol=1e-11)


def test_entropies_of_far_apart_numbers() -> None:
    x, y = np.array([1e-300, 1e300, 0.0, 1.0, -1.0]), np.array([1e300, 1e-300, 0.0, 2.0, 1.0])
    far = [_exact(lambda a, b: a * mpmath.log(a / b), a, b) for a, b in ((1e-300, 1e300), (1e300, 1e-300), (1, 2))]
    np.testing.assert_allclose(tn.special.rel_entr(x, y), [far[0], far[1], 0.0, far[2], INF], rtol=1e-13)
    np.testing.assert_allclose(tn.special.kl_div(x[:1], y[:1]), [1e300], rtol=1e-13)
