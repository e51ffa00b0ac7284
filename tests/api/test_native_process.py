"""Native calls under signals, in forked children, of functions that die, of objects laid out otherwise; and many."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.api.native import native_hits, same, served

x, y = np.arange(6.0).reshape(2, 3), np.arange(6.0, 12.0).reshape(2, 3)

REFUSED = """
import numpy as np, tenferro as tn
from tenferro.engines.cpu import native_entry, native_match, native_types
module, name = CHANGED.split(".")
module = {"entry": native_entry, "match": native_match, "types": native_types}[module]
setattr(module, name, getattr(module, name) + 8)
class Model:
    def __init__(self): self.w = np.arange(3.0)
    @tn.jit
    def step(self, v): return v * self.w
scale = 2.0
f, model, v = tn.jit(lambda a, p: (a * scale + p[0], a.T)), Model(), np.arange(3.0)
a = tn.asarray(v)
for _ in range(20):
    assert f(v, (v,))[0].tolist() == [0.0, 3.0, 6.0] and model.step(v).tolist() == [0.0, 1.0, 4.0]
    assert (a + a).tolist() == [0.0, 2.0, 4.0]
print(tn.list_engines(), f._shortcuts is None, Model.step._shortcuts is None)
"""


@pytest.mark.parametrize(
    ("changed", "engine"),
    [
        ("entry.DATA_AT", "reference:0"), ("entry.HANDLER_AT", "reference:0"), ("match.ITEMS_AT", "cpu:0"),
        ("match.SIZE_AT", "cpu:0"), ("match.CONTENT_AT", "cpu:0"), ("match.SIZES_AT", "cpu:0"),
        ("match.REFERENT_AT", "cpu:0"), ("types.SLOT_AT", "cpu:0"), ("types.FUNCTION_AT", "cpu:0"),
    ],
)  # fmt: skip
def test_objects_that_are_laid_out_otherwise(changed, engine):
    """Whatever is not where it is looked for: the same answers, the long way."""
    code = REFUSED.replace("CHANGED", repr(changed))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == f"['{engine}'] True True\n", done.stderr


class Alarm(Exception):
    """What a signal's handler raises."""


def alarmed(handler: Callable[[], Any], call: Callable[[], Any]) -> Any:
    """A call with a signal in its middle."""
    before = signal.signal(signal.SIGALRM, lambda *_: handler())
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        return call()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def long_run() -> tuple[Any, np.ndarray[Any, Any], float]:
    """A function of which one native call takes a few tenths of a second, and an argument."""

    def f(a: Any) -> Any:
        for _ in range(40):
            a = np.sin(a) * 1.25
        return a

    jitted, a = tn.jit(f), np.full(1 << 22, 0.5)
    served(jitted, a)
    start = time.perf_counter()
    jitted(a)
    return jitted, a, time.perf_counter() - start


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers here")
def test_signals_in_native_calls():
    f, a, seconds = long_run()
    expected = f(a)
    if seconds < 0.2:
        pytest.skip("the machine is too fast for a signal in the middle")
    calls: list[Any] = []

    def raising() -> None:
        raise Alarm

    before = [sys.getrefcount(o) for o in (f, a)]
    for _ in range(3):
        start = time.perf_counter()
        with pytest.raises(Alarm):
            alarmed(raising, lambda: f(a))
        assert time.perf_counter() - start < 0.05 + 0.1
    same(alarmed(lambda: calls.append(f(a[:100])), lambda: f(a)), expected)
    same(alarmed(lambda: calls.append(f.cache_clear()), lambda: f(a)), expected)
    assert len(calls) == 2
    same(served(f, a), expected)
    gc.collect()
    after = [sys.getrefcount(o) for o in (f, a)]
    assert all(abs(m - n) < 10 for m, n in zip(before, after, strict=True))


