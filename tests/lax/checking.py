"""Functions of ``tn.lax`` run in every way: a function and arguments in; jitted and eager results, on the CPU engine
and on the reference engine, are compared with what NumPy's code gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import tenferro as tn
from tenferro.tracer.errors import TenferroError

Array = np.ndarray[Any, Any]


def _on(x: Any, engine: str) -> Any:
    if isinstance(x, tuple | list):
        return type(x)(_on(i, engine) for i in x)
    return tn.array(x, engine=engine) if isinstance(x, np.ndarray) else x


def _plain(x: Any) -> Any:
    return type(x)(map(_plain, x)) if isinstance(x, tuple | list) else np.asarray(x)


def ways(function: Callable[..., Any], *args: Any) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Each way of running the function by name; ``both_engines`` must hold."""
    yield "jitted", lambda: tn.jit(function)(*args)
    yield "eager", lambda: function(*args)
    yield "eager on tn.Array", lambda: function(*_on(args, "cpu:0"))
    yield "jitted on the reference engine", lambda: tn.jit(function)(*_on(args, "reference:0"))
    yield "eager on the reference engine", lambda: function(*_on(args, "reference:0"))


def same(found: Any, wanted: Any, ulps: float = 0) -> None:
    """Dtype, shape, and values: bit by bit apart from zeros' signs and NaNs, or within so many units of the dtype."""
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), f"{found!r} for {wanted!r}"
    if not ulps or wanted.dtype.kind not in "fc":
        np.testing.assert_array_equal(found, wanted)
        return
    scale = float(np.max(np.abs(wanted[np.isfinite(wanted)]), initial=0.0))
    tolerance = ulps * float(np.finfo(wanted.dtype).eps)
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=tolerance * scale)


def agrees(function: Callable[..., Any], wanted: Any, *args: Any, ulps: float = 0) -> None:
    """Every way of running the function gives ``wanted``, or all of them what it gives of the arguments."""
    with np.errstate(all="ignore"):
        if callable(wanted):
            wanted = wanted(*args)
        for name, run in ways(function, *args):
            try:
                same(_plain(run()), wanted, ulps)
            except AssertionError as error:
                raise AssertionError(f"{name}: {error}") from None


def refuses(function: Callable[..., Any], error: type[Exception], text: str, *args: Any) -> None:
    """Every way of running the function raises this class with this text and a line of the test."""
    import re

    for name, run in ways(function, *args):
        try:
            made = run()
        except TenferroError as found:
            assert isinstance(found, error), f"{name}: {found!r}"
            assert re.search(text, str(found)), f"{name}: {found}"
            assert re.search(r" \(at .*(test_\w+|checking)\.py:\d+\)$", str(found)), f"{name}: {found}"
        else:
            raise AssertionError(f"{name}: {made!r} for {error.__name__}")


def serves_all(function: Callable[..., Any], wanted: Callable[..., Any], *calls: tuple[Any, ...]) -> None:
    """One program serves all the calls."""
    jitted = tn.jit(function)
    with np.errstate(all="ignore"):
        for args in calls:
            same(jitted(*args), wanted(*args), 50)
    assert jitted.cache_info().compiles == 1, str(jitted.explain())
