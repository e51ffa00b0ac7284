"""Elementary functions against mpmath and NumPy's accuracy tables: float32 within 1 ulp, float64 within 2."""

from __future__ import annotations

from pathlib import Path

import mpmath
import numpy as np
import pytest

from tenferro.tracer import scalar
from tenferro.tracer.ops import OPS
from tenferro.tracer.scalar import exponential
from tests.tracer.scalar.inputs import (
    ALL_NAMES,
    COMPLEX_NAMES,
    complex_classes,
    complex_errors,
    exact,
    exact_complex,
    function,
    input_classes,
    ulps,
)
from tests.tracer.scalar.kernels import compiled, evaluated
from tests.tracer.scalar.test_ops import assert_same, samples

BOUND = {"float16": 0.501, "float32": 1.0, "float64": 2.0}
SINGLE_SPANS = {
    "exp": (0.01, 88.0), "log": (0.3, 3.0), "tanh": (0.1, 10.0), "sqrt": (0.5, 4.0), "expm1": (0.001, 88.0),
    "exp2": (0.01, 127.0), "log1p": (0.001, 0.999), "log2": (0.3, 3.0), "log10": (0.3, 3.0), "sinh": (0.01, 89.0),
    "cosh": (0.01, 89.0), "arcsin": (0.001, 1.0), "arccos": (0.001, 1.0), "arctanh": (0.001, 1.0),
    "arccosh": (1.0, 1000.0),
}  # fmt: skip
DOUBLE_SPANS = {
    "exp": (-745, 709), "log": (0.3, 3), "tanh": (-1, 1), "sqrt": (0.5, 4), "sin": (-100, 100), "cos": (-100, 100),
    "expm1": (-2, 2), "exp2": (-1074, 1023), "log1p": (-0.9, 3), "log2": (0.3, 3), "log10": (0.3, 3), "cbrt": (-9, 9),
    "rsqrt": (0.5, 4), "sinh": (-3, 3), "cosh": (-3, 3), "tan": (-100, 100), "arcsin": (-1, 1), "arccos": (-1, 1),
    "arctan": (-4, 4), "arcsinh": (-3, 3), "arccosh": (1, 3), "arctanh": (-1, 1),
}  # fmt: skip
TABLES = Path(np.__file__).parent / "_core" / "tests" / "data"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ALL_NAMES)
def test_against_mpmath(name: str, dtype: str) -> None:
    kernel = compiled(function(name), [np.dtype(dtype)])
    for case, x in input_classes(name, np.dtype(dtype), 600).items():
        errors = ulps(kernel(x), *exact(name, x))
        worst = int(np.argmax(errors))
        assert errors[worst] <= BOUND[dtype], f"{case}: {name}({float(x[worst])!r}) is off by {errors[worst]} ulp"


@pytest.mark.parametrize("name", ALL_NAMES)
def test_every_float16(name: str) -> None:
    """float64 is 2**-42 ulp of float16: NumPy's function in it is the true value."""
    x = np.arange(2**16, dtype=np.uint16).view(np.float16)
    with np.errstate(all="ignore"):
        true = OPS[name].reference(x.astype(np.float64))
    errors = ulps(compiled(function(name), [x.dtype])(x), true, np.zeros_like(true))
    assert errors.max() <= BOUND["float16"]


@pytest.mark.parametrize("name", ALL_NAMES)
def test_float32_densely(name: str) -> None:
    """Where errors are largest, a million values against NumPy's float64 function (2**-29 ulp of float32)."""
    low, high = SINGLE_SPANS.get(name, (0.1, 100.0))
    first, last = (int(v) for v in np.array([low, high], np.float32).view(np.uint32))
    x = np.arange(first, last, (last - first) // 500_000, dtype=np.uint32).view(np.float32)
    x = x if name in ("log", "log2", "log10", "sqrt", "rsqrt", "arccosh") else np.concatenate([x, -x])
    true = OPS[name].reference(x.astype(np.float64))
    errors = ulps(compiled(function(name), [x.dtype])(x), true, np.zeros_like(true))
    assert errors.max() <= BOUND["float32"]


@pytest.mark.skipif(np.finfo(np.longdouble).nmant < 63, reason="longdouble is no wider than float64 here")
@pytest.mark.parametrize("name", ALL_NAMES)
def test_float64_densely(name: str) -> None:
    """Two hundred thousand values against NumPy's longdouble function (2**-11 ulp of float64)."""
    rng = np.random.default_rng(0)
    x = rng.uniform(*DOUBLE_SPANS[name], 200_000)
    true = OPS[name].reference(x.astype(np.longdouble))
    high = true.astype(np.float64)
    errors = ulps(compiled(function(name), [x.dtype])(x), high, (true - high).astype(np.float64))
    assert errors.max() <= BOUND["float64"]


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ALL_NAMES)
def test_special_values(name: str, dtype: str) -> None:
    """Zeros, ones, ends of domains and what lies beyond, infinities, NaN, subnormal and largest numbers, as NumPy."""
    info = np.finfo(dtype)
    parts = [0.0, 0.5, 1.0, 2.0, 10.0, 90.0, 720.0, np.inf, float(info.smallest_subnormal), float(info.tiny)]
    x = np.array([s * v for v in (*parts, float(info.max)) for s in (1, -1)] + [np.nan], dtype)
    if name in ("sin", "cos", "tan"):
        x = x[~(np.abs(x) > 1000) | np.isinf(x)]
    got = compiled(function(name), [x.dtype])(x)
    with np.errstate(all="ignore"):
        expected = np.asarray(OPS[name].reference(x))
    close = np.isclose(got, expected, rtol=4 * float(info.eps), atol=0) & (np.signbit(got) == np.signbit(expected))
    assert_same(got, expected, (x,), close | (np.isnan(got) & np.isnan(expected)))


