"""Calls that never enter Python: the same results, errors and counts as the long way, from whatever they are given."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.errors import BrokenEngineError
from tenferro.tracer import switches
from tests.api.native import RUNS, native_hits, same, served

x, y = np.arange(6.0).reshape(2, 3), np.arange(6.0, 12.0).reshape(2, 3)


ARGUMENTS: list[tuple[str, Any, tuple[Any, ...]]] = [
    ("arrays", lambda a, b: a + b, (x, y)),
    ("a matrix's other order", lambda a, b: a + b, (x.T, y.T)),
    ("every other column", lambda a: a * 2, (np.arange(12.0)[::2],)),
    ("reversed", lambda a: a * 2, (np.arange(12.0)[::-1],)),
    ("a float", lambda a, s: a * s, (x, 2.5)),
    ("a complex", lambda a, s: a * s, (x, 2.5 + 1j)),
    ("an int", lambda a, n: a * n, (x, 3)),
    ("a bool", lambda a, flag: a + 1 if flag else a, (x, True)),
    ("None and a text", lambda a, none, mode: a + 1 if none is None and mode == "up" else a, (x, None, "up")),
    ("NumPy's float32", lambda a, s: a * s, (x.astype("f4"), np.float32(1.5))),
    ("NumPy's float16", lambda a, s: a * s, (x.astype("f2"), np.float16(1.5))),
    ("NumPy's int8", lambda a, s: a + s, (np.arange(4, dtype="i1"), np.int8(3))),
    ("NumPy's bool", lambda a, s: a & s, (x > 2, np.bool_(True))),
    ("NumPy's complex64", lambda a, s: a * s, (x.astype("F"), np.complex64(1 + 2j))),
    ("a scalar as result", lambda a: a.sum(), (x,)),
    ("rank 0", lambda a: a + 1, (np.array(2.0),)),
    ("a size of 0", lambda a: a + 1, (np.zeros((0, 3)),)),
    ("a tuple", lambda p: p[0] - p[1], ((x, y),)),
    ("a list", lambda p: p[0] - p[1] * p[2], ([x, y, 2.0],)),
    ("a dict", lambda p: p["w"] * p["b"], ({"w": x, "b": y},)),
    ("nested", lambda p, s: p["a"][0] * p["a"][1]["c"] + s, ({"a": (x, {"c": y})}, 1.0)),
    ("an empty list", lambda p, a: a + len(p), ([], x)),
    ("tuple results", lambda a, b: (a + b, (a * b).sum()), (x, y)),
    ("list results", lambda a, b: [a + b, a - b, a.max()], (x, y)),
    ("bools", lambda a, b: a < b, (x, y)),
    ("float32 and ints", lambda a, b: a + b, (x.astype("f4"), np.arange(3))),
    ("a reduction of rows", lambda a: a.mean(axis=1), (x,)),
    ("softmax", lambda a: np.exp(a - a.max(axis=1, keepdims=True)) / np.exp(a).sum(axis=1, keepdims=True), (x,)),
    ("64 arguments", lambda *p: sum(p[1:], p[0]), tuple(np.full(3, float(k)) for k in range(64))),
]


@pytest.mark.parametrize(("f", "args"), [c[1:] for c in ARGUMENTS], ids=[c[0] for c in ARGUMENTS])
def test_results_are_those_of_the_long_way(f, args):
    jitted = tn.jit(f)
    first = jitted(*args)  # traced
    same(served(jitted, *args), first)
    long = tn.jit(f)
    with switches.paused():
        for _ in range(RUNS):
            same(long(*args), first)
    assert native_hits(long) == 0


@pytest.mark.parametrize("f, args", [c[1:] for c in ARGUMENTS if "array" in c[0] or "tuple" in c[0]])
def test_tn_arrays_in_and_out(f, args):
    def wrapped(value: Any) -> Any:
        return tuple(map(wrapped, value)) if isinstance(value, tuple) else tn.asarray(value)

    jitted = tn.jit(f)
    first = jitted(*wrapped(args))
    found = served(jitted, *wrapped(args))
    as_tuples = [r if isinstance(r, tuple) else (r,) for r in (found, first)]
    for a, b in zip(*as_tuples, strict=True):
        assert type(a) is tn.Array and type(b) is tn.Array
        assert a.engine is b.engine and a._scalar == b._scalar
        same(np.asarray(a), np.asarray(b))


def test_keywords_in_any_order():
    f = tn.jit(lambda a, b, c=1.0: a - b * c)
    for _ in range(2):
        same(served(f, x, b=y), x - y)
        same(served(f, b=y, a=x), x - y)
        same(served(f, a=x, b=y, c=2.0), x - y * 2)
        same(served(f, x, y, c=3.0), x - y * 3)
        same(served(f, c=4.0, b=y, a=x), x - y * 4)
    with pytest.raises(TypeError, match="unexpected keyword"):
        f(x, y, d=1)
    with pytest.raises(TypeError):
        f(x, b=y, a=x)


@pytest.mark.filterwarnings("ignore::tenferro.tracer.errors.RecompileWarning")
def test_what_differs_takes_another_way():
    """Everything that an entry looks at, one by one: sizes, strides, dtypes, ints, classes, lengths, keys."""
    f = tn.jit(lambda a, n, p: a * n + p["u"][0])
    p = {"u": [1.0]}
    base = served(f, x, 2, p)
    same(base, x * 2 + 1)
    same(f(x[:, :2], 2, p), x[:, :2] * 2 + 1)
    same(f(x.T.copy().T, 2, p), np.asarray(x.T.copy().T * 2 + 1))
    same(f(x.astype("f4"), 2, p), x.astype("f4") * 2 + 1)
    same(f(x, 3, p), x * 3 + 1)
    same(f(x, True, p), x * True + 1)
    same(f(x, 2.0, p), x * 2.0 + 1)
    same(f(x, np.int64(2), p), x * 2 + 1)
    same(f(x, 2, {"u": (1.0,)}), x * 2 + 1)
    same(f(x, 2, {"u": [5.0]}), x * 2 + 5)
    same(f(x, 2, {"u": [1]}), x * 2 + 1)
    same(f(x, 2, {"u": [1.0, 2.0]}), x * 2 + 1)
    with pytest.raises(KeyError):
        f(x, 2, {"v": [1.0]})
    with pytest.raises(TypeError):
        f(x, 2)
    with pytest.raises(OverflowError, match="2\\*\\*63|int64|int"):
        f(x, 2**70, p)
    same(served(f, x, 2, p), base)


def test_arrays_that_are_not_plain():
    f = tn.jit(lambda a: a + 1)
    served(f, x)
    raw = np.zeros(6 * 8 + 1, np.uint8)[1:].view(np.float64).reshape(2, 3)  # not aligned
    raw[...] = x
    same(f(raw), x + 1)
    same(f(x.astype(">f8")), x + 1)
    with pytest.raises(TypeError, match="masked|MaskedArray"):
        f(np.ma.masked_array(x))

    class Own(np.ndarray):
        pass

    with pytest.raises(TypeError, match="Own"):
        f(x.view(Own))
    same(served(f, x), x + 1)


def test_read_only_arrays_and_written_ones():
    fixed = x.copy()
    fixed.setflags(write=False)
    f = tn.jit(lambda a: a * 2)
    result = served(f, fixed)
    result[0, 0] = 7.0  # results are fresh and may be written
    assert fixed[0, 0] == 0.0 and result.flags.owndata
    z = x.copy()
    same(served(f, z), z * 2)
    z[0, 0] = 100.0
    same(f(z), z * 2)  # the elements of now


def test_other_sizes_and_more_of_them_than_are_kept():
    f = tn.jit(lambda a: a.sum() + a)
    for _ in range(4):
        for n in range(20):
            a = np.arange(float(n))
            same(f(a), a.sum() + a)
    assert f.cache_info().compiles == 1 and f.cache_info().hits == 79


def test_calls_are_counted():
    f = tn.jit(lambda a: a + 1)
    for _ in range(50):
        f(x)
    assert f.cache_info().hits == 49 and native_hits(f) > 40
    assert "calls served 49" in str(f.explain())


def test_captured_values_are_looked_at():
    scale = 2.0
    data = x.copy()
    f = tn.jit(lambda a: a * scale + data)
    for _ in range(RUNS):
        same(f(y), y * 2 + x)
    scale = 3.0
    same(f(y), y * 3 + x)
    data[0, 0] = 50.0
    same(f(y), y * 3 + data)


def test_inside_a_trace_a_call_is_part_of_it():
    inner = tn.jit(lambda a: a + 1)
    served(inner, x)
    outer = tn.jit(lambda a: inner(a) * inner(x))
    same(outer(y), (y + 1) * (x + 1))
    assert "add" in outer.lower(y).as_text("program")
    same(served(inner, x), x + 1)


def spent(f: Any, *args: Any) -> float:
    """Processor time of a call by all threads, as a multiple of that of this one."""
    mine, every = time.thread_time(), time.process_time()
    f(*args)
    return (time.process_time() - every) / (time.thread_time() - mine)


def are_several(f: Any, *args: Any) -> bool:
    """Whether calls use more than one thread, sooner or later: on a busy machine the others come too late at first."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        if spent(f, *args) > 1.1:
            return True
    return False


