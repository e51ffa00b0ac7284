"""Programs as people publish them, unedited: plain NumPy against the jitted function, at three sizes, in C and F order.

Each case states how many times it may compile: once, unless the code itself asks for a size as a number."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.programs import clustering, finance, game_of_life, heat, images, learning, mandelbrot, signals, solvers

Array = np.ndarray[Any, Any]
Make = Callable[[np.random.Generator, int], tuple[Any, ...]]


@dataclass(frozen=True)
class Case:
    """``make(rng, n)`` gives the arguments at size n. ``compiles`` above 1: the code asks for a size as a number, with
    ``len`` or ``range``. ``rtol`` 0 asks for equal values; else the error may be ``rtol`` of the largest magnitude."""

    function: Callable[..., Any]
    make: Make
    sizes: tuple[int, int, int] = (5, 12, 33)
    compiles: int = 1
    rtol: float = 0.0
    unrolls: bool = False  # so long a Python loop that tenferro says so


def _board(rng: np.random.Generator, n: int) -> tuple[Array]:
    return ((rng.random((n, n + 3)) < 0.4).astype(np.uint8),)


def _plane(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return tuple(np.broadcast_arrays(np.linspace(-2, 0.5, n + 4), np.linspace(-1.2, 1.2, n)[:, None]))  # type: ignore[return-value]


def _field(rng: np.random.Generator, n: int) -> Array:
    return rng.standard_normal((n, n + 2))


def _labels(rng: np.random.Generator, n: int) -> tuple[Array, Array]:
    return rng.standard_normal((n, 7)), rng.integers(0, 7, n)


def _logistic(rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    return rng.standard_normal(4), 0.25, rng.standard_normal((n, 4)), (rng.random(n) < 0.5).astype(float)


def _network(rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    return tuple(rng.standard_normal(s).astype(np.float32) for s in ((n, 6), (6, 8), (8,), (8, 3), (3,)))


def _options(rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    return rng.uniform(50, 150, n), rng.uniform(50, 150, n), rng.uniform(0.1, 2, n), 0.03, 0.2


def _band(rng: np.random.Generator, n: int) -> tuple[Any, ...]:
    return rng.random(n), 4 + rng.random(n), rng.random(n), rng.standard_normal(n)


def _square(rng: np.random.Generator, n: int) -> Array:
    a = rng.random((n, n))
    return a + a.T + n * np.eye(n)


def _photo(rng: np.random.Generator, n: int) -> tuple[Array]:
    return (rng.integers(0, 256, (n, n + 5, 3)).astype(np.uint8),)


CASES = [
    Case(game_of_life.step, _board),
    Case(game_of_life.generations, _board),
    Case(mandelbrot.escape_where, _plane),
    Case(mandelbrot.escape_masked, _plane),
    Case(heat.diffuse, lambda rng, n: (_field(rng, n), 0.1)),
    Case(heat.wave, lambda rng, n: (_field(rng, n), 0.5)),
    Case(clustering.lloyd_step, lambda rng, n: (rng.standard_normal((n, 2)), rng.standard_normal((3, 2))), rtol=1e-13),
    Case(clustering.pairwise, lambda rng, n: (rng.standard_normal((n, 3)),), rtol=1e-6),
    Case(clustering.nearest, lambda rng, n: (rng.standard_normal((n, 3)), rng.standard_normal((n + 4, 3)))),
    Case(learning.logistic_step, _logistic, rtol=1e-13),
    Case(learning.cross_entropy, _labels, compiles=3, rtol=1e-13),
    Case(learning.network, _network, rtol=1e-5),
    Case(learning.standardise, lambda rng, n: (_field(rng, n),), rtol=1e-13),
    Case(learning.layer_norm, lambda rng, n: (_field(rng, n), 1.5, 0.5), rtol=1e-13),
    Case(finance.black_scholes, _options, rtol=1e-13),
    Case(finance.drawdown, lambda rng, n: (rng.uniform(50, 150, n),), rtol=1e-13),
    Case(signals.moving_average, lambda rng, n: (rng.standard_normal(n),), sizes=(6, 40, 101)),
    Case(signals.gradient, lambda rng, n: (rng.standard_normal(n), 0.1)),
    Case(signals.exponential_taps, lambda rng, n: (rng.standard_normal(n),), compiles=3),
    Case(signals.without_outliers, lambda rng, n: (rng.standard_normal(n),), rtol=1e-13),
    Case(signals.interleave, lambda rng, n: (rng.integers(0, 99, n), rng.integers(0, 99, n))),
    Case(images.box_blur, lambda rng, n: (_field(rng, n),)),
    Case(images.equalise, lambda rng, n: (rng.integers(0, 64, (n, n + 5)),)),
    Case(images.vignette, _photo),
    Case(images.sobel, lambda rng, n: (_field(rng, n),)),
    Case(images.grey, _photo, rtol=1e-13),
    Case(solvers.thomas, _band, sizes=(3, 50, 200), compiles=3, unrolls=True),
    Case(solvers.runge_kutta, lambda rng, n: (rng.standard_normal((n, 3)), 0.01)),
    Case(solvers.power_iteration, lambda rng, n: (_square(rng, n),), rtol=1e-12),
    Case(solvers.jacobi, lambda rng, n: (_square(rng, n), rng.standard_normal(n)), rtol=1e-12),
    Case(solvers.horner, lambda rng, n: (rng.standard_normal((n, 4)).astype(np.float32),)),
    Case(
        solvers.n_body,
        lambda rng, n: (rng.standard_normal((n, 3)), rng.standard_normal((n, 3)), rng.random(n)),
        rtol=1e-13,
    ),
]


def _ordered(value: Any, order: str) -> Any:
    return np.array(value, order=order) if isinstance(value, np.ndarray) else value  # type: ignore[call-overload]


def assert_agrees(actual: Any, expected: Any, rtol: float) -> None:
    """The same structure and types (NumPy scalars for rank 0), dtypes and shapes; values within ``rtol``."""
    if isinstance(expected, tuple):
        assert isinstance(actual, tuple) and len(actual) == len(expected)
        for a, e in zip(actual, expected, strict=True):
            assert_agrees(a, e, rtol)
        return
    assert type(actual) is type(expected)
    assert actual.dtype == expected.dtype
    assert actual.shape == expected.shape
    if rtol == 0:
        np.testing.assert_array_equal(actual, expected)
    else:
        np.testing.assert_allclose(actual, expected, rtol=0, atol=rtol * float(np.max(np.abs(expected))))


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.function.__module__.rsplit('.')[-1]}.{c.function.__name__}")
def test_program(case: Case) -> None:
    if case.unrolls:
        with pytest.warns(tn.UnrolledLoopWarning, match=r"more than 1000 operations .*solvers\.py"):
            check(case)
    else:
        check(case)


def check(case: Case) -> None:
    jitted = tn.jit(case.function)
    for number, n in enumerate(case.sizes):
        for order in "CF":
            arguments = case.make(np.random.default_rng(number), n)
            before = [_ordered(x, "K") for x in arguments]
            expected = case.function(*(_ordered(x, order) for x in arguments))
            given = [_ordered(x, order) for x in arguments]
            assert_agrees(jitted(*given), expected, case.rtol)
            for x, y in zip(given, before, strict=True):
                np.testing.assert_array_equal(x, y)
    assert jitted.cache_info().compiles == case.compiles, jitted.explain()
