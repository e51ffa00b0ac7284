"""What a traced function changes outside itself is refused, named with its line, and put back."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import random
from collections import OrderedDict, deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import MutationError, TraceError

X = np.arange(1.0, 4.0)
TOTAL = 0
COUNTS = {"n": 0}
GAUSS, OWN = random.gauss, random.Random(1)
SETTINGS = SimpleNamespace(gain=1.0)


class Slotted:
    __slots__ = ("n",)

    def __init__(self) -> None:
        self.n = 0


class Filter:
    made = 0

    def __init__(self) -> None:
        self.mean, self.n, self.state = np.zeros(3), 0, {"w": np.ones(3)}
        self.history: list[Any] = []
        self.recent: deque[Any] = deque([1, 2], maxlen=2)
        self.names = {"a"}
        self.slotted = Slotted()

    def array(self, x: Any) -> Any:
        self.mean = 0.9 * self.mean + 0.1 * x
        return self.mean

    def number(self, x: Any) -> Any:
        self.n += 1
        return x * self.n

    def cache(self, x: Any) -> Any:
        if not hasattr(self, "kept"):
            self.kept = x * 2
        return self.kept

    def item(self, x: Any) -> Any:
        self.state["w"] = self.state["w"] * x
        return x

    def appended(self, x: Any) -> Any:
        self.history.append(1.0)
        return x

    def rotated(self, x: Any) -> Any:
        self.recent.append(3)
        return x

    def added(self, x: Any) -> Any:
        self.names.add("b")
        return x

    def slot(self, x: Any) -> Any:
        self.slotted.n = 1
        return x

    def of_class(self, x: Any) -> Any:
        type(self).made += 1
        return x

    def deleted(self, x: Any) -> Any:
        del self.n
        return x

    def _bump(self) -> None:
        self.n += 1

    def through_method(self, x: Any) -> Any:
        self._bump()
        return x

    @functools.cached_property
    def doubled(self) -> Any:
        return 2 * self.mean

    def cached(self, x: Any) -> Any:
        return self.doubled + x

    def put_back(self, x: Any) -> Any:
        old = self.mean
        self.mean = x
        y = self.mean * 2
        self.mean = old
        return y

    def same_number(self, x: Any) -> Any:
        self.n = 0
        return x

    def own(self, x: Any) -> Any:
        found = [x]
        found.append(x * 2)
        table = dict(self.state)
        table["w"] = x
        return found, table


def frozen(model: Filter) -> dict[str, Any]:
    """A copy of what the object holds, one level deep."""
    held = {k: v.copy() if isinstance(v, dict | list | deque | set) else v for k, v in vars(model).items()}
    return held | {"slot": model.slotted.n, "class": Filter.made}


@pytest.mark.parametrize(
    "method, text",
    [
        (Filter.array, "self.mean was assigned"), (Filter.number, "self.n was assigned"),
        (Filter.cache, "self.kept was assigned"), (Filter.item, r"self.state\['w'\] was assigned"),
        (Filter.appended, "self.history went from 0 to 1 elements"), (Filter.rotated, r"self.recent\[0\] was assigned"),
        (Filter.added, "self.names got other elements"), (Filter.slot, "self.slotted.n was assigned"),
        (Filter.of_class, "Filter.made was assigned"), (Filter.deleted, "self.n was deleted"),
        (Filter.through_method, "self.n was assigned"),
    ],
)  # fmt: skip
def test_methods(method: Callable[..., Any], text: str) -> None:
    model = Filter()
    before = frozen(model)
    code = Filter._bump.__code__ if method is Filter.through_method else method.__code__
    for _ in range(2):
        with pytest.raises(MutationError, match=f"{text} .*while tracing, .* assign it outside") as caught:
            tn.jit(method)(model, X)
        line = int(str(caught.value).rpartition(":")[2].rstrip(")"))
        assert code.co_firstlineno < line <= code.co_firstlineno + 3
    after = frozen(model)
    assert before.keys() == after.keys()
    assert all(before[k] is after[k] or before[k] == after[k] for k in before)


@pytest.mark.parametrize("method", [Filter.cached, Filter.put_back, Filter.same_number, Filter.own])
def test_what_changes_nothing_is_served(method: Callable[..., Any]) -> None:
    model, plain = Filter(), Filter()
    for _ in range(2):
        got, expected = tn.jit(method)(model, X), method(plain, X)
        assert all(np.array_equal(a, b) for a, b in zip(tn.tree.leaves(got), tn.tree.leaves(expected), strict=True))
    assert type(model.mean) is np.ndarray


@dataclasses.dataclass
class State:
    m: Any
    past: list[Any]


def field(s: Any, x: Any) -> Any:
    s.m = s.m + x
    return x


def inner(s: Any, x: Any) -> Any:
    s.past.append(x)
    return x


def item(p: Any, x: Any) -> Any:
    p["w"] = p["w"] * x
    return x


def nested(p: Any, x: Any) -> Any:
    p["w"][0] = x
    return x


def grown(values: Any, x: Any) -> Any:
    values.append(x)
    return x


@pytest.mark.parametrize(
    "function, argument, text",
    [
        (field, State(X, [X]), "argument s.m was assigned"),
        (inner, State(X, [X]), "argument s.past went from 1 to 2 elements"),
        (item, {"w": X}, r"argument p\['w'\] was assigned"),
        (item, OrderedDict(w=X), r"argument p\['w'\] was assigned"),
        (nested, {"w": [X]}, r"argument p\['w'\]\[0\] was assigned"),
        (grown, [X], "argument values went from 1 to 2 elements"),
    ],
)  # fmt: skip
def test_arguments(function: Callable[..., Any], argument: Any, text: str) -> None:
    with pytest.raises(MutationError, match=f"{function.__name__}: {text} while tracing"):
        tn.jit(function)(argument, X)


def counts(x: Any) -> Any:
    global TOTAL
    TOTAL += 1
    return x * TOTAL


def counts_in_dict(x: Any) -> Any:
    COUNTS["n"] += 1
    return x


def calls_helper(x: Any) -> Any:
    return counts_in_dict(x)


def sets_setting(x: Any) -> Any:
    SETTINGS.gain = 2.0
    return x * SETTINGS.gain


def marks_function(x: Any) -> Any:
    calls_helper.calls = 1  # type: ignore[attr-defined]
    return x


@pytest.mark.parametrize(
    "function, text",
    [
        (counts, "global TOTAL was assigned"), (counts_in_dict, r"COUNTS\['n'\] was assigned"),
        (calls_helper, r"COUNTS\['n'\] was assigned"), (sets_setting, "SETTINGS.gain was assigned"),
        (marks_function, "calls_helper.calls was assigned"),
    ],
)  # fmt: skip
def test_globals(function: Callable[..., Any], text: str) -> None:
    with pytest.raises(MutationError, match=f"{text} while tracing"):
        tn.jit(function)(X)
    assert (TOTAL, COUNTS, SETTINGS.gain, hasattr(calls_helper, "calls")) == (0, {"n": 0}, 1.0, False)


def test_an_inner_jitted_function_is_watched_too() -> None:
    log: list[int] = []

    @tn.jit
    def part(x: Any) -> Any:
        log.append(1)
        return x

    with pytest.raises(MutationError, match="log went from 0 to 1 elements"):
        tn.jit(lambda x: part(x) + 1)(X)
    assert not log


def test_state_is_put_back_where_the_function_raises() -> None:
    model = Filter()

    def f(x: Any) -> Any:
        model.mean = x
        raise KeyError("own")

    mean = model.mean
    with pytest.raises(KeyError, match="own"):
        tn.jit(f)(X)
    assert model.mean is mean


def counting_up() -> Any:
    yield from (1, 2, 3)


@pytest.mark.parametrize("make", [lambda: iter([1, 2]), lambda: itertools.count(3), counting_up])
def test_iterators(make: Callable[[], Any]) -> None:
    numbers = make()
    with pytest.raises(MutationError, match="numbers was advanced while tracing"):
        tn.jit(lambda x: x * next(numbers))(X)
    model = Filter()
    model.history = make()
    np.testing.assert_array_equal(tn.jit(Filter.cached)(model, X), X)


def by_setattr(model: Any, x: Any) -> Any:
    vars(model)["other"] = x
    return x


def test_a_change_that_no_statement_shows_has_the_line_of_the_function() -> None:
    model = Filter()
    line = by_setattr.__code__.co_firstlineno
    with pytest.raises(MutationError, match=rf"model.other was assigned .*test_effects\.py:{line}\)"):
        tn.jit(by_setattr, static_argnums=0)(model, X)
    assert not hasattr(model, "other")


@pytest.mark.parametrize("draw", [lambda x: x * random.random(), lambda x: x * GAUSS(0, 1), lambda x: x * OWN.random()])
def test_numbers_of_pythons_generators_are_refused(draw: Callable[..., Any]) -> None:
    with pytest.raises(TraceError, match="drew random numbers while tracing"):
        tn.jit(draw)(X)


def test_array_cure_is_named() -> None:
    with pytest.raises(MutationError, match="donate_argnums"):
        tn.jit(item)({"w": X}, X)
