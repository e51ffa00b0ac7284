"""Engines as callers name them: what is accepted, and what refuses the rest by function, value and line."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.errors import UnknownEngineError
from tenferro.runtime import Configuration
from tests.runtime.engines import several

x = np.arange(6.0)


@pytest.fixture(scope="module", autouse=True)
def _engines() -> Iterator[None]:
    with several(2):
        yield


@pytest.fixture(autouse=True)
def _engines_stay() -> Iterator[None]:
    """An engine that a test names, and by that adds, goes after it."""
    before = tn.default_runtime().engines()

    def restore(configuration: Configuration) -> None:
        configuration.engines[:] = before

    yield
    tn.default_runtime().reconfigure(restore)


def placed(engine: Any) -> Any:
    @tn.jit
    def f(a: Any) -> Any:
        with tn.on(engine):
            return a + 1

    return f(x)


def double(a: Any) -> Any:
    return a * 2


THREE: Any = 3
UNKNOWN = "engine 'foo' is not registered; one of cpu:0, cpu:1 is needed"
NO_ENGINE = "a name such as 'cpu:0', or an engine, is needed"
REFUSED: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "on, unknown": (lambda: placed("foo"), UnknownEngineError, f"on: {UNKNOWN}"),
    "jit, unknown": (lambda: tn.jit(double, engine="foo")(x), UnknownEngineError, f"double: {UNKNOWN}"),
    "jit, the second unknown": (
        lambda: tn.jit(double, engines=["cpu:0", "foo"])(x), UnknownEngineError, f"double: {UNKNOWN}",
    ),
    "to, unknown": (lambda: tn.asarray(x).to("foo"), UnknownEngineError, f"to: {UNKNOWN}"),
    "to_device, unknown": (lambda: tn.asarray(x).to_device("foo"), UnknownEngineError, f"to_device: {UNKNOWN}"),
    "asarray, unknown": (lambda: tn.asarray(x, engine="foo"), UnknownEngineError, f"asarray: {UNKNOWN}"),
    "Mesh, unknown": (lambda: tn.Mesh(["foo"], "i"), UnknownEngineError, f"Mesh: {UNKNOWN}"),
    "the runtime, unknown": (lambda: tn.default_runtime().engine("foo"), UnknownEngineError, f"runtime: {UNKNOWN}"),
    "on, None": (lambda: placed(None), TypeError, f"on: engine is None of class NoneType; {NO_ENGINE}"),
    "jit, int": (lambda: tn.jit(double, engine=3), TypeError, f"jit: engine is 3 of class int; {NO_ENGINE}"),
    "jit, one of several": (
        lambda: tn.jit(double, engines=["cpu:0", THREE]), TypeError, "jit: one of engines is 3 of class int; a name",
    ),
    "jit, one as several": (
        lambda: tn.jit(double, engines="cpu:1"), TypeError, "jit: engines is 'cpu:1' of class str; a list of them is",
    ),
    "jit, no list": (lambda: tn.jit(double, engines=3), TypeError, "jit: engines is 3 of class int; a list of them"),
    "jit, no engines": (lambda: tn.jit(double, engines=[]), ValueError, r"jit: engines is \[\]; at least one is"),
    "jit, neither": (lambda: tn.jit(double, engines=()), ValueError, r"jit: engines is \(\); at least one is needed"),
    "jit, both": (
        lambda: tn.jit(double, engine="cpu:0", engines=["cpu:1"]), ValueError, "jit: engine and engines are both given",
    ),
    "to, None": (lambda: tn.asarray(x).to(None), TypeError, f"to: engine is None of class NoneType; {NO_ENGINE}"),
    "to, int": (lambda: tn.asarray(x).to(1), TypeError, f"to: engine is 1 of class int; {NO_ENGINE}"),
    "asarray, int": (lambda: tn.asarray(x, engine=7), TypeError, f"asarray: engine is 7 of class int; {NO_ENGINE}"),
    "asarray of an Array": (lambda: tn.asarray(tn.asarray(x), engine=7), TypeError, "asarray: engine is 7 of class"),
    "Mesh, int": (lambda: tn.Mesh([3], "i"), TypeError, f"Mesh: an engine is 3 of class int; {NO_ENGINE}"),
    "cpu_engines, text": (lambda: tn.cpu_engines("a"), TypeError, "cpu_engines: n is 'a' of class str; an int is"),
    "cpu_engines, None": (lambda: tn.cpu_engines(None), TypeError, "cpu_engines: n is None of class NoneType; an int"),
    "cpu_engines, float": (lambda: tn.cpu_engines(1.5), TypeError, "cpu_engines: n is 1.5 of class float; an int"),
    "cpu_engines, bool": (lambda: tn.cpu_engines(True), TypeError, "cpu_engines: n is True of class bool; an int"),
    "cpu_engines, bool_": (lambda: tn.cpu_engines(np.True_), TypeError, "cpu_engines: n is .* of class bool"),
    "cuda_engine, text": (lambda: tn.cuda_engine("a"), TypeError, "cuda_engine: number is 'a' of class str; an int is"),
    "cuda_engine, -1": (lambda: tn.cuda_engine(-1), ValueError, "cuda_engine: number is -1; at least 0 is needed"),
    "cuda_engine, no limit": (
        lambda: tn.cuda_engine(memory_limit=None), TypeError, "cuda_engine: memory_limit is None of class NoneType; an",
    ),
    "threads, 0": (lambda: tn.threads(0).__enter__(), ValueError, "threads: n is 0; an int from 1 to 4095 is needed"),
    "cpu_engines, 0": (lambda: tn.cpu_engines(0), ValueError, "cpu_engines: n is 0; at least 1 is needed"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_refused_with_the_users_line(name: str) -> None:
    call, error, text = REFUSED[name]
    with pytest.raises(error, match=rf"^{text}.*test_named_engines\.py:\d+\)$"):
        call()


WAYS: dict[str, Callable[[], Any]] = {
    "jit": lambda: tn.jit(double, engine="reference:0")(x),
    "engines": lambda: tn.jit(double, engines=["cpu:0", "reference:0"])(x),
    "on": lambda: placed("reference:0") + x - 1,
    "to": lambda: tn.asarray(x).to("reference:0") * 2,
    "asarray": lambda: double(tn.asarray(x, engine="reference:0")),
    "Mesh": lambda: tn.shard_map(double, tn.Mesh(["reference:0"], "i"), tn.P("i"), tn.P("i"))(x),
    "runtime": lambda: tn.jit(double, engine=tn.default_runtime().engine("reference:0"))(x),
}


@pytest.mark.parametrize("way", WAYS)
def test_the_reference_engine_is_there_once_it_is_named(way: str) -> None:
    assert "reference:0" not in tn.list_engines()
    assert np.asarray(WAYS[way]()).tolist() == (x * 2).tolist()
    assert tn.list_engines() == ["cpu:0", "cpu:1", "reference:0"]


def test_the_reference_engine_has_the_bits_of_sums_and_arithmetic() -> None:
    def f(a: Any) -> Any:
        return (a * a / 3 - a).sum(axis=0), np.sqrt(a).mean(), np.sort(a)[::-1], a.argmax(), a > 1

    values = np.random.default_rng(3).random((1234, 7))
    for own, other in zip(tn.jit(f)(values), tn.jit(f, engine="reference:0")(values), strict=True):
        assert own.tobytes() == other.tobytes()


def test_results_lie_on_the_functions_engine() -> None:
    def f(a: Any) -> Any:
        with tn.on("cpu:1"):
            b = np.sin(a)
        return b, a + 1, b * 2, a, a[1:]

    here, there = tn.asarray(x), tn.asarray(x, engine="cpu:1")
    for call, engine in (
        (lambda: tn.jit(f)(here), "cpu:0"),
        (lambda: tn.jit(f)(there), "cpu:1"),
        (lambda: tn.jit(f, engine="cpu:1")(here), "cpu:1"),
        (lambda: tn.jit(f, engines=["cpu:0", "cpu:1"])(there), "cpu:0"),
        (
            lambda: tn.jit(f, engines=["cpu:1", "cpu:0"])(
                here,
            ),
            "cpu:1",
        ),
    ):
        results = call()
        assert {r.device for r in results} == {engine}
        assert [r.tolist() for r in results] == [r.tolist() for r in tn.jit(f)(x)]
        assert (results[0] + 1).device == engine


def test_any_integer_counts_engines() -> None:
    assert [e.id for e in tn.cpu_engines(np.int64(2))] == ["cpu:0", "cpu:1"]


def test_a_smaller_number_gives_the_first_engines_and_takes_none_away() -> None:
    assert [e.id for e in tn.cpu_engines(1)] == ["cpu:0"]
    assert tn.list_engines() == ["cpu:0", "cpu:1"]
    tn.default_runtime().reconfigure(lambda c: c.remove_engine("cpu:1"))
    assert tn.list_engines() == ["cpu:0"]


def test_engines_none_is_none_given() -> None:
    assert tn.jit(double, engines=None)(x).tolist() == (x * 2).tolist()


def test_a_place_may_be_entered_again_and_in_itself() -> None:
    @tn.jit
    def f(a: Any) -> Any:
        here = tn.on("cpu:1")
        with here:
            a = a + 1
            with here:
                a = a * 2
            a = a - 3
        a = a / 4
        with here:
            return -a

    assert [o.place for o in f.trace(x).operations] == ["cpu:1"] * 3 + ["", "cpu:1"]
    assert f(x).tolist() == (-((x + 1) * 2 - 3) / 4).tolist()
