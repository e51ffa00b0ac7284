"""Transformed functions outside ``jit``: traced at each call, and what is made of a recording is made once."""

from __future__ import annotations

import gc
import sys
import threading
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import once
from tests.table.agreement import bits

X = np.linspace(0.2, 1.4, 5)


def equal(found: Any, wanted: Any) -> None:
    assert bits(np.asarray(found), np.asarray(wanted)) is None


def kept() -> int:
    return len(once._known)


@pytest.fixture(autouse=True)
def _nothing_known() -> None:
    once._known.clear()


def test_equal_recordings_share_a_program():
    f = lambda x: (np.sin(x) * x).sum()  # noqa: E731
    first = tn.grad(f)(X)
    assert kept() == 1
    for x in (X, 2 * X, np.ones(9)):
        equal(tn.grad(f)(x), tn.jit(tn.grad(f))(x))
    assert kept() == 1
    equal(tn.grad(f)(X), first)


def test_what_python_decides_is_decided_at_each_call():
    seen = []

    def f(x: Any) -> Any:
        seen.append(1)
        return (x * x).sum() if x[0] > 0 else (-3 * x).sum()

    slope = tn.grad(f)
    for _ in range(3):
        equal(slope(X), 2 * X)
        equal(slope(-X), np.full(5, -3.0))
    assert len(seen) == 6
    assert kept() == 2


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x: (x * 0.0).sum(), lambda x: (x * -0.0).sum()),
        (lambda x: (x * 2).sum(), lambda x: (x * 2.0).sum()),
        (lambda x: (x + np.inf).sum(), lambda x: (x + np.nan).sum()),
        (lambda x: x.sum(), lambda x: x[:1].sum()),
        (lambda x: (x[1:] * x[:-1]).sum(), lambda x: (x[:-1] * x[1:]).sum()),
        (lambda x: np.sin(x).sum(), lambda x: np.cos(x).sum()),
    ],
)
def test_other_recordings_have_other_programs(one: Any, other: Any):
    for f in (one, other, one, other):
        x = np.where(X > 1, 0.0, X)
        with np.errstate(invalid="ignore"):
            equal(tn.value_and_grad(f)(x)[1], tn.jit(tn.value_and_grad(f))(x)[1])
            equal(tn.value_and_grad(f)(x)[0], tn.jit(tn.value_and_grad(f))(x)[0])


def test_settings_have_other_programs():
    f = lambda x, y: (x * y).sum()  # noqa: E731
    y = 2 * X
    for _ in range(2):
        equal(tn.grad(f)(X, y), y)
        equal(tn.grad(f, 1)(X, y), X)
        equal(tn.grad(f, (1, 0))(X, y)[0], X)
        equal(tn.value_and_grad(f)(X, y)[0], (X * y).sum())
        equal(tn.jvp(f, (X, y), (y, X))[1], tn.jit(lambda a, b: tn.jvp(f, (a, b), (b, a)))(X, y)[1])
        equal(tn.jvp(f, (X, y), (X, X))[1], tn.jit(lambda a, b: tn.jvp(f, (a, b), (a, a)))(X, y)[1])
        equal(tn.vjp(f, X, y)[1](1.0)[1], X)
        equal(tn.linearize(f, X, y)[1](X, y), tn.jvp(f, (X, y), (X, y))[1])
        equal(tn.jacfwd(f)(X, y), tn.jacrev(f)(X, y))


def test_lanes_have_other_programs():
    f = lambda x, y: x * y[0]  # noqa: E731
    a = np.arange(12.0).reshape(3, 4)
    for _ in range(2):
        for in_axes, out_axes in ((0, 0), (1, 0), (1, 1), ((0, None), 0), ((None, 0), 1), ((0, (0,)), -1)):
            y = (np.arange(3.0),) if type(in_axes) is tuple and type(in_axes[1]) is tuple else a[: 3 if in_axes else 4]
            mapped = tn.vmap(f, in_axes, out_axes)
            equal(mapped(a, y), tn.jit(mapped)(a, y))
        equal(tn.vmap(lambda: np.ones(2), axis_size=3)(), np.ones((3, 2)))
        equal(tn.vmap(lambda: np.ones(2), axis_size=4)(), np.ones((4, 2)))
    assert kept() == 8


def test_lanes_that_meet_are_not_kept():
    for _ in range(3):
        equal(tn.vmap(lambda x: tn.psum(x, "i"), axis_name="i")(np.ones(4)), np.full(4, 4.0))
    assert kept() == 0


