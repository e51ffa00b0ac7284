"""Methods, properties and classes that change between calls, and what they read of the module."""

from __future__ import annotations

import abc
import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.api.outside import Case, X, agree, follow

W = np.ones(3)
RATE = 2.0
CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setitem(globals(), "W", np.ones(3))
    monkeypatch.setitem(globals(), "RATE", 2.0)


def rebind(name: str, value: Any) -> Callable[[], None]:
    return lambda: globals().update({name: value})


def triple_w() -> None:
    globals()["W"] = W * 3


@pytest.mark.parametrize("name", CASES)
def test_changes_are_seen(name):
    agree(*CASES[name]())


class Rated:
    k = 2.0


def model_class() -> Any:
    class Model:
        K = 2.0

        def __init__(self):
            self.k = 2.0

        @property
        def doubled(self):
            return self.k * self.K

        def scaled(self, x):
            return x * self.K * RATE

        def helper(self, x):
            return x * 2

        def outer(self, x):
            return self.helper(x)

    return Model


@case
def property_of_an_object():
    cls = model_class()
    o = cls()
    changes = [
        lambda: setattr(o, "k", 3.0), lambda: setattr(cls, "K", 4.0), lambda: setattr(o, "K", 5.0),
        lambda: setattr(cls, "doubled", property(lambda self: 7.0)), lambda: setattr(cls, "doubled", 8.0),
    ]  # fmt: skip
    return lambda x: x * o.doubled, changes


@case
def method_of_an_object():
    cls = model_class()
    o = cls()
    changes = [
        lambda: setattr(cls, "K", 3.0), rebind("RATE", 5.0), lambda: setattr(o, "K", 4.0),
        lambda: setattr(cls, "scaled", lambda self, x: x * 9), lambda: setattr(o, "scaled", lambda x: x * 11),
        lambda: delattr(o, "scaled"),
    ]  # fmt: skip
    return lambda x: o.scaled(x), changes


@case
def method_that_a_method_calls():
    cls = model_class()
    o = cls()
    changes = [
        lambda: setattr(cls, "helper", lambda self, x: x * 3), lambda: setattr(o, "helper", lambda x: x * 5),
        lambda: delattr(o, "helper"),
    ]  # fmt: skip
    return lambda x: o.outer(x), changes


@case
def variable_of_a_method():
    k = 2.0

    class Own:
        def apply(self, x):
            return x * k

    def change():
        nonlocal k
        k = 3.0

    o = Own()
    return lambda x: o.apply(x), [change]


@case
def cached_property():
    class Own:
        k = 2.0

        @functools.cached_property
        def twice(self):
            return self.k * 2

    o: Any = Own()
    changes = [
        lambda: setattr(o, "k", 3.0), lambda: setattr(o, "twice", 7.0), lambda: delattr(o, "twice"),
        lambda: setattr(o, "k", 2.0),
    ]  # fmt: skip
    return lambda x: x * o.twice, changes


@case
def descriptor():
    class Scaled:
        def __set_name__(self, owner, name):
            self.name = "_" + name

        def __get__(self, instance, owner):
            return self if instance is None else getattr(instance, self.name)

        def __set__(self, instance, value):
            setattr(instance, self.name, value)

    class Own:
        k = Scaled()

        def __init__(self):
            self.k = 2.0

    o: Any = Own()
    return lambda x: x * o.k, [lambda: setattr(o, "k", 3.0), lambda: setattr(Own, "k", 7.0)]


@case
def descriptor_without_set():
    class Fixed:
        def __get__(self, instance, owner):
            return 2.0

    class Own:
        k = Fixed()

    o = Own()
    changes = [lambda: vars(o).update(k=3.0), lambda: vars(o).clear(), lambda: setattr(Own, "k", 9.0)]
    return lambda x: x * o.k, changes


