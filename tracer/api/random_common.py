"""What the functions of ``tenferro.random`` share: their arguments in, words of keys, counters, shapes and dtypes out.

A key is a uint32 array of shape (2,). Element k of an array of random numbers, in row-major order, is a function of the
key and k, written in pointwise operations on an index, so that it is made where it is used and no array of bits exists.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import dtype_of, extents_of
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.lax_common import element, one_of as one_of
from tenferro.tracer.api.promotion import aligned, broadcast_shapes, is_result_of, sizes_text, strong
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.dims import product
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout, pointwise as p, random, rounding
from tenferro.tracer.program import Literal, Operand
from tenferro.tracer.records import dataclass
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced, operand

Dtype = np.dtype[Any]
Shape = tuple[Any, ...]
INT64, UINT32, UINT64 = (np.dtype(d) for d in (np.int64, np.uint32, np.uint64))
DOUBLE = np.dtype(np.float64)


def function(name: str, call: Callable[..., Any], *arrays: str) -> TracedFunction:
    """The record of a function whose result is a new array, at rank 0 a NumPy scalar; ``arrays`` are its parameters
    that hold arrays, or numbers and sizes of no program's own."""

    @functools.wraps(call)
    def fresh(*args: Any, **options: Any) -> Any:
        return new(running_trace(name), call(*args, **options).read())

    return TracedFunction(name, fresh, arrays)


@dataclass(frozen=True, slots=True)
class Key:
    """The words of a key, numbers of uint32."""

    first: Operand
    second: Operand


def words_of(trace: Trace, key: Any, name: str) -> Key:
    """The words of one key."""
    array = key_array(trace, key, name)
    shape = array.type.shape
    if len(shape) != 1:
        raise ShapeError(
            f"{name}: key of shape {sizes_text(trace, shape)}; one key, of shape (2,), is needed{at(user_line())}"
        )
    known = array.known()
    if known is not None:
        return Key(*(Literal(int(word), UINT32) for word in known))
    value = array.read()
    return Key(element(trace, value, (0,)), element(trace, value, (1,)))


def key_array(trace: Trace, key: Any, name: str) -> TracedArray:
    """One key or several: a uint32 array whose last axis has size 2."""
    array: TracedArray = as_traced(trace, key, name)
    if array.dtype != UINT32:
        raise DtypeError(
            f"{name}: key of dtype {array.dtype.name}; uint32 is needed, tenferro.random.key(seed) makes "
            f"one{at(user_line())}"
        )
    shape = array.type.shape
    if not shape or not trace.guard("==", shape[-1], 2):
        raise ShapeError(
            f"{name}: key of shape {sizes_text(trace, shape)}; a last axis of size 2 is needed{at(user_line())}"
        )
    return array


def halves(trace: Trace, block: Operand) -> Key:
    """The words that stand side by side in uint64 numbers."""
    high = trace.emit1(rounding.right_shift, block, Literal(32, UINT64))
    return Key(build.convert(trace, high, UINT32), build.convert(trace, block, UINT32))


def keys_from(trace: Trace, key: Key, count: int) -> tuple[Key, ...]:
    """Those that ``split`` makes, one by one."""
    blocks = (
        trace.emit1(random.threefry, key.first, key.second, Literal(k, UINT64), dtype=UINT64) for k in range(count)
    )
    return tuple(halves(trace, block) for block in blocks)


def counter(trace: Trace, shape: Shape) -> Operand:
    """The row-major number of each element, uint64."""
    total: Operand | None = None
    for axis, n in enumerate(shape):
        if n == 1:
            continue
        step = product(shape[axis + 1 :])
        index: Operand = trace.emit1(layout.iota, shape=shape, axis=axis)
        if step != 1:
            index = trace.emit1(p.multiply, index, build.size(step))
        total = index if total is None else trace.emit1(p.add, total, index)
    if total is None:
        return build.broadcast(trace, Literal(0, UINT64), shape)
    return build.convert(trace, total, UINT64)


