"""What native calls return: views, arguments, the same array twice, sizes, objects, containers of them."""

from __future__ import annotations

import gc
import sys
import typing
import weakref
from collections import namedtuple
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer import switches
from tests.api.native import RUNS, native_hits, same, served

x, y = np.arange(6.0).reshape(2, 3), np.arange(6.0, 12.0).reshape(2, 3)
z = x + 1j * y

RESULTS: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("the argument", lambda a: a, (x,)),
    ("the argument twice", lambda a: (a, a), (x,)),
    ("an argument beside what is made", lambda a, b: (b, a + b), (x, y)),
    ("a transposed argument", lambda a: a.T, (x,)),
    ("a row", lambda a: a[1], (x,)),
    ("every other column, from behind", lambda a: a[:, ::-2], (x,)),
    ("a reshaped argument", lambda a: a.reshape(3, 2), (x,)),
    ("a view of a view", lambda a: a.T[1:].T, (x,)),
    ("an argument broadcast", lambda a: np.broadcast_to(a, (4, 2, 3)), (x,)),
    ("a diagonal", lambda a: np.diagonal(a), (x,)),
    ("an empty view", lambda a: a[:, 3:], (x,)),
    ("what is made, transposed", lambda a: (a + 1).T, (x,)),
    ("what is made and a view of it", lambda a: (b := a + 1, b[0]), (x,)),
    ("two views of what is made", lambda a: (lambda b: (b.T, b[1]))(a * 2), (x,)),
    ("what is made twice", lambda a: (lambda b: (b, b))(a + 1), (x,)),
    ("a view twice", lambda a: (lambda b: (b, b))(a.T), (x,)),
    ("an element", lambda a: a[1, 2], (x,)),
    ("an element beside an array", lambda a: (a[1, 2], a + 1), (x,)),
    ("a size", lambda a: (a.shape[0], a + 1), (x,)),
    ("a size alone", lambda a: a.shape[1] * 2, (x,)),
    ("an int that was given", lambda a, n: (n, n + 1, a * n), (x, 3)),
    ("a float that was given", lambda a, s: (s, a * s), (x, 2.5)),
    ("a constant", lambda a: (a + 1, 7, "text", None, 2.5), (x,)),
    ("None alone", lambda a: None, (x,)),
    ("an empty tuple", lambda a: (), (x,)),
    ("a dict", lambda a: {"sum": a.sum(), "twice": a * 2, 3: a}, (x,)),
    ("nested", lambda a: {"a": [a + 1, (a.T, None)], "b": ({}, {"c": a.sum(axis=0)})}, (x,)),
    ("an empty list beside arrays", lambda a: [[], a + 1, [], a - 1], (x,)),
    ("a dtype", lambda a: (a * 2, a.dtype), (x,)),
    ("complex parts", lambda a: (a.real + 0, a.imag * 2), (z,)),
    ("int32 in and out", lambda a: (a[1:], a.sum()), (np.arange(5, dtype="i4"),)),
    ("bools", lambda a: (a > 2, (a > 2).any()), (x,)),
]
IDS = [r[0] for r in RESULTS]


def shared(result: Any, args: tuple[Any, ...]) -> list[list[bool]]:
    """Which leaves are which arguments, share memory with them, and are one another."""
    leaves = [v for v in tn.tree.leaves(result) if isinstance(v, np.ndarray | tn.Array)]
    data = [getattr(v, "_data", v) for v in leaves]
    given = [getattr(v, "_data", v) for v in args if isinstance(v, np.ndarray | tn.Array)]
    return [
        *[[v is w for w in args] for v in leaves],
        *[[np.may_share_memory(v, w) for w in given] for v in data],
        *[[v is w for w in leaves] for v in leaves],
    ]


