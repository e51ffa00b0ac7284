"""Modules, helper functions, containers and other packages' objects that change between calls."""

from __future__ import annotations

import array
import builtins
import functools
import pathlib
import sys
import types
from collections import ChainMap, UserDict, deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer import captures
from tests.api.outside import Case, X, agree

CASES: dict[str, Callable[[], Case]] = {}
RATE, OTHER, VALUES = 2.0, types.SimpleNamespace(k=2.0), np.ones(3)
LEVEL: ContextVar[float] = ContextVar("level", default=2.0)


def case(make: Callable[[], Case]) -> Callable[[], Case]:
    CASES[make.__name__] = make
    return make


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    monkeypatch.setitem(globals(), "RATE", 2.0)
    monkeypatch.setitem(globals(), "VALUES", np.ones(3))
    monkeypatch.delitem(globals(), "APPEARS", raising=False)
    monkeypatch.setitem(globals(), "OTHER", types.SimpleNamespace(k=2.0))


@pytest.mark.parametrize("name", CASES)
def test_changes_are_seen(name):
    agree(*CASES[name]())


def rebind(name: str, value: Any) -> Callable[[], None]:
    return lambda: globals().update({name: value})


def rate(x):
    return x * RATE + OTHER.k


def with_default(x, k=2.0, *, m=3.0):
    return x * k + m


# -- helpers ---------------------------------------------------------------------------------------------------------


@case
def globals_of_helpers():
    return lambda x: rate(x), [rebind("RATE", 3.0), lambda: setattr(OTHER, "k", 4.0), rebind("RATE", 2)]


@case
def object_in_a_helpers_closure():
    o = types.SimpleNamespace(k=2.0)

    def inner(x):
        return x * o.k

    def helper(x):
        return inner(x) + 1

    return lambda x: helper(x), [lambda: setattr(o, "k", 3.0)]


@case
def code_of_a_helper():
    """An editor that reloads a module puts new code into the functions that are there."""

    def helper(x, k=2.0):
        return x * k

    changes = [
        lambda: setattr(helper, "__defaults__", (3.0,)),
        lambda: setattr(helper, "__code__", (lambda x, k: x - k).__code__),
    ]
    return lambda x: helper(x), changes


@case
def attributes_of_functions():
    def helper(x):
        return x * helper.k  # type: ignore[attr-defined]

    helper.k = 2.0  # type: ignore[attr-defined]
    return lambda x: helper(x), [lambda: setattr(helper, "k", 3.0)]


@case
def decorated_helper():
    def scaled(function):
        @functools.wraps(function)
        def wrapper(x):
            return function(x) * wrapper.k  # type: ignore[attr-defined]

        wrapper.k = 2.0  # type: ignore[attr-defined]
        return wrapper

    helper = scaled(lambda x: x + 1)
    return lambda x: helper(x), [lambda: setattr(helper, "k", 3.0)]


@case
def mutable_default():
    def f(x, options={"k": 2.0}):  # noqa: B006
        return x * options["k"]

    (options,) = f.__defaults__ or ()
    return f, [lambda: options.update(k=3.0)]


@case
def partial_with_a_dict():
    options = {"k": 2.0}
    scaled = functools.partial(lambda x, options: x * options["k"], options=options)
    return lambda x: scaled(x), [lambda: options.update(k=3.0)]


@case
def name_that_appears():
    def f(x):
        try:
            return x * APPEARS  # type: ignore[name-defined]  # noqa: F821
        except NameError:
            return x

    return f, [rebind("APPEARS", 3.0), lambda: globals().pop("APPEARS")]


@case
def globals_by_their_text():
    def f(x):
        return x * globals()["RATE"] * globals().get("APPEARS", 1.0) + globals()["VALUES"] * 2

    return f, [rebind("RATE", 3.0), rebind("APPEARS", 5.0), lambda: VALUES.__iadd__(1), rebind("VALUES", X * 3)]


@case
def builtin_that_is_shadowed():
    return lambda x: x * abs(-2.0), [rebind("abs", lambda v: 5.0), lambda: globals().pop("abs")]


@case
def variable_that_is_empty():
    late = 0.0

    def f(x):
        try:
            return x * late  # noqa: F821
        except NameError:
            return x

    def fill():
        nonlocal late
        late = 3.0

    del late
    return f, [fill]


# -- modules ---------------------------------------------------------------------------------------------------------


def module(name: str, text: str = "", file: str | None = None) -> Any:
    made = types.ModuleType(name)
    if file is not None:
        made.__file__ = file
    exec(text, vars(made))
    return made


@case
def attributes_of_a_module():
    m = module("settings", "k, table, o = 2.0, {'k': 2.0}, None")
    changes = [
        lambda: setattr(m, "k", 3.0), lambda: m.table.update(k=4.0), lambda: setattr(m, "o", OTHER),
        lambda: setattr(m, "z", 5.0),
    ]  # fmt: skip
    return lambda x: x * m.k * m.table["k"] * getattr(m, "z", 1.0) + (m.o.k if m.o else 0), changes


