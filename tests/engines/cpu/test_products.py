"""Matrix products: values, layouts, sizes, and bits that depend on nothing but sizes and strides."""

from __future__ import annotations

import dataclasses
import itertools

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu.engine import CpuEngine
from tenferro.engines.cpu.product import Entry
from tenferro.engines.cpu.product_writer import BLOCK_BYTES, BLOCK_DEPTH, most_columns, most_rows, registers
from tenferro.engines.cpu.toolchain import host_target
from tenferro.runtime import Runtime, signature_of, target_of

pytestmark = pytest.mark.filterwarnings("ignore::tenferro.tracer.errors.RecompileWarning")
SIZES = (
    (1, 1, 1), (2, 3, 4), (8, 8, 8), (5, 7, 3), (3, 3, 1), (17, 1, 33), (5, 0, 4), (0, 3, 4), (4, 3, 0), (1, 784, 512),
    (300, 300, 1), (3, 1000, 2), (1, 1000, 1), (97, 257, 65), (64, 64, 64), (13, 40, 100), (100, 300, 17),
    (9, 600, 300), (193, 513, 131), (1, 40, 3), (1, 41, 20), (50, 43, 1), (2, 300, 1), (25, 30, 33), (61, 300, 10),
    (40, 300, 2), (37, 41, 3), (3, 301, 40), (4, 100, 64), (70, 33, 4), (2, 2, 90), (300, 300, 10), (290, 257, 20),
)  # fmt: skip
DTYPES = ("f2", "f4", "f8", "F", "D", "?", "i1", "i4", "i8", "u2", "u8")
rng = np.random.default_rng(0)
multiply = tn.jit(lambda a, b: a @ b)


def operands(sizes: tuple[int, int, int], dtype: str) -> tuple[np.ndarray, np.ndarray]:
    m, k, n = sizes
    a, b = (numbers(s, dtype) for s in ((m, k), (k, n)))
    return a, b


def numbers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """Around 5; bools are mostly False, so that a product has both."""
    real = rng.standard_normal(shape) * 5
    match np.dtype(dtype).kind:
        case "c":
            return (real + 5j * rng.standard_normal(shape)).astype(dtype)
        case "b":
            return real > 7
        case _:
            return real.astype(dtype)


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
    Numerical Algorithms, 2002, eq. 3.5, and for complex numbers section 3.6); float16 has that of float32, and one
    rounding."""
    wanted = a @ b
    assert found.dtype == wanted.dtype and found.shape == wanted.shape
    if a.dtype.kind in "biu":
        assert np.array_equal(found, wanted)
        return
    is_half, wide = a.dtype == np.float16, np.clongdouble if a.dtype.kind == "c" else np.longdouble
    wide_a, wide_b = a.astype(wide), b.astype(wide)
    terms = (a.shape[-1] + 1) * (2 if a.dtype.kind == "c" else 1)
    bound = np.finfo(np.float32 if is_half else a.dtype).eps * terms * (np.abs(wide_a) @ np.abs(wide_b))
    if is_half:
        bound += np.finfo(np.float16).eps * np.abs(wide_a @ wide_b) + np.finfo(np.float16).smallest_subnormal
    assert (np.abs(found - wide_a @ wide_b) <= bound).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_values(sizes, dtype):
    a, b = operands(sizes, dtype)
    expected = multiply(a, b)
    check(expected, a, b)
    for left, right in itertools.product(("c", "f", "every other", "reversed"), repeat=2):
        assert multiply(laid_out(a, left), laid_out(b, right)).tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ("f2", "f4", "f8", "F", "D", "i4"))
@pytest.mark.parametrize(
    ("left", "right"),
    [((7, 3, 3), (7, 3, 3)), ((2, 5, 4, 6), (2, 5, 6, 3)), ((5, 4, 6), (6, 3)), ((4, 6), (5, 6, 3)), ((6,), (5, 6, 3)),
     ((2, 1, 4, 6), (3, 6, 2)), ((2, 1, 4, 6), (1, 3, 6, 2)), ((0, 2, 2), (0, 2, 2)), ((3, 100, 90), (3, 90, 80))],
    ids=str,
)  # fmt: skip
def test_batches(left, right, dtype):
    a, b = (numbers(s, dtype) for s in (left, right))
    found, wanted = multiply(a, b), a @ b
    assert found.shape == wanted.shape and found.dtype == wanted.dtype
    near = {"f2": 1e-3, "f4": 1e-4, "F": 1e-4}.get(dtype, 1e-12)
    np.testing.assert_allclose(found, wanted, rtol=near, atol=near)
    flipped = multiply(a, np.swapaxes(np.ascontiguousarray(np.swapaxes(b, -1, -2)), -1, -2)) if b.ndim > 1 else found
    assert flipped.tobytes() == found.tobytes()


@pytest.mark.parametrize("dtype", ("f4", "f8", "F"))
def test_bits_do_not_depend_on_layouts_of_batches(dtype):
    """Axes of the batch that no one loop serves are launches of their own."""
    sizes = ((9,), (3, 2, 9, 5)), ((4, 9), (3, 2, 9, 5)), ((3, 2, 4, 9), (3, 2, 9, 1)), ((2, 3, 1, 9), (9,))
    for left, right in sizes:
        a, b = (numbers(s, dtype) for s in (left, right))
        expected = multiply(a, b)
        np.testing.assert_allclose(expected, a @ b, rtol=1e-4, atol=1e-4)
        for x, y in ((a, b), (b, a)):
            if x.ndim < 4:
                continue
            moved = x.transpose(1, 0, 3, 2).copy().transpose(1, 0, 3, 2)
            found = multiply(moved, y) if x is a else multiply(y, moved)
            assert found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("dtype", ("f4", "f8", "F", "D"))
def test_vectors_and_matrices(dtype):
    """Shapes up to 40, vectors in every place and layout, against NumPy; one layout's bits are those of another."""
    for m, k, n in itertools.product((1, 2, 7, 8, 9, 40), (0, 1, 3, 16, 41), (1, 2, 3, 8, 37)):
        a, b = operands((m, k, n), dtype)
        expected = multiply(a, b)
        check(expected, a, b)
        for left, right in itertools.product(("c", "f", "every other"), repeat=2):
            assert multiply(laid_out(a, left), laid_out(b, right)).tobytes() == expected.tobytes()
        for x, y in ((a[0], b), (a, b[:, 0])):
            np.testing.assert_allclose(multiply(x, y), x @ y, rtol=1e-4, atol=1e-12 if a.dtype.char in "dD" else 1e-3)