def test_the_number_of_threads_is_that_of_the_scope():
    """Native calls use the threads of their scope, wherever they were learnt, and start those that are missing."""
    f = tn.jit(lambda a: np.sin(np.sin(np.sin(a))))
    a = np.linspace(0, 1, 1 << 20)
    with tn.threads(2):
        expected = served(f, a)
    for number in (1, 3, 2, 1):
        with tn.threads(number):
            same(served(f, a), expected)
            assert number == 1 or are_several(f, a)
            with tn.threads(1):
                assert min(spent(f, a) for _ in range(5)) < 1.1
                before = native_hits(f)
                same(f(a), expected), same(f(a), expected)  # the first may see that kernels are to become better
                assert native_hits(f) > before
    same(served(f, a), expected)


def test_a_scope_of_one_thread_is_not_that_of_another():
    f = tn.jit(lambda a: np.sin(np.sin(np.sin(a))))
    a = np.linspace(0, 1, 1 << 20)
    with tn.threads(2):
        served(f, a)
    inside, done = threading.Event(), threading.Event()

    def scope() -> None:
        with tn.threads(1):
            inside.set()
            done.wait()

    thread = threading.Thread(target=scope)
    thread.start()
    inside.wait()
    try:
        with tn.threads(2):
            assert are_several(f, a)
        before = native_hits(f)
        f(a), f(a)
        assert native_hits(f) > before
    finally:
        done.set()
        thread.join()