@case
def functions_of_a_module():
    m = module("helpers", "k = 2.0\ndef scale(x): return x * k")
    return lambda x: m.scale(x), [lambda: setattr(m, "k", 3.0), lambda: setattr(m, "scale", lambda x: x * 5)]


@case
def attribute_that_a_module_makes_up():
    m = module("lazy", "held = {'k': 2.0}\ndef __getattr__(name): return held[name]")
    return lambda x: x * m.k, [lambda: m.held.update(k=3.0), lambda: setattr(m, "k", 5.0)]


@pytest.fixture
def imported() -> Iterator[Any]:
    made = sys.modules["settings_to_import"] = module("settings_to_import", "k, w = 2.0, __import__('numpy').ones(3)")
    yield made
    del sys.modules["settings_to_import"]


def test_modules_that_are_imported_inside(imported):
    def whole(x):
        import settings_to_import  # type: ignore[import-not-found]

        return x * settings_to_import.k + settings_to_import.w * 2

    def names(x):
        from settings_to_import import k, w

        return x * k + w * 2

    for function in (whole, names):
        agree(
            function, [lambda: setattr(imported, "k", imported.k + 1), lambda: setattr(imported, "w", X * imported.k)]
        )


LIBRARY = """
import numpy as np
rate, weights = 2.0, np.ones(3)
class Model:
    bias = 3.0
    def __init__(self): self.w, self.k, self.options = np.ones(3), 2.0, {"a": 1.0}
    def __call__(self, x): return x * (self.w * 2) * self.k + rate * helper(x) * self.bias * self.options["a"]
    def __len__(self): return int(self.k)
    def weighted(self, x): return x * (weights * 2)
def helper(x): return x * (weights * 2) + rate
"""


def test_a_library_beside_the_script_is_the_users_own():
    library = module("library", LIBRARY, "/home/user/project/library.py")
    model = library.Model()
    changes = [
        lambda: setattr(model, "w", X * 3), lambda: setattr(model, "k", 5.0), lambda: setattr(library, "rate", 7.0),
        lambda: setattr(library, "weights", X * 5), lambda: setattr(library.Model, "bias", 1.0),
    ]  # fmt: skip
    agree(lambda x: model(x) + model.weighted(x) * len(model), changes)
    more = [lambda: model.options.update(a=9.0), lambda: setattr(library, "helper", lambda x: x)]
    agree(lambda x: model(x), [*more, lambda: setattr(library.Model, "__call__", lambda self, x: x * 100)])


INSTALLED = """
import numpy as np
limit = 3.0
class Part:
    def __init__(self): self.b = np.ones(3)
class Estimator:
    kind = 2.0
    def __init__(self): self.coef_, self.scale, self.part, self.seen = np.ones(3), 2.0, Part(), 0
    @property
    def doubled(self): return self.scale * 2
    def predict(self, x): return x * self.coef_ + self.part.b
def helper(x): return x * 2
"""


def installed() -> Any:
    return module("installed", INSTALLED, "/usr/lib/python3/site-packages/installed.py")


@case
def what_own_code_reads_of_an_installed_object():
    library = installed()
    e = library.Estimator()
    changes = [
        lambda: setattr(e, "scale", 3.0), lambda: setattr(e, "coef_", X * 4), lambda: e.coef_.__iadd__(1),
        lambda: setattr(library.Estimator, "kind", 5.0), lambda: setattr(e, "z", 6.0),
    ]  # fmt: skip
    return lambda x: x * e.scale * e.doubled * e.kind * getattr(e, "z", 1.0) + e.coef_ * 2, changes


@case
def arrays_that_an_installed_object_reads():
    library = installed()
    e = library.Estimator()
    changes = [
        lambda: setattr(e, "coef_", X * 4), lambda: e.coef_.__iadd__(1), lambda: setattr(e.part, "b", X),
        lambda: setattr(e, "part", library.Part()),
    ]  # fmt: skip
    return lambda x: e.predict(x), changes


@case
def installed_object_that_is_exchanged():
    library = installed()
    held = types.SimpleNamespace(e=library.Estimator())

    def change():
        held.e = library.Estimator()
        held.e.coef_ = X * 8

    return lambda x: held.e.predict(x), [change]


@case
def installed_module():
    library = installed()
    changes = [lambda: setattr(library, "limit", 4.0), lambda: setattr(library, "helper", lambda x: x * 5)]
    return lambda x: library.helper(x) * library.limit, changes


def test_what_an_installed_object_counts_for_itself_traces_nothing_again():
    library = installed()
    e = library.Estimator()
    f = tn.jit(lambda x: e.predict(x))
    for k in range(4):
        f(X)
        e.seen = k
        e.part.cache = k
    assert f.cache_info().compiles == 1


# -- containers and values -------------------------------------------------------------------------------------------


@case
def keys_of_a_dict():
    d: Any = {"a": 1.0, "b": 2.0}

    def f(x):
        for key in d:
            x = x * 2 + d[key]
        return x * d.get("z", 3.0) + ("y" in d)

    def turn():
        d["a"] = d.pop("a")

    return f, [turn, lambda: d.update(z=d.pop("a")), lambda: d.update(y=d.pop("b"))]


