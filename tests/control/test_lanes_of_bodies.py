"""What bodies of loops and choices under ``vmap`` ask across its lanes: as the same code without loops does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import BatchError

X = np.random.default_rng(7).uniform(0.5, 1.5, (3, 2))
Function = Callable[..., Any]


def scanned(x: Any) -> Any:
    return tn.lax.scan(lambda c, y: (c * tn.psum(y, "i"), c + tn.axis_index("i")), 1.0, x)


def unrolled(x: Any) -> Any:
    c, ys = 1.0, []
    for y in x:
        ys.append(c + tn.axis_index("i"))
        c = c * tn.psum(y, "i")
    return c, np.stack(ys)


def counted(x: Any) -> Any:
    return tn.lax.fori_loop(0, 3, lambda k, c: c / tn.pmax(c, "i") + tn.pmean(c, "i") * k, x)


def counted_out(x: Any) -> Any:
    for k in range(3):
        x = x / tn.pmax(x, "i") + tn.pmean(x, "i") * k
    return x


def together(x: Any) -> Any:
    return tn.lax.while_loop(lambda c: tn.pmax(c.sum(), "i") < 50.0, lambda c: c + tn.pmean(c, "i"), x)


def together_out(x: Any) -> Any:
    for _ in range(int(np.ceil(np.log2(50.0))) + 1):
        x = np.where(tn.pmax(x.sum(), "i") < 50.0, x + tn.pmean(x, "i"), x)
    return x


def nested(x: Any) -> Any:
    def turn(k: Any, c: Any) -> Any:
        return tn.lax.scan(lambda c, y: (c + tn.psum(c * y, "i"), None), c, x)[0]

    return tn.lax.fori_loop(0, 2, turn, x[0])


def nested_out(x: Any) -> Any:
    c = x[0]
    for _ in range(2):
        for y in x:
            c = c + tn.psum(c * y, "i")
    return c


PAIRS: dict[str, tuple[Function, Function]] = {
    "scan": (scanned, unrolled),
    "fori_loop": (counted, counted_out),
    "while_loop": (together, together_out),
    "nested": (nested, nested_out),
    "map": (lambda x: tn.lax.map(lambda v: v - tn.pmin(v, "i"), x), lambda x: x - tn.pmin(x, "i")),
    "cond": (
        lambda x: tn.lax.cond(tn.psum(x[0], "i") > 0.0, lambda: tn.psum(x, "i"), lambda: x), lambda x: tn.psum(x, "i")
    ),
    "switch": (
        lambda x: tn.lax.switch(tn.psum(1, "i"), [lambda: x, lambda: tn.all_gather(x, "i").sum(0)]),
        lambda x: tn.psum(x, "i"),
    ),
    "no operand has lanes": (
        lambda x: tn.lax.fori_loop(0, 2, lambda k, c: c + tn.axis_index("i"), 0), lambda x: 2 * tn.axis_index("i")
    ),
    "checkpoint": (tn.checkpoint(lambda x: tn.axis_index("i") * 2.0), lambda x: tn.axis_index("i") * 2.0),
}  # fmt: skip


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("wrap", [lambda f: f, tn.jit])
def test_as_without_loops(name: str, wrap: Callable[[Function], Function]) -> None:
    found, wanted = (wrap(tn.vmap(f, axis_name="i"))(X) for f in PAIRS[name])
    for a, b in zip(tn.tree.leaves(found), tn.tree.leaves(wanted), strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=1e-14)


@pytest.mark.parametrize("name", ["scan", "nested"])
def test_derivatives_and_lanes_of_lanes(name: str) -> None:
    for mapped in (
        lambda f: tn.grad(lambda x: total(tn.vmap(f, axis_name="i")(x))),
        lambda f: tn.vmap(tn.grad(lambda x: total(f(x))), axis_name="i"),
        lambda f: lambda x: tn.jvp(tn.vmap(f, axis_name="i"), (x,), (x * x,))[1],
        lambda f: lambda x: tn.vmap(tn.vmap(f, axis_name="i"))(np.stack([x, 2.0 * x])),
        lambda f: lambda x: tn.vmap(tn.vmap(f), axis_name="i")(np.stack([x, 2.0 * x])),
    ):
        found, wanted = (mapped(f)(X) for f in PAIRS[name])
        for a, b in zip(tn.tree.leaves(found), tn.tree.leaves(wanted), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def total(tree: Any) -> Any:
    return sum(x.sum() for x in tn.tree.leaves(tree))


def test_a_rule_called_in_a_body_may_ask_as_well() -> None:
    @tn.custom_vjp
    def f(x: Any) -> Any:
        return x * 2.0

    f.defvjp(lambda x: (f(x), None), lambda _, ct: (tn.psum(ct, "i"),))
    slopes = tn.vmap(tn.grad(lambda x: tn.lax.scan(lambda c, y: (c + f(y), None), 0.0, x)[0]), axis_name="i")
    np.testing.assert_array_equal(slopes(X), np.full((3, 2), 3.0))


@pytest.mark.parametrize(
    ("f", "text"),
    [
        (
            lambda x: tn.lax.while_loop(lambda c: c.sum() < 50.0, lambda c: c + tn.pmean(c, "i"), x),
            r"while_loop asks for the sum of the lanes of axis 'i' while some go on .*test_lanes_of_bodies.py:\d+\)$",
        ),
        (
            lambda x: tn.lax.cond(x[0] > 1.0, lambda: x, lambda: tn.pmax(x, "i")),
            r"cond asks for the maximum of the lanes of axis 'i' in a branch that .*test_lanes_of_bodies.py:\d+\)$",
        ),
        (
            lambda x: tn.lax.switch(tn.axis_index("i"), [lambda: 0, lambda: tn.axis_index("i")]),
            r"cond asks for the numbers of the lanes of axis 'i' in a branch that some",
        ),
    ],
)
def test_lanes_that_part_ask_nothing_of_each_other(f: Function, text: str) -> None:
    for g in (tn.vmap(f, axis_name="i"), tn.jit(tn.vmap(f, axis_name="i"))):
        with pytest.raises(BatchError, match=text):
            g(X)
