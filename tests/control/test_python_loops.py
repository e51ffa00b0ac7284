"""Loops and choices under ``disable_jit``: Python calls their functions, and results are those of the traced ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import MutationError, ShapeError, TraceError

lax = tn.lax
X = np.array([0.5, -1.0, 2.0])
X32 = X.astype(np.float32)
ROWS = np.arange(6.0).reshape(2, 3)
HELD = tn.asarray(X)


def halve(i: Any, c: Any) -> Any:
    c[i] /= 2
    return c


CASES: dict[str, Callable[[], Any]] = {
    "scan": lambda: lax.scan(lambda c, v: (np.sin(c) + v, c * v), 0.0, X),
    "scan of float32": lambda: lax.scan(lambda c, v: (c + v, c * 2), 0.0, X32),
    "scan of a number that becomes a float": lambda: lax.scan(lambda c, v: (c + 0.5, c), 0, X),
    "scan that forgets": lambda: lax.scan(lambda c, v: (1, c), np.float32(0), X),
    "scan that stacks numbers": lambda: lax.scan(lambda c, v: (c, 1), 0.0, X),
    "scan backwards": lambda: lax.scan(lambda c, v: (c + v, (c, v)), np.float64(0), X, reverse=True),
    "scan of pytrees": lambda: lax.scan(lambda c, v: ({"a": c["a"] + v[0]}, [v[1]]), {"a": 0.0}, (X, ROWS.T)),
    "scan by length": lambda: lax.scan(lambda c, _: (c * 2, None), X, None, 3),
    "scan of no turns": lambda: lax.scan(lambda c, _: (c * 2, c), X32, None, 0),
    "scan in place": lambda: lax.scan(lambda c, v: (c.__iadd__(v), c), X, X),
    "fori_loop": lambda: lax.fori_loop(0, 3, lambda i, c: c * i + 1, X32),
    "fori_loop of int32": lambda: lax.fori_loop(np.int32(1), np.int32(4), lambda i, c: c + i, 0),
    "fori_loop by at": lambda: lax.fori_loop(0, 3, lambda i, c: c.at[i].set(i * 2), X),
    "fori_loop in place": lambda: lax.fori_loop(0, 3, halve, X),
    "fori_loop of no turns": lambda: lax.fori_loop(5, 3, lambda i, c: c + i, X),
    "fori_loop of nothing": lambda: lax.fori_loop(0, 3, lambda i, c: (), ()),
    "fori_loop of a bool": lambda: lax.fori_loop(0, 3, lambda i, c: np.logical_not(c), True),
    "fori_loop of a tn.Array": lambda: lax.fori_loop(0, 3, lambda i, c: c + HELD[i], 0.0),
    "while_loop": lambda: lax.while_loop(lambda s: s[0] < 3, lambda s: (s[0] + 1, s[1] * 2), (0, X)),
    "map": lambda: lax.map(lambda v: np.exp(v), X),
    "map in batches": lambda: lax.map(lambda v: np.exp(v), X, batch_size=2),
    "map of a tn.Array": lambda: lax.map(lambda v: np.exp(v), HELD),
    "cond": lambda: lax.cond(X[1] < 0, lambda x: x * 2, lambda x: x, X),
    "cond of numbers": lambda: lax.cond(0, lambda x: 1.0, lambda x: 2.0, X),
    "switch": lambda: lax.switch(np.int64(5), [lambda x: x, lambda x: x + 1], X),
    "a loop in a loop": lambda: lax.scan(lambda c, v: (lax.fori_loop(0, 2, lambda i, d: d + v, c), c), 0.0, X),
    "grad of scan": lambda: tn.grad(lambda x: lax.scan(lambda c, v: (np.sin(c) * v, c), 1.0, x)[0])(X),
    "grad of fori_loop": lambda: tn.grad(lambda x: lax.fori_loop(0, 3, lambda i, c: c * x[i] + i, 1.0))(X),
    "grad of while_loop": lambda: tn.grad(lambda x: lax.while_loop(lambda c: c < 50, lambda c: c * x, 1.5))(2.0),
    "grad of cond": lambda: tn.grad(lambda x: lax.cond(x > 0, lambda a: a**2, lambda a: a, x))(2.0),
    "vmap of scan": lambda: tn.vmap(lambda x: lax.scan(lambda c, v: (c + v, c), 0.0, x))(ROWS),
    "vmap of while_loop": lambda: tn.vmap(lambda x: lax.while_loop(lambda c: c < x, lambda c: c + 1, 0.0))(X),
    "vmap of cond": lambda: tn.vmap(lambda x: lax.cond(x > 0, lambda a: a * 2, lambda a: a, x))(X),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_traced_loops(name: str) -> None:
    before = X.copy()
    expected, treedef = tn.tree.flatten(CASES[name]())
    with tn.disable_jit():
        found, structure = tn.tree.flatten(CASES[name]())
    assert structure == treedef
    for x, y in zip(found, expected, strict=True):
        assert type(x) is type(y) and x.dtype == y.dtype
        np.testing.assert_array_equal(np.asarray(x), np.asarray(y))
        assert not np.shares_memory(np.asarray(x), X)
    np.testing.assert_array_equal(X, before)


def test_bodies_are_called_turn_by_turn_on_concrete_values() -> None:
    seen: list[float] = []

    def turn(c: Any, v: Any) -> Any:
        seen.append(float(v))
        return (c + 1 if v > 0 else c), None  # Python decides

    with tn.disable_jit():
        assert lax.scan(turn, 0, X)[0] == 2
        assert seen == X.tolist()
        seen.clear()
        assert tn.jit(lambda x: lax.scan(turn, 0, x)[0])(X) == 2
        assert seen == X.tolist()
        seen.clear()
        lax.fori_loop(0, 3, lambda i, c: (seen.append(i), c)[1], 0.0)
        assert seen == [0, 1, 2]
        seen.clear()
        lax.while_loop(lambda c: c < 2, lambda c: (seen.append(float(c)), c + 1)[1], 0.0)
        assert seen == [0.0, 1.0]
        seen.clear()
        tn.grad(lambda x: lax.scan(lambda c, v: (seen.append(bool(v > 0)), (c * v, None))[1], 1.0, x)[0])(X)
        assert seen == [True, False, True]
    with tn.disable_jit(), tn.disable_jit(False), pytest.raises(TraceError, match="float"):
        lax.scan(turn, 0, X)


def test_one_side_alone_is_called() -> None:
    called: list[str] = []

    def side(name: str) -> Callable[[Any], Any]:
        return lambda x: (called.append(name), x)[1]

    with tn.disable_jit():
        lax.cond(True, side("true"), side("false"), X)
        lax.switch(-3, [side("first"), side("second")], X)
    assert called == ["true", "first"]


def test_errors_are_those_of_the_traced_loops() -> None:
    refused: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: lax.scan(lambda c, v: (np.stack([c, c]), None), 0.0, X), ShapeError, r"as float64 of shape \(\)"),
        (lambda: lax.scan(lambda c, v: (c * 1j, None), np.float64(0), X), ShapeError, "becomes complex128"),
        (lambda: lax.fori_loop(0, 2, lambda i, c: (c, c), 0.0), ShapeError, "structure"),
        (lambda: lax.scan(lambda c, v: c, 0.0, X), TraceError, "pair"),
        (lambda: lax.scan(lambda c, v: (c, None), 0.0, (X, X[1:])), ShapeError, "entries"),
        (lambda: lax.scan(lambda c, v: (c, None), 0.0), ShapeError, "neither"),
        (lambda: lax.while_loop(lambda x: x > 0, lambda x: x, X), ShapeError, "one bool"),
        (lambda: lax.cond(X > 0, lambda: 1, lambda: 2), ShapeError, "one bool"),
        (lambda: lax.switch(0.5, [lambda: 1]), ShapeError, "one integer"),
        (lambda: lax.map(lambda v: v.__setitem__(0, 1.0), ROWS), MutationError, "test_python_loops"),
    ]
    for call, error, text in refused:
        with pytest.raises(error, match=text):
            call()
        with tn.disable_jit(), pytest.raises(error, match=text):
            call()
