"""Layout functions of ``tn.lax`` against NumPy's code."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import lax
from tests.lax.checking import agrees, refuses, same, serves_all
from tests.values import DTYPES, laid_out, uniform

Array = np.ndarray[Any, Any]


def padded(x: Array, fill: Any, config: Sequence[tuple[int, int, int]]) -> Array:
    """XLA's padding, element by element: place low + i * (interior + 1) of each axis, where it is inside."""
    shape = [lo + n + max(n - 1, 0) * gap + hi for n, (lo, hi, gap) in zip(x.shape, config, strict=True)]
    out = np.full(shape, fill, x.dtype)
    for place in np.ndindex(x.shape):
        target = tuple(lo + i * (gap + 1) for i, (lo, _, gap) in zip(place, config, strict=True))
        if all(0 <= t < n for t, n in zip(target, shape, strict=True)):
            out[target] = x[place]
    return out


PADS: tuple[tuple[tuple[int, ...], tuple[tuple[int, int, int], ...]], ...] = (
    ((4,), ((1, 2, 0),)), ((4,), ((0, 0, 0),)), ((4,), ((0, 0, 2),)), ((4,), ((2, 1, 1),)), ((4,), ((-1, 0, 0),)),
    ((4,), ((-1, -3, 0),)), ((4,), ((-2, 3, 1),)), ((4,), ((3, -5, 2),)), ((1,), ((-3, 5, 0),)), ((1,), ((1, 1, 3),)),
    ((0,), ((1, 1, 3),)), ((0,), ((0, 0, 1),)), ((2, 3), ((1, 0, 0), (0, 2, 1))), ((2, 3), ((-1, 1, 2), (-1, -1, 0))),
    ((3, 0), ((1, 1, 1), (1, 0, 0))), ((), ()),
)  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_pad(dtype: str) -> None:
    for shape, config in PADS:
        x, fill = uniform(shape, dtype, 1), uniform((), dtype, 2)
        agrees(lambda a, v, c=config: lax.pad(a, v, c), padded(x, fill, config), x, fill)
    agrees(lax.pad, padded(x := uniform((3,), dtype, 1), 1, ((2, 2, 1),)), x, dtype == "bool" or 1, ((2, 2, 1),))


def test_pad_of_every_size() -> None:
    calls = [(uniform((n, m), "float64", n),) for n, m in ((3, 4), (9, 2), (40, 31))]
    config = ((1, 0, 2), (-1, 3, 0))
    serves_all(lambda x: lax.pad(x, 0.5, config) * 2, lambda x: padded(x, 0.5, config) * 2, *calls)
    serves_all(
        lambda x, lo, hi: lax.pad(x, 0.0, [(lo, hi, 0)]) * 2, lambda x, lo, hi: padded(x, 0.0, [(lo, hi, 0)]) * 2,
        *((uniform((4,), "float64", lo), lo, hi) for lo, hi in ((1, 2), (0, 3), (5, 0))),
    )  # fmt: skip


