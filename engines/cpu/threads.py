"""The process's one thread pool, its Python half: how many threads a parallel region gets, and the threads themselves.

Python starts each worker at first need; the worker then stays in a native loop with the GIL released (``native_pool``).
"""

from __future__ import annotations

import atexit
import threading as python_threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache

from tenferro.engines.cpu import native
from tenferro.engines.cpu.machine import core_count
from tenferro.engines.cpu.native_pool import MAX_WORKERS
from tenferro.engines.cpu.native_prelude import HAS_FUTEX
from tenferro.tracer import switches
from tenferro.tracer.config import config
from tenferro.tracer.forking import in_child
from tenferro.tracer.lines import at, user_line

JOIN_SECONDS = 2.0


class _Pool:
    """The workers of this process; a forked child starts with an empty one."""

    def __init__(self) -> None:
        self.lock = python_threading.Lock()
        self.workers: list[python_threading.Thread] = []
        self.size = 1
        self.is_serial = not HAS_FUTEX


_pool = _Pool()
SCOPE: ContextVar[int | None] = ContextVar("tenferro_threads", default=None)
"""The number of threads that the scope sets, None outside of any."""


@contextmanager
def threads(n: int) -> Iterator[None]:
    """Parallel regions of this thread (or task) use up to ``n`` threads inside the scope; more than there are cores if
    asked.

    Results are the same at any number. Raises ValueError outside 1 to 4095."""
    if isinstance(n, bool) or not isinstance(n, int) or not 1 <= n <= MAX_WORKERS:
        raise ValueError(f"threads: n is {n!r}; an int from 1 to {MAX_WORKERS} is needed{at(user_line())}")
    token = SCOPE.set(n)
    try:
        with switches.scoped():
            yield
    finally:
        SCOPE.reset(token)


def limit() -> int:
    """How many threads there may be here and now; none is started."""
    return SCOPE.get() or default_count()


def count(share: int | None = None) -> int:
    """How many threads a parallel region may use here and now, with the workers for it started: the scope's number,
    else all; at most ``share``.

    1 where the system has no futex to park workers on, and after the pool was stopped at exit."""
    return _granted(SCOPE.get() or default_count(), share)


def usual_count(share: int | None = None) -> int:
    """``count`` outside of any scope."""
    return _granted(default_count(), share)


def _granted(wanted: int, share: int | None) -> int:
    if share is not None and share < wanted:
        wanted = share
    if wanted > _pool.size:
        _start(wanted - 1)
    return 1 if _pool.is_serial else wanted


def _start(wanted: int) -> None:
    if _pool.is_serial:
        return
    worker = native.function("worker", release_gil=True)
    with _pool.lock:
        while len(_pool.workers) < wanted and not _pool.is_serial:
            name = f"tenferro-worker-{len(_pool.workers)}"
            thread = python_threading.Thread(target=_work, args=(worker,), name=name, daemon=True)
            try:
                thread.start()
            except RuntimeError:
                return  # The system grants no more threads; regions run on those there are.
            _pool.workers.append(thread)
            _pool.size = len(_pool.workers) + 1
            switches.set_workers(_pool.size)


def _work(worker: Callable[[int], int]) -> None:
    worker(python_threading.get_native_id())


def _stop() -> None:
    """End the workers before the interpreter goes: a thread must not come out of native code into a dead
    interpreter."""
    with _pool.lock:
        _pool.is_serial = True
        workers = list(_pool.workers)
    if not workers:
        return
    native.function("stop_workers")()
    for thread in workers:
        thread.join(JOIN_SECONDS)


@in_child
def _renew() -> None:
    global _pool
    _pool = _Pool()
    switches.set_workers(1)


switches.set_workers(1)
atexit.register(_stop)


@cache
def default_count() -> int:
    """``TENFERRO_NUM_THREADS``, else the cores that affinity and cgroup quota leave to this process."""
    settings = config()
    if settings.num_threads is not None:
        return settings.num_threads
    return core_count()
