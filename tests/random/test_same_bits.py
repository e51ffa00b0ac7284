"""The same numbers whoever makes them: threads, vector widths, engines, jitted or not, alone or among others; and one
program for every size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import random
from tenferro.tracer.ops import OPS
from tests.lax.checking import serves_all, ways

Array = np.ndarray[Any, Any]
KEY = np.array([0x13198A2E, 0x03707344], np.uint32)

DRAWS: dict[str, Callable[[Any, Any], Any]] = {
    "bits": lambda k, n: random.bits(k, (n,), np.uint16),
    "uniform": lambda k, n: random.uniform(k, (n,), np.float32, -1.0, 3.0),
    "normal": lambda k, n: random.normal(k, (n, 3)),
    "normal of one dtype": lambda k, n: random.normal(k, (n,), np.float32),
    "randint": lambda k, n: random.randint(k, (n,), 0, 1000, np.int32),
    "exponential": lambda k, n: random.exponential(k, (n,)),
    "gamma": lambda k, n: random.gamma(k, 0.7, (n,), np.float32),
    "gamma of many": lambda k, n: random.gamma(k, 3.0, (n,)),
    "poisson": lambda k, n: random.poisson(k, 4.0, (n,)),
    "poisson of many": lambda k, n: random.poisson(k, 40.0, (n,)),
    "binomial": lambda k, n: random.binomial(k, 100, 0.4, (n,)),
    "categorical": lambda k, n: random.categorical(k, np.zeros(5), shape=(n,)),
    "dirichlet": lambda k, n: random.dirichlet(k, np.array([1.0, 2.0, 3.0]), (n,)),
    "permutation": lambda k, n: random.permutation(k, n),
    "split": lambda k, n: random.split(k, n),
}


@pytest.mark.parametrize("name", DRAWS)
def test_any_number_of_threads(name: str) -> None:
    draw = tn.jit(DRAWS[name])
    wanted = draw(KEY, 100_003)
    for count in (1, 2, 3, 8):
        with tn.threads(count):
            np.testing.assert_array_equal(draw(KEY, 100_003), wanted)


@pytest.mark.parametrize("name", DRAWS)
def test_every_way_of_running(name: str) -> None:
    """Jitted and at once, and on the reference engine where no function of its own takes part."""
    results = [(how, np.asarray(run())) for how, run in ways(lambda k: DRAWS[name](k, 999), KEY)]
    for how, found in results:
        if "reference" not in how:
            np.testing.assert_array_equal(found, results[0][1], err_msg=how)
        elif found.dtype.kind == "f":
            np.testing.assert_allclose(found, results[0][1], rtol=2e-4, atol=1e-6, err_msg=how)
        else:
            assert (found != results[0][1]).sum() <= 1, how  # a draw at the edge of acceptance


@pytest.mark.parametrize("name", sorted(set(DRAWS) - {"split", "permutation"}))
def test_more_numbers_begin_with_fewer(name: str) -> None:
    """Element k depends on the key and on k."""
    draw = tn.jit(DRAWS[name])
    many = draw(KEY, 5000)
    for n in (1, 7, 16, 33, 4097):
        np.testing.assert_array_equal(draw(KEY, n), many[:n])


@pytest.mark.parametrize("name", DRAWS)
def test_one_program_serves_every_size(name: str) -> None:
    sizes = (2, 3, 5, 16, 17, 100, 1000) if name in ("permutation", "split") else (0, 1, 2, 3, 5, 16, 17, 100, 1000)
    serves_all(DRAWS[name], lambda k, n: np.asarray(DRAWS[name](k, n)), *((KEY, n) for n in sizes))


def test_permutations_have_three_programs() -> None:
    """Rounds of sorting depend on the size: up to 1,625 elements one, up to 2,642,245 two."""
    draw = tn.jit(lambda k, n: random.permutation(k, n))
    for n in (0, 1, 2, 7, 1625, 1626, 5000, 3_000_000):
        found = np.asarray(draw(KEY, n))
        assert found.dtype == np.int64 and len(found) == n
        assert (np.bincount(found, minlength=n) == 1).all()
    assert draw.cache_info().compiles == 3


def test_maps_over_keys() -> None:
    keys = np.asarray(random.split(KEY, 5))
    for name in sorted(set(DRAWS) - {"split"}):
        draw = DRAWS[name]
        mapped = tn.vmap(lambda k, draw=draw: draw(k, 20))(keys)
        np.testing.assert_array_equal(mapped, np.stack([draw(k, 20) for k in keys]), err_msg=name)
    mapped = tn.vmap(lambda k, a: random.gamma(k, a, (4,)))(keys, np.arange(1.0, 6.0))
    each = [random.gamma(k, a, (4,)) for k, a in zip(keys, np.arange(1.0, 6.0), strict=True)]
    np.testing.assert_array_equal(mapped, np.stack(each))


def test_counters_of_more_than_32_bits() -> None:
    """Beyond 2**32 elements the upper word counts on: where all but the last element are the same number, few are
    looked at."""
    n = 2**32 + 50
    last = tn.jit(lambda k, n: random.bits(k, (n, 1), np.uint32)[-5:, 0])
    numbers = np.arange(n - 5, n, dtype=np.uint64)
    wanted = OPS["threefry"].reference(KEY[0], KEY[1], numbers, dtype=np.dtype(np.uint32))
    np.testing.assert_array_equal(last(KEY, n), wanted)
    assert (np.asarray(numbers) >> np.uint64(32)).all()


# -- what is made of them ----------------------------------------------------------------------------------------------

ONE_REGION: dict[str, Callable[..., Any]] = {
    "normal": lambda k, n: random.normal(k, (n,)) * 2 + 1,
    "normal of two axes": lambda k, n: random.normal(k, (n, 7), np.float32) * 2 + 1,
    "uniform": lambda k, n: np.sqrt(random.uniform(k, (n,), np.float32, -1.0, 1.0) ** 2),
    "exponential": lambda k, n: np.exp(-random.exponential(k, (n,))),
    "gumbel": lambda k, n: random.gumbel(k, (n,)) > 0,
    "gamma": lambda k, n: np.log(random.gamma(k, 2.0, (n,))),
    "poisson": lambda k, n: random.poisson(k, 3.0, (n,)) % 2,
    "bernoulli": lambda k, n: np.where(random.bernoulli(k, 0.2, (n,)), 0.0, 1.25),
    "mean": lambda k, n: random.normal(k, (n,)).mean(),
    "categorical": lambda k, n: random.categorical(k, np.arange(3.0), shape=(n,)),
}


@pytest.mark.parametrize("name", ONE_REGION)
def test_one_kernel_with_what_uses_them(name: str) -> None:
    """No array of bits, of uniform numbers or of indices exists."""
    lowered = tn.jit(ONE_REGION[name]).lower(KEY, 1000)
    assert lowered.as_text("regions").count("region ") == 1, lowered.as_text("regions")


def test_dropout_is_one_kernel() -> None:
    @tn.jit
    def dropout(key: Any, x: Array) -> Any:
        return np.where(random.bernoulli(key, 0.9, x.shape), x / 0.9, 0)

    x = np.ones((64, 33), np.float32)
    found = dropout(KEY, x)
    assert set(np.unique(found)) == {np.float32(0), np.float32(1) / np.float32(0.9)}
    assert dropout.lower(KEY, x).as_text("regions").count("region ") == 1


def test_keys_made_inside() -> None:
    """A program with a seed of its own gives the same numbers at each call; a key that is an argument others."""
    own = tn.jit(lambda n: random.normal(random.key(7), (n,)))
    np.testing.assert_array_equal(own(5), random.normal(random.key(7), (5,)))
    np.testing.assert_array_equal(own(5), own(5))

    @tn.jit
    def step(key: Any) -> Any:
        key, used = random.split(key)
        return key, random.normal(used, (3,))

    key, seen = KEY, []
    for _ in range(4):
        key, z = step(key)
        seen.append(z)
    assert len(np.unique(np.concatenate(seen))) == 12
    assert step.cache_info().compiles == 1


def test_derivatives_along_parameters() -> None:
    """Numbers that are formulas of uniform numbers have slopes along their parameters."""
    z = np.asarray(random.normal(KEY, (4,)))
    slope = tn.grad(lambda s: np.sum(random.lognormal(KEY, s, (4,))))(0.5)
    np.testing.assert_allclose(slope, (z * np.exp(0.5 * z)).sum())
    u = np.asarray(random.uniform(KEY, (4,)))
    slopes = tn.grad(lambda ab: np.sum(random.uniform(KEY, (4,), None, ab[0], ab[1]) ** 2))(np.array([0.5, 2.0]))
    x = 0.5 + 1.5 * u
    np.testing.assert_allclose(slopes, [(2 * x * (1 - u)).sum(), (2 * x * u).sum()])
    mean, cov = np.array([1.0, 2.0]), np.array([[2.0, 0.5], [0.5, 1.0]])

    def total(c: Any) -> Any:
        return np.sum(random.multivariate_normal(KEY, mean, (c + c.T) / 2, (3,)) ** 2)

    slopes, step = np.asarray(tn.grad(total)(cov)), 1e-6
    for place in ((0, 0), (0, 1), (1, 0), (1, 1)):
        shift = np.zeros((2, 2))
        shift[place] = step
        wanted = (float(total(cov + shift)) - float(total(cov - shift))) / (2 * step)
        np.testing.assert_allclose(slopes[place], wanted, rtol=1e-6)
    with pytest.raises(tn.TenferroError, match="returned int64"):
        tn.grad(lambda a: np.sum(random.poisson(KEY, a, (4,))))(2.0)
