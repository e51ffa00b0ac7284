"""Arguments for the elementary functions by class, true values, and distances in units in the last place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

from tenferro.tracer.op import Pointwise
from tenferro.tracer.ops import OPS
from tests.vocabulary import OF_COMPLEX, UNARY

Array = np.ndarray[Any, Any]
NAMES = ("exp", "log", "sin", "cos", "tanh", "sqrt")
COMPLEX_NAMES, ALL_NAMES = (*NAMES, *OF_COMPLEX), (*NAMES, *UNARY)
"""Elementary functions of one operand: those of ``pointwise``, those of complex numbers too, and all."""


def input_classes(name: str, dtype: np.dtype[Any], count: int, seed: int = 0) -> dict[str, Array]:
    """Finite arguments in the function's domain: any bits, ordinary numbers, where the function's own difficulty lies,
    huge ones, subnormals."""
    rng = np.random.default_rng(seed)
    info = np.finfo(dtype)
    words = rng.integers(0, 2 ** (8 * dtype.itemsize), count, np.uint64, endpoint=False).astype(f"u{dtype.itemsize}")
    huge = (
        2.0 ** rng.uniform(0.5, 0.999, count // 2)
        if dtype == np.float16
        else 2.0 ** rng.uniform(20, 0.99 * info.maxexp, count // 2)
    )
    with np.errstate(over="ignore"):
        found = {
            "any bits": words.view(dtype),
            "ordinary": rng.normal(0, 2, count),
            "boundary": _boundary(name, dtype, rng, count),
            "huge": np.concatenate([huge, -huge]),
            "subnormal": rng.uniform(-1, 1, count) * float(info.tiny),
        }
        classes = {key: np.asarray(x).astype(dtype) for key, x in found.items()}
    return {key: _in_domain(name, x) for key, x in classes.items()}


def _in_domain(name: str, x: Array) -> Array:
    """Finite arguments; what lies outside the domain is reflected into it."""
    x = x[np.isfinite(x)]
    with np.errstate(all="ignore"):
        match name:
            case "sqrt":
                return np.abs(x)
            case "log" | "log2" | "log10" | "rsqrt":
                x = np.abs(x)
                return x[x > 0]
            case "log1p":
                return np.where(x <= -1, -x, x)
            case "arcsin" | "arccos" | "arctanh":
                x = np.where(np.abs(x) > 1, 1 / x, x)
                return x[np.abs(x) < 1] if name == "arctanh" else x
            case "arccosh":
                x = np.abs(x)
                x = np.where(x < 1, 1 / x, x)
                return x[np.isfinite(x)]
            case _:
                return x


def _powers(rng: np.random.Generator, low: float, high: float, count: int) -> Array:
    """Numbers of either sign, all exponents between the two alike."""
    return np.asarray(rng.choice([-1, 1], count) * 2.0 ** rng.uniform(low, high, count))


def _near(rng: np.random.Generator, count: int, *centres: float) -> Array:
    """Within three hundredths of points where the formula changes."""
    return np.asarray(rng.choice(centres, count) * rng.choice([-1, 1], count) * rng.uniform(0.97, 1.03, count))


def _boundary(name: str, dtype: np.dtype[Any], rng: np.random.Generator, count: int) -> Array:
    """Near overflow and underflow for exponentials, near zeros, poles and ends of domains, multiples of pi/2 for sin,
    cos and tan, where formulas change."""
    info = np.finfo(dtype)
    bits, half = info.nmant, count // 2
    top, bottom = float(np.log(float(info.max))), float(np.log(float(info.smallest_subnormal)))
    match name:
        case "exp" | "exp2":
            n = np.round(rng.uniform(bottom, top, half) / np.log(2)) + 0.5
            edges = np.concatenate([top + rng.uniform(-1, 0, count // 4), bottom + rng.uniform(0, 16, count // 4)])
            return np.concatenate([n * np.log(2), edges]) / (np.log(2) if name == "exp2" else 1)
        case "expm1":
            steps = (rng.integers(-80, 80, half) + 0.5) * np.log(2) / 16
            return np.concatenate([_powers(rng, -bits - 8, 0, half), steps, top + rng.uniform(-1, 0, half)])
        case "log" | "log2" | "log10":
            return np.concatenate([1 + _powers(rng, -bits - 1, -1, count), 10.0 ** rng.integers(-4, 5, 20)])
        case "log1p":
            return np.concatenate([_powers(rng, -bits - 8, 2, half), -1 + 2.0 ** rng.uniform(-bits, -1, half)])
        case "sin" | "cos" | "tan":
            n = np.rint(2.0 ** rng.uniform(0, min(0.9 * info.maxexp, 40), count))
            return np.asarray(n * (np.pi / 2) * (1 + rng.integers(-2, 3, count) * 2.0 ** -(bits + 1)))
        case "tanh":
            return _near(rng, count, 0.925, 0.5, 9.01, 19.06, 1.0)
        case "sinh" | "cosh":
            edges = (top + np.log(2) - rng.uniform(0, 1, half)) * rng.choice([-1, 1], half)
            return np.concatenate([_near(rng, half, 1.0, 0.5), _powers(rng, -bits, 0, half), edges])
        case "arcsin" | "arccos" | "arctanh":
            ends = (1 - 2.0 ** rng.uniform(-bits, -1, half)) * rng.choice([-1, 1], half)
            return np.concatenate([_near(rng, half, 0.5), ends, _powers(rng, -bits, -1, half)])
        case "arctan":
            return np.concatenate([_near(rng, half, 0.41421356, 1.0, 2.41421356), _powers(rng, -bits, bits, half)])
        case "arcsinh":
            return _powers(rng, -bits, bits, count)
        case "arccosh":
            return np.asarray(1 + 2.0 ** rng.uniform(-bits, 6, count))
        case _:
            return 2.0 ** rng.integers(-20, 14, count) * (1 + rng.integers(-2, 3, count) * 2.0**-bits)


TRUE: dict[str, Callable[..., Any]] = {
    "exp2": lambda x: mpmath.mpf(2) ** x,
    "log2": lambda x: mpmath.log(x) / mpmath.log(2),
    "cbrt": lambda x: mpmath.sign(x) * mpmath.cbrt(abs(x)),
    "rsqrt": lambda x: 1 / mpmath.sqrt(x),
    "arcsin": mpmath.asin,
    "arccos": mpmath.acos,
    "arctan": mpmath.atan,
    "arcsinh": mpmath.asinh,
    "arccosh": mpmath.acosh,
    "arctanh": mpmath.atanh,
    "arctan2": mpmath.atan2,
    "power": mpmath.power,
    "logaddexp": lambda x, y: mpmath.log(mpmath.exp(x) + mpmath.exp(y)),
    "logaddexp2": lambda x, y: mpmath.log(mpmath.mpf(2) ** x + mpmath.mpf(2) ** y) / mpmath.log(2),
}
"""By mpmath where its name is another."""
# mpmath would work on numbers of as many digits as the argument says.
FAR: dict[str, Callable[[float], float]] = {
    "exp": lambda x: np.inf if x > 0 else 0.0,
    "exp2": lambda x: np.inf if x > 0 else 0.0,
    "expm1": lambda x: np.inf if x > 0 else -1.0,
    "sinh": lambda x: np.copysign(np.inf, x),
    "cosh": lambda x: np.inf,
}


def function(name: str) -> Callable[..., Any]:
    """The row's expansion."""
    form = OPS[name].form
    assert isinstance(form, Pointwise)
    return form.scalar