def run_on(engine: CpuEngine, a: np.ndarray, b: np.ndarray) -> bytes:
    runtime = Runtime.builder().register_engine(engine).build()
    program = tn.jit(lambda a, b: a @ b).trace(a, b)
    prepared = runtime.prepare(program, signature_of(program), [target_of(engine)])
    return runtime.run([engine], prepared, [a, b]).outputs[0].tobytes()


@pytest.mark.parametrize("dtype", ("f2", "f4", "f8", "F", "D", "?", "i2"))
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


def test_batches_of_many_strides():
    """Loops over a batch that strides keep apart, in any number: one launch."""
    for left, right in (
        ((5, 3, 7, 4, 6), (5, 3, 7, 6, 3)),
        ((2, 1, 3, 1, 9), (1, 4, 3, 9, 2)),
        ((3, 1, 2, 4, 5), (5, 7)),
    ):
        a, b = numbers(left, "f8"), numbers(right, "f8")
        expected = multiply(a, b)
        np.testing.assert_allclose(expected, a @ b, rtol=1e-12, atol=1e-12)
        for order in itertools.permutations(range(len(left) - 2)):
            back = [*np.argsort(order), len(left) - 2, len(left) - 1]
            moved = a.transpose(*order, -2, -1).copy().transpose(back)
            assert multiply(moved, b).tobytes() == expected.tobytes()


def test_float16_is_rounded_once():
    """NumPy's own kernel for float16 adds in float32 too, in order: where that is a chain, bits are NumPy's."""
    for sizes in ((5, 7, 9), (64, 600, 64), (1, 50, 40), (40, 50, 1), (200, 300, 200)):
        a, b = operands(sizes, "f2")
        assert multiply(a, b).tobytes() == (a @ b).tobytes()
    ones = np.ones((1, 4096), np.float16)  # 2049 is no float16
    assert multiply(ones[:, :2049], ones[:, :2049].T)[0, 0] == np.float16(2049)
    assert np.isinf(multiply(ones * 16, ones.T)[0, 0])  # 65536
    assert multiply(ones * 16, np.where(np.arange(4096) < 2048, 1, -1).astype(np.float16)[:, None])[0, 0] == 0


def test_bytes_of_bools():
    """Any byte but 0 is True."""
    a = np.array([[0, 2, 0], [0, 0, 4]], np.uint8).view(bool)
    b = np.array([[1], [1], [0]], np.uint8).view(bool)
    np.testing.assert_array_equal(multiply(a, b), [[True], [False]])
    wide = np.zeros((40, 40), np.uint8)
    wide[3, 5] = 8
    np.testing.assert_array_equal(
        multiply(wide.view(bool), np.ones((40, 40), bool)), (wide > 0).any(1, keepdims=True) & np.ones(40, bool)
    )


@pytest.mark.parametrize("bits", (128, 256, 512))
@pytest.mark.parametrize("dtype", DTYPES)
def test_texts_fill_registers(dtype, bits):
    kind = np.dtype(dtype)
    form = registers(kind, bits)
    assert most_rows(kind, form) % form.rows == 0 < most_rows(kind, form)
    assert most_columns(kind, form) % form.columns == 0 < most_columns(kind, form)
    assert most_rows(kind, form) * BLOCK_DEPTH * kind.itemsize <= BLOCK_BYTES
    assert "define void @packed" in Entry(kind, "packed").text(bits)
