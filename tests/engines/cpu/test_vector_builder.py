"""The native operations as LLVM text: each against the NumPy builder on every dtype, at one and at many lanes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tenferro.engines.cpu.vector_builder import ModuleText, Vec, VectorBuilder, apply, constant_text
from tenferro.tracer.ops import pointwise, reductions
from tenferro.tracer.scalar.builder import BOOL, F16, F32, F64, I32, I64, U8, U64, Builder, CallSize, Value
from tests.tracer.scalar.kernels import compiled, evaluated
from tests.tracer.scalar.test_ops import assert_same, samples
from tests.values import of_kinds

INTEGERS, FLOATS = of_kinds("iu"), ("float32", "float64")
NUMBERS = INTEGERS + FLOATS
BINARY = {
    "add": NUMBERS, "sub": NUMBERS, "mul": NUMBERS, "div": FLOATS, "copysign": FLOATS, "lt": ("bool", *NUMBERS),
    "le": ("bool", *NUMBERS), "eq": ("bool", *NUMBERS), "ne": ("bool", *NUMBERS), "and_": ("bool", *INTEGERS),
    "or_": ("bool", *INTEGERS), "xor": ("bool", *INTEGERS),
}  # fmt: skip
UNARY = {
    "neg": NUMBERS, "abs": NUMBERS, "sqrt": FLOATS, "floor": FLOATS, "ceil": FLOATS, "trunc": FLOATS, "rint": FLOATS,
    "not_": ("bool", *INTEGERS), "popcount": INTEGERS, "clz": INTEGERS,
}  # fmt: skip


def cases(table: dict[str, tuple[str, ...]]) -> list[tuple[str, str]]:
    return [(name, dtype) for name, dtypes in table.items() for dtype in dtypes]


def native(name: str) -> Callable[..., Any]:
    return lambda b, *values: getattr(b, name)(*values)


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("name", "dtype"), cases(UNARY))
def test_unary(name: str, dtype: str, lanes: int) -> None:
    x = samples(np.dtype(dtype))
    assert_same(compiled(native(name), [x.dtype], lanes, 0)(x), evaluated(native(name), x), (x,))


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("name", "dtype"), cases(BINARY))
def test_binary(name: str, dtype: str, lanes: int) -> None:
    s = samples(np.dtype(dtype))
    x, y = (v.ravel() for v in np.meshgrid(s, s))
    assert_same(compiled(native(name), [x.dtype] * 2, lanes, 0)(x, y), evaluated(native(name), x, y), (x, y))


@pytest.mark.parametrize("lanes", [1, 32])
@pytest.mark.parametrize("dtype", FLOATS)
def test_fma(dtype: str, lanes: int) -> None:
    """All triples of corner values, and products that nearly cancel the third operand."""
    rng = np.random.default_rng(0)
    s = samples(np.dtype(dtype))[::3]
    x, y, z = (v.ravel() for v in np.meshgrid(s, s, s))
    a, b = (rng.normal(0, 1, 4000).astype(dtype) for _ in "ab")
    near = -(a * b) * (1 + rng.integers(-2, 3, 4000) * np.finfo(dtype).eps).astype(dtype)
    x, y, z = np.append(x, a), np.append(y, b), np.append(z, near)
    assert_same(compiled(native("fma"), [x.dtype] * 3, lanes, 0)(x, y, z), evaluated(native("fma"), x, y, z), (x, y, z))


@pytest.mark.parametrize("dtype", INTEGERS)
def test_shifts_by_every_amount(dtype: str) -> None:
    s = samples(np.dtype(dtype))
    x, n = (v.ravel() for v in np.meshgrid(s, np.arange(8 * s.itemsize, dtype=s.dtype)))
    for name in ("shl", "shr"):
        assert_same(compiled(native(name), [x.dtype] * 2, 8, 0)(x, n), evaluated(native(name), x, n), (x, n))


@pytest.mark.parametrize("dtype", ["bool", *NUMBERS, "float16"])
def test_select_and_constants(dtype: str) -> None:
    kind = np.dtype(dtype)
    x = samples(kind)
    condition = np.arange(len(x)) % 2 == 0
    for value in x[::4]:
        constant = value.item()
        got = compiled(lambda b, c, v: b.select(c, v, b.const(constant, kind)), [BOOL, kind], 8, 0)(condition, x)  # noqa: B023
        assert_same(got, np.where(condition, x, value), (condition, x))


CONVERSIONS = [(s, t) for s in ("bool", *NUMBERS) for t in NUMBERS if s != t] + [
    ("float16", "float32"),
    ("float32", "float16"),
]


@pytest.mark.parametrize("lanes", [1, 16])
@pytest.mark.parametrize(("source", "target"), CONVERSIONS)
def test_convert(source: str, target: str, lanes: int) -> None:
    x, kind = samples(np.dtype(source)), np.dtype(target)
    if x.dtype.kind == "f" and kind.kind in "iu":
        info = np.iinfo(kind)
        x = x[np.isfinite(x)]
        x = x[(np.trunc(x) >= float(info.min)) & (np.trunc(x) < float(int(info.max) + 1))]
    got = compiled(lambda b, v: b.convert(v, kind), [x.dtype], lanes, 0)(x)
    assert_same(got, evaluated(lambda b, v: b.convert(v, kind), x), (x,))


@pytest.mark.parametrize("lanes", [1, 8, 32])
@pytest.mark.parametrize("index", [I32, I64])
@pytest.mark.parametrize("size", [6, 16, 17])
@pytest.mark.parametrize("dtype", [F32, F64, U64, I32])
def test_lookup(dtype: np.dtype[Any], size: int, index: np.dtype[Any], lanes: int) -> None:
    """Up to sixteen 8-byte values are permuted in registers where the machine can."""
    table = (1, 5, 2**31 - 1, 7, 0, 9, *range(100, 111))[:size]
    i = np.random.default_rng(0).permutation(np.resize(np.arange(size), 70)).astype(index)
    got = compiled(lambda b, v: b.lookup(table, dtype, v), [index], lanes, 0)(i)
    assert_same(got, np.array(table, dtype)[i], (i,))


@pytest.mark.parametrize("lanes", [1, 8, 32])
def test_if_any_takes_the_slow_path_for_whole_vectors(lanes: int) -> None:
    """The paths differ here on purpose: which one ran shows."""

    def function(b: Builder, x: Value) -> Value:
        rare = b.lt(b.const(100.0, F32), x)
        first, _ = b.if_any(rare, lambda: (b.add(x, b.const(1.0, F32)), x), lambda: (x, x))
        return first

    x = np.arange(128, dtype=np.float32)
    vectors = x.reshape(-1, lanes)
    expected = np.where((vectors > 100).any(1, keepdims=True), vectors + 1, vectors).ravel()
    assert_same(compiled(function, [F32], lanes, 2)(x), expected, (x,))


@pytest.mark.parametrize("size", ["usual", "rare", "compact"])
@pytest.mark.parametrize("lanes", [1, 8, 32])
def test_while_any_runs_each_lane_its_own_number_of_times(lanes: int, size: CallSize) -> None:
    """Collatz: steps until 1."""

    def steps(b: Builder, x: Value) -> tuple[Value, Value]:
        one = b.const(1, I64)

        def body(v: Value, count: Value) -> tuple[Value, Value]:
            odd = b.eq(b.and_(v, one), one)
            following = b.select(odd, b.add(b.mul(v, b.const(3, I64)), one), b.shr(v, one))
            going = b.lt(one, v)
            return b.select(going, following, v), b.select(going, b.add(count, one), count)

        end, count = b.while_any(lambda v, _: b.lt(one, v), body, x, b.const(0, I64))
        return end, count

    x = np.arange(1, 65)
    expected = [0]
    for n in x.tolist()[1:]:
        count = 0
        while n > 1:
            n, count = (3 * n + 1 if n % 2 else n // 2), count + 1
        expected.append(count)
    got = compiled(lambda b, v: b.call("steps", steps, v, size=size)[1], [I64], lanes, 0)(x)
    assert got.tolist() == expected


def test_calls_share_one_function_per_dtype() -> None:
    module = ModuleText()
    b = VectorBuilder(module, 8, outline=True)
    square = lambda inner, v: inner.mul(v, v)  # noqa: E731
    for dtype in (F32, F32, F64):
        b.call("square", square, Vec("%x", dtype))
    assert [line.split("(")[0].split()[-1] for line in module.functions] == ["@square.float32.x8", "@square.float64.x8"]
    assert sum("call fastcc" in line for line in b.lines) == 3


def test_tables_are_shared() -> None:
    module = ModuleText()
    b = VectorBuilder(module, 1)
    for table in ((1, 2), (1, 2), (1, 3)):
        b.lookup(table, I32, Vec("%i", I32))
    assert len(module.table_lines) == 2


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (1.0, F32, "0x3FF0000000000000"), (0.1, F32, "0x3FB99999A0000000"), (-0.0, F64, "0x8000000000000000"),
        (float("inf"), F32, "0x7FF0000000000000"), (1e60, F32, "0x7FF0000000000000"), (1.5, F16, "0xH3E00"),
        (5e-324, F64, "0x0000000000000001"), (True, BOOL, "true"), (-1, I32, "-1"), (255, U8, "255"),
    ],
)  # fmt: skip
def test_constant_text(value: float, dtype: np.dtype[Any], text: str) -> None:
    assert constant_text(value, dtype) == text


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda b: b.div(Vec("%x", I32), Vec("%y", I32)), "div: dtype int32"),
        (lambda b: b.fma(*[Vec("%x", F16)] * 3), "fma: dtype float16"),
        (lambda b: b.convert(Vec("%x", F64), F16), "convert: float64 to float16"),
        (lambda b: b.convert(Vec("%x", F16), I32), "convert: float16 to int32"),
        (lambda b: b.convert(Vec("%x", I32), F16), "convert: int32 to float16"),
        (lambda b: b.convert(Vec("%x", I32), BOOL), "convert: int32 to bool"),
        (lambda b: b.if_any(Vec("%c", BOOL), lambda: Vec("%x", I32), lambda: Vec("%y", F32)), "if_any: the paths give"),
        (lambda b: apply(b, reductions.sum_, {}, [Vec("%x", F32)]), "sum: form Reduction"),
    ],
)
def test_what_no_engine_has_is_refused(function: Callable[[VectorBuilder], Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        function(VectorBuilder(ModuleText(), 8))


def test_apply_calls_the_row_with_its_params() -> None:
    b = VectorBuilder(ModuleText(), 4)
    x = Vec("%x", F32)
    assert apply(b, pointwise.add, {}, [x, x]).dtype == F32
    assert apply(b, pointwise.astype, {"dtype": F64}, [x]).dtype == F64
    assert b.lines == [
        "  %v1 = fadd <4 x float> %x, %x",
        "  %v2 = fpext <4 x float> %x to <4 x double>",
    ]
