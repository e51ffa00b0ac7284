"""Slices of ``tn.lax``, read and replaced, against NumPy's slices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import lax
from tests.lax.checking import agrees, refuses, serves_all
from tests.values import DTYPES, filled, laid_out, uniform

Array = np.ndarray[Any, Any]


def placed(shape: Sequence[int], starts: Sequence[int], sizes: Sequence[int]) -> tuple[slice, ...]:
    """The box of a window whose starts are brought to where it is inside, as XLA does; a negative one counts from the
    end first."""
    found = []
    for n, start, size in zip(shape, map(int, starts), sizes, strict=True):
        start = min(max(start + n if start < 0 else start, 0), n - size)
        found.append(slice(start, start + size))
    return tuple(found)


def updated(x: Array, update: Array, starts: Sequence[int]) -> Array:
    out = x.copy()
    out[placed(x.shape, starts, update.shape)] = update
    return out


WINDOWS: tuple[tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]], ...] = (
    ((5,), (2,), (3,)), ((5,), (0,), (5,)), ((5,), (-3,), (2,)), ((1,), (0,), (1,)), ((5,), (4,), (0,)),
    ((0,), (0,), (0,)), ((4, 6), (1, 2), (2, 3)), ((4, 6), (0, 3), (4, 2)), ((4, 6), (3, 0), (1, 6)),
    ((4, 0), (1, 0), (2, 0)), ((3, 4, 5), (1, 0, 2), (2, 4, 3)), ((3, 4, 5), (-1, -2, -5), (1, 2, 5)), ((), (), ()),
)  # fmt: skip


@pytest.mark.parametrize("first", range(0, len(DTYPES), 3))
def test_windows_at_traced_starts(first: int) -> None:
    """Dtypes take turns along the table: every one meets several windows."""
    for number, (shape, starts, sizes) in enumerate(WINDOWS):
        dtype = DTYPES[(first + number) % len(DTYPES)]
        x, update = uniform(shape, dtype, 1), uniform(sizes, dtype, 2)
        wanted = x[placed(shape, starts, sizes)]
        array = np.array(starts, np.int64)
        agrees(lambda a, s, w=sizes: lax.dynamic_slice(a, s, w), wanted, x, array)
        agrees(lambda a, s, w=sizes: lax.dynamic_slice(a, s, w), wanted, x, tuple(map(np.int32, starts)))
        agrees(lax.dynamic_slice, wanted, x, starts, sizes)
        wanted = updated(x, update, starts)
        agrees(lax.dynamic_update_slice, wanted, x, update, array)
        agrees(lax.dynamic_update_slice, wanted, x, update, starts)
        agrees(lambda a, u, s=starts: lax.dynamic_update_slice(a, u, s, "clip"), wanted, x, update)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int64", "uint8", "uint32", "uint64"])
def test_dtypes_of_starts(dtype: str) -> None:
    x = uniform((5, 6), "float32", 1)
    agrees(lambda a, s: lax.dynamic_slice(a, s, (2, 3)), x[2:4, 1:4], x, np.array([2, 1], dtype))
    largest = np.array([0, np.iinfo(dtype).max], dtype)
    agrees(lambda a, s: lax.dynamic_slice(a, s, (2, 3), mode="clip"), x[:2, 3:], x, largest)


@pytest.mark.parametrize("order", ["F", "strided", "reversed", "offset"])
def test_orders_of_memory(order: str) -> None:
    x, update = laid_out(uniform((6, 7), "float64", 1), order), laid_out(uniform((2, 3), "float64", 2), order)
    starts = laid_out(np.array([1, 4]), order)
    agrees(lambda a, s: lax.dynamic_slice(a, s, (2, 3)), x[1:3, 4:], x, starts)
    agrees(lambda a, s: lax.dynamic_index_in_dim(a, s[1], 0), x[4:5], x, starts)
    agrees(lax.dynamic_update_slice, updated(x, update, (1, 4)), x, update, starts)
    agrees(lambda a: lax.slice(a, (0, 1), (5, 7), (2, 3)), x[0:5:2, 1:7:3], x)


def test_a_window_is_brought_inside() -> None:
    x, update = uniform((5, 6), "float64", 1), uniform((2, 3), "float64", 2)
    for starts in ((-9, 2), (9, -7), (4, 4), (3, 3), (-1, -1), (2**40, -(2**40)), (-5, -6)):
        wanted = x[placed(x.shape, starts, (2, 3))]
        for given in (starts, np.array(starts)):
            agrees(lambda a, s: lax.dynamic_slice(a, s, (2, 3), mode="clip"), wanted, x, given)
            agrees(
                lambda a, u, s: lax.dynamic_update_slice(a, u, s, mode="clip"), updated(x, update, starts), x, update,
                given,
            )  # fmt: skip


@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@pytest.mark.parametrize("index", [0, 2, -1, -3])
def test_along_one_axis(axis: int, index: int) -> None:
    x = uniform((3, 4, 5), "int32", 1)
    for given in (index, np.int64(index), np.array(index, np.int8)):
        wanted = x.take([index], axis)
        agrees(lambda a, i: lax.dynamic_index_in_dim(a, i, axis), wanted, x, given)
        agrees(lambda a, i: lax.dynamic_index_in_dim(a, i, axis, keepdims=False), x.take(index, axis), x, given)
        agrees(lambda a, i: lax.dynamic_slice_in_dim(a, i, 1, axis), wanted, x, given)
        out = x.copy()
        np.moveaxis(out, axis, 0)[index] = 7
        agrees(lambda a, i: lax.dynamic_update_index_in_dim(a, 7, i, axis), out, x, given)
        agrees(lambda a, u, i: lax.dynamic_update_index_in_dim(a, u, i, axis), out, x, wanted * 0 + 7, given)
        one = x.take(index, axis) * 0 + 7
        agrees(lambda a, u, i: lax.dynamic_update_index_in_dim(a, u, i, axis), out, x, one, given)
        agrees(lambda a, u, i: lax.dynamic_update_slice_in_dim(a, u, i, axis), out, x, wanted * 0 + 7, given)
    agrees(lambda a: lax.index_in_dim(a, index, axis), x.take([index], axis), x)
    agrees(lambda a: lax.index_in_dim(a, index, axis, keepdims=False), x.take(index, axis), x)


def test_slices_at_fixed_places() -> None:
    for dtype in DTYPES:
        x = uniform((5, 6), dtype, 1)
        agrees(lambda a: lax.slice(a, (1, 0), (4, 6)), x[1:4], x)
        agrees(lambda a: lax.slice(a, (1, 0), (4, 5), (2, 3)), x[1:4:2, 0:5:3], x)
        agrees(lambda a: lax.slice(a, [2, 3], [2, 3]), x[2:2, 3:3], x)
        agrees(lambda a: lax.slice_in_dim(a, 1, -1), x[1:-1], x)
        agrees(lambda a: lax.slice_in_dim(a, None, None, 2, axis=1), x[:, ::2], x)
        agrees(lambda a: lax.slice_in_dim(a, -4, 5, 3, axis=-1), x[:, -4:5:3], x)
    agrees(lambda a: lax.slice(a, (), ()), np.array(3.0), np.array(3.0))


def test_an_update_takes_the_dtype_of_what_it_goes_into() -> None:
    x = uniform((4, 3), "float32", 1)
    update = uniform((1, 3), "float64", 2)
    wanted = x.copy()
    wanted[2] = update
    agrees(lambda a, u, i: lax.dynamic_update_slice(a, u, (i, 0)), wanted, x, update, np.int64(2))
    k = uniform((4,), "int16", 1)
    refuses(
        lambda a: lax.dynamic_update_slice(a, np.ones(2), (1,)), TypeError, "float64 for an array of dtype int16", k
    )
    refuses(lambda a: lax.dynamic_update_index_in_dim(a, 1.5, 1, 0), TypeError, "int16", k)
    refuses(lambda a: lax.dynamic_update_index_in_dim(a, 1j, 1, 0), TypeError, "complex", x)
    with pytest.raises(OverflowError, match="40000"):
        lax.dynamic_update_index_in_dim(k, 40000, 1, 0)


def test_what_is_made_is_new() -> None:
    x = np.arange(6.0)
    made = lax.slice(x, (0,), (6,))
    made[0] = 9.0
    assert x[0] == 0.0

    def f(x: Array) -> tuple[Array, Array]:
        y = lax.dynamic_slice(x, (0,), (x.shape[0],))
        y[0] = 9.0
        return x * 1, y

    old, new = tn.jit(f)(x)
    np.testing.assert_array_equal(old, np.arange(6.0))
    assert new[0] == 9.0


def test_one_program_serves_every_size_and_start() -> None:
    calls = [(uniform((n, m), "float64", n), np.array([n // 3, m // 2])) for n, m in ((3, 4), (9, 2), (40, 31), (2, 2))]
    serves_all(
        lambda x, s: lax.dynamic_slice(x, s, (2, x.shape[1] // 2)) * 2,
        lambda x, s: x[placed(x.shape, s, (2, x.shape[1] // 2))] * 2, *calls,
    )  # fmt: skip
    serves_all(
        lambda x, u, s: lax.dynamic_update_slice_in_dim(x, u, s, 0) + 1,
        lambda x, u, s: updated(x, u, (int(s), 0)) + 1,
        *((uniform((n, m), "float64", n), uniform((1, m), "float64", m), np.array(1)) for n, m in ((3, 4), (9, 2))),
    )  # fmt: skip
    # Ints are sizes: neither they nor the window's size make a program of their own.
    serves_all(
        lambda x, i, n: lax.dynamic_slice_in_dim(x, i, n) * 2, lambda x, i, n: x[i : i + n] * 2,
        *((uniform((20,), "float64", i), i, n) for i, n in ((0, 5), (3, 1), (12, 8), (19, 1), (4, 0))),
    )  # fmt: skip
    serves_all(
        lambda x, i: lax.dynamic_slice(x, (i,), (3,), mode="clip") * 2,
        lambda x, i: x[placed(x.shape, (i,), (3,))] * 2,
        *((uniform((n,), "float64", i), i) for n, i in ((5, 0), (9, 4), (5, 4), (3, 7), (20, 3))),
    )  # fmt: skip


def test_starts_that_are_computed() -> None:
    def around_the_largest(x: Array) -> Any:
        return lax.dynamic_slice(x, (np.argmax(x) - 1,), (3,), mode="clip")

    x = np.array([1.0, 5.0, 2.0, 9.0, 3.0, 0.0])
    agrees(around_the_largest, x[2:5], x)
    agrees(around_the_largest, x[:3], x[:3])


def test_sizes_known_when_the_program_runs() -> None:
    def f(x: Array, i: Any) -> Any:
        chosen = x[x > 0]
        return lax.dynamic_slice(chosen, (i,), (2,)), lax.dynamic_update_slice(x, chosen, (i,))

    x = np.array([1.0, -5.0, 2.0, -9.0, 3.0, -1.0])
    jitted = tn.jit(f)
    window, written = jitted(x, np.array(1))
    np.testing.assert_array_equal(window, [2.0, 3.0])
    np.testing.assert_array_equal(written, [1.0, 1.0, 2.0, 3.0, 3.0, -1.0])
    with pytest.raises(IndexError, match="a window of size 2 starts at 2 on axis 0, which has 3 elements"):
        jitted(x, np.array(2))
    assert jitted.cache_info().compiles == 1
    written = tn.jit(lambda x: lax.dynamic_update_slice(x, x[x > 0], (np.argmin(x),), mode="clip"))(-abs(x))
    np.testing.assert_array_equal(written, -abs(x))


def test_starts_out_of_range() -> None:
    x, u = uniform((6, 10), "float32", 1), uniform((2, 3), "float32", 2)
    for starts, text in (
        ((5, 2), r"a window of size 2 starts at 5 on axis 0, which has 6 elements; a start in \[0, 4\] is needed"),
        ((1, 8), r"a window of size 3 starts at 8 on axis 1, which has 10 elements; a start in \[0, 7\] is needed"),
        ((-1, 0), "a window of size 2 starts at -1 on axis 0"),
        ((0, -11), "a window of size 3 starts at -11 on axis 1"),
    ):  # fmt: skip
        for given in (starts, np.array(starts)):
            refuses(lambda a, s: lax.dynamic_slice(a, s, (2, 3)), IndexError, "^dynamic_slice: " + text, x, given)
            refuses(lax.dynamic_update_slice, IndexError, "^dynamic_update_slice: " + text, x, u, given)
    for name, call in (
        ("dynamic_slice_in_dim", lambda a, i: lax.dynamic_slice_in_dim(a, i, 2)),
        ("dynamic_index_in_dim", lambda a, i: lax.dynamic_index_in_dim(a, i)),
        ("dynamic_update_slice_in_dim", lambda a, i: lax.dynamic_update_slice_in_dim(a, a[:2] * 1, i, 0)),
        ("dynamic_update_index_in_dim", lambda a, i: lax.dynamic_update_index_in_dim(a, a[0] * 1, i, 0)),
    ):
        for start in (6, -7, 2**60, -(2**60)):
            refuses(call, IndexError, f"^{name}: a window of size . starts at .* on axis 0", x, np.array(start))
            refuses(call, IndexError, f"^{name}: a window of size . starts at {start} on axis 0", x, start)


def test_errors() -> None:
    x = uniform((6, 10), "float32", 1)
    refuses(lambda a: lax.dynamic_slice(a, (0,), (2, 3)), ValueError, "start_indices of length 1 for rank 2", x)
    refuses(lambda a, s: lax.dynamic_slice(a, s, (2, 3)), ValueError, r"start_indices of shape \(3,\)", x, np.arange(3))
    refuses(lambda a: lax.dynamic_slice(a, (0, 0), (2,)), ValueError, r"slice_sizes \(2,\) for rank 2", x)
    refuses(lambda a: lax.dynamic_slice(a, (0, 0), (7, 3)), ValueError, "size 7 on axis 0, which has 6 elements", x)
    refuses(lambda a: lax.dynamic_slice(a, (0, 0), (-1, 3)), ValueError, "size -1", x)
    refuses(lambda a, s: lax.dynamic_slice(a, s, (2, 3)), TypeError, "dtype float64; integers", x, np.zeros(2))
    refuses(lambda a: lax.dynamic_slice(a, (0.5, 0), (2, 3)), TypeError, "dtype float64; integers", x)
    refuses(lambda a, i: lax.dynamic_slice(a, (i, 0), (2, 3)), ValueError, "a start of rank 1", x, np.arange(2))
    refuses(lambda a: lax.dynamic_slice(a, (0, 0), (2, 3), mode="wrap"), TypeError, "mode 'wrap'; 'raise' or 'clip'", x)
    refuses(lambda a: lax.dynamic_update_slice(a, a[0], (0, 0)), ValueError, "an update of rank 1 for rank 2", x)
    refuses(lambda a: lax.dynamic_update_slice(a[:2], a, (0, 0)), ValueError, "window of size 6 on axis 0", x)
    refuses(lambda a: lax.dynamic_slice_in_dim(a, 0, 1, 2), IndexError, "axis 2 for rank 2", x)
    refuses(lambda a: lax.slice(a, (0, 0), (7, 3)), IndexError, "from 0 to 7 on axis 0, which has 6 elements", x)
    refuses(lambda a: lax.slice(a, (3, 0), (2, 3)), IndexError, "from 3 to 2 on axis 0", x)
    refuses(lambda a: lax.slice(a, (-1, 0), (2, 3)), IndexError, "from -1 to 2 on axis 0", x)
    refuses(lambda a: lax.slice(a, (0, 0), (2, 3), (1, 0)), ValueError, r"strides \(1, 0\)", x)
    refuses(lambda a: lax.slice(a, (0, 0), (2, 3), (1,)), ValueError, r"strides \(1,\)", x)
    refuses(lambda a: lax.slice(a, (0,), (2, 3)), ValueError, "start_indices of length 1", x)
    refuses(lambda a, i: lax.slice(a, (i, 0), (2, 3)), TypeError, "dynamic_slice takes", x, np.array(1))
    refuses(lambda a, i: lax.slice_in_dim(a, i, 3), TypeError, "dynamic_slice_in_dim takes", x, np.array(1))
    refuses(lambda a, i: lax.index_in_dim(a, i), TypeError, "dynamic_index_in_dim takes", x, np.array(1))
    refuses(lambda a: lax.index_in_dim(a, 6), IndexError, "^index_in_dim: .* starts at 6", x)


def test_random_windows() -> None:
    rng = np.random.default_rng(5)
    for _ in range(40):
        shape = tuple(rng.integers(1, 6, rng.integers(1, 4)).tolist())
        sizes = tuple(int(rng.integers(0, n + 1)) for n in shape)
        starts = tuple(int(rng.integers(-n - 3, n + 3)) for n in shape)
        x, update = filled(shape, "float32", 1), filled(sizes, "float32", 2)
        fixed = rng.integers(0, 2, len(shape))
        given = tuple(s if f else np.int64(s) for s, f in zip(starts, fixed, strict=True))
        wanted = x[placed(shape, starts, sizes)]
        agrees(lambda a, s, w=sizes: lax.dynamic_slice(a, s, w, "clip"), wanted, x, given)
        agrees(lambda a, u, s: lax.dynamic_update_slice(a, u, s, "clip"), updated(x, update, starts), x, update, given)
