"""Python state that a traced function keeps while it is traced: its own is its own, what stands outside is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import MutationError

X = np.arange(3.0)
SCALE = np.array([1.0, 2.0, 3.0])
LOG: list[Any] = []


def remembering() -> Callable[[Any], Any]:
    """A function that remembers its arguments in a list of its own."""
    seen: list[Any] = []

    def loss(x: Any) -> Any:
        seen.append(x)
        return (x * x).sum() * len(seen)

    return loss


# Each function keeps a list, a dict or a number that it has made itself.


def a_list(run: Any, x: Any) -> Any:
    seen: list[Any] = []

    def loss(y: Any) -> Any:
        seen.append(y)
        return (y * y).sum()

    return run(loss)(x) * len(seen)


def a_dict(run: Any, x: Any) -> Any:
    found: dict[str, Any] = {}

    def loss(y: Any) -> Any:
        found["square"] = y * y
        return found["square"].sum()

    return run(loss)(x) * len(found)


def a_number(run: Any, x: Any) -> Any:
    count = 0

    def loss(y: Any) -> Any:
        nonlocal count
        count += 1
        return (y * y).sum()

    return run(loss)(x) * count


def of_a_factory(run: Any, x: Any) -> Any:
    return run(remembering())(x)


def of_an_object(run: Any, x: Any) -> Any:
    class Remembering:
        def __init__(self) -> None:
            self.seen: list[Any] = []

        def loss(self, y: Any) -> Any:
            self.seen.append(y)
            return (y * y).sum()

    return run(Remembering().loss)(x)


def of_a_rule(run: Any, x: Any) -> Any:
    seen: list[Any] = []

    @tn.custom_vjp
    def square(y: Any) -> Any:
        return y * y

    square.defvjp(lambda y: (seen.append(y), (y * y, y))[1], lambda y, ct: (2 * y * ct,))
    return run(lambda y: square(y).sum())(x)


@pytest.mark.parametrize("state", [a_list, a_dict, a_number, of_a_factory, of_an_object, of_a_rule])
@pytest.mark.parametrize("inner", [lambda f: f, tn.jit, tn.checkpoint, lambda f: lambda x: tn.vmap(f)(x[None])[0]])
def test_what_a_traced_function_makes_it_may_change(state: Any, inner: Any) -> None:
    def run(x: Any) -> Any:
        return state(lambda loss: tn.grad(inner(loss)), x)

    for f in (run, tn.jit(run)):
        np.testing.assert_array_equal(f(X), 2 * X)
    jitted = tn.jit(run)
    jitted(X)
    jitted(X + 1)
    assert jitted.cache_info().compiles == 1  # what the function has made is no assumption of its program


def test_outside_arrays_are_read_at_each_call_by_functions_that_are_made_inside() -> None:
    scale = SCALE.copy()

    def weighing() -> Callable[[Any], Any]:
        seen: list[Any] = []
        return lambda y: (seen.append(y), (scale * y).sum())[1]

    f = tn.jit(lambda x: tn.grad(weighing())(x))
    np.testing.assert_array_equal(f(X), scale)
    scale[:] = 5.0
    np.testing.assert_array_equal(f(X), scale)


BEFORE = remembering()
OF_BEFORE = tn.grad(remembering())


class Holder:
    function = staticmethod(remembering())


def appending(x: Any) -> Any:
    LOG.append(x)
    return (x * x).sum()


@pytest.mark.parametrize(
    "leaking",
    [
        lambda x: tn.grad(BEFORE)(x),
        lambda x: OF_BEFORE(x),
        lambda x: tn.grad(Holder.function)(x),
        lambda x: tn.grad(appending)(x),
        lambda x: tn.grad(lambda y: appending(y))(x),
        tn.vmap(appending),
    ],
)
def test_what_stands_outside_is_refused(leaking: Any) -> None:
    with pytest.raises(MutationError, match="went from 0 to 1 elements"):
        tn.jit(leaking)(X)
    assert not LOG


# -- functions among the arguments -------------------------------------------------------------------------------------


def test_functions_among_the_arguments_read_outside_arrays_at_each_call() -> None:
    scale = SCALE.copy()

    def weighed(x: Any) -> Any:
        return x * scale.sum()

    applied = {
        "as they are": tn.jit(lambda f, x: f(x)),
        "by name": tn.jit(lambda f, x: f(x), static_argnames="f"),
        "mapped": tn.jit(lambda f, x: tn.vmap(f)(x)),
        "in a container": tn.jit(lambda fs, x: fs["first"][0](x)),
    }
    for name, f in applied.items():
        given = {"first": [weighed]} if name == "in a container" else weighed
        scale[:] = SCALE
        np.testing.assert_array_equal(f(given, X), X * 6)
        scale[0] = 10.0
        np.testing.assert_array_equal(f(given, X), X * 15)


def test_functions_among_the_arguments_change_nothing_outside() -> None:
    with pytest.raises(MutationError, match="LOG went from 0 to 1 elements"):
        tn.jit(lambda f, x: f(x))(appending, X)
    assert not LOG
