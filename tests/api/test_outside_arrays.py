"""NumPy work on arrays from outside: after a change of the array the jitted function gives what NumPy gives."""

from __future__ import annotations

import functools
import math
import threading
import types
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer import captures, contents
from tenferro.tracer.errors import MutationError, TraceError

X = np.arange(1.0, 4.0)
W = np.arange(1.0, 4.0)
PLACES = np.array([2, 0, 1])
Pair = namedtuple("Pair", "w k")
TABLE: dict[str, Any] = {"a": np.ones(3), "rows": [np.ones(3), np.arange(3.0)]}


@pytest.fixture(autouse=True)
def fresh(monkeypatch):
    for name, value in (("W", np.arange(1.0, 4.0)), ("PLACES", np.array([2, 0, 1]))):
        monkeypatch.setitem(globals(), name, value)
    monkeypatch.setitem(TABLE, "a", np.ones(3))
    monkeypatch.setitem(TABLE, "rows", [np.ones(3), np.arange(3.0)])


def agree(function, changes, compiles=None):
    """Jitted and plain calls give the same numbers, before and after each change."""
    jitted = tn.jit(function)
    for step, change in enumerate((lambda: None, *changes)):
        change()
        np.testing.assert_allclose(jitted(X), function(X), rtol=1e-13, err_msg=f"change {step}")
    if compiles is not None:
        assert jitted.cache_info().compiles == compiles, jitted.explain()


def add_ten():
    W.__iadd__(10)


def rebind():
    globals()["W"] = W[::-1] * 3


# -- traced: the program reads the array, one trace serves -------------------------------------------------------------


def unpacked(x):
    a, b, c = W
    return x * a + b * c


def element_written(x):
    a = np.zeros(3)
    a[0] = W[0]
    return x * a


def inner_function(x):
    def inner(y):
        return y * (W * 2)

    return inner(x) + sum([x * w for w in W])


def generator(x):
    def doubled():
        for w in W:
            yield w * 2

    return x * list(doubled())[1]


TRACED = {
    "operator": lambda x: x * (W * 2),
    "ufunc": lambda x: x * np.exp(-W),
    "sum": lambda x: x * np.sum(W),
    "element": lambda x: x * W[1],
    "slice": lambda x: x[1:] * (W[1:] - W[:-1]),
    "index array": lambda x: x * W[PLACES],
    "mask": lambda x: x * W[W > 2].sum(),
    "transpose": lambda x: x * W.reshape(1, 3).T.sum(1),
    "matrix": lambda x: np.outer(W, W) @ x,
    "rows": lambda x: sum((x @ row for row in np.outer(W, W)), 0.0),
    "asarray": lambda x: x * np.asarray(W),
    "array": lambda x: x * np.array([W[0], W[2], W[1]]),
    "stack": lambda x: x * np.stack([W, W]).sum(0),
    "where": lambda x: np.where(W > 5, x, W),
    "builtin sum": lambda x: x * sum(W),
    "enumerate": lambda x: sum((x * i * w for i, w in enumerate(W)), x),
    "zip": lambda x: sum((a * b for a, b in zip(W, x, strict=True)), 0.0),
    "full": lambda x: x * np.full(3, W[0]),
    "shape": lambda x: x * W.shape[0] * W.size * len(W) * W.ndim,
    "isinstance": lambda x: x * W if isinstance(W, np.ndarray) else x,
    "in a dict": lambda x: x * (TABLE["a"] + W) + TABLE["rows"][0] * 2,
    "unpacked": unpacked,
    "written": element_written,
    "inner": inner_function,
    "generator": generator,
}


@pytest.mark.parametrize("name", TRACED)
def test_traced(name):
    agree(TRACED[name], [add_ten, rebind, lambda: TABLE["a"].__imul__(3)], compiles=1)


# -- concrete: Python needs a number, the contents are guarded ---------------------------------------------------------


def branch(x):
    if W[0] > 5:
        return x * 2
    return -x


CONCRETE = {
    "if": branch,
    "float": lambda x: x * float(W[0]),
    "int": lambda x: x * int(W[0]),
    "complex": lambda x: x * complex(W[0]).real,
    "math": lambda x: x * math.sqrt(W[0]),
    "round": lambda x: x * round(W[0]),
    "item": lambda x: x * W[1].item(),
    "tolist": lambda x: x * W.tolist()[1],
    "tobytes": lambda x: x * W.tobytes()[6],
    "in": lambda x: x * 2 if 11.0 in W else x,
    "max": lambda x: x * max(W),
    "sorted": lambda x: x * sorted(W, reverse=True)[0],
    "any": lambda x: x * 2 if any(bool(w > 12) for w in W) else x,
    "array_equal": lambda x: x * 2 if np.array_equal(W, [11, 12, 13]) else x,
    "format": lambda x: x * len(f"{W[0]:.1f}"),
    "str": lambda x: x * len(str(W)),
    "hash": lambda x: x * {11.0: 3}.get(W[0], 4),
    "list of numbers": lambda x: x * np.array([float(w) for w in W]),
    "mask size": lambda x: x * len(W[W > 2]),
    "for each under a mask": lambda x: sum((x * w for w in W[W > 2]), x),
    "derived": lambda x: x * float(np.exp(-W).sum()),
    "range": lambda x: sum(x * k for k in range(int(W.sum()))),
    "arange": lambda x: x * np.arange(W[0], W[0] + 3),
    "not traced at all": lambda x: x * np.linalg.eigvalsh(np.outer(W, W))[-1],
    "histogram": lambda x: x * np.histogram(W, bins=3)[1][0],
    "unique": lambda x: x * np.unique(W)[0],
    "reduceat": lambda x: x * np.add.reduceat(W, [0, 1])[1],
    "vectorize": lambda x: x * np.vectorize(lambda v: v + 1)(W),
    "searchsorted": lambda x: x * W.searchsorted(2.5),
    "flat": lambda x: x * sum(W.flat),
    "nditer": lambda x: x * float(np.max([float(v) for v in np.nditer(W)])),
}


