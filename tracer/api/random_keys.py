"""Keys of random numbers: seeds and keys in, keys out.

A key is a uint32 array of shape (2,), several are one of shape (…, 2). Whoever needs several independent arrays splits
a key: equal keys give equal numbers.
"""

from __future__ import annotations

from typing import Any

from tenferro.tracer import build
from tenferro.tracer.api.creation import extents_of
from tenferro.tracer.api.deliver import new, new_array
from tenferro.tracer.api.promotion import beyond, converted, is_weak
from tenferro.tracer.api.random_common import (
    INT64,
    UINT32,
    UINT64,
    Key,
    counter,
    function,
    halves,
    key_array,
    words_of,
)
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.errors import DtypeError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout, pointwise as p, random
from tenferro.tracer.program import Literal, Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import operand


def _pair(trace: Trace, key: Key, shape: tuple[Any, ...] = ()) -> Operand:
    """Words of the shape, as a new last axis."""
    whole = (*shape, 2)
    axes = tuple(range(len(shape)))
    first, second = (
        trace.emit1(layout.broadcast_to, word, shape=whole, axes=axes if word.type.shape else ())
        for word in (key.first, key.second)
    )
    place = trace.emit1(layout.iota, shape=whole, axis=len(shape))
    is_first = trace.emit1(p.equal, place, Literal(0, INT64))
    return trace.emit1(p.where, is_first, first, second)


def key(seed: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """A key: the upper and the lower 32 bits of an integer. ``impl``: ``"threefry2x32"``, which is the only one."""
    return _key("key", seed, impl, dtype)


def prng_key(seed: Any, *, impl: Any = None) -> Any:
    """``key`` under its older name."""
    return _key("PRNGKey", seed, impl)


def _key(name: str, seed: Any, impl: Any, dtype: Any = None) -> Any:
    _check_kind(name, impl)
    _check_kind(name, dtype)
    trace = running_trace(name)
    value, kind = operand(trace, seed, name)
    if value.type.dtype.kind not in "iu":
        raise DtypeError(f"{name}: seed of dtype {value.type.dtype.name}; an integer is needed{at(user_line())}")
    if value.type.shape:
        raise ShapeError(f"{name}: seed of rank {len(value.type.shape)}; a number is needed{at(user_line())}")
    dtype = value.type.dtype
    if is_weak(kind):  # Python's integers up to 64 bits, of either sign
        dtype = UINT64 if beyond(trace, value, INT64) > 0 else INT64
        value = converted(trace, value, dtype, name)
    if dtype.itemsize < 8:  # no upper bits, so that -1 of int32 is not -1 of int64
        word = build.convert(trace, value, UINT32)
        return new_array(trace, _pair(trace, Key(Literal(0, UINT32), word)))
    return new_array(trace, _pair(trace, halves(trace, build.convert(trace, value, UINT64))))


def _check_kind(name: str, kind: Any) -> None:
    if kind not in (None, "threefry2x32", "key<fry>"):
        raise TraceError(f"{name}: impl {kind!r}; 'threefry2x32' is needed{at(user_line())}")


def key_data(keys: Any) -> Any:
    """The words of keys: a copy, since keys are arrays of words."""
    return _copied("key_data", keys)


def wrap_key_data(key_bits_array: Any, *, impl: Any = None, dtype: Any = None) -> Any:
    """Keys of words, uint32 with a last axis of size 2: a copy."""
    _check_kind("wrap_key_data", impl)
    _check_kind("wrap_key_data", dtype)
    return _copied("wrap_key_data", key_bits_array)


def clone(key: Any) -> Any:
    """A copy, which gives the same numbers."""
    return _copied("clone", key)


def _copied(name: str, keys: Any) -> Any:
    trace = running_trace(name)
    return new_array(trace, build.copied(trace, key_array(trace, keys, name).read()))


def split(key: Any, num: Any = 2) -> Any:
    """New keys, ``num`` of them or an array of them of this shape: uint32 of shape (\\*num, 2)."""
    trace = running_trace("split")
    words, shape = words_of(trace, key, "split"), extents_of(num, "split")
    block = trace.emit1(random.threefry, words.first, words.second, counter(trace, shape), dtype=UINT64)
    return new(trace, _pair(trace, halves(trace, block), shape))


def fold_in(key: Any, data: Any) -> Any:
    """The key for an integer under a key, which is taken modulo 2**32 where it is an array's."""
    trace = running_trace("fold_in")
    words = words_of(trace, key, "fold_in")
    value, kind = operand(trace, data, "fold_in")
    if value.type.dtype.kind not in "biu" or value.type.shape:
        raise DtypeError(
            f"fold_in: data of dtype {value.type.dtype.name} and rank {len(value.type.shape)}; an integer is "
            f"needed{at(user_line())}"
        )
    number = converted(trace, value, UINT32, "fold_in") if kind is int else build.convert(trace, value, UINT32)
    number = build.convert(trace, number, UINT64)
    block = trace.emit1(random.threefry, words.first, words.second, number, dtype=UINT64)
    return new(trace, _pair(trace, halves(trace, block)))


FUNCTIONS: tuple[TracedFunction, ...] = (
    function("key", key, "seed"),
    function("PRNGKey", prng_key, "seed"),
    function("key_data", key_data, "keys"),
    function("wrap_key_data", wrap_key_data, "key_bits_array"),
    function("clone", clone, "key"),
    function("split", split, "key", "num"),
    function("fold_in", fold_in, "key", "data"),
)
"""All take keys of words, ``numpy.uint32`` arrays, whoever made them."""
