"""Dataclasses with late methods, against the standard library's on the same classes."""

from __future__ import annotations

import ast
import copy
import dataclasses
import inspect
import pickle
import sys
import textwrap
import threading
import typing  # noqa: F401, what dataclasses ask the module for
import weakref
from concurrent.futures import ThreadPoolExecutor
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any

import pytest

from tenferro.tracer.records import dataclass, replace

SOURCES = {
    "plain": "x: int\ny: float = 2.0",
    "no_fields": "def f(self): return 1",
    "factories": "x: list[int] = field(default_factory=list)\ny: Any = field(default_factory=dict, init=False)",
    "not_compared": "x: int\nline: str = field(default='', compare=False, repr=False)",
    "hashed_apart": "x: int\ny: Any = field(default=(), hash=False)",
    "post": "x: int\ny: int = field(init=False, default=0)\ndef __post_init__(self): self.__dict__ if False else None",
    "own_init": "x: int\ndef __init__(self): object.__setattr__(self, 'x', 5)",
    "own_methods": (
        "x: int\ndef __eq__(self, other): return type(self) is type(other)\ndef __hash__(self): return 3\n"
        "def __repr__(self): return 'own'"
    ),
    "own_equality": "x: int\ndef __eq__(self, other): return NotImplemented",
    "names_of_ours": "_set: int\nmethod: int = 3\nhash: int = 4\nother: int = 5",
}
OPTIONS: list[dict[str, Any]] = [
    {}, {"frozen": True}, {"slots": True}, {"frozen": True, "slots": True},
    {"frozen": True, "slots": True, "eq": False}, {"repr": False, "eq": False}, {"frozen": True, "repr": False},
]  # fmt: skip


def both(source: str, options: dict[str, Any]) -> tuple[Any, Any]:
    """The class by this package and by the standard library."""
    made = []
    for decorate in (dataclass, dataclasses.dataclass):
        text = "from __future__ import annotations\nclass C:\n" + textwrap.indent(source, "    ")
        space: dict[str, Any] = {"field": dataclasses.field, "Any": Any, "__name__": __name__}
        exec(text, space)
        made.append(decorate(**options)(space["C"]))
    return made[0], made[1]


def outcome(function: Any) -> Any:
    try:
        return function()
    except Exception as error:
        return type(error), str(error)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("name", SOURCES)
def test_as_the_standards(name: str, options: dict[str, Any]):
    ours, standards = both(SOURCES[name], options)
    assert hasattr(ours, "__slots__") == hasattr(standards, "__slots__")
    assert (ours.__match_args__, ours.__qualname__, ours.__module__) == (
        standards.__match_args__, standards.__qualname__, standards.__module__,
    )  # fmt: skip
    calls: list[tuple[tuple[Any, ...], dict[str, Any]]] = [((), {}), ((1,), {}), ((1, 2), {}), ((2, 2), {}),
        ((), {"x": 1}), ((1, 2, 3), {}), ((), {"z": 1}), ((1,), {"x": 1})]  # fmt: skip
    results = []
    for cls in (ours, standards):
        instances = [outcome(lambda a=a, k=k, cls=cls: cls(*a, **k)) for a, k in calls]
        made = [i for i in instances if isinstance(i, cls)]
        found: list[Any] = [i if isinstance(i, tuple) else "made" for i in instances]
        found += [repr(i) if cls.__repr__ is not object.__repr__ else "" for i in made]
        found += [outcome(lambda a=a, b=b: a == b) for a in made for b in made]
        found += [outcome(lambda a=a: a == 1) for a in made]
        hashes = [outcome(lambda a=a: hash(a)) for a in made]
        found += [h if isinstance(h, tuple) or cls.__hash__ is not object.__hash__ else "" for h in hashes]
        # With slots the standard's own answer for a name that is no field is a TypeError.
        names = [*[f.name for f in dataclasses.fields(cls)], *([] if options.get("slots") else ["other"])]
        for i in made[:1]:
            found += [outcome(lambda i=i, n=n: setattr(i, n, 7)) for n in names]
            found += [outcome(lambda i=i, n=n: delattr(i, n)) for n in names]
        for i in made[1:2]:
            found += [[(f.name, repr(f.default), f.init) for f in dataclasses.fields(i)], dataclasses.asdict(i)]
            found += [repr(outcome(lambda i=i: dataclasses.replace(i, x=9))).split(" object at")[0]]
            found += [repr(copy.copy(i)).split(" object at")[0], repr(copy.deepcopy(i)).split(" object at")[0]]
        found += [dataclasses.is_dataclass(cls), outcome(lambda cls=cls: weakref.ref(cls(1))) and ""]
        results.append(found)
    assert results[0] == results[1]


def test_methods_are_made_once_and_where_they_are_called():
    ours, _ = both("x: int", {"frozen": True})
    first = ours.__dict__["__init__"]
    one = ours(3)
    made = ours.__dict__["__init__"]
    assert made is not first and ours(4).x == 4 and ours.__dict__["__init__"] is made
    assert str(inspect.signature(ours)) == "(x)"
    assert made.__qualname__ == "C.__init__"
    eq = ours.__dict__["__eq__"]
    assert one == ours(3) and ours.__dict__["__eq__"] is not eq


@dataclass(frozen=True, slots=True)
class Point:
    """Of this module, so that it pickles."""

    x: int
    y: tuple[int, ...] = ()


