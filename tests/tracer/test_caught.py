"""Errors of tracing that the function catches: its program would not be what NumPy runs, so the call is refused."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn

X = np.arange(3.0)


def _suppressed(x: Any) -> Any:
    y = -x
    with contextlib.suppress(Exception):
        y = x * float(x.sum())
    return y


def _tried(x: Any) -> Any:
    try:
        return x * 2 if x.sum() > 0 else x
    except TypeError:
        return -x


def _finally(x: Any) -> Any:
    try:
        return x * int(x[0])
    finally:
        return -x  # noqa: B012


def _written(x: Any) -> Any:
    with contextlib.suppress(ValueError):
        x += 1
    return x * 2


def _selected(x: Any) -> Any:
    with contextlib.suppress(TypeError):
        if x[x > 1].size > 1:
            return x
    return -x


def _inner(x: Any) -> Any:
    inner = tn.jit(lambda y: y * float(y[0]))
    with contextlib.suppress(TypeError):
        return inner(x)
    return -x


def _deep(x: Any) -> Any:
    with contextlib.suppress(TypeError):
        return max([x[0], x[1]]) * x
    return -x


CAUGHT: dict[str, tuple[Callable[[Any], Any], type[Exception]]] = {
    "suppressed": (_suppressed, tn.TraceError),
    "tried": (_tried, tn.TraceError),
    "finally": (_finally, tn.TraceError),
    "written": (_written, tn.MutationError),
    "selected": (_selected, tn.TraceError),
    "inner": (_inner, tn.TraceError),
    "deep": (_deep, tn.TraceError),
}


@pytest.mark.parametrize("name", CAUGHT)
def test_a_caught_refusal_is_raised_at_the_end(name: str) -> None:
    function, kind = CAUGHT[name]
    jitted = tn.jit(function)
    for _ in range(2):  # nothing of it is kept
        with pytest.raises(kind, match=r"\(at .*test_caught.*the function caught this error and went on") as found:
            jitted(X)
        assert isinstance(found.value.__cause__, kind)
    assert jitted.cache_info().compiles == 0


def test_other_errors_pass() -> None:
    def f(x: Any) -> Any:
        try:
            return x * float(x.sum())
        except TypeError as error:
            raise KeyError("mine") from error

    with pytest.raises(KeyError, match="mine"):
        tn.jit(f)(X)


def test_errors_that_numpy_raises_too_may_be_caught() -> None:
    def f(x: Any) -> Any:
        with contextlib.suppress(ValueError):
            return x + np.ones(x.shape[0] + 1)
        try:
            return x.reshape(2, 2)
        except ValueError:
            return -x

    np.testing.assert_array_equal(tn.jit(f)(X), f(X))


def test_what_is_caught_without_the_function_is_no_loss() -> None:
    outside = np.array([2.0, 1.0])

    def f(x: Any) -> Any:
        count = int(outside.sum())  # of a captured array
        assert not hasattr(x, "no_such_thing")
        return x * count + np.linspace(outside[1], outside[0], int(outside[0] + 1)) + np.repeat(x[:1], outside.size + 1)

    np.testing.assert_array_equal(tn.jit(f)(X), f(X))


def test_a_later_call_is_not_told_of_an_earlier_one() -> None:
    def f(x: Any, careful: bool) -> Any:
        if not careful:
            with contextlib.suppress(TypeError):
                return x * float(x.sum())
        return -x

    jitted = tn.jit(f, static_argnames="careful")
    with pytest.raises(tn.TraceError):
        jitted(X, careful=False)
    np.testing.assert_array_equal(jitted(X, careful=True), -X)