def exact(name: str, *arguments: Array) -> tuple[Array, Array]:
    """The true values as a sum of two float64, by mpmath with room for every cancellation."""
    true: Callable[..., Any] = TRUE.get(name) or getattr(mpmath, name)
    high, low = np.empty(len(arguments[0])), np.empty(len(arguments[0]))
    for i, values in enumerate(zip(*arguments, strict=True)):
        size = max(abs(float(v)) for v in values)
        if name in FAR and size > 1e4:
            high[i], low[i] = FAR[name](float(values[0])), 0.0
            continue
        with mpmath.workprec(160 + (max(0, int(np.log2(size))) if size else 0)):
            value = true(*(mpmath.mpf(float(v)) for v in values))
            high[i] = float(value)
            low[i] = float(value - mpmath.mpf(high[i])) if np.isfinite(high[i]) else 0.0
    return high, low


def ulps(got: Array, high: Array, low: Array) -> Array:
    """|got - (high + low)| in units in the last place of the true value in the dtype of ``got``. Infinity counts as the
    power of two after the largest number, so a result that overflows too early or too late shows."""
    info = np.finfo(got.dtype)
    limit = 2.0**info.maxexp if info.maxexp < 1024 else np.inf
    with np.errstate(all="ignore"):
        exponent = np.frexp(np.abs(high))[1] - 1
        unit = np.ldexp(1.0, np.clip(exponent, info.minexp, info.maxexp - 1) - info.nmant)
        wide = got.astype(np.float64)
        wide = np.where(np.isinf(wide), np.copysign(limit, wide), wide)
        beyond = np.abs(high) >= limit
        error = np.abs((wide - np.clip(high, -limit, limit)) - np.where(beyond, 0.0, low)) / unit
    agrees = (np.isinf(wide) & (wide == high)) | (np.isnan(got) & np.isnan(high))
    return np.where(agrees, 0.0, np.where(np.isnan(error), np.inf, error))


