"""Every pointwise row on every dtype that it accepts: machine code equals the NumPy builder in bits, and NumPy."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import pytest

from tenferro.tracer.errors import DtypeError
from tenferro.tracer.op import Op, Pointwise
from tenferro.tracer.ops import OPS, pointwise
from tenferro.tracer.program import ArrayType, Params
from tests.samples import without_sign
from tests.tracer.scalar.inputs import COMPLEX_NAMES
from tests.tracer.scalar.kernels import Array, compiled, evaluated
from tests.values import DTYPES
from tests.vocabulary import VOCABULARY

ROWS = {name: op for name, op in OPS.items() if isinstance(op.form, Pointwise)}
# The C library decides these in NumPy; they are compared with the true values in test_accuracy.
BY_TRUE_VALUE = {(name, kind) for name in COMPLEX_NAMES for kind in "fc"} | {
    (name, "f")
    for name in ("power", "erf", "erfinv", *(name for name, _, _, how in VOCABULARY if how in ("elementary", "larger")))
}


def samples(dtype: np.dtype[Any], seed: int = 0) -> Array:
    """Corner cases and a few ordinary values."""
    rng = np.random.default_rng(seed)
    match dtype.kind:
        case "b":
            return np.array([False, True])
        case "i" | "u":
            return _integers(dtype, rng)
        case "f":
            return _floats(dtype, rng)
        case _:
            info = np.finfo(dtype)
            parts = [0.0, -0.0, 1.0, -1.0, 2.5, -300.0, np.inf, -np.inf, np.nan]
            parts += [float(v) for v in (info.tiny, info.smallest_subnormal, info.max)]
            return np.array([complex(re, im) for re in parts for im in parts], dtype)


def _integers(dtype: np.dtype[Any], rng: np.random.Generator) -> Array:
    info = np.iinfo(dtype)
    near = [info.min, info.min + 1, info.max, info.max - 1, info.max // 2, info.max // 3, 0, 1, 2, 3, 7, 10]
    signed = [-1, -2, -3, -7] if dtype.kind == "i" else []
    return np.concatenate([np.array(near + signed, dtype), rng.integers(info.min, info.max, 12, dtype)])


def _floats(dtype: np.dtype[Any], rng: np.random.Generator) -> Array:
    info = np.finfo(dtype)
    near = [0.0, 1.0, 0.5, 1.5, 2.5, 3.0, 7.25, 100.7, 128.5, 300.0, 65519.0, 65520.0, 2.0**31 - 1, 2.0**31]
    near += [
        2.0**63,
        2.0**64,
        1e30,
        np.inf,
        *(float(v) for v in (info.tiny, info.smallest_subnormal, info.max, info.eps)),
    ]
    with np.errstate(over="ignore"):
        return np.array([s * v for v in near for s in (1, -1)] + [np.nan, *rng.normal(0, 1, 6)]).astype(dtype)


def accepted() -> list[tuple[str, str]]:
    found = []
    for name, op in ROWS.items():
        for dtype in DTYPES if name not in ("astype", "bitcast", "required") else ():
            types = [ArrayType(np.dtype(dtype), ())] * (arity(op) - (name == "where"))
            if name == "where":
                types.insert(0, ArrayType(np.dtype(np.bool_), ()))
            try:
                op.infer(types, Params())
            except DtypeError:
                continue
            found.append((name, dtype))
    return found


def arity(op: Op) -> int:
    assert isinstance(op.form, Pointwise)
    return len([p for p in inspect.signature(op.form.scalar).parameters if p not in ("b", "dtype")])


def operands(op: Op, dtype: np.dtype[Any]) -> tuple[Array, ...]:
    """All pairs of samples; complex pairs are thinned out."""
    x = samples(dtype)
    count = arity(op)
    if count == 1:
        return (x,)
    rng = np.random.default_rng(1)
    y = rng.permutation(x)[:24] if len(x) > 60 else x
    pair = tuple(np.ascontiguousarray(v.ravel()) for v in np.meshgrid(x, y))
    if op.name == "power":
        pair = pair[0], without_sign(pair[1])
    if op.name == "fma":
        return (*pair, rng.permutation(pair[0]))
    return pair if count == 2 else (rng.integers(0, 2, len(pair[0])).astype(bool), *pair)


def same_bits(x: Array, y: Array) -> Array:
    """Element by element; all NaNs count as one value."""
    if x.dtype.kind == "c":
        found: Array = same_bits(x.real, y.real) & same_bits(x.imag, y.imag)
        return found
    if x.dtype.kind != "f":
        return np.equal(x, y)
    return np.asarray(((x == y) & (np.signbit(x) == np.signbit(y))) | (np.isnan(x) & np.isnan(y)))


def assert_same(got: Array, expected: Array, arguments: tuple[Array, ...], agrees: Array | None = None) -> None:
    assert got.dtype == expected.dtype
    wrong = np.flatnonzero(~(same_bits(got, expected) if agrees is None else agrees))
    if len(wrong):
        i = wrong[0]
        raise AssertionError(
            f"{len(wrong)} of {len(got)}: {[x[i] for x in arguments]} gave {got[i]!r}, not {expected[i]!r}"
        )


@pytest.mark.parametrize(("name", "dtype"), accepted())
def test_machine_code_and_numpy_builder_and_numpy_agree(name: str, dtype: str) -> None:
    op = ROWS[name]
    assert isinstance(op.form, Pointwise)
    arguments = operands(op, np.dtype(dtype))
    got = compiled(op.form.scalar, [x.dtype for x in arguments], level=0)(*arguments)
    assert_same(evaluated(op.form.scalar, *arguments), got, arguments)
    if (name, np.dtype(dtype).kind) in BY_TRUE_VALUE:
        return
    with np.errstate(all="ignore"):
        expected = np.asarray(op.reference(*arguments))
    assert_same(got, expected, arguments, agreement(name, got, expected, arguments))


def agreement(name: str, got: Array, expected: Array, arguments: tuple[Array, ...]) -> Array:
    """Equal bits but for what NumPy leaves open: the sign of a zero maximum, fma in its complex products, its hypot."""
    equal: Array = same_bits(got, expected)
    if name in ("maximum", "minimum") and got.dtype.kind == "f":
        equal |= (got == 0) & (expected == 0)
    if got.dtype.kind == "c" and name in ("multiply", "tangent_product", "tangent_pair"):
        x, y = arguments
        with np.errstate(all="ignore"):
            equal |= product_error(got, x, y) <= 2 * np.finfo(got.real.dtype).eps
            finite = np.isfinite(x) & np.isfinite(y) & np.isfinite(got)
        return equal | ~finite  # with infinite products fma and plain sums differ freely
    if arguments[0].dtype.kind == "c" and name == "absolute":
        equal |= np.isclose(got, expected, rtol=2 * np.finfo(got.dtype).eps, atol=0)
    return equal


def product_error(got: Array, x: Array, y: Array) -> Array:
    """Against the sum of the sizes of the products, which is what rounding is relative to."""
    x, y = x.astype(np.clongdouble), y.astype(np.clongdouble)
    size = np.maximum(
        np.abs(x.real * y.real) + np.abs(x.imag * y.imag), np.abs(x.real * y.imag) + np.abs(x.imag * y.real)
    )
    error = np.maximum(np.abs(got.real - (x * y).real), np.abs(got.imag - (x * y).imag))
    return np.asarray(error / np.maximum(size, np.finfo(got.real.dtype).tiny))


@pytest.mark.parametrize("target", DTYPES)
@pytest.mark.parametrize("source", DTYPES)
def test_astype(source: str, target: str) -> None:
    op, dtype = pointwise.astype, np.dtype(target)
    assert isinstance(op.form, Pointwise)
    scalar = op.form.scalar
    x = samples(np.dtype(source))
    got = compiled(lambda b, v: scalar(b, v, dtype), [x.dtype], level=0)(x)
    assert_same(evaluated(lambda b, v: scalar(b, v, dtype), x), got, (x,))
    assert_same(got, np.asarray(op.reference(x, dtype=dtype)), (x,))


@pytest.mark.parametrize("source", [d for d in DTYPES if np.dtype(d).kind != "c"])
def test_bitcast(source: str) -> None:
    op, x = pointwise.bitcast, samples(np.dtype(source))
    assert isinstance(op.form, Pointwise)
    scalar = op.form.scalar
    for target in (d for d in map(np.dtype, DTYPES) if d.kind != "c" and d.itemsize == x.itemsize):
        got = compiled(lambda b, v, d=target: scalar(b, v, d), [x.dtype], level=0)(x)
        assert_same(evaluated(lambda b, v, d=target: scalar(b, v, d), x), got, (x,))
        assert_same(got, np.asarray(op.reference(x, dtype=target)), (x,))


def test_float64_rounds_to_float16_once() -> None:
    """Around every midpoint of float16, by offsets that float32 would round away."""
    halves = np.arange(0x7BFF, dtype=np.uint16).view(np.float16).astype(np.float64)
    middle = (halves + np.append(halves[1:], 65536.0)) / 2
    x = np.concatenate([middle, np.nextafter(middle, np.inf), np.nextafter(middle, 0)])
    x = np.concatenate([x, -x])
    assert isinstance(pointwise.astype.form, Pointwise)
    scalar = pointwise.astype.form.scalar
    got = compiled(lambda b, v: scalar(b, v, np.dtype(np.float16)), [x.dtype])(x)
    with np.errstate(over="ignore"):
        assert_same(got, x.astype(np.float16), (x,))
