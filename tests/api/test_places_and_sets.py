"""Places, writes of repeated values, sets of two arrays, edits, parts of numbers and running results: NumPy's values
and errors, jitted and eager on both engines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.numpy as tnp
from tests.oracle import agrees, both_engines
from tests.turns import is_due

Function = Callable[..., Any]
DTYPES = ("bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64")
X = np.arange(12).reshape(3, 4)
ARRAYS = {"whole": X, "turned": X.T[::2], "with steps": X[:, ::-2], "of size 1": X[:1, :1], "of size 0": X[:0]}


@pytest.fixture(autouse=True, scope="module")
def _engines() -> Iterator[None]:
    with both_engines():
        yield


def _changed(write: Callable[[Any], Any]) -> Function:
    """The array that a function has written into."""

    def function(x: Any) -> Any:
        y = x.copy()
        write(y)
        return y

    return function


WRITES: dict[str, Function] = {
    "fill_diagonal": _changed(lambda y: np.fill_diagonal(y, 5)),
    "fill_diagonal, wrapped": _changed(lambda y: np.fill_diagonal(y, 1, wrap=True)),
    "fill_diagonal, several": _changed(lambda y: np.fill_diagonal(y, [1, 0, 1])),
    "fill_diagonal, an array": _changed(lambda y: np.fill_diagonal(y, np.array([1.0, 0.0]))),
    "fill_diagonal of a view": _changed(lambda y: np.fill_diagonal(y[:, 1:], 0)),
    "fill_diagonal of rank 3": _changed(lambda y: np.fill_diagonal(np.stack([y, y]), 0)),
    "put": _changed(lambda y: np.put(y, [0, -1], [1, 0])),
    "put, repeated": _changed(lambda y: np.put(y, [0, 1, 0], 1)),
    "put, clipped": _changed(lambda y: np.put(y, [100, -100], [0, 1], mode="clip")),
    "put, wrapped": _changed(lambda y: np.put(y, [1, 13], [0, 1], mode="wrap")),
    "put of a view": _changed(lambda y: np.put(y[:, ::2], [1], [1])),
    "put, beyond": _changed(lambda y: np.put(y, [50], 1)),
    "putmask": _changed(lambda y: np.putmask(y, y != 0, [1, 0, 1])),
    "putmask, unsafe": _changed(lambda y: np.putmask(y, y != 0, np.array([1.5, 2]))),
    "putmask, shapes": _changed(lambda y: np.putmask(y, np.array([True]), 1)),
    "place": _changed(lambda y: np.place(y, y != 0, [1, 0, 1])),
    "place, nowhere": _changed(lambda y: np.place(y, y != y, 1)),
}
EDITS: dict[str, Function] = {
    **{f"delete {k!r}": lambda x, k=k: np.delete(x, k, 0) for k in (0, -1, 7, [0, 1], [], slice(None, None, 2), [9])},
    "delete, flattened": lambda x: np.delete(x, [1, -1]),
    "delete under a mask": lambda x: np.delete(x, x[:, 0] != 0, 0),
    **{f"insert {k!r}": lambda x, k=k: np.insert(x, k, 1, 0) for k in (0, -1, 7, [0, 1], [1, 1], [], slice(0, 2))},
    "insert, flattened": lambda x: np.insert(x, 0, [1, 0]),
    "insert columns": lambda x: np.insert(x, [1, 0], [[1, 0]], axis=1),
    "resize": lambda x: np.resize(x, (3, 7)),
    "choose": lambda x: np.choose((x != 0) * 1, [x, x * 2]),
    "choose method": lambda x: ((x != 0) * 1).choose([x, x * 2]),
    "choose, clipped": lambda x: np.choose(np.arange(-1, 2)[:, None], [x[:1], 5, x[:1] * 2], mode="clip"),
    "choose, wrapped": lambda x: np.choose(np.arange(-1, 2)[:, None], [x[:1], x[:1] * 2], mode="wrap"),
    "choose, none": lambda x: np.choose(np.arange(3)[:, None], [x[:1], x[:1] * 2]),
    "unstack": lambda x: np.unstack(x, axis=1),
    "ix_": lambda x: x[np.ix_([0, 0], x[0] != 0)] if x.shape[0] else x,
    "packbits": lambda x: np.packbits(x != 0, axis=0),
}
SETS: dict[str, Function] = {
    "isin": lambda x, y: np.isin(x, y),
    "isin, inverted": lambda x, y: np.isin(x, y, invert=True),
    "isin nothing": lambda x, y: np.isin(x, []),
    "isin numbers": lambda x, y: np.isin(x, [1, 2.5]),
    "isin some": lambda x, y: np.isin(x, y[y != 2]),
    "union1d": lambda x, y: np.union1d(x, y),
    "intersect1d": lambda x, y: np.intersect1d(x, y),
    "intersect1d, places": lambda x, y: np.intersect1d(x, y, return_indices=True),
    "intersect1d, unique": lambda x, y: np.intersect1d(np.unique(x), np.unique(y), True, True),
    "setdiff1d": lambda x, y: np.setdiff1d(x, y),
    "setdiff1d, unique": lambda x, y: np.setdiff1d(x, y, True),
    "setxor1d": lambda x, y: np.setxor1d(x, y),
    "setxor1d, unique": lambda x, y: np.setxor1d(np.unique(x), np.unique(y), True),
    "array_equiv": lambda x, y: np.array_equiv(x, x[None]),
    "array_equiv, not": lambda x, y: np.array_equiv(x, y),
}
PARTS: dict[str, Function] = {
    "angle": lambda x: np.angle(x),
    "angle of negatives, in degrees": lambda x: np.angle(x * 1.0 - 3, deg=True),
    "modf": lambda x: np.modf(x),
    "isneginf": lambda x: np.isneginf(x),
    "isposinf": lambda x: np.isposinf(x),
    "atleast_3d": lambda x: np.atleast_3d(x, x[0], x[0, 0]) if x.shape[0] else np.atleast_3d(x),
    "sort_complex": lambda x: np.sort_complex(x),
    **{
        f"{name}.accumulate": lambda x, name=name: getattr(np, name).accumulate(x, axis=1)
        for name in ("add", "multiply", "maximum", "minimum", "fmax", "fmin", "logaddexp", "logical_or", "bitwise_xor")
    },
    "maximum.accumulate of a number": lambda x: np.maximum.accumulate(x.sum()),
    "add.accumulate, dtype": lambda x: np.add.accumulate(x, dtype=np.float64) if x.dtype.kind != "c" else x,
}


@pytest.mark.parametrize("name", WRITES)
def test_writes(name: str) -> None:
    for array in ARRAYS.values():
        for dtype in ("int8", "float32", "complex64", "bool"):
            agrees(WRITES[name], array.astype(dtype))


@pytest.mark.parametrize("name", EDITS)
def test_edits(name: str) -> None:
    for array in ARRAYS.values():
        for dtype in ("int8", "float64"):
            agrees(EDITS[name], array.astype(dtype))


@pytest.mark.parametrize("name", SETS)
def test_sets(name: str) -> None:
    first, second = np.array([3, 1, 0, 2, 2, 4, 1, 7]), np.array([2, 0, 9, 2, 1])
    for dtype in DTYPES:
        agrees(SETS[name], first.astype(dtype).reshape(2, 4).T, second.astype(dtype))
    for x, y in ((first[:0], second), (first, second[:0]), (first[:1], second[:1]), (first[::-2], second[::2])):
        agrees(SETS[name], x, y)
    agrees(SETS[name], np.array([1.0, np.nan, 2.0, np.nan]), np.array([np.nan, 1.0]))


@pytest.mark.parametrize("name", PARTS)
def test_parts(name: str) -> None:
    """Every dtype, and every array with every other dtype."""
    for place, array in enumerate(ARRAYS.values()):
        for number, dtype in enumerate(DTYPES):
            if is_due(place, number):
                agrees(PARTS[name], array.astype(dtype))


def test_parts_of_special_numbers() -> None:
    x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 1.5, -1.5, 0.5, -0.5])
    for function in (np.angle, np.modf, np.isneginf, np.isposinf, lambda x: np.maximum.accumulate(x)):
        agrees(function, x)
    both = np.zeros((9, 9), complex)
    both.real, both.imag = x[:, None], x
    agrees(np.angle, both)


def test_parts_are_written() -> None:
    def function(x: Any) -> Any:
        y = x.astype(np.complex128)
        window = y[1:]
        window.imag = -0.0
        y.real = np.array([[-0.0], [np.inf], [3]])
        window[:, :1].imag = x[1:, :1].real * 2
        z = x.copy()
        z.real = 7
        return y, window + 1, z

    for dtype in ("int8", "float32", "complex64"):
        agrees(function, X.astype(dtype) if dtype[0] != "c" else X.astype(dtype) * 1j)
    agrees(_changed(lambda y: setattr(y, "imag", 1.0)), X * 1.0)
    slope = tn.grad(lambda x: _with_imaginary(x).imag.sum())(np.ones(3))
    np.testing.assert_array_equal(slope, [2, 2, 2])
    with pytest.raises(tn.MutationError, match="argument x is not the function's own"):
        tn.jit(lambda x: setattr(x, "imag", 1.0))(X * 1j)


def _with_imaginary(x: Any) -> Any:
    y = np.zeros(3, complex)
    y.imag = 2 * x
    return y


def test_places() -> None:
    i = np.array([[0, 5], [11, 3]])
    for order in ("C", "F"):
        agrees(lambda i, order=order: np.unravel_index(i, (3, 4), order), i)
        agrees(lambda i, order=order: np.unravel_index(i[0, 1], (2, 2, 3), order), i)
        for mode in ("raise", "clip", "wrap", ("clip", "wrap")):
            for dims in ((12, 12), (6, 7)):
                agrees(lambda i, m=mode, d=dims, o=order: np.ravel_multi_index((i[0], i[1]), d, m, o), i)
    agrees(lambda i: np.unravel_index(i, (3, 2)), i)
    agrees(lambda i: np.unravel_index(i - 1, (3, 4)), i)
    agrees(lambda i: np.unravel_index(i, 12), i)
    agrees(lambda i: np.unravel_index(i[:0], (3, 0)), i)
    agrees(lambda i: np.ravel_multi_index(i, (12, 12)), i)
    agrees(lambda x: (np.diag_indices_from(x[:, :3]), np.tril_indices_from(x, 1), np.triu_indices_from(x, -1))[0], X)
    agrees(lambda x: x[np.tril_indices_from(x, 1)], X)
    agrees(lambda x: x[np.triu_indices(x.shape[0], -1, 4)], X)
    agrees(lambda x: np.diag_indices_from(x), X)
    with pytest.raises(ValueError, match=r"^unravel_index: an index is out of bounds .*test_places_and_sets"):
        tn.jit(lambda i: np.unravel_index(i, (3, 2)))(i)


def test_one_program_serves_every_size() -> None:
    calls: list[Function] = [
        lambda x, i: np.unravel_index(i, x.shape),
        _changed_with(lambda y, i: np.fill_diagonal(y, 1)),
        _changed_with(lambda y, i: np.put(y, i, 2.0)),
        lambda x, i: np.isin(x, i),
        lambda x, i: np.setxor1d(x, i),
        lambda x, i: np.maximum.accumulate(x, axis=1),
        lambda x, i: np.delete(x, 0, 1),
        lambda x, i: np.insert(x, 1, 0.5, axis=1),
    ]
    for function in calls:
        jitted = tn.jit(function)
        for n in (4, 6, 9):
            x, i = np.random.default_rng(n).integers(0, 9, (n, n + 1)) * 1.0, np.arange(n)
            for found, wanted in zip(jitted(x, i), function(x, i), strict=True):
                np.testing.assert_array_equal(found, wanted)
        assert jitted.cache_info().compiles == 1


def _changed_with(write: Callable[[Any, Any], Any]) -> Function:
    def function(x: Any, i: Any) -> Any:
        y = x.copy()
        write(y, i)
        return y

    return function


def test_writes_reach_views_and_are_refused_on_arguments() -> None:
    for write in (
        lambda y: np.fill_diagonal(y, 1.0), lambda y: np.put(y, [0], 1.0), lambda y: np.putmask(y, y > 0, 1.0),
        lambda y: np.place(y, y > 0, 1.0),
    ):  # fmt: skip
        with pytest.raises(tn.MutationError, match=r"argument x is not the function's own.*test_places_and_sets"):
            tn.jit(lambda x, write=write: write(x))(X * 1.0)

        def beside(x: Any, write: Any = write) -> Any:
            y = x.copy()
            write(y[1:])
            return y

        agrees(beside, X * 1.0)
    with pytest.raises(tn.MutationError, match=r"^put_along_axis: axis None of a view .*test_places_and_sets"):
        tn.jit(_changed(lambda y: np.put_along_axis(y[:, ::2], np.array([1]), 3.0, None)))(X * 1.0)


def test_writes_into_what_the_trace_made_are_seen_by_views_and_later_reads() -> None:
    def function(x: Any) -> Any:
        y = np.zeros((3, 3))
        row = y[1]
        found = [row + x, y + x]
        for write in (
            lambda: np.fill_diagonal(y, 1.0), lambda: np.put(y, [3], 5.0), lambda: np.putmask(y, y == 1, [7.0]),
            lambda: np.place(y, y == 5, [2.0]), lambda: np.put_along_axis(y, np.array([[2], [2], [2]]), 9.0, 1),
            lambda: np.fill_diagonal(a=y, val=np.nan), lambda: np.nan_to_num(y, copy=False),
        ):  # fmt: skip
            write()
            found += [row + x, y + x]
        np.fill_diagonal(y, x[0])
        return (*found, y)

    agrees(function, np.arange(3.0))


def test_running_results_have_slopes_and_lanes() -> None:
    x = np.array([[1.0, 3.0, 2.0, 5.0], [2.0, 0.5, 1.0, 3.0]])
    weights = np.arange(1.0, 5.0)
    for ufunc in (np.maximum, np.minimum, np.logaddexp, np.add, np.multiply):
        slope = tn.jit(tn.grad(lambda x, f=ufunc: (f.accumulate(x, axis=1) * weights).sum()))(x)
        for k in np.ndindex(x.shape):
            step = np.zeros(x.shape)
            step[k] = 1e-6
            rise = ufunc.accumulate(x + step, axis=1) - ufunc.accumulate(x - step, axis=1)
            assert abs((rise * weights).sum() / 2e-6 - slope[k]) < 1e-7
        np.testing.assert_array_equal(tn.vmap(lambda r, f=ufunc: f.accumulate(r))(x), ufunc.accumulate(x, axis=1))
    # Equal elements share alike, as those of a largest element do.
    tied = tn.grad(lambda x: (np.maximum.accumulate(x) * weights).sum())(np.array([1.0, 3.0, 3.0, 2.0]))
    np.testing.assert_allclose(tied, [1.0, 2.0 + 1.5 + 2.0, 1.5 + 2.0, 0.0])
    masked = tn.grad(lambda x: np.logaddexp.accumulate(x)[-1])(np.array([-np.inf, 0.0, 0.0]))
    np.testing.assert_allclose(masked, [0.0, 0.5, 0.5])


def test_new_functions_map() -> None:
    x = np.array([[3.0, 1.0, 2.0], [2.0, 2.0, 5.0]])
    for function in (
        lambda r: np.isin(r, np.array([2.0, 3.0])), lambda r: np.angle(r - 2), lambda r: np.modf(r / 2)[0],
        lambda r: np.choose(np.array([0, 1, 0]), [r, -r]), lambda r: np.delete(r, 1), lambda r: np.insert(r, 1, 9.0),
        lambda r: np.resize(r, (2, 4)), _changed(lambda y: np.put(y, [0, 2], 7.0)),
        _changed(lambda y: np.putmask(y, y > 2, [1.0, 2.0])), _changed(lambda y: np.place(y, y > 2, [1.0, 2.0])),
    ):  # fmt: skip
        wanted = np.stack([function(row) for row in x])
        np.testing.assert_array_equal(tn.vmap(function)(x), wanted)
        np.testing.assert_array_equal(tn.jit(tn.vmap(function))(x), wanted)


def test_methods_of_ufuncs_in_the_namespace() -> None:
    x = np.array([[3.0, 1.0], [2.0, 5.0]])
    a = tn.asarray(x)
    for found, wanted in (
        (tnp.maximum.accumulate(a), np.maximum.accumulate(x)), (tnp.add.reduce(a), x.sum(0)),
        (tnp.subtract.outer(a, a), np.subtract.outer(x, x)),
        (tn.jit(lambda x: tnp.minimum.accumulate(x, 1))(x), np.minimum.accumulate(x, 1)),
        (tn.jit(lambda x: tnp.multiply.outer(x, x))(x), np.multiply.outer(x, x)),
    ):  # fmt: skip
        np.testing.assert_array_equal(np.asarray(found), wanted)
    assert type(tnp.maximum.accumulate([1, 3, 2])) is tn.Array
    tnp.add.at(a, ([0, 0], [1, 1]), 1.0)
    assert a[0, 1] == 3.0
    with pytest.raises(tn.TraceError, match=r"^subtract\.accumulate: .*; tenferro\.lax\.associative_scan"):
        tn.jit(lambda x: np.subtract.accumulate(x))(x)


def test_namespace_has_what_makes_no_array_of_anothers() -> None:
    assert tnp.issubdtype(tnp.float32, tnp.floating) and tnp.broadcast_shapes((2, 1), (3,)) == (2, 3)
    np.testing.assert_array_equal(np.asarray(tnp.hamming(5)), np.hamming(5))
    found = tn.jit(lambda x: x * tnp.logspace(0, 1, 3) + tnp.fromfunction(lambda i: i * 2, (3,)))(np.ones(3))
    np.testing.assert_array_equal(found, np.logspace(0, 1, 3) + np.arange(3) * 2)
    assert tnp.linalg.norm(np.array([3.0, 4.0])) == 5.0


@pytest.mark.filterwarnings("ignore:Mean of empty slice")
def test_averages_of_nothing() -> None:
    x = np.zeros((3, 0))
    for function in (
        lambda x: np.average(x), lambda x: np.average(x, axis=1), lambda x: np.average(x, axis=0),
        lambda x: np.average(x, axis=1, weights=np.zeros(0)), lambda x: np.average(x, axis=1, returned=True),
    ):  # fmt: skip
        agrees(function, x)
