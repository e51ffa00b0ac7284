"""Elementary functions on the CPU engine, in ulp of the true value: float16 and float32 within 1, float64 within 2.

The true value is NumPy's in a wider format (float64 for float32, the 64-bit-mantissa longdouble for float64), whose own
error is below 0.001 ulp of the narrower one; a sample of float64 is checked against mpmath as well.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest

from tenferro.tracer.ops import OPS
from tests.running import outputs_of
from tests.samples import Sample
from tests.table.agreement import bits, ulps
from tests.table.test_engines import made_for
from tests.values import corners
from tests.vocabulary import UNARY

Array = np.ndarray[Any, Any]
FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp, "log": np.log, "sin": np.sin, "cos": np.cos, "tanh": np.tanh, "sqrt": np.sqrt,
}  # fmt: skip
ALL_FUNCTIONS = FUNCTIONS | {name: OPS[name].reference for name in UNARY}
BOUNDS = {"float16": 1.0, "float32": 1.0, "float64": 2.0}
COUNT = 40_000


def arguments(dtype: str) -> Array:
    """Every exponent and sign alike (random bits), moderate numbers, neighbours of multiples of π/2 and of powers of
    two, subnormals, corner values."""
    rng = np.random.default_rng(1)
    bytes_ = np.dtype(dtype).itemsize
    any_bits = rng.integers(0, 2 ** (8 * bytes_), COUNT, np.uint64 if bytes_ == 8 else np.uint32)
    wild = any_bits.astype(f"u{bytes_}").view(dtype)
    moderate = (rng.standard_normal(COUNT) * np.exp2(rng.uniform(-8, 8, COUNT))).astype(dtype)
    quarter_turns = (np.arange(1, 4000) * (np.pi / 2)).astype(dtype)
    powers = np.ldexp(np.ones(300), np.arange(-150, 150)).astype(dtype)
    subnormal = (rng.uniform(0, 2, 2000) * float(np.finfo(dtype).tiny)).astype(dtype)
    found = [wild, moderate, quarter_turns, powers, -powers, subnormal, corners(np.dtype(dtype))]
    found += [
        np.nextafter(quarter_turns, np.inf, dtype=dtype),
        np.nextafter(powers, 0, dtype=dtype),
        1 + moderate / 1024,
    ]
    return np.concatenate([x.astype(dtype) for x in found])


def _engine_values(name: str, x: Array) -> Array:
    sample = Sample((x,))
    return outputs_of(made_for("cpu:0", name, sample), sample.operands)[0]


@pytest.mark.parametrize("dtype", BOUNDS)
@pytest.mark.parametrize("name", ALL_FUNCTIONS)
def test_elementary_functions_keep_their_bound(name: str, dtype: str) -> None:
    with np.errstate(all="ignore"):
        x = arguments(dtype)
        exact = ALL_FUNCTIONS[name](x.astype(np.longdouble if dtype == "float64" else np.float64))
    errors = ulps(_engine_values(name, x), exact, np.dtype(dtype))
    worst = int(np.argmax(errors))
    assert errors[worst] <= BOUNDS[dtype], f"{name}({x[worst]!r}): {errors[worst]} ulp"


@pytest.mark.parametrize("name", FUNCTIONS)
def test_float64_against_mpmath(name: str) -> None:
    x = arguments("float64")
    x = x[np.isfinite(x) & (x > 0 if name in ("log", "sqrt") else np.isfinite(x))][::400]
    x = np.concatenate([x, [6381956970095103 * 2.0**797, 5.319372648326541e255, 709.7, -745.1, 1e-310]])  # hard for sin
    if name in ("log", "sqrt"):
        x = x[x > 0]
    with mpmath.workprec(200):
        exact = [getattr(mpmath, name)(mpmath.mpf(float(v))) for v in x]
        wide = np.array([_longdouble(e) for e in exact])
    errors = ulps(_engine_values(name, x), wide, np.dtype(np.float64))
    worst = int(np.argmax(errors))
    assert errors[worst] <= 2.0, f"{name}({x[worst]!r}): {errors[worst]} ulp"


def _longdouble(value: Any) -> np.longdouble:
    """An mpf rounded to longdouble through its high and low parts."""
    high = float(value)
    if not np.isfinite(high):
        return np.longdouble(high)
    return np.longdouble(high) + np.longdouble(float(value - mpmath.mpf(high)))


@pytest.mark.parametrize("dtype", BOUNDS)
def test_special_values(dtype: str) -> None:
    """C99 Annex F: what IEEE functions give for zeros, infinities, NaN and beyond their domain."""
    inf, nan = np.inf, np.nan
    cases = {
        "exp": [(0.0, 1.0), (-0.0, 1.0), (inf, inf), (-inf, 0.0), (nan, nan)],
        "log": [(1.0, 0.0), (0.0, -inf), (-0.0, -inf), (inf, inf), (-1.0, nan), (-inf, nan), (nan, nan)],
        "sin": [(0.0, 0.0), (-0.0, -0.0), (inf, nan), (-inf, nan), (nan, nan)],
        "cos": [(0.0, 1.0), (-0.0, 1.0), (inf, nan), (nan, nan)],
        "tanh": [(0.0, 0.0), (-0.0, -0.0), (inf, 1.0), (-inf, -1.0), (nan, nan)],
        "sqrt": [(0.0, 0.0), (-0.0, -0.0), (inf, inf), (-1.0, nan), (-inf, nan), (nan, nan), (4.0, 2.0)],
    }
    for name, pairs in cases.items():
        x, expected = (np.array(column, dtype) for column in zip(*pairs, strict=True))
        problem = bits(_engine_values(name, x), expected)
        assert problem is None, f"{name}: {problem}"
