"""NumPy's creation functions while a trace runs: who gets wrapped ones, who NumPy's own, and when they are put back."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from tenferro.tracer import wrap
from tenferro.tracer.config import Config
from tenferro.tracer.errors import MutationError
from tenferro.tracer.trace import current_trace
from tenferro.tracer.traced import TracedArray
from tests.tracer.tracing import op_names, traced

NAMES = (*wrap.CREATION, *wrap.CONVERSION, *wrap.FROM_OUTSIDE)


def test_functions_are_put_back() -> None:
    before = [getattr(np, n) for n in NAMES] + [np.random.rand, np.random.default_rng]
    during: list[Any] = []

    def f(x: Any) -> Any:
        during.extend(getattr(np, n) for n in NAMES)
        return x

    traced(f, np.ones(2))
    assert [getattr(np, n) for n in NAMES] + [np.random.rand, np.random.default_rng] == before
    assert not set(during) & set(before)


def test_other_threads_get_numpys_own() -> None:
    found: list[Any] = []

    def f(x: Any) -> Any:
        thread = threading.Thread(target=lambda: found.extend([np.zeros(3), np.asarray([1]), np.random.rand(2)]))
        thread.start()
        thread.join()
        made: Any = np.zeros(3)
        assert type(made) is TracedArray
        return x

    traced(f, np.ones(2))
    assert [type(x) for x in found] == [np.ndarray] * 3


def test_traces_in_several_threads_end_in_any_order() -> None:
    original = np.zeros
    inside, leave = threading.Event(), threading.Event()

    def slow(x: Any) -> Any:
        inside.set()
        assert leave.wait(10)
        return x + np.zeros(2)

    thread = threading.Thread(target=lambda: traced(slow, np.ones(2)))
    thread.start()
    assert inside.wait(10)
    assert op_names(traced(lambda x: x + np.zeros(2), np.ones(2))) == ["broadcast_to", "add"]
    assert np.zeros is not original
    assert type(np.zeros(2)) is np.ndarray
    leave.set()
    thread.join()
    assert np.zeros is original


def test_numpys_own_code_is_not_served() -> None:
    def f(x: Any) -> Any:
        return np.testing.assert_array_equal(np.eye(2) @ np.eye(2), np.eye(2))

    assert op_names(traced(f, np.ones(2))) == []


def test_arrays_from_outside_are_read_not_frozen() -> None:
    outside = np.arange(3, dtype=np.float32)

    def f(x: Any) -> Any:
        assert np.asarray(outside) is outside
        zeros = np.zeros_like(outside)
        zeros[0] = x[0]
        return np.array(outside) + x, np.asarray(outside, np.float64), np.copy(outside), np.stack([x, x]), zeros

    result = traced(f, np.ones(3))
    assert [i.kind for i in result.program.inputs] == ["argument", "captured"]


def test_it_can_be_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wrap, "config", lambda: Config(wrap_numpy=False))

    def f(x: Any) -> Any:
        out = np.zeros(3)
        assert type(out) is np.ndarray
        out[0] = x[0]
        return out

    with pytest.raises(MutationError, match=r"write: a traced value goes into an array made outside the trace"):
        traced(f, np.ones(3))
    assert current_trace() is None
