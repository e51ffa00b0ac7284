"""Sets, histograms, quantiles, covariances, polynomials and writes along an axis: jitted and eager as NumPy's."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.tracer.errors import TraceError
from tests.turns import is_due

pytestmark = pytest.mark.filterwarnings("ignore")
Function = Callable[[Any], Any]

SHAPES: list[tuple[int, ...]] = [(5,), (3, 4), (1,), (0,), (2, 3, 2), ()]
DTYPES = ["float64", "float32", "int64", "bool"]
NARROW = ["float16", "uint8"]  # of one shape alone
VALUES = np.array([3, 1, 0, 2, 2, 4, 1, 3, 0, 1, 2, 4])


def _put(axis: int | None, value: Any, x: Any) -> Any:
    y = x.copy()
    places = np.array([0]) if axis is None else np.argmax(x, axis=axis, keepdims=True)
    np.put_along_axis(y, places, value, axis)
    return y


FORMS: dict[str, Function] = {
    "unique": np.unique,
    "unique, index": lambda x: np.unique(x, return_index=True),
    "unique, inverse": lambda x: np.unique(x, return_inverse=True),
    "unique, counts": lambda x: np.unique(x, return_counts=True),
    "unique, all": lambda x: np.unique(x, True, True, True),
    "unique_counts": lambda x: np.unique_counts(x),
    "unique_all": lambda x: np.unique_all(x),
    "unique_inverse": lambda x: np.unique_inverse(x).inverse_indices.shape,
    "lexsort": lambda x: np.lexsort((x, -x * 1.0)),
    "lexsort of rows": lambda x: np.lexsort(np.stack([x, -x * 1.0])),
    "histogram": lambda x: np.histogram(x),
    "histogram, bins": lambda x: np.histogram(x, 3),
    "histogram, range": lambda x: np.histogram(x, 4, (0, 3)),
    "histogram, edges": lambda x: np.histogram(x, [0, 1, 2.5, 3]),
    "histogram, density": lambda x: np.histogram(x, 4, (0, 4), density=True),
    "histogram, weights": lambda x: np.histogram(x, 3, (0, 4), weights=x * 2.0),
    "histogram, whole weights": lambda x: np.histogram(x, [0, 2, 4], weights=(x * 2).astype(np.int32)),
    "histogram, edges of an array": lambda x: np.histogram(x, np.array([0, 1, 2.5, 3])),
    "histogram_bin_edges": lambda x: np.histogram_bin_edges(x, 4),
    "quantile, several": lambda x: np.quantile(x, [0.25, 0.5, 0.75]),
    "quantile, axis": lambda x: np.quantile(x, (0.1, 0.9), axis=-1),
    "quantile, kept": lambda x: np.quantile(x, [[0.1, 0.9]], axis=0, keepdims=True),
    "percentile, array": lambda x: np.percentile(x, np.array([10, 50])),
    "percentile, method": lambda x: np.percentile(x, [10, 50], method="lower"),
    "nanquantile": lambda x: np.nanquantile(x, 0.3),
    "nanpercentile, axis": lambda x: np.nanpercentile(x, 30, axis=-1),
    "cov": np.cov,
    "cov, columns": lambda x: np.cov(x, rowvar=False),
    "cov, bias": lambda x: np.cov(x, bias=True),
    "cov, ddof": lambda x: np.cov(x, ddof=0),
    "cov, y": lambda x: np.cov(x, x * x),
    "cov, fweights": lambda x: np.cov(x, fweights=np.arange(1, x.shape[-1] + 1)),
    "cov, aweights": lambda x: np.cov(x, aweights=np.arange(1.0, x.shape[-1] + 1)),
    "cov, both": lambda x: np.cov(
        x, fweights=np.arange(1, x.shape[-1] + 1), aweights=np.arange(1.0, x.shape[-1] + 1), ddof=0
    ),
    "corrcoef": np.corrcoef,
    "corrcoef, y": lambda x: np.corrcoef(x, x * x + 1, rowvar=False),
    "searchsorted, sorter": lambda x: np.searchsorted(np.array([3, 1, 0, 2]), x, sorter=np.array([2, 1, 3, 0])),
    "repeat, each": lambda x: np.repeat(x, list(range(x.shape[0])), axis=0),
    "repeat, array": lambda x: np.repeat(x, np.array([2, 0, 1]), axis=0),
    "repeat, list of one": lambda x: np.repeat(x, [2]),
    "argwhere": np.argwhere,
    "put_along_axis": partial(_put, -1, 9),
    "put_along_axis, flattened": partial(_put, None, 1),
    "argsort of a scalar": lambda x: np.argsort(x, axis=0, kind="stable"),
    "cumsum of a scalar": lambda x: np.cumsum(x, axis=0),
    "cumprod of a scalar": lambda x: np.cumprod(x, axis=-1),
    "repeat of a scalar": lambda x: np.repeat(x, 2, axis=0),
    "take of a scalar": lambda x: np.take(x, [0, 0], axis=0),
    "sum of a scalar": lambda x: np.sum(x, axis=0),
    "max of a scalar": lambda x: np.max(x, axis=-1, keepdims=True),
    "argmax of a scalar": lambda x: np.argmax(x, axis=0),
    "any of a scalar": lambda x: np.any(x, axis=0),
    "count of a scalar": lambda x: np.count_nonzero(x, axis=0),
    "mean of a scalar": lambda x: np.mean(x, axis=0),
    "polyadd": lambda x: np.polyadd(x, [1, 2, 3]),
    "polysub": lambda x: np.polysub([1.0], x),
    "polymul": lambda x: np.polymul(x, [1, 2.0]),
    "polyder": lambda x: np.polyder(x * 1.0),
    "polyder, twice": lambda x: np.polyder(x * 1.0, 2),
    "polyint": lambda x: np.polyint(x * 1.0),
    "polyint, constants": lambda x: np.polyint(x * 1.0, 2, k=[3.0, 4.0]),
    "polyfit": lambda x: np.polyfit(np.arange(x.shape[0]) * 1.0, x, 1),
}  # fmt: skip


def _flat(found: Any) -> list[np.ndarray[Any, Any]]:
    return [y for x in found for y in _flat(x)] if isinstance(found, tuple) else [np.asarray(found)]


def _outcome(function: Function, x: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return function(x)
        except (ValueError, IndexError, TypeError, ZeroDivisionError, np.linalg.LinAlgError):
            return None


def _applies(name: str, shape: tuple[int, ...], dtype: str) -> bool:
    """What NumPy does of empty arrays and of float16 is not followed where it makes no sense."""
    if name.startswith("poly") and (len(shape) != 1 or shape[0] < 2 or dtype in ("bool", "float16")):
        return False
    if name.startswith(("cov", "corrcoef")) and (len(shape) > 2 or 0 in shape or dtype == "float16"):
        return False
    if name.startswith("nan") and 0 in shape and dtype == "bool":
        return False
    return not (name.startswith("histogram") and dtype == "float16")


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FORMS)
def test_jitted_and_eager_as_numpy(name: str, shape: tuple[int, ...]) -> None:
    """Every form meets every shape and every dtype; of their combinations one in two."""
    function, place = FORMS[name], list(FORMS).index(name) + SHAPES.index(shape)
    for number, dtype in enumerate(DTYPES + (NARROW if shape == (3, 4) else [])):
        if not _applies(name, shape, dtype) or not is_due(place, number):
            continue
        x = VALUES[: int(np.prod(shape))].reshape(shape).astype(dtype)
        wanted = _outcome(function, x)
        for found in (_outcome(tn.jit(function), x), _outcome(function, tn.asarray(x.copy()))):
            assert (found is None) == (wanted is None), (dtype, found, wanted)
            if wanted is None:
                continue
            assert type(found) is type(wanted) or not isinstance(wanted, tuple), (type(found), type(wanted))
            for f, w in zip(_flat(found), _flat(wanted), strict=True):
                assert (f.dtype, f.shape) == (w.dtype, w.shape), (dtype, f, w)
                close = {2: 1e-2, 4: 1e-5}.get(w.dtype.itemsize, 1e-12)
                np.testing.assert_allclose(f, w, rtol=close, atol=close)


def test_nans_are_one_value_or_many() -> None:
    x = np.array([2.0, np.nan, 1.0, np.nan, 2.0])
    for function in (
        lambda x: np.unique(x, return_counts=True),
        lambda x: np.unique(x, equal_nan=False, return_inverse=True),
        lambda x: np.unique_counts(x),
        lambda x: np.unique(x * (1 + 1j), return_index=True),
    ):
        for f, w in zip(tn.jit(function)(x), function(x), strict=True):
            np.testing.assert_array_equal(f, w)
    counts, _ = tn.jit(lambda x: np.histogram(x, 2, (0, 2)))(x)
    np.testing.assert_array_equal(counts, np.histogram(x, 2, (0, 2))[0])


def test_one_program_serves_every_size() -> None:
    for name in ("unique, all", "histogram", "histogram, weights", "quantile, several", "cov", "corrcoef", "lexsort"):
        jitted = tn.jit(FORMS[name])
        for n in (3, 7, 200):
            x = np.random.default_rng(n).integers(0, 9, n).astype(float)
            for f, w in zip(_flat(jitted(x)), _flat(FORMS[name](x)), strict=True):
                np.testing.assert_allclose(f, w, rtol=1e-12)
        assert jitted.cache_info().compiles == 1, name


def test_edges_and_numbers_that_are_arguments_are_read_at_each_call() -> None:
    x, jitted = np.arange(10.0), tn.jit(lambda x, edges: np.histogram(x, edges)[0])
    for edges in (np.array([0.0, 5.0, 9.0]), np.array([1.0, 2.0, 3.0])):
        np.testing.assert_array_equal(jitted(x, edges), np.histogram(x, edges)[0])
    with pytest.raises(ValueError, match=r"histogram_bin_edges: .*monotonically.*test_sets_and_counts"):
        jitted(x, np.array([3.0, 2.0, 4.0]))
    assert jitted.cache_info().compiles == 1
    asked = np.array([0.25, 0.5])
    captured = tn.jit(lambda x: np.quantile(x, asked))
    np.testing.assert_allclose(captured(x), np.quantile(x, asked))
    asked[0] = 0.75  # what the program relies on is guarded
    np.testing.assert_allclose(captured(x), np.quantile(x, asked))


def test_writes_along_an_axis_reach_views_and_are_refused_on_arguments() -> None:
    def f(x: Any) -> Any:
        y = x.copy()
        np.put_along_axis(y[1:], np.array([[0], [2]]), [[7.0], [8.0]], axis=1)
        return y

    x = np.arange(12.0).reshape(3, 4)
    np.testing.assert_array_equal(tn.jit(f)(x), f(x))
    a = tn.asarray(x.copy())
    np.put_along_axis(a[1:], np.array([[0], [2]]), [[7.0], [8.0]], axis=1)
    np.testing.assert_array_equal(np.asarray(a), f(x))
    with pytest.raises(tn.MutationError, match="argument x is not the function's own"):
        tn.jit(lambda x: np.put_along_axis(x, np.array([[0]]), 1.0, axis=1))(x)
    with pytest.raises(tn.ShapeError, match="put_along_axis: indices of rank 1 for rank 2"):
        tn.jit(lambda x: np.put_along_axis(x.copy(), np.array([0]), 1.0, axis=1))(x)


BAD: dict[str, tuple[Function, type[Exception], str]] = {
    "unique": (
        lambda x: np.unique(x, axis=0),
        TypeError,
        "unique: axis 0; None, for the values of the flat",
    ),
    "histogram": (lambda x: np.histogram(x, "auto"), TypeError, "histogram: bins 'auto', whose number depends"),
    "histogram, no bins": (lambda x: np.histogram(x, 0, (0, 1)), ValueError, "histogram: .*bins.* must be positive"),
    "quantile": (lambda x: np.quantile(x, x[0]), TypeError, "quantile: q .*; Python numbers, which are known"),
    "quantile, none": (lambda x: np.quantile(x, []), ValueError, "quantile: q has no elements"),
    "repeat": (lambda x: np.repeat(x, [1, 2], axis=1), ValueError, "repeat: 2 repeats for axis 1 of size 3"),
    "repeat, negative": (lambda x: np.repeat(x, [1, -2], axis=0), ValueError, "repeat: repeats -2; 0 or more"),
    "cov": (lambda x: np.cov(x, fweights=np.ones(3)), TypeError, "cov: fweights of dtype float64; integers are"),
    "cov, weights": (lambda x: np.cov(x, aweights=np.ones(2)), ValueError, r"cov: aweights of shape \(2,\) for 3"),
    "cov, ddof": (lambda x: np.cov(x, ddof=0.5), ValueError, "cov: ddof 0.5; an integer is needed"),
    "lexsort": (lambda x: np.lexsort((x, x[0])), ValueError, r"lexsort: keys of ranks \[2, 1\]; one rank"),
    "polyfit": (lambda x: np.polyfit(x[0], x[1, :2], 1), ValueError, "polyfit: 3 places and 2 values; equal sizes"),
    "polyder": (lambda x: np.polyder(x), ValueError, "polyder: coefficients of rank 2; rank 1 is needed"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_is_refused(name: str) -> None:
    function, kind, text = BAD[name]
    with pytest.raises(kind, match=rf"^{text}.*\(at .*test_sets_and_counts\.py:\d+\)$"):
        tn.jit(function)(np.arange(6.0).reshape(2, 3))


def test_covariances_and_sets_have_slopes_where_they_can() -> None:
    x = np.linspace(0, 1, 8).reshape(2, 4) ** 2

    def spread(x: Any) -> Any:
        return np.cov(x)[0, 1] + np.corrcoef(x)[0, 1]

    slope = tn.grad(spread)(x)
    for k in (0, 5):
        step = np.zeros((2, 4))
        step[divmod(k, 4)] = 1e-6
        assert abs((spread(x + step) - spread(x - step)) / 2e-6 - slope.ravel()[k]) < 1e-6


def test_counts_of_a_known_number_have_a_cure():
    def shares(labels, centers, k=None):
        return centers / np.bincount(labels, minlength=len(centers))[:k]

    labels, centers = np.array([0, 1, 1]), np.array([3.0, 4.0])
    with pytest.raises(
        TraceError, match=r"\(number of counts\).*; numpy.bincount\(x, minlength=k\)\[:k\] has k of them"
    ):
        tn.jit(shares)(labels, centers)
    cured = tn.jit(lambda labels, centers: shares(labels, centers, len(centers)))
    np.testing.assert_array_equal(cured(labels, centers), [3.0, 2.0])


@pytest.mark.parametrize("dtypes", [("f8", "f8"), ("f4", "f4"), ("i8", "i4"), ("?", "?"), ("f8", "f4")])
@pytest.mark.parametrize("number", range(11))
def test_histogram2d(number: int, dtypes: tuple[str, str]) -> None:
    random = np.random.default_rng(number)
    x, y = ((random.random(50) * scale).astype(d) for d, scale in zip(dtypes, (3.0, 9.0), strict=True))
    w = random.random(50)
    options: dict[str, Any] = (
        {}, {"bins": 4}, {"bins": [3, 5]}, {"bins": (np.array([0, 0.3, 0.8]), 4)}, {"bins": np.array([0, 0.2, 2.5])},
        {"bins": [0, 0.2, 0.5, 2.0]}, {"bins": 5, "range": [[0, 1], [0, 2]]}, {"bins": 5, "range": [[0, 0.5], None]},
        {"density": True}, {"weights": w}, {"weights": w.astype("f4"), "density": True, "bins": 3},
    )[number]  # fmt: skip
    expected = np.histogram2d(x, y, **options)
    f = tn.jit(lambda x, y: np.histogram2d(x, y, **options))
    for found in (f(x, y), np.histogram2d(tn.asarray(x), tn.asarray(y), **options)):
        for g, w in zip(found, expected, strict=True):
            assert g.dtype == w.dtype
            np.testing.assert_allclose(np.asarray(g), w, rtol=1e-6 if "f4" in dtypes else 1e-13)
