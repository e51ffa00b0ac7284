"""Keys and producers in, prepared values out: each key is produced once, however many threads ask.

Bounded by entries and bytes (least recently used go first) and by how many are produced at a time; further keys wait
their turn, in order. Deterministic failures are remembered and raised again; after any other failure the next thread
tries for itself. A producer that finishes after ``clear`` gives its result to its own callers and leaves nothing
behind.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import field, replace
from typing import Any, Generic, TypeVar

from tenferro.engines.errors import CapacityError, RecursionRefusedError
from tenferro.runtime.identity import check_number
from tenferro.tracer import forking
from tenferro.tracer.errors import LoweringError
from tenferro.tracer.records import dataclass

V = TypeVar("V")
TRANSIENT: tuple[type[BaseException], ...] = (CapacityError, RecursionRefusedError)
"""Refusals of the moment among the failures that would otherwise be remembered."""


@dataclass(frozen=True, slots=True)
class CacheStats:
    """Counts since the start, but for ``entries``, ``bytes``, ``in_flight`` and ``queued``, which are of now.

    ``waits``: on another thread's attempt; ``negative_hits``: failures raised again; ``peak``: most in flight at once;
    ``refusals``: for want of capacity."""

    entries: int = 0
    bytes: int = 0
    hits: int = 0
    misses: int = 0
    waits: int = 0
    negative_hits: int = 0
    preparations: int = 0
    evictions: int = 0
    in_flight: int = 0
    peak: int = 0
    queued: int = 0
    refusals: int = 0


@dataclass(frozen=True, slots=True)
class Limits:
    """``entries`` and ``bytes`` kept; ``in_flight``: productions at a time; ``queued``: keys that may wait for one."""

    entries: int = 128
    bytes: int = 64 << 20
    in_flight: int = 16
    queued: int = 64

    def __post_init__(self) -> None:
        for name, value in (("entries", self.entries), ("bytes", self.bytes), ("in_flight", self.in_flight)):
            check_number("PreparedCache", name, value, 1)
        check_number("PreparedCache", "queued", self.queued, 0)


@dataclass(eq=False)
class _Attempt(Generic[V]):
    """One production under way, or done. ``turn``: set when it may begin."""

    turn: threading.Event = field(default_factory=threading.Event)
    done: threading.Event = field(default_factory=threading.Event)
    value: V | None = None
    failure: BaseException | None = None
    ended: bool = False
    bytes: int = 0


_DEFAULT_LIMITS = Limits()


def _weightless(key: Any, value: Any) -> int:
    return 0


class PreparedCache(Generic[V]):
    """A single-flight cache. ``deterministic``: the failures that would come again and are therefore kept. ``weigh``:
    the bytes that a key and its value keep alive."""

    def __init__(
        self,
        limits: Limits = _DEFAULT_LIMITS,
        weigh: Callable[[Any, V], int] = _weightless,
        deterministic: tuple[type[BaseException], ...] = (LoweringError,),
    ) -> None:
        self._limits = limits
        self._weigh = weigh
        self._deterministic = deterministic
        self._lock = threading.Lock()
        self._entries: OrderedDict[Hashable, _Attempt[V]] = OrderedDict()
        self._queue: deque[_Attempt[V]] = deque()
        self._stats = CacheStats()
        self._producing = threading.local()
        forking.told(self)

    def get(self, key: Hashable, produce: Callable[[], V], refuse: bool = False) -> V:
        """The value of ``key``; ``produce`` runs at most once at a time per key, outside the lock. Where as many are
        being produced as may, it waits for its turn.

        RecursionRefusedError for a producer that asks the same cache for anything that is not there. CapacityError
        where it would have to wait for its turn and ``refuse`` is set, or where too many wait already."""
        while True:
            attempt, mine = self._find(key, refuse)
            if mine:
                return self._produce(key, attempt, produce)
            if not attempt.done.is_set():
                self._refuse_recursion()
                attempt.done.wait()
            if attempt.failure is None:
                return attempt.value  # type: ignore[return-value]  # done without a failure
            if self._is_kept(attempt.failure):
                # Each thread raises its own: one exception object would collect the tracebacks of all of them.
                raise copy(attempt.failure) from attempt.failure

    def _is_kept(self, failure: BaseException | None) -> bool:
        return isinstance(failure, self._deterministic) and not isinstance(failure, TRANSIENT)

    def _mine(self) -> _Attempt[V] | None:
        """What this thread is producing."""
        return getattr(self._producing, "attempt", None)

    def _refuse_recursion(self) -> None:
        if self._mine() is not None:
            raise RecursionRefusedError("prepare: a program is being prepared from inside a preparation")

    def _find(self, key: Hashable, refuse: bool) -> tuple[_Attempt[V], bool]:
        """The attempt at this key, and whether the caller has to make it."""
        with self._lock:
            attempt = self._entries.get(key)
            if attempt is not None:
                self._entries.move_to_end(key)
                self._count_found(attempt)
                return attempt, False
            self._refuse_recursion()
            self._admit_one(refuse)
            attempt = _Attempt[V]()
            self._entries[key] = attempt
            if self._stats.in_flight < self._limits.in_flight and not self._queue:
                self._begin(attempt)
            else:
                self._queue.append(attempt)
            self._count(misses=1, preparations=1)
            return attempt, True

    def _admit_one(self, refuse: bool) -> None:
        full = self._stats.in_flight >= self._limits.in_flight or bool(self._queue)
        if full and (refuse or len(self._queue) >= self._limits.queued):
            self._count(refusals=1)
            raise CapacityError(
                f"prepare: {self._stats.in_flight} programs are being prepared and {len(self._queue)} wait; "
                f"{self._limits.in_flight} and {self._limits.queued} may"
            )

    def _begin(self, attempt: _Attempt[V]) -> None:
        running = self._stats.in_flight + 1
        self._stats = replace(self._stats, in_flight=running, peak=max(self._stats.peak, running))
        attempt.turn.set()

    def _produce(self, key: Hashable, attempt: _Attempt[V], produce: Callable[[], V]) -> V:
        self._producing.attempt = attempt
        try:
            attempt.turn.wait()
            attempt.value = produce()
        except BaseException as failure:
            attempt.failure = failure
            raise
        finally:
            self._producing.attempt = None
            try:
                self._finish(key, attempt)
            finally:
                attempt.done.set()
        return attempt.value

    def _finish(self, key: Hashable, attempt: _Attempt[V]) -> None:
        weight = self._weigh(key, attempt.value) if attempt.failure is None else 0  # type: ignore[arg-type]
        with self._lock:
            attempt.ended = True
            self._end(attempt)
            if self._entries.get(key) is not attempt:
                return  # cleared meanwhile
            if attempt.failure is not None and not self._is_kept(attempt.failure):
                del self._entries[key]
                return
            attempt.bytes = weight
            self._count(bytes=weight)
            self._evict()

    def _end(self, attempt: _Attempt[V]) -> None:
        """One less in flight; whoever waits longest begins."""
        if not attempt.turn.is_set():  # interrupted while it waited
            self._queue.remove(attempt)
            return
        self._count(in_flight=-1)
        while self._queue and self._stats.in_flight < self._limits.in_flight:
            self._begin(self._queue.popleft())

    def _evict(self) -> None:
        if len(self._entries) <= self._limits.entries and self._stats.bytes <= self._limits.bytes:
            return
        for key, attempt in [(k, a) for k, a in self._entries.items() if a.ended]:
            if len(self._entries) <= self._limits.entries and self._stats.bytes <= self._limits.bytes:
                return
            del self._entries[key]
            self._count(evictions=1, bytes=-attempt.bytes)

    def _count_found(self, attempt: _Attempt[V]) -> None:
        if attempt.failure is not None:
            self._count(negative_hits=1)
        elif attempt.ended:
            self._count(hits=1)
        else:
            self._count(waits=1)

    def _count(self, **changes: int) -> None:
        self._stats = replace(self._stats, **{k: getattr(self._stats, k) + v for k, v in changes.items()})

    def limit(self, limits: Limits) -> None:
        """Other limits from now on; what is beyond them goes at once."""
        with self._lock:
            self._limits = limits
            self._evict()
            while self._queue and self._stats.in_flight < limits.in_flight:
                self._begin(self._queue.popleft())

    def stats(self) -> CacheStats:
        """The counts as they are now."""
        with self._lock:
            return replace(self._stats, entries=len(self._entries), queued=len(self._queue))

    def clear(self) -> None:
        """Forget every entry; the counts go on."""
        with self._lock:
            self._entries.clear()
            self._stats = replace(self._stats, bytes=0)

    def after_fork(self) -> None:
        """In the child: attempts of threads that do not exist there would never end."""
        self._lock = threading.Lock()
        self._queue.clear()
        mine = self._mine()
        self._stats = replace(self._stats, in_flight=int(mine is not None))
        for key, attempt in list(self._entries.items()):
            if not attempt.done.is_set() and attempt is not mine:
                del self._entries[key]
