"""What functions read from outside: numbers are guarded, arrays are found where they stand."""

from __future__ import annotations

import functools
import logging
from typing import Any

import numpy as np
import pytest

from tenferro.tracer.captures import captures, check_generators, snapshot
from tenferro.tracer.errors import TraceError

RATE = 0.5
WEIGHTS = {"w": np.ones(3)}


def uses_globals(x):
    return x * RATE * WEIGHTS["w"]


def taken(function, arrays=(), receiver=None):
    return captures(function, receiver, snapshot(function, receiver), arrays)


def test_global_scalar_is_a_guard(monkeypatch):
    c = taken(uses_globals)
    assert c.read(None) == []
    assert "RATE == 0.5" in [g.text for g in c.guards]
    monkeypatch.setitem(uses_globals.__globals__, "RATE", 0.25)
    assert c.read(None) is None
    assert c.failing(None).text == "RATE == 0.5"


def test_array_is_read_where_it_stands(monkeypatch):
    c = taken(uses_globals, [WEIGHTS["w"]])
    assert c.sources[0].text == "WEIGHTS['w']"
    new = np.zeros(3)
    monkeypatch.setitem(WEIGHTS, "w", new)
    assert c.read(None)[0] is new


def test_closure_cell():
    scale, array = 2.0, np.ones(2)

    def f(x):
        return x * scale + array

    c = taken(f, [array])
    assert c.read(None)[0] is array
    scale = -0.0
    assert c.read(None) is None


def test_zero_and_negative_zero_differ():
    scale = 0.0

    def f(x):
        return x * scale

    c = taken(f)
    scale = -0.0
    assert c.read(None) is None


def test_own_counters_are_no_guards():
    calls = 0

    def f(x):
        nonlocal calls
        calls += 1
        return x

    c = taken(f)
    f(1)
    assert c.read(None) == []


def test_lists_that_the_trace_appends_to_are_no_guards():
    log = []

    def f(x):
        log.append(x)
        return x

    before = snapshot(f)
    f(1)
    c = captures(f, None, before, [])
    f(2)
    assert c.read(None) == []


def test_list_that_grows_later_is_guarded():
    layers = [np.ones(2), np.ones(2)]

    def f(x):
        return sum(layers, x)

    c = taken(f, layers)
    assert len(c.read(None)) == 2
    layers.append(np.ones(2))
    assert c.read(None) is None


class Model:
    def __init__(self, rate):
        self.rate = rate
        self.w = np.full(2, rate)

    def step(self, x):
        return x * self.rate + self.w


def test_self():
    a, b = Model(1.0), Model(1.0)
    c = taken(Model.step, [a.w], a)
    assert c.read(a)[0] is a.w and c.read(b)[0] is b.w
    b.rate = 2.0
    assert c.read(b) is None and c.read(a) is not None


class Trainer:
    def __init__(self):
        self.rate, self.steps, self.losses, self.w = 0.5, 0, [], np.ones(2)

    @property
    def doubled(self):
        return 2 * self.rate

    def scale(self, x):
        return x * self.doubled

    def step(self, x):
        return self.scale(x) + self.w

    def escapes(self, x):
        return x * vars(self)["rate"]


def test_attributes_that_the_method_does_not_read_are_no_guards():
    trainer = Trainer()
    c = taken(Trainer.step, [trainer.w], trainer)
    trainer.steps += 1
    trainer.losses.append(0.25)
    assert c.read(trainer)[0] is trainer.w
    trainer.rate = 0.25
    assert c.read(trainer) is None and c.failing(trainer).text == "self.rate == 0.5"


def test_self_that_goes_elsewhere_guards_every_attribute():
    trainer = Trainer()
    c = taken(Trainer.escapes, [], trainer)
    trainer.rate = 0.25
    assert c.read(trainer) is None


def test_objects_of_other_packages_are_left_alone():
    log = logging.getLogger("tenferro-tests")

    def f(x):
        log.debug("tracing")
        return x

    c = taken(f)
    log.setLevel(logging.ERROR)
    assert c.read(None) == []


def test_callable_objects_and_partials():
    class Scaled:
        def __init__(self):
            self.k = 2.0

        def __call__(self, x):
            return x * self.k

    scaled = Scaled()
    c = taken(scaled)
    assert c.read(None) == []
    scaled.k = 3.0
    assert c.read(None) is None
    array = np.ones(2)
    assert taken(functools.partial(lambda a, b: a + b, b=array), [array]).read(None)[0] is array


def test_generator_that_moved():
    generator = np.random.default_rng(0)

    def f(x):
        return x + generator.random()

    before = snapshot(f)
    f(1)
    with pytest.raises(TraceError, match="generator generator drew random numbers"):
        check_generators(before, "f")


def test_view_of_a_captured_array_watches_its_base():
    array = np.arange(4.0)

    def f(x):
        return x + array

    view = array[1:]
    c = taken(f, [view])
    assert c.read(None)[0] is view
    array = np.zeros(4)
    assert c.read(None) is None


def test_names_in_code_are_those_that_dis_finds() -> None:
    """The quick reader of byte code against the standard library's, over functions with many names."""
    import dis
    import inspect
    import textwrap

    from tenferro.tracer import captures as module

    many = "def f():\n" + "".join(f"    global g{k}\n    g{k} = h{k}\n" for k in range(300)) + "    return len(print)\n"
    scope: dict[str, Any] = {}
    exec(many, scope)
    codes = [scope["f"].__code__, compile(textwrap.dedent(inspect.getsource(module)), "captures", "exec")]
    for code in [c for one in codes for c in module.codes_of(one)]:
        read: dict[str, None] = {}
        stored = set()
        for part in module.codes_of(code):
            for i in dis.get_instructions(part):
                if i.opname in ("LOAD_GLOBAL", "LOAD_NAME"):
                    read[i.argval] = None
                elif i.opname in ("STORE_GLOBAL", "STORE_NAME"):
                    stored.add(i.argval)
                elif i.opname == "STORE_DEREF" and i.argval in part.co_freevars:
                    stored.add(i.argval)
        assert module.names_of(code) == (tuple(read), frozenset(stored))
