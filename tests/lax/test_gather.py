"""``gather`` and the scatters against XLA's definition written as loops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import lax
from tests.lax import windows_of_numpy as loops
from tests.lax.checking import agrees, refuses, serves_all
from tests.values import filled, laid_out, of_kinds, uniform

Array = np.ndarray[Any, Any]
Gather, Scatter = lax.GatherDimensionNumbers, lax.ScatterDimensionNumbers
COMBINE = {
    "scatter": lambda old, new: new, "scatter_add": np.add, "scatter_sub": np.subtract, "scatter_mul": np.multiply,
    "scatter_min": np.minimum, "scatter_max": np.maximum,
}  # fmt: skip

ROWS = Gather((1,), (0,), (0,))
ELEMENTS = Gather((), (0, 1), (0, 1))
WINDOWS = Gather((1, 2), (), (0, 1))
COLUMNS_FIRST = Gather((0,), (1,), (1,))
TABLE: tuple[tuple[tuple[int, ...], Any, Any, tuple[int, ...]], ...] = (
    ((5, 3), [[0], [4], [4], [2]], ROWS, (1, 3)), ((5, 3), [[[0, 2], [4, 1]]], ELEMENTS, (1, 1)),
    ((5, 6), [[0, 1], [3, 2]], WINDOWS, (2, 4)), ((4, 5), [[0], [3], [1]], COLUMNS_FIRST, (4, 1)),
    ((4, 5), [1], Gather((0,), (0,), (0,)), (1, 2)), ((3,), np.zeros((0, 1), np.int64), Gather((), (0,), (0,)), (1,)),
    ((4, 0), [[1], [3]], ROWS, (1, 0)), ((1, 1), [[0, 0]], ELEMENTS, (1, 1)),
    ((3, 4, 5), [[2, 1], [0, 2]], Gather((1, 2), (2,), (2, 0)), (1, 2, 1)),
    ((3, 4), np.zeros((2, 0), np.int64), Gather((1, 2), (), ()), (2, 3)),
)  # fmt: skip


def turns(kinds: str, first: int) -> Iterator[tuple[tuple[int, ...], Array, Any, tuple[int, ...], str]]:
    """The table with dtypes in turn, beginning with the one of this number."""
    names = of_kinds(kinds)
    for number, (shape, given, numbers, sizes) in enumerate(TABLE):
        yield shape, np.asarray(given, np.int64), numbers, sizes, names[(first + number) % len(names)]


@pytest.mark.parametrize("first", range(0, 14, 3))
def test_gather(first: int) -> None:
    for shape, indices, numbers, sizes, dtype in turns("biufc", first):
        x = uniform(shape, dtype, 1)
        wanted = loops.gather(x, indices, numbers, sizes)
        agrees(lambda a, i, n=numbers, s=sizes: lax.gather(a, i, n, s), wanted, x, indices)


@pytest.mark.parametrize("number", range(len(COMBINE)))
def test_scatter(number: int) -> None:
    name, combine = list(COMBINE.items())[number]
    for shape, indices, numbers, sizes, dtype in turns("iufc", 2 * number):
        x = filled(shape, dtype, 1)
        kept = [n for a, n in enumerate(sizes) if a not in numbers.collapsed_slice_dims]
        rank = indices.ndim - 1 + len(kept)
        outer = [a for a in range(rank) if a not in numbers.offset_dims]
        updates = filled((*indices.shape[:-1], *kept), dtype, 2)
        updates = np.moveaxis(updates, range(rank), (*outer, *numbers.offset_dims))
        mine, call = Scatter(*numbers[:3]), getattr(lax, name)
        wanted = loops.scatter(combine, x, indices, updates, mine)
        agrees(lambda a, i, u, n=mine, f=call: f(a, i, u, n), wanted, x, indices, updates)


def test_scatter_of_bools() -> None:
    x, updates = np.array([True, False, True]), np.array([False, True])
    numbers = Scatter((), (0,), (0,))
    agrees(lambda a, i, u: lax.scatter(a, i, u, numbers), [False, True, True], x, np.array([[0], [1]]), updates)


def test_rank_0() -> None:
    agrees(lambda a, i: lax.gather(a, i, Gather((), (), ()), ()), np.full(3, 2.5), np.array(2.5), np.zeros((3, 0), int))
    numbers = Scatter((), (), ())
    agrees(
        lambda a, i, u: lax.scatter_add(a, i, u, numbers), np.float64(7.0), np.array(1.0), np.zeros((3, 0), int),
        np.array([1.0, 2.0, 3.0]),
    )  # fmt: skip


@pytest.mark.parametrize("batching", [False, True])
def test_random_dimension_numbers(batching: bool) -> None:
    rng = np.random.default_rng(3 + batching)
    for number in range(36):
        shape, indices, drawn, sizes = loops.drawn(rng, batching)
        x = uniform(shape, "float64", 1)
        numbers, mine = Gather(*drawn.values()), Scatter(*drawn.values())
        good = loops.inside(indices, shape, numbers.start_index_map, sizes)
        mode, outside = (("raise", "raise"), ("clip", "clip"), ("fill", "drop"))[number % 3]
        places = good if mode == "raise" else indices
        wanted = loops.gather(x, places, numbers, sizes, outside, np.nan)
        agrees(lambda a, i, n=numbers, s=sizes, m=mode: lax.gather(a, i, n, s, mode=m), wanted, x, places)
        updates = uniform(wanted.shape, "float64", 2)
        name = list(COMBINE)[number % 5 + number % 2]
        call = getattr(lax, name)
        made = loops.scatter(COMBINE[name], x, places, updates, mine, outside)
        agrees(lambda a, i, u, n=mine, m=outside, f=call: f(a, i, u, n, mode=m), made, x, places, updates)


@pytest.mark.parametrize(
    ("dtype", "fill"),
    [
        ("float32", np.nan),
        ("complex64", np.nan),
        ("int8", -128),
        ("uint16", 65535),
        ("bool", True),
        ("int64", -(2**63)),
    ],
)
def test_what_stands_for_windows_outside(dtype: str, fill: Any) -> None:
    x, indices = filled((4, 2), dtype, 1), np.array([[1], [4], [-1]])
    wanted = np.stack([x[1], np.full(2, fill, dtype), np.full(2, fill, dtype)])
    agrees(lambda a, i: lax.gather(a, i, ROWS, (1, 2), mode="fill"), wanted, x, indices)
    chosen = np.stack([x[1], np.ones(2, dtype), np.ones(2, dtype)])
    agrees(lambda a, i: lax.gather(a, i, ROWS, (1, 2), mode="fill", fill_value=np.ones((), dtype)), chosen, x, indices)


@pytest.mark.parametrize("order", ["F", "strided", "reversed", "offset"])
def test_orders_of_memory(order: str) -> None:
    x, indices = laid_out(uniform((5, 6), "float32", 1), order), laid_out(np.array([[0, 1], [3, 2]]), order)
    agrees(lambda a, i: lax.gather(a, i, WINDOWS, (2, 4)), loops.gather(x, indices, WINDOWS, (2, 4)), x, indices)
    numbers, updates = Scatter(*WINDOWS[:3]), laid_out(uniform((2, 2, 4), "float32", 2), order)
    wanted = loops.scatter(np.add, x, indices, updates, numbers)
    agrees(lambda a, i, u: lax.scatter_add(a, i, u, numbers), wanted, x, indices, updates)


def test_one_program_serves_every_size() -> None:
    calls = [
        (uniform((n, m), "float64", n), np.arange(k)[:, None] % n) for n, m, k in ((3, 4, 2), (9, 1, 5), (40, 31, 0))
    ]
    serves_all(
        lambda x, i: lax.gather(x, i, ROWS, (1, x.shape[1])) * 2,
        lambda x, i: loops.gather(x, i, ROWS, (1, x.shape[1])) * 2, *calls,
    )  # fmt: skip
    numbers = Scatter((1,), (0,), (0,))
    serves_all(
        lambda x, i: lax.scatter_add(x, i, x[: i.shape[0]] * 2, numbers),
        lambda x, i: loops.scatter(np.add, x, i, x[: i.shape[0]] * 2, numbers), *calls[:1], *calls[2:],
    )  # fmt: skip


def test_numbers_of_another_library_serve() -> None:
    class Other:
        offset_dims, collapsed_slice_dims, start_index_map = (1,), (0,), (0,)

    x, indices = uniform((5, 3), "float64", 1), np.array([[4], [0]])
    np.testing.assert_array_equal(tn.jit(lambda a, i: lax.gather(a, i, Other(), (1, 3)))(x, indices), x[[4, 0]])


def test_windows_out_of_range() -> None:
    x = uniform((5, 6), "float32", 1)
    for bad, text in (
        ([[0, 1], [4, 2]], "a window of size 2 starts at 4 on axis 0, which has 5 elements; a start in .0, 3. is"),
        ([[0, 3], [4, 2]], "a window of size 4 starts at 3 on axis 1, which has 6 elements; a start in .0, 2. is"),
        ([[0, 1], [2, -1]], "a window of size 4 starts at -1 on axis 1"),
        ([[-1, 9]], "a window of size 2 starts at -1 on axis 0"),
    ):  # fmt: skip
        indices = np.array(bad)
        refuses(lambda a, i: lax.gather(a, i, WINDOWS, (2, 4)), IndexError, f"^gather: {text}", x, indices)
        numbers, updates = Scatter(*WINDOWS[:3]), uniform((len(bad), 2, 4), "float32", 2)
        for name in COMBINE:
            call = getattr(lax, name)
            refuses(
                lambda a, i, u, n=numbers, f=call: f(a, i, u, n), IndexError, f"^{name}: {text}", x, indices, updates
            )
    refuses(lambda a, i: lax.gather(a, i, ROWS, (1, 6)), IndexError, "starts at 5 on axis 0", x, np.array([[0], [5]]))
    beyond = np.array([[2**63]], np.uint64)
    refuses(lambda a, i: lax.gather(a, i, ROWS, (1, 6)), IndexError, "starts at 1125899906842624", x, beyond)


def test_errors() -> None:
    x, i = uniform((5, 6), "float32", 1), np.array([[0, 1], [3, 2]])
    for numbers, sizes, error, text in (
        (Gather((1,), (), (0, 1)), (2, 4), ValueError, r"offset_dims \(1,\) for an operand of rank 2 .* 2 are needed"),
        (Gather((1, 2), (), (0,)), (2, 4), ValueError, r"indices of shape \(2, 2\) for 1 axes"),
        (Gather((1, 2), (), (0, 0)), (2, 4), ValueError, "start_index_map .0, 0.; each axis may be listed once"),
        (Gather((1, 2), (), (0, 2)), (2, 4), IndexError, "axis 2 for rank 2"),
        (Gather((1, 3), (), (0, 1)), (2, 4), IndexError, "axis 3 for rank 3"),
        (Gather((2, 1), (), (0, 1)), (2, 4), ValueError, r"offset_dims \(2, 1\); increasing"),
        (Gather((1,), (0,), (0, 1)), (2, 4), ValueError, "windows of size 2 on axis 0, which the result has not"),
        (WINDOWS, (2,), ValueError, r"slice_sizes \(2,\) for rank 2"),
        (WINDOWS, (6, 4), ValueError, "windows of size 6 on axis 0, which has 5 elements"),
        ((1, 2), (2, 4), TypeError, "dimension_numbers of class tuple; one with offset_dims, collapsed_slice_dims"),
        (Gather((1,), (), (1,), (0,), (0,)), (1, 4), ValueError, "indices of shape .2, 2. for 1 axes"),
        (Gather((1, 2), (0,), (0, 1), (0,), (0,)), (1, 4), ValueError, "operand_batching_dims .0,.; axes that"),
    ):  # fmt: skip
        refuses(lambda a, k, n=numbers, s=sizes: lax.gather(a, k, n, s), error, f"^gather: .*{text}", x, i)
    refuses(lambda a, k: lax.gather(a, k, WINDOWS, (2, 4)), TypeError, "start_indices of dtype float64", x, i * 1.0)
    refuses(lambda a, k: lax.gather(a, k, WINDOWS, (2, 4)), ValueError, "start_indices of rank 0", x, np.array(1))
    refuses(lambda a, k: lax.gather(a, k, WINDOWS, (2, 4), mode="drop"), TypeError, "'raise', 'clip' or 'fill'", x, i)
    mine, u = Scatter((1, 2), (), (0, 1)), uniform((2, 2, 4), "float32", 2)
    refuses(lambda a, k, v: lax.scatter(a, k, v[0], mine), ValueError, "updates of rank 2; 1 axes of", x, i, u)
    refuses(lambda a, k, v: lax.scatter(a, k, v[:1], mine), ValueError, "of sizes 2 and 1; they must be", x, i, u)
    refuses(lambda a, k, v: lax.scatter(a[:1], k, v, mine), ValueError, "windows of size 2 on axis 0", x, i, u)
    refuses(lambda a, k, v: lax.scatter_add(a, k, v * 1j, mine), TypeError, "updates of dtype complex64", x, i, u)
    refuses(lambda a, k, v: lax.scatter_add(a, k, v, mine, mode="wrap"), TypeError, "mode 'wrap'", x, i, u)
