"""Native calls of methods, and of functions that read attributes: served, and no longer where one has changed."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.trace import current_trace
from tests.api.native import RUNS, native_hits, same, served

pytestmark = pytest.mark.filterwarnings("ignore::tenferro.tracer.errors.RecompileWarning")

x, y = np.arange(1.0, 7.0).reshape(2, 3), np.arange(6.0, 12.0).reshape(2, 3)


class Part:
    """Something that a model has."""

    def __init__(self, b: Any) -> None:
        self.b = b


class Model:
    """A model with everything that native code looks at."""

    shift = 1.0

    def __init__(self) -> None:
        self.w = y.copy()
        self.rate = 0.5
        self.layers: list[Any] = [x.copy(), 2.0]
        self.options: dict[str, Any] = {"a": 3.0, "b": y.copy()}
        self.part = Part(x.copy())
        self.names = ("one", "two")

    def plain(self, v: Any) -> Any:
        total = v * self.w * self.rate + self.shift + self.layers[0] * self.layers[1]
        total = total + self.options["a"] * self.options["b"] + self.part.b + len(self.names)
        return total + self.inner(v) * self.half + self.four()

    step = tn.jit(plain)

    def inner(self, v: Any) -> Any:
        return v * self.rate

    @property
    def half(self) -> float:
        return self.rate / 2

    @staticmethod
    def four() -> float:
        return 4.0


def close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), rtol=1e-13)


def method_served(model: Any, *args: Any, name: str = "step", **kwargs: Any) -> Any:
    """The result of a method's native call."""
    f = getattr(type(model), name)
    for _ in range(100):
        before = native_hits(f)
        result = getattr(model, name)(*args, **kwargs)
        if native_hits(f) > before:
            return result
    raise AssertionError("the call took the long way")


CHANGES: list[tuple[str, Any]] = [
    ("a number", lambda m: setattr(m, "rate", 0.25)),
    ("a number of another class", lambda m: setattr(m, "rate", np.float32(0.25))),
    ("an array", lambda m: setattr(m, "w", x * 3)),
    ("an array's elements", lambda m: m.w.__setitem__((0, 0), 50.0)),
    ("an array of another layout", lambda m: setattr(m, "w", np.asfortranarray(x))),
    ("an array of another dtype", lambda m: setattr(m, "w", y.astype("f4"))),
    ("a tn.Array in its place", lambda m: setattr(m, "w", tn.asarray(x))),
    ("a number in its place", lambda m: setattr(m, "w", 2.0)),
    ("an item", lambda m: m.layers.__setitem__(0, y * 2)),
    ("a number among the items", lambda m: m.layers.__setitem__(1, 5.0)),
    ("a longer list", lambda m: m.layers.append(1)),
    ("a tuple for a list", lambda m: setattr(m, "layers", (x, 2.0))),
    ("a value of a dict", lambda m: m.options.update(a=7.0)),
    ("an array of a dict", lambda m: m.options.update(b=x)),
    ("another key", lambda m: m.options.update(c=7.0)),
    ("an object", lambda m: setattr(m, "part", Part(y * 4))),
    ("an object of another class", lambda m: setattr(m, "part", type("Other", (), {"b": x})())),
    ("an object's array", lambda m: setattr(m.part, "b", y * 5)),
    ("an own number in front of the class's", lambda m: setattr(m, "shift", 9.0)),
    ("a method of its own", lambda m: setattr(m, "inner", lambda v: v * 10)),
    ("a number of names", lambda m: setattr(m, "names", ("one",))),
]


@pytest.mark.parametrize("change", [c[1] for c in CHANGES], ids=[c[0] for c in CHANGES])
def test_a_change_of_the_object_is_seen(change):
    model = Model()
    close(method_served(model, x), model.plain(x))
    change(model)
    for _ in range(5):
        close(model.step(x), model.plain(x))
    close(Model().step(x), Model().plain(x))