@pytest.mark.parametrize(("f", "args"), [c[1:] for c in RESULTS], ids=IDS)
def test_results_are_those_of_the_long_way(f, args):
    jitted = tn.jit(f)
    first = jitted(*args)
    found = served(jitted, *args)
    same(found, first)
    assert shared(found, args) == shared(first, args)
    for a, b in zip(tn.tree.leaves(found), tn.tree.leaves(first), strict=True):
        if isinstance(b, np.ndarray):
            assert a.strides == b.strides and a.flags.writeable == b.flags.writeable
    for a, b in zip(tn.tree.leaves(found), tn.tree.leaves(f(*args)), strict=True):
        assert np.array_equal(a, b) if isinstance(b, np.ndarray) else a == b


@pytest.mark.parametrize(
    ("f", "args"), [c[1:] for c in RESULTS if c[0] not in ("None alone",)], ids=IDS[:22] + IDS[23:]
)
def test_tn_arrays(f, args):
    wrapped = tuple(tn.asarray(a) if isinstance(a, np.ndarray) else a for a in args)
    jitted = tn.jit(f)
    first = jitted(*wrapped)
    found = served(jitted, *wrapped)
    same(found, first)
    assert shared(found, wrapped) == shared(first, wrapped)


def test_views_are_written_where_their_base_is():
    f = tn.jit(lambda a: (a.T, (a + 1)[0]))
    a = x.copy()
    view, row = served(f, a)
    view[0, 0] = 100.0
    assert a[0, 0] == 100.0 and view.base is a and not view.flags.owndata
    row[0] = 7.0
    fixed = x.copy()
    fixed.setflags(write=False)
    view, row = served(f, fixed)
    assert not view.flags.writeable and row.flags.writeable
    del a
    gc.collect()
    assert view.sum() == x.sum()


def test_a_view_keeps_what_it_is_a_view_of():
    f = tn.jit(lambda a: a[1:])
    a = np.arange(1000.0)
    view = served(f, a)
    alive = weakref.ref(a)
    del a
    gc.collect()
    assert alive() is not None and view[0] == 1.0
    del view
    gc.collect()
    assert alive() is None


def test_mixed_arguments_make_tn_arrays():
    f = tn.jit(lambda a, b: (a, b, a + b))
    for args in ((x, tn.asarray(y)), (tn.asarray(x), y)):
        first = f(*args)
        found = served(f, *args)
        same(found, first)
        assert [type(v) for v in found] == [tn.Array] * 3 and shared(found, args) == shared(first, args)


Pair = namedtuple("Pair", "left right")  # noqa: PYI024


@dataclass
class Layer:
    w: Any
    b: Any
    name: str = field(default="relu", metadata={"static": True})


def test_namedtuples_and_dataclasses_as_arguments():
    f = tn.jit(lambda p, q: p.left * p.right + q.w * (q.b if q.name == "relu" else 0.0))
    layer = Layer(y, 2.0)
    same(served(f, Pair(x, y), layer), x * y + y * 2.0)
    same(f(Pair(x, 2.0), layer), x * 2.0 + y * 2.0)
    same(f((lambda p: p)(Pair(y, x)), Layer(y, 3.0)), x * y + y * 3.0)
    same(f(Pair(x, y), Layer(y, 3.0, "tanh")), x * y + y * 0.0)
    layer.b = 5.0
    same(served(f, Pair(x, y), layer), x * y + y * 5.0)
    layer.name = "tanh"
    same(f(Pair(x, y), layer), x * y + y * 0.0)
    with pytest.raises(AttributeError):
        f((x, y), layer)


@dataclass(frozen=True, slots=True)
class Fixed:
    total: Any
    parts: Any
    name: str = field(default="none", metadata={"static": True})


class Named(typing.NamedTuple):
    """One that checks what it is made of."""

    low: Any
    high: Any = 1.0


