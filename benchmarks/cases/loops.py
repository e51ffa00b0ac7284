"""Loops: recurrences over arrays, over scalars, and until a condition no longer holds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.case import Array, ArrayCase, Inputs
from benchmarks.words import Words

TURNS, HIDDEN = 1000, 64
STEPS, DT = 10_000, 5e-4
LEAVES, LENGTH = 60, 614
POINTS, MOST = (400, 600), 100


def rnn(w: Array, x: Array) -> Any:
    h = np.zeros(w.shape[0], w.dtype)
    for row in x:
        h = np.tanh(h @ w + row)
    return h


def rnn_loop(words: Words) -> Callable[..., Any]:
    def last(w: Any, x: Any) -> Any:
        return words.scan(lambda h, row: (words.np.tanh(h @ w + row), None), words.np.zeros(w.shape[0], w.dtype), x)[0]

    return last


def rnn_gradient(w: Array, x: Array) -> Any:
    states = [np.zeros(w.shape[0], w.dtype)]
    for row in x:
        states.append(np.tanh(states[-1] @ w + row))
    found, back = np.zeros_like(w), np.ones(w.shape[0], w.dtype)
    for before, after in zip(states[-2::-1], states[:0:-1], strict=True):
        back = back * (1 - after * after)
        found += np.outer(before, back)
        back = w @ back
    return found


def rnn_gradient_loop(words: Words) -> Callable[..., Any]:
    last = rnn_loop(words)
    return words.grad(lambda w, x: words.np.sum(last(w, x)))  # type: ignore[no-any-return]


def _cells(dtype: np.dtype[Any], scale: float) -> Inputs:
    rng = np.random.default_rng(0)
    turns = max(2, round(TURNS * min(scale, 1.0)))
    return rng.normal(0, 0.1, (HIDDEN, HIDDEN)).astype(dtype), rng.normal(0, 1, (turns, HIDDEN)).astype(dtype)


def _rate(s: Any) -> list[Any]:
    x, y, z = s
    return [10.0 * (y - x), x * (28.0 - z) - y, x * y - 2.6666666666666665 * z]


def _step(s: Any) -> tuple[Any, ...]:
    k1 = _rate(s)
    k2 = _rate([a + 0.5 * DT * b for a, b in zip(s, k1, strict=True)])
    k3 = _rate([a + 0.5 * DT * b for a, b in zip(s, k2, strict=True)])
    k4 = _rate([a + DT * b for a, b in zip(s, k3, strict=True)])
    return tuple(a + DT / 6 * (b + 2 * c + 2 * d + e) for a, b, c, d, e in zip(s, k1, k2, k3, k4, strict=True))


def lorenz(start: Array) -> Any:
    s = tuple(start.tolist())  # Python's own numbers: ten times as fast as NumPy's
    for _ in range(STEPS):
        s = _step(s)
    return np.array(s, start.dtype)


def lorenz_loop(words: Words) -> Callable[..., Any]:
    def last(start: Any) -> Any:
        begin = (start[0], start[1], start[2])
        found, _ = words.scan(lambda s, _: (_step(s), None), begin, None, length=STEPS)
        return words.np.stack(list(found))

    return last


def _number3(dtype: np.dtype[Any], scale: float) -> Inputs:
    return (np.array([1.0, 1.0, 1.0], dtype),)


def counting(x: Array) -> Any:
    v = float(x)
    for i in range(10_000_000):
        v = v * 0.999999 + i * 1e-7
    return np.asarray(v, x.dtype)


def counting_loop(words: Words) -> Callable[..., Any]:
    def last(x: Any) -> Any:
        return words.fori_loop(0, 10_000_000, lambda i, v: v * 0.999999 + i * 1e-7, x)

    return last


def _number(dtype: np.dtype[Any], scale: float) -> Inputs:
    return (np.asarray(1.0, dtype),)


def leaves_gradient(c: Array, x: Array) -> Any:
    return np.full(len(c), 0.99 ** len(x), c.dtype)


def leaves_loop(words: Words) -> Callable[..., Any]:
    def loss(c: Any, x: Any) -> Any:
        def turn(state: Any, v: Any) -> Any:
            return [s * 0.99 + words.np.sin(v) * (0.01 * k) for k, s in enumerate(state)], None

        return sum(words.scan(turn, [c[k] for k in range(LEAVES)], x)[0])

    return words.grad(loss)  # type: ignore[no-any-return]


def _leaves(dtype: np.dtype[Any], scale: float) -> Inputs:
    rng = np.random.default_rng(0)
    return rng.normal(0, 1, LEAVES).astype(dtype), rng.normal(0, 1, LENGTH).astype(dtype)


def mandelbrot(a: Array, b: Array) -> Any:
    x, y, n = np.zeros_like(a), np.zeros_like(a), np.zeros_like(a)
    for _ in range(MOST):
        inside = x * x + y * y <= 4
        x, y = np.where(inside, x * x - y * y + a, x), np.where(inside, 2 * x * y + b, y)
        n += inside
    return n


def mandelbrot_loop(words: Words) -> Callable[..., Any]:
    np = words.np

    def counts(a: Any, b: Any) -> Any:
        def turn(s: Any) -> Any:
            i, x, y, n = s
            inside = x * x + y * y <= 4
            x, y = np.where(inside, x * x - y * y + a, x), np.where(inside, 2 * x * y + b, y)
            return i + 1, x, y, n + inside

        return words.while_loop(lambda s: s[0] < MOST, turn, (0, a * 0, a * 0, a * 0))[3]

    return counts


def _plane(dtype: np.dtype[Any], scale: float) -> Inputs:
    height, width = (max(2, round(n * min(scale, 1.0))) for n in POINTS)
    a, b = np.meshgrid(np.linspace(-2, 1, width), np.linspace(-1.2, 1.2, height))
    # Where a point leaves is decided by its last bits near the border of the set, which is why results are not compared
    # closely; a grid of binary fractions keeps their number small.
    return np.round(a * 1024).astype(dtype) / dtype.type(1024), np.round(b * 1024).astype(dtype) / dtype.type(1024)


CASES = (
    ArrayCase("rnn", "1,000 turns of tanh(h @ W + x), 64 hidden", rnn, _cells, tolerance=1024.0, written=rnn_loop),
    ArrayCase("rnn_grad", "its gradient by W", rnn_gradient, _cells, tolerance=4096.0, written=rnn_gradient_loop),
    ArrayCase(
        "lorenz", "10,000 steps of RK4 on three numbers", lorenz, _number3, tolerance=1e7, written=lorenz_loop,
        small=True,
    ),
    ArrayCase(
        "count_10m", "10M turns of v * 0.999999 + i * 1e-7", counting, _number, tolerance=1e6, written=counting_loop
    ),
    ArrayCase(
        "leaves_grad", "gradient of a scan of 614 turns that carries 60 numbers", leaves_gradient, _leaves,
        tolerance=4096.0, written=leaves_loop, small=True,
    ),
    ArrayCase(
        "mandelbrot", "while_loop of 100 turns on 600 x 400 points", mandelbrot, _plane, tolerance=1e16,
        written=mandelbrot_loop,
    ),
)  # fmt: skip
