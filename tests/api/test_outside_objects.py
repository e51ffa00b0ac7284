"""Attributes of outside objects and classes that change between calls: what is there, what is missing, what shadows."""

from __future__ import annotations

import copy
import types
import weakref
from collections import Counter, defaultdict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.api.outside import Case, X, agree

CASES: dict[str, Callable[[], Case]] = {}


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


@pytest.mark.parametrize("name", CASES)
def test_changes_are_seen(name):
    agree(*CASES[name]())


class Plain:
    pass


class Rated:
    k = 2.0


def new(cls: type = Plain, **held: Any) -> Any:
    made = cls()
    for name, value in held.items():
        setattr(made, name, value)
    return made


@case
def class_attribute():
    class Own(Rated):
        pass

    o = Own()
    changes = [
        lambda: setattr(Own, "k", 3.0), lambda: setattr(o, "k", 4.0), lambda: setattr(Own, "k", 5.0),
        lambda: delattr(o, "k"), lambda: delattr(Own, "k"),
    ]  # fmt: skip
    return lambda x: x * o.k, changes


@case
def attribute_of_a_base_class():
    class Base:
        k = 2.0

    class Own(Base):
        pass

    o = Own()
    changes = [lambda: setattr(Base, "k", 3.0), lambda: setattr(Own, "k", 4.0), lambda: setattr(o, "k", 5.0)]
    return lambda x: x * o.k, changes


@case
def hasattr_of_an_object():
    class Own:
        pass

    o = Own()
    changes = [lambda: setattr(o, "k", 3.0), lambda: delattr(o, "k"), lambda: setattr(Own, "k", 1)]
    return lambda x: x * 2 if hasattr(o, "k") else x, changes


@case
def getattr_with_a_default():
    class Own:
        pass

    o = Own()
    changes = [lambda: setattr(o, "k", 3.0), lambda: setattr(Own, "k", 7.0), lambda: delattr(o, "k")]
    return lambda x: x * getattr(o, "k", 2.0), changes


@case
def default_that_becomes_an_array():
    o = new()
    return lambda x: x * getattr(o, "k", 2.0), [lambda: setattr(o, "k", np.arange(3.0)), lambda: delattr(o, "k")]


@case
def attribute_error():
    o = new()

    def f(x):
        try:
            return x * o.k
        except AttributeError:
            return x

    return f, [lambda: setattr(o, "k", 3.0), lambda: delattr(o, "k")]


@case
def computed_name():
    o, name = new(k1=2.0), "k"
    return lambda x: x * getattr(o, name + "1") * getattr(o, name + "2", 1.0), [
        lambda: setattr(o, "k1", 3.0),
        lambda: setattr(o, "k2", 4.0),
    ]


@case
def made_up_by_getattr():
    class Own:
        def __init__(self):
            self.held = {"k": 2.0}

        def __getattr__(self, name):
            return self.held[name]

    o: Any = Own()
    return lambda x: x * o.k, [lambda: o.held.update(k=3.0), lambda: setattr(o, "k", 4.0), lambda: delattr(o, "k")]


@case
def own_getattribute():
    class Own:
        def __init__(self):
            self.k = 2.0

        def __getattribute__(self, name):
            return object.__getattribute__(self, name)

    o = Own()
    return lambda x: x * o.k, [lambda: setattr(o, "k", 3.0)]


@case
def vars_of_an_object():
    o = new(k=2.0, w=np.ones(3))
    changes = [lambda: setattr(o, "k", 3.0), lambda: setattr(o, "w", X * 2), lambda: o.w.__iadd__(1)]
    return lambda x: x * vars(o)["k"] + vars(o)["w"] * 2, changes


@case
def slots():
    class Slotted:
        __slots__ = ("k", "w")

    o: Any = Slotted()
    changes = [
        lambda: setattr(o, "k", 3.0), lambda: setattr(o, "w", np.ones(3)), lambda: setattr(o, "w", X * 2),
        lambda: delattr(o, "k"), lambda: delattr(o, "w"),
    ]  # fmt: skip
    return lambda x: x * getattr(o, "k", 2.0) + (o.w * 2 if hasattr(o, "w") else 0), changes


@case
def dataclass_default():
    @dataclass
    class Own:
        k: float = 2.0

    o = Own()
    changes = [lambda: setattr(o, "k", 3.0), lambda: delattr(o, "k"), lambda: setattr(Own, "k", 9.0)]
    return lambda x: x * o.k, changes


@case
def dataclass_with_slots():
    @dataclass(slots=True)
    class Own:
        k: float = 2.0

    o = Own()
    return lambda x: x * o.k, [lambda: setattr(o, "k", 3.0)]


def test_outside_object_as_a_result():
    @dataclass
    class Own:
        w: Any

    o = Own(np.ones(3))
    f = tn.jit(lambda x: (o, x))
    assert f(X)[0].w is o.w
    o.w = X * 4
    assert f(X)[0].w is o.w
    assert f.cache_info().compiles == 1


@case
def nested_objects():
    class Inner:
        k = 2.0

    o = new(i=Inner())
    changes = [
        lambda: setattr(Inner, "k", 3.0), lambda: setattr(o.i, "k", 4.0),
        lambda: setattr(o, "i", types.SimpleNamespace(k=5.0)), lambda: setattr(o, "i", new(k=6.0)),
    ]  # fmt: skip
    return lambda x: x * o.i.k, changes


