"""Arithmetic, comparison and choice of every dtype but complex: in go values of one dtype, out comes NumPy's result.

float16 has no arithmetic of its own: ``widened`` runs one float32 operation and rounds.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer.scalar.builder import BOOL, F16, F32, I16, U16, Builder, Value


def widened(function: Callable[..., Value]) -> Callable[..., Value]:
    """The same function, float16 by way of float32: bool results stay, float32 results are rounded to float16."""

    def on_any(b: Builder, *values: Value) -> Value:
        if values[-1].dtype != F16:
            return function(b, *values)
        result = function(b, *(b.convert(v, F32) if v.dtype == F16 else v for v in values))
        return b.convert(result, F16) if result.dtype == F32 else result

    return on_any


def is_nan(b: Builder, x: Value) -> Value:
    return b.ne(x, x)


def zero(b: Builder, like: Value) -> Value:
    return b.const(0, like.dtype)


@widened
def add(b: Builder, x: Value, y: Value) -> Value:
    return b.or_(x, y) if x.dtype == BOOL else b.add(x, y)


@widened
def subtract(b: Builder, x: Value, y: Value) -> Value:
    return b.sub(x, y)


@widened
def multiply(b: Builder, x: Value, y: Value) -> Value:
    return b.and_(x, y) if x.dtype == BOOL else b.mul(x, y)


@widened
def divide(b: Builder, x: Value, y: Value) -> Value:
    return b.div(x, y)


def negative(b: Builder, x: Value) -> Value:
    return _on_bits(b, x, lambda bits: b.xor(bits, b.const(-0x8000, I16))) if x.dtype == F16 else b.neg(x)


def absolute(b: Builder, x: Value) -> Value:
    if x.dtype == BOOL:
        return x
    return _on_bits(b, x, lambda bits: b.and_(bits, b.const(0x7FFF, I16))) if x.dtype == F16 else b.abs(x)


def _on_bits(b: Builder, x: Value, change: Callable[[Value], Value]) -> Value:
    return b.bitcast(change(b.bitcast(x, I16)), F16)


def maximum(b: Builder, x: Value, y: Value) -> Value:
    """NaN wins; 0.0 is above -0.0, which NumPy leaves open and a fixed result needs."""
    return _extreme(b, x, y, is_maximum=True)


def minimum(b: Builder, x: Value, y: Value) -> Value:
    """NaN wins; -0.0 is below 0.0."""
    return _extreme(b, x, y, is_maximum=False)


def _extreme(b: Builder, x: Value, y: Value, is_maximum: bool) -> Value:
    if x.dtype == BOOL:
        return b.or_(x, y) if is_maximum else b.and_(x, y)
    if x.dtype.kind != "f":
        return b.select(b.lt(y, x) if is_maximum else b.lt(x, y), x, y)
    if x.dtype == F16:
        wide = _extreme(b, b.convert(x, F32), b.convert(y, F32), is_maximum)
        return b.convert(wide, F16)
    form = np.dtype(f"i{x.dtype.itemsize}")
    i, j = b.bitcast(x, form), b.bitcast(y, form)
    # Equal values differ at most in the sign of zero: the maximum has the and of both bit patterns, the minimum the or.
    same = b.bitcast(b.and_(i, j) if is_maximum else b.or_(i, j), x.dtype)
    larger = b.select(b.lt(y, x) if is_maximum else b.lt(x, y), x, y)
    chosen = b.select(b.eq(x, y), same, larger)
    # An unordered pair arrives as y; where x is the NaN it is x.
    return b.select(is_nan(b, x), x, chosen)


@widened
def equal(b: Builder, x: Value, y: Value) -> Value:
    return b.eq(x, y)


@widened
def not_equal(b: Builder, x: Value, y: Value) -> Value:
    return b.ne(x, y)


@widened
def less(b: Builder, x: Value, y: Value) -> Value:
    return b.lt(x, y)


@widened
def less_equal(b: Builder, x: Value, y: Value) -> Value:
    return b.le(x, y)


@widened
def sqrt(b: Builder, x: Value) -> Value:
    return b.sqrt(x)


def where(b: Builder, condition: Value, x: Value, y: Value) -> Value:
    if x.dtype != F16:
        return b.select(condition, x, y)
    # As integers: no target then asks for an instruction on half.
    chosen: Any = b.select(condition, b.bitcast(x, U16), b.bitcast(y, U16))
    return b.bitcast(chosen, F16)
