"""Matrix products: values, layouts, sizes, and bits that depend on nothing but sizes and strides."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu.engine import CpuEngine
from tenferro.engines.cpu.product import ProductText
from tenferro.engines.cpu.product_writer import BLOCK_ROWS, block_columns, is_served, registers
from tenferro.engines.cpu.toolchain import host_target
from tenferro.runtime import Runtime, signature_of, target_of

pytestmark = pytest.mark.filterwarnings("ignore::tenferro.tracer.errors.RecompileWarning")
SIZES = (
    (1, 1, 1), (2, 3, 4), (8, 8, 8), (5, 7, 3), (3, 3, 1), (17, 1, 33), (5, 0, 4), (0, 3, 4), (4, 3, 0), (1, 784, 512),
    (300, 300, 1), (3, 1000, 2), (1, 1000, 1), (97, 257, 65), (64, 64, 64), (13, 40, 100), (100, 300, 17),
    (9, 600, 300), (193, 513, 131),
)  # fmt: skip
DTYPES = ("f4", "f8", "i1", "i4", "i8", "u2", "u8")
rng = np.random.default_rng(0)
multiply = tn.jit(lambda a, b: a @ b)


def operands(sizes: tuple[int, int, int], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    m, k, n = sizes
    a, b = ((rng.standard_normal(s) * 5).astype(dtype) for s in ((m, k), (k, n)))
    return a, b


def laid_out(x: np.ndarray, kind: str) -> np.ndarray:
    match kind:
        case "c":
            return np.ascontiguousarray(x)
        case "f":
            return np.asfortranarray(x)
        case "every other":
            wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
            wide[..., ::2] = x
            return wide[..., ::2]
        case _:
            return np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]


def check(found: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    """Integers are exact; a float's error is below that of any order of summation (Higham, Accuracy and Stability of
    Numerical Algorithms, 2002, eq. 3.5)."""
    wanted = a @ b
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    if a.dtype.kind in "iu":
        assert np.array_equal(found, wanted)
        return
    wide_a, wide_b = a.astype(np.longdouble), b.astype(np.longdouble)
    bound = np.finfo(a.dtype).eps * (a.shape[-1] + 1) * (np.abs(wide_a) @ np.abs(wide_b))
    assert (np.abs(found - wide_a @ wide_b) <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values(sizes, dtype):
    a, b = operands(sizes, dtype)
    expected = multiply(a, b)
    check(expected, a, b)
    for left, right in itertools.product(("c", "f", "every other", "reversed"), repeat=2):
        assert multiply(laid_out(a, left), laid_out(b, right)).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ("f4", "f8", "i4"))
@pytest.mark.parametrize(
    ("left", "right"),
    [((7, 3, 3), (7, 3, 3)), ((2, 5, 4, 6), (2, 5, 6, 3)), ((5, 4, 6), (6, 3)), ((4, 6), (5, 6, 3)), ((6,), (5, 6, 3)),
     ((2, 1, 4, 6), (3, 6, 2)), ((2, 1, 4, 6), (1, 3, 6, 2)), ((0, 2, 2), (0, 2, 2)), ((3, 100, 90), (3, 90, 80))],
    ids=str,
)  # fmt: skip
def test_batches(left, right, dtype):
    a, b = ((rng.standard_normal(s) * 5).astype(dtype) for s in (left, right))
    found, wanted = multiply(a, b), a @ b
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    np.testing.assert_allclose(
        found, wanted, rtol=1e-5 if dtype == "f4" else 1e-12, atol=1e-4 if dtype == "f4" else 1e-12
    )
    flipped = multiply(a, np.swapaxes(np.ascontiguousarray(np.swapaxes(b, -1, -2)), -1, -2)) if b.ndim > 1 else found
    np.testing.assert_allclose(
        flipped, wanted, rtol=1e-4 if dtype == "f4" else 1e-12, atol=1e-4 if dtype == "f4" else 1e-12
    )


@pytest.mark.parametrize("dtype", ("f4", "f8"))
def test_bits_do_not_depend_on_layouts_of_batches(dtype):
    """Axes of the batch that no one loop serves are launches of their own."""
    sizes = ((9,), (3, 2, 9, 5)), ((4, 9), (3, 2, 9, 5)), ((3, 2, 4, 9), (3, 2, 9, 1)), ((2, 3, 1, 9), (9,))
    for left, right in sizes:
        a, b = (rng.standard_normal(s).astype(dtype) for s in (left, right))
        expected = multiply(a, b)
        np.testing.assert_allclose(expected, a @ b, rtol=1e-4, atol=1e-5)
        for x, y in ((a, b), (b, a)):
            if x.ndim < 4:
                continue
            moved = x.transpose(1, 0, 3, 2).copy().transpose(1, 0, 3, 2)
            found = multiply(moved, y) if x is a else multiply(y, moved)
            assert found.tobytes() == expected.tobytes()


def test_vectors_and_matrices():
    """Every shape up to 20, vectors in every place, against NumPy."""
    for m, k, n in itertools.product((1, 2, 7, 8, 9, 20), (0, 1, 3, 16, 40), (1, 2, 3, 8, 20)):
        a, b = operands((m, k, n), "f8")
        for x in (a, np.asfortranarray(a)):
            for y in (b, np.asfortranarray(b)):
                check(multiply(x, y), a, b)
        np.testing.assert_allclose(multiply(a[0], b), a[0] @ b, atol=1e-12)
        np.testing.assert_allclose(multiply(a, b[:, 0]), a @ b[:, 0], atol=1e-12)


def run_on(engine: CpuEngine, a: np.ndarray, b: np.ndarray) -> bytes:
    runtime = Runtime.builder().register_engine(engine).build()
    program = tn.jit(lambda a, b: a @ b).trace(a, b)
    prepared = runtime.prepare(program, signature_of(program), [target_of(engine)])
    return runtime.run([engine], prepared, [a, b]).outputs[0].tobytes()


@pytest.mark.parametrize("dtype", ("f4", "f8"))
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_bits_depend_on_no_machine(sizes, dtype):
    """Threads, and the width of vectors: 256 bits wherever there are 512, and 128 in the text."""
    a, b = operands(sizes, dtype)
    expected = multiply(a, b).tobytes()
    for n in (1, 2, 3, 8):
        with tn.threads(n):
            assert multiply(a, b).tobytes() == expected
    target = host_target()
    for bits in (256, 128):
        narrow = dataclasses.replace(target, vector_bits=bits)
        assert run_on(CpuEngine(7, target=narrow), a, b) == expected


def test_a_row_alone_and_in_a_batch():
    """A product of a batch has the bits of each alone; rows of one kernel have those of the same row elsewhere."""
    a, b = operands((40, 30, 20), "f4")
    batch = np.stack([a, a[::-1], a * 2])
    found = multiply(batch, np.stack([b, b, b]))
    for k in range(3):
        assert multiply(batch[k], b).tobytes() == found[k].tobytes()


def test_nan_infinity_and_zeros():
    a = np.array([[np.inf, 1.0], [np.nan, 0.0], [-0.0, 0.0]])
    b = np.array([[0.0, 2.0], [1.0, -1.0]])
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(multiply(a, b), a @ b)
    assert not np.signbit(multiply(np.zeros((2, 0)), np.zeros((0, 2)))).any()


def test_one_kernel_serves_every_size():
    f = tn.jit(lambda a, b: a @ b)
    for n in range(1, 30):
        f(np.ones((n, 2 * n)), np.ones((2 * n, n + 3)))
    assert f.cache_info().compiles == 1


def test_a_chain_of_products_is_one_block():
    """No Python between them: a native call serves the whole."""

    @tn.jit
    def mlp(x, w, b, v):
        return np.tanh(x @ w + b) @ v

    x, w, b, v = (rng.standard_normal(s) for s in ((4, 6), (6, 8), (8,), (8, 3)))
    for _ in range(5):
        found = mlp(x, w, b, v)
    np.testing.assert_allclose(found, np.tanh(x @ w + b) @ v, rtol=1e-12)
    assert mlp._shortcuts.hits > 0


def test_what_numpy_serves():
    for dtype in ("f2", "F", "D", "?"):
        assert not is_served(np.dtype(dtype))
        a = (rng.standard_normal((3, 4)) > 0).astype(dtype)
        np.testing.assert_array_equal(multiply(a, a.T.copy()), a @ a.T)


@pytest.mark.parametrize("bits", (128, 256, 512))
@pytest.mark.parametrize("dtype", DTYPES)
def test_texts_fill_registers(dtype, bits):
    form = registers(np.dtype(dtype), bits)
    assert BLOCK_ROWS % form.rows == 0
    assert block_columns(np.dtype(dtype)) % form.columns == 0
    assert "define void @packed" in ProductText(np.dtype(dtype), bits).text()
