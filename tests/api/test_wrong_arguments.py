"""Wrong arguments: an axis that there is not is NumPy's AxisError, and texts name the function that the user called."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.numpy as tnp
from tests.oracle import agrees, both_engines

X = np.ones((2, 3))
AXIS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(axis=5),
    "mean": lambda x: np.mean(x, axis=(0, -4)),
    "var": lambda x: np.var(x, 3),
    "max": lambda x: x.max(2),
    "argmax": lambda x: x.argmax(2),
    "cumsum": lambda x: np.cumsum(x, axis=3),
    "sort": lambda x: np.sort(x, axis=3),
    "median": lambda x: np.median(x, axis=5),
    "concatenate": lambda x: np.concatenate([x, x], axis=2),
    "stack": lambda x: np.stack([x, x], axis=4),
    "expand_dims": lambda x: np.expand_dims(x, 5),
    "squeeze": lambda x: np.squeeze(x[:1], axis=5),
    "swapaxes": lambda x: x.swapaxes(0, 5),
    "moveaxis": lambda x: np.moveaxis(x, 0, 5),
    "transpose": lambda x: x.transpose(0, 5),
    "take": lambda x: np.take(x, [0], axis=5),
    "repeat": lambda x: np.repeat(x, 2, axis=5),
    "flip": lambda x: np.flip(x, 5),
    "roll": lambda x: np.roll(x, 1, axis=5),
    "diff": lambda x: np.diff(x, axis=5),
    "diagonal": lambda x: np.diagonal(x, 0, 0, 5),
    "trace": lambda x: np.trace(x, 0, 0, 5),
    "append": lambda x: np.append(x, x, axis=5),
    "cross": lambda x: np.cross(x, x, axis=5),
    "nanmedian": lambda x: np.nanmedian(x, axis=5),
}


@pytest.mark.parametrize("name", AXIS)
def test_a_wrong_axis_is_numpys_axis_error(name):
    for run in (AXIS[name], tn.jit(AXIS[name])):
        with pytest.raises(np.exceptions.AxisError, match=rf"^{name}: .*axis .*\(at .*\)$") as found:
            run(tn.asarray(X))
        assert isinstance(found.value, tn.AxisError) and isinstance(found.value, tn.ShapeError)
    with pytest.raises(np.exceptions.AxisError):
        AXIS[name](X)


def test_its_parts_are_numpys():
    with pytest.raises(np.exceptions.AxisError) as found:
        tn.jit(lambda x: x.sum(axis=-3))(X)
    error = pickle.loads(pickle.dumps(found.value))
    assert (error.axis, error.ndim, str(error)) == (-3, 2, str(found.value))
    with pytest.raises(np.exceptions.AxisError) as told:
        X.sum(axis=-3)
    assert (told.value.axis, told.value.ndim) == (-3, 2)


NAMED: dict[str, tuple[Callable[[Any], Any], str]] = {
    "sum": (lambda x: x.sum(foo=1), "foo"),
    "max": (lambda x: x.max(foo=1), "foo"),
    "round": (lambda x: x.round(foo=1), "foo"),
    "mean": (lambda x: x.mean(1, 2, 3, 4, 5), "takes from 1 to 5"),
    "exp": (lambda x: tnp.exp(x, foo=1), "foo"),
    "add": (lambda x: tnp.add(x), "x2"),
    "trace": (lambda x: tnp.trace(x, foo=1), "foo"),
    "interp": (lambda x: tnp.interp(x), "xp"),
    "cov": (lambda x: tnp.cov(x, foo=1), "foo"),
    "sort": (lambda x: tnp.sort(x, foo=1), "foo"),
    "dot": (lambda x: x.dot(), "b"),
    "reshape": (lambda x: x.reshape(), "no shape"),
}


@pytest.mark.parametrize("name", NAMED)
def test_a_type_error_names_the_function(name):
    call, text = NAMED[name]
    for run in (call, tn.jit(call)):
        with pytest.raises(TypeError, match=rf"^{name}(\(\)|:) .*{text}"):
            run(tn.asarray(X))


@pytest.fixture
def _engines():
    with both_engines():
        yield


@pytest.mark.usefixtures("_engines")
@pytest.mark.parametrize("dtype", "?bhilBHILefdFD")
@pytest.mark.filterwarnings("ignore:floor_divide:RuntimeWarning")
def test_reciprocal_is_numpys(dtype):
    values = np.array([0, 1, 2, 3, 100, 1]).astype(dtype)
    if dtype in "bhil":
        values = np.concatenate([values, -values])
    if dtype in "FD":
        values = np.concatenate(
            [values, np.array([1j, 1 + 1j, np.inf, np.nan + 1j, complex(np.inf, np.inf), -0.0j], dtype)]
        )
    agrees(lambda x: np.reciprocal(x), values)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_reciprocal_of_the_integer_0_warns(dtype):
    with pytest.warns(RuntimeWarning, match="divisor 0 under the dividend 1"):
        tn.jit(lambda x: np.reciprocal(x))(np.array([1, 0], dtype))
