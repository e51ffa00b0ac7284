"""What functions read from outside: numbers are guarded, arrays are found where they stand."""

from __future__ import annotations

import functools
import logging
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tenferro.tracer.attribute_hooks import Hooks, hooked, unhooked
from tenferro.tracer.attribute_reads import AttributeReads
from tenferro.tracer.captures import Captured
from tenferro.tracer.errors import TraceError

RATE = 0.5
WEIGHTS = {"w": np.ones(3)}
LOG = logging.getLogger("tenferro-tests")


def following(function: Callable[..., Any], receiver: Any = None) -> Captured:
    """What one call of the function reads, without a trace."""
    hooks = Hooks()
    captured = Captured(function, "f", hooks)
    reads = AttributeReads(captured, lambda value: value, lambda value: False)
    with hooked(hooks, reads.read, lambda value: value):
        with unhooked():
            captured.start(function, receiver)
        function(*([] if receiver is None else [receiver]), 1.0)
    return captured


def taken(function: Callable[..., Any], arrays: Any = (), receiver: Any = None) -> Any:
    return following(function, receiver).captures(receiver, arrays, {})


def uses_globals(x):
    return x * RATE * WEIGHTS["w"]


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


def test_what_the_function_itself_counts_is_no_guard():
    calls, log = 0, []

    def f(x):
        nonlocal calls
        calls += 1
        log.append(x)
        return x

    c = taken(f)
    f(1)
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


def test_objects_of_python_are_left_alone():
    c = taken(lambda x: LOG.debug("tracing") or x)
    LOG.setLevel(logging.ERROR)
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
    with pytest.raises(TraceError, match="generator generator drew random numbers"):
        following(lambda x: x + generator.random()).check_generators()


def test_view_of_a_captured_array_watches_its_base():
    array = np.arange(4.0)

    def f(x):
        return x + array[0]

    view = array[1:]
    c = taken(f, [view])
    assert c.read(None)[0] is view
    array = np.zeros(4)
    assert c.read(None) is None


class Rated:
    k = 2.0

    @property
    def twice(self):
        return 2 * self.k

    def scaled(self, x):
        return x * self.k


def helper(x):
    return x


def place() -> Any:
    o = Rated()
    return types.SimpleNamespace(o=o, k=2.0, name="a", rows=[1.0, 2.0], named={"a": 1.0}, f=helper, t=(slice(1, 2), o))


TEXTS: list[tuple[Callable[[Any, Any], Any], Callable[[Any], object], str, str]] = [
    (lambda x, n: n.k, lambda n: setattr(n, "k", 3.0), "n.k == 2.0",
     "n.k was 2.0, is 3.0; pass it as an argument to keep one program"),
    (lambda x, n: n.k, lambda n: setattr(n, "k", np.ones(2)), "n.k == 2.0", "n.k was 2.0, is of class ndarray; pass"),
    (lambda x, n: n.k, lambda n: delattr(n, "k"),
     "n.__dict__ has the keys ['o', 'k', 'name', 'rows', 'named', 'f', 't']",
     "the keys of n.__dict__ were ['o', 'k', 'name', 'rows', 'named', 'f', 't'], are ['o', 'name', 'rows',"),
    (lambda x, n: n.rows, lambda n: n.rows.append(1.0), "len(n.rows) == 2", "len(n.rows) was 2, is 3"),
    (lambda x, n: n.rows, lambda n: setattr(n, "rows", (1.0, 2.0)), "len(n.rows) == 2",
     "n.rows was of class list, is of class tuple"),
    (lambda x, n: n.named, lambda n: n.named.update(b=1), "n.named has the keys ['a']",
     "the keys of n.named were ['a'], are ['a', 'b']"),
    (lambda x, n: n.f(x), lambda n: setattr(n, "f", abs), "n.f is the same object", "n.f is another object now"),
    (lambda x, n: n.o, lambda n: setattr(n, "o", None), "n.o is of class Rated", "n.o was of class Rated, is None"),
    (lambda x, n: n.t[1], lambda n: setattr(n, "o", Rated()), "n.t[1] is n.o",
     "n.t[1] and n.o are one object no longer"),
    (lambda x, n: getattr(n.o, "z", 0), lambda n: setattr(n.o, "z", 1), "n.o has no z", "there is n.o.z now"),
    (lambda x, n: n.o.k, lambda n: setattr(n.o, "k", 3.0), "n.o.k == 2.0", "n.o.k was 2.0, is 3.0; pass"),
]  # fmt: skip


@pytest.mark.parametrize(("read", "change", "text", "failure"), TEXTS)
def test_texts(read, change, text, failure):
    n = place()

    def f(x):
        return read(x, n)

    c = taken(f)
    assert c.read(None) == [] and all(g.holds(None) for g in c.guards)
    assert text in [g.text for g in c.guards]
    change(n)
    failing = c.failing(None)
    assert c.read(None) is None and (failing.text, failing.failure(None)[: len(failure)]) == (text, failure)


def test_members_of_a_class(monkeypatch):
    o = Rated()
    c = taken(lambda x: o.scaled(x) + o.twice)
    texts = [g.text for g in c.guards]
    assert "o.scaled.__func__ is the same object" in texts and "Rated.twice is the same object" in texts
    assert [g.text for g in c.guards if g.is_shown] == ["o.k == 2.0"]
    monkeypatch.setattr(Rated, "twice", property(lambda self: 3.0))
    assert c.read(None) is None and c.failing(None).failure(None) == "Rated.twice is another object now"


def test_names_in_code_are_those_that_dis_finds() -> None:
    """The quick reader of byte code against the standard library's, over functions with many names."""
    import dis
    import inspect
    import textwrap

    from tenferro.tracer import code_names as module

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
