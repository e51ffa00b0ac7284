"""What the rows of ``tenferro.tracer.ops.random`` compute, on NumPy arrays.

Draws are made in float64 with NumPy's and Python's own functions, in a loop over the elements that are still open.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer.ops.fma_reference import fma as fma

Array = Any  # an ndarray, or the NumPy scalar that NumPy makes of rank 0
U32, U64, F32, F64 = np.uint32, np.uint64, np.float32, np.float64
TURNS = (13, 15, 26, 6, 17, 29, 16, 24)
OTHER = {F32: 2**32 - 1, F64: 2**64 - 1}
LARGEST_COUNT = 150


def block(first: Array, second: Array, counter: Array) -> tuple[Array, Array]:
    """The words of threefry2x32 with 20 rounds (Salmon et al., SC'11)."""
    first, second, counter = (np.asarray(v, d) for v, d in ((first, U32), (second, U32), (counter, U64)))
    keys = (first, second, first ^ second ^ U32(0x1BD11BDA))
    with np.errstate(over="ignore"):
        x, y = (counter >> U64(32)).astype(U32) + first, counter.astype(U32) + second
        for number in range(20):
            turn = TURNS[number % 8]
            x = x + y
            y = (y << U32(turn) | y >> U32(32 - turn)) ^ x
            if number % 4 == 3:
                used = number // 4 + 1
                x, y = x + keys[used % 3], y + keys[(used + 1) % 3] + U32(used)
    return x, y


def _joined(x: Array, y: Array) -> Array:
    return x.astype(U64) << U64(32) | y


def threefry(first: Array, second: Array, counter: Array, *, dtype: np.dtype[Any]) -> Array:
    x, y = block(first, second, counter)
    return x ^ y if dtype == U32 else _joined(x, y)


# -- the error function --------------------------------------------------------------------------------------------


def erf(x: Array) -> Array:
    """Python's, of float64."""
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        return np.asarray(np.vectorize(math.erf, [float])(x.astype(F64))).astype(x.dtype) if x.size else x.copy()


def erfinv(x: Array) -> Array:
    """Halley's method on erf, on erfc where x is near 1, from Winitzki's formula."""
    x = np.asarray(x)
    with np.errstate(all="ignore"):
        return np.asarray(_erfinv(x.astype(F64))).astype(x.dtype)


def _erfinv(x: Array) -> Array:
    size = np.abs(x)
    inside = size < 1
    size = np.where(inside, size, 0.5)
    logarithm = np.log1p(-size * size)
    half = 2 / (math.pi * 0.147) + logarithm / 2
    y = np.sqrt(np.sqrt(half * half - logarithm / 0.147) - half)
    erf, erfc = np.vectorize(math.erf, [float]), np.vectorize(math.erfc, [float])
    for _ in range(3) if y.size else ():
        distance = np.where(size < 0.5, erf(y) - size, (1 - size) - erfc(y))
        step = distance * math.sqrt(math.pi) / 2 * np.exp(y * y)
        y = y - step / (1 + y * step)
    y = np.where(size < 1e-8, size * (math.sqrt(math.pi) / 2), y)
    return np.where(inside, np.copysign(y, x), np.where(np.abs(x) == 1, np.copysign(np.inf, x), np.nan))


# -- draws ---------------------------------------------------------------------------------------------------------


def _fractions(key: tuple[Array, Array], number: int, single: bool) -> tuple[Array, Array]:
    """Two numbers in (0, 1), of 23 or 52 random bits each."""
    if single:
        return tuple(((w >> U32(9)) + 0.5) / 2**23 for w in block(*key, U64(number)))
    wide = (_joined(*block(*key, U64((2 * number + k) % 2**64))) for k in range(2))
    return tuple(((w >> U64(12)) + 0.5) / 2**52 for w in wide)


def _until_accepted(
    key: tuple[Array, Array], wanted: Array, single: bool, propose: Callable[[Array, Array, Array], tuple[Array, Array]]
) -> Array:
    """``propose(open, left, right)``: for the open elements, numbers and whether they are accepted."""
    found, is_open, number = np.zeros(len(wanted)), wanted.copy(), 0
    while is_open.any():
        left, right = (w[is_open] for w in _fractions(key, number, single))
        drawn, accepted = propose(is_open, left, right)
        found[is_open] = drawn
        is_open[is_open] = ~accepted
        number += 1
    return found


def _on_vectors(function: Callable[..., Array]) -> Callable[..., Array]:
    """A function of vectors for arrays that broadcast."""

    def on_any(*operands: Array, **params: Any) -> Array:
        spread = np.broadcast_arrays(*operands)
        return function(*(np.array(x).reshape(-1) for x in spread), **params).reshape(spread[0].shape)

    return on_any


@_on_vectors
def gamma(first: Array, second: Array, counter: Array, a: Array, *, is_log: bool) -> Array:
    dtype = a.dtype
    key, single, wide = block(first, second, counter), dtype == F32, a.astype(F64)
    usable = (wide > 0) & (wide < np.inf)
    shape = np.where(usable, np.where(wide < 1, wide + 1, wide), 1.0)
    d = shape - 1 / 3
    c = 1 / 3 / np.sqrt(d)

    def propose(is_open: Array, left: Array, right: Array) -> tuple[Array, Array]:
        z = math.sqrt(2) * _erfinv(2 * left - 1)
        cube = (1 + c[is_open] * z) ** 3
        safe = np.where(cube > 0, cube, 1.0)
        bound = z * z / 2 + d[is_open] * (1 - safe + np.log(safe))
        return d[is_open] * safe, (cube > 0) & (np.log(right) < bound)

    drawn = _until_accepted(key, usable, single, propose)
    with np.errstate(all="ignore"):
        last = _fractions(key, OTHER[F32 if single else F64], single)[0]
        power = np.where(usable & (wide < 1), np.log(last) / wide, 0.0)
        edge = np.where(wide == 0, 0.0, np.where(wide == np.inf, np.inf, np.nan))
        result = np.log(drawn) + power if is_log else drawn * np.exp(power)
        return np.where(usable, result, np.log(edge) if is_log else edge).astype(dtype)


def _counted(key: tuple[Array, Array], start: Array, factor: Callable[[int], Array]) -> Array:
    """The first k at which the probabilities up to k exceed a uniform number."""
    target = _fractions(key, 0, False)[0]
    count, term, total = np.zeros(len(start)), start.copy(), start.copy()
    for k in range(1, LARGEST_COUNT + 1):
        is_open = total <= target
        count += is_open
        term = term * factor(k)
        total = np.where(is_open, total + term, total)
    return count


def _log_root(k: Array) -> Array:
    """log(k!) - k log(k) + k, by Stirling's series where the terms cancel."""
    if not k.size:
        return k
    near, far = np.minimum(k, 1000.0), np.maximum(k, 1000.0)
    exact = np.vectorize(math.lgamma, [float])(near + 1) - near * np.log(np.maximum(near, 1.0)) + near
    return np.where(k <= 1000, exact, (np.log(far) + math.log(2 * math.pi)) / 2 + 1 / (12 * far))


def _weighted(k: Array, x: Array) -> Array:
    """k log(1 + x), 0 where k is."""
    return k * np.log1p(np.where(k == 0, 0.0, x))


def _proposed(left: Array, right: Array, a: Array, width: Array, middle: Array) -> tuple[Array, Array]:
    u = left - 0.5
    us = 0.5 - np.abs(u)
    return np.floor((2 * a / us + width) * u + middle), np.log(right / (a / (us * us) + width))


@_on_vectors
def poisson(first: Array, second: Array, counter: Array, rate: Array) -> Array:
    key = block(first, second, counter)
    usable = (rate >= 0) & (rate < np.inf)
    many = usable & (rate >= 10)
    few, large = np.where(usable & ~many, rate, 0.0), np.where(many, rate, 10.0)
    width = 0.931 + 2.53 * np.sqrt(large)
    a = -0.059 + 0.02483 * width
    scale = np.log(1.1239 + 1.1328 / (width - 3.4))

    def propose(o: Array, left: Array, right: Array) -> tuple[Array, Array]:
        k, needed = _proposed(left, right, a[o], width[o], large[o] + 0.43)
        safe = np.where(k >= 0, k, 0.0)
        distance = safe - large[o]
        probability = distance - _weighted(safe, distance / large[o]) - _log_root(safe)
        return safe, (k >= 0) & (needed + scale[o] <= probability)

    drawn = np.where(many, _until_accepted(key, many, False, propose), _counted(key, np.exp(-few), lambda k: few / k))
    return np.where(usable, drawn, np.where(rate == np.inf, np.inf, np.nan))


@_on_vectors
def binomial(first: Array, second: Array, counter: Array, n: Array, p: Array) -> Array:
    key = block(first, second, counter)
    usable = (n >= 0) & (n < np.inf) & (p >= 0) & (p <= 1)
    n, p = np.floor(np.where(usable, n, 0.0)), np.where(usable, p, 0.0)
    q = np.minimum(p, 1 - p)
    many = n * q >= 10
    few = np.where(many, 0.0, n)
    trials, chance = np.where(many, n, 40.0), np.where(many, q, 0.5)
    spread = np.sqrt(trials * chance * (1 - chance))
    width = 1.15 + 2.53 * spread
    a = -0.0873 + 0.0248 * width + 0.01 * chance
    scale = np.log((2.83 + 5.1 / width) * spread)
    most = np.floor((trials + 1) * chance)

    def logarithm(k: Array, o: Array) -> Array:
        mean, rest = trials[o] * chance[o], trials[o] * (1 - chance[o])
        terms = _weighted(k, (k - mean) / mean) + _weighted(trials[o] - k, (mean - k) / rest)
        return -(terms + _log_root(k) + _log_root(trials[o] - k))

    def propose(o: Array, left: Array, right: Array) -> tuple[Array, Array]:
        k, needed = _proposed(left, right, a[o], width[o], trials[o] * chance[o] + 0.5)
        inside = (k >= 0) & (k <= trials[o])
        safe = np.where(inside, k, 0.0)
        return safe, inside & (needed + scale[o] <= logarithm(safe, o) - logarithm(most[o], o))

    with np.errstate(all="ignore"):
        start = np.exp(few * np.log1p(-q))
        counted = _counted(key, start, lambda k: (few - k + 1) / k * (q / (1 - q)))
    drawn = np.where(many, _until_accepted(key, many, False, propose), counted)
    return np.where(usable, np.where(p > 0.5, n - drawn, drawn), np.nan)