def test_namedtuples_and_dataclasses_as_results():
    def f(a: Any, layer: Any) -> Any:
        pair = Pair(a + 1, Named(a.sum(), None))
        return pair, Fixed(a.T, (pair.left, {"x": Layer(a * 2, 3)}), "sums"), Layer(layer.b, layer.w, layer.name)

    jitted = tn.jit(f)
    first = jitted(x, Layer(y, 2.0))
    for _ in range(RUNS):
        found = served(jitted, x, Layer(y, 2.0))
        for a, b in zip(tn.tree.leaves(found), tn.tree.leaves(first), strict=True):
            same(a, b)
        assert tn.tree.structure(found) == tn.tree.structure(first)
        pair, fixed, layer = found
        assert type(pair) is Pair and type(pair.right) is Named and pair.right.high is None and type(fixed) is Fixed
        assert fixed.name == "sums" and fixed.parts[0] is pair.left and type(layer) is Layer and layer.name == "relu"
        assert layer.b is y and layer.w == 2.0
    objects = [Pair, Fixed, Layer, Named, y]
    before = [sys.getrefcount(o) for o in objects]
    for _ in range(1000):
        jitted(x, Layer(y, 2.0))
    assert all(abs(sys.getrefcount(o) - n) < 10 for o, n in zip(objects, before, strict=True))


def test_a_class_that_refuses_what_it_is_made_of():
    class Picky(typing.NamedTuple("Picky", [("a", Any)])):
        def __new__(cls, a: Any) -> Any:
            if refusing:
                raise ValueError("not today")
            return super().__new__(cls, a)

    refusing: list[int] = []

    def f(a: Any) -> Any:
        return Picky(a + 1)

    jitted = tn.jit(f, static_argnums=())
    for _ in range(RUNS):
        same(jitted(x).a, x + 1)
    refusing.append(1)
    with pytest.raises(ValueError, match="not today"):
        jitted(x)
    refusing.clear()
    same(jitted(x).a, x + 1)


def test_functions_and_enums_as_arguments():
    f = tn.jit(lambda a, g: g(a))
    double, square = (lambda v: v * 2), (lambda v: v * v)
    same(served(f, x, double), x * 2)
    same(served(f, x, square), x * x)
    same(f(x, np.exp), f(x, np.exp))


def test_references_are_right_with_every_kind_of_result():
    """Not one is lost or kept over many calls, failing ones included."""
    pair = Pair(x.copy(), y.copy())
    layer = Layer(x.copy(), 2.0)

    def every(a: Any, s: float, p: Any, q: Any, i: Any) -> Any:
        b = a + s
        return {
            "a": (a, a.T, b, b, b[0], s), "p": [p.left, p.right * q.w, None], "n": (a.shape[0], b.sum(), "text"),
            "i": p.left[0][i],
        }  # fmt: skip

    f = tn.jit(every)
    a, s, i, bad = x.copy(), 2.5, np.array([0, 2, 1]), np.array([0, 7, 1])
    wrapped = tn.asarray(y.copy())
    objects = [a, s, pair, pair.left, pair.right, layer, layer.w, i, bad, wrapped, wrapped._data, wrapped._engine]
    objects += [a.dtype, i.dtype, None, True, "text", "item"]
    for _ in range(20):
        f(a, s, pair, layer, i), f(wrapped, s, pair, layer, i)
    gc.collect()
    before = [sys.getrefcount(o) for o in objects]
    hits = native_hits(f)
    for k in range(3000):
        f(a, s, pair, layer, i), f(wrapped, s, pair, layer, i)
        if k % 100 == 0:
            with pytest.raises(IndexError):
                f(a, s, pair, layer, bad)
    gc.collect()
    after = [sys.getrefcount(o) for o in objects]
    assert native_hits(f) > hits + 5900  # some look whether kernels are to become better
    assert all(abs(m - n) < 60 for m, n in zip(before, after, strict=True)), (before, after)


def test_an_array_that_is_two_results_is_two_arrays():
    """Results that are equal, but not one variable, stay apart."""
    f = tn.jit(lambda a: (a + 1, a + 1))
    with switches.paused():
        first = f(x)
    for _ in range(10):
        u, v = f(x)
        assert (u is v) == (first[0] is first[1]) and np.may_share_memory(u, v) == np.may_share_memory(*first)
