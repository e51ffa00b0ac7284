"""What the native way of calls looks at before anything else: whether there is a reason to leave it, and an epoch.

While a function is traced a call of another is a part of it: calls then go the long way, in every thread. What native
calls rely on beyond their arguments (engines, the runtime's configuration) changes with an epoch, and they forget.
Where some thread is in a scope of ``tn.threads``, they ask how many threads they may use.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tenferro.tracer.forking import Renewed, in_child

_words = (ctypes.c_int64 * 4)()
_PAUSES, _EPOCH, _SCOPES, _WORKERS = range(4)


class _Here(threading.local):
    pauses = 0
    scopes = 0


_held = Renewed()
_here = _Here()


def address() -> int:
    """Of the words: how many reasons there are to pause, the epoch, how many scopes set a number of threads, and how
    many threads have been started, the caller's own among them."""
    return ctypes.addressof(_words)


@contextmanager
def paused() -> Iterator[None]:
    """Calls of jitted functions go the long way, in every thread."""
    pause()
    try:
        yield
    finally:
        resume()


def pause() -> None:
    """Have calls go the long way until ``resume`` is called as often as this."""
    _add(1)


def resume() -> None:
    """Take one reason back, on the thread that gave it."""
    _add(-1)


def _add(change: int) -> None:
    with _held.lock:
        _words[_PAUSES] += change
        _here.pauses += change


@contextmanager
def scoped() -> Iterator[None]:
    """Native calls ask for their number of threads, in every thread."""
    _add_scope(1)
    try:
        yield
    finally:
        _add_scope(-1)


def _add_scope(change: int) -> None:
    with _held.lock:
        _words[_SCOPES] += change
        _here.scopes += change


def set_workers(threads: int) -> None:
    """So many threads have been started; where more are wanted, Python is to start them."""
    _words[_WORKERS] = threads


def is_paused() -> bool:
    """Whether there is a reason to leave the native way now."""
    return _words[_PAUSES] != 0


def epoch() -> int:
    """The epoch now."""
    return _words[_EPOCH]


def forget() -> None:
    """Begin another epoch: what native calls relied on has changed."""
    with _held.lock:
        _words[_EPOCH] += 1


@in_child
def _after_fork() -> None:
    """The child has this thread's reasons alone."""
    _words[_PAUSES], _words[_SCOPES] = max(0, _here.pauses), max(0, _here.scopes)
