"""Donated arguments when something goes wrong: they are whole, or wholly new."""

from __future__ import annotations

import signal
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu import donating, memory as pool, toolchain
from tests.api.test_donation import N, array
from tests.table.agreement import bits

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)


def test_checks_come_first() -> None:
    def f(x, i, d):
        total = np.take(x, i, axis=0).sum() + (i // d).sum()
        x *= 2
        return total

    jitted = tn.jit(f, donate_argnums=0)
    good, one = np.array([0, 1]), np.array([1, 1])
    x = array()
    assert jitted.lower(x, good, one).donations()[0].honoured
    for _ in range(3):
        jitted(x, good, one)
        x = array()
        with pytest.raises(IndexError):
            jitted(x, np.array([0, N]), one)
        with np.errstate(divide="raise"), pytest.raises(ZeroDivisionError):
            jitted(x, good, np.array([1, 0]))
        assert bits(x, array()) is None
        with np.errstate(divide="ignore"):
            jitted(x, good, np.array([1, 0]))
        assert bits(x, array() * 2) is None


def test_without_memory_nothing_is_written() -> None:
    def f(x, g):
        t = np.exp(g)
        x *= 2
        return t @ x, x

    jitted = tn.jit(f, donate_argnums=0)
    x, g = np.ones((512, 512)), np.ones((512, 512))
    before = pool.default_bounds()
    jitted(x, g)
    x = np.ones((512, 512))
    pool.trim()
    pool.set_bounds(before[0], pool.stats().live + (1 << 20))
    try:
        with pytest.raises(tn.MemoryLimitError):
            jitted(x, g)
        assert (x == 1).all()
    finally:
        pool.set_bounds(*before)


def test_much_work_after_the_write_is_not_held_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def f(x, g):
        x *= 2
        return x @ g @ g

    monkeypatch.setattr(donating, "LONGEST_SECONDS", 1e-9)
    monkeypatch.setattr(donating, "MOST_TURNS", 1e-9)
    (told,) = tn.jit(f, donate_argnums=0).lower(array(), array(1)).donations()
    assert told.reason == "what is computed meanwhile would hold back an interrupt for too long"


class _Alarm(Exception):
    pass


def test_an_interrupt_leaves_old_or_new_and_nothing_between() -> None:
    """A kernel of some 0.1 s is interrupted at many of its moments."""

    def f(x):
        x[...] = np.sin(np.exp(np.cos(x) * 2) + np.tanh(x))

    def ring(number: int, frame: Any) -> None:
        raise _Alarm

    jitted = tn.jit(f, donate_argnums=0)
    x = np.zeros(4_000_000)
    expected = np.zeros(1)
    f(expected)
    jitted(x)
    np.testing.assert_allclose(x, expected[0])
    before = signal.signal(signal.SIGALRM, ring)
    outcomes = set()
    try:
        for turn in range(10):
            x[:] = 0
            signal.setitimer(signal.ITIMER_REAL, 0.008 * (turn + 1))
            try:
                jitted(x)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except _Alarm:
                outcomes.add(float(x[0]) != 0)
            assert (x == x[0]).all(), turn
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert outcomes, "no interrupt came"
