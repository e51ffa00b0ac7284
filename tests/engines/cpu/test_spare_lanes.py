"""Lanes of a vector behind the end of a row are computed and thrown away; what they hold must cost nothing.

Some processors take two hundred cycles for an operation on a subnormal number, and what a stack holds (addresses, small
integers) is subnormal when it is read as one. The processor notes operands of that kind: the stack is filled with them,
the note is erased, a kernel runs, and there must be no note."""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu import toolchain
from tenferro.engines.cpu.engine import CpuEngine
from tenferro.lowering import lower
from tenferro.tracer.config import config

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)
if platform.machine() not in ("x86_64", "AMD64"):
    pytest.skip("operands that are subnormal are noted by x86 processors", allow_module_level=True)

SUBNORMAL_OPERAND = 2
"""A bit of the processor's control and status register for vectors (MXCSR)."""
WORD = 0x0000_0001_0000_0001
"""Subnormal as a float64 and as two float32."""
SHAPES = ((3, 5), (8, 8), (2, 40), (40, 2), (7, 1), (17, 19), (33, 65))
CODE = f"""
declare void @llvm.x86.sse.stmxcsr(ptr)
declare void @llvm.x86.sse.ldmxcsr(ptr)

define i32 @notes() noinline {{
  %memory = alloca i32, align 4
  call void @llvm.x86.sse.stmxcsr(ptr %memory)
  %found = load i32, ptr %memory, align 4
  %status = and i32 %found, 63
  %cleared = and i32 %found, -64
  store i32 %cleared, ptr %memory, align 4
  call void @llvm.x86.sse.ldmxcsr(ptr %memory)
  ret i32 %status
}}

define void @fill() noinline {{
entry:
  %memory = alloca [32768 x i64], align 64
  br label %loop
loop:
  %k = phi i64 [ 0, %entry ], [ %next, %loop ]
  %place = getelementptr i64, ptr %memory, i64 %k
  store volatile i64 {WORD}, ptr %place, align 8
  %next = add i64 %k, 1
  %more = icmp slt i64 %next, 32768
  br i1 %more, label %loop, label %done
done:
  ret void
}}
"""


@cache
def native() -> tuple[Any, Callable[[], None], Callable[[], int]]:
    """The library; what fills 256 kB of the stack, more than a kernel uses; what gives and erases the notes."""
    library = toolchain.compile_text(CODE, 2, toolchain.host_target())
    fill, notes = ctypes.CFUNCTYPE(None), ctypes.CFUNCTYPE(ctypes.c_int)
    return library, fill(library.address("fill")), notes(library.address("notes"))


def notes_a_subnormal(f: Callable[..., Any], tier: str, *arrays: Any) -> bool:
    executable = CpuEngine(1, tier=tier).compile(lower(tn.jit(f).trace(*arrays), config()))
    executable.run(arrays)
    _, fill, notes = native()
    fill()
    notes()
    executable.run(arrays)
    return bool(notes() & SUBNORMAL_OPERAND)


def mixed(x: Any, y: Any) -> Any:
    return np.where(x > 0, np.log(x * x), y * 0.3)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "pointwise": lambda x, y: np.tanh(x) * y + x,
    "rows": lambda x, y: np.tanh(x - x.sum(1, keepdims=True) * 0.01),
    "rows twice": lambda x, y: np.tanh((x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1)),
    "columns": lambda x, y: np.exp(x).sum(0),
    "columns twice": lambda x, y: np.tanh((x - x.mean(0)) / (x.std(0) + 1)),
    "all": lambda x, y: np.exp(x * y).sum(),
    "largest of columns": lambda x, y: (x * 1.1).max(0),
    "largest of rows": lambda x, y: x.argmax(1),
    "transposed": lambda x, y: np.tanh(x.T * 1.1 + y.T),
    "sums of transposed": lambda x, y: (x.T * 1.1).sum(1),
    "backwards": lambda x, y: x[::-1, ::-1] * 1.1 + y,
    "every second": lambda x, y: np.exp(x[:, ::2]) * 1.1,
    "choice": mixed,
    "windows": lambda x, y: x[1:] * 1.1 - x[:-1] * y[1:],
    "joined": lambda x, y: np.concatenate([x * 1.1, y * 2.0], 1),
    "gathered": lambda x, y: np.exp(x[np.zeros(3, np.int64)]),
    "running": lambda x, y: np.cumsum(np.exp(x), 0),
    "running along rows": lambda x, y: np.cumsum(np.exp(x), 1),
    "product": lambda x, y: x @ y.T,
    "product of columns": lambda x, y: x.T @ y,
    "vector": lambda x, y: x @ y[0],
    "batch": lambda x, y: np.stack([x.T @ y] * 3) @ (x.T @ x),
    "loop": lambda x, y: tn.lax.fori_loop(0, 3, lambda i, c: np.tanh(c * y + x), x),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.complex128])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_operand_is_subnormal(name: str, dtype: Any) -> None:
    if dtype is np.complex128 and name in ("choice", "largest of columns", "largest of rows"):
        pytest.skip("complex numbers have no order")
    f = FUNCTIONS[name]
    rng = np.random.default_rng(0)
    found = []
    for shape in SHAPES:
        x, y = (rng.standard_normal(shape).astype(dtype) for _ in range(2))
        found += [(tier, shape) for tier in ("0", "2") if notes_a_subnormal(f, tier, x, y)]
    assert not found


def test_the_note_is_taken() -> None:
    tiny = np.full(64, 5e-324)
    assert notes_a_subnormal(lambda x: x * 1.5, "2", tiny)