@case
def objects_in_containers():
    class Inner:
        k = 2.0

    held: Any = {"a": [(Inner(),)]}
    inner = held["a"][0][0]
    changes = [
        lambda: setattr(Inner, "k", 3.0), lambda: setattr(inner, "k", 4.0),
        lambda: held.update(a=[(new(k=5.0),)]), lambda: held["a"].append(1),
    ]  # fmt: skip
    return lambda x: x * held["a"][0][0].k + len(held["a"]), changes


@case
def deep_objects():
    o = new(k=2.0)
    root = new(a=new(b=new(c=new(d=new(e=new(f=o))))))
    return lambda x: x * root.a.b.c.d.e.f.k, [lambda: setattr(o, "k", 4.0)]


@case
def linked_objects():
    head, nodes = None, []
    for k in range(50):
        head = new(value=float(k), next=head)
        nodes.append(head)

    def f(x):
        node = head
        while node is not None:
            x, node = x + node.value, node.next
        return x

    return f, [lambda: setattr(nodes[20], "value", 1e3), lambda: setattr(nodes[30], "next", None)]


@case
def one_object_in_two_places_that_part():
    o = new(k=2.0)
    a, b = new(o=o), new(o=o)
    return lambda x: x * a.o.k + b.o.k, [lambda: setattr(b, "o", new(k=5.0)), lambda: setattr(o, "k", 9.0)]


@case
def namespace():
    n = types.SimpleNamespace(w=np.ones(3), k=2.0, rows=[np.ones(3)])
    changes = [
        lambda: setattr(n, "w", X * 5), lambda: n.w.__iadd__(1), lambda: setattr(n, "k", 3.0),
        lambda: n.rows.__setitem__(0, X), lambda: setattr(n, "bias", 1.0),
    ]  # fmt: skip
    return lambda x: x * (n.w * 2) * n.k + n.rows[0] * 2 + getattr(n, "bias", 0.0), changes


@case
def dict_with_attributes():
    class Options(dict[str, Any]):
        def __getattr__(self, name):
            try:
                return self[name]
            except KeyError:
                raise AttributeError(name) from None

    d = Options(w=np.ones(3), k=2.0)
    changes = [
        lambda: d.update(w=X * 5), lambda: d.update(k=3.0), lambda: d.w.__iadd__(1), lambda: d.update(z=4.0),
    ]  # fmt: skip
    return lambda x: x * (d.w * 2) * d.k * getattr(d, "z", 1.0), changes


@case
def weak_reference():
    o = new(k=2.0)
    found = weakref.ref(o)
    return lambda x: x * found().k, [lambda: setattr(o, "k", 3.0)]


@case
def copies():
    o = new(k=2.0, w=np.ones(3), rows=[np.ones(3)])
    changes = [
        lambda: setattr(o, "k", 3.0), lambda: setattr(o, "w", X * 4), lambda: o.w.__iadd__(1),
        lambda: o.rows[0].__iadd__(1),
    ]  # fmt: skip
    return (
        lambda x: x * copy.copy(o).k * (copy.copy(o).w * 2) + copy.deepcopy(o).w * 3 + copy.deepcopy(o).rows[0],
        changes,
    )


@case
def object_that_a_class_keeps():
    class Single:
        made: Any = None

        def __new__(cls) -> Any:
            if cls.made is None:
                made: Any = super().__new__(cls)
                made.k = 2.0
                cls.made = made
            return cls.made

    o = Single()
    return lambda x: x * Single().k, [lambda: setattr(o, "k", 3.0), lambda: setattr(o, "k", 4.0)]


@case
def iterators_and_contexts():
    class Group:
        level = 2.0

        def __init__(self):
            self.held = [1.0, 2.0]

        def __iter__(self):
            return iter(self.held)

        def __enter__(self):
            return self.level

        def __exit__(self, *error): ...

        def __eq__(self, other):
            return isinstance(other, Group) and self.held == other.held

    group, other = Group(), Group()

    def f(x):
        with group as level:
            return x * sum(group) * level * (1 + (group == other))

    return f, [lambda: group.held.append(5.0), lambda: setattr(Group, "level", 3.0), lambda: other.held.append(5.0)]


# -- classes of values -----------------------------------------------------------------------------------------------


class Up:
    k = 2.0


class Down:
    k = 2.0


class Mode(Enum):
    A = 1
    B = 2


Pair = namedtuple("Pair", "k")


@case
def class_of_an_object_that_is_exchanged():
    o = Up()
    return lambda x: x * 2 if isinstance(o, Up) else x, [lambda: setattr(o, "__class__", Down)]


EXCHANGED: list[tuple[Any, Any]] = [
    (Up(), Down()), (None, Up()), (Up(), None), (2, 2.0), (1, True), (0.0, -0.0), ([0, 1], (0, 1)), ("a", "b"),
    (np.float32(2), np.float64(2)), (Mode.A, Mode.B), (Pair(2.0), Pair(3.0)), ({"a": 1}, {"a": 1, "b": 2}),
    ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ({1, 2}, {1, 3}), (bytearray(b"\1"), bytearray(b"\2")), (np.sin, np.cos),
    (Counter(a=1), Counter(a=2)), (defaultdict(int, a=1), {"a": 1}), (Up, Down), ((1, 2), (1, 3)), (1 + 2j, 1 - 2j),
]  # fmt: skip


def told(x: Any, value: Any) -> Any:
    return x + float(sum(f"{value!r} {type(value).__name__}".partition(" at 0x")[0].encode()))


@pytest.mark.parametrize(("before", "after"), EXCHANGED)
def test_values_that_are_exchanged(before, after):
    o = new(v=before)
    agree(lambda x: told(x, o.v), [lambda: setattr(o, "v", after), lambda: setattr(o, "v", before)], compiles=2)