@pytest.mark.parametrize(
    ("name", "member"),
    [
        ("shift", 2.0), ("half", property(lambda self: self.rate * 8)), ("inner", lambda self, v: v * 3),
        ("four", staticmethod(lambda: 40.0)), ("rate", property(lambda self: 7.0, lambda self, value: None)),
    ],
)  # fmt: skip
def test_a_change_of_the_class_is_seen(name, member):
    kind = type("Changing", (Model,), {"step": tn.jit(Model.plain)})
    model = kind()
    close(method_served(model, x), model.plain(x))
    setattr(kind, name, member)
    for _ in range(5):
        close(model.step(x), model.plain(x))
    delattr(kind, name)
    for _ in range(5):
        close(model.step(x), model.plain(x))


def test_objects_have_their_own():
    models = [Model() for _ in range(3)]
    for k, model in enumerate(models):
        model.w = y * k
        model.part.b = x * (k + 1)
    for _ in range(5):
        for model in models:
            close(method_served(model, x), model.plain(x))


def test_ways_to_call_a_method():
    model = Model()
    bound = model.step
    for call in (bound, lambda v: Model.step(model, v), lambda v: model.step(v=v)):
        before = native_hits(Model.step)
        for _ in range(10):
            close(call(x), model.plain(x))
        assert native_hits(Model.step) > before
    assert "step" in repr(bound) or "plain" in repr(bound)
    assert "mul" in bound.lower(x).as_text("program")
    with pytest.raises(TypeError):
        model.step()
    with pytest.raises(TypeError):
        model.step(x, x)


def test_subclasses_and_objects_that_are_pytrees():
    class Sub(Model):
        shift = 100.0

    sub, base = Sub(), Model()
    for _ in range(5):
        close(method_served(sub, x), sub.plain(x))
        close(method_served(base, x), base.plain(x))

    @dataclass
    class Line:
        slope: Any
        offset: float

        @tn.jit
        def at(self, v: Any) -> Any:
            return v * self.slope + self.offset

    line = Line(y, 1.5)
    close(method_served(line, x, name="at"), x * y + 1.5)
    line.offset = 2.5
    close(method_served(line, x, name="at"), x * y + 2.5)


def test_functions_that_read_objects():
    part, slots = Part(x.copy()), type("Slots", (), {"__slots__": ("a",)})()
    slots.a = 3.0
    f = tn.jit(lambda v: v * part.b + slots.a)
    close(served(f, y), y * x + 3.0)
    slots.a = 4.0
    close(served(f, y), y * x + 4.0)
    part.b = y
    close(served(f, y), y * y + 4.0)
    del slots.a
    with pytest.raises(AttributeError):
        f(y)
    slots.a = 5.0
    close(served(f, y), y * y + 5.0)


def test_an_object_is_not_kept_alive():
    class Holder:
        def __init__(self) -> None:
            self.part = Part(x.copy())

        @tn.jit
        def step(self, v: Any) -> Any:
            return v * self.part.b

    holder = Holder()
    close(method_served(holder, y), x * y)
    alive = weakref.ref(holder), weakref.ref(holder.part)
    del holder
    gc.collect()
    assert [a() for a in alive] == [None, None]


def odd_function(act: Any) -> tuple[Any, Any]:
    """A function that reads an attribute whose getter does something outside traces, and the object."""

    class Odd:
        def __init__(self) -> None:
            self.data = x.copy()

        def __getattribute__(self, name: str) -> Any:
            if name == "late" and current_trace() is None:
                act(f, self)
            return object.__getattribute__(self, name)

    odd = Odd()
    vars(odd)["late"] = 2.0
    f = tn.jit(lambda v: v * odd.data * odd.late)
    return f, odd


