"""Element by element functions and reductions of ``tn.lax`` against NumPy's code."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import lax
from tenferro.tracer.api.lax_elementwise import _BINARY, _UNARY
from tests.lax.checking import agrees, refuses, same, serves_all
from tests.values import DTYPES, filled, of_kinds, uniform

Array = np.ndarray[Any, Any]
POSITIVE = {"log", "log1p", "sqrt", "acosh", "acos", "asin", "atanh"}
INSIDE = {"acos", "asin", "atanh"}


def _operand(name: str, dtype: str, seed: int) -> Array:
    x = filled((3, 5), dtype, seed)
    if name in POSITIVE:
        x = abs(x) + np.ones((), dtype)
    return x / 8 if name in INSIDE and x.dtype.kind == "f" else x


def _numpy_has(name: str, *xs: Array) -> bool:
    try:
        with np.errstate(all="ignore"):
            getattr(np, name)(*xs)
    except TypeError:
        return False
    return True


@pytest.mark.parametrize("name", _UNARY)
def test_names_of_one_operand(name: str) -> None:
    of_numpy = getattr(np, _UNARY[name])
    for dtype in ("bool", "int8", "uint16", "int64", "float16", "float32", "float64", "complex64"):
        x = _operand(name, dtype, 1)
        if _numpy_has(_UNARY[name], x):
            agrees(getattr(lax, name), of_numpy, x, ulps=16)


@pytest.mark.parametrize("name", _BINARY)
def test_names_of_two_operands(name: str) -> None:
    of_numpy = getattr(np, _BINARY[name])
    for left, right in (
        ("bool", "bool"), ("int8", "int8"), ("uint16", "int32"), ("int64", "float32"), ("float16", "float16"),
        ("float32", "float64"), ("complex64", "float32"),
    ):  # fmt: skip
        x, y = filled((3, 5), left, 1), filled((3, 5), right, 2)
        if name in ("rem", "pow", "shift_left"):
            y = abs(y) + np.ones((), right)
        x = abs(x) if name == "pow" else x
        if "complex64" in (left, right) and name in ("max", "min", "lt", "le", "gt", "ge"):
            continue
        if _numpy_has(_BINARY[name], x, y):
            agrees(getattr(lax, name), of_numpy, x, y, ulps=16)


def test_numbers_give_way() -> None:
    x = filled((3, 5), "float32", 1)
    agrees(lambda a: lax.add(a, 2.0), x + 2.0, x)
    agrees(lambda a: lax.mul(3, a), 3 * x, x)
    agrees(lambda a: lax.pow(a, 2), x**2, x)
    agrees(lambda a, n: lax.pow(a, n), x**2, x, 2)
    assert isinstance(lax.add(1, 2), tn.Array)


@pytest.mark.parametrize("dtype", of_kinds("iu"))
def test_division_rounds_towards_zero(dtype: str) -> None:
    info = np.iinfo(dtype)
    values = [0, 1, 2, 3, 7, 10, info.max, info.max - 1, info.min, *((-1, -2, -3, -7, -10) if info.min else ())]
    x, y = np.repeat(np.array(values, dtype), len(values)), np.tile(np.array(values, dtype), len(values))
    x, y = x[y != 0], y[y != 0]
    wanted = [int(abs(int(a)) // abs(int(b))) * (1 if (a < 0) == (b < 0) else -1) for a, b in zip(x, y, strict=True)]
    span = int(info.max) - int(info.min) + 1
    wrapped = np.array([(w - int(info.min)) % span + int(info.min) for w in wanted], dtype)
    agrees(lax.div, wrapped, x, y)
    agrees(lambda a, b: lax.sub(a, lax.mul(lax.div(a, b), b)), np.fmod(x, y), x, y)
    agrees(lax.rem, np.fmod(x, y), x, y)


def test_division_by_zero_warns() -> None:
    x, y = np.array([5, -5, 0]), np.array([0, 0, 0])
    with pytest.warns(RuntimeWarning, match="divisor 0"):
        np.testing.assert_array_equal(tn.jit(lax.div)(x, y), 0)
    with np.errstate(divide="raise"), pytest.raises(ZeroDivisionError):
        lax.div(x, y)


def test_division_of_others() -> None:
    for dtype in ("float16", "float32", "float64", "complex64"):
        x, y = filled((9,), dtype, 1), filled((9,), dtype, 2) + np.ones((), dtype)
        agrees(lax.div, np.divide, x, y, ulps=4)
        if dtype != "complex64":
            agrees(lax.rem, np.fmod, x, y)
    agrees(lax.div, np.divide, np.arange(4, dtype=np.int8), np.ones(4, np.float32))


@pytest.mark.parametrize("exponent", [0, 1, 2, 3, 5, 8, 13, -1, -2, -5])
def test_integer_pow(exponent: int) -> None:
    for dtype in ("int8", "uint32", "int64", "float16", "float32", "float64", "complex128"):
        x = filled((7,), dtype, 1)
        if exponent < 0 and x.dtype.kind in "iu":
            refuses(lambda a: lax.integer_pow(a, exponent), ValueError, f"to the exponent {exponent}", x)
            continue
        x = x + np.full((), 3, dtype) if x.dtype.kind == "c" else x
        wide = x.astype(np.float32) if dtype == "float16" else x
        with np.errstate(all="ignore"):
            wanted = (wide ** np.array(exponent, wide.dtype)).astype(dtype)
        agrees(lambda a: lax.integer_pow(a, exponent), wanted, x, ulps=60)
    refuses(lambda a: lax.integer_pow(a, exponent), TypeError, "dtype bool", np.ones(2, bool))


def test_round() -> None:
    for dtype in of_kinds("f"):
        eps = np.finfo(dtype).eps
        values = [0.5, -0.5, 1.5, -1.5, 2.5, 0.5 - eps / 4, 0.4, -0.6, 0.0, -0.0, np.inf, -np.inf, np.nan, 1 / eps]
        x = np.array(values, dtype)
        with np.errstate(all="ignore"):
            away = np.trunc(x) + np.where(abs(x - np.trunc(x)) >= 0.5, np.copysign(1, x), 0).astype(dtype)
        away = np.where(np.isfinite(x), away, x)
        agrees(lax.round, away.astype(dtype), x)
        agrees(lambda a: lax.round(a, 1), np.rint(x), x)
    refuses(lax.round, TypeError, "dtype int64", np.arange(3))
    refuses(lambda a: lax.round(a, 2), TypeError, "rounding_method 2; 0 or 1", np.ones(3))


def test_shifts_to_the_right() -> None:
    for dtype in of_kinds("iu"):
        x = uniform((40,), dtype, 1)
        bits = x.dtype.itemsize * 8
        count = (np.arange(40) % (bits + 2)).astype(dtype)
        signed, unsigned = x.view(f"i{bits // 8}"), x.view(f"u{bits // 8}")
        arithmetic = (signed >> count.astype(signed.dtype)).view(dtype)
        logical = (unsigned >> count.astype(unsigned.dtype)).view(dtype)
        agrees(lax.shift_right_arithmetic, arithmetic, x, count)
        agrees(lax.shift_right_logical, logical, x, count)
    refuses(lax.shift_right_logical, TypeError, "dtype float64; integers", np.ones(2), np.ones(2))


def test_clamp() -> None:
    for dtype in of_kinds("biuf"):
        x, low, high = (filled((3, 5), dtype, k) for k in (1, 2, 3))
        agrees(lax.clamp, np.minimum(np.maximum(x, low), high), low, x, high)
        agrees(lambda a: lax.clamp(0, a, 2), np.clip(x, 0, 2), x) if dtype != "bool" else None
        agrees(lambda a: lax.clamp(a[0, 0], a, a[1]) if a.ndim < 2 else lax.clamp(a[0, 0], a, a), x.clip(x[0, 0], x), x)
    nan = np.array([np.nan, 1.0, -np.inf])
    agrees(lambda a: lax.clamp(-1.0, a, 0.5), np.array([np.nan, 0.5, -1.0]), nan)
    x = filled((3, 5), "float32", 1)
    agrees(lambda a: lax.clamp(np.float64(0), a, 1), np.clip(x.astype(np.float64), 0, 1), x)
    refuses(lambda a: lax.clamp(a[0], a, 1.0), ValueError, r"x of shape \(3, 5\) beside one of shape \(5,\)", x)
    refuses(lambda a: lax.clamp(a[0], a[0, 0], 1.0), ValueError, "bounds that are arrays for a number", x)
    serves_all(
        lambda x, low: lax.clamp(low, x, 1.0), lambda x, low: np.minimum(np.maximum(x, low), 1.0),
        *((uniform((n,), "float64", 1), uniform((n,), "float64", 2)) for n in (1, 4, 30)),
    )  # fmt: skip


def test_select() -> None:
    for dtype in DTYPES:
        x, y, chosen = filled((3, 5), dtype, 1), filled((3, 5), dtype, 2), filled((3, 5), "bool", 3)
        agrees(lax.select, np.where(chosen, x, y), chosen, x, y)
        agrees(lax.select, x, np.True_, x, y)
        agrees(lambda c, a: lax.select(c[0, 0], a, a * a), np.where(chosen[0, 0], x, x * x), chosen, x)
    x, chosen = filled((3, 5), "float32", 1), filled((3, 5), "bool", 3)
    agrees(lambda c, a: lax.select(c, a, 0.0), np.where(chosen, x, 0.0).astype(np.float32), chosen, x)
    agrees(lambda c: lax.select(c, 1, 0), np.where(chosen, 1, 0), chosen)
    refuses(lambda a: lax.select(a, a, a), TypeError, "pred of dtype float32; bool", x)
    refuses(
        lambda c, a: lax.select(c[0], a, a), ValueError, r"on_true of shape \(3, 5\) beside one of shape", chosen, x
    )
    refuses(lambda c, a: lax.select(c, a, a[0]), ValueError, r"on_false of shape \(5,\) beside one of shape", chosen, x)


def test_other_functions() -> None:
    for dtype in ("int16", "float16", "float32", "float64", "complex64"):
        x = abs(filled((3, 5), dtype, 1)) + np.full((), 2, dtype)
        with np.errstate(all="ignore"):
            wanted = 1 / np.sqrt(x.astype(np.float32) if dtype == "float16" else x)
        agrees(lax.rsqrt, wanted.astype(np.sqrt(x).dtype), x, ulps=8)
        agrees(lax.logistic, lambda a: 1 / (1 + np.exp(-a)), x, ulps=16)
    z = filled((3, 5), "complex128", 1)
    agrees(lax.real, z.real, z)
    agrees(lax.imag, z.imag, z)
    agrees(lax.imag, np.zeros(3, np.float32), np.ones(3, np.float32))


REDUCTIONS: dict[str, Any] = {
    "reduce_sum": np.sum, "reduce_prod": np.prod, "reduce_max": np.max, "reduce_min": np.min,
}  # fmt: skip


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions(name: str) -> None:
    of_numpy, call = REDUCTIONS[name], getattr(lax, name)
    for dtype in ("bool", "int8", "uint16", "float16", "float32", "float64", "complex64"):
        x = filled((3, 4, 2), dtype, 1)
        if x.dtype.kind == "c" and name in ("reduce_max", "reduce_min"):
            continue
        for axes in ((0,), [1, 2], (-1, 0), ()):
            agrees(lambda a, k=axes: call(a, k), of_numpy(x, axis=tuple(axes)), x, ulps=16)
        if name in ("reduce_sum", "reduce_prod"):
            agrees(lambda a: call(a[:0], (0,)), of_numpy(x[:0], axis=0), x)
    refuses(lambda a: call(a, (0, 0)), ValueError, "each may be named once", x)
    refuses(lambda a: call(a, (3,)), IndexError, "axis 3 for rank 3", x)


def test_logical_reductions() -> None:
    x = filled((3, 4, 2), "bool", 1)
    agrees(lambda a: lax.reduce_and(a, (0, 2)), x.all((0, 2)), x)
    agrees(lambda a: lax.reduce_or(a, (1,)), x.any(1), x)
    refuses(lambda a: lax.reduce_and(a, (0,)), TypeError, "dtype int64; bool", np.arange(3))


def test_places_of_extremes() -> None:
    x = uniform((3, 4), "float32", 1)
    for dtype in ("int32", "int64", "uint8"):
        agrees(lambda a, d=dtype: lax.argmax(a, 1, d), x.argmax(1).astype(dtype), x)
        agrees(lambda a, d=dtype: lax.argmin(a, 0, index_dtype=d), x.argmin(0).astype(dtype), x)


def test_running_sums() -> None:
    for dtype in ("int8", "float32", "complex128"):
        x = filled((3, 4), dtype, 1)
        agrees(lambda a: lax.cumsum(a, 1), np.cumsum(x, 1), x, ulps=8)
        agrees(lambda a: lax.cumsum(a, reverse=True), np.cumsum(x[::-1], 0)[::-1], x, ulps=8)
        agrees(lambda a: lax.cumprod(a, 0, True), np.cumprod(x[::-1], 0)[::-1], x, ulps=8)


def test_sum_of_squares() -> None:
    for dtype in DTYPES:
        x = filled((3, 40), dtype, 1)
        target = np.sum(x).dtype
        wide = x.astype(np.float32 if dtype == "float16" else target)
        for axes in (None, (1,), [0], (0, 1), ()):
            given = (0, 1) if axes is None else tuple(axes)
            agrees(lambda a, k=axes: lax.sum_of_squares(a, k), (wide * wide).sum(given).astype(target), x, ulps=16)
    agrees(lambda a: lax.sum_of_squares(a, (0,)), np.int64(50 * 100 * 100), np.full(50, 100, np.int8))
    agrees(lambda a: lax.sum_of_squares(a), np.float16(30_000), np.full(3, 100, np.float16))
    agrees(lambda a: lax.sum_of_squares(a, (0,)), np.zeros(3, np.float32), np.ones((0, 3), np.float32))


def test_a_sum_of_squares_is_one_kernel() -> None:
    jitted = tn.jit(lambda x: lax.sum_of_squares(x - x.mean(1, keepdims=True), (1,)))
    for n, m in ((3, 40), (1, 1), (7, 500)):
        x = uniform((n, m), "float32", n)
        same(jitted(x), ((x - x.mean(1, keepdims=True)) ** 2).sum(1), 60)
    text = jitted.lower(x).as_text("regions")
    assert text.count("region") == 1 and "call" not in text
    assert jitted.cache_info().compiles == 1


def test_no_warning_but_the_one_about_division() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tn.jit(lambda a, b: lax.div(a, b))(np.array([7, -7]), np.array([2, 2]))
        lax.rsqrt(np.zeros(2))
