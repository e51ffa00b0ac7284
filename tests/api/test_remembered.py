"""Functions that remember their results (``functools.lru_cache``): called as outside a trace, asked at each call."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import LeakError, MutationError
from tests.api.outside import X, agree, follow

SCALE = 2.0
Case = tuple[Callable[..., Any], Sequence[Callable[[], object]]]


def scale_five() -> None:
    globals()["SCALE"] = 5.0


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setitem(globals(), "SCALE", 2.0)
    for function in (grid, number, several, fibonacci, Model.grid):
        function.cache_clear()


@functools.lru_cache
def grid(n):
    return np.linspace(0, 1, n) * SCALE


@functools.cache
def number(n):
    return n * SCALE


@functools.lru_cache(maxsize=2)
def several(n):
    return np.ones(n), {"a": np.ones(n) * 2}, SCALE


@functools.cache
def fibonacci(n):
    return np.ones(3) * n if n < 2 else fibonacci(n - 1) + fibonacci(n - 2)


class Model:
    def __init__(self):
        self.k = 2.0

    @functools.lru_cache  # noqa: B019
    def grid(self, n):
        return np.ones(n) * self.k

    def apply(self, x):
        return x * (self.grid(3) * 2)


def unpacked(x):
    first, named, k = several(3)
    return x * (first * 2) + named["a"] * k


MODEL = Model()
TABLE = {"grid": grid}

CASES: dict[str, tuple[Callable[..., Any], list[Callable[[], object]]]] = {
    "array": (lambda x: x * (grid(3) * 2), [grid.cache_clear, lambda: grid(3).__iadd__(1)]),
    "cleared": (lambda x: x * grid(3), [scale_five, grid.cache_clear]),
    "number": (lambda x: x * number(3), [scale_five, number.cache_clear]),
    "several results": (unpacked, [lambda: several(3)[0].__iadd__(1), lambda: several(3)[1]["a"].__iadd__(1)]),
    "forgotten results": (unpacked, [lambda: [several(k) for k in range(9)]]),
    "recursive": (lambda x: x * fibonacci(40), [lambda: fibonacci(40).__iadd__(1)]),
    "method": (lambda x: MODEL.apply(x) + MODEL.grid(3), [Model.grid.cache_clear]),
    "container": (lambda x: x * (TABLE["grid"](3) * 2), [lambda: grid(3).__iadd__(1)]),
    "size": (lambda x: x * (grid(x.shape[0]) * 2) + grid(n=3), [lambda: grid(3).__iadd__(1)]),
}


@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_the_function_now(name):
    agree(*CASES[name])


def test_a_method_serves_every_object():
    jitted = tn.jit(Model.apply)
    for k in (2.0, 3.0, 2.0):
        model = Model()
        model.k = k
        follow(jitted.__get__(model), model.apply, [])
    assert jitted.cache_info().compiles == 1


def test_the_function_is_called_once():
    calls: list[int] = []

    @functools.cache
    def counted(n):
        calls.append(n)
        return np.ones(n)

    f = tn.jit(lambda x: x * counted(3) + (counted(3) is counted(3)))
    for _ in range(3):
        assert f(X).tolist() == [2.0, 3.0, 4.0]
    assert calls == [3] and counted(3).tolist() == [1.0] * 3 and counted.cache_info().misses == 1


def test_writing_into_a_result_is_refused():
    def f(x):
        g = grid(3)
        g += x
        return g

    with pytest.raises(MutationError, match=r"write: captured array grid\(3\) is not the function's own"):
        tn.jit(f)(X)


def test_errors_and_traced_arguments():
    with pytest.raises(TypeError, match=r"hash: of an array, which has none.*test_remembered.py"):
        tn.jit(lambda x: x * grid(x))(X)
    with pytest.raises(ValueError, match="Number of samples, -3"):
        tn.jit(lambda x: x * grid(-3))(X)


@pytest.mark.parametrize("maxsize", [8, None])
def test_what_a_hidden_cache_keeps_is_named(maxsize):
    """A cache that no name leads to is filled with traced values; the error says whose it is."""

    def hidden(n):
        return np.linspace(0, 1, n)

    cached = functools.lru_cache(maxsize)(hidden)
    held = frozenset({cached})
    tn.jit(lambda x: x * next(iter(held))(3))(X)
    with pytest.raises(
        LeakError, match=r"functools\.lru_cache of hidden keeps it; call it outside and pass the result"
    ):
        _ = cached(3) + 1
