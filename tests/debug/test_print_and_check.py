"""``tn.debug.print``, ``tn.debug.breakpoint`` and ``tn.check``: texts, lines, lanes, and when they happen."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import numpy as np
import pytest

import tenferro as tn

x3 = np.arange(3.0)


def test_fields_are_filled_as_by_format(capsys: Any):
    @tn.jit
    def f(x: Any, n: int) -> Any:
        tn.debug.print("{} {y:.2f} {word!r:>6} {d[k]} {n}", x, y=x.sum(), word="a", d={"k": x[1]}, n=n)
        return x

    f(x3, 4)
    f(x3 + 1, 5)
    assert capsys.readouterr().out.splitlines() == ["[0. 1. 2.] 3.00    'a' 1.0 4", "[1. 2. 3.] 6.00    'a' 2.0 5"]
    tn.debug.print("at once {} {{}}", tn.asarray(x3))
    assert capsys.readouterr().out == "at once [0. 1. 2.] {}\n"


def test_lanes_print_in_order_and_derivatives_print_once(capsys: Any):
    def f(x: Any) -> Any:
        tn.debug.print("x = {}", x)
        return x * x

    xs = np.array([1.0, 2.0])
    printed = "x = 1.0\nx = 2.0\n"
    for run in (tn.vmap(f), tn.jit(tn.vmap(f)), tn.vmap(tn.grad(f)), tn.jit(tn.vmap(tn.grad(f))), tn.vmap(tn.jit(f))):
        run(xs)
        assert capsys.readouterr().out == printed
    derivatives: tuple[Any, ...] = (
        tn.grad(f),
        tn.value_and_grad(f),
        tn.jit(tn.grad(f)),
        tn.grad(tn.jit(f)),
        lambda x: tn.jvp(f, (x,), (x,)),
        tn.hessian(f),
    )
    for run in derivatives:
        run(1.0)
        assert capsys.readouterr().out == "x = 1.0\n"


def test_under_checkpoint_the_function_itself_prints_once(capsys: Any):
    def f(x: Any) -> Any:
        tn.debug.print("x = {}", x)
        return np.sin(np.sin(x))

    for run in (tn.grad(tn.checkpoint(f)), tn.jit(tn.grad(tn.checkpoint(f)))):
        assert run(1.0) == pytest.approx(tn.grad(f)(1.0))
        assert set(capsys.readouterr().out.splitlines()) == {"x = 1.0"}
    tn.grad(tn.checkpoint(f))(1.0)
    assert capsys.readouterr().out == "x = 1.0\n"
    tn.jvp(tn.checkpoint(f), (1.0,), (1.0,))
    assert capsys.readouterr().out == "x = 1.0\n"


def test_a_text_that_cannot_be_filled_is_refused_at_its_line():
    for fmt, field in (("{} {}", "1"), ("{name}", "name"), ("{2}", "2"), ("{a.b}", "a")):
        with pytest.raises(
            ValueError, match=rf"has the field '{field}', which no argument fills .*test_print_and_check"
        ):
            tn.jit(lambda x, fmt=fmt: tn.debug.print(fmt, x))(x3)
    for fmt, args, kwargs, name in (
        ("x={}", (1, 2), {}, r"args\[1\]"),
        ("{1}", (1, 2), {}, r"args\[0\]"),
        ("{a}", (), {"a": 1, "b": 2}, "b"),
    ):
        for f in (tn.debug.print, tn.jit(lambda *a, fmt=fmt, **k: tn.debug.print(fmt, *a, **k))):
            with pytest.raises(ValueError, match=rf"has no field for {name}; one for each .*test_print_and_check"):
                f(*((fmt, *args) if f is tn.debug.print else args), **kwargs)
    tn.debug.print("{:{}} {w:.{p}}", 1.5, 6, w=2.25, p=2)  # fields of fields count
    with pytest.raises(ValueError, match=r"check: 'no' has no field for args\[0\]"):
        tn.check(True, "no", x3)
    with pytest.raises(TypeError, match="fmt is a ndarray"):
        tn.debug.print(x3)  # type: ignore[arg-type]


def test_disabled_and_nested_functions_print(capsys: Any):
    inner = tn.jit(lambda x: (tn.debug.print("in {}", x), x + 1)[1])
    outer = tn.jit(lambda x: inner(inner(x)))
    outer(1.0)
    assert capsys.readouterr().out == "in 1.0\nin 2.0\n"
    with tn.disable_jit():
        outer(1.0)
    assert capsys.readouterr().out == "in 1.0\nin 2.0\n"


def test_breakpoint_stops_with_the_values_at_the_users_line(monkeypatch: Any):
    stops: list[Any] = []

    def hook() -> None:
        frame = sys._getframe(1)
        stops.append((dict(frame.f_globals), frame.f_code.co_filename, frame.f_lineno))

    monkeypatch.setattr(sys, "breakpointhook", hook)

    def f(x: Any) -> Any:
        y = x * 2
        tn.debug.breakpoint(x, y, total=y.sum())
        return y.sum()

    number = inspect.getsourcelines(f)[1] + 2
    for run in (f, tn.jit(f), tn.grad(f)):
        run(x3)
        ((variables, file, line),) = stops
        stops.clear()
        assert (file, line) == (__file__, number)
        assert variables["x"].tolist() == [0.0, 1.0, 2.0] and variables["y"].tolist() == [0.0, 2.0, 4.0]
        assert variables["total"] == 6.0 and variables["line"] == f"{__file__}:{number}"
        assert [v.tolist() for v in variables["values"]] == [[0.0, 1.0, 2.0], [0.0, 2.0, 4.0]]


def test_a_debugger_runs_in_the_frame(monkeypatch: Any, capsys: Any):
    import io
    import pdb

    def hook() -> None:
        debugger = pdb.Pdb(stdin=io.StringIO("p x + 1\np line\nc\n"), stdout=sys.stdout, nosigint=True, readrc=False)
        debugger.use_rawinput = False
        debugger.set_trace(sys._getframe(1))

    monkeypatch.setattr(sys, "breakpointhook", hook)
    before = sys.gettrace()
    tn.jit(lambda x: (tn.debug.breakpoint(x), x)[1])(x3)
    sys.settrace(before)
    assert "[1., 2., 3.]" in capsys.readouterr().out


def checked(x: Any) -> Any:
    tn.check(x > 0, "x is {x:.1f}, limit {}", 0, x=x)
    return x * 2


WHERE = f"test_print_and_check.py:{inspect.getsourcelines(checked)[1] + 1}"


@pytest.mark.parametrize("transform", [lambda f: f, tn.jit, tn.grad, lambda f: tn.jit(tn.grad(f)), tn.checkpoint])
def test_a_check_that_does_not_hold_raises(transform: Any):
    f = transform(checked)
    assert f(1.5) in (3.0, 2.0)
    with pytest.raises(tn.FailedCheckError, match=rf"check: x is -1.5, limit 0 \(at .*{WHERE}\)"):
        f(-1.5)
    assert f(2.5) in (5.0, 2.0)  # it goes on serving


def test_the_first_lane_that_fails_is_named():
    for f in (tn.vmap(checked), tn.jit(tn.vmap(checked))):
        assert f(np.array([1.0, 2.0])).tolist() == [2.0, 4.0]
        with pytest.raises(tn.FailedCheckError, match=rf"x is -2.0, limit 0; in lane 1 \(at .*{WHERE}\)"):
            f(np.array([1.0, -2.0, -3.0]))
    twice = tn.vmap(tn.vmap(checked))
    with pytest.raises(tn.FailedCheckError, match=r"x is 0.0, limit 0; in lane \(1, 0\)"):
        twice(np.array([[1.0, 2.0], [0.0, 3.0]]))


def test_every_element_must_hold_and_a_check_is_never_dropped():
    f = tn.jit(lambda x: (tn.check(x < 2, "too large: {}", x), 1)[1])
    assert f(x3[:2]) == 1
    with pytest.raises(tn.FailedCheckError, match=r"too large: \[0. 1. 2.\]"):
        f(x3)
    with pytest.raises(AssertionError):
        tn.check(False, "at once")
    tn.check(True, "at once")
    tn.check(np.zeros(0, bool), "of nothing")


def test_checks_of_loops_and_branches_count_where_they_are_reached():
    def f(x: Any) -> Any:
        def body(c: Any, v: Any) -> Any:
            tn.lax.cond(v > 1, lambda v: tn.check(v < 3, "v is {}", v), lambda v: None, v)
            return c + v, None

        return tn.lax.scan(body, 0.0, x)[0]

    for run in (f, tn.jit(f), tn.grad(f)):
        run(np.array([-5.0, 2.0]))
        with pytest.raises(tn.FailedCheckError, match="v is 4.0"):
            run(np.array([1.0, 2.0, 4.0, 5.0]))


def test_pythons_numbers_print_as_outside(capsys: Any):
    def f(x: Any, n: Any, rate: Any) -> Any:
        tn.debug.print("{} {} {}", x.shape, [n, {"rate": rate}], x[:1])
        return x

    arguments = (np.ones((2, 3)), 4, 0.5)
    f(*arguments)
    said = capsys.readouterr().out
    assert said == "(2, 3) [4, {'rate': 0.5}] [[1. 1. 1.]]\n"
    tn.jit(f)(*arguments)
    tn.vmap(tn.jit(f), in_axes=(0, None, None))(np.ones((2, 2, 3)), 4, 0.5)
    assert capsys.readouterr().out == 3 * said


@pytest.mark.parametrize("run", [tn.jit, lambda f: f])
def test_a_format_for_an_array_is_named(run: Any):
    def f(x: Any) -> Any:
        tn.debug.print("{:.2f}", x)
        return x

    with pytest.raises(
        TypeError, match=r"debug\.print: '\{:\.2f\}' has a format for an array; a field without"
    ) as raised:
        run(f)(np.ones(3))
    assert "test_print_and_check" in raised.value.__notes__[0]