def test_copies_and_patterns():
    p = Point(1, (2,))
    assert pickle.loads(pickle.dumps(p)) == copy.deepcopy(p) == p
    match p:
        case Point(x, y=(second,)):
            assert (x, second) == (1, 2)
        case _:
            raise AssertionError("no match")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'x'"):
        p.x = 3  # type: ignore[misc]
    assert Point.__doc__ == "Of this module, so that it pickles."


def test_replaced_as_the_standard_does():
    @dataclass(frozen=True, slots=True)
    class Pair:
        x: int
        y: int = dataclasses.field(default=2)

    @dataclass
    class Counted:
        x: int
        n: int = dataclasses.field(init=False, default=0)

        def __post_init__(self) -> None:
            self.n = self.x + 1

    class Derived(Pair):
        pass

    assert replace(Pair(1), y=5) == Pair(1, 5) and replace(Pair(1, 3)) == Pair(1, 3)
    assert replace(Counted(1), x=4).n == 5
    assert type(replace(Derived(1), x=2)) is Derived
    with pytest.raises(TypeError, match="z"):
        replace(Pair(1), z=3)  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="n"):
        replace(Counted(1), n=3)


def test_what_is_not_written_here_is_the_standards():
    ordered, _ = both("x: int", {"order": True, "frozen": True})
    assert ordered(1) < ordered(2)
    counted, _ = both("n: typing.ClassVar[int] = 3\nx: int", {})
    assert counted(2).x == 2 and [f.name for f in dataclasses.fields(counted)] == ["x"]

    @dataclasses.dataclass(frozen=True)
    class Child(Point):
        z: int = 5

    @dataclass(frozen=True)
    class Grandchild(Child):
        x: int
        w: int = 6

    assert Child(1, (), 2) == Child(1, z=2) != Child(1)
    assert dataclasses.astuple(Grandchild(1)) == (1, (), 5, 6)


@pytest.mark.parametrize("slots", [False, True])
def test_what_derives_from_ours_is_as_the_standards(slots: bool):
    made: list[Any] = []
    decorators: list[Any] = [dataclass, dataclasses.dataclass]
    for decorate in decorators:

        @decorate(frozen=True, slots=slots)
        class A:
            x: int
            y: list[int] = dataclasses.field(default_factory=list)

        @decorate(frozen=True, slots=slots)
        class B(A):
            z: int = 3
            x: int

        class Plain(B):
            pass

        @decorate(frozen=True, slots=slots)
        class C(Plain):
            y: Any = ()

        made.append((A, B, C))
    ours, standards = made
    for mine, other in zip(ours, standards, strict=True):
        assert mine.__match_args__ == other.__match_args__
        assert repr(mine(1)) == repr(other(1)) and repr(mine(x=1, y=2)) == repr(other(x=1, y=2))
        assert [f.name for f in dataclasses.fields(mine)] == [f.name for f in dataclasses.fields(other)]
        assert vars(mine).get("__slots__") == vars(other).get("__slots__")
        assert str(mine.__dataclass_params__) == str(other.__dataclass_params__)
        assert mine(1) == mine(1) and mine(1) != mine(2)
    assert ours[0](1) != ours[1](1)
    assert hash(ours[2](1)) == hash(ours[2](1, ()))


def test_a_repr_of_itself_ends():
    ours, _ = both("x: list[Any]", {})
    loop = ours([])
    loop.x.append(loop)
    assert repr(loop) == "C(x=[...])"


def test_a_subclass_keeps_its_own_methods():
    ours, _ = both("x: int", {"frozen": True})

    class Child(ours):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__(7)

    assert Child().x == 7
    Child().other = 3
    with pytest.raises(FrozenInstanceError):
        Child().x = 3


def test_threads_that_meet_at_the_first_call():
    ours, _ = both("x: int\ny: int = 3", {"frozen": True, "slots": True})
    found: list[Any] = []
    start = threading.Barrier(8)

    def work() -> None:
        start.wait()
        found.append(hash(ours(1)) == hash(ours(1)) and ours(1) == ours(1, 3))

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work) for _ in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    finally:
        sys.setswitchinterval(before)
    assert found == [True] * 8


def test_the_package_has_late_methods():
    """The standard decorator takes 0.35 ms for each class of each process."""
    root = Path(__file__).resolve().parents[2]
    found = []
    for folder in ("tenferro", "engines", "lowering", "tracer"):
        for file in sorted((root / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ImportFrom) and node.module == "dataclasses" and file.name != "records.py":
                    found += [str(file.relative_to(root)) for n in node.names if n.name == "dataclass"]
    assert found == [], "dataclass comes from tenferro.tracer.records"


@pytest.mark.parametrize("slots", [False, True])
def test_threads_that_ask_first_all_get_the_fields(slots: bool):
    late: Any = dataclass
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(20):

            @late(slots=slots)
            class Point:
                x: int = dataclasses.field(default=1, metadata={"unit": "m"})
                y: int = dataclasses.field(default=2, metadata={"unit": "s"})

            barrier = threading.Barrier(4)

            def ask(kind: Any = Point, start: Any = barrier) -> list[str]:
                start.wait()
                return [f.metadata["unit"] for f in dataclasses.fields(kind)]

            with ThreadPoolExecutor(4) as pool:
                assert list(pool.map(lambda _, run=ask: run(), range(4))) == [["m", "s"]] * 4
            made: Any = Point
            assert made() == made(1, 2)
    finally:
        sys.setswitchinterval(interval)
