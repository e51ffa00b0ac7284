"""Native calls of sizes that were never met: the same results, errors, guards and memory as the long way."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu.native_match import LEFT
from tenferro.tracer import switches
from tests.api.native import native_hits, same

pytestmark = pytest.mark.filterwarnings("ignore::tenferro.tracer.errors.RecompileWarning")


def arrays(n: int, m: int = 3) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    rng = np.random.default_rng(n * 100 + m)
    return rng.standard_normal((n, m)), rng.standard_normal((n, m))


def long(f: Any, *args: Any, **kwargs: Any) -> Any:
    with switches.paused():
        return f(*args, **kwargs)


def met(f: Any, make: Any) -> None:
    """Calls of a few sizes, until those of others are native."""
    for k in range(4, 30):
        before = native_hits(f)
        f(*make(k))
        if k > 8 and native_hits(f) > before:
            return
    raise AssertionError("sizes are not learnt")


FUNCTIONS: list[tuple[str, Any, Any]] = [
    ("elementwise", lambda a, b: a * b + 1, arrays),
    ("transposed", lambda a, b: a.T + b.T, arrays),
    ("other strides", lambda a, b: a * b, lambda n: (arrays(2 * n)[0][::2], arrays(n)[1])),
    ("reversed", lambda a, b: a * b, lambda n: (arrays(n)[0][::-1], arrays(n)[1])),
    ("a vector and a matrix", lambda a, b: a + b, lambda n: (np.arange(float(n)), arrays(5, n)[0])),
    ("sums", lambda a, b: (a.sum(), b.sum(axis=0), (a - b).sum(axis=1)), arrays),
    ("rows", lambda a, b: np.exp(a - a.max(axis=1, keepdims=True)) + b.mean(axis=1, keepdims=True), arrays),
    ("products", lambda a, b: a.T @ b, arrays),
    ("chains of products", lambda a, b: np.tanh((a @ b.T) @ a) + b, arrays),
    ("views", lambda a, b: (a[1:], b.T, a[::-1, :2]), arrays),
    ("an argument and its size", lambda a, b: (a, b.shape[0] * 2, a.shape[1], b * a.shape[0]), arrays),
    ("an int", lambda a, k: (a * k, k, a[k % 4 :]), lambda n: (arrays(n + 4)[0], n)),
    ("a dict", lambda p: {"x": [p["a"] + 1, p["b"][0] * 2]}, lambda n: ({"a": arrays(n)[0], "b": [arrays(n + 1)[1]]},)),
    ("concatenated", lambda a, b: np.concatenate([a, b, a]) * 2, arrays),
    ("a gather", lambda a, b: a[np.argsort(np.arange(a.shape[0])) * 0] + b, arrays),
    ("float32", lambda a, b: a * b + a.sum(axis=0), lambda n: tuple(x.astype("f4") for x in arrays(n))),
    ("a reshape", lambda a, b: (a + b).reshape(-1), arrays),
    ("bools", lambda a, b: (a < b, (a < b).sum()), arrays),
]  # fmt: skip
SEAMS = ("a gather",)
"""Programs with work for Python in between, which have no entry."""


@pytest.mark.parametrize(("name", "f", "make"), FUNCTIONS, ids=[c[0] for c in FUNCTIONS])
def test_results_are_those_of_the_long_way(name, f, make):
    jitted, other = tn.jit(f), tn.jit(f)
    if name not in SEAMS:
        met(jitted, make)
    before = native_hits(jitted)
    sizes = [*range(1, 40), 64, 100, 129, 1000, 17, 1, 2, 3, *([] if "products" in name else [5000, 20_000])]
    for n in sizes:
        args = make(n)
        same(jitted(*args), long(other, *args))
    assert name in SEAMS or native_hits(jitted) - before > len(sizes) // 2


def test_tn_arrays_and_eager_operations():
    f = tn.jit(lambda a, b: (a * b, a.sum(), a))

    def make(n: int) -> tuple[Any, ...]:
        return tuple(map(tn.asarray, arrays(n)))

    met(f, make)
    for n in (1, 50, 51, 300):
        args = make(n)
        same(f(*args), long(f, *args))
    for n in range(1, 60):
        a, b = make(n)
        found = (a + b, a * 2.0, -a, a < b, a - b.sum())
        with switches.paused():
            same(found, (a + b, a * 2.0, -a, a < b, a - b.sum()))


def test_methods_and_captured_arrays_of_any_size():
    class Layer:
        def __init__(self, n: int) -> None:
            self.w = arrays(n, 4)[0]

        @tn.jit
        def __call__(self, x: Any) -> Any:
            return x @ self.w + 1

    f = vars(Layer)["__call__"]
    for n in range(2, 60):
        x, layer = arrays(n + 3, n)[0], Layer(n)
        same(layer(x), long(f, layer, x))
    assert native_hits(f) > 40


def test_keywords_and_statics():
    f = tn.jit(lambda a, b, mode, k=2: (a + b if mode == "sum" else a - b) * k, static_argnames=("mode", "k"))
    before = 0
    for n in range(2, 60):
        a, b = arrays(n)
        for mode in ("sum", "difference"):
            same(f(a, mode=mode, b=b), long(f, a, b, mode))
        before = native_hits(f)
    assert before > 80
    a, b = arrays(7)
    same(f(a, b, "sum", k=3), (a + b) * 3)


def test_guards_on_sizes_are_kept():
    """A branch on a size leads where it leads at that size."""

    def f(a: Any, k: Any) -> Any:
        if a.shape[0] > 10:
            return a * 2
        if a.shape[0] % 2 == k:
            return a + 100
        return a - 1

    jitted = tn.jit(f)
    for _ in range(3):
        for n in range(1, 40):
            for k in (0, 1, 2):
                a = arrays(n)[0]
                same(jitted(a, k), f(a, k))
    assert jitted.cache_info().compiles <= 6 and native_hits(jitted) > 200


def test_broadcasting_and_size_1():
    f = tn.jit(lambda a, b: a + b)
    calls = [(n, m) for n in (1, 2, 3, 5, 9, 1, 7) for m in (1, n, 5) if n == m or 1 in (n, m)]
    for _ in range(6):
        for n, m in calls:
            a, b = np.arange(float(n)), np.arange(float(m))
            same(f(a, b), a + b)
    with pytest.raises(ValueError, match="broadcast|shape"):
        f(np.ones(4), np.ones(3))


def test_checks_speak_at_sizes_that_were_never_met():
    f = tn.jit(lambda a, i: a[i] * 2)
    for n in range(4, 40):
        a, i = np.arange(float(n)), np.arange(n) % (n - 1)
        same(f(a, i), a[i] * 2)
    hits = native_hits(f)
    assert hits > 20
    for n in (50, 51, 60):
        a, i = np.arange(float(n)), np.arange(n)
        i[n // 2] = n
        with pytest.raises(IndexError, match=f"indices contain {n}"):
            f(a, i)
        i[n // 2] = -n - 1
        with pytest.raises(IndexError):
            f(a, i)
        i[n // 2] = -n
        same(f(a, i), a[i] * 2)
    assert native_hits(f) > hits


def test_sizes_that_cannot_be_had():
    f = tn.jit(lambda a, b: a[:, None] * b)
    for n in range(2, 40):
        same(f(np.ones(n), np.ones(n + 1)), np.ones((n, n + 1)))
    assert native_hits(f) > 20
    huge = np.broadcast_to(np.ones(1), (1 << 40,))
    with pytest.raises((MemoryError, ValueError, OverflowError)):
        f(huge, huge)
    with pytest.raises(MemoryError):
        f(np.broadcast_to(np.ones(1), (1 << 24,)), np.broadcast_to(np.ones(1), (1 << 24,)))
    same(f(np.ones(70), np.ones(3)), np.ones((70, 3)))


def test_kernels_still_become_better():
    """Calls of any sizes count towards the compile for speed."""
    f = tn.jit(lambda a: np.tanh(a) * 2)
    left: set[int] = set()
    for k in range(40_000):
        f(np.linspace(0, 1, 1000 + k % 50))
        (group,) = f._programs._kept.values()
        left = {int(entry.words[LEFT // 8]) for entry in group[0].sized if entry.words is not None}
        if -1 in left:
            break
    assert -1 in left
    a = np.linspace(0, 1, 777)
    same(f(a), long(f, a))


def test_what_is_forgotten_is_learnt_again():
    f = tn.jit(lambda a, b: a + b)
    met(f, arrays)
    switches.forget()
    before = native_hits(f)
    f(*arrays(200))
    assert native_hits(f) == before
    met(f, arrays)
    f.cache_clear()
    met(f, arrays)
    assert f.cache_info().compiles == 1


def test_threads_of_many_sizes():
    """One entry is brought to one size after another while other threads run blocks of it."""
    f = tn.jit(lambda a, b: np.exp(a) * b + a.sum())
    met(f, arrays)
    failures: list[BaseException] = []

    def work(seed: int) -> None:
        try:
            rng = np.random.default_rng(seed)
            for _ in range(150):
                n = int(rng.integers(1, 60_000))
                a = np.full((n, 2), 1.0 / n)
                found = f(a, a)
                assert found.shape == (n, 2) and (found == found[0, 0]).all()
                np.testing.assert_allclose(found[0, 0], np.exp(1 / n) / n + 2.0)
        except BaseException as failure:
            failures.append(failure)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failures, failures[0]


def test_references():
    f = tn.jit(lambda a, k: (a.T, a * k, a.shape[0], a))
    dtype, data = np.dtype("f8"), [np.ones((n, 3)) for n in range(2, 30)]
    for a in data:
        f(a, 2)
    gc.collect()
    before = [sys.getrefcount(o) for o in (dtype, *data)]
    for _ in range(100):
        for a in data:
            f(a, 2)
    gc.collect()
    after = [sys.getrefcount(o) for o in (dtype, *data)]
    assert all(abs(m - n) < 30 for m, n in zip(before, after, strict=True)), (before, after)


def test_a_block_of_many_words_of_any_size():
    """More than stands on the stack."""

    def f(a: Any, w: Any) -> Any:
        for _ in range(40):
            a = np.tanh(a @ w) - a.sum(axis=1, keepdims=True) * 0.01
        return a

    jitted = tn.jit(f)
    w = arrays(4, 4)[0] * 0.1
    for n in (5, 6, 7, 8, 9, 10, 11, 30, 31, 100):
        a = arrays(n, 4)[0]
        same(jitted(a, w), long(jitted, a, w))
