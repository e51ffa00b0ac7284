"""Order, choices, bits and shapes of ``tn.lax`` against NumPy's code."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import lax
from tests.lax.checking import agrees, refuses
from tests.values import filled, of_kinds, uniform

Array = np.ndarray[Any, Any]
DTYPES = ("bool", "int8", "uint16", "int64", "float16", "float32", "float64")


@pytest.mark.parametrize("dtype", DTYPES)
def test_sorting(dtype: str) -> None:
    x, keys = uniform((4, 6), dtype, 1), filled((4, 6), "int8", 2) % 3
    for axis in (0, 1, -1):
        order = np.argsort(keys, axis=axis, kind="stable")
        agrees(lambda x, axis=axis: lax.sort(x, dimension=axis), lambda x, axis=axis: np.sort(x, axis=axis), x)
        for k, part in enumerate((keys, x)):
            wanted = np.take_along_axis(part, order, axis)
            agrees(lambda a, b, k=k, axis=axis: lax.sort_key_val(a, b, axis)[k], wanted, keys, x)
        both = np.lexsort((x, keys), axis=axis)
        agrees(
            lambda a, b, axis=axis: lax.sort((a, b, b), axis, num_keys=2)[2], np.take_along_axis(x, both, axis), keys, x
        )
    agrees(lambda x: lax.sort(x[:0]), x[:0], x)


def test_sorting_has_slopes_and_lanes() -> None:
    keys, x = np.array([[3.0, 1.0, 2.0], [0.5, 2.5, 1.5]]), np.arange(6.0).reshape(2, 3)
    weights = np.array([1.0, 10.0, 100.0])
    slope = tn.grad(lambda x: (lax.sort_key_val(keys, x)[1] * weights).sum())(x)
    np.testing.assert_array_equal(slope, [[100, 1, 10], [1, 100, 10]])
    np.testing.assert_array_equal(
        tn.vmap(lambda k, x: lax.sort_key_val(k, x)[1])(keys, x), np.take_along_axis(x, np.argsort(keys), 1)
    )


@pytest.mark.parametrize("name", ["cummax", "cummin", "cumlogsumexp"])
def test_running_results(name: str) -> None:
    ufunc: np.ufunc = {"cummax": np.maximum, "cummin": np.minimum, "cumlogsumexp": np.logaddexp}[name]
    for dtype in ("float16", "float32", "float64") if ufunc is np.logaddexp else DTYPES:
        x = filled((3, 5), dtype, 1)
        for axis in (0, 1):
            agrees(lambda x, axis=axis: getattr(lax, name)(x, axis), lambda x, a=axis: ufunc.accumulate(x, a), x)
            agrees(
                lambda x, axis=axis: getattr(lax, name)(x, axis, reverse=True),
                lambda x, a=axis: np.flip(ufunc.accumulate(np.flip(x, a), a), a), x,
            )  # fmt: skip
        agrees(lambda x: getattr(lax, name)(x[:, :0], 1), x[:, :0], x)
        agrees(lambda x: getattr(lax, name)(x[:1, ::-2]), x[:1, ::-2], x)
    refuses(lambda x: getattr(lax, name)(x, 2), tn.AxisError, rf"{name}: axis 2 for rank 2", np.ones((2, 2)))


def test_cases_by_number() -> None:
    for dtype in ("int8", "float32", "complex64", "bool"):
        x, y, z = (filled((3, 4), dtype, k) for k in (1, 2, 3))
        which = np.arange(12).reshape(3, 4) % 3
        agrees(lambda w, x, y: lax.select_n(w, x, y), np.where(which > 0, y, x), which > 0, x, y)
        wanted = np.select([which == 0, which == 1], [x, y], z)
        for kind in ("int32", "uint8", "int64"):
            agrees(lambda w, x, y, z: lax.select_n(w, x, y, z), wanted, which.astype(kind), x, y, z)
        agrees(lambda x, y: lax.select_n(True, x, y), y, x, y)
        agrees(lambda w, x: lax.select_n(w, x), x, which, x)
    agrees(lambda w, x: lax.select_n(w, x, -x), np.array([1.0, -1.0, -1.0]), np.array([-5, 1, 9]), np.ones(3))
    refuses(lambda x: lax.select_n(x, x, x), tn.DtypeError, "which of dtype float64 for 2 cases", np.ones(3))
    refuses(lambda x: lax.select_n(x > 0, x, x, x), tn.DtypeError, "integers, or bools for two", np.ones(3))
    slope = tn.grad(lambda x: lax.select_n(np.array([0, 1, 2]), x, 2 * x, 3 * x).sum())(np.ones(3))
    np.testing.assert_array_equal(slope, [1, 2, 3])


def test_folds() -> None:
    x = filled((3, 4, 2), "float64", 1)
    for fold, of_numpy in ((lax.add, np.sum), (lax.mul, np.prod), (lax.max, np.max), (lax.min, np.min)):
        start = {np.sum: 3.0, np.prod: 2.0, np.max: 0.5, np.min: -0.5}[of_numpy]  # type: ignore[index]
        wanted = of_numpy(x, axis=(0, 2), initial=start)
        agrees(lambda x, f=fold, s=start: lax.reduce(x, s, f, (0, 2)), wanted, x, ulps=16)
    small = filled((3, 4), "int8", 1)
    agrees(lambda x: lax.reduce(x, np.int8(1), lax.add, (1,)), (small.sum(1) + 1).astype("int8"), small)
    agrees(lambda x: lax.reduce(x > 0, False, lax.bitwise_or, (0,)), (small > 0).any(0), small)
    agrees(lambda x: lax.reduce(x > 0, True, lax.bitwise_and, (0,)), (small > 0).all(0), small)
    agrees(lambda x: lax.reduce(x[:0], 2, lax.max, (0,)), np.full(4, 2, "int8"), small)
    refuses(lambda x: lax.reduce(x, 0.0, lax.sub, (0,)), tn.TraceError, "reduce: computation .*tn.lax.add", x)


@pytest.mark.parametrize("dtype", of_kinds("iu"))
def test_bits(dtype: str) -> None:
    width = 8 * np.dtype(dtype).itemsize
    x = uniform((50,), dtype, 1)
    bits = [int(v) & ((1 << width) - 1) for v in x]
    agrees(lax.population_count, np.array([b.bit_count() for b in bits], dtype), x)
    agrees(lax.clz, np.array([width - b.bit_length() for b in bits], dtype), x)
    refuses(lax.clz, tn.DtypeError, "clz: dtype float64; integers", np.ones(3))


def test_complex_numbers_keep_zeros_signs_and_slopes() -> None:
    parts = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan])
    x, y = (np.ascontiguousarray(v) for v in np.meshgrid(parts, parts))
    for dtype, made in (("float32", np.complex64), ("float64", np.complex128)):
        for function in (lax.complex, tn.jit(lax.complex)):
            found = np.asarray(function(x.astype(dtype), y.astype(dtype)))
            assert found.dtype == made
            for part, wanted in ((found.real, x), (found.imag, y)):
                np.testing.assert_array_equal(part, wanted)
                numbers = wanted == wanted
                assert (np.signbit(part) == np.signbit(wanted))[numbers].all()
    slope = tn.grad(lambda x: (lax.complex(x, 2 * x) * (1 + 1j)).real.sum())(np.array([0.0, 1.0, -1.0]))
    np.testing.assert_array_equal(slope, [-1, -1, -1])


def test_shapes() -> None:
    x = filled((2, 3, 4), "float32", 1)
    calls: list[tuple[Callable[[Any], Any], Array]] = [
        (lambda x: lax.collapse(x, 1), x.reshape(2, 12)),
        (lambda x: lax.collapse(x, 0, 2), x.reshape(6, 4)),
        (lambda x: lax.collapse(x, 0, -1), x.reshape(6, 4)),
        (lambda x: lax.split(x, (1, 3), 2)[1], x[:, :, 1:]),
        (lambda x: lax.broadcast_to_rank(x, 5), x[None, None]),
        (lambda x: lax.stack([x, x], axis=1), np.stack([x, x], 1)),
        (lambda x: lax.tile(x, (1, 2, 1)), np.tile(x, (1, 2, 1))),
        (lambda x: lax.unstack(x, axis=1)[2], x[:, 2]),
    ]
    for function, wanted in calls:
        agrees(function, wanted, x)
    refuses(lambda x: lax.split(x, (1, 1), 2), tn.ShapeError, r"split: sizes \(1, 1\) for axis 2 of size 4", x)
    refuses(lambda x: lax.collapse(x, 2, 1), tn.ShapeError, "collapse: axes 2 to before 1 of rank 3", x)
    assert lax.dtype(x) == np.float32 and lax.dtype(1.0) == np.float64
    assert lax.broadcast_shapes((2, 1), (3,)) == (2, 3) and lax.optimization_barrier(x) is x


def test_precision_changes_nothing() -> None:
    x = filled((3, 3), "float32", 1)
    numbers = (((1,), (0,)), ((), ()))
    agrees(lambda x: lax.dot(x, x, precision=lax.Precision.HIGHEST), lax.dot(x, x), x)
    agrees(lambda x: lax.dot_general(x, x, numbers, precision=lax.Precision.HIGH), lax.dot_general(x, x, numbers), x)


def test_collectives_over_lanes() -> None:
    x = np.arange(64.0).reshape(4, 4, 4)
    by_name: dict[str, tuple[Callable[[Any], Any], Array]] = {
        "psum": (lambda v: lax.psum(v, "i"), np.broadcast_to(x.sum(0), x.shape)),
        "pmean": (lambda v: lax.pmean(v, "i"), np.broadcast_to(x.mean(0), x.shape)),
        "pmax": (lambda v: lax.pmax(v, "i"), np.broadcast_to(x.max(0), x.shape)),
        "pmin": (lambda v: lax.pmin(v, "i"), np.broadcast_to(x.min(0), x.shape)),
        "axis_index": (lambda v: v[0, 0] * 0 + lax.axis_index("i"), np.arange(4.0)),
        "axis_size": (lambda v: v[0, 0] * 0 + lax.axis_size("i"), np.full(4, 4.0)),
        "pshuffle": (lambda v: lax.pshuffle(v, "i", [1, 2, 3, 0]), x[[1, 2, 3, 0]]),
        "pswapaxes": (lambda v: lax.pswapaxes(v, "i", 1), x.transpose(2, 1, 0)),
        "all_to_all": (lambda v: lax.all_to_all(v, "i", 0, 1), x.transpose(1, 2, 0)),
        "all_to_all, tiled": (
            lambda v: lax.all_to_all(v, "i", 0, 1, tiled=True),
            np.stack([np.concatenate([x[j][k : k + 1] for j in range(4)], axis=1) for k in range(4)]),
        ),
    }
    for name, (function, wanted) in by_name.items():
        for run in (lambda f: f, tn.jit):
            found = run(tn.vmap(function, axis_name="i"))(x)
            np.testing.assert_array_equal(found, wanted, err_msg=name)
    with pytest.raises(tn.ShapeError, match=r"^all_to_all: axis 0 of size .*3 over 4 engines"):
        tn.vmap(lambda v: lax.all_to_all(v, "i", 0, 0), axis_name="i")(x[:, :3])
