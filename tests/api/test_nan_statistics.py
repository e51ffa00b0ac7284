"""Statistics that pass over NaNs, and variances of chosen elements: NumPy's values, dtypes and errors, jitted and eager
on both engines; one kernel for any size."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tests.oracle import agrees, both_engines
from tests.turns import is_due

pytestmark = pytest.mark.filterwarnings("ignore:.*(Mean of empty|Degrees of freedom|All-NaN|invalid value|divide by)")
DTYPES = ("bool", "int16", "uint8", "float16", "float32", "float64", "complex64", "complex128")
Function = Callable[..., Any]


@pytest.fixture(autouse=True, scope="module")
def _engines() -> Iterator[None]:
    with both_engines():
        yield


def holed(dtype: str, shape: tuple[int, ...] = (3, 4, 5)) -> np.ndarray[Any, Any]:
    """Numbers with NaNs between them, some rows of NaNs alone, an infinity."""
    rng = np.random.default_rng(1)
    x = np.round(rng.normal(size=shape) * 4) / 4
    if np.dtype(dtype).kind not in "fc":
        return np.abs(x * 2).astype(dtype)
    x = x.astype(dtype)
    if x.dtype.kind == "c":
        x += 1j * np.round(rng.normal(size=shape) * 4) / 4
    x[rng.random(shape) < 0.3] = np.nan
    x[0, :, 1] = x[2] = np.nan
    return x


OPTIONS: dict[str, dict[str, Any]] = {
    "all": {}, "one axis": {"axis": 1}, "last axis kept": {"axis": -1, "keepdims": True}, "two axes": {"axis": (0, 2)},
}  # fmt: skip
SUMS: dict[str, Function] = {
    "initial": lambda f, x: f(x, axis=0, initial=3),
    "where": lambda f, x: f(x, axis=0, where=np.abs(x) < 2),
    "where of a row, initial": lambda f, x: f(x, axis=(0, 1), initial=2, where=np.arange(5) > 1),
    "dtype": lambda f, x: f(x, axis=1, dtype=np.complex128 if x.dtype.kind == "c" else np.float64),
    "out": lambda f, x: f(x, axis=1, out=np.zeros((3, 5), np.result_type(x, np.float64))),
    "empty": lambda f, x: f(x[:, :0], axis=1),
}
WRITTEN: dict[str, Function] = {
    "out, where": lambda f, x: f(x, axis=1, where=np.abs(x) < 2, out=np.zeros((3, 5), np.result_type(x, np.int16))),
}
MEANS: dict[str, Function] = {
    "where": lambda f, x: f(x, axis=0, where=np.abs(x) < 2),
    "where of a row": lambda f, x: f(x, axis=(0, 1), where=np.arange(5) > 1, keepdims=True),
    "dtype": lambda f, x: f(x, axis=1, dtype=np.complex128 if x.dtype.kind == "c" else np.float64),
    "empty": lambda f, x: f(x[:, :0], axis=1),
    "bad dtype": lambda f, x: f(x[0] * 1.5, axis=1, dtype=int),
    "bad axis": lambda f, x: f(x, axis=3),
}
SPREADS: dict[str, Function] = {
    **{name: form for name, form in MEANS.items() if name != "dtype"},
    "ddof": lambda f, x: f(x, axis=0, ddof=1),
    "ddof beyond": lambda f, x: f(x, axis=0, ddof=3),
    "half of a degree": lambda f, x: f(x, axis=2, ddof=1.5, keepdims=True),
    "correction": lambda f, x: f(x, axis=0, correction=1),
    "both": lambda f, x: f(x, axis=0, ddof=2, correction=1),
    "mean": lambda f, x: f(x, axis=0, mean=np.nanmean(x, axis=0, keepdims=True)),
    "mean of a number": lambda f, x: f(x, axis=0, mean=0.5, where=np.abs(x) < 2),
}  # fmt: skip
EXTREMES: dict[str, Function] = {
    "initial": lambda f, x: f(x, axis=0, initial=1),
    "where, initial": lambda f, x: f(x, axis=0, initial=0, where=np.abs(x) < 2),
    "where": lambda f, x: f(x, axis=0, where=np.abs(x) < 2),
    "empty": lambda f, x: f(x[:, :0], axis=1),
    "no result": lambda f, x: f(x[:, :0], axis=0),
    "empty, initial": lambda f, x: f(x[:, :0], axis=1, initial=1),
}
PLACES: dict[str, Function] = {
    "all": lambda f, x: f(x),
    "axis": lambda f, x: f(x[:2, :, 2:], axis=0),
    "kept": lambda f, x: f(x[:2, :, 2:], axis=0, keepdims=True),
    "rows of NaNs alone": lambda f, x: f(x, axis=1),
    "empty": lambda f, x: f(x[:0]),
}
FORMS: dict[str, dict[str, Function]] = {
    "nansum": SUMS | WRITTEN, "nanprod": SUMS, "nanmean": MEANS, "nanvar": SPREADS, "nanstd": SPREADS,
    "nanmax": EXTREMES,
    "nanmin": EXTREMES, "nanargmax": PLACES, "nanargmin": PLACES, "var": SPREADS, "std": SPREADS,
}  # fmt: skip


def _tame(function: str, dtype: str) -> np.ndarray[Any, Any]:
    x = holed(dtype)
    return x if function.startswith("nan") else np.nan_to_num(x)


def _differs(function: str, dtype: str) -> bool:
    """The NaN of complex NaNs alone is any of them, NumPy rounds squares to float16: these have tests of their own."""
    if function in ("nanmax", "nanmin"):
        return dtype.startswith("complex")
    return dtype == "float16" and function[-3:] in ("var", "std")


PAIRS = [(function, dtype) for function in FORMS for dtype in DTYPES if not _differs(function, dtype)]


@pytest.mark.parametrize(("function", "dtype"), PAIRS)
def test_forms(function: str, dtype: str) -> None:
    """Every form of every function, and every form with every dtype: of one function or another."""
    x, f, place = _tame(function, dtype), getattr(np, function), list(FORMS).index(function) + DTYPES.index(dtype)
    for number, (name, form) in enumerate(FORMS[function].items()):
        if name == "bad dtype" and not function.startswith("nan"):
            continue  # NumPy has integer variances
        if not is_due(place, number):
            continue
        try:
            agrees(lambda a, form=form: form(f, a), x)
        except AssertionError as error:
            raise AssertionError(f"{name}: {error}") from None


@pytest.mark.parametrize(("function", "dtype"), [pair for pair in PAIRS if "arg" not in pair[0]])
def test_axes(function: str, dtype: str) -> None:
    x, f = _tame(function, dtype), getattr(np, function)
    for options in OPTIONS.values():
        agrees(lambda a, options=options: f(a, **options), x)


@pytest.mark.parametrize("function", [np.nanmax, np.nanmin])
def test_extremes_of_complex_numbers(function: Function) -> None:
    x = holed("complex64")
    found, wanted = tn.jit(lambda a: function(a, axis=1))(x), function(x, axis=1)
    assert (np.isnan(found) == np.isnan(wanted)).all()
    np.testing.assert_array_equal(found[~np.isnan(wanted)], wanted[~np.isnan(wanted)])


@pytest.mark.parametrize("function", [np.nanvar, np.nanstd])
def test_half_precision(function: Function) -> None:
    """float16 is squared and summed in float32: 40000 fits into float16, but 200 * 200 twice does not."""
    x = np.array([[0, 400, np.nan], [1, 2, 3]], np.float16)
    found = tn.jit(lambda a: function(a, axis=1))(x)
    assert found.dtype == np.float16
    np.testing.assert_allclose(found, function(x.astype(np.float64), axis=1), rtol=1e-3)


@pytest.mark.parametrize("function", [np.nanvar, np.nanstd, np.var, np.std])
def test_dtype(function: Function) -> None:
    """The whole computation is in it; NumPy rounds deviations to the array's own."""
    for dtype, asked in (("float32", "float64"), ("complex64", "complex128"), ("float64", "complex128")):
        x = holed(dtype)
        found = tn.jit(lambda a, asked=asked: function(a, axis=1, dtype=asked))(x)
        if (x.dtype.kind == "c") == (found.dtype.kind == "c"):
            assert found.dtype == function(x, axis=1, dtype=asked).dtype
        assert found.dtype == asked
        np.testing.assert_allclose(found, function(x.astype(asked), axis=1), rtol=1e-12)


