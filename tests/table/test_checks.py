"""What rows check in their lanes: divisors of ``fmod`` and exponents of integer powers, as a user meets them."""

from __future__ import annotations

import numpy as np
import pytest

import tenferro as tn

INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


@pytest.mark.parametrize("dtype", INTEGERS)
def test_fmod_by_zero_warns_and_gives_zero(dtype: str) -> None:
    jitted = tn.jit(lambda x, y: np.fmod(x, y))
    x, y = np.array([7, 9, 5, 4], dtype), np.array([4, 0, 3, 0], dtype)
    with pytest.warns(RuntimeWarning, match=r"^fmod: divisor 0 under the dividend 9; .*test_checks.py:\d+\)$"):
        np.testing.assert_array_equal(jitted(x, y), np.array([3, 0, 2, 0], dtype))


def test_fmod_has_the_sign_of_the_dividend() -> None:
    x = np.array([7, -7, 7, -7, np.iinfo(np.int64).min], np.int64)
    y = np.array([4, 4, -4, -4, -1], np.int64)
    np.testing.assert_array_equal(tn.jit(lambda x, y: np.fmod(x, y))(x, y), np.fmod(x, y))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_integer_powers(dtype: str) -> None:
    rng = np.random.default_rng(0)
    info = np.iinfo(dtype)
    x = rng.integers(info.min, info.max, 200, dtype, endpoint=True)
    n = rng.integers(0, min(info.max, 200), 200, dtype)
    np.testing.assert_array_equal(tn.jit(lambda x, n: x**n)(x, n), x**n)


@pytest.mark.parametrize("size", [1, 5, 1000])
def test_one_negative_exponent_is_found(size: int) -> None:
    jitted = tn.jit(lambda x, n: x**n)
    x, n = np.full(size, 3), np.full(size, 2)
    np.testing.assert_array_equal(jitted(x, n), 9)
    n[size // 2] = -4
    with pytest.raises(tn.ExponentError, match=r"^power: integers to the exponent -4; .*test_checks.py:\d+\)$") as e:
        jitted(x, n)
    assert isinstance(e.value, ValueError)
    n[size // 2] = 0
    np.testing.assert_array_equal(jitted(x, n), x**n)


def test_no_elements_have_no_negative_exponent() -> None:
    jitted = tn.jit(lambda x, n: x**n)
    assert jitted(np.zeros(0, int), np.array(-1)).shape == np.power(np.zeros(0, int), np.array(-1)).shape == (0,)


def test_a_negative_exponent_under_where_raises_as_in_numpy() -> None:
    def masked(x: np.ndarray, n: np.ndarray) -> np.ndarray:
        return np.where(n >= 0, x**n, 0)

    x, n = np.arange(4), np.array([2, -1, 0, 1])
    for function in (masked, tn.jit(masked)):
        with pytest.raises(ValueError, match="negative integer powers are not allowed"):
            function(x, n)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("decimals", [-2, -1, 0, 1, 2, 3, 5, 8])
def test_round_to_decimals_has_the_bits_of_numpy(decimals: int, dtype: str) -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(0, 100, 300), [0.0, -0.0, 0.5, 2.5, -0.04, np.inf, -np.inf, np.nan]]).astype(dtype)
    with np.errstate(all="ignore"):
        expected = np.round(x, decimals)
    got = tn.jit(lambda x: np.round(x, decimals))(x)
    np.testing.assert_array_equal(got, expected)
    np.testing.assert_array_equal(np.signbit(got[:-1]), np.signbit(expected[:-1]))
