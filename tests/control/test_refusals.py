"""What loops, choices and transformations are called with that makes no sense: the text names the argument."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import AxisError, BatchError, DerivativeError, DtypeError, ShapeError, TraceError

lax = tn.lax
X = np.arange(3.0)
ROWS = np.ones((3, 2))
Refusal = tuple[Callable[[], Any], type[Exception], str]


def first(a: Any, b: Any = None) -> Any:
    return a


BAD: tuple[Any, ...] = (None, 3, "f", X)


def no_function(what: str, call: Callable[[Any], Any]) -> list[Refusal]:
    """Calls with each kind of what is no function."""
    text = f"{what} is an object of class {{}}; a function is needed"
    return [(functools.partial(call, x), TypeError, text.format(type(x).__name__)) for x in BAD]


FUNCTIONS: list[Refusal] = [
    *no_function("scan: f", lambda f: lax.scan(f, 0.0, X)),
    *no_function("fori_loop: body_fun", lambda f: lax.fori_loop(0, 3, f, 0.0)),
    *no_function("while_loop: cond_fun", lambda f: lax.while_loop(f, first, 0.0)),
    *no_function("while_loop: body_fun", lambda f: lax.while_loop(first, f, 0.0)),
    *no_function("cond: true_fun", lambda f: lax.cond(True, f, first, X)),
    *no_function("cond: false_fun", lambda f: lax.cond(True, first, f, X)),
    *no_function(r"switch: branches\[1\]", lambda f: lax.switch(0, [first, f], X)),
    *no_function("map: f", lambda f: lax.map(f, X)),
    *no_function("associative_scan: fn", lambda f: lax.associative_scan(f, X)),
    *no_function("vmap: fun", tn.vmap),
    *no_function("grad: fun", tn.grad),
    *no_function("hessian: fun", tn.hessian),
    *no_function("checkpoint: fun", tn.checkpoint),
    *no_function("custom_jvp: fun", tn.custom_jvp),
    *no_function("custom_vjp: fun", tn.custom_vjp),
    *no_function("vjp: fun", lambda f: tn.vjp(f, 1.0)),
    *no_function("jvp: fun", lambda f: tn.jvp(f, (1.0,), (1.0,))),
    *no_function("linearize: fun", lambda f: tn.linearize(f, 1.0)),
    *no_function("eval_shape: fun", lambda f: tn.eval_shape(f, 1.0)),
]

LOOPS: list[Refusal] = [
    (lambda: lax.scan(first, 0.0, None, 2.5), ShapeError, "scan: length is .*; an int or a size is needed"),
    (lambda: lax.scan(first, 0.0, None, "abc"), ShapeError, "scan: length is 'abc'; an int or a size is needed"),
    (lambda: lax.scan(first, 0.0, X), TraceError, "scan: the function returned one value; a pair"),
    (lambda: lax.scan(lambda c, x: (c, c, c), 0.0, X), TraceError, "scan: the function returned 3 values; a pair"),
    (lambda: lax.scan(first, "abc", X), TraceError, "scan: init: of class builtins.str; arrays, numbers"),
    (
        lambda: lax.scan(lambda c, x: (np.stack([c, c]), None), 0.0, X),
        ShapeError,
        r"carry begins as float64 of shape \(\)",
    ),
    (lambda: lax.fori_loop(0, 2.5, first, 0.0), ShapeError, "fori_loop: upper is .*; an integer is needed"),
    (lambda: lax.fori_loop("a", 3, first, 0.0), ShapeError, "fori_loop: lower is 'a'; an int or a size is needed"),
    (lambda: lax.fori_loop(0, X, first, 0.0), ShapeError, "fori_loop: upper is float64 of shape .3,.; one number"),
    (
        lambda: lax.fori_loop(0, 3, lambda i, c: c[:2], X),
        ShapeError,
        "fori_loop: the carry begins as float64",
    ),
    (lambda: lax.fori_loop(0, 3, lambda i, c: [c[0][:2]], [X]), ShapeError, r"fori_loop: the carry at \[0\] begins as"),
    (lambda: lax.switch(0, None, X), TypeError, "switch: branches of class NoneType; a sequence of functions"),  # type: ignore[arg-type]
    (lambda: lax.switch(0, first, X), TypeError, "switch: branches of class function; a sequence of functions"),  # type: ignore[arg-type]
    (lambda: lax.switch("a", [first], X), DtypeError, "switch: index: an argument of class builtins.str"),
    (lambda: lax.switch(0.5, [first], X), ShapeError, r"switch: index is float64 of shape \(\); one integer"),
    (lambda: lax.map(first, 3.0), ShapeError, "map: xs has rank 0; a leading axis"),
    (lambda: lax.map(first, 3.0, batch_size=2), ShapeError, "map: xs are no arrays with a leading axis"),
    (lambda: lax.map(first, (), batch_size=2), ShapeError, "map: xs are no arrays with a leading axis"),
    (lambda: lax.map(first, X, batch_size="a"), ValueError, "map: batch_size is 'a'; an int"),  # type: ignore[arg-type]
]


def added(a: Any, b: Any) -> Any:
    return tn.tree.map(np.add, a, b)


RUNNING: list[Refusal] = [
    (
        lambda: lax.associative_scan(added, (X, np.ones(4))),
        ShapeError,
        r"elems\[1\] has 4 entries .*, elems\[0\] has 3",
    ),
    (
        lambda: lax.associative_scan(lambda a, b: a[0], (X, X)),
        ShapeError,
        "fn returned the structure",
    ),
    (
        lambda: lax.associative_scan(lambda a, b: a.sum(), X),
        ShapeError,
        r"fn returned shape \(\) for slices of",
    ),
    (lambda: lax.associative_scan(added, 3.0), AxisError, "elems has rank 0; axis 0"),
    (lambda: lax.associative_scan(added, X, axis=3), AxisError, "elems has rank 1; axis 3"),
    (lambda: lax.associative_scan(added, X, axis="a"), TypeError, "associative_scan: axis is 'a'; an int"),  # type: ignore[arg-type]
    (lambda: lax.associative_scan(added, "abc"), TypeError, "elems of class str; an array"),
]

AXES: list[Refusal] = [
    (lambda: tn.vmap(first, in_axes=5)(X), BatchError, "in_axes has axis 5 for argument a of rank 1"),
    (lambda: tn.vmap(first)(X, b=3.0), BatchError, "in_axes has axis 0 for argument b of rank 0"),
    (lambda: tn.vmap(first)(X, np.ones(4)), BatchError, "argument b has 4 lanes, others have 3"),
    (lambda: tn.vmap(first)(X, {"w": [np.ones(4)]}), BatchError, r"argument b\['w'\]\[0\] has 4 lanes, others have 3"),
    (lambda: tn.vmap(np.add)(X, np.ones(4)), BatchError, "argument .* has 4 lanes, others have 3"),
    (lambda: tn.vmap(tn.grad(first))(3.0), BatchError, "for argument a of rank 0"),
    (lambda: tn.vmap(first, in_axes="a"), TypeError, "in_axes of class str; an int, None, or a tuple"),
    (lambda: tn.vmap(first, in_axes=("a",))(X), BatchError, "in_axes 'a' for an array, an entry of class"),
    (lambda: tn.vmap(first, in_axes=((0,),))(X), BatchError, r"in_axes \(0,\) for an array, an entry of class"),
    (lambda: tn.vmap(first, out_axes="a")(X), BatchError, "out_axes 'a' for an array, an entry of class"),
    (lambda: tn.vmap(first, out_axes=None)(X), BatchError, "out_axes is None for result, which differs"),
    (lambda: tn.vmap(first, out_axes=7)(ROWS), BatchError, "out_axes has axis 7 for result of rank 2"),
    (lambda: tn.grad(first, argnums="a")(1.0), TypeError, "argnums is 'a'; an int or a sequence of them"),  # type: ignore[arg-type]
    (lambda: tn.grad(first)("text"), DerivativeError, "argument 0 of class str"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "error", "text"), [*FUNCTIONS, *LOOPS, *RUNNING, *AXES])
def test_the_text_names_the_function_and_the_argument(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text) as found:
        call()
    assert f"(at {__file__}:" in str(found.value)


@pytest.mark.parametrize(("call", "error", "text"), [*LOOPS, *RUNNING])
def test_jitted_functions_are_told_the_same(call: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text.split("of shape")[0]):
        tn.jit(lambda x: (x, call()))(1.0)


def test_axes_may_be_numpys_integers() -> None:
    zero: Any = np.int64(0)
    one: Any = np.int64(1)
    np.testing.assert_array_equal(tn.vmap(first, zero, one)(ROWS), ROWS.T)
    np.testing.assert_array_equal(tn.vmap(first, (one,))(ROWS), ROWS.T)
