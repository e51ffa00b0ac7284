"""Arrays in attributes of objects, classes and modules, and what other threads see of them during a trace."""

from __future__ import annotations

import threading
import types
from dataclasses import dataclass

import numpy as np
import pytest

import tenferro as tn
from tests.api.outside import X, agree


class Inner:
    def __init__(self):
        self.v = np.ones(3)

    def __call__(self, x):
        return x + self.v * 2


class Model:
    shared = np.full(3, 2.0)

    def __init__(self):
        self.w, self.table, self.rows, self.inner = np.ones(3), {"a": np.ones(3)}, [np.ones(3), np.ones(3)], Inner()

    @property
    def doubled(self):
        return self.w * 2

    def helper(self, x):
        return x * np.exp(-self.w)

    def operator(self, x):
        return x * (self.w * 2)

    def container(self, x):
        return x * (self.table["a"] * 2) + sum(row * 3 for row in self.rows)

    def nested_object(self, x):
        return self.inner(x)

    def through_helper(self, x):
        return self.helper(x) + self.doubled

    def class_attribute(self, x):
        return x * (self.shared * 2)

    def __call__(self, x):
        return x * (self.w + 1)

    def grow(self):
        self.w += 1
        self.table["a"] += 1
        self.rows[0] += 2
        self.inner.v *= 3

    def replace(self):
        self.w, self.table["a"], self.rows[0] = self.w * 2, np.arange(3.0), np.arange(3.0)
        self.inner = Inner()
        self.inner.v += 5


class Derived(Model):
    def operator(self, x):
        return super().operator(x) + 1


class Slotted:
    __slots__ = ("w",)

    def __init__(self):
        self.w = np.ones(3)

    def operator(self, x):
        return x * (self.w * 2)

    def grow(self):
        self.w += 1

    def replace(self):
        self.w = self.w * 2


@dataclass(frozen=True)
class Frozen:
    w: np.ndarray

    def operator(self, x):
        return x * (self.w * 2)

    def grow(self):
        self.w.__iadd__(1)


METHODS = ["operator", "container", "nested_object", "through_helper", "class_attribute", "__call__"]


@pytest.mark.parametrize("name", METHODS)
def test_methods(name):
    model = Model()
    agree(getattr(model, name), [model.grow, model.replace, model.grow], compiles=1)


@pytest.mark.parametrize("cls", [Derived, Slotted, Model])
def test_other_classes(cls):
    model = cls()
    agree(model.operator, [model.grow, model.replace], compiles=1)


def test_frozen_dataclass():
    model = Frozen(np.ones(3))
    agree(model.operator, [model.grow], compiles=1)


def test_callable_object():
    model = Model()
    agree(model, [model.grow, model.replace], compiles=1)


def test_object_in_a_closure():
    model = Model()
    bound = model.operator
    agree(lambda x: model.container(x) + bound(x) + model.w * 2, [model.grow], compiles=1)


def test_method_serves_every_object():
    step = tn.jit(Model.operator)
    a, b = Model(), Model()
    b.w += 4
    assert step(a, X)[0] == 2.0 and step(b, X)[0] == 10.0
    assert step.cache_info().compiles == 1


def test_number_of_an_attribute_is_guarded():
    class Switch:
        def __init__(self):
            self.w = np.ones(3)

        def step(self, x):
            return x * 2 if self.w[0] > 1 else x

    switch = Switch()
    step = tn.jit(Switch.step)
    assert step(switch, X)[0] == 1.0
    switch.w[0] = 2.0
    assert step(switch, X)[0] == 2.0
    assert step.explain().traces[1].reason == "the contents of self.w, asked for by bool, have changed"


def test_classes_are_as_before():
    before = {c: dict(vars(c)) for c in (Model, Inner, Slotted)}
    model = Model()
    tn.jit(Model.container)(model, X), tn.jit(Model.class_attribute)(model, X), tn.jit(Slotted.operator)(Slotted(), X)
    with pytest.raises(ZeroDivisionError):
        tn.jit(lambda x: model.w * 2 + 1 // 0)(X)
    assert {c: dict(vars(c)) for c in before} == before


def test_arrays_that_nothing_reads_are_no_inputs():
    table = {name: np.full(k + 1, float(k)) for k, name in enumerate("abcdefgh")}

    def f(x):
        return x * (table["c"] * 2), table["f"][1:3], table["b"].shape[0], table["h"]

    jitted = tn.jit(f)
    out = jitted(X)
    assert [i.kind for i in jitted.trace(X).inputs] == ["argument", *["captured"] * 4]
    assert out[0].tolist() == [4, 8, 12] and out[1].tolist() == [5, 5] and out[2] == 2 and out[3] is table["h"]
    assert np.shares_memory(out[1], table["f"])
    table["b"], table["a"] = np.ones(9), np.ones((2, 2), np.int8)
    assert jitted(X)[2] == 9 and jitted.cache_info().compiles == 1


class Constants:
    table = np.ones(3)
    rate = 2.0


def reads_class(x):
    return x * (Constants.table * 2) * Constants.rate


def adds_class(x):
    return x + Constants.table


def test_arrays_and_numbers_in_a_class(monkeypatch):
    monkeypatch.setattr(Constants, "table", np.ones(3))
    monkeypatch.setattr(Constants, "rate", 2.0)
    agree(
        reads_class,
        [lambda: Constants.table.__iadd__(1), lambda: setattr(Constants, "rate", 3.0)],
        compiles=2,
    )
    agree(
        adds_class,
        [lambda: Constants.table.__iadd__(1), lambda: setattr(Constants, "table", np.arange(3.0))],
        compiles=1,
    )


def test_arrays_and_numbers_in_a_module():
    settings = types.ModuleType("settings_of_the_user")
    vars(settings).update(w=np.ones(3), rate=2.0, rows=[np.ones(3)])

    def f(x):
        return x * (settings.w * 2) * settings.rate + settings.rows[0] * 3

    changes = [lambda: settings.w.__iadd__(1), lambda: vars(settings).update(w=np.arange(3.0), rows=[np.zeros(3)])]
    agree(f, changes, compiles=1)
    agree(f, [lambda: vars(settings).update(rate=3.0)], compiles=2)
    assert type(settings) is types.ModuleType


def test_other_threads_see_the_object_while_one_traces():
    model = Model()
    seen, stop = [], threading.Event()

    def look():
        while not stop.is_set():
            seen.append(type(model.w) is np.ndarray and type(model.table["a"]) is np.ndarray)

    thread = threading.Thread(target=look)
    thread.start()
    try:
        for _ in range(30):
            tn.jit(Model.container)(model, X), tn.jit(Model.operator)(model, X)
    finally:
        stop.set()
        thread.join()
    assert seen and all(seen)


def test_eight_threads_and_a_changing_array():
    weights = np.ones(3)
    f = tn.jit(lambda x: x * (weights * 2) + (1 if weights[0] > 1 else 0))
    results: list[bool] = []

    def call(expected):
        results.extend(bool(f(X)[0] == expected) for _ in range(50))

    for expected in (2.0, 5.0):
        threads = [threading.Thread(target=call, args=(expected,)) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        weights += 1
    assert len(results) == 800 and all(results)
    assert f.cache_info().compiles == 2
