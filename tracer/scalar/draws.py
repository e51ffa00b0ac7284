"""Numbers of distributions that are drawn until one is accepted: a key, a counter and parameters in, one number out.

Every element has a key of its own, the block of the key and its counter, and takes the blocks of that key one after
another, so that it depends on nothing but key, counter and parameters. Loops end for all parameters: where there is no
distribution they are never entered.
"""

from __future__ import annotations

import math

import numpy as np

from tenferro.tracer.scalar.builder import F32, F64, U32, U64, Builder, Dtype, Value
from tenferro.tracer.scalar.error_function import erfinv
from tenferro.tracer.scalar.exponential import exp, log
from tenferro.tracer.scalar.threefry import block, joined

OTHER = 2**64 - 1
"""The number of a block that no loop reaches."""
Words = tuple[Value, Value]


def words(b: Builder, key: Words, number: Value) -> Words:
    """Two random words, of 32 or 64 bits as ``number`` counts them: of uint32 the words of one block, of uint64 those
    of two."""
    if number.dtype == U32:
        return block(b, *key, b.convert(number, U64))
    twice = b.add(number, number)
    return joined(b, *block(b, *key, twice)), joined(b, *block(b, *key, b.add(twice, b.const(1, U64))))


def fraction(b: Builder, word: Value) -> Value:
    """A float in (0, 1): the middles of 2**23 or 2**52 equal parts."""
    dtype, bits = (F32, 23) if word.dtype == U32 else (F64, 52)
    one = b.const(int(np.ones((), dtype).view(word.dtype)), word.dtype)
    unused = b.const(8 * dtype.itemsize - bits, word.dtype)
    number = b.bitcast(b.or_(b.shr(word, unused), one), dtype)
    return b.sub(number, b.const(1.0 - 2.0 ** -(bits + 1), dtype))


def unsigned(dtype: Dtype) -> Dtype:
    """The words that a float is made of."""
    return U32 if dtype == F32 else U64


# -- gamma ---------------------------------------------------------------------------------------------------------


def gamma(b: Builder, first: Value, second: Value, counter: Value, a: Value, is_log: bool) -> Value:
    """A number of the gamma distribution with shape a and scale 1, or its logarithm; NaN for a below 0.

    Marsaglia and Tsang, A simple method for generating gamma variables (ACM TOMS 26, 2000): d (1 + c z)**3 of a normal
    z, with d = a - 1/3, accepted by its density. For a < 1 it is that of a + 1 times u**(1/a) (section 6)."""
    name = "random_log_gamma" if is_log else "random_gamma"
    return b.call(name, lambda inner, *x: _gamma(inner, x[:3], x[3], is_log), first, second, counter, a, size="rare")


def _gamma(b: Builder, key_and_counter: tuple[Value, ...], a: Value, is_log: bool) -> Value:
    key, dtype = block(b, *key_and_counter), a.dtype
    none, one, infinity = (b.const(v, dtype) for v in (0.0, 1.0, math.inf))
    usable = b.and_(b.lt(none, a), b.lt(a, infinity))
    small = b.lt(a, one)
    shape = b.select(usable, b.select(small, b.add(a, one), a), one)
    drawn = _large_gamma(b, key, shape, usable)
    result = log(b, drawn) if is_log else drawn
    result = b.if_any(small, lambda: _boosted(b, key, result, a, b.and_(small, usable), is_log), lambda: result)
    edge = b.select(b.eq(a, none), none, b.select(b.eq(a, infinity), infinity, b.const(math.nan, dtype)))
    return b.select(usable, result, log(b, edge) if is_log else edge)


def _boosted(b: Builder, key: Words, drawn: Value, a: Value, small: Value, is_log: bool) -> Value:
    number = b.const(OTHER if a.dtype == F64 else 2**32 - 1, unsigned(a.dtype))
    power = b.div(log(b, fraction(b, words(b, key, number)[0])), b.select(small, a, b.const(1.0, a.dtype)))
    boosted = b.add(drawn, power) if is_log else b.mul(drawn, exp(b, power))
    return b.select(small, boosted, drawn)


def _large_gamma(b: Builder, key: Words, shape: Value, usable: Value) -> Value:
    """For a shape of 1 and more; 1 where it is not usable. A draw that is not accepted yet is below 0."""
    dtype = shape.dtype
    none, one = b.const(0.0, dtype), b.const(1.0, dtype)
    d = b.sub(shape, b.const(1 / 3, dtype))
    c = b.div(b.const(1 / 3, dtype), b.sqrt(d))

    def is_open(number: Value, drawn: Value) -> Value:
        return b.lt(drawn, none)

    def body(number: Value, drawn: Value) -> Words:
        left, right = (fraction(b, w) for w in words(b, key, number))
        z = b.mul(erfinv(b, b.sub(b.add(left, left), one)), b.const(math.sqrt(2), dtype))
        root = b.fma(c, z, one)
        above = b.lt(none, root)
        cube = b.select(above, b.mul(b.mul(root, root), root), one)
        bound = b.fma(d, b.add(b.sub(one, cube), log(b, cube)), b.mul(b.const(0.5, dtype), b.mul(z, z)))
        accepted = b.and_(above, b.lt(log(b, right), bound))
        found = b.select(accepted, b.mul(d, cube), b.const(-1.0, dtype))
        return b.add(number, b.const(1, number.dtype)), b.select(is_open(number, drawn), found, drawn)

    start = b.select(usable, b.const(-1.0, dtype), one)
    return b.while_any(is_open, body, b.const(0, unsigned(dtype)), start)[1]