@pytest.mark.parametrize("name", ["sin", "cos"])
def test_arguments_closest_to_a_multiple_of_half_pi(name: str) -> None:
    """The hardest arguments of float64 and float32 (Muller, Elementary Functions, table 11.1; Kahan's search)."""
    for x in (np.array([6381956970095103 * 2.0**797]), np.array([16367173 * 2.0**72], np.float32)):
        errors = ulps(compiled(function(name), [x.dtype])(x), *exact(name, x))
        assert errors.max() <= 1.0


def test_sine_and_cosine_stay_within_one() -> None:
    """Four million neighbouring angles at each of two peaks: without a bound some hundreds of results would pass 1."""
    steps = np.arange(-(2**21), 2**21)
    for name, peak in (("sin", np.pi / 2), ("sin", -np.pi / 2), ("cos", np.pi), ("cos", 2 * np.pi)):
        x = (np.array(peak).view(np.int64) + steps).view(np.float64)
        assert np.abs(compiled(function(name), [x.dtype])(x)).max() == 1.0
    assert (compiled(scalar.cos, [x.dtype])(np.array([0.0, -0.0, 5e-324, -1e-300, 1e-20])) == 1.0).all()


def test_roots_of_two() -> None:
    with mpmath.workprec(200):
        for j, (root, lack) in enumerate(zip(exponential.ROOTS, exponential.ROOTS_LACK, strict=True)):
            true = mpmath.mpf(2) ** (mpmath.mpf(j) / 16)
            assert (root, lack) == (float(true), float((true - root) / root))


@pytest.mark.parametrize("name", [n for n in ALL_NAMES if n not in ("sqrt", "rsqrt")])
def test_tables_of_numpy(name: str) -> None:
    """Every row for this function, within the bounds above (the tables' own tolerances are 2 to 4 ulp)."""
    lines = (TABLES / f"umath-validation-set-{name}.csv").read_text().splitlines()[1:]
    rows = [line.split(",") for line in lines if line and line[0] not in "#$"]
    for dtype in ("float16", "float32", "float64"):
        chosen = [(int(x, 16), int(y, 16)) for kind, x, y, _ in rows if kind == f"np.{dtype}"]
        if not chosen:
            continue
        words = np.array(chosen, f"u{np.dtype(dtype).itemsize}")
        x, expected = words[:, 0].copy().view(dtype), words[:, 1].copy().view(dtype)
        got = compiled(function(name), [x.dtype])(x)
        with np.errstate(all="ignore"):
            distance = ulps(got, expected.astype(np.float64), np.zeros(len(x)))
        # The table's value is the true one rounded: half an ulp more.
        assert distance.max() <= BOUND[dtype] + 0.5


@pytest.mark.parametrize("dtype", ["complex64", "complex128"])
@pytest.mark.parametrize("name", COMPLEX_NAMES)
def test_complex_against_mpmath(name: str, dtype: str) -> None:
    """complex64: each part within 1 ulp. complex128: the distance within 4 units of the result's size."""
    kernel = compiled(function(name), [np.dtype(dtype)])
    for case, z in complex_classes(name, np.dtype(dtype), 150).items():
        by_size, by_part = complex_errors(kernel(z), exact_complex(name, z))
        errors, bound = (by_part, 1.0) if dtype == "complex64" else (by_size, 4.0)
        worst = int(np.argmax(errors))
        assert errors[worst] <= bound, f"{case}: {name}({z[worst]!r}) is off by {errors[worst]}"


@pytest.mark.parametrize("name", ["exp", "sin", "cos"])
def test_complex_results_in_range_whose_exponential_is_not(name: str) -> None:
    angle = np.pi / 2 - np.array([0.01, 0.07])
    z = 710.0 + 1j * angle if name == "exp" else angle + 710.5j
    z = z if name != "sin" else np.pi / 2 - z.real + 1j * z.imag
    got, true = compiled(function(name), [z.dtype])(z), exact_complex(name, z)
    for a, t in zip(got.real, true, strict=True):
        assert 0 < abs(t.real) < 1.7e308
        assert abs(mpmath.mpf(float(a)) - t.real) <= 8 * np.finfo(float).eps * abs(t.real)


@pytest.mark.parametrize("name", COMPLEX_NAMES)
def test_complex_special_values(name: str) -> None:
    """Zeros, infinities and NaN as C99 annex G has them, which NumPy follows; signs that it leaves open may differ."""
    z = samples(np.dtype(np.complex128))
    z = z[(z == 0) | ~np.isfinite(z.real) | ~np.isfinite(z.imag)]
    got = compiled(function(name), [z.dtype])(z)
    with np.errstate(all="ignore"):
        expected = OPS[name].reference(z)
    for x, y in ((got.real, expected.real), (got.imag, expected.imag)):
        agrees = np.isclose(x, y, rtol=1e-15, atol=0, equal_nan=True)
        agrees |= (np.abs(x) == np.abs(y)) & ~np.isfinite(z)  # signs of zero and infinity beside a NaN or infinity
        assert_same(x, y, (z,), agrees)


def test_the_numpy_builder_has_the_same_accuracy() -> None:
    """The independent evaluation of the same expansions: it is what proves that the bits come from the definition."""
    x = input_classes("exp", np.dtype(np.float64), 200)["any bits"]
    with mpmath.workprec(100):
        assert ulps(evaluated(scalar.exp, x), *exact("exp", x)).max() <= BOUND["float64"]