def test_checks_of_kernels_still_speak():
    f = tn.jit(lambda a, i: a[i])
    i = np.array([0, 2, 1])
    a = np.arange(3.0)
    same(served(f, a, i), a[i])
    i[1] = 3
    with pytest.raises(IndexError, match="indices contain 3"):
        f(a, i)
    i[1] = 0
    same(served(f, a, i), a[i])
    g = tn.jit(lambda p, q: p // q)
    p, q = np.array([7, 8, 9]), np.array([2, 2, 2])
    same(served(g, p, q), p // q)
    q[1] = 0
    with pytest.warns(RuntimeWarning, match="divisor 0"):
        same(g(p, q), np.array([3, 0, 4]))
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        g(p, q)


def test_a_broken_engine_and_another_configuration_end_native_calls():
    engine = tn.default_runtime().engines()[0]
    f = tn.jit(lambda a: a + 1)
    served(f, x)
    engine.broken = "for a test"
    try:
        with pytest.raises(BrokenEngineError):
            f(x)
    finally:
        engine.broken = ""
    same(served(f, x), x + 1)
    before = native_hits(f)
    switches.forget()
    same(f(x), x + 1)
    assert native_hits(f) == before
    same(served(f, x), x + 1)


def test_cleared_and_dropped_functions():
    f = tn.jit(lambda a: a + 1)
    served(f, x)
    f.cache_clear()
    assert f.cache_info().programs == 0
    same(served(f, x), x + 1)
    assert f.cache_info().compiles == 1
    alive = weakref.ref(f)
    del f
    gc.collect()
    assert alive() is None


def test_a_function_is_still_itself():
    @tn.jit
    def named(a):
        """Its text."""
        return a + 1

    served(named, x)
    assert repr(named) == f"<jit {named.__qualname__}>" and named.__doc__ == "Its text."
    assert isinstance(named, type(tn.jit(lambda a: a)).__mro__[-2])
    assert callable(named) and named.__name__ == "named"
    import inspect

    assert list(inspect.signature(named).parameters) == ["a"]


def test_references_are_right():
    """Not one is lost or kept over many calls, failing ones included."""
    f = tn.jit(lambda a, s, p: (a * s + p["k"][0], (a - s).sum()))
    i = tn.jit(lambda a, j: a[j])
    a, s, p, wrapped = x.copy(), 2.5, {"k": (y.copy(),)}, tn.asarray(x)
    bad = np.array([0, 5])
    objects = [a, s, p, p["k"], p["k"][0], wrapped, wrapped._data, wrapped._engine, a.dtype, None, True, bad]
    single = np.arange(3.0)
    for _ in range(20):
        f(a, s, p), f(wrapped, s, p), i(single, np.array([0, 1]))
    gc.collect()
    before = [sys.getrefcount(o) for o in objects]
    for k in range(3000):
        f(a, s, p)
        f(wrapped, s, p)
        if k % 100 == 0:
            with pytest.raises(IndexError):
                i(single, bad)
    gc.collect()
    after = [sys.getrefcount(o) for o in objects]
    assert all(abs(m - n) < 60 for m, n in zip(before, after, strict=True)), (before, after)


def test_memory_does_not_grow():
    f = tn.jit(lambda a: a + 1)
    a = np.zeros(1 << 16)
    served(f, a)
    import resource

    for _ in range(200):
        f(a)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2000):
        f(a)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # kB; one result is 512 kB


def test_eight_threads_and_a_changing_function():
    f = tn.jit(lambda a, s: np.sqrt(a) * s)
    arrays = [np.arange(float(n)) for n in (3, 1000, 200_000)]
    failures: list[BaseException] = []
    stop = threading.Event()

    def work(k: int) -> None:
        a = arrays[k % 3]
        expected = np.sqrt(a) * float(k)
        try:
            while not stop.is_set():
                same(f(a, float(k)), expected)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(8)]
    for t in threads:
        t.start()
    for _ in range(10):
        stop.wait(0.05)
        f.cache_clear()
        switches.forget()
    stop.set()
    for t in threads:
        t.join()
    assert not failures, failures[0]


