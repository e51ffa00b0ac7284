"""NumPy as the oracle: a function and its arguments in; jitted and eager runs on both engines are compared with what
the same function gives on NumPy's own arrays: dtype, shape, values, signs of zeros, or the class of the error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import tenferro as tn
from tenferro.engines.reference import ReferenceEngine
from tenferro.tracer.errors import TenferroError

ENGINES = ("cpu:0", "reference:0")
BUILT_IN = (IndexError, ValueError, TypeError, MemoryError, OverflowError, ZeroDivisionError)


_reference = ReferenceEngine()  # one for all modules: eager functions keep programs made for it


@contextmanager
def both_engines() -> Iterator[None]:
    """The default runtime has the reference engine too, its own one whatever tests before have named."""
    runtime = tn.default_runtime()
    if _reference.id in tn.list_engines():
        runtime.reconfigure(lambda c: c.remove_engine(_reference.id))
    runtime.reconfigure(lambda c: c.register_engine(_reference))
    try:
        yield
    finally:
        runtime.reconfigure(lambda c: c.remove_engine(_reference.id))


def agrees(function: Callable[..., Any], *args: Any) -> None:
    """Every way of running the function gives what NumPy gives, or an error of this package of the same kind."""
    wanted = _outcome(function, _fresh(args))
    for engine in ENGINES:
        for name, run in (("jitted", tn.jit(function)), ("eager", function)):
            try:
                _compare(_outcome(run, _on(args, engine)), wanted)
            except AssertionError as error:
                raise AssertionError(f"{name} on {engine}: {error}") from None


def jitted_agrees(function: Callable[..., Any], *args: Any) -> None:
    """``agrees`` for functions whose plain calls are NumPy's own."""
    wanted = _outcome(function, _fresh(args))
    for engine in ENGINES:
        _compare(_outcome(tn.jit(function), _on(args, engine)), wanted)


def _fresh(x: Any) -> Any:
    if isinstance(x, tuple | list):
        return type(x)(map(_fresh, x))
    return x.copy() if isinstance(x, np.ndarray) else x


def _on(x: Any, engine: str) -> Any:
    if isinstance(x, tuple | list):
        return type(x)(_on(i, engine) for i in x)
    return tn.array(x, engine=engine) if isinstance(x, np.ndarray) else x


def _outcome(function: Callable[..., Any], args: Any) -> Any:
    try:
        with np.errstate(all="ignore"):
            return function(*args)
    except BUILT_IN as error:
        return error


def _compare(found: Any, wanted: Any) -> None:
    if isinstance(wanted, Exception):
        assert isinstance(found, TenferroError), f"{found!r} for {wanted!r}"
        kinds = [k for k in BUILT_IN if isinstance(wanted, k)]
        assert all(isinstance(found, k) for k in kinds), f"{found!r} for {wanted!r}"
        assert " (at " in str(found), found
        return
    if isinstance(found, Exception):
        raise AssertionError(f"{found!r} for {wanted!r}") from found
    if isinstance(wanted, tuple | list):
        assert len(found) == len(wanted)
        for pair in zip(found, wanted, strict=True):
            _compare(*pair)
        return
    found, wanted = np.asarray(found), np.asarray(wanted)
    assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape), f"{found!r} for {wanted!r}"
    tolerance = 50 * float(np.finfo(wanted.dtype).eps) if wanted.dtype.kind in "fc" else 0
    np.testing.assert_allclose(found, wanted, rtol=tolerance, atol=0)
    for part in ("real", "imag"):
        given, needed = getattr(found, part), getattr(wanted, part)
        zeros = needed == 0
        assert (np.signbit(given[zeros]) == np.signbit(needed[zeros])).all(), f"{found!r} for {wanted!r}"
