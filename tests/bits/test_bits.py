"""The same bits however a function is run: threads, vector widths, code generation levels, lengths, batches, memory
orders, jitted or eager. All NaNs count as one value."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.numpy as tnp
from tests.bits.functions import BY_ROW, FUNCTIONS, NARROW, POINTWISE, REDUCING, Inputs, as_tuple, softmax
from tests.running import CPU_WAYS, Way, outputs_of
from tests.table.agreement import bits
from tests.turns import is_due
from tests.values import laid_out, uniform

Function = Callable[..., Any]
DTYPES = ("float32", "float64")
LARGE = Inputs((517, 1031), "float32")


def assert_same(actual: Any, expected: Any, what: str) -> None:
    for k, (a, e) in enumerate(zip(as_tuple(actual), as_tuple(expected), strict=True)):
        problem = bits(a, e)
        assert problem is None, f"{what}, result {k}: {problem}"


def each(functions: tuple[Function, ...]) -> Any:
    return pytest.mark.parametrize("function", functions, ids=lambda f: f.__name__)


@each(FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_threads(function: Function, dtype: str) -> None:
    jitted, arrays = tn.jit(function), Inputs(LARGE.shape, dtype).arrays()
    with tn.threads(1):
        expected = jitted(*arrays)
    for n in (2, 3, 8):
        with tn.threads(n):
            assert_same(jitted(*arrays), expected, f"{n} threads")


@pytest.mark.parametrize("shape", [(1, 300_000), (300_000, 1), (3, 100_003), (100_003, 3)])
@each(FUNCTIONS)
def test_threads_on_long_and_flat_arrays(function: Function, shape: tuple[int, int]) -> None:
    """One long row is split into phases across threads; leading axes into column tiles."""
    jitted, arrays = tn.jit(function), Inputs(shape, "float32").arrays()
    with tn.threads(1):
        expected = jitted(*arrays)
    with tn.threads(3):
        assert_same(jitted(*arrays), expected, "3 threads")


@each(FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_vector_widths_and_levels(function: Function, dtype: str) -> None:
    """Widths 4, 8 and 16 (of float32), levels 0 and 2, against the widest at level 0; each of one of the dtypes."""
    arrays = Inputs((23, 149), dtype).arrays()
    program = tn.jit(function).trace(*arrays)
    ways = CPU_WAYS if function in NARROW else [w for w in CPU_WAYS if not w.startswith("128")]
    place = FUNCTIONS.index(function) + DTYPES.index(dtype)
    due = [name for k, name in enumerate(ways) if k == 0 or is_due(place, k)]
    results = {name: outputs_of(Way(program, name), arrays) for name in due}
    first, *others = results
    for other in others:
        assert_same(tuple(results[other]), tuple(results[first]), f"{other} against {first}")


@each(REDUCING)
@pytest.mark.parametrize("shape", [(5, 1100), (1100, 3), (1100, 7)])
def test_short_rows(function: Function, shape: tuple[int, int]) -> None:
    """Rows short enough for a kernel of their own: widths, levels and threads, against the row in a batch of few."""
    x, y = Inputs(shape, "float32").arrays()
    program = tn.jit(function).trace(x, y)
    ways = CPU_WAYS if function in NARROW else [w for w in CPU_WAYS if not w.startswith("128")]
    results = []
    for name in ways:
        with tn.threads(1 + len(results) % 2):
            results.append(outputs_of(Way(program, name), (x, y)))
    for name, other in zip(ways, results, strict=True):
        assert_same(tuple(other), tuple(results[0]), f"{name} against {ways[0]}")
    if function is softmax:
        few = tn.jit(function)(x[:9], y[:9])
        assert bits(few, results[0][0][:9]) is None


@each(POINTWISE)
@pytest.mark.parametrize("dtype", DTYPES)
def test_body_and_tail(function: Function, dtype: str) -> None:
    """At every length from 0 to 200 each element has the bits it has in a long array."""
    jitted, (x, y) = tn.jit(function), Inputs((1, 517), dtype).arrays()
    whole = as_tuple(jitted(x, y))
    for n in range(201):
        for part, long in zip(as_tuple(jitted(x[:, 3 : 3 + n], y[:, 3 : 3 + n])), whole, strict=True):
            assert bits(part, long[:, 3 : 3 + n]) is None, f"length {n}: {bits(part, long[:, 3 : 3 + n])}"


@pytest.mark.parametrize("dtype", [*DTYPES, "float16", "complex64", "int32", "uint8", "int64", "bool"])
def test_body_and_tail_of_other_dtypes(dtype: str) -> None:
    jitted = tn.jit(
        lambda x, y: (
            x + y,
            x * y,
            x == y,
            np.where(x == y, x, y),
            x.astype(np.float64 if dtype != "complex64" else dtype),
        )
    )
    x, y = uniform((517,), dtype, 1), uniform((517,), dtype, 2)
    whole = as_tuple(jitted(x, y))
    for n in range(201):
        for part, long in zip(as_tuple(jitted(x[1 : 1 + n], y[1 : 1 + n])), whole, strict=True):
            assert bits(part, long[1 : 1 + n]) is None, f"length {n}: {bits(part, long[1 : 1 + n])}"


@each(BY_ROW)
@pytest.mark.parametrize("dtype", DTYPES)
def test_row_alone_and_in_a_batch(function: Function, dtype: str) -> None:
    for columns in (1, 31, 149, 4500):
        jitted, (x, y) = tn.jit(function), Inputs((9, columns), dtype).arrays()
        batch = as_tuple(jitted(x, y))
        for row in (0, 4, 8):
            alone = as_tuple(jitted(x[row : row + 1], y[row : row + 1]))
            for a, b in zip(alone, batch, strict=True):
                assert bits(a, b[row : row + 1]) is None, f"{columns} columns, row {row}: {bits(a, b[row : row + 1])}"


@each(FUNCTIONS)
@pytest.mark.parametrize("order", ["F", "strided", "reversed", "offset"])
def test_memory_order(function: Function, order: str) -> None:
    jitted = tn.jit(function)
    for shape in ((37, 53), (130, 3), (1, 70), (5, 1)):
        x, y = Inputs(shape, "float32").arrays()
        expected = jitted(x, y)
        assert_same(jitted(laid_out(x, order), laid_out(y, order)), expected, f"{shape}, both {order}")
        assert_same(jitted(laid_out(x, order), y), expected, f"{shape}, the first {order}")


@each(FUNCTIONS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_jitted_and_eager(function: Function, dtype: str) -> None:
    """Eager operations on ``tn.Array``; NumPy's functions dispatch on them."""
    for shape in ((6, 35), (3, 1), (1, 1)):
        x, y = (tnp.asarray(a) for a in Inputs(shape, dtype).arrays())
        assert_same(function(x, y), tn.jit(function)(x, y), f"{shape}")


@each(FUNCTIONS)
def test_polymorphic_and_fresh(function: Function) -> None:
    """A program traced at another size gives the bits of one traced at this size."""
    jitted = tn.jit(function)
    jitted(*Inputs((11, 13), "float64").arrays())
    for shape in ((5, 7), (2, 300), (64, 64), (1, 9)):
        arrays = Inputs(shape, "float64").arrays()
        assert_same(jitted(*arrays), tn.jit(function)(*arrays), f"{shape}")


def test_every_function_sees_numbers() -> None:
    """The inputs leave something to compare: results are finite at most places and not all alike."""
    for function in FUNCTIONS:
        for out in as_tuple(function(*Inputs((23, 149), "float64").arrays())):
            assert np.isfinite(out).mean() > 0.9
            assert out.size == 1 or len(np.unique(out)) > 1
