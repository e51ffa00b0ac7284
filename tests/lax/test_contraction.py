"""``dot_general`` and its like against ``numpy.einsum``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro import lax
from tests.lax.checking import agrees, refuses, same, serves_all
from tests.values import DTYPES, filled, laid_out

Array = np.ndarray[Any, Any]
Numbers = tuple[tuple[tuple[int, ...], tuple[int, ...]], tuple[tuple[int, ...], tuple[int, ...]]]


def contracted(a: Array, b: Array, numbers: Numbers) -> Array:
    (lc, rc), (lb, rb) = numbers
    letters = iter("abcdefghijklmnopqrstuvwxyz")
    left, right = [next(letters) for _ in a.shape], [next(letters) for _ in b.shape]
    for k, j in (*zip(lc, rc, strict=True), *zip(lb, rb, strict=True)):
        right[j] = left[k]
    free = [s for k, s in enumerate(left) if k not in (*lc, *lb)] + [
        s for j, s in enumerate(right) if j not in (*rc, *rb)
    ]
    text = f"{''.join(left)},{''.join(right)}->{''.join([*(left[k] for k in lb), *free])}"
    return np.asarray(np.einsum(text, a, b))


TABLE: tuple[tuple[tuple[int, ...], tuple[int, ...], Numbers], ...] = (
    ((3, 4), (4, 5), (((1,), (0,)), ((), ()))), ((4, 3), (5, 4), (((0,), (1,)), ((), ()))),
    ((2, 3, 4), (2, 4, 5), (((2,), (1,)), ((0,), (0,)))), ((3, 2, 4), (5, 4, 2), (((2,), (1,)), ((1,), (2,)))),
    ((2, 3, 4, 5), (4, 5, 6), (((2, 3), (0, 1)), ((), ()))), ((2, 3, 4, 5), (5, 4, 6), (((2, 3), (1, 0)), ((), ()))),
    ((3,), (3,), (((0,), (0,)), ((), ()))), ((2, 3), (3, 2), (((1,), (0,)), ((0,), (1,)))),
    ((2, 3), (2, 3), (((), ()), ((0, 1), (0, 1)))), ((2, 3), (4,), (((), ()), ((), ()))),
    ((2, 3, 4), (3,), (((1,), (0,)), ((), ()))), ((3, 0), (0, 4), (((1,), (0,)), ((), ()))),
    ((0, 3), (3, 4), (((1,), (0,)), ((), ()))), ((0, 3, 2), (0, 2, 1), (((2,), (1,)), ((0,), (0,)))),
    ((1, 1), (1, 1), (((1,), (0,)), ((), ()))), ((2, 0), (2, 0), (((1,), (1,)), ((0,), (0,)))),
    ((2, 3, 2, 4), (3, 2, 4, 5), (((3,), (2,)), ((1, 0), (0, 1)))), ((), (), (((), ()), ((), ()))),
)  # fmt: skip


@pytest.mark.parametrize("number", range(len(TABLE)))
def test_dot_general(number: int) -> None:
    left, right, numbers = TABLE[number]
    for dtype in DTYPES[number % 3 :: 3]:
        a, b = filled(left, dtype, 1), filled(right, dtype, 2)
        if dtype == "bool":
            wanted = contracted(a.astype(int), b.astype(int), numbers) > 0
        elif dtype == "float16":
            wanted = contracted(a.astype(np.float32), b.astype(np.float32), numbers).astype(dtype)
        else:
            wanted = contracted(a, b, numbers).astype(dtype)
        agrees(lambda x, y: lax.dot_general(x, y, numbers), wanted, a, b, ulps=8)


def test_orders_of_memory() -> None:
    numbers: Numbers = (((2,), (1,)), ((1,), (2,)))
    for order in ("F", "strided", "reversed", "offset"):
        a, b = laid_out(filled((3, 2, 4), "float64", 1), order), laid_out(filled((5, 4, 2), "float64", 2), order)
        agrees(lambda x, y: lax.dot_general(x, y, numbers), contracted(a, b, numbers), a, b, ulps=8)


@pytest.mark.parametrize("numbers", [(((1,), (0,)), ((), ())), (((1,), (0,)), ((0,), (1,)))])
def test_conjugates(numbers: Numbers) -> None:
    for dtype in ("complex64", "complex128", "float32"):
        a, b = filled((3, 4), dtype, 1), filled((4, 3), dtype, 2)
        for left in (False, True):
            for right in (False, True):
                wanted = contracted(a.conj() if left else a, b.conj() if right else b, numbers)
                agrees(
                    lambda x, y, k=left, j=right: lax.dot_general(x, y, numbers, conj_lhs=k, conj_rhs=j), wanted, a, b,
                    ulps=8,
                )  # fmt: skip


def test_dtypes() -> None:
    numbers: Numbers = (((1,), (0,)), ((), ()))
    a, b = np.full((2, 50), 100, np.int8), np.full((50, 3), 100, np.int8)
    wide = np.full((2, 3), 500_000)
    agrees(lambda x, y: lax.dot_general(x, y, numbers), wide.astype(np.int8), a, b)
    agrees(lambda x, y: lax.dot_general(x, y, numbers, np.int32), wide.astype(np.int32), a, b)
    agrees(lambda x, y: lax.dot_general(x, y, numbers, preferred_element_type="float32"), wide.astype("f4"), a, b)
    half = filled((2, 4), "float16", 1)
    agrees(
        lambda x: lax.dot_general(x, x, (((1,), (1,)), ((), ())), np.float32), half.astype("f4") @ half.astype("f4").T,
        half, ulps=4,
    )  # fmt: skip
    agrees(lambda x, y: lax.dot(x, y), a.astype("i8") @ np.ones((50, 1)), a, np.ones((50, 1)))
    x = filled((2, 4), "float64", 1)
    agrees(lambda a: lax.dot(a, a[0], preferred_element_type=np.float32), (x @ x[0]).astype("f4"), x)
    c = filled((2, 2), "complex64", 1)
    refuses(lambda a: lax.dot_general(a, a, numbers, np.float32), TypeError, "float32 for operands of complex64", c)


def test_dot_and_batch_matmul() -> None:
    a, b, v = filled((3, 4), "float64", 1), filled((4, 5), "float64", 2), filled((4,), "float64", 3)
    agrees(lax.dot, a @ b, a, b, ulps=8)
    agrees(lax.dot, a @ v, a, v, ulps=8)
    agrees(lax.dot, v @ b, v, b, ulps=8)
    agrees(lax.dot, v @ v, v, v, ulps=8)
    agrees(
        lambda x, y: lax.dot(x, y, dimension_numbers=(((0,), (1,)), ((), ()))), a.T @ a[:, :3].T, a, a[:, :3], ulps=8
    )
    x, y = filled((2, 0, 3, 4), "float64", 1), filled((2, 0, 4, 5), "float64", 2)
    agrees(lax.batch_matmul, x @ y, x, y)
    x, y = filled((2, 3, 4), "float64", 1), filled((2, 4, 5), "float64", 2)
    agrees(lax.batch_matmul, x @ y, x, y, ulps=8)
    refuses(lax.dot, ValueError, "ranks 3 and 2; ranks 1 or 2", x, a)
    refuses(lax.batch_matmul, ValueError, "ranks 3 and 2; one rank", x, a)
    refuses(lax.batch_matmul, ValueError, "batch axes of sizes 2 and 1", x, y[:1])


def test_one_program_serves_every_size() -> None:
    numbers: Numbers = (((2,), (1,)), ((0,), (0,)))
    calls = [
        (filled((b, n, k), "float64", 1), filled((b, k, m), "float64", 2))
        for b, n, k, m in ((2, 3, 4, 5), (1, 9, 2, 2), (4, 2, 7, 1))
    ]
    serves_all(lambda x, y: lax.dot_general(x, y, numbers) + 1, lambda x, y: x @ y + 1, *calls)
    summed: Numbers = (((1, 2), (1, 2)), ((0,), (0,)))
    serves_all(
        lambda x, y: lax.dot_general(x, x, summed), lambda x, y: (x * x).sum((1, 2)), *calls,
    )  # fmt: skip


def test_sums_of_products_are_one_kernel() -> None:
    x = filled((5, 70), "float32", 1)
    jitted = tn.jit(lambda x: lax.dot_general(x * 2, x, (((1,), (1,)), ((0,), (0,)))) + 1)
    same(jitted(x), (2 * x * x).sum(1) + 1, 50)
    text = jitted.lower(x).as_text("regions")
    assert text.count("region") == 1 and "call" not in text


def test_errors() -> None:
    a, b = filled((3, 4), "float32", 1), filled((4, 5), "float32", 2)
    for numbers, error, text in (
        ((((1,), (1,)), ((), ())), ValueError, r"of \(3, 4\) and \(4, 5\): contracted axes of sizes 4 and 5"),
        ((((), ()), ((0,), (0,))), ValueError, "batch axes of sizes 3 and 4"),
        ((((1,), (0, 1)), ((), ())), ValueError, "1 contracting axes of lhs, 2 of rhs"),
        ((((1,), (0,)), ((0,), ())), ValueError, "1 batch axes of lhs, 0 of rhs"),
        ((((2,), (0,)), ((), ())), IndexError, "axis 2 for rank 2"),
        ((((1, 1), (0, 1)), ((), ())), ValueError, "each axis may be listed once"),
        ((((1,), (0,)), ((1,), (0,))), ValueError, "axes .1. of lhs contracted and in the batch"),
        (((1,), (0,)), ValueError, "dimension_numbers .* is needed"),
        (3, ValueError, "dimension_numbers 3"),
    ):  # fmt: skip
        refuses(lambda x, y, n=numbers: lax.dot_general(x, y, n), error, f"^dot_general.*{text}", a, b)
