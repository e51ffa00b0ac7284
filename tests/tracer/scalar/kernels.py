"""Scalar expansions as something to call: a function on a builder in, a function on arrays out.

``compiled`` runs the LLVM text of ``VectorBuilder`` in a plain loop over full vectors; ``evaluated`` runs
``NumpyBuilder``. Complex arrays are passed as two arrays of their parts.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tenferro.engines.cpu.permute import Permutes
from tenferro.engines.cpu.toolchain import Library, Target, compile_text, host_target
from tenferro.engines.cpu.vector_builder import ModuleText, Vec, VectorBuilder, scalar_type
from tenferro.engines.numpy_builder import NumpyBuilder
from tenferro.tracer.scalar.builder import BOOL, Complex, Dtype

Array = np.ndarray[Any, Any]
Function = Callable[..., Any]  # (builder, *values) -> value


def part_dtypes(dtype: Dtype) -> list[Dtype]:
    return [np.dtype(f"f{dtype.itemsize // 2}")] * 2 if dtype.kind == "c" else [dtype]


def parts(x: Array) -> list[Array]:
    return [np.ascontiguousarray(x.real), np.ascontiguousarray(x.imag)] if x.dtype.kind == "c" else [x]


def _joined(values: Sequence[Any], dtypes: Sequence[Dtype]) -> list[Any]:
    rest = iter(values)
    return [Complex(next(rest), next(rest)) if d.kind == "c" else next(rest) for d in dtypes]


def _split(value: Any) -> list[Any]:
    return [value.re, value.im] if isinstance(value, Complex) else [value]


def evaluated(function: Function, *arrays: Array) -> Array:
    """The NumPy builder's result."""
    b = NumpyBuilder()
    values = [v for x in arrays for v in parts(x)]
    result = function(b, *_joined(values, [x.dtype for x in arrays]))
    shape = np.broadcast_shapes(*(x.shape for x in arrays))
    if isinstance(result, Complex):
        out = np.empty(shape, result.dtype)
        out.real, out.imag = result.re, result.im
        return out
    return np.array(np.broadcast_to(result, shape))


@dataclass(frozen=True)
class Compiled:
    """A loop over ``lanes`` elements at a time; arrays are padded with ones."""

    library: Library
    text: str
    lanes: int
    result: Dtype

    def __call__(self, *arrays: Array) -> Array:
        n = len(arrays[0])
        padded = n + -n % self.lanes
        values = [np.append(v, np.ones(padded - n, v.dtype)) for x in arrays for v in parts(x)]
        outs = [np.empty(padded, d) for d in part_dtypes(self.result)]
        entry = ctypes.CFUNCTYPE(None, ctypes.c_int64, *[ctypes.c_void_p] * (len(values) + len(outs)))
        entry(self.library.address("kernel"))(padded, *(x.ctypes.data for x in (*values, *outs)))
        if len(outs) == 1:
            return outs[0][:n]
        whole = np.empty(n, self.result)
        whole.real, whole.imag = outs[0][:n], outs[1][:n]
        return whole


def compiled(
    function: Function,
    dtypes: Sequence[Dtype],
    lanes: int = 32,
    level: int = 2,
    outline: bool = False,
    target: Target | None = None,
) -> Compiled:
    target = target or host_target()
    text, result = kernel_text(function, dtypes, lanes, outline, target.permutes)
    return Compiled(compile_text(text, level, target), text, lanes, result)


def kernel_text(
    function: Function, dtypes: Sequence[Dtype], lanes: int, outline: bool = False, permutes: Permutes = "none"
) -> tuple[str, Dtype]:
    """``kernel(n, inputs…, outputs…)`` for n a positive multiple of ``lanes``, and the dtype of its result."""
    module = ModuleText(permutes=permutes)
    b = VectorBuilder(module, lanes, outline)
    b.start("loop")
    flat = [d for dtype in dtypes for d in part_dtypes(dtype)]
    values = [_load(b, f"%in{i}", d) for i, d in enumerate(flat)]
    result = function(b, *_joined(values, dtypes))
    outs = _split(result)
    for i, v in enumerate(outs):
        _store(b, f"%out{i}", v)
    pointers = [f"%in{i}" for i in range(len(flat))] + [f"%out{i}" for i in range(len(outs))]
    head = "".join(f", ptr noalias {p}" for p in pointers)
    lines = "\n".join(b.lines)
    body = f"""define void @kernel(i64 %n{head}) {{
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %{b.block} ]
{lines}
  %next = add i64 %i, {lanes}
  %more = icmp ult i64 %next, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}}"""
    return module.text([body]), result.dtype


def _in_memory(b: VectorBuilder, dtype: Dtype) -> tuple[str, str]:
    element = "i8" if dtype == BOOL else scalar_type(dtype)
    return element, element if b.lanes == 1 else f"<{b.lanes} x {element}>"


def _load(b: VectorBuilder, pointer: str, dtype: Dtype) -> Vec:
    element, kind = _in_memory(b, dtype)
    place = b.emit(f"getelementptr {element}, ptr {pointer}, i64 %i", dtype)
    value = b.emit(f"load {kind}, ptr {place.text}, align {dtype.itemsize}", dtype)
    return b.emit(f"trunc {kind} {value.text} to {b.type_of(BOOL)}", BOOL) if dtype == BOOL else value


def _store(b: VectorBuilder, pointer: str, value: Vec) -> None:
    element, kind = _in_memory(b, value.dtype)
    text = value.text
    if value.dtype == BOOL:
        text = b.emit(f"zext {b.type_of(BOOL)} {text} to {kind}", BOOL).text
    place = b.emit(f"getelementptr {element}, ptr {pointer}, i64 %i", value.dtype)
    b.lines.append(f"  store {kind} {text}, ptr {place.text}, align {value.dtype.itemsize}")
