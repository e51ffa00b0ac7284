"""``checkpoint``: the same bits, less memory, and just the policy's values kept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import MutationError, ShapeError, TraceError
from tests.transform.peer import agrees, same

X = np.linspace(0.2, 1.4, 5)
Y = np.linspace(1.0, 2.0, 5)
policies = tn.checkpoint_policies


def chain(np: Any, x: Any, y: Any) -> Any:
    return np.sin(np.sin(np.sin(x) * y) * x)


# -- every transformation ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("argnums", [0, 1, (0, 1)])
def test_gradients(argnums: Any):
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        f = lib.checkpoint(lambda x, y: chain(np, x, y))
        return lib.value_and_grad(lambda x, y: (f(x, y) ** 2).sum(), argnums)  # type: ignore[no-any-return]

    found = agrees(make, X, Y)
    plain = tn.value_and_grad(lambda x, y: (chain(np, x, y) ** 2).sum(), argnums)
    same(found, plain(X, Y), "without checkpoint")


def test_second_order_and_forward_mode():
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        f = lib.checkpoint(lambda x: chain(np, x, x))
        first = lib.grad(lambda x: f(x).sum())
        second = lib.grad(lambda x: (first(x) * x).sum())
        return lambda x: (
            first(x), second(x), lib.grad(lambda x: second(x).sum())(x), lib.jvp(f, (x,), (x,)),
            lib.jvp(first, (x,), (x,)), lib.hessian(lambda x: f(x).sum())(x), lib.linearize(f, x)[1](x),
        )  # fmt: skip

    agrees(make, X)


def test_lanes():
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        f = lib.checkpoint(lambda x, y: chain(np, x, y))
        return lambda x, y: (
            lib.vmap(lib.grad(f, (0, 1)), (0, None))(x, y[0]),
            lib.grad(lambda x, y: lib.vmap(f, (0, None))(x, y).sum(), (0, 1))(x, y[0]),
        )

    agrees(make, X, Y)


def test_lanes_meet_inside():
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        psum = lib.psum if lib is tn else lib.lax.psum
        f = lib.checkpoint(lambda x: np.sin(x) * psum(x * x, "lanes"))
        mapped = lib.vmap(f, axis_name="lanes")
        return lambda x: (
            mapped(x),
            lib.grad(lambda x: mapped(x).sum())(x),
            lib.vmap(lib.grad(f), axis_name="lanes")(x),
        )

    agrees(make, X)


def test_inside_of_loops():
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        f = lib.checkpoint(lambda c, x: (chain(np, c, x), np.cos(c)))
        g = lib.checkpoint(lambda x: lib.lax.scan(f, x[0], x)[1])
        chosen = lambda x: lib.lax.cond(x[0] > 0, lambda y: f(y, y)[0], lambda y: y, x[1])  # noqa: E731
        return lib.value_and_grad(lambda x: (g(x) ** 2).sum() + chosen(x))  # type: ignore[no-any-return]

    agrees(make, X)


def test_nested():
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        inner = lib.checkpoint(lambda x: chain(np, x, x))
        outer = lib.checkpoint(lambda x: inner(np.cos(x)) * inner(x))
        return lambda x: (lib.grad(lambda x: outer(x).sum())(x), lib.hessian(lambda x: outer(x).sum())(x))

    agrees(make, X)


def test_closures_are_differentiated():
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        def loss(x: Any, y: Any) -> Any:
            f = lib.checkpoint(lambda x: chain(np, x, y) * y)
            return f(x).sum()

        return lib.grad(loss, (0, 1))  # type: ignore[no-any-return]

    agrees(make, X, Y)


def test_pytrees_numbers_and_names():
    @tn.checkpoint
    def f(p: Any, n: int, *, power: float = 2.0) -> Any:
        out = {"a": np.sin(p["w"]) ** power, "b": p["w"] * n}
        out["a"][1:] *= 2  # its own array
        return out

    def loss(p: Any) -> Any:
        found = f(p, 3, power=3.0)
        return found["a"].sum() + found["b"].sum()

    wanted = 3 * np.sin(X) ** 2 * np.cos(X) * np.array([1, 2, 2, 2, 2]) + 3
    np.testing.assert_allclose(tn.grad(loss)({"w": X})["w"], wanted)
    same(tn.jit(tn.grad(loss))({"w": X}), tn.grad(loss)({"w": X}), "jitted")


def test_static_arguments_are_handed_on():
    def f(x: Any, mode: str, n: int) -> Any:
        assert isinstance(n, int)
        for _ in range(n):
            x = np.sin(x) if mode == "sin" else x
        return x

    g = tn.checkpoint(f, static_argnums=(1, 2))
    np.testing.assert_allclose(tn.grad(lambda x: g(x, "sin", 2).sum())(X), np.cos(np.sin(X)) * np.cos(X))


def test_sizes_that_depend_on_elements_inside():
    f = tn.checkpoint(lambda x: (np.sin(x[x > 0.5]) ** 2).sum())
    wanted = np.where(X > 0.5, 2 * np.sin(X) * np.cos(X), 0)
    np.testing.assert_allclose(tn.grad(f)(X), wanted)
    np.testing.assert_allclose(tn.jit(tn.grad(f))(X), wanted)


def test_outside_a_trace_it_is_the_function():
    f = tn.checkpoint(lambda x: np.sin(x) * 2)
    assert type(f(X)) is np.ndarray
    assert type(f(tn.array(X))) is tn.Array
    assert tn.remat is tn.checkpoint


# -- what is kept ------------------------------------------------------------------------------------------------------


def sines(f: Callable[..., Any]) -> int:
    """How many sines value and gradient take, once passes have merged what they may."""
    text = tn.jit(tn.value_and_grad(lambda x: f(x).sum())).lower(X).as_text("exec")
    return text.count(" sin")


def named(x: Any) -> Any:
    a = tn.checkpoint_name(np.sin(x), "a")
    b = tn.checkpoint_name(np.sin(a) * a, "b")
    return np.sin(np.sin(b))


@pytest.mark.parametrize(
    ("policy", "count"),
    [
        (None, 7),  # four, and three of them again: the last one's slope is a cosine of what goes into it
        (policies.nothing_saveable, 7),
        (policies.everything_saveable, 4),
        (policies.save_only_these_names("a"), 6),
        (policies.save_only_these_names("a", "b"), 6),  # sin(a) is a factor in the slope of a * sin(a)
        (policies.save_any_names_but_these("a"), 7),
        (policies.save_anything_except_these_names("a"), 4),
        (policies.save_from_both_policies(policies.save_only_these_names("a"), policies.nothing_saveable), 6),
        (policies.dots_saveable, 7),
        (lambda op, *types, **params: op.name == "sin", 4),
    ],
)
def test_policies(policy: Any, count: int):
    f = tn.checkpoint(named, policy=policy)
    same(tn.grad(lambda x: f(x).sum())(X), tn.grad(lambda x: named(x).sum())(X), "bits")
    assert sines(f) == count


def test_names_alone_change_nothing():
    assert sines(named) == 4
    same(named(X), np.sin(np.sin(np.sin(np.sin(X)) * np.sin(X))), "outside")
    assert "checkpoint_name" not in str(tn.jit(named).trace(X))


def test_products_are_kept():
    w = np.random.default_rng(0).standard_normal((5, 5))

    def f(x: Any) -> Any:
        return np.sin(np.sin(x @ w) @ w)

    def products(policy: Any) -> int:
        g = tn.checkpoint(f, policy=policy)
        return tn.jit(tn.value_and_grad(lambda x: g(x).sum())).lower(np.ones((3, 5))).as_text("exec").count("matmul(")

    kept, none = products(policies.dots_with_no_batch_dims_saveable), products(None)
    assert products(policies.checkpoint_dots) == kept
    assert kept == 4
    assert none == 6


def test_merged_where_asked():
    assert sines(tn.checkpoint(named, prevent_cse=False)) == 4


def test_memory_falls_and_bits_stay():
    def block(x: Any) -> Any:
        for _ in range(12):
            x = np.sin(x) * 1.1
        return x

    def loss(block: Callable[..., Any]) -> Callable[..., Any]:
        return lambda x: (block(x).cumsum() * x).sum()

    x = np.linspace(0, 1, 10_000)
    plain, less = tn.jit(tn.grad(loss(block))), tn.jit(tn.grad(loss(tn.checkpoint(block))))
    same(less(x), plain(x), "bits")
    assert less.lower(x).memory().peak.bytes < plain.lower(x).memory().peak.bytes / 4


def test_a_loop_stacks_its_carry_alone():
    def body(c: Any, x: Any) -> Any:
        for _ in range(6):
            c = np.sin(c) * x
        return c, None

    def stacked(body: Callable[..., Any]) -> int:
        def last(x: Any) -> Any:
            return tn.lax.scan(body, np.ones(3), x)[0].sum()

        program = tn.jit(tn.grad(last)).trace(np.ones((4, 3)))
        first = next(o for o in program.operations if o.op.name == "scan")
        return len(first.outputs)

    assert stacked(tn.checkpoint(body)) == 2  # the carry at the end, and at each turn
    assert stacked(body) > 6


# -- refusals ----------------------------------------------------------------------------------------------------------


def test_refusals():
    with pytest.raises(ShapeError, match="a size that is known only when the program runs"):
        tn.grad(lambda x: tn.checkpoint(lambda x: x[x > 0.5])(x).sum())(X)
    with pytest.raises(TypeError, match="policy is 'dots'; a function is needed"):
        tn.checkpoint(np.sin, policy="dots")  # type: ignore[arg-type]
    with pytest.raises(TraceError, match="bool|if"):
        tn.grad(tn.checkpoint(lambda x: x if x > 0 else -x))(1.0)


def test_writing_what_is_around_is_refused():
    def loss(x: Any) -> Any:
        total = np.zeros(5)

        def add(x: Any) -> Any:
            total[:] = x
            return x

        return tn.checkpoint(add)(x).sum() + total.sum()

    with pytest.raises(MutationError, match="around the function under checkpoint"):
        tn.grad(loss)(X)