def test_a_function_dies_while_it_runs():
    holder, made, started = [], [], threading.Event()
    f, a, _ = long_run()
    expected = f(a)
    holder.append(f)
    alive = weakref.ref(f)

    def run() -> None:
        started.set()
        made.append(holder.pop()(a))

    thread = threading.Thread(target=run)
    thread.start()
    started.wait()
    time.sleep(0.02)
    f.cache_clear()
    del f
    gc.collect()
    thread.join()
    same(made[0], expected)
    gc.collect()
    assert alive() is None


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_forked_children_call_natively():
    code = (
        "import os, sys, numpy as np, tenferro as tn\n"
        "f = tn.jit(lambda a: (a * 2, a.T))\n"
        "for n in range(3, 30): f(np.ones(n))\n"
        "hits = f._shortcuts.hits\n"
        "pid = os.fork()\n"
        "if pid == 0:\n"
        "    ok = f(np.ones(200))[0].sum() == 400 and f._shortcuts.hits == hits + 1\n"
        "    os._exit(0 if ok else 1)\n"
        "_, status = os.waitpid(pid, 0)\n"
        "sys.exit(status or int(f(np.ones(5))[0].sum() != 10))\n"
    )
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


class Many:
    """Functions and arguments of every kind, a turn of calls of them, and calls that fail."""

    class Model:
        def __init__(self) -> None:
            self.w, self.rate = x.copy(), 0.5

        @tn.jit
        def step(self, v: Any) -> Any:
            return v * self.w * self.rate

    def __init__(self) -> None:
        self.pair = tn.jit(lambda a, b: a + b)
        self.views = tn.jit(lambda a, p: (a.T, {"s": p[0] + a}, a, a.shape[0], None))
        self.pick = tn.jit(lambda a, i: a[i])
        self.model, self.wrapped, self.single = self.Model(), tn.asarray(y.copy()), np.arange(4.0)
        self.good, self.bad = np.array([3, 0]), np.array([4, 0])
        self.sizes = [np.ones(n) for n in range(2, 12)]
        self.rate = self.model.rate

    @property
    def functions(self) -> list[Any]:
        return [self.pair, self.views, self.pick, self.Model.step]

    @property
    def objects(self) -> list[Any]:
        """All that a call touches."""
        found: list[Any] = [x, y, self.model, self.model.w, self.rate, self.wrapped, self.wrapped._data]
        found += [self.wrapped._engine, x.dtype, self.good.dtype, self.single, self.good, self.bad, *self.sizes]
        pair: Any = self.pair
        return [*found, *self.functions, self.Model, None, True, pair._native]

    def turn(self) -> None:
        pair, views, wrapped = self.pair, self.views, self.wrapped
        for v in self.sizes:
            pair(v, v), pair(v, v), views(v, (v,)), wrapped + wrapped
        for _ in range(6):
            pair(x, y), pair(wrapped, wrapped), self.model.step(x), views(x, [y]), views(wrapped, (x,))
            self.pick(self.single, self.good), -wrapped, wrapped * 2.0, pair(1.5, x), pair(a=x, b=y)

    def fail(self) -> None:
        with pytest.raises(IndexError):
            self.pick(self.single, self.bad)
        with pytest.raises(TypeError):
            self.pair(x)
        with pytest.raises(ValueError):
            self.pair(x, self.sizes[5])
        self.model.rate = 0.25
        self.model.step(x)
        self.model.rate = self.rate


def test_a_million_calls():
    """Not one reference or block of memory is lost or kept, errors included."""
    many = Many()
    for _ in range(300):
        many.turn()
    many.fail()
    objects = many.objects
    gc.collect()
    counts, blocks = [sys.getrefcount(o) for o in objects], sys.getallocatedblocks()
    hits = sum(map(native_hits, many.functions))
    for k in range(10_000):
        many.turn()
        if k % 50 == 0:
            many.fail()
    gc.collect()
    assert sum(map(native_hits, many.functions)) > hits + 700_000
    assert max(abs(sys.getrefcount(o) - n) for o, n in zip(objects, counts, strict=True)) < 100
    assert abs(sys.getallocatedblocks() - blocks) < 2000