@pytest.mark.parametrize("name", CONCRETE)
def test_concrete(name):
    agree(CONCRETE[name], [add_ten, rebind], compiles=3)


INTEGERS = {
    "list index": lambda x: x * [1, 2, 3][PLACES[0]],
    "range": lambda x: sum(x for _ in range(PLACES[0] + 1)),
    "argmax": lambda x: [x, -x, 2 * x][PLACES.argmax()],
    "zeros": lambda x: x[0] + np.zeros(PLACES[0]),
    "slice bound": lambda x: x[: PLACES[0]],
    "tile": lambda x: np.tile(x, PLACES[0]),
    "roll": lambda x: np.roll(x, PLACES[0]),
    "axis": lambda x: x.reshape(3, 1).sum(axis=PLACES[1]),
}


@pytest.mark.parametrize("name", INTEGERS)
def test_integers(name):
    def other():
        PLACES[:] = 1, 1, 2

    agree(INTEGERS[name], [other], compiles=2)


def test_contents_seen_before_are_served_again():
    f = tn.jit(branch)
    for first in (1.0, 11.0, 1.0, 11.0):
        W[0] = first
        assert f(X)[0] == branch(X)[0]
    assert f.cache_info().compiles == 2


def test_bits_are_compared():
    f = tn.jit(lambda x: x * math.copysign(1.0, W[0]))
    W[0] = 0.0
    assert f(X)[0] == 1.0
    W[0] = -0.0
    assert f(X)[0] == -1.0
    W[0] = np.nan
    f(X), f(X)
    assert f.cache_info().compiles == 3


def test_explain_names_the_array_and_the_line():
    f = tn.jit(branch)
    f(X)
    assert "holds while the contents of W, asked for by bool, are the same (at" in str(f.explain())
    add_ten()
    f(X)
    record = f.explain().traces[1]
    assert record.reason == "the contents of W, asked for by bool, have changed"
    assert record.line.line == branch.__code__.co_firstlineno + 1


def test_large_contents_are_refused(monkeypatch):
    monkeypatch.setattr(contents, "MAX_COMPARED_BYTES", 16)
    with pytest.raises(TraceError, match=r"bool: of captured array W, whose 24 bytes .* as an argument \(at "):
        tn.jit(branch)(X)
    np.testing.assert_array_equal(tn.jit(lambda x: x * (W * 2))(X), X * (W * 2))


def test_contents_of_another_dtype_or_shape():
    f = tn.jit(lambda x: x * float(W[0]))
    f(X)
    globals()["W"] = np.arange(5.0, 9.0)
    assert f(X)[0] == 5.0
    globals()["W"] = np.array([7, 8, 9])
    assert f(X)[0] == 7.0


def test_argument_in_the_formula_is_still_refused():
    with pytest.raises(TraceError, match="float: of a traced value"):
        tn.jit(lambda x: float(W[0] + x[0]) * x)(X)
    with pytest.raises(TraceError, match="a size known only when the program runs"):
        tn.jit(lambda x: len(x[x > W]) * x)(X)


def test_strings_are_guarded():
    names = np.array(["a", "b"])

    def f(x):
        return x * 2 if "a" in names else x

    agree(f, [lambda: names.__setitem__(0, "q")], compiles=2)


# -- where arrays stand ------------------------------------------------------------------------------------------------


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

    f(X), f(X)
    assert calls == 1


COUNT = 0


def counting(x):
    global COUNT
    COUNT += 1
    counted(x)
    return x * (W * 2)


def counted(x):
    global COUNT
    COUNT += 10


def test_global_that_the_function_assigns_reaches_the_module(monkeypatch):
    monkeypatch.setitem(globals(), "COUNT", 0)
    tn.jit(counting)(X)
    assert COUNT == 11


def test_containers_with_arrays_keep_what_the_trace_adds():
    log: list[Any] = [np.ones(3)]
    seen: dict[str, Any] = {"w": np.ones(3)}

    def f(x):
        log.append("traced")
        seen["traced"] = True
        return x * (log[0] * 2) + (seen["w"] + 1)

    tn.jit(f)(X)
    assert [type(v) for v in log] == [np.ndarray, str]
    assert list(seen) == ["w", "traced"] and type(seen["w"]) is np.ndarray


