"""What a forked child must not inherit: locks that a thread held which does not exist there, and that thread's work.

One handler serves the process. Locks given to ``held`` are taken before a fork and let go after it; in the child every
``Renewed`` gets a new lock, then the objects given to ``told`` and the functions given to ``in_child`` are called.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from typing import Any, Protocol


class Forked(Protocol):
    """What puts itself right in a forked child."""

    def after_fork(self) -> None:
        """In the child, where this thread is the only one."""


class Renewed:
    """A lock, for ``with renewed.lock:``. A child has another one; a block that is open there leaves the one that it
    entered."""

    __slots__ = ("__weakref__", "_make", "lock")

    def __init__(self, make: Callable[[], Any] = threading.Lock) -> None:
        self._make = make
        self.lock = make()
        _renewed.add(self)

    def after_fork(self) -> None:
        """Another lock: nobody would let go of the old one."""
        self.lock = self._make()


class Shared:
    """A lock, given to ``held``, that many threads hold at once, by ``with shared.own():``, and a fork when none of
    them does but its own. An interrupt leaves no thread a holder: no Python code runs between taking and letting go."""

    def __init__(self) -> None:
        self._first = threading.RLock()
        self._locks: dict[int, Any] = {}  # of each thread that has ever held it; numbers of threads come again

    def own(self) -> Any:
        """The calling thread's part."""
        here = threading.get_ident()
        found = self._locks.get(here)  # without the other lock: who holds a part may ask again while a fork waits
        if found is None:
            with self._first:
                found = self._locks.setdefault(here, threading.RLock())
        return found

    def acquire(self) -> None:
        """All parts."""
        self._first.acquire()
        for lock in self._locks.values():
            lock.acquire()

    def release(self) -> None:
        """The reverse."""
        for lock in self._locks.values():
            lock.release()
        self._first.release()


_renewed: weakref.WeakSet[Renewed] = weakref.WeakSet()
_told: weakref.WeakSet[Any] = weakref.WeakSet()
_calls: list[Callable[[], None]] = []
_held: list[Any] = []


def told(x: Forked) -> None:
    """Call ``x.after_fork()`` in every child, as long as there is an x."""
    _told.add(x)


def in_child(call: Callable[[], None]) -> Callable[[], None]:
    """Call this function in every child; functions in the order in which they were given."""
    _calls.append(call)
    return call


def held(lock: Any) -> None:
    """Take this lock before every fork, so that what it guards is whole in the child. Locks that are held while another
    is taken are given later than that one."""
    _held.append(lock)


def _before() -> None:
    for lock in reversed(_held):
        lock.acquire()


def _released() -> None:
    for lock in _held:
        lock.release()


def _in_child() -> None:
    _released()
    for x in (*_renewed, *_told):
        x.after_fork()
    for call in _calls:
        call()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before, after_in_parent=_released, after_in_child=_in_child)
