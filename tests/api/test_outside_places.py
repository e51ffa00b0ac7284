"""Where arrays from outside stand: closures, globals, defaults, containers, helpers."""

from __future__ import annotations

import functools
from collections import OrderedDict, namedtuple
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import MutationError
from tests.api.outside import X, agree

W = np.arange(1.0, 4.0)
Pair = namedtuple("Pair", "w k")


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setitem(globals(), "W", np.arange(1.0, 4.0))


def add_ten():
    W.__iadd__(10)


def rebind():
    globals()["W"] = W[::-1] * 3


def helper(x):
    return x * (W * 2)


def calls_helper(x):
    return helper(x) + 1


def recursive(x, n=3):
    return x * (W * 2) if n == 0 else recursive(x, n - 1) + 1


def test_helpers_of_the_module():
    agree(calls_helper, [add_ten, rebind], compiles=1)
    agree(recursive, [add_ten, rebind], compiles=1)


NAMES = {helper: 3}


class Strategy:
    def __init__(self):
        self.function, self.functions = helper, {"a": helper}

    def step(self, x):
        return self.function(x)


def class_body(x):
    class Doubled:
        w = W * 2

    return x * Doubled.w


def test_functions_as_keys_and_attributes():
    agree(lambda x: helper(x) * NAMES.get(helper, -1), [add_ten, rebind], compiles=1)
    agree(Strategy().step, [add_ten, rebind], compiles=1)
    assert list(NAMES) == [helper]


def test_class_body():
    agree(class_body, [add_ten, rebind], compiles=1)


def closures():
    weights = np.ones(3)

    def grow():
        weights.__iadd__(1)

    def again():
        nonlocal weights
        weights = weights * 2

    def with_default(x, v=weights):
        return x * (v * 2)

    def keyword_default(x, *, v=weights):
        return x * (v * 2)

    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args):
            return function(*args) + 1

        return wrapper

    @decorate
    def decorated(x):
        return x * (weights * 2)

    def recurse(x, n=2):
        return x * (weights * 2) if n == 0 else recurse(x, n - 1) + 1

    layers = [lambda x, w=w: x * (w * 2) for w in (weights, weights)]

    def sequential(x):
        for layer in layers:
            x = layer(x)
        return x

    jitted = tn.jit(lambda x: x * (weights * 2))
    scaled = functools.partial(lambda w, x: x * (w * 2), weights)
    ordered = OrderedDict(w=weights)
    pair = Pair(weights, 2)
    by_name = {
        "default": with_default,
        "keyword default": keyword_default,
        "layers": sequential,
        "partial": lambda x: scaled(x),
        "OrderedDict": lambda x: x * (ordered["w"] * 2),
        "namedtuple": lambda x: x * (pair.w * pair.k),
    }
    by_variable = {
        "cell": lambda x: x * (weights * 2),
        "decorated": decorated,
        "recursive": recurse,
        "nested jit": lambda x: jitted(x) + 1,
    }
    return by_name, by_variable, grow, again


@pytest.mark.parametrize("name", [*closures()[0], *closures()[1]])
def test_closures(name):
    by_name, by_variable, grow, again = closures()
    function = (by_name | by_variable)[name]
    agree(function, [grow, again, grow] if name in by_variable else [grow], compiles=1)


def test_partial_argument():
    weights = np.ones(3)
    agree(functools.partial(lambda w, x: x * (w * 2), weights), [lambda: weights.__iadd__(1)], compiles=1)


def test_variable_that_the_function_assigns_is_left_alone():
    calls = 0
    weights = np.ones(3)

    @tn.jit
    def f(x):
        nonlocal calls
        calls += 1
        return x * (weights * 2)

    with pytest.raises(MutationError, match=r"f: calls was assigned while tracing, .*test_outside_places\.py"):
        f(X)
    assert calls == 0


COUNT = 0


def counting(x):
    global COUNT
    COUNT += 1
    counted(x)
    return x * (W * 2)


def counted(x):
    global COUNT
    COUNT += 10


def test_globals_that_the_function_and_its_helpers_assign_are_refused():
    with pytest.raises(MutationError, match="counting: global COUNT was assigned while tracing"):
        tn.jit(counting)(X)
    assert COUNT == 0


def test_containers_with_arrays_are_as_before():
    log: list[Any] = [np.ones(3)]
    seen: dict[str, Any] = {"w": np.ones(3)}

    def f(x):
        log.append("traced")
        seen["traced"] = True
        return x * (log[0] * 2) + (seen["w"] + 1)

    with pytest.raises(MutationError, match=r"f: log went from 1 to 2 elements \(and 1 more\) while tracing"):
        tn.jit(f)(X)
    assert [type(v) for v in log] == [np.ndarray]
    assert list(seen) == ["w"] and type(seen["w"]) is np.ndarray


def test_tenferro_arrays():
    table = tn.asarray(np.arange(1.0, 4.0))

    def f(x):
        return x * (table * 2) * float(table[0])

    agree(f, [lambda: table.__setitem__(0, 5.0)], compiles=2)
