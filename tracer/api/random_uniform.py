"""Random bits, floats between bounds and integers between bounds: a key, a shape and a dtype in, a new array out.

The numbers are those of JAX's functions of the same names under threefry2x32, bit for bit.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import extents_of
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.promotion import aligned, strong
from tenferro.tracer.api.random_common import (
    INT64,
    UINT32,
    UINT64,
    Dtype,
    Key,
    Shape,
    float_dtype,
    function,
    integer_dtype,
    keys_from,
    parameter,
    shape_for,
    spread,
    words,
    words_of,
)
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import pointwise as p, random, rounding
from tenferro.tracer.program import Literal, Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import operand

BOOL = np.dtype(np.bool_)


def bits(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Random bits as numbers of an unsigned dtype, uint64 unless told otherwise."""
    trace = running_trace("bits")
    target = integer_dtype(dtype, "bits", UINT64)
    if target.kind != "u":
        raise DtypeError(f"bits: dtype {target.name}; an unsigned dtype is needed{at(user_line())}")
    return new(trace, words(trace, words_of(trace, key, "bits"), extents_of(shape, "bits"), target))


# -- floats ----------------------------------------------------------------------------------------------------------


def unit(trace: Trace, key: Key, shape: Shape, dtype: Dtype, numbers: Operand | None = None) -> Operand:
    """Floats in [0, 1), multiples of the spacing below 1 times 2: random bits as the fraction of a number in [1, 2)."""
    word = np.dtype(f"u{dtype.itemsize}")
    unused = Literal(8 * dtype.itemsize - np.finfo(dtype).nmant, word)
    one = Literal(int(np.ones((), dtype).view(word)), word)
    fraction = trace.emit1(rounding.right_shift, words(trace, key, shape, word, numbers), unused)
    number = trace.emit1(p.bitcast, trace.emit1(p.bitwise_or, fraction, one), dtype=dtype)
    return trace.emit1(p.subtract, number, build.literal(1.0, dtype))


def between(
    trace: Trace, key: Key, shape: Shape, dtype: Dtype, low: Operand, high: Operand, numbers: Operand | None = None
) -> Operand:
    """Floats in [low, high); where high is not above low, low."""
    fraction = unit(trace, key, shape, dtype, numbers)
    bounds = _numbers(low, high)
    if bounds == (0.0, 1.0):
        return fraction
    span = trace.emit1(p.subtract, high, low)
    if dtype.itemsize == 2:
        scaled = trace.emit1(p.add, trace.emit1(p.multiply, fraction, span), low)
    else:
        scaled = trace.emit1(random.fma, fraction, span, low)
    if bounds is not None and bounds[0] <= bounds[1]:
        return scaled  # rounding keeps order
    return trace.emit1(p.maximum, scaled, low)


def _numbers(low: Operand, high: Operand) -> tuple[float, float] | None:
    """The bounds where the trace knows them."""
    if isinstance(low, Literal) and isinstance(high, Literal):
        return float(low.value.real), float(high.value.real)
    return None


def uniform(key: Any, shape: Any = (), dtype: Any = None, minval: Any = 0.0, maxval: Any = 1.0) -> Any:
    """Floats in [minval, maxval), evenly spread; bounds broadcast to the shape. Rounding may give maxval itself where
    bounds are not 0 and 1."""
    trace = running_trace("uniform")
    target = float_dtype(dtype, "uniform")
    words = words_of(trace, key, "uniform")
    low, high = (parameter(trace, x, target, "uniform", what) for x, what in ((minval, "minval"), (maxval, "maxval")))
    size = shape_for(trace, "uniform", shape, minval=low, maxval=high)
    return new(trace, between(trace, words, size, target, spread(trace, low, size), spread(trace, high, size)))


# -- integers --------------------------------------------------------------------------------------------------------