def test_a_list_that_changes_while_a_call_runs():
    """A run lets go of the GIL; what it reads stays alive."""
    f = tn.jit(lambda p: np.exp(p[0]) + np.exp(p[1]))
    n = 1 << 21
    p = [np.zeros(n), np.zeros(n)]
    for _ in range(RUNS):
        f(p)
    done = threading.Event()

    def replace() -> None:
        while not done.is_set():
            p[0] = np.zeros(n)
            p[1] = np.zeros(n)

    thread = threading.Thread(target=replace)
    thread.start()
    try:
        for _ in range(30):
            assert (f(p) == 2.0).all()
    finally:
        done.set()
        thread.join()


def test_kernels_still_become_better():
    """A native call counts towards the compile for speed."""
    f = tn.jit(lambda a: np.tanh(a) * 2)
    a = np.linspace(0, 1, 20_000)
    levels = set()
    for _ in range(400):
        for _ in range(500):
            f(a)
        unit = f._programs._kept[next(iter(f._programs._kept))][0].prepared.flat
        levels = {b.level for b in unit._bound.values()}
        if levels == {2}:
            break
    assert levels == {2}
    same(served(f, a), f(a))


@pytest.mark.parametrize("kind", ["set", "bytearray", "array", "list", "dict", "deque"])
def test_captured_containers_that_change_in_place(kind):
    """Whoever is the same object need not be as it was."""
    import array
    from collections import deque

    made: dict[str, Any] = {
        "set": {1.0}, "bytearray": bytearray(b"\x01"), "array": array.array("d", [1.0]), "list": [1.0],
        "dict": {1.0: 0}, "deque": deque([1.0]),
    }  # fmt: skip
    held = made[kind]

    def change() -> None:
        match kind:
            case "set":
                held.add(5.0)
            case "dict":
                held[5.0] = 0
            case _:
                held.append(5)

    f = tn.jit(lambda v: v + sum(held))
    v = np.arange(3.0)
    for _ in range(6):
        same(f(v), v + 1)
    change()
    same(f(v), v + 6)


def test_results_reshaped_after_a_copy_in_between():
    """An array of a block that is closed keeps its shape."""

    def f(v):
        return (-v).reshape(-1), v[::-1].reshape(-1), (v + v).reshape(-1)

    v = np.array([[-4.0, 0.0], [3.5, 2.0]])
    for g in (tn.jit(f), tn.jit(lambda v: f(v.reshape(2, 2)))):
        for _ in range(4):
            same(g(v), f(v))
    product = tn.jit(lambda a, b: a @ b)
    same(served(product, v, np.ones(2)), v @ np.ones(2))
