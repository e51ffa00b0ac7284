"""Callbacks: how often they are called, in which order, with what, and what becomes of what they return or raise."""

from __future__ import annotations

import threading
import traceback
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.reference import ReferenceEngine
from tenferro.tracer.stored import NotStored, Writer

x3 = np.arange(3.0)
SCALAR = tn.ShapeDtypeStruct((), np.float64)


def like(x: Any) -> Any:
    return tn.ShapeDtypeStruct(x.shape, x.dtype)


class Seen:
    """What a callback was called with."""

    def __init__(self) -> None:
        self.calls: list[Any] = []

    def __call__(self, *xs: Any) -> None:
        self.calls.append(tuple(np.asarray(x).tolist() for x in xs))

    def taken(self) -> list[Any]:
        found, self.calls = self.calls, []
        return found


def test_a_callback_gets_arrays_that_are_read_only_and_scalars_and_what_is_not_traced_as_it_is():
    found: list[Any] = []

    def keep(x: Any, n: Any, *rest: Any, name: str) -> None:
        found.extend([x, n, rest, name])

    @tn.jit
    def f(x: Any) -> Any:
        tn.debug.callback(keep, x, x.sum(), 5, None, name="text")
        return x

    f(x3)
    x, n, rest, name = found
    assert type(x) is np.ndarray and not x.flags.writeable and x.tolist() == [0.0, 1.0, 2.0]
    assert type(n) is np.float64 and n == 3.0
    assert (rest, name) == ((5, None), "text")


def test_effects_happen_at_each_call_though_nobody_reads_their_results():
    seen = Seen()

    @tn.jit
    def f(x: Any) -> Any:
        tn.io_callback(lambda v: (seen(v), v)[1], like(x), x)
        tn.io_callback(lambda v: (seen(v), v)[1], like(x), x)  # equal operations are not one
        return x + 1

    for _ in range(3):
        assert f(x3).tolist() == [1.0, 2.0, 3.0]
        assert seen.taken() == [([0.0, 1.0, 2.0],)] * 2


def test_a_pure_callback_that_nobody_reads_is_not_called_and_equal_ones_are_one():
    seen = Seen()

    def double(v: Any) -> Any:
        seen(v)
        return v * 2

    tn.jit(lambda x: (tn.pure_callback(double, like(x), x), x + 1)[1])(x3)
    assert seen.taken() == []
    found = tn.jit(lambda x: tn.pure_callback(double, like(x), x) + tn.pure_callback(double, like(x), x))(x3)
    assert found.tolist() == [0.0, 4.0, 8.0]
    assert len(seen.taken()) == 1


def test_the_order_is_the_programs():
    order: list[int] = []

    @tn.jit
    def f(x: Any) -> Any:
        y = np.sin(x)
        for k in range(6):
            tn.debug.callback(lambda v, k=k: order.append(k), x if k % 2 else np.exp(y).sum() + k)
        return y

    f(x3)
    assert order == list(range(6))


def test_results_are_pytrees_of_declared_types_also_of_traced_sizes():
    @tn.jit
    def f(x: Any) -> Any:
        found = tn.pure_callback(
            lambda v: {"n": np.int64(v.size), "two": (v[::-1], np.float32([v.sum()]))},
            {"n": tn.ShapeDtypeStruct((), np.int64), "two": (like(x), tn.ShapeDtypeStruct((1,), np.float32))}, x,
        )  # fmt: skip
        return found["n"] + 1, found["two"][0] * 2, found["two"][1]

    for n in (3, 5):
        count, turned, total = f(np.arange(float(n)))
        assert count == n + 1 and total.dtype == np.float32
        assert turned.tolist() == [2.0 * k for k in range(n)][::-1]
    assert f.cache_info().compiles == 1


def test_at_once_outside_a_trace():
    seen = Seen()
    found = tn.pure_callback(lambda v: v * 2, like(x3), x3)
    assert type(found) is np.ndarray and found.tolist() == [0.0, 2.0, 4.0]
    wrapped = tn.io_callback(lambda v: v * 2, like(x3), tn.asarray(x3))
    assert isinstance(wrapped, tn.Array)
    tn.debug.callback(seen, tn.asarray(x3), 2)
    assert seen.taken() == [([0.0, 1.0, 2.0], 2)]
    assert type(tn.pure_callback(lambda: 1.5, SCALAR)) is np.float64