def randint(key: Any, shape: Any, minval: Any, maxval: Any, dtype: Any = None) -> Any:
    """Integers from minval to below maxval; minval where that is no range. Bounds broadcast to the shape and are
    brought into the range of the dtype; a maxval above it stands for one more than the largest number.

    Two words are drawn for each, so that no number of a range is likelier than another by more than 1 in 2**32 (2**64
    for dtypes of 64 bits)."""
    trace = running_trace("randint")
    if isinstance(maxval, tuple):
        raise ShapeError(
            f"randint: maxval is the tuple {maxval!r}; randint(key, shape, minval, maxval) takes the shape second"
            f"{at(user_line())}"
        )
    target = integer_dtype(dtype, "randint")
    words = words_of(trace, key, "randint")
    low, _ = _bound(trace, minval, target, "minval")
    high, is_above = _bound(trace, maxval, target, "maxval")
    size = shape_for(trace, "randint", shape, minval=new(trace, low), maxval=new(trace, high))
    low, high, is_above = (aligned(trace, x, size) for x in (low, high, is_above))
    return new(trace, in_range(trace, words, size, low, high, is_above))


def _bound(trace: Trace, x: Any, target: Dtype, what: str) -> tuple[Operand, Operand]:
    """A bound brought into the range of the dtype, and whether it lay above."""
    value, key = operand(trace, x, "randint")
    source: Dtype = strong(key)
    info = np.iinfo(target)
    if source.kind not in "iu":
        raise DtypeError(f"randint: {what} of dtype {source.name}; integers are needed{at(user_line())}")
    if isinstance(value, Literal):
        number = int(value.value.real)
        return Literal(min(max(number, info.min), info.max), target), Literal(number > info.max, BOOL)
    if np.can_cast(source, target, "safe"):
        return build.convert(trace, value, target), Literal(False, BOOL)
    wide = UINT64 if source == UINT64 else INT64
    least, most = (0, 2**64 - 1) if source == UINT64 else (-(2**63), 2**63 - 1)
    least, most = max(info.min, least), min(info.max, most)
    value = build.convert(trace, value, wide)
    is_above = trace.emit1(p.less, Literal(most, wide), value)
    value = trace.emit1(p.minimum, trace.emit1(p.maximum, value, Literal(least, wide)), Literal(most, wide))
    return build.convert(trace, value, target), is_above


def in_range(trace: Trace, key: Key, shape: Shape, low: Operand, high: Operand, is_above: Operand) -> Operand:
    """Integers from low to below high. (a m + c) modulo the span, where a and c are random words and m is what the
    span leaves of the number of words."""
    target = low.type.dtype
    word = UINT64 if target.itemsize == 8 else UINT32
    one, none = Literal(1, word), Literal(0, word)
    start = build.convert(trace, low, word)
    span = trace.emit1(p.subtract, build.convert(trace, high, word), start)
    span = trace.emit1(p.add, span, build.convert(trace, is_above, word))
    span = trace.emit1(p.where, trace.emit1(p.less, low, high), span, one)
    is_all = trace.emit1(p.equal, span, none)  # the range of the dtype, whose size wraps to 0
    divisor = trace.emit1(p.where, is_all, one, span)
    half = Literal(2 ** (4 * word.itemsize), word)
    root = trace.emit1(p.remainder, half, divisor)
    factor = trace.emit1(p.remainder, trace.emit1(p.multiply, root, root), divisor)
    first, second = (words(trace, k, shape, word) for k in keys_from(trace, key, 2))
    upper = trace.emit1(p.multiply, trace.emit1(p.remainder, first, divisor), factor)
    total = trace.emit1(p.add, upper, trace.emit1(p.remainder, second, divisor))
    offset = trace.emit1(p.where, is_all, second, trace.emit1(p.remainder, total, divisor))
    return build.convert(trace, trace.emit1(p.add, start, offset), target)


FUNCTIONS: tuple[TracedFunction, ...] = (
    function("bits", bits, "key", "shape"),
    function("uniform", uniform, "key", "shape", "minval", "maxval"),
    function("randint", randint, "key", "shape", "minval", "maxval"),
)
