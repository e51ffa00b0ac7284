"""Arguments for the elementary functions by class, true values, and distances in units in the last place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np

Array = np.ndarray[Any, Any]
NAMES = ("exp", "log", "sin", "cos", "tanh", "sqrt")


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
    x = x[np.isfinite(x)]
    if name in ("log", "sqrt"):
        x = np.abs(x)
    return x[x > 0] if name == "log" else x


def _boundary(name: str, dtype: np.dtype[Any], rng: np.random.Generator, count: int) -> Array:
    """Near overflow and underflow for exp, 1 for log, multiples of pi/2 for sin and cos, path changes for tanh."""
    info = np.finfo(dtype)
    top, bottom = float(np.log(float(info.max))), float(np.log(float(info.smallest_subnormal)))
    match name:
        case "exp":
            n = np.round(rng.uniform(bottom, top, count // 2) / np.log(2)) + 0.5
            edges = np.concatenate([top + rng.uniform(-1, 0, count // 4), bottom + rng.uniform(0, 16, count // 4)])
            return np.concatenate([n * np.log(2), edges])
        case "log":
            return 1 + rng.choice([-1, 1], count) * 2.0 ** rng.uniform(-info.nmant - 1, -1, count)
        case "sin" | "cos":
            n = np.rint(2.0 ** rng.uniform(0, min(0.9 * info.maxexp, 40), count))
            return np.asarray(n * (np.pi / 2) * (1 + rng.integers(-2, 3, count) * 2.0 ** -(info.nmant + 1)))
        case "tanh":
            centres = rng.choice([0.925, 0.5, 9.01, 19.06, 1.0], count) * rng.choice([-1, 1], count)
            return np.asarray(centres * rng.uniform(0.97, 1.03, count))
        case _:
            return 2.0 ** rng.integers(-20, 14, count) * (1 + rng.integers(-2, 3, count) * 2.0**-info.nmant)


def exact(name: str, x: Array) -> tuple[Array, Array]:
    """The true values as a sum of two float64, by mpmath with room for every cancellation."""
    function: Callable[[Any], Any] = getattr(mpmath, name)
    high, low = np.empty(len(x)), np.empty(len(x))
    for i, value in enumerate(x):
        size = abs(float(value))
        if name == "exp" and size > 1e4:  # mpmath would work on a number of that many digits
            high[i], low[i] = (np.inf if value > 0 else 0.0), 0.0
            continue
        with mpmath.workprec(160 + (max(0, int(np.log2(size))) if size else 0)):
            true = function(mpmath.mpf(float(value)))
            high[i] = float(true)
            low[i] = float(true - mpmath.mpf(high[i])) if np.isfinite(high[i]) else 0.0
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
    periodic = name in ("exp", "sin", "cos", "tanh")
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
    function: Callable[[Any], Any] = getattr(mpmath, name)
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
