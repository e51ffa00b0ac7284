"""Largest and smallest elements of vectors, and where they stand.

Floats are compared as integers of the same order, which takes one operation where NaN and signed zeros take seven. Both
ends are kept: a NaN is beyond the infinity of its sign. In: vectors of the reduced node. Out: the extreme, or the first
place that has it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.engines.cpu import elements
from tenferro.engines.cpu.vector_builder import Vec, VectorBuilder

if TYPE_CHECKING:
    from tenferro.engines.cpu.body import CodeBuilder

BOOL, F16, F32 = elements.BOOL, np.dtype(np.float16), np.dtype(np.float32)
ARGUMENT = ("argmax", "argmin")


def end_of(kind: str) -> str:
    """``max`` or ``min``: what an argument reduction looks for."""
    return {"argmax": "max", "argmin": "min"}.get(kind, kind)


def key_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The integers that stand for floats."""
    return np.dtype(f"i{dtype.itemsize}")


def key_of(b: VectorBuilder, x: Vec) -> Vec:
    """An integer of the float's order: -NaN < -inf < … < -0 < 0 < … < inf < NaN."""
    return _turned(b, b.bitcast(x, key_dtype(x.dtype)))


def of_key(b: VectorBuilder, key: Vec, dtype: np.dtype[Any]) -> Vec:
    """The float that a key stands for."""
    return b.bitcast(_turned(b, key), dtype)


def _turned(b: VectorBuilder, bits: Vec) -> Vec:
    """Sign and magnitude to two's complement less one below zero, and back."""
    sign = b.shr(bits, b.const(8 * bits.dtype.itemsize - 1, bits.dtype))
    return b.xor(bits, b.and_(sign, b.const(np.iinfo(bits.dtype).max, bits.dtype)))


def ends(b: VectorBuilder, kind: str, x: Sequence[Vec], y: Sequence[Vec]) -> list[Vec]:
    """Of integers, the end that ``kind`` asks for, then the other one."""
    is_least = (kind == "min", kind != "min")
    return [b.select(b.lt(p, q) if least else b.lt(q, p), p, q) for least, p, q in zip(is_least, x, y, strict=True)]


def initial(kind: str, dtype: np.dtype[Any]) -> tuple[int, int]:
    """Keys that lose against any."""
    limits = np.iinfo(key_dtype(dtype))
    worst = int(limits.max), int(limits.min)
    return worst if kind == "min" else worst[::-1]


def found(b: VectorBuilder, kind: str, keys: Sequence[Vec], dtype: np.dtype[Any]) -> Vec:
    """The float that both ends give: NaN where one is beyond an infinity."""
    least, most = keys if kind == "min" else keys[::-1]
    below, above = (b.const(_key(s), key_dtype(dtype)) for s in np.array([-np.inf, np.inf], dtype))
    is_nan = b.or_(b.lt(least, below), b.lt(above, most))
    return b.select(is_nan, b.const(np.nan, dtype), of_key(b, keys[0], dtype))


def _key(x: np.floating[Any]) -> int:
    bits = int(x.view(key_dtype(x.dtype)))
    return bits if bits >= 0 else bits ^ int(np.iinfo(key_dtype(x.dtype)).max)


def place_of(b: CodeBuilder, value: Vec, best: Vec, first: str, is_nan: bool) -> str:
    """The number of the first lane that holds ``best``, or a NaN; -1 if none does. Lanes count from ``first``."""
    code, lanes = b.code, b.lanes
    x, y = (b.convert(v, F32) if v.dtype == F16 else v for v in (value, best))
    if is_nan:
        is_it = b.ne(x, x)
    else:
        is_it = b.not_(b.xor(x, y)) if x.dtype == BOOL else b.eq(x, y)
    bits = code.emit(f"bitcast {b.type_of(BOOL)} {is_it.text} to i{lanes}")
    b.module.declare(f"declare i{lanes} @llvm.cttz.i{lanes}(i{lanes}, i1)")
    lane = code.emit(f"call i{lanes} @llvm.cttz.i{lanes}(i{lanes} {bits}, i1 false)")
    lane = lane if lanes == 64 else code.emit(f"zext i{lanes} {lane} to i64")
    return code.emit(f"select i1 {code.emit(f'icmp ne i{lanes} {bits}, 0')}, i64 {code.add(first, lane)}, i64 -1")
