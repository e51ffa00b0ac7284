"""Attributes that give something else while they are hooked: on instances, slots, classes and modules."""

from __future__ import annotations

import threading
from types import ModuleType

import pytest

from tenferro.tracer.attribute_hooks import hooked


class Base:
    shared = "class"

    def __init__(self) -> None:
        self.w = "own"

    @property
    def computed(self) -> str:
        return "computed"

    def __getattr__(self, name: str) -> str:
        if name == "missing":
            return "made up"
        raise AttributeError(name)


class Derived(Base):
    pass


class Slotted:
    __slots__ = ("w",)


def test_reading_writing_and_deleting() -> None:
    base = Base()
    with hooked([(Base, "w"), (Base, "shared"), (Base, "computed"), (Base, "missing")], str.upper):
        assert (base.w, base.shared, base.computed, base.missing) == ("OWN", "CLASS", "computed", "made up")
        base.w = "new"
        assert vars(base) == {"w": "new"} and base.w == "NEW" and Base.shared == "class"
        del base.w
        with pytest.raises(AttributeError):
            _ = base.w
        with pytest.raises(AttributeError):
            del base.w
    assert "w" not in vars(Base) and vars(Base)["shared"] == "class" and isinstance(vars(Base)["computed"], property)


def test_slots() -> None:
    slotted = Slotted()
    member = vars(Slotted)["w"]
    with hooked([(Slotted, "w")], str.upper):
        with pytest.raises(AttributeError):
            _ = slotted.w  # type: ignore[attr-defined]
        slotted.w = "own"  # type: ignore[attr-defined]
        assert slotted.w == "OWN"  # type: ignore[attr-defined]
    assert vars(Slotted)["w"] is member and slotted.w == "own"  # type: ignore[attr-defined]


def test_base_and_derived_class_together() -> None:
    base, derived = Base(), Derived()
    with hooked([(Base, "w"), (Derived, "w"), (Base, "w")], str.upper), hooked([(Derived, "w")], str.title):
        assert (base.w, derived.w) == ("Own", "Own")
    assert "w" not in vars(Base) and "w" not in vars(Derived) and derived.w == "own"


def test_modules() -> None:
    module = ModuleType("settings")
    vars(module)["w"] = "own"
    with hooked([(module, "w")], str.upper), hooked([(module, "w"), (module, "other")], str.title):
        assert module.w == "Own" and vars(module)["w"] == "own"
        module.other = "set"  # type: ignore[attr-defined]
        assert module.other == "Set"
    assert type(module) is ModuleType and (module.w, module.other) == ("own", "set")


def test_builtin_classes_are_left_alone() -> None:
    with hooked([(int, "real"), (dict, "w")], str.upper):
        assert (3).real == 3


def test_other_threads_read_what_is_there() -> None:
    base = Base()
    seen: list[str] = []
    with hooked([(Base, "w")], str.upper):
        thread = threading.Thread(target=lambda: seen.append(base.w))
        thread.start()
        thread.join()
    assert seen == ["own"]
