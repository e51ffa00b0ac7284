"""Minimax polynomials by Remez exchange in 60 digits: prints the fits that ``tracer/scalar`` holds.

    python tools/minimax.py [name ...]

A fit approximates ``target`` by a polynomial of ``degree`` on [low, high]; its error times ``weight`` is levelled: the
relative error of the whole function. Coefficients are printed from the constant term up.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mpmath
from mpmath import mpf

Function = Callable[[Any], Any]
DIGITS = 60
GRID = 48  # points for each extremum


@dataclass(frozen=True)
class Fit:
    target: Function
    weight: Function
    low: Any
    high: Any
    degree: int


def _value(coefficients: list[Any], x: Any) -> Any:
    return mpmath.polyval(coefficients[::-1], x)


def _levelled(fit: Fit, nodes: list[Any]) -> list[Any]:
    """The polynomial whose weighted error is the same at all nodes, with signs in turn."""
    n = fit.degree + 2
    rows = [[x**k for k in range(n - 1)] + [(-1) ** i / fit.weight(x)] for i, x in enumerate(nodes)]
    solved = mpmath.lu_solve(mpmath.matrix(rows), mpmath.matrix([fit.target(x) for x in nodes]))
    return list(solved)[:-1]


def _extrema(fit: Fit, coefficients: list[Any]) -> list[tuple[Any, Any]]:
    """(x, weighted error) of the largest error between two changes of sign, on a grid dense at the ends."""
    count = GRID * (fit.degree + 2)
    middle, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
    xs = [middle - half * mpmath.cos(mpmath.pi * (i + 0.3) / (count + 0.6)) for i in range(count + 1)]
    found: list[tuple[Any, Any]] = []
    for x in xs:
        if abs(x) < mpf("1e-20"):
            continue  # nothing but rounding
        error = (_value(coefficients, x) - fit.target(x)) * fit.weight(x)
        if not found or (error > 0) != (found[-1][1] > 0):
            found.append((x, error))
        elif abs(error) > abs(found[-1][1]):
            found[-1] = (x, error)
    while len(found) > fit.degree + 2:
        found.pop(0 if abs(found[0][1]) < abs(found[-1][1]) else -1)
    return found


def minimax(fit: Fit) -> tuple[list[float], Any]:
    """Coefficients rounded to float64, and the largest weighted error before rounding."""
    with mpmath.workdps(DIGITS):
        n = fit.degree + 2
        middle, half = (fit.low + fit.high) / 2, (fit.high - fit.low) / 2
        # A little off the middle, where a weight may vanish.
        nodes = [middle - half * mpmath.cos(mpmath.pi * (2 * i + 1.1) / (2 * n)) for i in range(n)]
        for _ in range(12):
            coefficients = _levelled(fit, nodes)
            peaks = _extrema(fit, coefficients)
            sizes = [abs(e) for _, e in peaks]
            if len(peaks) < n or max(sizes) < min(sizes) * mpf("1.01"):
                break
            nodes = [x for x, _ in peaks]
        return [float(c) for c in coefficients], max(sizes)


def _odd(function: Function, limit: Any, degree: int) -> Fit:
    """function(x) = x + x**3 P(x**2), |x| <= limit."""

    def target(z: Any) -> Any:
        x = mpmath.sqrt(z)
        return (function(x) - x) / x**3

    return Fit(target, lambda z: mpmath.sqrt(z) ** 3 / function(mpmath.sqrt(z)), mpf("1e-12"), mpf(limit) ** 2, degree)


def _cos(degree: int) -> Fit:
    """cos(x) = 1 - x**2/2 + x**4 C(x**2), |x| <= pi/4."""
    with mpmath.workdps(DIGITS):
        top = (mpmath.pi / 4 + mpf(2) ** -30) ** 2
    return Fit(
        lambda z: (mpmath.cos(mpmath.sqrt(z)) - 1 + z / 2) / z**2,
        lambda z: z**2 / mpmath.cos(mpmath.sqrt(z)), mpf("1e-12"), top, degree,
    )  # fmt: skip


def _power(base: Any, width: float, degree: int, terms: int) -> Fit:
    """base**r = 1 + r P(r) for one term, base**r - 1 = r + r**2 P(r) for two, |r| <= width."""

    def whole(r: Any) -> Any:
        return mpmath.expm1(r * mpmath.log(base))

    top = mpf(width)
    if terms == 1:
        return Fit(lambda r: whole(r) / r, lambda r: abs(r / (whole(r) + 1)), -top, top, degree)
    return Fit(lambda r: (whole(r) - r) / r**2, lambda r: abs(r**2 / whole(r)), -top, top, degree)


def _log_tail(degree: int) -> Fit:
    """log((1+s)/(1-s)) = 2s + 2/3 s**3 + s**5 Q(s**2), sqrt(1/2) <= (1+s)/(1-s) <= sqrt(2)."""

    def target(z: Any) -> Any:
        s = mpmath.sqrt(z)
        return (2 * mpmath.atanh(s) - 2 * s - 2 * s**3 / 3) / s**5

    def weight(z: Any) -> Any:
        s = mpmath.sqrt(z)
        return s**5 / (2 * mpmath.atanh(s))

    return Fit(target, weight, mpf("1e-8"), mpf("0.17158") ** 2, degree)


def _inverse_cube_root(degree: int) -> Fit:
    """m**(-1/3), 1 <= m <= 2."""
    return Fit(lambda m: m ** (mpf(-1) / 3), lambda m: m ** (mpf(1) / 3), mpf(1), mpf(2), degree)


def _erf_near(degree: int) -> Fit:
    """erf(x) = x + x P(x**2), |x| <= 1."""

    def ratio(z: Any) -> Any:
        return mpmath.erf(mpmath.sqrt(z)) / mpmath.sqrt(z)

    return Fit(lambda z: ratio(z) - 1, lambda z: 1 / ratio(z), mpf("1e-20"), mpf(1), degree)


def _erf_far(high: int, degree: int) -> Fit:
    """1 - erf(x) = exp(-x**2) R((x - 2) / (x + 2)), 1 <= x <= high; the error of erf."""

    def place(t: Any) -> Any:
        return 2 * (1 + t) / (1 - t)

    return Fit(
        lambda t: mpmath.erfc(place(t)) * mpmath.exp(place(t) ** 2), lambda t: mpmath.exp(-(place(t) ** 2)),
        mpf(-1) / 3, mpf(high - 2) / (high + 2), degree,
    )  # fmt: skip


def _erfinv(low: float, high: float, middle: float, degree: int, root: bool) -> Fit:
    """erfinv(x) / x = P(w - middle) for w = -log(1 - x**2) within the bounds, or P(sqrt(w) - middle)."""

    def ratio(v: Any) -> Any:
        w = (v + middle) ** 2 if root else v + middle
        x = mpmath.sqrt(-mpmath.expm1(-w))
        return mpmath.erfinv(x) / x

    first, last = ((mpmath.sqrt(mpf(w)) if root else mpf(w)) - mpf(middle) for w in (max(low, 1e-18), high))
    return Fit(ratio, lambda v: 1 / ratio(v), first, last, degree)


E = mpmath.e
STEP = 0.021661  # ln(2)/32
FITS: dict[str, Callable[[], Fit]] = {
    "EXPM1_SHORT": lambda: _power(E, STEP, 2, 2),
    "EXP2_SINGLE": lambda: _power(2, 0.5, 5, 1),
    "EXP2_DOUBLE": lambda: _power(2, 1 / 32, 5, 1),
    "LOG_TAIL": lambda: _log_tail(7),
    "CBRT_START": lambda: _inverse_cube_root(4),
    "SINH_NEAR": lambda: _odd(mpmath.sinh, 1.0, 6),
    "SIN_QUARTER": lambda: _odd(mpmath.sin, 0.7853981644, 5),
    "SIN_QUARTER_SHORT": lambda: _odd(mpmath.sin, 0.7853981644, 3),
    "COS_QUARTER": lambda: _cos(5),
    "COS_QUARTER_SHORT": lambda: _cos(2),
    "ASIN": lambda: _odd(mpmath.asin, 0.5, 12),
    "ASIN_SHORT": lambda: _odd(mpmath.asin, 0.5, 5),
    "ATAN": lambda: _odd(mpmath.atan, 0.4142135623731, 10),
    "ATAN_SHORT": lambda: _odd(mpmath.atan, 0.4142135623731, 5),
    "ERF_NEAR_SINGLE": lambda: _erf_near(6),
    "ERF_NEAR_DOUBLE": lambda: _erf_near(12),
    "ERF_FAR_SINGLE": lambda: _erf_far(4, 5),
    "ERF_FAR_DOUBLE": lambda: _erf_far(6, 12),
    "CENTRE_SINGLE": lambda: _erfinv(0, 5, 1.25, 9, False),
    "TAIL_SINGLE": lambda: _erfinv(5, 16.7, 3, 10, True),
    "CENTRE_DOUBLE": lambda: _erfinv(0, 6.25, 3.125, 24, False),
    "NEAR_TAIL_DOUBLE": lambda: _erfinv(6.25, 16, 3.25, 20, True),
    "FAR_TAIL_DOUBLE": lambda: _erfinv(16, 37.5, 5, 19, True),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=list(FITS))
    for name in parser.parse_args().names:
        coefficients, error = minimax(FITS[name]())
        print(f"{name} = {tuple(coefficients)}  # 2**{float(mpmath.log(error, 2)):.1f}")


if __name__ == "__main__":
    main()
