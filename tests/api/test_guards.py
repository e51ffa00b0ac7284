"""One program for every size, and a new one exactly where the function's own decisions differ."""

from __future__ import annotations

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import RecompileError, RecompileWarning


def ones(*shape):
    return np.ones(shape, np.float32)


def test_one_program_for_every_size():
    @tn.jit
    def f(x, y):
        return x * 2 + y

    for n in (0, 1, 2, 3, 7, 100, 1000):
        x = np.arange(n, dtype=np.float32)
        np.testing.assert_array_equal(f(x, x), x * 2 + x)
    # Sizes 1 and 0 take part: two equal sizes need one guard, which all of these calls keep.
    assert f.cache_info().compiles == 1


def test_branch_on_a_size():
    @tn.jit
    def f(x):
        if x.shape[0] > 3:
            return x + 1
        return x - 1

    for n in (2, 5, 3, 4, 100, 1, 0):
        x = ones(n)
        np.testing.assert_array_equal(f(x), x + 1 if n > 3 else x - 1)
    assert f.cache_info().compiles == 2
    text = str(f.explain())
    assert "x.shape[0]" in text and "test_guards.py" in text


def test_equal_sizes_that_later_differ():
    @tn.jit
    def f(x, y):
        return np.concatenate([x, y]) if x.shape == y.shape else np.concatenate([y, x])

    a, b = np.arange(3.0), np.arange(4.0)
    np.testing.assert_array_equal(f(a, a), [0, 1, 2, 0, 1, 2])
    np.testing.assert_array_equal(f(a, b), [0, 1, 2, 3, 0, 1, 2])
    np.testing.assert_array_equal(f(b, b), [0, 1, 2, 3, 0, 1, 2, 3])
    assert f.cache_info().compiles == 2


def test_size_one_that_later_is_not():
    @tn.jit
    def f(x, y):
        return x + y

    np.testing.assert_array_equal(f(ones(3, 1), ones(3, 4)), 2 * ones(3, 4))
    np.testing.assert_array_equal(f(ones(3, 4), ones(3, 4)), 2 * ones(3, 4))
    np.testing.assert_array_equal(f(ones(5, 1), ones(5, 6)), 2 * ones(5, 6))
    assert f.cache_info().compiles == 2
    with pytest.raises(ValueError, match="add"):
        f(ones(3, 2), ones(3, 4))
    np.testing.assert_array_equal(f(ones(3, 1), ones(3, 4)), 2 * ones(3, 4))


def test_size_zero():
    @tn.jit
    def total(x):
        return x.sum()

    @tn.jit
    def largest(x):
        return x.max()

    assert total(np.zeros(0)) == 0.0 and total(np.ones(4)) == 4.0
    assert total.cache_info().compiles == 1
    assert largest(np.ones(4)) == 1.0
    with pytest.raises(ValueError):
        largest(np.zeros(0))
    assert largest(np.ones(2)) == 1.0


def test_int_argument_is_a_traced_size():
    @tn.jit
    def f(x, n):
        return x * n

    for n in (1, 2, -3, 10**12):
        out = f(np.arange(3.0), n)
        np.testing.assert_array_equal(out, np.arange(3.0) * n)
    assert f.cache_info().compiles == 1


def test_int_argument_as_a_shape():
    @tn.jit
    def f(n):
        return np.arange(n) * 2

    for n in (0, 1, 5, 9):
        np.testing.assert_array_equal(f(n), np.arange(n) * 2)
    assert f.cache_info().compiles <= 2


def test_branch_on_an_int_argument():
    @tn.jit
    def f(x, n):
        for _ in range(n):
            x = x * 2
        return x

    assert f(np.float64(1), 3) == 8 and f(np.float64(1), 5) == 32 and f(np.float64(2), 3) == 16
    assert f.cache_info().compiles == 2
    assert "n == 5" in str(f.explain()) or "n == 3" in str(f.explain())


GAIN = 2.0
TABLE = np.arange(4.0)


def test_captured_scalar_that_changes(monkeypatch):
    @tn.jit
    def f(x):
        return x * GAIN

    assert f(np.float64(3)) == 6
    monkeypatch.setitem(globals(), "GAIN", 5.0)
    assert f(np.float64(3)) == 15
    assert f.cache_info().compiles == 2
    assert "GAIN" in str(f.explain())
    monkeypatch.setitem(globals(), "GAIN", 2.0)
    assert f(np.float64(3)) == 6
    assert f.cache_info().compiles == 2


def test_captured_array_that_is_written():
    table = np.arange(4.0)

    @tn.jit
    def f(x):
        return x + table

    np.testing.assert_array_equal(f(np.zeros(4)), [0, 1, 2, 3])
    table[:] = 7
    np.testing.assert_array_equal(f(np.zeros(4)), [7, 7, 7, 7])
    assert f.cache_info().compiles == 1


def test_captured_array_that_is_replaced(monkeypatch):
    @tn.jit
    def f(x):
        return x + TABLE

    np.testing.assert_array_equal(f(np.zeros(4)), [0, 1, 2, 3])
    monkeypatch.setitem(globals(), "TABLE", np.full(4, 9.0))
    np.testing.assert_array_equal(f(np.zeros(4)), [9, 9, 9, 9])
    assert f.cache_info().compiles == 1
    monkeypatch.setitem(globals(), "TABLE", np.full(4, 9, np.float32))
    np.testing.assert_array_equal(f(np.zeros(4, np.float32)), np.full(4, 9, np.float32))


def test_recompile_warning_names_the_guard():
    @tn.jit
    def f(x, n):
        return x + (1 if n == n + 0 and int(n) else 0)

    for n in range(1, 8):
        f(np.ones(2), n)
    with pytest.warns(RecompileWarning, match="n"):
        f(np.ones(2), 8)


def test_max_compiles():
    @tn.jit(max_compiles=1)
    def f(x):
        return x + 1

    f(np.ones(2))
    f(np.ones(5))
    with pytest.raises(RecompileError, match="max_compiles"):
        f(np.ones(2, np.float32))
    np.testing.assert_array_equal(f(np.ones(3)), [2, 2, 2])


def test_dtypes_ranks_and_weak_types_make_programs():
    @tn.jit
    def f(x):
        return x + 1

    for x in (np.ones(2), np.ones(2, np.float32), np.ones((2, 2)), 2.0, 3, np.float64(2)):
        np.testing.assert_array_equal(f(x), x + 1)
    # np.float64(2) is a strong scalar of rank 0, 2.0 a weak one, 3 a traced size.
    assert f.cache_info().compiles == 6
