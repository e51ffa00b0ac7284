"""Rules of ``custom_jvp`` and ``custom_vjp`` that give what they must not give, and derivatives of which no rule
speaks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import DerivativeError, ShapeError

X = np.linspace(0.2, 1.4, 5)
Y = np.linspace(1.0, 2.0, 5)


def with_forward(rule: Callable[..., Any]) -> Callable[[], Any]:
    @tn.custom_jvp
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defjvp(rule)
    return lambda: tn.grad(lambda x: f(x, Y).sum())(X)


def with_reverse(fwd: Callable[..., Any], bwd: Callable[..., Any]) -> Callable[[], Any]:
    @tn.custom_vjp
    def f(x: Any, p: Any) -> Any:
        return x * p["w"]

    f.defvjp(fwd, bwd)
    return lambda: tn.grad(lambda x: f(x, {"w": Y}).sum())(X)


def right(x: Any, p: Any) -> Any:
    return x * p["w"], x


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (with_forward(lambda ps, ts: ts[0]), DerivativeError, "rule returned an array; a pair of the value"),
        (with_forward(lambda ps, ts: (ps[0], (ts[0], ts[1]))), ShapeError, "tangent of its rule.* structure tuple"),
        (
            with_forward(lambda ps, ts: (ps[0], ts[0].sum())),
            ShapeError,
            r"tangent of its rule is float64 of shape \(\)",
        ),
        (
            with_forward(lambda ps, ts: (ps[0], ts[0].astype("f"))),
            ShapeError,
            "is float32 of shape .* float64 of shape",
        ),
        (with_forward(lambda ps, ts: (ps[0].sum(), ts[0])), ShapeError, r"value of its rule is float64 of shape \(\)"),
        (with_forward(lambda ps, ts: ((ps[0], ps[0]), ts[0])), ShapeError, r"tuple\(\*, \*\); that of the function"),
        (with_reverse(lambda x, p: x, lambda r, ct: (ct, p_of(ct))), DerivativeError, "fwd returned an array; a pair"),
        (
            with_reverse(lambda x, p: (x.sum(), x), lambda r, ct: (ct, None)),
            ShapeError,
            r"value of fwd is float64 of sh",
        ),
        (with_reverse(right, lambda r, ct: ct), DerivativeError, "bwd returned an array; a tuple of 2 is needed"),
        (with_reverse(right, lambda r, ct: (ct,)), DerivativeError, "bwd returned 1 cotangents; a tuple of 2"),
        (
            with_reverse(right, lambda r, ct: (ct.sum(), None)),
            ShapeError,
            r"cotangent 0 of bwd is float64 of shape \(\)",
        ),
        (with_reverse(right, lambda r, ct: (ct, ct)), ShapeError, r"cotangent 1 of bwd has the structure \*"),
        (
            with_reverse(right, lambda r, ct: (ct, {"w": ct[1:]})),
            ShapeError,
            r"cotangent 1 of bwd\['w'\] is float64 of",
        ),
        (
            with_reverse(right, lambda r, ct: (ct.astype("f"), None)),
            ShapeError,
            "is float32 of shape .* float64 of shape",
        ),
    ],
)
def test_wrong_rules_are_refused(call: Callable[[], Any], error: type[Exception], text: str):
    with pytest.raises(error, match=text) as found:
        call()
    assert __file__ in str(found.value)


def p_of(ct: Any) -> Any:
    return {"w": ct}


@pytest.mark.parametrize(
    "rule",
    [
        lambda ps, ts: (ps[0] * ps[1], ts[0] * ts[0]),
        lambda ps, ts: (ps[0] * ps[1], np.sin(ts[0])),
        lambda ps, ts: (ps[0] * ps[1], np.where(ts[0] > 0, ts[0], 0)),
        lambda ps, ts: (ps[0] * ps[1], ps[0] / (1 + ts[0])),
    ],
)
def test_rules_that_are_not_linear_are_refused(rule: Callable[..., Any]):
    with pytest.raises(DerivativeError, match=r"custom_jvp\(f\): .* in which the result is not linear"):
        with_forward(rule)()


def test_missing_rules_and_wrong_settings_are_refused():
    f, g = tn.custom_jvp(lambda x: x), tn.custom_vjp(lambda x: x)
    with pytest.raises(AttributeError, match="has no rule"):
        f(X)
    with pytest.raises(AttributeError, match="has no rule"):
        tn.grad(lambda x: g(x).sum())(X)
    with pytest.raises(ValueError, match="'z'; a parameter of the function"):
        tn.custom_jvp(lambda x: x, nondiff_argnames="z")
    h = tn.custom_jvp(lambda x: x, nondiff_argnums=3)
    h.defjvp(lambda *a: a)
    with pytest.raises(ValueError, match="nondiff_argnums has 3 in a call with 1"):
        tn.jit(h)(X)
    with pytest.raises(TypeError, match="symbolic_zeros=True"):
        f.defjvp(lambda *a: a, symbolic_zeros=True)
    with pytest.raises(TypeError, match="missing a required argument"):
        f()


def test_what_a_function_closes_over_has_no_rule():
    def outer(y: Any) -> Any:
        @tn.custom_jvp
        def f(x: Any) -> Any:
            return x * y

        f.defjvp(lambda primals, tangents: (f(*primals), tangents[0] * y))
        return f(X).sum()

    with pytest.raises(DerivativeError, match="a value that the function closes over"):
        tn.grad(outer)(2.0)
    # it may be read where nobody differentiates it
    assert tn.jit(outer)(2.0) == pytest.approx(2 * X.sum())


def test_differentiating_an_argument_that_is_not_to_be():
    @partial(tn.custom_jvp, nondiff_argnums=(1,))
    def f(x: Any, y: Any) -> Any:
        return x * y

    f.defjvp(lambda y, primals, tangents: (primals[0] * y, tangents[0] * y))
    with pytest.raises(DerivativeError, match=r"argument \[0\] of nondiff_argnums"):
        tn.grad(lambda y: f(2.0, y))(3.0)
    assert tn.grad(f)(2.0, 3.0) == 3
