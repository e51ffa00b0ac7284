"""Work that no Ctrl-C may meet, from a function to its result: on a thread, for signals reach the main thread alone.

llvmlite takes and lets go of its lock, and of what LLVM has made, in Python. An interrupt between two of these steps
would leave the lock held for good, or free a module after its context, which ends the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_spent = threading.local()


def uninterrupted(work: Callable[[], T]) -> T:
    """What ``work`` returns or raises. An interrupt of the caller is told at once; the work goes on to its end."""
    results: list[T] = []
    failures: list[BaseException] = []
    seconds: list[float] = []

    def run() -> None:
        try:
            results.append(work())
        except BaseException as error:
            failures.append(error)
        finally:
            seconds.append(time.thread_time())

    thread = threading.Thread(target=run, name="tenferro-llvm", daemon=True)
    try:
        thread.start()
    except RuntimeError:  # the system grants no more threads
        return work()
    thread.join()
    _spent.seconds = getattr(_spent, "seconds", 0.0) + sum(seconds)
    if failures:
        raise failures[0]
    return results[0]


def thread_seconds() -> float:
    """The processor's time of this thread, and of those that worked for it here."""
    return time.thread_time() + float(getattr(_spent, "seconds", 0.0))
