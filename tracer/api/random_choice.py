"""Choices among categories and elements, and their order: a key and what is chosen from in, a new array out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import extents_of
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.layout import axis_of
from tenferro.tracer.api.promotion import is_result_of, sizes_text
from tenferro.tracer.api.random_common import (
    INT64,
    UINT32,
    UINT64,
    Key,
    Shape,
    function,
    keys_from,
    one_of,
    real_parameter,
    words,
    words_of,
)
from tenferro.tracer.api.random_continuous import MODES, gumbel_from, uniform_from
from tenferro.tracer.api.random_uniform import in_range
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.dim import as_extent
from tenferro.tracer.dims import Extent, product
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout
from tenferro.tracer.program import Literal
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import as_traced

Traced = Any  # a TracedArray, as NumPy's operators and functions on it give one
BOOL = np.dtype(np.bool_)


# -- order -----------------------------------------------------------------------------------------------------------

MOST_IN_ROUNDS = (1625, 2642245)
"""With so many elements one round, or two, of random words of 32 bits leave few that are equal: the cube root of 2**32,
and its square. It is JAX's rule, whose permutations these are."""


def permutation(key: Any, x: Any, axis: Any = 0, independent: Any = False) -> Any:
    """The numbers below ``x``, or the slices of an array along an axis, in random order; with ``independent`` each line
    along the axis has an order of its own."""
    return _permuted("permutation", key, x, axis, independent)


def shuffle(key: Any, x: Any, axis: Any = 0) -> Any:
    """The elements of each line along an axis in a random order of its own."""
    return _permuted("shuffle", key, x, axis, True)


def _permuted(name: str, key: Any, x: Any, axis: Any, independent: Any) -> Any:
    trace = running_trace(name)
    words = words_of(trace, key, name)
    count = as_extent(x)
    if count is not None:
        (count,) = extents_of(x, name)
        return _order(trace, words, (count,), 0)
    array: Traced = as_traced(trace, x, name)
    if not array.ndim:
        raise ShapeError(f"{name}: an array of rank 0; a size, or rank 1 or more, is needed{at(user_line())}")
    k = axis_of(axis, array.ndim, name)
    if independent and array.ndim > 1:
        return np.take_along_axis(array, _order(trace, words, array.type.shape, k), k)
    return np.take(array, _order(trace, words, (array.type.shape[k],), 0), k)


def _order(trace: Trace, key: Key, shape: Shape, axis: int) -> Traced:
    """Places along an axis in random order, int64: sorted by random words, the first round's last."""
    size = product(shape)
    rounds: list[Traced] = []
    for _ in range(_rounds(trace, size)):
        key, used = keys_from(trace, key, 2)
        places = _sorted_places(trace, used, shape, axis)
        rounds.append(np.take_along_axis(rounds[-1], places, axis) if rounds else places)
    found = rounds[-1]
    if trace.hint(size) is None:  # the run knows how many rounds are wanted
        count = new(trace, build.size(size))
        for most, earlier in zip(MOST_IN_ROUNDS[::-1], rounds[-2::-1], strict=True):
            found = np.where(count <= most, earlier, found)
    return found


def _rounds(trace: Trace, size: Extent) -> int:
    if trace.hint(size) is None:
        return len(MOST_IN_ROUNDS) + 1
    return 1 + sum(trace.guard("<", most, size) for most in MOST_IN_ROUNDS)


def _sorted_places(trace: Trace, key: Key, shape: Shape, axis: int) -> Traced:
    """What ``argsort`` of random words gives: words and places side by side are sorted at once, which keeps the order
    of equal words and takes NumPy's fastest sort. Places have 32 bits."""
    bits = new(trace, build.convert(trace, words(trace, key, shape, UINT32), UINT64))
    if trace.hint(shape[axis]) is not None and trace.guard("<", 2**32, shape[axis]):
        return np.argsort(bits, axis=axis, kind="stable")
    place = new(trace, build.convert(trace, trace.emit1(layout.iota, shape=shape, axis=axis), UINT64))
    return (np.sort(bits << UINT64.type(32) | place, axis=axis) & UINT64.type(2**32 - 1)).astype(INT64)


# -- categories ------------------------------------------------------------------------------------------------------


