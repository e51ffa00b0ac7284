"""Callbacks in lanes, in derivatives, in loops and in branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.reference import ReferenceEngine
from tenferro.tracer.stored import NotStored, Writer
from tests.debug.seen import POINT, SCALAR, Seen, like, programs, x3


@pytest.mark.parametrize("name", ["plain", "counted", "scanned"])
@pytest.mark.parametrize("jitted", [False, True])
def test_lanes_are_called_in_order(name: str, jitted: bool):
    seen = Seen()
    f = programs(lambda *xs: tn.debug.callback(seen, *xs), (tn.lax, tn.numpy))[name]
    run = tn.vmap(f)
    points = np.stack([POINT, POINT * 2, POINT * 3])
    found = (tn.jit(run) if jitted else run)(points)
    calls = seen.taken()
    alone = []
    for point, y in zip(points, found, strict=True):
        assert f(point) == pytest.approx(y)
        alone.append(seen.taken())
    # Lanes take each turn together.
    assert calls == [calls_of_turn[k] for calls_of_turn in zip(*alone, strict=True) for k in range(3)]


@pytest.mark.parametrize("call", ["debug", "io", "pure"])
@pytest.mark.parametrize("jitted", [False, True])
def test_a_branch_that_a_lane_does_not_take_calls_nothing_for_it(call: str, jitted: bool):
    seen = Seen()

    def note(v: Any) -> Any:
        seen(v)
        return np.asarray(v) * 1.0

    def yes(v: Any, same: Any) -> Any:
        if call == "debug":
            tn.debug.callback(seen, v)
            tn.debug.callback(seen, same)
            return v * 2
        calling = tn.io_callback if call == "io" else tn.pure_callback
        return calling(note, SCALAR, v) + 0 * calling(note, SCALAR, same) + v

    def f(v: Any, same: Any) -> Any:
        return tn.lax.cond(v > 1, yes, lambda v, same: v, v, same)

    run: Any = tn.vmap(f, in_axes=(0, None))
    run = tn.jit(run) if jitted else run
    assert run(np.array([0.5, 2.0, 1.0, 3.0]), np.float64(7.0)).tolist() == [0.5, 4.0, 1.0, 6.0]
    assert sorted(seen.taken()) == [(2.0,), (3.0,), (7.0,), (7.0,)]
    assert run(np.array([0.5, 0.25]), np.float64(7.0)).tolist() == [0.5, 0.25]
    assert seen.taken() == []


def test_lanes_of_a_loop_that_have_stopped_call_nothing():
    seen = Seen()

    def f(x: Any) -> Any:
        def body(c: Any) -> Any:
            tn.debug.callback(seen, c)
            return c * 2

        return tn.lax.while_loop(lambda c: c < 8, body, x)

    assert tn.vmap(f)(np.array([1.0, 4.0, 9.0])).tolist() == [8.0, 8.0, 9.0]
    assert seen.taken() == [(1.0,), (2.0,), (4.0,), (4.0,)]


def test_results_of_effects_are_used_once_by_derivatives():
    seen = Seen()

    def read(v: Any) -> Any:
        seen(v)
        return np.float64(3.0)

    def f(x: Any) -> Any:
        def body(c: Any, v: Any) -> Any:
            return c * v * tn.io_callback(read, SCALAR, np.float64(1.0)), None

        return tn.lax.scan(body, x[0], x)[0]

    np.testing.assert_allclose(tn.grad(f)(POINT), 27 * np.array([2 * 1.5 * 1.0, 1.5**2 * 0.5, 1.5**2 * 2.0]))
    assert len(seen.taken()) == 3
    tn.jvp(f, (POINT,), (POINT,))
    assert len(seen.taken()) == 3


def test_a_callback_has_a_derivative_by_a_rule_alone():
    def sin(x: Any) -> Any:
        return tn.pure_callback(np.sin, like(x), x)

    for take in (tn.grad, lambda f: lambda x: tn.jvp(f, (x,), (x,))):
        with pytest.raises(tn.TenferroError, match=r"tn.custom_jvp or tn.custom_vjp .*test_callbacks_transformed.py"):
            take(lambda x: sin(x).sum())(x3)  # type: ignore[operator]

    ruled = tn.custom_jvp(sin)
    ruled.defjvp(lambda primals, tangents: (sin(primals[0]), np.cos(primals[0]) * tangents[0]))
    np.testing.assert_allclose(tn.grad(lambda x: ruled(x).sum())(x3), np.cos(x3))
    np.testing.assert_allclose(tn.jit(tn.vmap(tn.grad(lambda x: ruled(x))))(x3), np.cos(x3))


def test_programs_with_callbacks_are_not_kept_on_disk():
    seen = Seen()
    f = tn.jit(lambda x: (tn.debug.callback(seen, x), x + 1)[1])
    with pytest.raises(NotStored, match="debug_callback calls a function of the user's"):
        Writer().program(f.trace(x3))


def test_the_reference_engine_calls_too():
    seen = Seen()
    f = programs(lambda *xs: tn.debug.callback(seen, *xs), (tn.lax, tn.numpy))["scanned"]
    lowered = tn.jit(f).lower(POINT)
    executable = ReferenceEngine().compile(lowered.plan)
    executable.run([POINT])
    first = seen.taken()
    tn.jit(f)(POINT)
    assert first == seen.taken() and len(first) == 3


def test_an_error_of_a_kernel_after_effects_does_not_repeat_them():
    seen = Seen()

    @tn.jit
    def f(x: Any, k: Any) -> Any:
        tn.lax.scan(lambda c, v: (tn.debug.callback(seen, v), (c, None))[1], 0.0, x)
        return x[k] * 2

    with pytest.raises(IndexError):
        f(x3, np.array([7]))
    assert seen.taken() == [(0.0,), (1.0,), (2.0,)]


@pytest.mark.parametrize("way", ["plain", "grad", "jit grad", "jvp", "hessian", "jacfwd"])
def test_what_a_checkpoint_computes_again_calls_nothing_again(way: str):
    """JAX calls again where it computes again; the calls here are those of the function."""
    seen = Seen()

    def f(x: Any) -> Any:
        def body(c: Any, v: Any) -> Any:
            def yes(c: Any) -> Any:
                tn.debug.callback(seen, c)
                return c * v

            tn.debug.callback(seen, v)
            return tn.lax.cond(v > 1, yes, lambda c: c, c), None

        return np.sin(tn.lax.scan(tn.checkpoint(body), 1.0, x)[0])

    ways: dict[str, Any] = {
        "plain": f, "grad": tn.grad(f), "jit grad": tn.jit(tn.grad(f)), "jvp": lambda x: tn.jvp(f, (x,), (x,)),
        "hessian": tn.hessian(f), "jacfwd": tn.jacfwd(f),
    }  # fmt: skip
    for function in (ways[way], tn.checkpoint(ways[way])):
        function(np.array([0.5, 2.0, 3.0]))
        assert seen.taken() == [(0.5,), (2.0,), (1.0,), (3.0,), (2.0,)]


def test_a_checkpointed_loop_is_silent_when_it_is_computed_again():
    seen = Seen()

    def f(x: Any) -> Any:
        return tn.lax.scan(lambda c, v: (tn.debug.callback(seen, v), (np.sin(c * v), None))[1], 1.0, x)[0]

    point = np.array([0.5, 2.0])
    wanted = tn.grad(f)(point)
    assert seen.taken() == [(0.5,), (2.0,)]
    for run in (tn.grad(tn.checkpoint(f)), tn.jit(tn.grad(tn.checkpoint(f))), tn.grad(tn.checkpoint(tn.checkpoint(f)))):
        np.testing.assert_allclose(run(point), wanted)
        assert seen.taken() == [(0.5,), (2.0,)]


def test_arrays_that_a_callback_keeps_stay_as_they_were():
    kept: list[Any] = []
    copies: list[Any] = []

    def keep(*xs: Any) -> None:
        kept.extend(xs)
        copies.extend(np.array(x) for x in xs)

    def f(x: Any) -> Any:
        y = x * 2.0
        tn.debug.callback(keep, y, y[::2])
        y[0] = 5.0
        y += 1
        tn.debug.callback(keep, y)
        return tn.lax.scan(lambda c, v: (tn.debug.callback(keep, c), (c * v, None))[1], y, x)[0]

    one, lanes = tn.jit(f), tn.jit(tn.vmap(f))
    for k in range(4):
        one(np.arange(3.0) + k)
        lanes(np.arange(9.0).reshape(3, 3) + k)
    assert all(np.array_equal(a, b) for a, b in zip(kept, copies, strict=True)) and len(kept) > 20


def test_callbacks_read_what_stands_outside_as_it_is_when_they_run():
    weights, log = np.ones(3), [np.zeros(3)]

    @tn.jit
    def f(x: Any) -> Any:
        def helper(v: Any) -> Any:
            log.append(v * weights)
            return v * weights

        def around(v: Any, scale: Any = weights) -> Any:
            return helper(v) + 0 * scale

        tn.debug.callback(lambda v: helper(v), x)
        return tn.pure_callback(around, like(x), x) * weights

    for k in range(3):
        assert f(x3).tolist() == (x3 * weights**2).tolist()
        assert len(log) == 1 + 2 * (k + 1) and log[-1].tolist() == (x3 * weights).tolist()
        assert all(type(v) is np.ndarray for v in log)
        weights *= 2


def test_methods_of_lists_are_those_of_the_list_outside():
    log: list[Any] = []

    @tn.jit
    def f(x: Any) -> Any:
        tn.debug.callback(log.append, x)
        return x + 1

    for k in range(3):
        f(x3 + k)
    assert [v.tolist() for v in log] == [(x3 + k).tolist() for k in range(3)]


def test_conditions_call_back_too_also_without_a_carry():
    def count(x: Any) -> Any:
        def goes_on(c: Any) -> Any:
            return tn.io_callback(lambda v: np.bool_(v < 5), tn.ShapeDtypeStruct((), np.bool_), c)

        return tn.lax.while_loop(goes_on, lambda c: c + 1, x)

    assert count(0.0) == tn.jit(count)(0.0) == 5.0
    assert tn.vmap(count)(np.array([0.0, 7.0])).tolist() == [5.0, 7.0]
    assert tn.grad(count)(0.0) == 1.0
    left = [True, True, False]
    ask = lambda _: tn.io_callback(lambda: np.bool_(left.pop(0)), tn.ShapeDtypeStruct((), np.bool_))  # noqa: E731
    assert tn.lax.while_loop(ask, lambda c: None, None) is None
    assert left == []