@pytest.mark.parametrize("what", ["fails", "clears", "calls", "swaps", "reshapes"])
def test_a_getter_may_do_anything(what):
    """Reading an attribute runs Python: it may fail, call the function again, clear it, change what was looked at."""
    armed: list[int] = []
    v = x.copy()

    def act(f: Any, odd: Any) -> None:
        if not armed:
            return
        armed.pop()
        match what:
            case "fails":
                raise AttributeError("late")
            case "clears":
                f.cache_clear()
            case "calls":
                close(f(y), y * x * 2)
            case "swaps":
                vars(odd)["data"] = y.copy()
            case "reshapes":
                odd.data.resize((0, 3), refcheck=False)

    f, odd = odd_function(act)
    close(served(f, v), v * x * 2)
    for _ in range(3):
        for _ in range(6):
            close(f(v), v * odd.data * 2)
        armed.append(1)
        if what == "reshapes":
            with pytest.raises((ValueError, TypeError)):
                f(v)
            odd.data = x.copy()
        elif what == "fails":
            f(v)
            odd.data = x.copy()
        else:
            f(v)
    armed.clear()
    close(served(f, v), v * odd.data * 2)


def test_an_interrupt_in_a_getter_ends_the_call():
    armed: list[int] = []

    def act(f: Any, odd: Any) -> None:
        if armed:
            armed.pop()
            raise KeyboardInterrupt

    f, _ = odd_function(act)
    close(served(f, x), x * x * 2)
    for _ in range(3):
        armed.append(1)
        before = native_hits(f)
        with pytest.raises(KeyboardInterrupt):
            f(x)
        assert not armed
        close(f(x), x * x * 2)
        assert native_hits(f) == before + 1


def test_a_method_is_deleted_while_it_runs():
    armed: list[int] = []

    class Ending:
        gone = 3.0

        def __getattribute__(self, name: str) -> Any:
            if name == "gone" and armed and current_trace() is None and "step" in vars(Ending):
                del Ending.step
                gc.collect()
            return object.__getattribute__(self, name)

        @tn.jit
        def step(self, v: Any) -> Any:
            return v * self.gone

    ending = Ending()
    close(method_served(ending, x), x * 3)
    armed.append(1)
    close(ending.step(x), x * 3)
    assert "step" not in vars(Ending)


def test_references_of_attributes():
    model = Model()
    objects: list[Any] = [model, model.w, model.layers, model.layers[0], model.options, model.options["b"], model.part]
    objects += [model.part.b, model.names, vars(Model)["inner"], vars(Model)["half"], Model, Part, model.rate, x]
    for _ in range(20):
        model.step(x)
    gc.collect()
    before = [sys.getrefcount(o) for o in objects]
    hits = native_hits(Model.step)
    for k in range(2000):
        model.step(x)
        if k % 50 == 0:
            model.rate = 0.5 + k  # falls out, and back
            with pytest.raises(TypeError):
                model.step(x, x)
            model.rate = objects[-2]
    gc.collect()
    after = [sys.getrefcount(o) for o in objects]
    assert native_hits(Model.step) >= hits + 1900
    assert all(abs(m - n) < 30 for m, n in zip(before, after, strict=True)), (before, after)


def test_threads_that_change_what_is_read():
    """Each sees a value that was there."""
    model = type("Shared", (Model,), {"step": tn.jit(lambda self, v: v * self.w)})()
    arrays = [np.full((2, 3), float(k)) for k in range(1, 4)]
    model.w = arrays[0]
    for _ in range(RUNS):  # an array that is replaced while it is traced is an error
        model.step(np.ones((2, 3)))
    stop = threading.Event()
    failures: list[Any] = []

    def change() -> None:
        k = 0
        while not stop.is_set():
            k += 1
            model.w = arrays[k % 3].copy()

    def call() -> None:
        one = np.ones((2, 3))
        while not stop.is_set():
            found = model.step(one)
            if not (found == found[0, 0]).all() or found[0, 0] not in (1.0, 2.0, 3.0):
                failures.append(found)

    threads = [threading.Thread(target=f) for f in (change, call, call)]
    for t in threads:
        t.start()
    stop.wait(1.0)
    stop.set()
    for t in threads:
        t.join()
    assert not failures


def test_equal_objects_are_the_same_result():
    a = tn.jit(lambda v, m: v * m)
    same(served(a, x, 2.0), x * 2.0)
