"""Keys and producers in, prepared values out: each key is produced once, however many threads ask.

Bounded by entries (least recently used go first). Deterministic failures are remembered and raised again; after any
other failure the next thread tries for itself. A producer that finishes after ``clear`` gives its result to its own
callers and leaves nothing behind.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from tenferro.tracer.errors import LoweringError

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts since the start. ``waits``: on another thread's attempt; ``negative_hits``: failures raised again."""

    entries: int = 0
    hits: int = 0
    misses: int = 0
    waits: int = 0
    negative_hits: int = 0
    preparations: int = 0
    evictions: int = 0
    in_flight: int = 0


@dataclass(eq=False)
class _Attempt(Generic[V]):
    """One production under way, or done."""

    done: threading.Event = field(default_factory=threading.Event)
    value: V | None = None
    failure: BaseException | None = None


_every: weakref.WeakSet[PreparedCache[Any]] = weakref.WeakSet()


class PreparedCache(Generic[V]):
    """A single-flight cache. ``deterministic``: the failures that would come again and are therefore kept."""

    def __init__(
        self, max_entries: int = 128, deterministic: tuple[type[BaseException], ...] = (LoweringError,)
    ) -> None:
        if max_entries < 1:
            raise ValueError(f"PreparedCache: max_entries is {max_entries}; at least 1 is needed")
        self._max_entries = max_entries
        self._deterministic = deterministic
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Attempt[V]] = OrderedDict()
        self._stats = CacheStats()
        self._producing = threading.local()
        _every.add(self)

    def get(self, key: Hashable, produce: Callable[[], V]) -> V:
        """The value of ``key``; ``produce`` runs at most once at a time per key, outside the lock.

        LoweringError if a producer asks the same cache for its own key."""
        while True:
            attempt, mine = self._find(key)
            if mine:
                return self._produce(key, attempt, produce)
            if attempt in self._stack():
                raise LoweringError("prepare: a program is being prepared from inside its own preparation")
            attempt.done.wait()
            if attempt.value is not None:
                return attempt.value
            if isinstance(attempt.failure, self._deterministic):
                # Each thread raises its own: one exception object would collect the tracebacks of all of them.
                raise copy(attempt.failure) from attempt.failure

    def _find(self, key: Hashable) -> tuple[_Attempt[V], bool]:
        """The attempt at this key, and whether the caller has to make it."""
        with self._lock:
            attempt = self._entries.get(key)
            if attempt is not None:
                self._entries.move_to_end(key)
                self._count_found(attempt)
                return attempt, False
            attempt = _Attempt[V]()
            self._entries[key] = attempt
            self._count(misses=1, preparations=1, in_flight=1)
            return attempt, True

    def _stack(self) -> list[_Attempt[V]]:
        if not hasattr(self._producing, "stack"):
            self._producing.stack = []
        stack: list[_Attempt[V]] = self._producing.stack
        return stack

    def _produce(self, key: Hashable, attempt: _Attempt[V], produce: Callable[[], V]) -> V:
        stack = self._stack()
        stack.append(attempt)
        try:
            attempt.value = produce()
        except BaseException as failure:
            attempt.failure = failure
            raise
        finally:
            stack.pop()
            self._finish(key, attempt)
            attempt.done.set()
        return attempt.value

    def _finish(self, key: Hashable, attempt: _Attempt[V]) -> None:
        with self._lock:
            self._count(in_flight=-1)
            if self._entries.get(key) is not attempt:
                return  # cleared meanwhile
            if attempt.failure is not None and not isinstance(attempt.failure, self._deterministic):
                del self._entries[key]
            self._evict()

    def _evict(self) -> None:
        if len(self._entries) <= self._max_entries:
            return
        for key in [k for k, a in self._entries.items() if a.value is not None or a.failure is not None]:
            if len(self._entries) <= self._max_entries:
                return
            del self._entries[key]
            self._count(evictions=1)

    def _count_found(self, attempt: _Attempt[V]) -> None:
        if attempt.failure is not None:
            self._count(negative_hits=1)
        elif attempt.value is not None:
            self._count(hits=1)
        else:
            self._count(waits=1)

    def _count(self, **changes: int) -> None:
        self._stats = replace(self._stats, **{k: getattr(self._stats, k) + v for k, v in changes.items()})

    def stats(self) -> CacheStats:
        """The counts as they are now."""
        with self._lock:
            return replace(self._stats, entries=len(self._entries))

    def clear(self) -> None:
        """Forget every entry; the counts go on."""
        with self._lock:
            self._entries.clear()

    def after_fork(self) -> None:
        """In the child: attempts of threads that do not exist there would never end."""
        self._lock = threading.Lock()
        mine = self._stack()
        for key, attempt in list(self._entries.items()):
            if not attempt.done.is_set() and attempt not in mine:
                del self._entries[key]


def _after_fork() -> None:
    for cache in list(_every):
        cache.after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