def test_tenferro_arrays():
    table = tn.asarray(np.arange(1.0, 4.0))

    def f(x):
        return x * (table * 2) * float(table[0])

    agree(f, [lambda: table.__setitem__(0, 5.0)], compiles=2)


# -- attributes --------------------------------------------------------------------------------------------------------


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
        compiles=3,
    )
    agree(
        adds_class,
        [lambda: Constants.table.__iadd__(1), lambda: setattr(Constants, "table", np.arange(3.0))],
        compiles=1,
    )


def test_large_array_in_a_class_is_refused(monkeypatch):
    monkeypatch.setattr(captures, "MAX_COMPARED_BYTES", 16)
    with pytest.raises(TraceError, match=r"Constants\.table: an array of 24 bytes in a class.* pass it as an argument"):
        tn.jit(reads_class)(X)
    np.testing.assert_array_equal(tn.jit(adds_class)(X), X + Constants.table)


def test_arrays_and_numbers_in_a_module():
    settings = types.ModuleType("settings_of_the_user")
    vars(settings).update(w=np.ones(3), rate=2.0, rows=[np.ones(3)])

    def f(x):
        return x * (settings.w * 2) * settings.rate + settings.rows[0] * 3

    changes = [lambda: settings.w.__iadd__(1), lambda: vars(settings).update(w=np.arange(3.0), rows=[np.zeros(3)])]
    agree(f, changes, compiles=1)
    agree(f, [lambda: vars(settings).update(rate=3.0)], compiles=2)
    assert type(settings) is types.ModuleType


# -- writes ------------------------------------------------------------------------------------------------------------


def write_element(x):
    W[0] = 5
    return x


def write_in_place(x):
    a = W
    a += 1
    return x


def write_view(x):
    W[1:] *= 2
    return x


def write_out(x):
    np.add(x, x, out=W)
    return x


def write_fill(x):
    W.fill(2)
    return x


@pytest.mark.parametrize("function", [write_element, write_in_place, write_view, write_out, write_fill])
def test_writes_raise_and_name_the_array(function):
    before = W.copy()
    with pytest.raises(MutationError, match=r"captured array W is not the function's own.*\(at .*test_outside_arrays"):
        tn.jit(function)(X)
    np.testing.assert_array_equal(W, before)


def test_write_into_an_attribute_raises_and_names_it():
    class Counter:
        def __init__(self):
            self.w = np.zeros(3)

        def step(self, x):
            self.w += x
            return x

    counter = Counter()
    with pytest.raises(MutationError, match=r"captured array self\.w"):
        tn.jit(Counter.step)(counter, X)
    assert counter.w.tolist() == [0, 0, 0]


def test_element_of_an_outside_array_cannot_take_a_captured_number():
    class Buffers(dict[str, Any]):
        def __missing__(self, key):
            return np.frombuffer(bytearray(24))

    buffers = Buffers()

    def f(x):
        buffers["new"][0] = W[0]
        return x

    with pytest.raises(MutationError, match="made outside the trace"):
        tn.jit(f)(X)


# -- threads -----------------------------------------------------------------------------------------------------------


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


# -- constants of rank 0, random generators, static arguments ----------------------------------------------------------


def test_strong_constants_of_rank_0_are_numpy_scalars():
    @tn.jit
    def f(x):
        return np.asarray(np.float32(2)), np.array(3, np.int8), np.float16(1), 2.0, np.ones((), np.complex64)

    out = f(X)
    assert [type(v) for v in out] == [np.float32, np.int8, np.float16, float, np.complex64]
    assert [complex(v) for v in out] == [2, 3, 1, 2, 1]
    assert [type(v) for v in f(X)] == [type(v) for v in out]


@pytest.mark.parametrize("make", [lambda: np.random.RandomState(0), lambda: np.random.Generator(np.random.PCG64(0))])
def test_generators_made_inside_raise(make):
    with pytest.raises(TraceError, match=r"numpy\.random\.(RandomState|Generator): inside a traced function"):
        tn.jit(lambda x: x + make().uniform())(X)
    assert 0 <= make().uniform() < 1


def test_random_classes_stay_classes_inside():
    state = np.random.RandomState(0)
    f = tn.jit(lambda x: x * 2 if isinstance(state, np.random.RandomState) else x)
    assert f(X)[0] == 2.0


def test_outside_random_state_that_draws_raises():
    state = np.random.RandomState(0)
    with pytest.raises(TraceError, match="generator state drew random numbers"):
        tn.jit(lambda x: x + state.uniform(size=3))(X)


@pytest.mark.parametrize("value", [[1, 2], np.ones(2), {1: 2}, (1, [2])])
def test_unhashable_static_arguments_raise(value):
    f = tn.jit(lambda x, k: x, static_argnums=1)
    with pytest.raises(TraceError, match="static argument k is .* which cannot be hashed; .* a tuple is needed"):
        f(X, value)
    assert f(X, (1, 2)) is X and f.cache_info().compiles == 1