def complex_classes(name: str, dtype: np.dtype[Any], count: int, seed: int = 0) -> dict[str, Array]:
    """Ordinary numbers, near the unit circle, parts of very different size, large and tiny ones."""
    rng = np.random.default_rng(seed)
    top = 60 if dtype == np.complex64 else 600
    circle = np.exp(1j * rng.uniform(-np.pi, np.pi, count)) * (
        1 + rng.choice([-1, 1], count) * 10.0 ** rng.uniform(-7, -1, count)
    )
    # Beyond exp's range the angle alone is left; sums of exponentials overflow there in every formula.
    real_top = 80.0 if dtype == np.complex64 else 700.0
    periodic = name in ("exp", "exp2", "sin", "cos", "tan", "sinh", "cosh", "tanh")
    wide = [
        2.0 ** rng.uniform(-top, np.log2(real_top) if periodic else top, count) * rng.choice([-1, 1], count)
        for _ in "ri"
    ]
    found = {
        "ordinary": rng.normal(0, 2, count) + 1j * rng.normal(0, 2, count),
        "unit circle": circle,
        "wide": wide[0] + 1j * wide[1],
        "tiny": 1e-20 * (rng.normal(0, 1, count) + 1j * rng.normal(0, 1, count)),
    }
    return {key: z.astype(dtype) for key, z in found.items()}


def exact_complex(name: str, z: Array) -> list[Any]:
    function: Callable[[Any], Any] = TRUE.get(name) or getattr(mpmath, name)
    # The parts may cancel by the square of the argument's exponent range.
    with mpmath.workprec(2600):
        return [function(mpmath.mpc(float(v.real), float(v.imag))) for v in z]


def complex_errors(got: Array, true: list[Any]) -> tuple[Array, Array]:
    """Distances in ulp of the size of the true value, and of each part (the larger)."""
    info = np.finfo(got.real.dtype)
    by_size, by_part = np.empty(len(got)), np.empty(len(got))

    def unit(x: Any) -> Any:
        exponent = int(mpmath.frexp(x)[1]) - 1 if x else info.minexp
        return mpmath.mpf(2) ** (max(exponent, info.minexp) - info.nmant)

    with mpmath.workprec(2600):
        for i, (value, z) in enumerate(zip(got, true, strict=True)):
            errors = [abs(mpmath.mpf(float(a)) - b) for a, b in ((value.real, z.real), (value.imag, z.imag))]
            by_size[i] = float(max(errors) / unit(abs(z)))
            by_part[i] = float(max(e / unit(abs(p)) for e, p in zip(errors, (z.real, z.imag), strict=True)))
    return by_size, by_part
