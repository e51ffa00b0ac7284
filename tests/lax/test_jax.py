"""JAX as the oracle: the same calls of ``jax.lax`` and ``tn.lax`` give equal shapes and values, where it is installed.

Dtypes are JAX's in these calls too: operands have one dtype, and what NumPy sums in 64 bits is left out."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import lax
from tests.lax import windows_of_numpy as loops
from tests.lax.checking import same
from tests.values import filled, uniform

jax = pytest.importorskip("jax")
Array = np.ndarray[Any, Any]
DTYPES = ("float32", "float64", "int32", "uint8", "complex64")


@pytest.fixture(autouse=True)
def _wide() -> Iterator[None]:
    with jax.enable_x64(True):
        yield


def equal(function: Callable[..., Any], *args: Any, ulps: float = 0) -> None:
    """``function(lax, *args)`` gives the same in both."""
    wanted = function(jax.lax, *args)
    for found in (function(lax, *args), tn.jit(lambda *xs: function(lax, *xs))(*args)):
        same(found, np.asarray(wanted), ulps)


STARTS = ((0, 0), (1, 2), (-1, -2), (-9, 9), (3, 3))
CALLS: dict[str, Callable[..., Any]] = {
    "slice": lambda m, x: m.slice(x, (1, 0), (4, 5), (2, 1)),
    "slice_in_dim": lambda m, x: m.slice_in_dim(x, -3, None, 2, axis=1),
    "index_in_dim": lambda m, x: m.index_in_dim(x, -1, axis=1, keepdims=False),
    "pad": lambda m, x: m.pad(x, x[0, 0], ((1, 2, 0), (-1, 3, 2))),
    "pad cut": lambda m, x: m.pad(x, x[0, 0], ((-1, -2, 0), (-2, -3, 1))),
    "pad beyond": lambda m, x: m.pad(x, x[0, 0], ((-6, 8, 0), (9, -12, 1))),
    "rev": lambda m, x: m.rev(x, (0, 1)),
    "transpose": lambda m, x: m.transpose(x, (1, 0)),
    "reshape": lambda m, x: m.reshape(x, (3, 10), (1, 0)),
    "expand_dims": lambda m, x: m.expand_dims(x, (0, 2)),
    "squeeze": lambda m, x: m.squeeze(m.expand_dims(x, (1,)), (1,)),
    "concatenate": lambda m, x: m.concatenate([x, x], 1),
    "broadcast": lambda m, x: m.broadcast(x, (2, 3)),
    "broadcast_in_dim": lambda m, x: m.broadcast_in_dim(x, (5, 2, 6), (0, 2)),
    "full_like": lambda m, x: m.full_like(x, 3),
    "dot_general": lambda m, x: m.dot_general(x, x, (((1,), (1,)), ((), ()))),
    "dot_general in a batch": lambda m, x: m.dot_general(x, x, (((1,), (1,)), ((0,), (0,)))),
    "dot": lambda m, x: m.dot(x, x[0]),
    "batch_matmul": lambda m, x: m.batch_matmul(m.reshape(x, (2, 3, 5)), m.reshape(x, (2, 5, 3))),
    "select": lambda m, x: m.select(x == x[0, 0], x, x * x),
    "square": lambda m, x: m.square(x),
    "sign": lambda m, x: m.sign(x),
    "integer_pow": lambda m, x: m.integer_pow(x, 5),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_calls(name: str, dtype: str) -> None:
    equal(CALLS[name], filled((5, 6), dtype, 1), ulps=8)


@pytest.mark.parametrize("name", ["clamp", "rem", "div", "max", "min", "round", "rsqrt", "logistic"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_real_elements(name: str, dtype: str) -> None:
    x, y = uniform((5, 6), dtype, 1), filled((5, 6), dtype, 2)
    y[y == 0] = 1
    match name:
        case "clamp":
            equal(lambda m, x, y: m.clamp(y, x, y * y), x, y)
        case "round" | "rsqrt" | "logistic":
            if dtype[0] == "f":
                equal(lambda m, x: getattr(m, name)(x), abs(x) * 4, ulps=8)
        case _:
            equal(lambda m, x, y: getattr(m, name)(x, y), x, y, ulps=2)


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64"])
def test_shifts(dtype: str) -> None:
    x, y = uniform((50,), dtype, 1), filled((50,), "uint8", 2).astype(dtype)
    for name in ("shift_left", "shift_right_arithmetic", "shift_right_logical"):
        equal(lambda m, x, y, f=name: getattr(m, f)(x, y), x, y)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("starts", STARTS)
def test_windows(dtype: str, starts: tuple[int, int]) -> None:
    x, update = uniform((5, 6), dtype, 1), uniform((2, 3), dtype, 2)
    given = np.array(starts)
    for found in (
        lax.dynamic_slice(x, given, (2, 3), "clip"), tn.jit(lambda x: lax.dynamic_slice(x, starts, (2, 3), "clip"))(x)
    ):  # fmt: skip
        same(found, jax.lax.dynamic_slice(x, given, (2, 3)))
    for found in (
        lax.dynamic_update_slice(x, update, given, "clip"),
        tn.jit(lambda x: lax.dynamic_update_slice(x, update, starts, "clip"))(x),
    ):
        same(found, jax.lax.dynamic_update_slice(x, update, given))
    for axis, start in enumerate(starts):
        same(lax.dynamic_slice_in_dim(x, start, 2, axis, "clip"), jax.lax.dynamic_slice_in_dim(x, start, 2, axis))
        same(
            lax.dynamic_index_in_dim(x, start, axis, False, "clip"),
            jax.lax.dynamic_index_in_dim(x, start, axis, False),
        )
        same(
            lax.dynamic_update_index_in_dim(x, x.take(1, axis), start, axis, "clip"),
            jax.lax.dynamic_update_index_in_dim(x, x.take(1, axis), start, axis),
        )


@pytest.mark.parametrize("batching", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_gather_and_scatter(batching: bool, seed: int) -> None:
    rng = np.random.default_rng(100 * seed + batching)
    for _ in range(3):
        shape, indices, drawn, sizes = loops.drawn(rng, batching)
        x = uniform(shape, "float64", 1)
        theirs = jax.lax.GatherDimensionNumbers(*drawn.values())
        for mode in ("clip", "fill"):
            wanted = jax.lax.gather(x, indices, theirs, sizes, mode=mode)
            same(lax.gather(x, indices, theirs, sizes, mode=mode), wanted)
        if not indices.size:
            # Several windows, all at 0: XLA writes one of them, or spreads them out, so the loops are the only oracle.
            continue
        updates = uniform(wanted.shape, "float64", 2)
        numbers = jax.lax.ScatterDimensionNumbers(*drawn.values())
        for mode, name in (("clip", "scatter_add"), ("drop", "scatter_mul"), ("clip", "scatter_min"),
                           ("drop", "scatter_max")):  # fmt: skip
            wanted = getattr(jax.lax, name)(x, indices, updates, numbers, mode=mode)
            same(getattr(lax, name)(x, indices, updates, numbers, mode=mode), wanted, 16)


def test_extremes_and_sums() -> None:
    x = filled((3, 4, 2), "float64", 1)
    for name in ("reduce_sum", "reduce_prod", "reduce_max", "reduce_min"):
        equal(lambda m, x, f=name: getattr(m, f)(x, (0, 2)), x, ulps=16)
    for name in ("argmax", "argmin"):
        equal(lambda m, x, f=name: getattr(m, f)(x, 1, np.int32), x)
    for name in ("cumsum", "cumprod"):
        equal(lambda m, x, f=name: getattr(m, f)(x, axis=1, reverse=True), x, ulps=16)


def test_creation() -> None:
    for dtype in ("int8", "float32", "float64"):
        same(lax.iota(dtype, 5), np.asarray(jax.lax.iota(dtype, 5)))
        same(lax.broadcasted_iota(dtype, (2, 3), 1), np.asarray(jax.lax.broadcasted_iota(dtype, (2, 3), 1)))
        same(lax.full((2, 3), 2, dtype), np.asarray(jax.lax.full((2, 3), 2, dtype)))