WRONG: tuple[tuple[Callable[[Any], Any], str], ...] = (
    (lambda v: v[:1], r"the result is float64 of shape \(1,\); float64 of shape \(3,\) is declared"),
    (lambda v: v.astype(np.float32), r"the result is float32 of shape \(3,\); float64 of shape \(3,\) is declared"),
    (lambda v: (v, v), "the result has the structure"),
    (lambda v: None, "the result has the structure|the result is object"),
)


@pytest.mark.parametrize("call", [tn.pure_callback, tn.io_callback])
@pytest.mark.parametrize(("function", "text"), WRONG)
def test_what_is_not_declared_is_refused(call: Any, function: Any, text: str):
    for run in (tn.jit(lambda x: call(function, like(x), x)), lambda x: call(function, like(x), x)):
        with pytest.raises(tn.CallbackError, match=text):
            run(x3)


def test_an_exception_keeps_its_type_and_traceback_and_gets_a_note_of_the_line():
    class Mine(Exception):
        pass

    def fails(v: Any) -> Any:
        raise Mine("three")

    def around(x: Any) -> Any:
        return tn.lax.scan(lambda c, v: (c + tn.pure_callback(fails, SCALAR, v), None), 0.0, x)[0]

    for run in (tn.jit(lambda x: tn.pure_callback(fails, like(x), x)), tn.jit(around), around, tn.vmap(around)):
        with pytest.raises(Mine, match="three") as error:
            run(x3 if run is not None and not isinstance(run, type(tn.vmap(around))) else np.stack([x3, x3]))
        assert any("test_callbacks.py:" in note for note in error.value.__notes__)
        assert traceback.extract_tb(error.value.__traceback__)[-1].name == "fails"


def test_a_callback_may_call_jitted_functions_and_itself_be_jitted():
    inner = tn.jit(lambda v: np.sin(v) * 2)

    @tn.jit
    def f(x: Any) -> Any:
        return tn.pure_callback(lambda v: inner(v) + np.asarray(inner(v)), like(x), x) + 1

    for _ in range(2):
        np.testing.assert_allclose(f(x3), 4 * np.sin(x3) + 1)
    assert tn.jit(lambda x: tn.pure_callback(inner, like(x), x))(x3).tolist() == inner(x3).tolist()
    depth = [0]

    @tn.jit
    def again(x: Any) -> Any:
        def more(v: Any) -> Any:
            depth[0] += 1
            return again(v) if depth[0] < 4 else v

        return tn.io_callback(more, like(x), x) * 2

    assert again(x3).tolist() == [0.0, 16.0, 32.0]


def test_callbacks_run_on_the_callers_thread():
    threads: set[int] = set()

    @tn.jit
    def f(x: Any) -> Any:
        tn.debug.callback(lambda v: threads.add(threading.get_ident()), x)
        return np.sin(x).sum()

    f(np.ones(1 << 20))
    assert threads == {threading.get_ident()}


def test_on_several_engines_too():
    threads: set[int] = set()
    order: list[float] = []

    def note(k: Any, v: Any) -> None:
        threads.add(threading.get_ident())
        order.append(float(k))

    tn.cpu_engines(2)

    @tn.jit(engines=["cpu:0", "cpu:1"])
    def f(x: Any) -> Any:
        for k in range(4):
            with tn.on(f"cpu:{k % 2}"):
                tn.debug.callback(note, k, np.sin(x + k).sum())
        with tn.on("cpu:1"):
            return np.cos(x)

    np.testing.assert_allclose(f(x3), np.cos(x3))
    assert order == [0.0, 1.0, 2.0, 3.0]
    assert threads == {threading.get_ident()}


def test_numpys_warnings_are_on_inside():
    @tn.jit
    def f(x: Any) -> Any:
        return tn.pure_callback(lambda v: 1 / v, like(x), x)

    with pytest.warns(RuntimeWarning, match="divide by zero"):
        f(x3)


# -- transformations ---------------------------------------------------------------------------------------------------


def programs(call: Any, lib: Any) -> dict[str, Any]:
    """Functions of an array that call back, in tenferro's or JAX's words."""
    lax, np_ = lib

    def plain(x: Any) -> Any:
        call(x)
        return (x**2).sum()

    def scanned(x: Any) -> Any:
        def body(c: Any, v: Any) -> Any:
            call(c, v)
            return c * v + 1.0, c

        last, ys = lax.scan(body, x[0], x)
        return last + ys.sum()

    def looped(x: Any) -> Any:
        def body(c: Any) -> Any:
            call(c)
            return c * 2.0

        return lax.while_loop(lambda c: c < 10.0, body, x.sum())

    def counted(x: Any) -> Any:
        def body(i: Any, c: Any) -> Any:
            call(i, c)
            return c + np_.asarray(x)[i]

        return lax.fori_loop(0, 3, body, 0.5 * x[0])

    def chosen(x: Any) -> Any:
        def yes(v: Any) -> Any:
            call(v, 1.0)
            return (v * 2.0).sum()

        def no(v: Any) -> Any:
            return np_.sin(v).sum()

        return lax.cond(x[0] > 1.0, yes, no, x)

    def silent(x: Any) -> Any:
        def yes(v: Any) -> None:
            call(v)

        lax.cond(x[0] > 1.0, yes, lambda v: None, x)
        lax.scan(lambda c, v: (call(v), (None, None))[1], None, x)
        return x.sum()

    return {f.__name__: f for f in (plain, scanned, looped, counted, chosen, silent)}