def test_control_flow_is_made_once():
    def f(x: Any) -> Any:
        return tn.lax.scan(lambda c, y: (np.sin(c * y), None), 1.0, x)[0]

    for x in (X, 2 * X, X):
        equal(tn.grad(f)(x), tn.jit(tn.grad(f))(x))
    assert kept() == 1
    other = tn.grad(lambda x: tn.lax.scan(lambda c, y: (np.cos(c * y), None), 1.0, x)[0])(X)
    assert not np.array_equal(other, tn.grad(f)(X))


def test_rules_inside_of_control_flow_are_followed_at_each_call():
    factor = [1.0]
    g = tn.custom_jvp(lambda x: x * 2)
    g.defjvp(lambda primals, tangents: (g(*primals), tangents[0] * factor[0]))
    for k in (1.0, 5.0):
        factor[0] = k
        assert tn.grad(lambda x: tn.lax.cond(x > 0, g, lambda y: y, x))(1.0) == k
    assert kept() == 0


def test_a_pullback_outside_is_made_once():
    _, pull = tn.vjp(lambda x: x * x, X)
    _, other = tn.vjp(lambda x: 3 * x * x, X)
    once._known.clear()
    for p, k in ((pull, 2), (other, 6), (pull, 2)):
        np.testing.assert_allclose(p(X)[0], k * X * X)
        np.testing.assert_allclose(p(2 * X)[0], 2 * k * X * X)
    assert kept() == 2


def test_kinds_of_arguments_have_other_programs():
    f = lambda x: x * x  # noqa: E731
    for x, kind in (
        (2.0, np.float64),
        (np.float32(2), np.float32),
        (np.array(2.0), np.ndarray),
        (tn.array(2.0), tn.Array),
    ):
        for _ in range(2):
            found = tn.grad(f)(x)
            assert type(found) is kind
            assert float(found) == 4


def test_arrays_made_by_the_function_are_its_own_each_time():
    scale = [1.0]

    def f(x: Any) -> Any:
        return (x * np.arange(5.0) * np.linspace(0, scale[0], 5)).sum()

    for k in (1.0, 2.0, 3.0):
        scale[0] = k
        np.testing.assert_allclose(tn.grad(f)(X), np.arange(5.0) * np.linspace(0, k, 5))
    assert kept() == 1


def test_lines_of_errors_are_those_of_the_call():
    def first(x: Any, i: Any) -> Any:
        return x[i].sum()

    def second(x: Any, i: Any) -> Any:
        return x[i].sum()

    lines = []
    for f in (first, second, first):
        with pytest.raises(IndexError) as found:
            tn.grad(f)(X, np.array([9]))
        lines.append(str(found.value).rpartition(":")[2])
    assert lines[0] == lines[2] != lines[1]


def test_rules_are_followed_at_each_call():
    factor = [1.0]

    @tn.custom_jvp
    def f(x: Any) -> Any:
        return x * 2

    f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * factor[0]))
    for k in (1.0, 5.0):
        factor[0] = k
        assert tn.grad(f)(1.0) == k
    assert kept() == 0


def test_arrays_go_with_the_call():
    x = np.ones(1000)
    tn.grad(lambda x: (x * x).sum())(x)
    gc.collect()
    before = sys.getrefcount(x)
    gc.disable()
    try:
        tn.grad(lambda x: (x * x).sum())(x)
        tn.vjp(lambda x: x * x, x)
        tn.jvp(np.sin, (x,), (x,))
        assert sys.getrefcount(x) == before
    finally:
        gc.enable()


def test_programs_are_few(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(once, "MAX_KNOWN", 3)
    for k in range(6):
        assert tn.grad(lambda x, k=k: x * k)(1.0) == k
    assert kept() == 3


def test_threads():
    errors: list[BaseException] = []

    def work(k: int) -> None:
        try:
            for n in range(1, 20):
                equal(tn.grad(lambda x: (x * x).sum())(np.full(n, float(k))), np.full(n, 2.0 * k))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert errors == []


def test_an_engine_that_is_exchanged():
    f = lambda x: (x * x).sum()  # noqa: E731
    equal(tn.grad(f)(X), 2 * X)
    tn.default_runtime().reconfigure(lambda c: c)
    equal(tn.grad(f)(X), 2 * X)
