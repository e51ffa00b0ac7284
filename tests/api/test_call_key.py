"""The short way of a call: calls that differ in anything that the function sees are told apart, others share a key."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
import pytest

import tenferro as tn

pytestmark = pytest.mark.filterwarnings("ignore::tenferro.tracer.errors.RecompileWarning")
X = np.arange(1.0, 4.0)
Pair = namedtuple("Pair", "a b")


@dataclass
class Params:
    w: Any
    power: Any = field(default=1, metadata={"static": True})


class Mode(Enum):
    UP = 1
    DOWN = 2


def seen(value: Any) -> Any:
    """What a function can see of an argument, as numbers: classes, keys, values and order count."""
    if isinstance(value, dict):
        total = sum((1.5 + k) * (seen(v) + _number(key)) for k, (key, v) in enumerate(value.items()))
        return total + 100.0 * len(type(value).__name__)
    if isinstance(value, tuple | list):
        total = sum((2.5 + k) * seen(v) for k, v in enumerate(value))
        return total + 1000.0 * len(type(value).__name__)
    if isinstance(value, Params):
        return seen(value.w) * 3 + _number(value.power)
    if isinstance(value, np.ndarray | np.generic | tn.Array | float | complex):
        return np.multiply(value, 1.25)  # type: ignore[arg-type]
    return _number(value)


def _number(value: Any) -> float:
    return float(sum(f"{value!r} {type(value).__name__}".encode()) % 9973)


ARGUMENTS: list[Any] = [
    {"a": X, "b": X}, {"b": X, "a": X}, {"a": X}, {"a": X, "b": None}, {"a": X, "b": (X,)}, {1: X}, {1.0: X}, {True: X},
    OrderedDict(a=X, b=X), [X, X], (X, X), Pair(X, X), [X, [X]], [[X], X], [[X, X]], [[X], [X]], (), [], {}, [()], [[]],
    None, [None], True, 1.5, 2.5, 1 + 2j, np.float32(2.0), np.float64(2.0), np.bool_(True), "1", b"1", "a", [1.0, "a"],
    Mode.UP, Mode.DOWN, [Mode.UP], np.sin, np.cos, np.dtype("f4"), np.dtype("f8"), slice(1, 2), slice(1.0, 2), ...,
    Params(X), Params(X, 2), Params(X, 2.0), Params(2.0), Params([X]), X, X[::-1], X[:1], X.astype("f4"), X.astype(int),
    np.array(5.0), {"a": {"b": {"c": X}}}, {"a": {"b": {"d": X}}}, {"a": X, "b": "x"}, {"a": X, "b": "y"},
]  # fmt: skip


def same(got: Any, want: Any) -> None:
    assert np.asarray(got).dtype == np.asarray(want).dtype
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_each_argument_has_its_own_program_and_keeps_it():
    def function(x: Any, argument: Any) -> Any:
        return x + seen(argument)

    jitted = tn.jit(function)
    for _ in range(3):
        for argument in ARGUMENTS:
            same(jitted(X, argument), function(X, argument))
    info = jitted.cache_info()
    assert info.hits == 3 * len(ARGUMENTS) - info.compiles
    assert info.compiles <= len(ARGUMENTS)


def test_static_arguments_are_told_apart():
    def function(x: Any, n: Any, *, m: Any = 0) -> Any:
        return x + _number(n) + _number(m)

    jitted = tn.jit(function, static_argnums=1, static_argnames="m")
    values = [1, 1.0, True, 0.0, -0.0, "1", None, (1, 2), (1.0, 2), Mode.UP, np.float32(1), 2**70]
    for _ in range(2):
        for value in values:
            same(jitted(X, value), function(X, value))
            same(jitted(X, n=value), function(X, value))
            same(jitted(X, 1, m=value), function(X, 1, m=value))
            same(jitted(m=value, n=1, x=X), function(X, 1, m=value))
    assert jitted.cache_info().compiles == 2 * len(values)  # with m and without


def test_keywords_in_any_order():
    def function(x: Any, y: Any = 1.0, *, z: Any = 2.0, w: Any = 3.0) -> Any:
        return x + 2 * y + 3 * z + 5 * w

    jitted = tn.jit(function)
    calls: list[dict[str, Any]] = [
        {"x": X}, {"y": X, "x": 2.0}, {"x": 2.0, "y": X}, {"z": X, "x": X}, {"x": X, "w": X},
        {"w": 1.0, "z": X, "x": X}, {"x": X, "z": X, "w": 1.0},
    ]  # fmt: skip
    for _ in range(2):
        for call in calls:
            same(jitted(**call), function(**call))
    compiles = jitted.cache_info().compiles
    for call in calls:
        jitted(**call)
    assert jitted.cache_info().compiles == compiles == 5


class Layer:
    def __init__(self, w: Any, k: float) -> None:
        self.w, self.k = w, k

    @tn.jit
    def apply(self, x: Any, options: Any = None) -> Any:
        return x * self.w + self.k + (options["shift"] if options else 0)


class Other(Layer):
    pass


def test_methods():
    layers = [Layer(X, 1.0), Layer(X * 2, 1.0), Layer(X, 2.0), Other(X, 1.0), Layer(np.float32(2), 1.0)]
    for _ in range(2):
        for layer in layers:
            same(layer.apply(X), X * layer.w + layer.k)
            same(layer.apply(X, {"shift": 2.0}), X * layer.w + layer.k + 2)
            same(Layer.apply(layer, X, options={"shift": X}), X * layer.w + layer.k + X)
    before = Layer.__dict__["apply"].cache_info().compiles
    layers[0].w = X * 7
    same(layers[0].apply(X), X * X * 7 + 1)
    assert Layer.__dict__["apply"].cache_info().compiles == before
    layers[0].k = 5.0
    same(layers[0].apply(X), X * X * 7 + 5)


def test_results_are_the_callers_own_objects():
    jitted = tn.jit(lambda p, flag: (p["a"], p["b"] * 2 if flag else p["b"]))
    p = {"a": X, "b": np.ones(3)}
    for _ in range(3):
        first, second = jitted(p, False)
        assert first is p["a"] and second is p["b"]
        assert jitted(p, True)[0] is X


def test_donated_arrays_in_containers():
    @tn.jit(donate_argnums=0)
    def scale(p: Any, by: float) -> Any:
        p["a"] *= by
        return p["a"]

    p = {"a": np.ones(3), "b": X}
    for k in range(1, 4):
        assert scale(p, 2.0) is p["a"]
        assert p["a"].tolist() == [2.0**k] * 3


def test_tenferro_arrays_in_containers():
    jitted = tn.jit(lambda p: p["a"] + p["b"])
    for _ in range(2):
        assert type(jitted({"a": X, "b": X})) is np.ndarray
        assert type(jitted({"a": X, "b": tn.asarray(X)})) is tn.Array
        assert type(jitted({"a": tn.asarray(X), "b": 2.0})) is tn.Array


def test_ints_in_containers_are_checked_by_guards():
    def function(p: Any) -> Any:
        return p["x"] * 2 if p["n"] > 3 else p["x"] + p["n"]

    jitted = tn.jit(function)
    for n in (1, 5, 2, 9, 1):
        same(jitted({"x": X, "n": n}), function({"x": X, "n": n}))
    assert jitted.cache_info().compiles == 2
    with pytest.raises(OverflowError, match=r"argument p\['n'\] is 9223372036854775808"):
        jitted({"x": X, "n": 2**63})


@pytest.mark.parametrize(
    "value", [{1, 2}, [{1}], {"a": object.__new__(type("Unhashable", (), {"__hash__": None}))}, np.array(["a"])]
)
def test_what_cannot_be_an_argument_is_refused_each_time(value: Any):
    jitted = tn.jit(lambda x: x)
    for _ in range(2):
        with pytest.raises(TypeError, match="argument x"):
            jitted(value)


def swapped(x: Any) -> Any:
    return x.astype(">f8")


def unaligned(x: Any) -> Any:
    made = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype)
    made[:] = x
    return made


@pytest.mark.parametrize("change", [swapped, unaligned])
def test_arrays_that_are_copied(change: Callable[[Any], Any]):
    jitted = tn.jit(lambda p: p["a"] * 2)
    for k in range(3):
        same(jitted({"a": change(X + k)}), (X + k) * 2)
        same(jitted({"a": X + k}), (X + k) * 2)
