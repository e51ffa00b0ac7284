"""Floor division and remainder: integers against Python's, floats against ``math.fmod`` and NumPy at all exponents."""

from __future__ import annotations

import math
import re

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tenferro.tracer import scalar
from tenferro.tracer.scalar.division import remainder_toward_zero
from tests.tracer.scalar.kernels import Array, compiled, evaluated
from tests.tracer.scalar.test_ops import assert_same
from tests.values import of_kinds


def spread(dtype: np.dtype, count: int, seed: int) -> Array:
    """Integers of every number of bits, and the values next to powers of two."""
    rng = np.random.default_rng(seed)
    bits = 8 * dtype.itemsize
    raw = rng.integers(0, 2**bits, count, np.uint64, endpoint=False) >> rng.integers(0, bits, count, np.uint64)
    near = (
        (np.uint64(1) << rng.integers(0, bits, count, np.uint64)) + rng.integers(0, 3, count, np.uint64) - np.uint64(1)
    )
    values = np.concatenate([raw, near]).astype(f"u{dtype.itemsize}").view(dtype)
    return np.concatenate([values, -values]) if dtype.kind == "i" else values


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
@pytest.mark.parametrize("dtype", of_kinds("iu"))
def test_integers_as_python_divides(dtype: str, name: str) -> None:
    kind = np.dtype(dtype)
    x, y = spread(kind, 6000, 1), np.random.default_rng(3).permutation(spread(kind, 6000, 2))
    got = compiled(getattr(scalar, name), [kind, kind])(x, y)
    by_python = (lambda a, b: a // b) if name == "floor_divide" else (lambda a, b: a % b)
    exact = [by_python(a, b) if b else 0 for a, b in zip(x.tolist(), y.tolist(), strict=True)]
    wrapped = np.array([v % 2 ** (8 * kind.itemsize) for v in exact], f"u{kind.itemsize}").view(kind)
    assert_same(got, wrapped, (x, y))


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**64 - 1), st.integers(1, 2**64 - 1), st.integers(0, 63), st.integers(0, 63))
def test_uint64_quotients_near_multiples(x: int, y: int, x_shift: int, y_shift: int) -> None:
    """Dividends one off a multiple of the divisor, where an estimate is most likely to be one off."""
    x, y = x >> x_shift, max(1, y >> y_shift)
    multiple = x - x % y
    dividends = [v % 2**64 for v in (x, multiple, multiple - 1, multiple + y - 1, multiple + y)]
    a, b = np.array(dividends, np.uint64), np.full(5, y, np.uint64)
    assert evaluated(scalar.floor_divide, a, b).tolist() == [v // y for v in dividends]
    assert evaluated(scalar.remainder, a, b).tolist() == [v % y for v in dividends]


def wide_floats(dtype: str, count: int, seed: int) -> Array:
    rng = np.random.default_rng(seed)
    kind = np.dtype(dtype)
    words = rng.integers(0, 2 ** (8 * kind.itemsize), count, np.uint64, endpoint=False).astype(f"u{kind.itemsize}")
    ordinary = (rng.normal(0, 10, count) * 10.0 ** rng.integers(-3, 4, count)).astype(kind)
    whole = np.rint(rng.normal(0, 100, count)).astype(kind)
    tiny = (rng.uniform(-4, 4, count) * float(np.finfo(kind).tiny)).astype(kind)
    return np.concatenate([words.view(kind), ordinary, whole, tiny])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_remainder_toward_zero_is_exact(dtype: str) -> None:
    x, y = wide_floats(dtype, 3000, 1), np.random.default_rng(3).permutation(wide_floats(dtype, 3000, 2))
    got = compiled(remainder_toward_zero, [x.dtype, y.dtype])(x, y)
    exact = np.array([_fmod(float(a), float(b)) for a, b in zip(x, y, strict=True)]).astype(dtype)
    assert_same(got, exact, (x, y))


def _fmod(x: float, y: float) -> float:
    return math.nan if math.isinf(x) or math.isnan(x) or y == 0 or math.isnan(y) else math.fmod(x, y)


@pytest.mark.parametrize("name", ["floor_divide", "remainder"])
@pytest.mark.parametrize("dtype", of_kinds("f"))
def test_floats_as_numpy_divides(dtype: str, name: str) -> None:
    x, y = wide_floats(dtype, 3000, 4), np.random.default_rng(3).permutation(wide_floats(dtype, 3000, 5))
    got = compiled(getattr(scalar, name), [x.dtype, y.dtype])(x, y)
    with np.errstate(all="ignore"):
        assert_same(got, getattr(np, name)(x, y), (x, y))


@pytest.mark.parametrize("dtype", of_kinds("iu"))
def test_no_integer_division_is_emitted(dtype: str) -> None:
    kind = np.dtype(dtype)
    for function in (scalar.floor_divide, scalar.remainder):
        text = compiled(function, [kind, kind], level=0).text
        assert re.search(r"\b[su](div|rem)\b", text) is None
        assert "fdiv" in text
