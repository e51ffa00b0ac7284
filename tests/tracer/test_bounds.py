"""What is proved of sizes holds in every call, and what the guards of a program say is said once."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

import tenferro as tn
from tenferro.tracer.bounds import Bounds, Relation, needed
from tenferro.tracer.dims import Extent, Leaf, add, evaluate, floordiv, leaf, maximum, minimum, mod, mul, sub
from tenferro.tracer.program import ShapeGuard

Environment = dict[Leaf, int]
SIZES = [Leaf("extent", 0, 0), Leaf("extent", 0, 1), Leaf("int", 1, 0)]
EXTENTS = st.recursive(
    st.one_of(st.integers(-4, 6), st.sampled_from([leaf(s.kind, s.index, s.axis) for s in SIZES])),
    lambda inner: st.one_of(
        st.builds(add, inner, inner), st.builds(sub, inner, inner), st.builds(mul, inner, st.integers(-3, 3)),
        st.builds(floordiv, inner, st.integers(2, 4)), st.builds(mod, inner, st.integers(2, 4)),
        st.builds(maximum, inner, inner), st.builds(minimum, inner, inner),
    ),
    max_leaves=6,
)  # fmt: skip
RELATIONS: list[Relation] = ["==", "<", "<="]
GUARDS = st.builds(ShapeGuard, st.sampled_from(RELATIONS), EXTENTS, EXTENTS, st.booleans())
ENVIRONMENTS = [
    dict(zip(SIZES, numbers, strict=True))
    for numbers in itertools.product((0, 1, 2, 3, 5, 8), (0, 1, 4, 8), (-7, -1, 0, 1, 2, 9))
]


def _holds(relation: str, difference: Extent, env: Environment) -> bool:
    value = evaluate(difference, env)
    return value == 0 if relation == "==" else (value > 0 if relation == "<" else value >= 0)


def _serves(guard: ShapeGuard, env: Environment) -> bool:
    return _holds(guard.relation, sub(guard.rhs, guard.lhs), env) == guard.holds


@given(st.lists(GUARDS, max_size=4), st.sampled_from(RELATIONS), EXTENTS)
@settings(max_examples=120, deadline=None)
def test_what_is_proved_holds(guards: list[ShapeGuard], relation: Relation, difference: Extent) -> None:
    bounds = Bounds()
    for g in guards:
        bounds.learn(g.relation, sub(g.rhs, g.lhs), g.holds)
    proved = bounds.proves(relation, difference)
    for env in ENVIRONMENTS:
        if proved is not None and all(_serves(g, env) for g in guards):
            assert _holds(relation, difference, env) == proved


@given(st.lists(GUARDS, max_size=6))
@settings(max_examples=120, deadline=None)
def test_what_is_left_out_is_implied(guards: list[ShapeGuard]) -> None:
    kept = needed(guards)
    assert [g for g in guards if g in kept] == kept or len(set(guards)) < len(guards)
    for env in ENVIRONMENTS:
        assert all(_serves(g, env) for g in kept) == all(_serves(g, env) for g in guards)


X, V = np.arange(24.0).reshape(4, 6), np.arange(12.0)
ALWAYS: dict[str, tuple[Callable[..., Any], tuple[Any, ...], list[str]]] = {
    "the first half": (lambda v: v[: v.shape[0] // 2], (V,), []),
    "pairs": (lambda v: v[: v.shape[0] // 2 * 2].reshape(-1, 2).sum(1), (V,), []),
    "rounded up": (lambda v: np.zeros((v.shape[0] + 2) // 3 * 3)[: v.shape[0]] + v, (V,), []),
    "a remainder": (lambda x: x if x.shape[0] % 3 < 3 else -x, (X,), []),
    "all but one": (lambda v: v if max(v.shape[0] - 1, 0) <= v.shape[0] else -v, (V,), ["1 <= d0_0"]),
    "the smaller": (lambda x: x[: min(x.shape[0], 3)], (X,), ["3 < d0_0"]),
    "a magnitude": (lambda v, n: v[abs(n)], (V, 3), ["max(-n1, n1) < d0_0"]),
    "within": (lambda v, n: v[n % v.shape[0]], (V, 3), ["d0_0 != 0"]),
    "asked twice": (lambda x: x if x.shape[0] < x.shape[1] and x.shape[1] > x.shape[0] else -x, (X,), ["d0_0 < d0_1"]),
    "more than asked": (lambda v, n: v[n] + v[n - 1], (V, 3), ["1 <= n1", "n1 < d0_0"]),
    "a wide border": (lambda v: np.pad(v, 2, mode="reflect"), (V,), ["3 <= d0_0"]),
    "a column": (lambda x, y: x + y, (X, X[:1]), ["d0_0 != 1", "d1_0 == 1", "d0_1 == d1_1"]),
    "half, and all": (lambda v: np.split(v, 2)[0], (V,), ["d0_0 == 2*(d0_0//2)"]),
}


@pytest.mark.parametrize("name", ALWAYS)
def test_only_what_may_fail_is_a_guard(name: str) -> None:
    function, args, guards = ALWAYS[name]
    assert [str(g) for g in tn.jit(function).trace(*args).guards] == guards