def test_errors_of_pad() -> None:
    x = uniform((4, 3), "float32", 1)
    refuses(lambda a: lax.pad(a, 0.0, ((1, 1, 0),)), ValueError, "padding_config .* for rank 2", x)
    refuses(lambda a: lax.pad(a, 0.0, ((1, 1), (1, 1))), ValueError, "padding_config .* for rank 2", x)
    refuses(lambda a: lax.pad(a, 0.0, ((1, 1, -1), (1, 1, 0))), ValueError, "interior -1; 0 or more", x)
    refuses(lambda a: lax.pad(a, 0.0, ((-3, -2, 0), (1, 1, 0))), ValueError, "axis 0 of size 4 cut to -1", x)
    refuses(lambda a: lax.pad(a, a[0], ((1, 1, 0), (1, 1, 0))), ValueError, "padding_value of rank 1", x)
    refuses(lambda a: lax.pad(a, 1j, ((1, 1, 0), (1, 1, 0))), TypeError, "padding_value .*complex", x)
    refuses(lambda a: lax.pad(a, 0.0, ((0.5, 1, 0), (1, 1, 0))), TypeError, "ints or sizes", x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_axes(dtype: str) -> None:
    for order in ("C", "F", "reversed") if dtype in ("float32", "complex128") else ("C",):
        x = laid_out(uniform((2, 3, 4), dtype, 1), order)
        agrees(lambda a: lax.rev(a, (0, 2)), x[::-1, :, ::-1], x)
        agrees(lambda a: lax.rev(a, ()), x, x)
        agrees(lambda a: lax.transpose(a, (2, 0, 1)), x.transpose(2, 0, 1), x)
        agrees(lambda a: lax.reshape(a, (4, 6)), x.reshape(4, 6), x)
        agrees(lambda a: lax.reshape(a, (4, 6), (1, 2, 0)), x.transpose(1, 2, 0).reshape(4, 6), x)
        agrees(lambda a: lax.expand_dims(a, (0, 2)), np.expand_dims(x, (0, 2)), x)
        agrees(lambda a: lax.squeeze(a[:1], (0,)), x[0], x)
        agrees(lambda a: lax.concatenate([a, a[:, :1]], 1), np.concatenate([x, x[:, :1]], 1), x)
        agrees(lambda a: lax.broadcast(a, (2, 0)), np.broadcast_to(x, (2, 0, 2, 3, 4)), x)
        agrees(lambda a: lax.broadcast_in_dim(a[0], (3, 5, 4), (0, 2)), np.broadcast_to(x[0][:, None], (3, 5, 4)), x)
        agrees(lambda a: lax.broadcast_in_dim(a[:, :1, 0], (2, 3), (0, 1)), np.broadcast_to(x[:, :1, 0], (2, 3)), x)
        agrees(lambda a: lax.broadcast_in_dim(a[0, 0, 0], (2, 3), ()), np.broadcast_to(x[0, 0, 0], (2, 3)), x)
    empty = uniform((0, 3), dtype, 1)
    agrees(lambda a: lax.rev(a, (0, 1)), empty, empty)
    agrees(lambda a: lax.reshape(a, (3, 0, 2)), empty.reshape(3, 0, 2), empty)


def test_errors_of_axes() -> None:
    x = uniform((2, 3), "float32", 1)
    refuses(lambda a: lax.rev(a, (0, 2)), IndexError, "^rev: axis 2 for rank 2", x)
    refuses(lambda a: lax.rev(a, (0, 0)), ValueError, "each axis may be listed once", x)
    refuses(lambda a: lax.transpose(a, (0,)), ValueError, "each axis once", x)
    refuses(lambda a: lax.reshape(a, (4, 2)), ValueError, "6 elements into shape", x)
    refuses(lambda a: lax.squeeze(a, (0,)), ValueError, "axis 0 of size 2; size 1", x)
    refuses(lambda a: lax.concatenate([a, a], 2), IndexError, "axis 2 for rank 2", x)
    refuses(lambda a: lax.concatenate([a, a[:, :2]], 0), ValueError, "axis 1 has sizes 3 and 2", x)
    refuses(lambda a: lax.broadcast_in_dim(a, (2, 3), (1, 0)), ValueError, "broadcast_dimensions .1, 0.; increasing", x)
    refuses(lambda a: lax.broadcast_in_dim(a, (2, 3), (0,)), ValueError, "broadcast_dimensions .0,. for rank 2", x)
    refuses(lambda a: lax.broadcast_in_dim(a, (2, 4), (0, 1)), ValueError, r"shape \(2, 3\) for axes", x)
    refuses(lambda a: lax.broadcast_in_dim(a, (2, 3), (0, 2)), IndexError, "axis 2 for rank 2", x)


def test_creation_and_conversion() -> None:
    x = uniform((2, 3), "float32", 1)
    for dtype in DTYPES[1:]:
        agrees(lambda a, d=dtype: lax.iota(d, a.shape[1]), np.arange(3).astype(dtype), x)
        wanted = np.broadcast_to(np.arange(2)[:, None], (2, 3)).astype(dtype)
        agrees(lambda a, d=dtype: lax.broadcasted_iota(d, a.shape, 0), wanted, x)
        agrees(lambda a, d=dtype: lax.full(a.shape, 3, d), np.full((2, 3), 3, dtype), x)
        agrees(lambda a, d=dtype: lax.convert_element_type(a * 4, d), (x * 4).astype(dtype) if dtype[0] != "u" else
               np.maximum(x * 4, 0).astype(dtype), x)  # fmt: skip
    agrees(lambda a: lax.full_like(a, 2), np.full_like(x, 2), x)
    agrees(lambda a: lax.full_like(a, 2, np.int8, (3,)), np.full(3, 2, np.int8), x)
    agrees(lambda a: lax.bitcast_convert_type(a, np.int32), x.view(np.int32), x)
    agrees(lambda a: lax.bitcast_convert_type(a[0], np.uint32), x[0].view(np.uint32), x)
    made = lax.iota(np.int16, 4)
    assert isinstance(made, tn.Array)
    same(made, np.arange(4, dtype=np.int16))
    refuses(lambda a: lax.iota(bool, a.shape[0]), TypeError, "dtype bool", x)
    refuses(lambda a: lax.broadcasted_iota(int, a.shape, 2), IndexError, "axis 2 for rank 2", x)
    refuses(lambda a: lax.iota(int, -a.shape[0]), ValueError, "size -2", x)
    refuses(lambda a: lax.bitcast_convert_type(a, np.int64), TypeError, "equal width", x)
    refuses(lambda a: lax.convert_element_type(a * 1j, np.float32), TypeError, "complex64 to float32", x)


@pytest.mark.parametrize("dtype", DTYPES)
def test_triangles_and_diagonals(dtype: str) -> None:
    x = uniform((2, 4, 3), dtype, 1)
    for k in (-2, 0, 1):
        agrees(lambda a, k=k: lax.tril(a, k), np.tril(x, k), x)
        agrees(lambda a, k=k: lax.triu(a, k), np.triu(x, k), x)
        agrees(lambda a, k=k: lax.diagonal(a, k, 1, 2), np.diagonal(x, k, 1, 2), x)
    agrees(lax.diagonal, np.diagonal(x), x)


@pytest.mark.parametrize("shape", [(3,), (2, 3), (2, 1, 3), (1,), (0,), (2, 0)])
@pytest.mark.parametrize("offset", [0, 1, -2])
def test_what_is_laid_on_a_diagonal(shape: tuple[int, ...], offset: int) -> None:
    x = uniform(shape, "complex64", 1)
    x.reshape(-1)[:1] = np.nan  # beside it are zeros all the same
    rank = x.ndim + 1
    for axis1, axis2 in {(-2, -1), (rank - 1, 0), (0, 1)}:
        n = shape[-1] + abs(offset)
        rest = np.zeros((*shape[:-1], n, n), x.dtype)
        i = np.arange(shape[-1])
        rest[..., i - min(offset, 0), i + max(offset, 0)] = x
        wanted = np.moveaxis(rest, (-2, -1), (axis1, axis2))
        agrees(lambda a, o=offset, i=axis1, j=axis2: lax.diag_embed(a, o, i, j), wanted, x)
        agrees(lambda a, o=offset, i=axis1, j=axis2: lax.diagonal(lax.diag_embed(a, o, i, j), o, i, j), x, x)


def test_errors_of_diagonals() -> None:
    x = uniform((2, 3), "float32", 1)
    refuses(lambda a: lax.diag_embed(a, 0, 1, 1), ValueError, "two axes are needed", x)
    refuses(lambda a: lax.diag_embed(a, 0, 1, 3), IndexError, "axis 3 for rank 3", x)
    refuses(lambda a: lax.diag_embed(a[0, 0]), ValueError, "rank 0; rank 1 or more", x)
    refuses(lambda a: lax.tril(a[0]), ValueError, "rank 1; rank 2 or more", x)


def test_one_program_lays_diagonals_of_every_size() -> None:
    serves_all(
        lambda x: lax.diag_embed(x) + lax.tril(x[:, :, None] * x[:, None, :]),
        lambda x: np.stack([np.diag(r) + np.tril(np.outer(r, r)) for r in x]),
        *((uniform((n, m), "float64", n),) for n, m in ((3, 4), (9, 2), (5, 31))),
    )


def test_shape_of() -> None:
    x = uniform((4, 0, 3), "int8", 1)
    for axis in (0, 1, 2, -1):
        agrees(lambda a, k=axis: lax.shape_of(a, k), np.int64(x.shape[axis]), x)
    agrees(lambda a: a / lax.shape_of(a, 0), x / np.int64(4), x)
    serves_all(
        lambda x: x.sum(0) / lax.shape_of(x, 0), lambda x: x.sum(0) / np.int64(x.shape[0]),
        *((uniform((n, 2), "float64", n),) for n in (1, 5, 30)),
    )  # fmt: skip
    found = tn.jit(lambda x: lax.shape_of(x[x > 0], 0))(np.array([1.0, -1.0, 2.0]))
    assert (type(found), found) == (np.int64, 2)
    refuses(lambda a: lax.shape_of(a, 3), IndexError, "axis 3 for rank 3", x)


@pytest.mark.parametrize("size", [0, 1, 3, 4, 9, -2])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_truncate(size: int, axis: int) -> None:
    for dtype in ("float32", "int16", "complex128", "bool"):
        x = uniform((4, 3, 4), dtype, 1)
        wanted = x.take(range(min(max(size, 0), x.shape[axis])), axis)
        for given in (size, np.int32(size), np.array(size)):
            agrees(lambda a, n, k=axis: lax.truncate(a, n, k), wanted, x, given)


def test_truncated_to_sizes_that_are_computed() -> None:
    def f(x: Array) -> Any:
        return lax.truncate(np.sort(x), (x > 0).sum()) * 2, lax.truncate(x, x.argmax()).sum()

    jitted = tn.jit(f)
    for n in (1, 5, 40):
        x = uniform((n,), "float64", n)
        sorted_, total = jitted(x)
        np.testing.assert_array_equal(sorted_, np.sort(x)[: (x > 0).sum()] * 2)
        np.testing.assert_allclose(total, x[: x.argmax()].sum())
    assert jitted.cache_info().compiles == 1
    serves_all(
        lambda x, n: lax.truncate(x, n) * 2, lambda x, n: x[: max(n, 0)] * 2,
        *((uniform((5,), "float64", 1), n) for n in (3, 0, 5, 8, -1)),
    )  # fmt: skip
    x = uniform((4,), "float64", 1)
    refuses(lambda a: lax.truncate(a, a.astype(int)), ValueError, "size of rank 1", x)
    refuses(lambda a: lax.truncate(a, a[0]), TypeError, "size of dtype float64; integers", x)
    refuses(lambda a: lax.truncate(a, 1, 1), IndexError, "axis 1 for rank 1", x)


def test_pad_to_match() -> None:
    for dtype in DTYPES:
        x, other = uniform((2, 3), dtype, 1), uniform((4, 2), "int8", 1)
        agrees(lambda a, b: lax.pad_to_match(a, b, 0), np.concatenate([x, np.zeros((2, 3), dtype)]), x, other)
        agrees(lambda a, b: lax.pad_to_match(a, b, 1), x, x, other)
        agrees(lambda a: lax.pad_to_match(a, a, -1), x, x)
    calls = [(uniform((n,), "float64", n), uniform((m,), "float64", m)) for n, m in ((3, 4), (4, 3), (5, 5), (1, 9))]

    def wanted(x: Array, y: Array) -> Array:
        return np.append(x, np.zeros(max(len(y) - len(x), 0))) * 2

    serves_all(lambda x, y: lax.pad_to_match(x, y, 0) * 2, wanted, *calls)

    def f(x: Array, n: Any) -> Any:
        return lax.pad_to_match(lax.truncate(x, n), x, 0) + 1, lax.pad_to_match(x[:2], x[x > 0], 0)

    x = np.array([1.0, 2.0, -3.0, 4.0, 5.0])
    kept, grown = tn.jit(f)(x, np.array(2))
    np.testing.assert_array_equal(kept, [2.0, 3.0, 1.0, 1.0, 1.0])
    np.testing.assert_array_equal(grown, [1.0, 2.0, 0.0, 0.0])
    refuses(lambda a, b: lax.pad_to_match(a, b, 0), ValueError, "ranks 1 and 2; equal ranks", x, x[None])


def test_results_are_new() -> None:
    x = np.arange(6.0).reshape(2, 3)
    for call in (
        lambda a: lax.rev(a, ()), lambda a: lax.transpose(a, (0, 1)), lambda a: lax.reshape(a, (2, 3)),
        lambda a: lax.broadcast_in_dim(a, (2, 3), (0, 1)), lambda a: lax.pad(a, 0.0, ((0, 0, 0), (0, 0, 0))),
        lambda a: lax.expand_dims(a, ()), lambda a: lax.truncate(a, 2), lambda a: lax.pad_to_match(a, a, 0),
        lambda a: lax.convert_element_type(a, float), lambda a: lax.real(a),
        lambda a: lax.dynamic_slice(a, (0, 0), (2, 3)),
        lambda a: lax.diagonal(a), lambda a: lax.bitcast_convert_type(a, np.int64),
    ):  # fmt: skip
        for made in (call(x), tn.jit(call)(x), call(tn.asarray(x))):
            assert not np.shares_memory(np.asarray(made), x)
            made[...] = 1
        assert x[1, 2] == 5.0


def test_the_namespace() -> None:
    assert "gather" in dir(lax) and "GatherDimensionNumbers" in dir(lax) and tn.lax is lax
    assert all(getattr(lax, name).__doc__ for name in dir(lax))
    with pytest.raises(AttributeError, match="tenferro.lax has no 'dynamic_slise'; dynamic_slice is the nearest name"):
        lax.dynamic_slise  # noqa: B018
    with pytest.raises(AttributeError, match="tenferro.lax has no 'quux'$"):
        lax.quux  # noqa: B018


def test_every_function_is_on_the_page(root: Path) -> None:
    """By its name, or by its end beside another of its family."""
    text = (root / "docs" / "lax.md").read_text(encoding="utf-8")
    told = set(re.findall(r"\w+", text))
    assert {n for n in dir(lax) if n not in told and f"_{n.rpartition('_')[2]}" not in told} == set()
