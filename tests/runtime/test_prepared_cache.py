"""The cache of prepared programs: one producer per key, bounded, remembering what fails every time."""

from __future__ import annotations

import threading

import pytest

from tenferro.runtime import Limits, PreparedCache
from tenferro.tracer.errors import LoweringError


def test_produces_once():
    cache = PreparedCache()
    made = []
    for _ in range(3):
        assert cache.get("k", lambda: made.append(1) or "value") == "value"
    stats = cache.stats()
    assert len(made) == 1 and (stats.hits, stats.misses, stats.entries) == (2, 1, 1)


def test_single_flight():
    cache = PreparedCache()
    started, go = threading.Event(), threading.Event()
    made, results = [], []

    def produce():
        made.append(1)
        started.set()
        go.wait(5)
        return "value"

    def work():
        results.append(cache.get("k", produce))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    started.wait(5)
    while cache.stats().waits < 3:
        pass
    go.set()
    for t in threads:
        t.join()
    assert len(made) == 1 and results == ["value"] * 4


def test_deterministic_failure_is_remembered():
    cache = PreparedCache()
    tries = []

    def fail():
        tries.append(1)
        raise LoweringError("cannot")

    for _ in range(2):
        with pytest.raises(LoweringError, match="cannot"):
            cache.get("k", fail)
    assert len(tries) == 1 and cache.stats().negative_hits == 1


def test_other_failures_are_forgotten():
    cache = PreparedCache()
    with pytest.raises(MemoryError):
        cache.get("k", lambda: (_ for _ in ()).throw(MemoryError("full")))
    assert cache.get("k", lambda: 1) == 1


def test_least_recently_used_go():
    cache = PreparedCache(Limits(entries=2))
    for key in ("a", "b", "a", "c"):
        cache.get(key, key.upper)
    made = []
    cache.get("a", lambda: made.append("a") or "a")
    cache.get("b", lambda: made.append("b") or "b")
    assert made == ["b"] and cache.stats().evictions == 2


def test_clear_during_production():
    cache = PreparedCache()

    def produce():
        cache.clear()
        return 1

    assert cache.get("k", produce) == 1
    assert cache.stats().entries == 0


def test_recursion_is_refused():
    cache = PreparedCache()
    with pytest.raises(LoweringError, match="inside a preparation"):
        cache.get("k", lambda: cache.get("k", lambda: 1))


def test_bound_is_checked():
    with pytest.raises(ValueError, match="entries is 0"):
        PreparedCache(Limits(entries=0))