def categorical(
    key: Any, logits: Any, axis: Any = -1, shape: Any = None, replace: Any = True, mode: Any = None
) -> Any:  # fmt: skip
    """Indices along an axis, each with probability proportional to e to the logit there. ``shape`` is that of the
    result: the other axes of the logits, and any number of axes in front of them. Without ``replace`` no index comes
    twice along the axes in front."""
    name = "categorical"
    trace = running_trace(name)
    weights: Traced = real_parameter(trace, logits, name, "logits")
    chosen_mode = one_of("low" if mode is None else mode, MODES, name)
    if not weights.ndim:
        raise ShapeError(f"{name}: logits of rank 0; rank 1 or more is needed{at(user_line())}")
    k = axis_of(axis, weights.ndim, name) - weights.ndim
    own = weights.type.shape
    lanes = tuple(n for a, n in enumerate(own) if a != k + weights.ndim)
    wanted = lanes if shape is None else extents_of(shape, name)
    front = wanted[: len(wanted) - len(lanes)]
    if len(wanted) < len(lanes) or not is_result_of(trace, lanes, wanted[len(front) :]):
        raise ShapeError(
            f"{name}: shape {sizes_text(trace, wanted)} for logits whose other axes have sizes "
            f"{sizes_text(trace, lanes)}; a shape that ends in them is needed{at(user_line())}"
        )
    key_words = words_of(trace, key, name)
    if replace:
        noise = gumbel_from(trace, key_words, (*front, *own), weights.dtype, chosen_mode)
        return np.argmax(weights + noise, axis=k)
    drawn, count = product(front), own[k]
    _check_enough(trace, name, drawn, count)
    noise = gumbel_from(trace, key_words, own, weights.dtype, chosen_mode)
    order = np.moveaxis(np.argsort(-(weights + noise), axis=k, kind="stable"), k, 0)
    return new(trace, build.reshape(trace, _first(trace, order, drawn), (*front, *lanes)))


def _first(trace: Trace, x: Traced, count: Extent) -> Any:
    """The first slices along axis 0."""
    shape = (count, *x.type.shape[1:])
    return build.cut(trace, x.read(), (0,) * len(shape), (1,) * len(shape), shape)


def _check_enough(trace: Trace, name: str, drawn: Extent, count: Extent) -> None:
    if not trace.guard("<=", drawn, count):
        raise ShapeError(
            f"{name}: {trace.hint(drawn)} draws without replacement from {trace.hint(count)}; no more draws than there "
            f"are elements are needed{at(user_line())}"
        )


# -- choice ----------------------------------------------------------------------------------------------------------


def choice(
    key: Any, a: Any, shape: Any = (), replace: Any = True, p: Any = None, axis: Any = 0, mode: Any = None
) -> Any:  # fmt: skip
    """Elements of an array along an axis, or numbers below ``a``; with probabilities p, or all alike."""
    trace = running_trace("choice")
    words, size = words_of(trace, key, "choice"), extents_of(shape, "choice")
    chosen_mode = one_of("low" if mode is None else mode, MODES, "choice")
    count = as_extent(a)
    array: Traced = None
    if count is not None:
        (count,) = extents_of(a, "choice")
    else:
        array = as_traced(trace, a, "choice")
        if not array.ndim:
            raise ShapeError(f"choice: an array of rank 0; a size, or rank 1 or more, is needed{at(user_line())}")
        axis = axis_of(axis, array.ndim, "choice")
        count = array.type.shape[axis]
    drawn = product(size)
    if trace.guard("<", 0, drawn) and not trace.guard("<", 0, count):
        raise ShapeError(f"choice: {trace.hint(drawn)} draws from 0; 1 element or more is needed{at(user_line())}")
    if not replace:
        _check_enough(trace, "choice", drawn, count)
    if p is None:
        places = _alike(trace, words, size, count) if replace else _by_order(trace, words, size, count)
    else:
        places = _weighted(trace, words, size, count, real_parameter(trace, p, "choice", "p"), replace, chosen_mode)
    return places if array is None else np.take(array, places, axis)


def _alike(trace: Trace, key: Key, shape: Shape, count: Extent) -> Traced:
    return new(trace, in_range(trace, key, shape, Literal(0, INT64), build.size(count), Literal(False, BOOL)))


def _by_order(trace: Trace, key: Key, shape: Shape, count: Extent) -> Traced:
    order = _order(trace, key, (count,), 0)
    return new(trace, build.reshape(trace, _first(trace, order, product(shape)), shape))


def _weighted(
    trace: Trace, key: Key, shape: Shape, count: Extent, p: Traced, replace: Any, mode: str
) -> Traced:  # fmt: skip
    if p.ndim != 1 or not trace.guard("==", p.type.shape[0], count):
        raise ShapeError(
            f"choice: p of shape {sizes_text(trace, p.type.shape)} for {trace.hint(count)} elements; one for each is "
            f"needed{at(user_line())}"
        )
    if replace:
        below = np.cumsum(p)
        target = below[-1] * (1 - uniform_from(trace, key, shape, p.dtype, 0.0))
        return np.searchsorted(below, target)
    order = np.argsort(-(gumbel_from(trace, key, (count,), p.dtype, mode) + np.log(p)), kind="stable")
    return new(trace, build.reshape(trace, _first(trace, order, product(shape)), shape))


FUNCTIONS: tuple[TracedFunction, ...] = (
    function("permutation", permutation, "key", "x"),
    function("shuffle", shuffle, "key", "x"),
    function("categorical", categorical, "key", "logits", "shape"),
    function("choice", choice, "key", "a", "shape", "p"),
)
