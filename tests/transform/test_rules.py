"""``custom_jvp`` and ``custom_vjp``: followed by every transformation as JAX follows them; and wrong rules refused."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import DerivativeError
from tests.transform.peer import agrees, same

X = np.linspace(0.2, 1.4, 5)
Y = np.linspace(1.0, 2.0, 5)
Rule = Callable[[Any, Any], Callable[..., Any]]


def forward(np: Any, lib: Any) -> Callable[..., Any]:
    """A rule that is told apart from the true derivative: ten times as much."""

    @lib.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return np.sin(x) * y

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x, y), (dx, dy) = primals, tangents
        return f(x, y), 10 * np.cos(x) * y * dx + np.sin(x) * dy

    return f  # type: ignore[no-any-return]


def by_argument(np: Any, lib: Any) -> Callable[..., Any]:
    @lib.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return np.sin(x) * y

    f.defjvps(lambda t, z, x, y: 10 * np.cos(x) * y * t, lambda t, z, x, y: z / y * t)
    return f  # type: ignore[no-any-return]


def reverse(np: Any, lib: Any) -> Callable[..., Any]:
    @lib.custom_vjp
    def f(x: Any, y: Any) -> Any:
        return np.sin(x) * y

    def fwd(x: Any, y: Any) -> Any:
        return np.sin(x) * y, (np.cos(x), {"y": y, "s": np.sin(x)})

    def bwd(kept: Any, ct: Any) -> Any:
        c, rest = kept
        return 10 * c * rest["y"] * ct, rest["s"] * ct

    f.defvjp(fwd, bwd)
    return f  # type: ignore[no-any-return]


RULES: dict[str, Rule] = {"forward": forward, "by argument": by_argument, "reverse": reverse}
BOTH_MODES = {k: v for k, v in RULES.items() if k != "reverse"}


def each(rules: dict[str, Rule]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("rule", list(rules.values()), ids=list(rules))


@each(RULES)
def test_values_are_the_functions(rule: Rule):
    f = rule(np, tn)
    same(f(X, Y), np.sin(X) * Y, "outside")  # a plain call, on NumPy's own arrays
    np.testing.assert_allclose(f(X, y=2.0), np.sin(X) * 2)
    np.testing.assert_allclose(tn.jit(f)(X, Y), np.sin(X) * Y)
    assert type(f(tn.array(X), Y)) is tn.Array


@each(RULES)
@pytest.mark.parametrize("argnums", [0, 1, (0, 1)])
def test_gradients(rule: Rule, argnums: Any):
    agrees(lambda np, lib: lib.value_and_grad(lambda x, y: rule(np, lib)(x, y).sum(), argnums), X, Y)


@each(RULES)
def test_second_and_third_order(rule: Rule):
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        f = rule(np, lib)
        first = lib.grad(lambda x: (f(x, x) ** 2).sum())
        second = lib.grad(lambda x: (first(x) * x).sum())
        third = lib.grad(lambda x: (second(x) * x).sum())
        return lambda x: (first(x), second(x), third(x))

    agrees(make, X)


@each(BOTH_MODES)
def test_forward_mode(rule: Rule):
    agrees(lambda np, lib: lambda x, y: lib.jvp(rule(np, lib), (x, y), (y, x)), X, Y)
    agrees(lambda np, lib: lib.hessian(lambda x: rule(np, lib)(x, x).sum()), X)
    agrees(lambda np, lib: lambda x, y: lib.linearize(rule(np, lib), x, y)[1](y, x), X, Y)


@each(RULES)
def test_lanes(rule: Rule):
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        f = rule(np, lib)
        scalar = lib.vmap(lib.grad(f, (0, 1)), (0, None))
        outer = lib.grad(lambda x, y: lib.vmap(f, (0, None))(x, y).sum(), (0, 1))
        lanes = lib.grad(lambda x, y: lib.vmap(lib.vmap(f), (0, None))(x, y).sum(), (0, 1))
        nested = lib.vmap(lib.grad(lambda x: lib.grad(f)(x, x)))
        return lambda x, y: (scalar(x, y[0]), outer(x, y[0]), lanes(np.stack([x, y]), y), nested(x))

    agrees(make, X, Y)


def test_lanes_meet_inside_of_a_rule():
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        psum = lib.psum if lib is tn else lib.lax.psum
        f = lib.custom_jvp(lambda x: np.sin(x) * psum(x * x, "lanes"))
        f.defjvp(lambda ps, ts: (f(*ps), 10 * np.cos(ps[0]) * ts[0] + psum(ts[0], "lanes")))
        mapped = lib.vmap(f, axis_name="lanes")
        return lambda x: (lib.grad(lambda x: mapped(x).sum())(x), lib.jvp(mapped, (x,), (x,)))

    agrees(make, X)
    g = tn.custom_vjp(lambda x: x)
    g.defvjp(lambda x: (x, None), lambda kept, ct: (tn.psum(ct, "lanes"),))
    slope = tn.grad(lambda x: (tn.vmap(g, axis_name="lanes")(x) * Y).sum())
    np.testing.assert_allclose(slope(X), np.full(5, Y.sum()))


@each(RULES)
def test_inside_of_loops(rule: Rule):
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        f = rule(np, lib)

        def total(x: Any) -> Any:
            last, every = lib.lax.scan(lambda c, y: (f(c, y), f(y, c)), x[0], x)
            chosen = lib.lax.cond(x[0] > 0, lambda y: f(y, y), lambda y: y, x[1])
            return last + every.sum() + chosen

        return lib.value_and_grad(total)  # type: ignore[no-any-return]

    agrees(make, X)


@each(BOTH_MODES)
def test_inside_of_a_while_loop(rule: Rule):
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        f = rule(np, lib)

        def last(x: Any) -> Any:
            return lib.lax.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, f(c[1], x)), (0, x))[1]

        return lambda x: lib.jvp(last, (x,), (1.0,))

    agrees(make, 0.7)


def test_a_reverse_rule_inside_of_a_while_loop():
    f = reverse(np, tn)

    def last(x: Any) -> Any:
        return tn.lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, f(c[1], x)), (0, x))[1]

    def unrolled(x: Any) -> Any:
        y = x
        for _ in range(3):
            y = f(y, x)
        return y

    np.testing.assert_allclose(tn.grad(last)(0.7), tn.grad(unrolled)(0.7))
    np.testing.assert_allclose(tn.jit(tn.grad(last))(0.7), tn.grad(unrolled)(0.7))


@each(RULES)
def test_inside_of_checkpoint(rule: Rule):
    agrees(lambda np, lib: lib.grad(lambda x: lib.checkpoint(rule(np, lib))(np.cos(x), x).sum()), X)


@each(RULES)
def test_a_pullback_outlives_its_trace(rule: Rule):
    value, pull = tn.vjp(rule(np, tn), X, Y)
    wanted = tn.jit(lambda x, y, ct: tn.vjp(rule(np, tn), x, y)[1](ct))(X, Y, value)
    same(pull(value), wanted, "outside")
    same(tn.jit(pull)(value), wanted, "jitted")


def test_a_forward_derivative_of_a_reverse_rule_is_refused():
    f = reverse(np, tn)
    for call in (
        lambda: tn.jvp(f, (X, Y), (Y, X)),
        lambda: tn.jacfwd(f)(X, Y),
        lambda: tn.jit(lambda x: tn.jvp(f, (x, x), (x, x)))(X),
        lambda: tn.linearize(f, X, Y)[1](Y, X),
        lambda: tn.lax.scan(lambda c, y: tn.jvp(f, (c, y), (c, y)), 1.0, X),
    ):
        with pytest.raises(DerivativeError, match="reverse mode follows"):
            call()
    # where the function's own tangent is not needed, nothing is refused
    slope = tn.grad(lambda x: f(x, x).sum())
    np.testing.assert_allclose(tn.jvp(slope, (X,), (Y,))[1], tn.jvp(tn.jit(slope), (X,), (Y,))[1])


def test_a_forward_rule_may_be_made_of_a_reverse_rule():
    """What it does with tangents is transposed, and so the reverse rule is followed."""

    def make(np: Any, lib: Any) -> Callable[..., Any]:
        inner = reverse(np, lib)
        f = lib.custom_jvp(lambda x: inner(x, x))
        f.defjvp(lambda ps, ts: lib.jvp(lambda x: inner(x, x), ps, ts))
        return lambda x: (lib.grad(lambda x: f(x).sum())(x), lib.jacrev(f)(x))

    agrees(make, X)


def test_arguments_that_are_not_differentiated():
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        @partial(lib.custom_jvp, nondiff_argnums=(0, 2))
        def f(g: Any, x: Any, n: Any) -> Any:
            return g(x) ** n

        @f.defjvp
        def rule(g: Any, n: Any, primals: Any, tangents: Any) -> Any:
            (x,), (t,) = primals, tangents
            return f(g, x, n), n * g(x) * t

        @partial(lib.custom_vjp, nondiff_argnums=(0,))
        def h(g: Any, x: Any, y: Any) -> Any:
            return g(x) * y

        def bwd(g: Any, kept: Any, ct: Any) -> Any:
            return ct * g(kept), None

        h.defvjp(lambda g, x, y: (g(x) * y, x), bwd)
        loss = lambda x: (f(np.sin, x, 3) + h(np.cos, x, x)).sum()  # noqa: E731
        return lambda x: (lib.grad(loss)(x), lib.vmap(lib.grad(lambda x: loss(x[None])))(x))

    agrees(make, X)


def test_arguments_by_name():
    @partial(tn.custom_jvp, nondiff_argnames="scale")
    def f(x: Any, scale: float = 2.0) -> Any:
        return x * scale

    f.defjvp(lambda scale, primals, tangents: (primals[0] * scale, tangents[0] * scale * 10))
    assert tn.grad(f)(1.0) == 20
    assert tn.grad(lambda x: f(scale=3.0, x=x))(1.0) == 30


def test_pytrees_in_and_out():
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        @lib.custom_vjp
        def f(p: Any, x: Any) -> Any:
            return {"a": p["w"] * x, "b": (p["b"] + x, x.sum())}

        def fwd(p: Any, x: Any) -> Any:
            return f(p, x), (p, x, "static", 3)

        def bwd(kept: Any, ct: Any) -> Any:
            p, x, text, n = kept
            assert text == "static"
            return {"w": n * ct["a"] * x, "b": ct["b"][0].sum()}, ct["a"] * p["w"] + ct["b"][0] + ct["b"][1]

        f.defvjp(fwd, bwd)

        def loss(p: Any, x: Any) -> Any:
            found = f(p, x)
            return (found["a"] ** 2).sum() + (found["b"][0] * x).sum() + found["b"][1]

        return lib.grad(loss, (0, 1))  # type: ignore[no-any-return]

    # JAX's residuals are arrays alone, and its int is one
    found = make(np, tn)({"w": X, "b": 2.0}, Y)
    a = X * Y
    np.testing.assert_allclose(found[0]["w"], 3 * 2 * a * Y)
    np.testing.assert_allclose(found[0]["b"], Y.sum())
    np.testing.assert_allclose(found[1], 2 * a * X + Y + 1 + (2.0 + Y))
    same(tn.jit(make(np, tn))({"w": X, "b": 2.0}, Y), found, "jitted")


@pytest.mark.parametrize("kind", ["forward", "reverse"])
def test_integers_among_arguments_and_results(kind: str):
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        if kind == "forward":

            @lib.custom_jvp
            def f(x: Any, n: Any) -> Any:
                return x * n, n + 1

            @f.defjvp
            def rule(primals: Any, tangents: Any) -> Any:
                (x, n), (t, dn) = primals, tangents
                return f(x, n), (t * n * 10, dn)

        else:

            @lib.custom_vjp
            def f(x: Any, n: Any) -> Any:
                return x * n, n + 1

            f.defvjp(lambda x, n: (f(x, n), n), lambda n, ct: (ct[0] * n * 10, None))
        return lib.grad(lambda x: (f(x, np.arange(5))[0] * x).sum())  # type: ignore[no-any-return]

    agrees(make, X)


def test_an_estimator_that_passes_straight_through():
    """Its slope is 1; derivatives around that one see what its rule computes, as in JAX."""

    def make(np: Any, lib: Any) -> Callable[..., Any]:
        @lib.custom_vjp
        def f(x: Any) -> Any:
            return np.round(x)

        f.defvjp(lambda x: (np.round(x), None), lambda _, ct: (ct,))

        @lib.custom_jvp
        def g(x: Any) -> Any:
            return np.round(x)

        g.defjvp(lambda primals, tangents: (np.round(primals[0]), tangents[0]))

        def orders(h: Any) -> Any:
            first = lib.grad(lambda x: (h(x) ** 2 * x).sum())
            return lambda x: (first(x), lib.grad(lambda x: first(x).sum())(x))

        return lambda x: (orders(f)(x), orders(g)(x))

    agrees(make, 3 * X)


def test_clipping_of_gradients():
    def make(np: Any, lib: Any) -> Callable[..., Any]:
        @lib.custom_vjp
        def clip(lo: Any, hi: Any, x: Any) -> Any:
            return x

        clip.defvjp(
            lambda lo, hi, x: (x, (lo, hi)), lambda kept, ct: (None, None, np.clip(ct, kept[0], kept[1]))
        )  # fmt: skip
        first = lib.grad(lambda x: (clip(-0.5, 0.5, x) ** 3).sum())
        return lambda x: (first(x), lib.grad(lambda x: first(x).sum())(x))

    agrees(make, X)


def test_python_sees_present_values_inside():
    @tn.custom_jvp
    def f(x: Any) -> Any:
        return x if x > 0 else -x

    @f.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        (x,), (t,) = primals, tangents
        return f(x), t if x > 0 else -2 * t

    assert tn.grad(f)(3.0) == 1
    assert tn.grad(f)(-3.0) == -2


def test_derivatives_inside_of_a_rule():
    """A rule may differentiate functions that read its tangents."""

    def make(np: Any, lib: Any) -> Callable[..., Any]:
        @lib.custom_jvp
        def f(x: Any) -> Any:
            return np.sin(x)

        @f.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            (x,), (t,) = primals, tangents
            along = lib.grad(lambda y: (np.sin(y) * t).sum())(x)
            return f(x), along + lib.jvp(np.cos, (x,), (t,))[1]

        return lambda x: (lib.grad(lambda x: (f(x) ** 2).sum())(x), lib.jvp(f, (x,), (x,)))

    agrees(make, X)


def test_loops_inside_of_a_rule():
    """Loops that carry values and tangents together, made by a derivative or written so."""

    def make(np: Any, lib: Any) -> Callable[..., Any]:
        def turns(x: Any) -> Any:
            return lib.lax.fori_loop(0, 3, lambda k, c: np.sin(c) * x, x)

        by_jvp, by_hand = lib.custom_jvp(turns), lib.custom_jvp(turns)
        by_jvp.defjvp(lambda ps, ts: lib.jvp(turns, ps, ts))

        @by_hand.defjvp
        def rule(primals: Any, tangents: Any) -> Any:
            (x,), (t,) = primals, tangents

            def turn(pair: Any, _: Any) -> Any:
                c, d = pair
                return (np.sin(c) * x, np.cos(c) * x * d + np.sin(c) * t), d

            (value, slope), _ = lib.lax.scan(turn, (x, t), None, length=3)
            return value, slope

        return lambda x: (
            lib.grad(lambda x: by_jvp(x).sum())(x), lib.grad(lambda x: by_hand(x).sum())(x),
            lib.hessian(lambda x: by_hand(x).sum())(x), lib.jacrev(by_jvp)(x),
        )  # fmt: skip

    agrees(make, X)


def test_a_rule_reads_captured_arrays_at_each_call():
    scale = np.ones(5)

    @tn.custom_jvp
    def f(x: Any) -> Any:
        return x * scale

    f.defjvp(lambda primals, tangents: (primals[0] * scale, 10 * tangents[0] * scale))
    jitted = tn.jit(tn.grad(lambda x: f(x).sum()))
    for k in range(1, 4):
        scale[:] = k
        np.testing.assert_allclose(jitted(X), 10 * scale)
        np.testing.assert_allclose(tn.grad(lambda x: f(x).sum())(X), 10 * scale)
    scale = np.full(5, 7.0)  # another array in the rule's own closure
    np.testing.assert_allclose(jitted(X), 70)
    f.defjvp(lambda primals, tangents: (primals[0], 3 * tangents[0]))  # another rule
    np.testing.assert_allclose(jitted(X), 3)


@tn.custom_jvp
def by_name(x: Any) -> Any:
    return x


def test_pickled_by_name():
    assert pickle.loads(pickle.dumps(by_name)) is by_name


def test_methods():
    class Layer:
        scale = 3.0

        @partial(tn.custom_vjp, nondiff_argnums=(0,))
        def call(self, x: Any) -> Any:
            return x * self.scale

        call.defvjp(lambda self, x: (x * self.scale, None), lambda self, kept, ct: (ct * self.scale * 10,))

    assert tn.grad(Layer().call)(1.0) == 30
    assert tn.jit(tn.grad(Layer().call))(1.0) == 30
