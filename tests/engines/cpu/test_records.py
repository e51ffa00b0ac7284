"""Rows by index: every dtype and size of record, any layout of the table, any expression for the index."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu.engine import CpuEngine
from tenferro.engines.cpu.records import NEAR_BYTES, SHORT_RECORD
from tenferro.engines.cpu.toolchain import host_target
from tenferro.runtime import Runtime, signature_of, target_of

pytestmark = pytest.mark.filterwarnings("ignore::tenferro.tracer.errors.RecompileWarning")
DTYPES = ("f2", "f4", "f8", "F", "D", "?", "i1", "i2", "u4", "i8")
rng = np.random.default_rng(0)
rows = tn.jit(lambda x, i: x[i])


def table(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    real = rng.standard_normal(shape) * 9
    return real > 3 if dtype == "?" else real.astype(dtype) if dtype not in "FD" else (real + 1j * real).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_records_of_every_size(dtype):
    """One byte to several kernels' worth: short ones have kernels of their own, as many as there may be."""
    for width in (1, 2, 3, 5, 8, 15, 16, 17, 31, 33, 63, 64, 65, 100, 130, 257, 1000):
        x = table((40, width), dtype)
        for count in (0, 1, 7, 100):
            i = rng.integers(-40, 40, count)
            found, wanted = rows(x, i), x[i]
            assert found.dtype == wanted.dtype and found.tobytes() == wanted.tobytes()


@pytest.mark.parametrize("dtype", ("f4", "D", "i1"))
def test_layouts_and_ranks(dtype):
    x = table((12, 10, 9), dtype)
    layouts = (
        x, np.asfortranarray(x), x[::-1], x[:, ::2], x[:, :, ::-1], x[1:, 2:8, 1:7], x.transpose(1, 0, 2),
        x.transpose(2, 1, 0), np.broadcast_to(x[:1], (5, 10, 9)), np.broadcast_to(x[:, :1, :1], (12, 4, 5)),
    )  # fmt: skip
    for y, axis, shape in itertools.product(layouts, (0, 1, 2), ((6,), (2, 3), (1,), (0, 2))):
        i = rng.integers(-y.shape[axis], y.shape[axis], shape)
        function = tn.jit(lambda y, i, axis=axis: np.take(y, i, axis=axis))
        np.testing.assert_array_equal(function(y, i), np.take(y, i, axis=axis))
        written = tn.jit(lambda y, i, axis=axis: y[(slice(None),) * axis + (i,)])
        np.testing.assert_array_equal(written(y, i), y[(slice(None),) * axis + (i,)])


def test_indices_that_are_computed():
    x, i = table((50, 20), "f4"), rng.integers(0, 49, 30)
    j = rng.integers(0, 30, (4, 5))
    functions = (
        lambda x, i, j: x[i + 1],
        lambda x, i, j: x[i[j]],
        lambda x, i, j: x[np.where(i > 20, i, -i)],
        lambda x, i, j: x[i.astype(np.int16)],
        lambda x, i, j: x[np.arange(7) * 2],
        lambda x, i, j: x[i[::-1]],
        lambda x, i, j: x[j[:, ::2] + i[3]],
        lambda x, i, j: np.take(x, i * 3 - 60, axis=0, mode="clip"),
        lambda x, i, j: np.take(x, i * 3 - 60, axis=0, mode="wrap"),
        lambda x, i, j: x[j, 3:11],
        lambda x, i, j: x[i % 7][:, ::-1],
        lambda x, i, j: x.T[:, i],
        lambda x, i, j: (x[i] * 2 + 1, x[i], x[j].sum(-1)),
    )
    for f in functions:
        found, wanted = tn.jit(f)(x, i, j), f(x, i, j)
        for a, b in zip(found, wanted, strict=True) if isinstance(wanted, tuple) else [(found, wanted)]:
            np.testing.assert_array_equal(a, b) if a.ndim != 2 or a.shape != (4, 5) else np.testing.assert_allclose(
                a, b, rtol=1e-5
            )


@pytest.mark.parametrize("width", (1, 4, 64, 500))
def test_large_tables_are_asked_for_ahead(width):
    """Whole and in a kernel that computes, on any number of threads."""
    x = table((3 * NEAR_BYTES // 4 // width, width), "f4")
    i = rng.integers(-len(x), len(x), 3000)
    doubled = tn.jit(lambda x, i: x[i] * 2)
    for n in (1, 2, 7):
        with tn.threads(n):
            np.testing.assert_array_equal(rows(x, i), x[i])
            np.testing.assert_array_equal(doubled(x, i), x[i] * 2)


@pytest.mark.parametrize("width", (1, 3, SHORT_RECORD // 4, SHORT_RECORD // 4 + 1, 300))
def test_an_index_out_of_range_raises(width):
    x = table((20, width), "f4")
    for bad in (20, -21, 1 << 60, -(1 << 62)):
        for count, place in ((1, 0), (9, 8), (5000, 4999), (5000, 17)):
            i = rng.integers(-20, 20, count)
            i[place] = bad
            for f in (rows, tn.jit(lambda x, i: x[i] + 1), tn.jit(lambda x, i: np.take(x, i, axis=0))):
                with pytest.raises(IndexError, match=str(bad)):
                    f(x, i)
    with pytest.raises(IndexError):
        rows(x[:0], np.zeros(1, int))
    assert rows(x[:0], np.zeros(0, int)).shape == (0, width)


def test_one_kernel_serves_long_records():
    """And only so many lengths of short ones have kernels of their own."""
    f = tn.jit(lambda x, i: x[i])
    for width in range(2, 40):
        x = table((9, width), "f8")
        np.testing.assert_array_equal(f(x, np.array([8, -1, 3])), x[[8, -1, 3]])
    assert f.cache_info().compiles == 1 and f.cache_info().kernels <= 10


@pytest.mark.parametrize("bits", (128, 256))
def test_other_machines(bits):
    target = dataclasses.replace(host_target(), vector_bits=bits, features=host_target().features + ",-avx512f")
    engine = CpuEngine(7, target=target)
    runtime = Runtime.builder().register_engine(engine).build()
    for width in (3, 16, 100, 300):
        x, i = table((64, width), "f4"), rng.integers(-64, 64, 200)
        program = tn.jit(lambda x, i: x[i]).trace(x, i)
        prepared = runtime.prepare(program, signature_of(program), [target_of(engine)])
        assert runtime.run([engine], prepared, [x, i]).outputs[0].tobytes() == x[i].tobytes()


@pytest.mark.parametrize("width", (1, 3, 300))
def test_one_row_at_a_computed_index(width):
    """No loop runs around it."""
    x = table((4, width), "f8")
    f = tn.jit(lambda x, i: x[i * 2 - 1] * 2)
    for i in (-1, 0, 1, 2):
        np.testing.assert_array_equal(f(x, np.array(i)), x[i * 2 - 1] * 2)
