"""Reductions over empty axes, of results with and without elements: NumPy's answer or NumPy's kind of error."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.turns import is_due

SHAPES = [(0,), (0, 3), (3, 0), (0, 0), (2, 0, 3), (0, 2, 0)]
STARTED = ("max", "min", "nanmax", "nanmin", "sum", "prod")
PLACES = ("argmax", "argmin", "nanargmax", "nanargmin")
FUNCTIONS = (
    *STARTED, *PLACES, "ptp", "any", "all", "mean", "var", "std", "median", "count_nonzero", "percentile", "quantile",
)  # fmt: skip


def _outcome(call: Callable[[], Any]) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            found = np.asarray(call())
        except (ValueError, IndexError, TypeError) as error:
            return next(kind for kind in (IndexError, ValueError, TypeError) if isinstance(error, kind))
    return found.shape, found.dtype, found.tobytes() if found.size else b""


def _called(function: Callable[..., Any], more: tuple[Any, ...], options: dict[str, Any], x: Any) -> Any:
    return function(x, *more, **options)


def _axes(rank: int) -> list[Any]:
    return [None, *range(-rank, rank), *itertools.combinations(range(rank), 2), ()]


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_empty_axes(name: str, shape: tuple[int, ...]) -> None:
    """Every function meets every axis of every shape; of the options and dtypes beside them half."""
    function, place = getattr(np, name), FUNCTIONS.index(name) + SHAPES.index(shape)
    more: tuple[Any, ...] = {"percentile": (30,), "quantile": (0.3,)}.get(name, ())
    starts: list[dict[str, Any]] = [{}, {"initial": 2}] if name in STARTED else [{}]
    axes = [axis for axis in _axes(len(shape)) if name not in PLACES or not isinstance(axis, tuple)]
    for (number, axis), keepdims, (turn, start) in itertools.product(enumerate(axes), (False, True), enumerate(starts)):
        options = {"axis": axis, "keepdims": keepdims, **start}
        for which, dtype in enumerate((np.float64, np.int32)):
            if not is_due(place, number, keepdims, turn, which):
                continue
            x = np.zeros(shape, dtype)
            call = partial(_called, function, more, options)
            wanted = _outcome(partial(call, x))
            assert _outcome(partial(tn.jit(call), x)) == wanted, options
            assert _outcome(partial(call, tn.asarray(x))) == wanted, options


@pytest.mark.parametrize("name", ["max", "min", "argmax", "nanmin", "ptp"])
def test_no_result_that_would_lack_elements(name: str) -> None:
    jitted = tn.jit(lambda x: getattr(np, name)(x, axis=1))
    assert jitted(np.zeros((0, 3))).shape == (0,)
    with pytest.raises(tn.ShapeError, match=rf"{name[:3]}.*: zero-size array .* needed \(at .*test_empty_axes"):
        jitted(np.zeros((0, 0)))


def test_the_median_of_a_selection() -> None:
    jitted = tn.jit(lambda x: (np.median(x[x > 0]), np.quantile(x[x > 0], 0.25)))
    x = np.arange(9.0) - 3
    np.testing.assert_array_equal(jitted(x), (3.0, 2.0))
    with pytest.raises(tn.BoundsError, match=r"quantile: .* \(at .*test_empty_axes"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        jitted(-abs(x))


def test_a_quantile_of_bools_is_refused_in_the_projects_words() -> None:
    with pytest.raises(tn.DtypeError, match=r"quantile: numpy boolean subtract.* \(at .*test_empty_axes"):
        tn.jit(lambda x: np.quantile(x, 0.5))(np.array([True, False]))