@pytest.mark.parametrize("name", list(FORMS))
def test_one_kernel_for_any_size(name: str) -> None:
    jitted = tn.jit(lambda a: getattr(np, name)(a, axis=1))
    for n, m in ((3, 4), (5, 6), (2, 40)):
        x = np.random.default_rng(n).normal(size=(n, m))
        np.testing.assert_allclose(jitted(x), getattr(np, name)(x, axis=1), rtol=1e-12)
    assert jitted.cache_info().compiles == 1
    lowered = jitted.lower(np.ones((3, 4)))
    assert [o.op.name for o in lowered.exec_program.instructions if o.op.name == "numpy_call"] == []
    assert len(lowered.regions) == 1


def test_nothing_warns(recwarn: pytest.WarningsRecorder) -> None:
    x = np.full((2, 3), np.nan)
    for name in ("nansum", "nanmean", "nanmax", "nanmin", "nanvar", "nanstd", "nanprod"):
        tn.jit(lambda a, name=name: getattr(np, name)(a, axis=1))(x)
    assert not recwarn.list


@pytest.mark.parametrize("shape", [(3, 5), (40, 3), (3, 40), (1, 70_000)])
def test_a_row_without_a_number_has_no_place(shape: tuple[int, int]) -> None:
    """Found on every schedule, once for the whole call, also where ``where`` drops the place."""
    jitted = tn.jit(lambda a: np.where(a[:, 0] > 0, np.nanargmax(a, axis=1), 0))
    x = np.ones(shape)
    assert (jitted(x) == 0).all()
    x[-1] = np.nan
    with pytest.raises(ValueError, match=r"^nanargmax: All-NaN slice encountered; .*test_nan_statistics\.py:\d+\)$"):
        jitted(x)
    assert (jitted(np.ones(shape)) == 0).all()


def test_sums_in_the_dtype_of_out() -> None:
    """Computed in it, as NumPy does, not only delivered."""
    x = np.full((3, 2), 50_000, np.float16)
    for name in ("sum", "prod", "nansum", "nanprod"):
        agrees(lambda a, name=name: getattr(np, name)(a, axis=0, out=np.zeros(2, np.float64)), x)
        agrees(lambda a, name=name: getattr(np, name)(a.astype(np.int64), axis=0, out=np.zeros(2, np.int16)), x / 1000)