NAMES = ("plain", "scanned", "looped", "counted", "chosen", "silent")
POINT = np.array([1.5, 2.0, 0.5])


def both(name: str) -> tuple[Any, Seen, Any, Seen]:
    ours, theirs = Seen(), Seen()
    f = programs(lambda *xs: tn.debug.callback(ours, *xs), (tn.lax, tn.numpy))[name]
    g = programs(lambda *xs: jax.debug.callback(theirs, *xs, ordered=True), (jax.lax, jnp))[name]
    return f, ours, g, theirs


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("point", [POINT, POINT[::-1].copy()])
@pytest.mark.parametrize("way", ["call", "jit", "grad", "jit grad", "jvp", "jit jvp", "vjp", "value_and_grad"])
def test_calls_are_those_of_jax(name: str, point: Any, way: str):
    f, ours, g, theirs = both(name)
    with jax.enable_x64(True):
        if way == "call":
            found, wanted = f(point), g(point)
        elif way == "jit":
            found, wanted = tn.jit(f)(point), jax.jit(g)(point)
        elif "grad" in way and "value" not in way and name == "looped":
            found = (tn.jit(tn.grad(f)) if "jit" in way else tn.grad(f))(point)  # JAX has no reverse mode here
            wanted = jax.jvp(g, (point,), (np.ones(3),))[1] * np.ones(3)
            wanted = wanted / 3
        elif way in ("grad", "jit grad"):
            found, wanted = tn.grad(f)(point), jax.grad(g)(point)
            if way == "jit grad":
                ours.taken()
                found = tn.jit(tn.grad(f))(point)
        elif way in ("vjp", "value_and_grad") and name == "looped":
            return
        elif way == "vjp":
            y, back = tn.vjp(f, point)
            found = back(np.ones_like(y))[0]
            y, back = jax.vjp(g, point)
            wanted = back(jnp.ones_like(y))[0]
        elif way == "value_and_grad":
            found, wanted = tn.value_and_grad(f)(point)[1], jax.value_and_grad(g)(point)[1]
        else:
            run = lambda t: tn.jvp(f, (t,), (np.ones(3),))[1]  # noqa: E731
            found = (tn.jit(run) if "jit" in way else run)(point)
            wanted = jax.jvp(g, (point,), (np.ones(3),))[1]
        jax.effects_barrier()
    np.testing.assert_allclose(found, np.asarray(wanted), rtol=1e-12)
    assert ours.taken() == theirs.taken()


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


@pytest.mark.parametrize("method", ["sequential", "expand_dims", "broadcast_all"])
def test_methods_of_vmap_are_those_of_jax(method: Any):
    shapes: list[Any] = []
    theirs: list[Any] = []

    def of(into: list[Any]) -> Any:
        def f(a: Any, b: Any) -> Any:
            into.append((np.shape(a), np.shape(b)))
            return np.asarray(a) + np.asarray(b)

        return f

    a, b = np.arange(6.0).reshape(2, 3), np.arange(3.0)
    found = tn.vmap(
        lambda a, b: tn.pure_callback(of(shapes), like(a), a, b, vmap_method=method), in_axes=(0, None)
    )(a, b)  # fmt: skip
    with jax.enable_x64(True):
        wanted = jax.vmap(
            lambda a, b: jax.pure_callback(
                of(theirs), jax.ShapeDtypeStruct((3,), np.float64), a, b, vmap_method=method
            ),
            in_axes=(0, None),
        )(a, b)
    np.testing.assert_array_equal(found, np.asarray(wanted))
    assert shapes == theirs
    with pytest.raises(ValueError, match="vmap_method is 'other'; one of sequential"):
        tn.pure_callback(np.sin, SCALAR, 1.0, vmap_method="other")


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
        with pytest.raises(tn.TenferroError, match=r"tn.custom_jvp or tn.custom_vjp .*test_callbacks.py"):
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