@case
def key_that_is_missing():
    d: dict[str, float] = {}

    def f(x):
        try:
            return x * d["k"]
        except KeyError:
            return x

    return f, [lambda: d.update(k=3.0), d.clear]


@case
def long_containers():
    numbers, by_name = [float(k) for k in range(5000)], {str(k): float(k) for k in range(5000)}
    mixed: list[Any] = [*range(100), np.ones(3), types.SimpleNamespace(k=2.0)]
    changes = [
        lambda: numbers.__setitem__(4000, 1.0), lambda: numbers.__setitem__(4000, 1),
        lambda: by_name.update({"7": 8.0}), lambda: mixed.__setitem__(100, X * 2),
        lambda: setattr(mixed[101], "k", 3.0), lambda: mixed.__setitem__(5, -0.0),
    ]  # fmt: skip
    return lambda x: x * numbers[4000] + by_name["7"] + mixed[100] * mixed[101].k + mixed[5], changes


@case
def deep_containers():
    held: Any = [[[[[[[[2.0]]]]]]]]
    return lambda x: x * held[0][0][0][0][0][0][0][0], [lambda: held[0][0][0][0][0][0][0].__setitem__(0, 3.0)]


@case
def other_containers():
    recent, inner = deque([1.0, 2.0]), {"k": 2.0}
    chain, user, numbers = ChainMap({}, inner), UserDict(k=2.0), array.array("d", [2.0])
    view = types.MappingProxyType(inner)
    changes = [
        lambda: recent.append(recent.popleft()), lambda: inner.update(k=3.0), lambda: chain.update(k=4.0),
        lambda: user.update(k=5.0), lambda: numbers.__setitem__(0, 6.0),
    ]  # fmt: skip
    return lambda x: x * recent[0] * chain["k"] * user["k"] + numbers[0] * view["k"], changes


@case
def values_of_the_standard_library():
    o = types.SimpleNamespace(p=pathlib.PurePath("a"))
    changes = [lambda: setattr(o, "p", pathlib.PurePath("b")), lambda: LEVEL.set(3.0)]
    return lambda x: x * 2 if o.p.name == "a" else x * LEVEL.get(), changes


def test_too_much_to_compare_is_refused():
    held = [[types.SimpleNamespace(k=k) for k in range(100)] for _ in range(100)]
    with pytest.raises(tn.TraceError, match=r"held.* are more than 16384 values, .*; pass as an argument what"):
        tn.jit(lambda x: x * held[0][0].k)(X)
    numbers = list(range(300_000))
    with pytest.raises(tn.TraceError, match=r"numbers and .* are more than 262144 values"):
        tn.jit(lambda x: x * numbers[7])(X)


def test_builtins_are_as_before():
    assert "abs" not in globals() and builtins.abs(-1) == 1


class Keyed:
    def __init__(self, k):
        self.k = k


@case
def arrays_in_other_containers():
    recent = deque([np.ones(3), np.ones(3)])
    inner = {"w": np.ones(3)}
    view, deep = types.MappingProxyType(inner), [[[[[[np.ones(3)]]]]]]
    changes = [
        lambda: recent[0].__iadd__(1), lambda: recent.__setitem__(1, X), lambda: inner.update(w=X * 2),
        lambda: deep[0][0][0][0][0][0].__iadd__(1),
    ]  # fmt: skip
    return lambda x: x * (recent[0] * 2) + (recent[1] * 3) + view["w"] * 2 + (deep[0][0][0][0][0][0] * 5), changes


@case
def objects_in_sets_and_keys():
    one = Keyed(2.0)
    group, table = {one}, {one: 1.0, Keyed: 2.0, 1.5: 3.0}
    changes = [lambda: setattr(one, "k", 3.0), lambda: table.update({one: 4.0}), lambda: table.update({1.5: 7.0})]
    return lambda x: x * sum(o.k for o in group) + table[one] * table[1.5] * table[Keyed], changes


@case
def arrays_that_no_program_can_hold():
    words, objects, masked = np.array(["a", "b"]), np.array([1.0, None], object), np.ma.masked_array([1.0, 2.0], [0, 1])
    changes = [
        lambda: words.__setitem__(1, "a"), lambda: objects.__setitem__(0, 2.0), lambda: masked.__setitem__(0, 5.0),
    ]  # fmt: skip
    return lambda x: x * float((words == "a").sum()) * objects[0] + float(masked.sum()), changes


VECTOR: ContextVar[Any] = ContextVar("vector")


@case
def array_of_a_context():
    VECTOR.set(np.ones(3))
    return lambda x: x * (VECTOR.get() * 2), [lambda: VECTOR.set(X.copy()), lambda: VECTOR.get().__iadd__(1)]


def test_large_arrays_that_would_be_compared_are_refused(monkeypatch):
    words = np.array(["a"] * 100)
    monkeypatch.setattr(captures, "MAX_COMPARED_BYTES", 16)
    with pytest.raises(
        tn.TraceError, match=r"words is a ndarray of 400 bytes, which would be compared.*; pass it as an"
    ):
        tn.jit(lambda x: x * float((words == "a").sum()))(X)