def words(trace: Trace, key: Key, shape: Shape, dtype: Dtype, numbers: Operand | None = None) -> Operand:
    """Random bits of an unsigned dtype; narrow ones are the low bits of uint32. ``numbers``: those of the elements,
    where they are not counted in row-major order."""
    wide = UINT64 if dtype.itemsize == 8 else UINT32
    numbers = counter(trace, shape) if numbers is None else numbers
    return build.convert(trace, trace.emit1(random.threefry, key.first, key.second, numbers, dtype=wide), dtype)


# -- arguments -------------------------------------------------------------------------------------------------------


def float_dtype(dtype: Any, name: str, kinds: str = "f") -> Dtype:
    """The dtype of results; float64 unless told otherwise."""
    found = DOUBLE if dtype is None else dtype_of(dtype, name)
    if found.kind not in kinds:
        needed = "a floating or complex dtype" if "c" in kinds else "a floating dtype"
        raise DtypeError(f"{name}: dtype {found.name}; {needed} is needed{at(user_line())}")
    return found


def real_parameter(trace: Trace, x: Any, name: str, what: str) -> TracedArray:
    """A parameter in its own floating dtype, float64 where it has none."""
    array: TracedArray = as_traced(trace, x, name)
    dtype = array.dtype if array.dtype.kind == "f" and not array.type.weak else DOUBLE
    return parameter(trace, x, dtype, name, what)


def integer_dtype(dtype: Any, name: str, default: Dtype = INT64) -> Dtype:
    """The dtype of results that are whole numbers."""
    found = default if dtype is None else dtype_of(dtype, name)
    if found.kind not in "iu":
        raise DtypeError(f"{name}: dtype {found.name}; an integer dtype is needed{at(user_line())}")
    return found


def parameter(trace: Trace, x: Any, dtype: Dtype, name: str, what: str) -> TracedArray:
    """A parameter of a distribution, real numbers, in the dtype of results."""
    value, key = operand(trace, x, name)
    found = strong(key)
    if found.kind not in "biuf":
        raise DtypeError(f"{name}: {what} of dtype {found.name}; real numbers are needed{at(user_line())}")
    return new(trace, build.convert(trace, value, dtype))


def shape_for(trace: Trace, name: str, shape: Any, **parameters: TracedArray) -> Shape:
    """The shape of results: that asked for, which the parameters must broadcast to, or theirs."""
    if shape is None:
        return broadcast_shapes(trace, name, [x.type.shape for x in parameters.values()])
    return fitted(trace, name, extents_of(shape, name), **parameters)


def fitted(trace: Trace, name: str, shape: Shape, **parameters: TracedArray) -> Shape:
    """The shape, which the parameters must broadcast to."""
    for what, x in parameters.items():
        own = x.type.shape
        if len(own) > len(shape) or not is_result_of(trace, broadcast_shapes(trace, name, [shape, own]), shape):
            raise ShapeError(
                f"{name}: {what} of shape {sizes_text(trace, own)} for results of shape {sizes_text(trace, shape)}; "
                f"one that broadcasts to it is needed{at(user_line())}"
            )
    return shape


def spread(trace: Trace, x: TracedArray, shape: Shape) -> Operand:
    """A parameter in the shape of results; numbers stay numbers."""
    return aligned(trace, x.read(), shape)


def prepared(
    name: str, key: Any, shape: Any, dtype: Any, **parameters: Any
) -> tuple[Trace, Key, Shape, Dtype, list[TracedArray]]:
    """The trace, the key, the shape of results, their dtype, and the parameters in both."""
    trace = running_trace(name)
    target = float_dtype(dtype, name)
    found = {what: parameter(trace, x, target, name, what) for what, x in parameters.items()}
    size = shape_for(trace, name, shape, **found)
    return trace, words_of(trace, key, name), size, target, [new(trace, spread(trace, x, size)) for x in found.values()]
