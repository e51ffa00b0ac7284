"""Small tables in registers: up to sixteen 8-byte constants and a vector of indices go in, LLVM text that permutes the
constants comes out. A gather takes several times as long.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, assert_never

import numpy as np

from tenferro.tracer.scalar.builder import BOOL, I64, Dtype

if TYPE_CHECKING:
    from tenferro.engines.cpu.vector_builder import VectorBuilder

Permutes: TypeAlias = Literal["none", "avx2", "avx512"]
"""The instructions that a machine has for this."""

Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]

GROUP, LARGEST = 8, 16


def fits(table: Sequence[float], dtype: Dtype, index: Dtype, lanes: int) -> bool:
    """Whether ``permuted`` serves this lookup."""
    return len(table) <= LARGEST and dtype.itemsize == index.itemsize == 8 and lanes % GROUP == 0


def permuted(b: VectorBuilder, permutes: Permutes, table: Sequence[float], dtype: Dtype, index: str) -> str:
    """The bits of ``table[index]`` as i64, eight lanes at a time."""
    words = np.zeros(LARGEST, np.uint64)
    words[: len(table)] = np.array([_bits(value, dtype) for value in table], np.uint64)
    parts = []
    for first in range(0, b.lanes, GROUP):
        lanes = range(first, first + GROUP)
        chosen = index if b.lanes == GROUP else _shuffled(b, index, "poison", "i64", b.lanes, lanes)
        match permutes:
            case "avx512":
                parts.append(_avx512(b, words, chosen))
            case "avx2":
                parts.append(_avx2(b, words, chosen))
            case "none":
                raise ValueError("permute: the machine has no permutations of tables; needed avx2 or avx512")
            case _:
                assert_never(permutes)
    width = GROUP
    while len(parts) > 1:
        both = zip(parts[::2], parts[1::2], strict=True)
        parts = [_shuffled(b, x, y, "i64", width, range(2 * width)) for x, y in both]
        width *= 2
    return parts[0]


def _bits(value: float, dtype: Dtype) -> int:
    if dtype.kind == "f":
        return int(np.array(value, dtype).view(np.uint64))
    return int(value) % 2**64


def _avx512(b: VectorBuilder, words: Words, index: str) -> str:
    """One instruction, which ignores all but the low four bits of an index."""
    name, kind = "@llvm.x86.avx512.vpermi2var.q.512", "<8 x i64>"
    b.module.declare(f"declare {kind} {name}({kind}, {kind}, {kind})")
    low, high = (_constant(words[i : i + GROUP], "i64") for i in (0, GROUP))
    return b.emit(f"call {kind} {name}({low}, {kind} {index}, {high})", I64).text


def _avx2(b: VectorBuilder, words: Words, index: str) -> str:
    """Both halves of the words by themselves: there are permutations of eight 4-byte lanes alone."""
    name, kind = "@llvm.x86.avx2.permd", "<8 x i32>"
    b.module.declare(f"declare {kind} {name}({kind}, {kind})")
    narrow = b.emit(f"trunc <8 x i64> {index} to {kind}", I64).text
    # The sign says which half of the table: blends read it without a comparison.
    sign = b.emit(f"shl {kind} {narrow}, splat (i32 28)", I64).text
    upper = b.emit(f"icmp slt {kind} {sign}, zeroinitializer", BOOL).text
    halves = []
    for half in (words & np.uint64(2**32 - 1), words >> np.uint64(32)):
        low, high = (
            b.emit(f"call {kind} {name}({_constant(half[i : i + GROUP], 'i32')}, {kind} {narrow})", I64).text
            for i in (0, GROUP)
        )
        halves.append(b.emit(f"select <8 x i1> {upper}, {kind} {high}, {kind} {low}", I64).text)
    mixed = _shuffled(b, halves[0], halves[1], "i32", GROUP, [i + GROUP * k for i in range(GROUP) for k in (0, 1)])
    return b.emit(f"bitcast <16 x i32> {mixed} to <8 x i64>", I64).text


def _constant(values: Words, element: str) -> str:
    return f"<{len(values)} x {element}> <{', '.join(f'{element} {int(v)}' for v in values)}>"


def _shuffled(b: VectorBuilder, x: str, y: str, element: str, width: int, lanes: Sequence[int]) -> str:
    kind, mask = f"<{width} x {element}>", ", ".join(f"i32 {i}" for i in lanes)
    return b.emit(f"shufflevector {kind} {x}, {kind} {y}, <{len(lanes)} x i32> <{mask}>", I64).text
