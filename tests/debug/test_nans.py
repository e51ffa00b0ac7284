"""``tn.debug.nans``: which operation is named, at which line, and what counts."""

from __future__ import annotations

import inspect
import warnings
from typing import Any

import numpy as np
import pytest

import tenferro as tn


def root(x: Any) -> Any:
    y = x + 1
    z = np.sqrt(y)  # here
    return z * 2 + np.where(y > 0, y, 0)


def where_of(function: Any, mark: str = "# here") -> str:
    lines, first = inspect.getsourcelines(function)
    return f"test_nans.py:{first + next(k for k, text in enumerate(lines) if mark in text)}"


BAD, GOOD = np.array([1.0, -3.0, 2.0]), np.array([1.0, 3.0, 2.0])


def test_the_first_operation_and_its_line_are_named():
    f = tn.jit(root)
    assert np.isnan(f(BAD)).any()
    with tn.debug.nans():
        np.testing.assert_allclose(f(GOOD), root(GOOD), rtol=1e-15)
        for _ in range(2):
            with pytest.raises(tn.NanError, match=rf"sqrt: a NaN is born at \(1,\), of -2.0 \(at .*{where_of(root)}\)"):
                f(BAD)
        with tn.debug.nans(False):
            assert np.isnan(f(BAD)).any()
    assert np.isnan(f(BAD)).any()
    with pytest.raises(FloatingPointError), tn.debug.nans():
        tn.jit(root)(BAD)  # not traced before


def test_fast_calls_leave_the_native_way_and_come_back():
    f = tn.jit(root)
    wanted = f(GOOD)
    for _ in range(200):
        f(GOOD)
    with tn.debug.nans(), pytest.raises(tn.NanError):
        f(BAD)
    assert f(GOOD).tobytes() == wanted.tobytes()
    assert f.cache_info().compiles == 1


@pytest.mark.parametrize("kind", [np.float32, np.float16, np.complex64, np.complex128])
def test_every_kind_of_float(kind: Any):
    f = tn.jit(lambda x: (x - x) / (x - x) + 1)
    with tn.debug.nans(), pytest.raises(tn.NanError, match="divide: a NaN is born"):
        f(np.ones(2, kind))


def test_types_of_results_stay():
    f = tn.jit(lambda x: (x * 2, x.sum(), x.shape[0]))
    with tn.debug.nans():
        for x in (GOOD, tn.asarray(GOOD)):
            with tn.debug.nans(False):
                plain = f(x)
            checked = f(x)
            assert [type(a) for a in plain] == [type(a) for a in checked]
            assert all(np.asarray(a) == pytest.approx(np.asarray(b)) for a, b in zip(plain, checked, strict=True))


def test_nans_that_came_in_or_are_discarded_do_not_count():
    given = np.array([np.nan, 1.0])
    with tn.debug.nans():
        assert np.isnan(tn.jit(root)(given)).tolist() == [True, False]
        safe = tn.jit(lambda x: np.where(x > 0, np.log(x), 0.0))
        np.testing.assert_allclose(safe(np.array([-1.0, 1.0])), [0.0, 0.0])
        assert tn.jit(lambda x: np.isnan(np.sqrt(x)))(np.array([-1.0])).tolist() == [True]

        def two(x: Any) -> Any:
            a = np.where(x > 0, np.log(x), 0.0)
            return a + np.where(x < 0, np.sqrt(x), a)  # here

        with pytest.raises(tn.NanError, match=rf"sqrt: .*{where_of(two)}"):
            tn.jit(two)(np.array([-1.0, 2.0]))


def test_in_the_backward_pass():
    def f(x: Any) -> Any:
        y = x * 1.0
        return (np.sqrt(y) - np.cbrt(y)).sum()  # here

    point = np.array([1.0, 0.0])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert np.isnan(tn.grad(f)(point)).tolist() == [False, True]
    for run in (tn.grad(f), tn.jit(tn.grad(f)), tn.jit(tn.value_and_grad(f))):
        with tn.debug.nans(), pytest.raises(tn.NanError, match=rf"a NaN is born.*{where_of(f)}"):
            run(point)
    with tn.debug.nans():
        np.testing.assert_allclose(tn.grad(f)(np.array([1.0, 4.0])), [0.5 - 1 / 3, 0.25 - 4 ** (-2 / 3) / 3])


def test_in_loops_and_choices():
    def scanned(x: Any) -> Any:
        def body(c: Any, v: Any) -> Any:
            d = np.log(c - v)  # here
            return c - v + 0 * d, d

        return tn.lax.scan(body, 3.0, x)[1]

    def looped(x: Any) -> Any:
        def body(c: Any) -> Any:
            n, y = c
            return n + 1, np.sqrt(y - 1.0)  # here

        return tn.lax.while_loop(lambda c: c[0] < 5, body, (0, x[0]))[1]

    def chosen(x: Any) -> Any:
        def yes(x: Any) -> Any:
            return np.log(-x)  # here

        return tn.lax.cond(x[0] > 0, yes, lambda x: x, x)

    point = np.array([1.0, 1.0, 2.0])
    for f, text in ((scanned, r"log: .*in scan body, turn 2"), (looped, "sqrt: .*turn"), (chosen, "log")):
        for run in (f, tn.jit(f), tn.jit(tn.value_and_grad(lambda x, f=f: f(x).sum()))):
            with tn.debug.nans(), pytest.raises(tn.NanError, match=rf"{text}.*{where_of(f)}"):
                run(point)
    with tn.debug.nans():
        assert tn.jit(chosen)(-point).tolist() == (-point).tolist()


def test_eager_operations_and_lanes():
    with tn.debug.nans():
        x = tn.asarray(BAD)
        with pytest.raises(tn.NanError, match=r"log: a NaN is born at \(1,\), of -3.0 \(at .*test_nans.py"):
            np.log(x)
        with pytest.raises(tn.NanError, match="sqrt"):
            tn.vmap(root)(np.stack([GOOD, BAD]))
        with pytest.raises(tn.NanError, match="pure_callback: a NaN is born"):
            tn.jit(lambda x: tn.pure_callback(lambda v: v * np.nan, tn.ShapeDtypeStruct((3,), np.float64), x))(GOOD)


def test_arguments_that_are_written():
    def f(x: Any, out: Any) -> None:
        out[1:] = np.sqrt(x[1:])

    g = tn.jit(f, donate_argnums=1)
    out = np.zeros(3)
    with tn.debug.nans():
        g(GOOD, out)
        np.testing.assert_allclose(out, [0.0, np.sqrt(3.0), np.sqrt(2.0)])
        with pytest.raises(tn.NanError):
            g(BAD, out)
