"""NumPy work on arrays from outside: after a change of the array the jitted function gives what NumPy gives."""

from __future__ import annotations

import math
from collections import namedtuple
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer import contents
from tenferro.tracer.errors import MutationError, TraceError
from tests.api.outside import X, agree

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
    "searchsorted": lambda x: x * W.searchsorted(2.5),
    "shape": lambda x: x * W.shape[0] * W.size * len(W) * W.ndim,
    "isinstance": lambda x: x * W if isinstance(W, np.ndarray) else x,
    "in a dict": lambda x: x * (TABLE["a"] + W) + TABLE["rows"][0] * 2,
    "unpacked": unpacked,
    "written": element_written,
    "inner": inner_function,
    "generator": generator,
    "unique": lambda x: x * np.unique(W)[0],
    "choose": lambda x: x * (W > 20).astype(int).choose([W, -W])[0],
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
    "not traced at all": lambda x: x * np.trim_zeros(W)[-1],
    "histogram": lambda x: x * np.histogramdd(W, bins=3)[1][0][0],
    "reduceat": lambda x: x * np.add.reduceat(W, [0, 1])[1],
    "vectorize": lambda x: x * np.vectorize(lambda v: v + 1)(W),
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
