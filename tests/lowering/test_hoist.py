"""What is moved in front of a loop, and what stays in it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.numpy as tnp


def scan(turn: Callable[..., Any], w: Any, x: Any) -> Any:
    return tn.lax.scan(lambda h, row: (turn(w, h, row), None), tnp.zeros(x.shape[1], x.dtype), x)[0]


def looped(turn: Callable[..., Any]) -> Any:
    return tn.jit(lambda w, x: scan(turn, w, x))


def around_and_inside(f: Any, *args: Any) -> tuple[str, str]:
    """The operations of the program and those of its loops' bodies, as text."""
    lines = f.lower(*args).as_text("exec").splitlines()
    deep = [line for line in lines if line.startswith("    ")]
    return "\n".join(line for line in lines if not line.startswith("    ")), "\n".join(deep)


W = np.random.default_rng(0).normal(0, 0.4, (5, 5))
X = np.random.default_rng(1).normal(0, 1, (7, 5))

MOVED = {
    "a transpose for a product": (lambda w, h, row: np.tanh(h @ w.T + row), "copy", "transpose"),
    "a product": (lambda w, h, row: np.tanh(h @ (w @ w) + row), "matmul", ""),
    "a reduction": (lambda w, h, row: h * 0.5 + row * w.sum(), "sum", "sum"),
    "costly steps": (lambda w, h, row: h @ np.exp(w) * 0.1 + row, "exp", "exp"),
    "steps behind one another": (lambda w, h, row: h @ (np.exp(w) / np.exp(w).sum()) + row, "exp", "exp"),
}


@pytest.mark.parametrize("case", MOVED)
def test_moved_with_the_same_bits(case: str) -> None:
    turn, around, not_inside = MOVED[case]
    f = looped(turn)
    outer, inner = around_and_inside(f, W, X)
    assert f"= {around}" in outer
    assert not not_inside or f"= {not_inside}" not in inner
    h = tn.asarray(np.zeros(5))
    w, x = tn.asarray(W), tn.asarray(X)
    one = tn.jit(turn)
    for k in range(len(X)):
        h = one(w, h, x[k])
    assert np.asarray(f(W, X)).tobytes() == np.asarray(h).tobytes()


STAYS = {
    "what a turn changes": (lambda w, h, row: np.exp(h) * 0.1 + row, "exp"),
    "what costs little": (lambda w, h, row: h * (w[0] + 1.0) + row, "multiply"),
    "what a checkpoint computes again": (
        lambda w, h, row: tn.checkpoint(lambda h: h @ np.exp(w))(h) * 0.1 + row,
        "matmul",
    ),
    "what may raise": (lambda w, h, row: h + row // w.astype(int).sum().astype(int), "floor_divide"),
    "a transpose for many rows": (lambda w, h, row: (np.outer(h, row) @ w.T)[0], "transpose"),
}


@pytest.mark.parametrize("case", STAYS)
def test_stays(case: str) -> None:
    turn, inside = STAYS[case]
    _, inner = around_and_inside(looped(turn), W, X)
    assert inside in inner


def test_what_is_larger_than_what_it_is_made_from_stays() -> None:
    f = looped(lambda w, h, row: (np.exp(w[:, None] + w) * h).sum(axis=1) * 0.01 + row)
    _, inner = around_and_inside(f, W[0], X)
    assert "exp" in inner


def test_indices_of_loops_without_turns_are_not_looked_at() -> None:
    place = np.array([9])
    f = tn.jit(lambda w, p, x: scan(lambda w, h, row: h + np.exp(w[p]).sum() + row, w, x))
    assert f(W[0], place, X[:0]).tolist() == [0.0] * 5
    with pytest.raises(IndexError):
        f(W[0], place, X)


def test_loops_in_loops_and_until() -> None:
    @tn.jit
    def inner(w, x):
        def turn(h, row):
            return tn.lax.fori_loop(0, 3, lambda _, g: np.tanh(g @ w.T + row), h), None

        return tn.lax.scan(turn, np.zeros(5), x)[0]

    h = np.zeros(5)
    for row in X:
        for _ in range(3):
            h = np.tanh(h @ W.T + row)
    np.testing.assert_allclose(inner(W, X), h, rtol=1e-12)

    @tn.jit
    def until(w, x):
        def going(state):
            n, h = state
            return (n < 5) & (np.exp(w).sum() > h.sum())

        return tn.lax.while_loop(going, lambda s: (s[0] + 1, s[1] @ np.exp(-w * w) * 0.2 + x), (0, x))[1]

    n, h = 0, X[0]
    while n < 5 and np.exp(W).sum() > h.sum():
        n, h = n + 1, h @ np.exp(-W * W) * 0.2 + X[0]
    np.testing.assert_allclose(until(W, X[0]), h, rtol=1e-12)


def test_what_prints_stays(capsys: pytest.CaptureFixture[str]) -> None:
    def turn(w: Any, h: Any, row: Any) -> Any:
        tn.debug.print("{}", np.exp(w).sum() + h[0])
        return h + row

    looped(turn)(W, X)
    assert len(capsys.readouterr().out.splitlines()) == len(X)


def test_any_sizes_by_one_compile() -> None:
    f = looped(lambda w, h, row: np.tanh(h @ np.exp(w).T + row))
    for n in (1, 2, 5, 9, 0):
        w, x = np.ones((n, n)) * 0.1, np.ones((3, n))
        h = np.zeros(n)
        for row in x:
            h = np.tanh(h @ np.exp(w).T + row)
        np.testing.assert_allclose(f(w, x), h, rtol=1e-12)
    assert f.cache_info().programs <= 3


def test_memory_counts_what_is_written_out() -> None:
    f = looped(lambda w, h, row: np.tanh(h @ w.T + row))
    w, x = np.ones((64, 64)), np.ones((10, 64))
    assert f.lower(w, x).memory().peak.bytes >= w.nbytes