@case
def special_methods():
    class Own:
        def __init__(self):
            self.k, self.held = 2.0, [1]

        def __call__(self, x):
            return x * self.k * RATE

        def __getitem__(self, i):
            return self.k + i

        def __len__(self):
            return len(self.held)

    o: Any = Own()
    changes = [
        lambda: setattr(o, "k", 3.0), rebind("RATE", 5.0), lambda: o.held.clear(),
        lambda: setattr(Own, "__call__", lambda self, x: x * 100),
        lambda: setattr(Own, "__getitem__", lambda self, i: 7.0), lambda: setattr(Own, "__len__", lambda self: 9),
    ]  # fmt: skip
    return lambda x: o(x) + o[1] + (len(o) if o else 0), changes


@case
def abstract_class():
    class Base(abc.ABC):
        k = 2.0

        @abc.abstractmethod
        def apply(self, x): ...

    class Own(Base):
        def apply(self, x):
            return x * self.k

    o = Own()
    return lambda x: o.apply(x) if isinstance(o, Base) else x, [lambda: setattr(Base, "k", 3.0)]


@case
def mode_that_is_set_and_put_back():
    class Own:
        def __init__(self):
            self.mode, self.k = "train", 2.0

        def apply(self, x):
            return x * self.k if self.mode == "eval" else x

    o = Own()

    def f(x):
        old, o.mode = o.mode, "eval"
        try:
            return o.apply(x)
        finally:
            o.mode = old

    return f, [lambda: setattr(o, "k", 3.0)]


class Reader:
    """Each of these reads a global array, which NumPy works on before anything traced takes part."""

    def method(self, x):
        return x * (W * 2)

    def __call__(self, x):
        return x * (W * 3)

    def __add__(self, x):
        return x + W * 4

    @property
    def attribute(self):
        return W * 5

    @classmethod
    def of_class(cls, x):
        return x * (W * 6)

    @staticmethod
    def static(x):
        return x * (W * 7)


class DerivedReader(Reader):
    def method(self, x):
        return super().method(x) + 1


READERS: dict[str, Callable[[Any, Any], Any]] = {
    "method": lambda o, x: o.method(x), "call": lambda o, x: o(x), "operator": lambda o, x: o + x,
    "property": lambda o, x: x * o.attribute, "classmethod": lambda o, x: o.of_class(x),
    "staticmethod": lambda o, x: o.static(x), "of the class": lambda o, x: Reader.method(o, x),
    "classmethod of the class": lambda o, x: Reader.of_class(x), "type": lambda o, x: type(o).method(o, x),
    "kept": lambda o, x: (lambda bound: bound(x))(o.method), "made inside": lambda o, x: Reader().method(x),
}  # fmt: skip


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("cls", [Reader, DerivedReader])
def test_global_arrays_of_methods_are_traced(name, cls):
    o, read = cls(), READERS[name]
    agree(lambda x: read(o, x), [triple_w, lambda: W.__iadd__(1)], compiles=1)


# -- classes ---------------------------------------------------------------------------------------------------------


@case
def attributes_of_a_class():
    class Base:
        k = 2.0

    class Own(Base):
        held = {"k": 2.0}

    changes = [
        lambda: setattr(Base, "k", 3.0), lambda: setattr(Own, "k", 4.0), lambda: Own.held.update(k=5.0),
        lambda: setattr(Own, "z", 6.0),
    ]  # fmt: skip
    return lambda x: x * Own.k * Own.held["k"] * getattr(Own, "z", 1.0), changes


@case
def arrays_of_a_class():
    class Own:
        w, held = np.ones(3), {"w": np.ones(3)}

    changes = [lambda: setattr(Own, "w", X * 5), lambda: Own.w.__iadd__(1), lambda: Own.held.update(w=X)]
    return lambda x: x * (Own.w * 2) + Own.held["w"] * 3, changes


@case
def functions_of_a_class():
    class Own:
        k = 2.0

        @classmethod
        def of_class(cls, x):
            return x * cls.k

        @staticmethod
        def static(x):
            return x + 2

    changes = [
        lambda: setattr(Own, "k", 3.0), lambda: setattr(Own, "static", staticmethod(lambda x: x + 3)),
        lambda: setattr(Own, "of_class", classmethod(lambda cls, x: x * 7)),
    ]  # fmt: skip
    return lambda x: Own.of_class(Own.static(x)), changes


