"""Functions of ``tn.lax`` with operands: windows at traced starts, paddings, diagonals, sums of products."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro import lax
from tests.values import laid_out, uniform

Array = np.ndarray[Any, Any]
Call = tuple[str, Callable[..., Any], tuple[Any, ...]]
WINDOWS = lax.GatherDimensionNumbers((1, 2), (), (0, 1))
ROWS = lax.GatherDimensionNumbers((1,), (0,), (0,))
ADDED = lax.ScatterDimensionNumbers((1, 2), (), (0, 1))


def _window(x: Array, starts: Array) -> Any:
    return lax.dynamic_slice(x, starts, (3, 5)) * 2


def _rows(x: Array, start: Array) -> Any:
    return lax.dynamic_slice_in_dim(x, start, 4) + 1


def _replaced(x: Array, update: Array, starts: Array) -> Any:
    return lax.dynamic_update_slice(x, update, starts, mode="clip") * 2


def _row_replaced(x: Array, starts: Array) -> Any:
    return lax.dynamic_update_index_in_dim(x, x[0] * 2, starts[0], 0)


def _gathered(x: Array, indices: Array) -> Any:
    return lax.gather(x, indices, WINDOWS, (2, 3)) + 1, lax.gather(
        x, indices[:, :1], ROWS, (1, x.shape[1]), mode="clip"
    )


def _filled(x: Array, indices: Array) -> Any:
    return lax.gather(x, indices * 9, WINDOWS, (2, 3), mode="fill", fill_value=7)


def _scattered(x: Array, indices: Array, update: Array) -> Any:
    return lax.scatter_add(x * 2, indices, lax.broadcast(update, indices.shape[:1]), ADDED, mode="drop") + 1


def _padded(x: Array) -> Any:
    return lax.pad(x, 3, ((1, -2, 1), (-1, 2, 0))) * 2


def _on_diagonals(x: Array) -> Any:
    return lax.diag_embed(x, 1) + 1, lax.tril(x, -1), lax.rev(x, (1,)) * 2


def _matched(x: Array, update: Array) -> Any:
    return lax.pad_to_match(update, x, 1) + 1, lax.truncate(x, 3, 1) * lax.shape_of(x, 0).astype(x.dtype)


def _products(x: Array) -> Any:
    return lax.dot_general(x * 2, x, (((1,), (1,)), ((0,), (0,)))) + 1


def _squares(x: Array) -> Any:
    return lax.sum_of_squares(x, (1,))


def calls(order: str, dtype: str, number: int) -> list[Call]:
    """Every function with operands in this order of memory."""
    x, update = laid_out(uniform((12, 20), dtype, number), order), laid_out(uniform((2, 3), dtype, number + 1), order)
    starts, indices = laid_out(np.array([4, 9]), order), laid_out(np.array([[0, 17], [10, 2], [3, 3]]), order)
    return [
        ("dynamic_slice", _window, (x, starts)), ("dynamic_slice_in_dim", _rows, (x, np.array(-7))),
        ("dynamic_update_slice", _replaced, (x, update, starts * 3)),
        ("dynamic_update_index", _row_replaced, (x, starts)),
        ("gather", _gathered, (x, indices)), ("gather and fill", _filled, (x, indices)),
        ("scatter_add", _scattered, (x, indices * 2, update)), ("lax.pad", _padded, (x,)),
        ("diagonals", _on_diagonals, (x,)), ("pad_to_match", _matched, (x, update)),
        ("sums of products", _products, (x,)), ("sum_of_squares", _squares, (x,)),
    ]  # fmt: skip
