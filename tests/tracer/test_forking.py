"""A forked child works, whatever other threads held when it was made."""

from __future__ import annotations

import ast
import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer import forking, switches

if not hasattr(os, "fork"):
    pytest.skip("this system does not fork", allow_module_level=True)

pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")


def in_child(check: Callable[[], bool]) -> bool:
    """What the check says in a forked child; False if it says nothing within ten seconds."""
    child = os.fork()
    if not child:
        signal.alarm(10)
        try:
            os._exit(0 if check() else 1)
        except BaseException:
            os._exit(2)
    return os.waitpid(child, 0)[1] == 0


class Holding:
    """Another thread holds these locks meanwhile."""

    def __init__(self, *locks: object) -> None:
        self._locks, self._begun, self._over = locks, threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._hold)

    def _hold(self) -> None:
        with ExitStack() as stack:
            for lock in self._locks:
                stack.enter_context(lock)  # type: ignore[arg-type]
            self._begun.set()
            self._over.wait()

    def __enter__(self) -> None:
        self._thread.start()
        assert self._begun.wait(5)

    def __exit__(self, *error: object) -> None:
        self._over.set()
        self._thread.join()


def _free(renewed: forking.Renewed) -> bool:
    return bool(renewed.lock.acquire(timeout=1)) and renewed.lock.release() is None


@pytest.mark.parametrize("make", [threading.Lock, threading.RLock])
def test_another_threads_lock_is_free_in_the_child(make: Callable[[], object]) -> None:
    renewed = forking.Renewed(make)
    with Holding(renewed.lock):
        assert in_child(lambda: _free(renewed))
        assert not _free(renewed)
    assert _free(renewed)


def test_a_block_that_is_open_ends_in_the_child_too() -> None:
    renewed = forking.Renewed()

    def leave() -> bool:
        stack.close()
        return _free(renewed)

    with ExitStack() as stack:
        stack.enter_context(renewed.lock)
        assert in_child(leave)


def test_what_is_told_and_in_which_order() -> None:
    seen: list[str] = []

    class Object:
        def after_fork(self) -> None:
            seen.append("object" if _free(renewed) else "locked")

    renewed, known = forking.Renewed(), Object()
    forking.told(known)
    forking.in_child(lambda: seen.append("first"))
    forking.in_child(lambda: seen.append("second"))
    with Holding(renewed.lock):
        assert in_child(lambda: seen[-3:] == ["object", "first", "second"])
    assert seen == []
    del known
    assert in_child(lambda: seen[-2:] == ["first", "second"] and "object" not in seen)


def test_a_held_lock_is_waited_for() -> None:
    lock = threading.RLock()
    forking.held(lock)
    with Holding(lock):
        waited = threading.Thread(target=lambda: in_child(lambda: True))
        waited.start()
        waited.join(0.3)
        assert waited.is_alive()
    waited.join(10)
    assert not waited.is_alive() and lock.acquire(timeout=1)
    lock.release()
    forking._held.remove(lock)


@contextmanager
def part_of(shared: forking.Shared) -> Iterator[None]:
    """The part of the thread that enters."""
    with shared.own():
        yield


def test_a_lock_that_many_share_is_waited_for_by_a_fork_alone() -> None:
    shared = forking.Shared()
    forking.held(shared)
    try:
        with shared.own(), shared.own():
            assert in_child(lambda: True)  # its own thread's
            with Holding(part_of(shared)):  # beside this thread
                waited = threading.Thread(target=lambda: in_child(lambda: True))
                waited.start()
            waited.join(0.3)
            assert waited.is_alive()
        waited.join(10)
        assert not waited.is_alive()

        def taken() -> bool:
            with shared.own():
                return True

        assert in_child(taken)
    finally:
        forking._held.remove(shared)


def test_all_locks_of_the_package_are_renewed() -> None:
    """A child traces, compiles and runs although another thread was in the middle of everything."""
    warm = tn.jit(lambda x: np.tanh(x) + 1)
    x = np.linspace(0, 1, 50)
    wanted = warm(x)

    def works() -> bool:
        new = tn.jit(lambda x: (np.tanh(x) + 1) * 2)
        eager = np.tanh(tn.asarray(x)) + 1
        return bool((new(x) == wanted * 2).all() and (np.asarray(eager) == wanted).all() and (warm(x) == wanted).all())

    with Holding(*[r.lock for r in list(forking._renewed)]):
        assert in_child(works)


def test_another_threads_trace_leaves_nothing_behind() -> None:
    begun, over = threading.Event(), threading.Event()

    def slow(x: object) -> object:
        begun.set()
        over.wait(10)
        return x

    thread = threading.Thread(target=lambda: tn.jit(slow)(np.ones(3)))
    original = np.zeros
    thread.start()
    assert begun.wait(5) and np.zeros is not original
    try:
        assert in_child(lambda: np.zeros is original and not switches.is_paused())
    finally:
        over.set()
        thread.join()
    assert np.zeros is original


def test_one_handler_serves_the_process(root: Path) -> None:
    found = []
    for folder in ("tracer", "lowering", "engines", "tenferro"):
        for path in (root / folder).rglob("*.py"):
            names = {n.attr for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.Attribute)}
            found += [path.name] if "register_at_fork" in names else []
    assert found == ["forking.py"]
