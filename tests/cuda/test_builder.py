"""CUDA C texts by themselves: constants, refusals, names, divisors; nothing here needs a compiler."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tenferro.engines.cpu.layout import Strided
from tenferro.engines.cuda.builder import CudaBuilder, Parts, Val, c_type, constant_text
from tenferro.engines.cuda.code import Code
from tenferro.engines.cuda.launch import Bound, Device, EmptyRowsError, bind_region
from tenferro.engines.cuda.params import divisor
from tenferro.tracer.dims import evaluate_shape
from tenferro.tracer.scalar.builder import BOOL, F16, F32, F64, I32, I64, U8
from tests.cuda.cases import op_case
from tests.samples import Sample
from tests.values import DTYPES


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.1, "float32", "0x1.99999a0000000p-4f"),
        (-0.0, "float64", "(-0x0.0p+0)"),
        (np.inf, "float32", "__int_as_float(0x7f800000)"),
        (np.nan, "float64", "__longlong_as_double(0x7ff8000000000000ll)"),
        (1e300, "float32", "__int_as_float(0x7f800000)"),
        (1.0, "float16", "((unsigned short)0x3c00)"),
        (-1, "uint8", "((unsigned char)255u)"),
        (-(2**63), "int64", "(-9223372036854775807ll - 1)"),
        (2**64 - 1, "uint64", "18446744073709551615ull"),
        (-(2**31), "int32", "(-2147483647 - 1)"),
        (True, "bool", "true"),
    ],
)
def test_constant(value: float, dtype: str, text: str) -> None:
    assert constant_text(value, np.dtype(dtype)) == text


def _builder() -> CudaBuilder:
    return CudaBuilder(Parts(), Code())


@pytest.mark.parametrize(
    ("source", "target"),
    [(F16, F64), (F64, F16), (I32, F16), (F16, I32), (F32, BOOL), (I64, BOOL)],
)
def test_conversions_outside_the_contract_are_refused(source: np.dtype, target: np.dtype) -> None:
    with pytest.raises(TypeError, match="convert"):
        _builder().convert(Val("x", source), target)


def test_operations_outside_the_contract_are_refused() -> None:
    b, half, whole = _builder(), Val("h", F16), Val("i", I32)
    for call in (
        lambda: b.add(half, half), lambda: b.lt(half, half), lambda: b.sqrt(half), lambda: b.fma(half, half, half),
        lambda: b.div(whole, whole), lambda: b.bitcast(whole, F64), lambda: b.floor(half),
    ):  # fmt: skip
        with pytest.raises(TypeError):
            call()


def test_every_dtype_has_a_type() -> None:
    real = [np.dtype(d) for d in DTYPES if not d.startswith("complex")]
    assert len({(c_type(d), d.kind) for d in real}) == len(real)


def test_equal_functions_are_written_once() -> None:
    b = _builder()
    for _ in range(2):
        b.call("twice", lambda inner, x: inner.add(x, x), Val("x", F32))
    b.call("twice", lambda inner, x: inner.add(x, x), Val("x", U8))
    b.call("pair", lambda inner, x: (x, inner.neg(x)), Val("x", F32), size="rare")
    assert list(b.parts.functions) == ["tn_twice_f32", "tn_twice_u8", "tn_pair_f32"]
    assert "__noinline__ tn_pair_f32_result tn_pair_f32" in b.parts.functions["tn_pair_f32"]


def test_divisor() -> None:
    rng = np.random.default_rng(0)
    sizes = [1, 2, 3, 5, 7, 255, 256, 257, 641, 65_537, 2**30, 2**31 - 1, *rng.integers(1, 2**31, 200).tolist()]
    for d in sizes:
        multiplier, shift = divisor(d)
        assert multiplier < 1 << 32 and shift < 32
        for n in {0, 1, d - 1, d, min(2 * d - 1, 2**31 - 1), 2**31 - 1, *rng.integers(0, 2**31, 20).tolist()}:
            assert (((n * multiplier) >> 32) + n) >> shift == n // d
    assert divisor(0) == divisor(1 << 31) == (0, 0)


def _bound(name: str, x: np.ndarray, params: dict[str, Any], alignment: int = 256) -> Bound | None:
    case = op_case(name, Sample((x,), params))
    (region,) = case.plan.regions
    target = region.stores[0].slot
    shape = evaluate_shape(case.plan.program.slot_types()[target].shape, {})
    out = np.empty(shape, region.nodes[region.stores[0].node].dtype)
    slots = {region.reads()[0]: Strided(0, x.shape, x.strides), target: Strided(0, out.shape, out.strides)}
    sizes = {region.reads()[0]: x.itemsize, target: out.itemsize}
    return bind_region(region, slots, sizes, dict.fromkeys(slots, alignment), {}, Device())


@pytest.mark.parametrize(
    ("shape", "dtype", "alignment", "vector"),
    [
        ((4096,), "float32", 256, 4), ((4097,), "float32", 16, 4), ((4096,), "float64", 16, 2),
        ((4096,), "int16", 16, 8), ((4096,), "int8", 8, 8), ((4096,), "complex128", 16, 1),
        ((4096,), "float32", 4, 0), ((4096,), "float32", 8, 0),
    ],
)  # fmt: skip
def test_vectors_need_alignment(shape: tuple[int, ...], dtype: str, alignment: int, vector: int) -> None:
    bound = _bound("negative", np.zeros(shape, dtype), {}, alignment)
    assert bound is not None
    assert bound.key.variant.vector == vector
    assert bound.launches[0].grid == -(-shape[0] // (256 * max(1, vector)))


def test_largest_of_no_elements_is_refused() -> None:
    params = {"axes": (1,), "keepdims": False}
    with pytest.raises(EmptyRowsError) as error:
        _bound("max", np.zeros((3, 0), np.float32), params)
    assert error.value.operation == 0


def test_nothing_to_compute_has_no_launch() -> None:
    assert _bound("negative", np.zeros((3, 0), np.float32), {}) is None
    assert _bound("sum", np.zeros((0, 3), np.float32), {"axes": (1,), "keepdims": False}) is None


def test_limits_of_devices_are_kept() -> None:
    """Threads of a block, its shared memory, and the grid's width, for every schedule."""
    for shape, axes in (((50, 9), (1,)), ((2, 90_000), (1,)), ((900, 40_000), (1,)), ((90_000, 40), (0,))):
        for dtype in (np.float32, np.float64):
            bound = _bound("sum", np.broadcast_to(dtype(1), shape), {"axes": axes, "keepdims": False})
            assert bound is not None
            for launch in bound.launches:
                assert launch.block[0] * launch.block[1] <= 1024 and launch.shared <= 48 << 10
                assert 1 <= launch.grid < 1 << 31