@case
def class_that_is_made_inside():
    class Own:
        k = 2.0

        def __init__(self):
            self.r = RATE

    return lambda x: x * Own().k * Own().r, [lambda: setattr(Own, "k", 3.0), rebind("RATE", 5.0)]


@case
def class_of_classes():
    class Meta(type):
        @property
        def k(cls):
            return cls._k  # type: ignore[attr-defined]

    class Own(metaclass=Meta):
        _k = 2.0

    return lambda x: x * Own.k, [lambda: setattr(Own, "_k", 3.0)]


# -- methods that are jitted -----------------------------------------------------------------------------------------


def method_class() -> Any:
    class Base:
        k = 2.0

    class Own(Base):
        def class_attribute(self, x):
            return x * self.k

        def missing(self, x):
            return x * getattr(self, "z", 2.0) if not hasattr(self, "y") else x

        def of_super(self, x):
            return x * super().k

        def of_type(self, x):
            return x * type(self).k

        def of_its_class(self, x):
            return x * self.__class__.k

        def goes_elsewhere(self, x):
            return elsewhere(self, x)

        def helper(self, x):
            return x * 2

        def calls(self, x):
            return self.helper(x)

    return Own


def elsewhere(o, x):
    return x * o.k


METHODS: dict[str, Callable[[Any, Any], list[Callable[[], object]]]] = {
    "class_attribute": lambda c, o: [lambda: setattr(c.__mro__[1], "k", 3.0), lambda: setattr(o, "k", 4.0)],
    "missing": lambda c, o: [lambda: setattr(o, "z", 3.0), lambda: setattr(c, "y", 1), lambda: delattr(c, "y")],
    "of_super": lambda c, o: [lambda: setattr(c.__mro__[1], "k", 3.0), lambda: setattr(c, "k", 5.0)],
    "of_type": lambda c, o: [lambda: setattr(c, "k", 3.0), lambda: setattr(o, "k", 5.0)],
    "of_its_class": lambda c, o: [lambda: setattr(c, "k", 3.0)],
    "goes_elsewhere": lambda c, o: [lambda: setattr(c, "k", 3.0), lambda: setattr(o, "k", 4.0)],
    "calls": lambda c, o: [
        lambda: setattr(o, "helper", lambda x: x * 3), lambda: delattr(o, "helper"),
        lambda: setattr(c, "helper", lambda self, x: x * 5),
    ],
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_what_a_jitted_method_reads_of_its_object(name):
    cls = method_class()
    method, o = getattr(cls, name), cls()
    jitted = tn.jit(method).__get__(o)
    follow(jitted, method.__get__(o), METHODS[name](cls, o))


# -- what does not matter --------------------------------------------------------------------------------------------


class Worker:
    made = 0

    def __init__(self):
        self.w, self.k, self.log, self.inner = np.ones(3), 2.0, [], Rated()

    def step(self, x):
        return x * self.w * self.k + self.inner.k

    def report(self):
        return RATE


def test_what_is_not_read_traces_nothing_again():
    o = Worker()
    step, apply = tn.jit(Worker.step), tn.jit(lambda x: o.step(x))
    for k in range(5):
        np.testing.assert_array_equal(step(o, X), o.step(X))
        np.testing.assert_array_equal(apply(X), o.step(X))
        np.testing.assert_array_equal(step(Worker(), X), Worker().step(X))
        o.log.append(k)
        Worker.made += 1
        globals()["RATE"] = float(k)
        setattr(o, f"a{k}", k)
        setattr(Worker, f"b{k}", k)
        setattr(o.inner, f"c{k}", k)
        o.w, o.inner = o.w * 2, Rated()
    assert step.cache_info().compiles == apply.cache_info().compiles == 1
