"""Callbacks: how often they are called, in which order, with what, and what becomes of what they return or raise."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.debug.seen import SCALAR, Seen, like, x3


def test_a_callback_gets_arrays_that_are_read_only_and_scalars_and_what_is_not_traced_as_it_is():
    found: list[Any] = []

    def keep(x: Any, n: Any, *rest: Any, name: str) -> None:
        found.extend([x, n, rest, name])

    @tn.jit
    def f(x: Any) -> Any:
        tn.debug.callback(keep, x, x.sum(), 5, None, name="text")
        return x

    f(x3)
    x, n, rest, name = found
    assert type(x) is np.ndarray and not x.flags.writeable and x.tolist() == [0.0, 1.0, 2.0]
    assert type(n) is np.float64 and n == 3.0
    assert (rest, name) == ((5, None), "text")


def test_effects_happen_at_each_call_though_nobody_reads_their_results():
    seen = Seen()

    @tn.jit
    def f(x: Any) -> Any:
        tn.io_callback(lambda v: (seen(v), v)[1], like(x), x)
        tn.io_callback(lambda v: (seen(v), v)[1], like(x), x)  # equal operations are not one
        return x + 1

    for _ in range(3):
        assert f(x3).tolist() == [1.0, 2.0, 3.0]
        assert seen.taken() == [([0.0, 1.0, 2.0],)] * 2


def test_a_pure_callback_that_nobody_reads_is_not_called_and_equal_ones_are_one():
    seen = Seen()

    def double(v: Any) -> Any:
        seen(v)
        return v * 2

    tn.jit(lambda x: (tn.pure_callback(double, like(x), x), x + 1)[1])(x3)
    assert seen.taken() == []
    found = tn.jit(lambda x: tn.pure_callback(double, like(x), x) + tn.pure_callback(double, like(x), x))(x3)
    assert found.tolist() == [0.0, 4.0, 8.0]
    assert len(seen.taken()) == 1


def test_the_order_is_the_programs():
    order: list[int] = []

    @tn.jit
    def f(x: Any) -> Any:
        y = np.sin(x)
        for k in range(6):
            tn.debug.callback(lambda v, k=k: order.append(k), x if k % 2 else np.exp(y).sum() + k)
        return y

    f(x3)
    assert order == list(range(6))


def test_results_are_pytrees_of_declared_types_also_of_traced_sizes():
    @tn.jit
    def f(x: Any) -> Any:
        found = tn.pure_callback(
            lambda v: {"n": np.int64(v.size), "two": (v[::-1], np.float32([v.sum()]))},
            {"n": tn.ShapeDtypeStruct((), np.int64), "two": (like(x), tn.ShapeDtypeStruct((1,), np.float32))}, x,
        )  # fmt: skip
        return found["n"] + 1, found["two"][0] * 2, found["two"][1]

    for n in (3, 5):
        count, turned, total = f(np.arange(float(n)))
        assert count == n + 1 and total.dtype == np.float32
        assert turned.tolist() == [2.0 * k for k in range(n)][::-1]
    assert f.cache_info().compiles == 1


def test_at_once_outside_a_trace():
    seen = Seen()
    found = tn.pure_callback(lambda v: v * 2, like(x3), x3)
    assert type(found) is np.ndarray and found.tolist() == [0.0, 2.0, 4.0]
    wrapped = tn.io_callback(lambda v: v * 2, like(x3), tn.asarray(x3))
    assert isinstance(wrapped, tn.Array)
    tn.debug.callback(seen, tn.asarray(x3), 2)
    assert seen.taken() == [([0.0, 1.0, 2.0], 2)]
    assert type(tn.pure_callback(lambda: 1.5, SCALAR)) is np.float64


WRONG: tuple[tuple[Callable[[Any], Any], str], ...] = (
    (lambda v: v[:1], r"the result is float64 of shape \(1,\); float64 of shape \(3,\) is declared"),
    (lambda v: v.astype(np.float32), r"the result is float32 of shape \(3,\); float64 of shape \(3,\) is declared"),
    (lambda v: (v, v), "the result has the structure"),
    (lambda v: None, "the result has the structure|the result is object"),
)


@pytest.mark.parametrize("call", [tn.pure_callback, tn.io_callback])
@pytest.mark.parametrize(("function", "text"), WRONG)
def test_what_is_not_declared_is_refused(call: Any, function: Any, text: str):
    for run in (tn.jit(lambda x: call(function, like(x), x)), lambda x: call(function, like(x), x)):
        with pytest.raises(tn.CallbackError, match=text):
            run(x3)


def test_an_exception_keeps_its_type_and_traceback_and_gets_a_note_of_the_line():
    class Mine(Exception):
        pass

    def fails(v: Any) -> Any:
        raise Mine("three")

    def around(x: Any) -> Any:
        return tn.lax.scan(lambda c, v: (c + tn.pure_callback(fails, SCALAR, v), None), 0.0, x)[0]

    for run in (tn.jit(lambda x: tn.pure_callback(fails, like(x), x)), tn.jit(around), around, tn.vmap(around)):
        with pytest.raises(Mine, match="three") as error:
            run(x3 if run is not None and not isinstance(run, type(tn.vmap(around))) else np.stack([x3, x3]))
        assert any("test_callbacks.py:" in note for note in error.value.__notes__)
        assert traceback.extract_tb(error.value.__traceback__)[-1].name == "fails"


def test_a_callback_may_call_jitted_functions_and_itself_be_jitted():
    inner = tn.jit(lambda v: np.sin(v) * 2)

    @tn.jit
    def f(x: Any) -> Any:
        return tn.pure_callback(lambda v: inner(v) + np.asarray(inner(v)), like(x), x) + 1

    for _ in range(2):
        np.testing.assert_allclose(f(x3), 4 * np.sin(x3) + 1)
    assert tn.jit(lambda x: tn.pure_callback(inner, like(x), x))(x3).tolist() == inner(x3).tolist()
    depth = [0]

    @tn.jit
    def again(x: Any) -> Any:
        def more(v: Any) -> Any:
            depth[0] += 1
            return again(v) if depth[0] < 4 else v

        return tn.io_callback(more, like(x), x) * 2

    assert again(x3).tolist() == [0.0, 16.0, 32.0]


def test_callbacks_run_on_the_callers_thread():
    threads: set[int] = set()

    @tn.jit
    def f(x: Any) -> Any:
        tn.debug.callback(lambda v: threads.add(threading.get_ident()), x)
        return np.sin(x).sum()

    f(np.ones(1 << 20))
    assert threads == {threading.get_ident()}


def test_on_several_engines_too():
    threads: set[int] = set()
    order: list[float] = []

    def note(k: Any, v: Any) -> None:
        threads.add(threading.get_ident())
        order.append(float(k))

    tn.cpu_engines(2)

    @tn.jit(engines=["cpu:0", "cpu:1"])
    def f(x: Any) -> Any:
        for k in range(4):
            with tn.on(f"cpu:{k % 2}"):
                tn.debug.callback(note, k, np.sin(x + k).sum())
        with tn.on("cpu:1"):
            return np.cos(x)

    np.testing.assert_allclose(f(x3), np.cos(x3))
    assert order == [0.0, 1.0, 2.0, 3.0]
    assert threads == {threading.get_ident()}


def test_numpys_warnings_are_on_inside():
    @tn.jit
    def f(x: Any) -> Any:
        return tn.pure_callback(lambda v: 1 / v, like(x), x)

    with pytest.warns(RuntimeWarning, match="divide by zero"):
        f(x3)
