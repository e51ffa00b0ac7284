"""What rules of the transformations write with: operands in, operations of a trace out.

A rule gets a ``Derivation`` and calls rows by their names: ``b.multiply(x, y)``, ``b.sum(x, axes=(0,),
keepdims=False)``. What it emits carries the user's line of the operation that it is derived from, and is put on the
same engine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.dims import Extent, leaves, product, sub
from tenferro.tracer.op import Op
from tenferro.tracer.ops import OPS
from tenferro.tracer.program import ArrayType, DimScalar, Literal, Operand, Operation, Value
from tenferro.tracer.trace import Trace

Shape = tuple[Extent, ...]


class Derivation:
    """A builder. ``trace`` records what is emitted; rows are methods, by name."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace

    int64, float64 = np.dtype(np.int64), np.dtype(np.float64)

    def __getattr__(self, name: str) -> Callable[..., Value]:
        op = OPS.get(name)
        if op is None:
            raise AttributeError(f"{name}: the table of ops has no such row")

        def emit(*inputs: Operand, **params: Hashable) -> Value:
            return self.trace.emit1(op, *inputs, **params)

        self.__dict__[name] = emit
        return emit

    def row(self, name: str) -> Op:
        """A row of the table, for rules that other rows of their own file need."""
        return OPS[name]

    def emit(self, op: Op, inputs: Sequence[Operand], **params: Hashable) -> tuple[Value, ...]:
        """All results of a row."""
        return self.trace.emit(op, inputs, **params)

    @contextmanager
    def derived_from(self, operation: Operation) -> Iterator[None]:
        """What is emitted inside stands for this operation: its line, its engine."""
        trace = self.trace
        outer = trace.writing, trace.place
        trace.writing, trace.place = operation.line or trace.writing, operation.place
        try:
            yield
        finally:
            trace.writing, trace.place = outer

    @contextmanager
    def on(self, place: str) -> Iterator[None]:
        """What is emitted inside is put on an engine."""
        outer, self.trace.place = self.trace.place, place
        try:
            yield
        finally:
            self.trace.place = outer

    # -- numbers -----------------------------------------------------------------------------------------------------

    def number(self, value: complex, dtype: np.dtype[Any]) -> Literal:
        """A constant of rank 0."""
        return build.literal(value, dtype)

    def like(self, value: complex, x: Operand) -> Literal:
        """A constant of the operand's dtype."""
        return build.literal(value, x.type.dtype)

    def truth(self, value: bool) -> Literal:
        """True or False."""
        return Literal(value, np.dtype(np.bool_))

    def size(self, extent: Extent, dtype: np.dtype[Any]) -> Operand:
        """A size used as a number."""
        return build.literal(extent, dtype) if isinstance(extent, int) else DimScalar(extent, dtype)

    def selected(self, mask: Operand) -> Extent:
        """How many elements are under a mask, which an operation of the trace measures: what is on a tape measures
        nothing."""
        extent = self.trace.runtime_extent(mask)
        if any(symbol.index == len(self.trace.operations) for symbol in leaves(extent)):
            self.mask_select(mask, mask, extent=extent)
        return extent

    def zeros(self, type_: ArrayType) -> Operand:
        """0 everywhere."""
        return self.broadcast(build.literal(0, type_.dtype), type_.shape)

    def convert(self, x: Operand, dtype: np.dtype[Any]) -> Operand:
        """``astype`` where the dtype differs."""
        return build.convert(self.trace, x, dtype)

    def wide(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """What a dtype is counted and added up in: float32 for float16, which ends at 65504."""
        return np.dtype(np.float32) if dtype == np.float16 else dtype

    # -- tangents ----------------------------------------------------------------------------------------------------

    def scaled(self, tangent: Operand, factor: Operand) -> Operand:
        """``tangent * factor``, and 0 where the tangent is 0 whatever the factor is: the side of a ``where`` that was
        not taken has an infinite derivative at times, and 0 · ∞ would be NaN."""
        if isinstance(factor, DimScalar) or (isinstance(factor, Literal) and _is_finite(factor)):
            return self.times(tangent, factor)
        if isinstance(tangent, Literal) and tangent.value == 1:
            return factor
        return self.tangent_product(tangent, factor)

    def quotient(self, tangent: Operand, divisor: Operand) -> Operand:
        """``tangent / divisor``, and 0 where the tangent is 0 whatever the divisor is."""
        if isinstance(divisor, DimScalar) or (isinstance(divisor, Literal) and _is_finite(divisor) and divisor.value):
            return self.divide(tangent, divisor)
        return self.tangent_quotient(tangent, divisor)

    def times(self, tangent: Operand, factor: Operand) -> Operand:
        """``tangent * factor`` for factors that are finite wherever they are used."""
        if isinstance(factor, Literal) and factor.value == 1:
            return tangent
        return self.multiply(tangent, factor)

    def plus(self, a: Operand | None, b: Operand | None) -> Operand | None:
        """The sum, where None is 0."""
        if a is None or b is None:
            return b if a is None else a
        return self.add(a, b)

    # -- shapes ------------------------------------------------------------------------------------------------------

    def broadcast(self, x: Operand, shape: Shape) -> Operand:
        """NumPy's alignment at the last axis."""
        return build.broadcast(self.trace, x, shape)

    def stretched(self, x: Operand, size: Extent) -> Operand:
        """The same for every place of a new leading axis."""
        shape = x.type.shape
        return self.broadcast_to(x, shape=(size, *shape), axes=tuple(range(1, len(shape) + 1)))

    def order_of(self, shape: Shape) -> Operand:
        """Each element's place in row-major order, int64."""
        if not shape:
            return self.number(0, self.int64)
        return self.reshaped(self.iota(shape=(product(shape),), axis=0), shape)

    def reshaped(self, x: Operand, shape: Shape) -> Operand:
        """The same elements in row-major order."""
        return build.reshape(self.trace, x, shape)

    def permuted(self, x: Operand, axes: Sequence[int]) -> Operand:
        """Axis k of the result is axis ``axes[k]`` of the operand."""
        return build.transpose(self.trace, x, axes)

    def swapped(self, x: Operand) -> Operand:
        """The last two axes exchanged."""
        rank = len(x.type.shape)
        return self.permuted(x, [*range(rank - 2), rank - 1, rank - 2])

    def flipped(self, x: Operand, axes: Sequence[int]) -> Operand:
        """Backwards along some axes."""
        shape = x.type.shape
        starts = tuple(sub(n, 1) if k in axes else 0 for k, n in enumerate(shape))
        return build.cut(self.trace, x, starts, tuple(-1 if k in axes else 1 for k in range(len(shape))), shape)

    def cut(self, x: Operand, starts: Shape, sizes: Shape) -> Operand:
        """The box of these sizes that begins at ``starts``."""
        return build.cut(self.trace, x, starts, (1,) * len(starts), sizes)

    def padded(self, x: Operand, low: Shape, high: Shape) -> Operand:
        """0 around the operand."""
        if not any(n != 0 for n in (*low, *high)):
            return x
        return self.pad(x, self.like(0, x), low=tuple(low), high=tuple(high))

    def total(self, x: Operand) -> Operand:
        """The sum of all elements."""
        rank = len(x.type.shape)
        return self.sum(x, axes=tuple(range(rank)), keepdims=False) if rank else x

    def summed_to(self, x: Operand, type_: ArrayType) -> Operand:
        """What a pointwise op stretched from rank 0, back: the sum over all axes; otherwise the operand itself."""
        if len(x.type.shape) == type_.rank:
            return x
        return self.sum(x, axes=tuple(range(len(x.type.shape))), keepdims=False)


def _is_finite(x: Literal) -> bool:
    value = complex(x.value)
    return math.isfinite(value.real) and math.isfinite(value.imag)
