"""``disable_jit``: inside, jitted functions are called as the Python functions that they are."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from tenferro.tracer import switches

if TYPE_CHECKING:
    from tenferro.jit import JitFunction

_disabled: ContextVar[bool] = ContextVar("tenferro_jit_disabled", default=False)


@contextmanager
def disable_jit(disable: bool = True) -> Iterator[None]:
    """Call jitted functions as Python functions in this context: debuggers and ``print`` see arrays.

    On NumPy arrays NumPy computes, on ``tn.Array`` one operation runs after the other. ``scan``, ``while_loop``,
    ``fori_loop``, ``map``, ``cond`` and ``switch`` call their functions turn by turn, on ``tn.Array``s and Python's
    ints. Derivatives and the like are still traced, call by call. ``disable=False`` inside turns jit on again."""
    token = _disabled.set(disable)
    switches.pause()  # native calls ask nobody
    try:
        yield
    finally:
        switches.resume()
        _disabled.reset(token)


def is_on() -> bool:
    """Whether functions run as Python's in this context."""
    return _disabled.get()


def is_disabled(function: JitFunction) -> bool:
    """Whether calls in this context are to be plain ones; operations on ``tn.Array`` never are."""
    _, is_eager, *_ = function._settings
    return _disabled.get() and not is_eager


def plainly(function: JitFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The call as one of the Python function, or of what a transformation makes of it."""
    around = function._around
    if around is None:
        return function.__wrapped__(*args, **kwargs)
    from tenferro import once

    return once.call(around(function.__wrapped__), args, kwargs, function.__name__)
