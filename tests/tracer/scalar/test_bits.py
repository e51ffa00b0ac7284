"""One definition, equal bits: at every number of lanes, code generation level, machine width, inlined or called, and in
the NumPy builder, which shares no code with LLVM."""

from __future__ import annotations

import platform
import re
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from tenferro.engines.cpu.toolchain import Target, host_target
from tenferro.tracer import scalar
from tenferro.tracer.scalar.builder import BOOL, Builder, Value
from tests.tracer.scalar.inputs import NAMES, complex_classes, function, input_classes
from tests.tracer.scalar.kernels import Array, compiled, evaluated, kernel_text
from tests.tracer.scalar.test_ops import ROWS, accepted, arity, assert_same, operands
from tests.vocabulary import UNARY

CASES = [(name, dtype) for name in NAMES for dtype in ("float16", "float32", "float64")]
CASES += [(name, dtype) for name in ("exp", "log", "tanh") for dtype in ("complex64", "complex128")]
MORE = [(name, dtype) for name in UNARY for dtype in ("float16", "float32", "float64")]


@cache
def arguments(name: str, dtype: str) -> Array:
    """Rare and ordinary values mixed, so that vectors of both kinds and of one kind occur."""
    kind = np.dtype(dtype)
    classes = complex_classes(name, kind, 100) if kind.kind == "c" else input_classes(name, kind, 300)
    x = np.concatenate([*classes.values(), np.array([np.nan, np.inf, -np.inf, 0.0, -0.0], dtype)])
    return np.concatenate([x, np.random.default_rng(0).permutation(x)])


@cache
def expected(name: str, dtype: str) -> Array:
    return evaluated(function(name), arguments(name, dtype))


@pytest.mark.parametrize("level", [0, 2])
@pytest.mark.parametrize("lanes", [1, 4, 8, 16, 32, 64])
@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_lanes_and_levels(name: str, dtype: str, lanes: int, level: int) -> None:
    x = arguments(name, dtype)
    assert_same(compiled(function(name), [x.dtype], lanes, level)(x), expected(name, dtype), (x,))


@pytest.mark.parametrize(("lanes", "level"), [(1, 2), (8, 0), (64, 2)])
@pytest.mark.parametrize(("name", "dtype"), MORE)
def test_lanes_and_levels_of_more(name: str, dtype: str, lanes: int, level: int) -> None:
    x = arguments(name, dtype)
    assert_same(compiled(function(name), [x.dtype], lanes, level)(x), expected(name, dtype), (x,))


@pytest.mark.parametrize(("name", "dtype"), CASES + MORE)
def test_called_as_functions(name: str, dtype: str) -> None:
    """Twice in one kernel, so that the second use calls the function that the first one made."""
    x = arguments(name, dtype)

    def both(b: Builder, v: Value) -> Value:
        first, second = function(name)(b, v), function(name)(b, v)
        return scalar.where(b, b.const(True, BOOL), first, second)

    twice = compiled(both, [x.dtype], outline=True)
    symbol = f"@complex_{name}." if x.dtype.kind == "c" else f"@{name}."
    made = [line for line in twice.text.splitlines() if line.startswith("define internal") and symbol in line]
    assert len(made) == (symbol != "@sqrt.")  # an instruction
    assert_same(twice(x), expected(name, dtype), (x,))


def narrower_targets() -> list[Target]:
    """x86-64 machines of 256 bits without and with AVX-512 instructions; none elsewhere."""
    if platform.machine().lower() not in ("x86_64", "amd64"):
        return []
    features = "+avx2,+fma,+f16c,+bmi,+bmi2,+popcnt,+lzcnt,+movbe"
    host = host_target()
    wide = host.features.replace(",-prefer-256-bit", ",+prefer-256-bit")
    return [Target("x86-64-v3", features, 256), Target(host.cpu, wide, 256)]


@pytest.mark.parametrize("target", narrower_targets(), ids=lambda t: t.cpu)
@pytest.mark.parametrize(("name", "dtype"), CASES + MORE)
def test_narrower_machines(name: str, dtype: str, target: Target) -> None:
    """Loading the object also shows that no function of the C library is called there."""
    x = arguments(name, dtype)
    assert_same(compiled(function(name), [x.dtype], level=0, target=target)(x), expected(name, dtype), (x,))


@pytest.mark.parametrize(("lanes", "level"), [(1, 2), (16, 0), (64, 2)])
@pytest.mark.parametrize(("name", "dtype"), [c for c in accepted() if c not in CASES and c[0] not in NAMES])
def test_every_row(name: str, dtype: str, lanes: int, level: int) -> None:
    op = ROWS[name]
    function: Callable[..., Any] = op.form.scalar  # type: ignore[union-attr]
    values = operands(op, np.dtype(dtype))
    got = compiled(function, [x.dtype for x in values], lanes, level)(*values)
    assert_same(got, evaluated(function, *values), values)


@pytest.mark.parametrize(("name", "dtype"), accepted())
def test_text_has_no_division_of_integers_and_no_fast_math(name: str, dtype: str) -> None:
    op = ROWS[name]
    dtypes = [np.dtype(dtype)] * arity(op)
    if name == "where":
        dtypes[0] = np.dtype(bool)
    text, _ = kernel_text(op.form.scalar, dtypes, 32)  # type: ignore[union-attr]
    assert re.search(r"\b(sdiv|udiv|srem|urem|frem|fast|nnan|contract|reassoc|afn|arcp)\b", text) is None
    assert set(re.findall(r"declare .* @(\w+)", text)) <= {"llvm"}
