"""Values that are being differentiated are not taken for numbers: their slope would be lost without a word."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import DerivativeError

X = np.array([3.0, 4.0])
REFUSED: dict[str, Callable[[Any], Any]] = {
    "roots": lambda x: np.roots(x).sum(),
    "polyfit": lambda x: np.polyfit(X, x, 1).sum(),
    "float": lambda x: float(x[0]) * x[1],
    "complex": lambda x: complex(x[0]).real * x[1],
    "quantile": lambda x: np.quantile(x, x[0] / 4),
    "item": lambda x: x[0].item() * x[1],
    "tolist": lambda x: x.tolist()[0] * x[1],
    "tobytes": lambda x: np.frombuffer(x.tobytes())[0] * x[1],
    "ndarray.flat": lambda x: sum((x * x).flat) + x[0],
    "eig": lambda x: np.linalg.eig(np.outer(x, x))[0].real.sum(),
}
"""By what the error names. Some give several results."""


@pytest.mark.parametrize("name", REFUSED)
def test_lost_slopes_are_refused(name: str) -> None:
    with pytest.raises(DerivativeError, match=rf"^{name}: .*test_lost_slopes\.py") as caught:
        tn.grad(REFUSED[name])(X)
    assert "being differentiated" in str(caught.value) or "its derivative was asked for" in str(caught.value)


ALLOWED: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "if": (lambda x: x.sum() if x[0] > 0 else 0.0, [1, 1]),
    "int": (lambda x: x[int(x[0]) - 3] ** 2, [6, 0]),
    "text": (lambda x: x.sum() * len(f"{x[0]:.2f}"), [4, 4]),
    "bools": (lambda x: x.sum() * np.isin(x, [3.0]).sum(), [1, 1]),
    "held": (lambda x: x.sum() * float(tn.stop_gradient(x)[1]), [4, 4]),
    "elements": (lambda x: x.sum() * sum(tn.stop_gradient(x).flat), [7, 7]),
    "a list": (lambda x: x.sum() * (x > 3).tolist().count(True), [1, 1]),
    "of several results": (lambda x: x.sum() * np.linalg.eig(np.diag(X))[0][1], [4, 4]),
    "another array": (lambda x: x.sum() * np.roots(X)[0], [-4 / 3, -4 / 3]),
    "another argument": (lambda x: (lambda y: x.sum() * float(y))(X[1]), [4, 4]),
}


@pytest.mark.parametrize("name", ALLOWED)
def test_what_has_no_slope_is_a_number(name: str) -> None:
    function, expected = ALLOWED[name]
    np.testing.assert_allclose(tn.grad(function)(X), expected)


def test_undifferentiated_arguments_are_numbers() -> None:
    def f(x: Any, y: Any) -> Any:
        return x.sum() * float(y[0]) * np.roots(y)[0]

    np.testing.assert_allclose(tn.grad(f)(X, X), [-4, -4])


def test_the_inner_of_two_derivatives() -> None:
    """What only the outer one varies with is no number in the inner one either."""
    with pytest.raises(DerivativeError, match="^float: "):
        tn.grad(lambda x: tn.grad(lambda y: y**2 * float(x[0]))(1.0))(X)
    assert tn.grad(lambda y: y**2 * float(X[0]))(1.0) == 6.0


def _written(x: Any, write: Callable[[Any], Any]) -> Any:
    y = x.copy()
    write(y)
    return y.sum()


WRITING: dict[str, tuple[Callable[[Any], Any], list[float]]] = {
    "fill_diagonal": (lambda x: _written(np.outer(x, x), lambda y: np.fill_diagonal(y, x**3)), [35, 54]),
    "put": (lambda x: _written(np.zeros(6), lambda y: np.put(y, [1, 2], x * x)), [6, 8]),
    "place": (lambda x: _written(x * x, lambda y: np.place(y, [True, False], [5.0])), [0, 8]),
    "putmask": (lambda x: _written(x * x, lambda y: np.putmask(y, [True, False], x)), [1, 8]),
}


@pytest.mark.parametrize("name", WRITING)
def test_functions_that_write_keep_slopes(name: str) -> None:
    function, expected = WRITING[name]
    for transformed in (tn.grad(function), tn.jit(tn.grad(function))):
        np.testing.assert_allclose(transformed(X), expected)
