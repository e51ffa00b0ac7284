"""Reads of attributes that are told to a trace: of instances, slots, members of classes, and modules."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

from tenferro.tracer.attribute_hooks import Behind, Hooks, hooked, instance_dict, lookup, members, unhooked

told: list[tuple[Any, str]] = []


def read(owner: Any, name: str, behind: Behind) -> Any:
    value = behind(owner, name)
    told.append((owner, name))
    return value.upper() if isinstance(value, str) and not name.startswith("__") else value


def give(value: Any) -> Any:
    return value.title() if isinstance(value, str) else value


@contextmanager
def hooks() -> Iterator[Hooks]:
    told.clear()
    made = Hooks()
    with hooked(made, read, give):
        yield made


class Base:
    shared = "class"

    def __init__(self) -> None:
        self.w = "own"

    @property
    def computed(self) -> str:
        return self.w + "!"

    @functools.cached_property
    def kept(self) -> str:
        return "kept"

    def method(self) -> str:
        return "method"

    @classmethod
    def of_class(cls) -> str:
        return cls.shared

    def __call__(self) -> str:
        return "called"

    def __getattr__(self, name: str) -> str:
        if name == "missing":
            return "made up"
        raise AttributeError(name)


class Derived(Base):
    pass


class Slotted:
    __slots__ = ("w",)


class Reading:
    def __init__(self) -> None:
        self.w = "own"

    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


def test_reading_writing_and_deleting() -> None:
    base: Any = Base()
    before = dict(vars(Base))
    with hooks() as h:
        assert h.add_class(Base) and h.add_class(Base)
        assert (base.w, base.shared, base.computed, base.missing, base.method()) == (
            "OWN", "CLASS", "OWN!", "made up", "method",
        )  # fmt: skip
        assert [n for o, n in told if o is base] == ["w", "shared", "w", "computed", "method"]
        base.w = "new"
        assert instance_dict(base) == {"w": "new"} and base.w == "NEW" and Base.shared == "class"
        del base.w
        with pytest.raises(AttributeError):
            _ = base.w
        with unhooked():
            assert base.shared == "class"
        assert members(Base) == before and lookup(Derived, "__getattribute__") is object.__getattribute__
    assert dict(vars(Base)) == before


def test_members_of_classes() -> None:
    derived = Derived()
    before = dict(vars(Base))
    with hooks() as h:
        for name in ("shared", "computed", "kept", "method", "of_class", "__call__"):
            h.add_member(Base, name)
        assert (Base.shared, derived.shared, Base.of_class()) == ("Class", "Class", "Class")
        assert (derived.computed, derived.kept, derived.method(), derived()) == ("own!", "kept", "method", "called")
        assert members(Base) == before and lookup(Derived, "method") is before["method"]
        vars(derived)["shared"] = "instance"
        assert derived.shared == "instance"
        Base.shared = "assigned"
    assert Base.shared == "assigned"
    Base.shared = "class"
    assert dict(vars(Base)) == before


def test_slots_and_classes_with_a_getattribute_of_their_own() -> None:
    slotted: Any = Slotted()
    member = vars(Slotted)["w"]
    reading = Reading()
    own = vars(Reading)["__getattribute__"]
    with hooks() as h:
        assert h.add_class(Slotted) and h.add_class(Reading)
        with pytest.raises(AttributeError):
            _ = slotted.w
        slotted.w = "own"
        assert slotted.w == "OWN" and reading.w == "OWN"
    assert vars(Slotted)["w"] is member and slotted.w == "own"
    assert vars(Reading)["__getattribute__"] is own


def test_base_and_derived_class_together() -> None:
    base, derived = Base(), Derived()
    with hooks() as outer:
        outer.add_class(Base)
        outer.add_class(Derived)
        told.clear()
        assert (base.w, derived.w) == ("OWN", "OWN") and len(told) == 2
        with hooks() as inner:
            inner.add_class(Derived)
        assert derived.w == "OWN"
    assert "__getattribute__" not in vars(Base) and "__getattribute__" not in vars(Derived) and derived.w == "own"


def test_modules() -> None:
    module = ModuleType("settings")
    vars(module).update(w="own", __getattr__=lambda name: f"no {name}")
    with hooks() as outer, hooks() as h:
        assert outer.add_module(module) and h.add_module(module)
        assert module.w == "OWN" and vars(module)["w"] == "own" and module.z == "NO Z"
        module.other = "set"  # type: ignore[attr-defined]
        assert module.other == "SET"
    assert type(module) is ModuleType and (module.w, module.other) == ("own", "set")


def test_builtin_classes_are_left_alone() -> None:
    with hooks() as h:
        assert not h.add_class(int) and not h.add_class(dict)
        h.add_member(int, "real")
        assert (3).real == 3


def test_other_threads_read_what_is_there() -> None:
    base = Base()
    seen: list[Any] = []
    with hooks() as h:
        h.add_class(Base)
        h.add_member(Base, "shared")
        thread = threading.Thread(target=lambda: seen.extend((base.w, base.computed, Base.shared)))
        thread.start()
        thread.join()
    assert seen == ["own", "own!", "class"]
