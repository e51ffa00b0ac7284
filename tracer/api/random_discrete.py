"""Whole numbers and truth values at random: a key, parameters and a shape in, a new array out.

Poisson and binomial numbers are exact in distribution up to the 52 bits of the uniform numbers that they are made of.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import dtype_of, extents_of
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.random_common import (
    DOUBLE,
    Key,
    Shape,
    counter,
    fitted,
    float_dtype,
    function,
    integer_dtype,
    keys_from,
    one_of,
    parameter,
    real_parameter,
    shape_for,
    spread,
    words_of,
)
from tenferro.tracer.api.random_continuous import MODES, positive, sides, signs, uniform_from
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import random
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray

Traced = Any  # a TracedArray, as NumPy's operators and functions on it give one


def bernoulli(key: Any, p: Any = 0.5, shape: Any = None, mode: Any = "low") -> Any:
    """True with probability p. ``mode`` "high" compares 64 random bits, for probabilities near 0."""
    trace = running_trace("bernoulli")
    words, chance = words_of(trace, key, "bernoulli"), real_parameter(trace, p, "bernoulli", "p")
    size = shape_for(trace, "bernoulli", shape, p=chance)
    if one_of(mode, MODES, "bernoulli") == "high":
        return sides(trace, words, size, chance.dtype)[0] < chance
    return uniform_from(trace, words, size, chance.dtype, 0.0) < chance


def rademacher(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """1 and -1, equally likely; of any dtype that holds numbers."""
    trace = running_trace("rademacher")
    target = np.dtype(np.int64) if dtype is None else dtype_of(dtype, "rademacher")
    if target.kind not in "ifc":
        raise DtypeError(f"rademacher: dtype {target.name}; one that holds -1 is needed{at(user_line())}")
    return signs(trace, words_of(trace, key, "rademacher"), extents_of(shape, "rademacher")).astype(target)


def geometric(key: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """The number of the first trial that succeeds, from 1 on, where each does with probability p."""
    trace = running_trace("geometric")
    target, chance = integer_dtype(dtype, "geometric"), real_parameter(trace, p, "geometric", "p")
    words, size = words_of(trace, key, "geometric"), shape_for(trace, "geometric", shape, p=chance)
    u = positive(trace, words, size, chance.dtype)
    return (np.floor(np.log(u) / np.log1p(-chance)) + 1).astype(target)


def poisson(key: Any, lam: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Numbers of events at a mean rate; -1, or the largest number of an unsigned dtype, where the rate is below 0 or
    NaN."""
    trace = running_trace("poisson")
    target, rate = integer_dtype(dtype, "poisson"), parameter(trace, lam, DOUBLE, "poisson", "lam")
    words, size = words_of(trace, key, "poisson"), shape_for(trace, "poisson", shape, lam=rate)
    rates = spread(trace, rate, size)
    drawn = trace.emit1(random.random_poisson, words.first, words.second, counter(trace, size), rates)
    found: Traced = new(trace, drawn)
    return np.where(found == found, found.astype(target), np.array(-1).astype(target)[()])


def binomial(key: Any, n: Any, p: Any, shape: Any = None, dtype: Any = None) -> Any:
    """How many of n trials succeed, each with probability p, as floats; NaN where n is below 0 or p is no
    probability."""
    trace = running_trace("binomial")
    target = float_dtype(dtype, "binomial")
    trials, chance = (parameter(trace, x, DOUBLE, "binomial", what) for x, what in ((n, "n"), (p, "p")))
    words, size = words_of(trace, key, "binomial"), shape_for(trace, "binomial", shape, n=trials, p=chance)
    return binomial_from(trace, words, size, trials, chance).astype(target)


def binomial_from(trace: Trace, key: Key, shape: Shape, n: TracedArray, p: TracedArray) -> Traced:
    """Binomial numbers of float64 parameters that broadcast to the shape of results."""
    operands = (counter(trace, shape), spread(trace, n, shape), spread(trace, p, shape))
    return new(trace, trace.emit1(random.random_binomial, key.first, key.second, *operands))


def multinomial(key: Any, n: Any, p: Any, *, shape: Any = None, dtype: Any = None, unroll: Any = 1) -> Any:
    """How many of n trials fall into each category, as floats; p are the categories' probabilities, along the last
    axis, relative to their sum. ``n`` broadcasts to the other axes; ``shape`` is that of the result. ``unroll`` has no
    meaning here: categories are halved again and again, and a binomial number says how many trials fall into the first
    half."""
    name = "multinomial"
    trace = running_trace(name)
    target, words = float_dtype(dtype, name), words_of(trace, key, name)
    trials, chances = (parameter(trace, x, DOUBLE, name, what) for x, what in ((n, "n"), (p, "p")))
    if not chances.ndim:
        raise ShapeError(f"{name}: p of rank 0; rank 1 or more is needed{at(user_line())}")
    size = chances.type.shape if shape is None else extents_of(shape, name)
    *lead, count = fitted(trace, name, size, p=chances)
    fitted(trace, name, tuple(lead), n=trials)
    return _fallen(trace, words, tuple(lead), trace.concrete(count, name), trials, chances).astype(target)


def _fallen(trace: Trace, key: Key, lead: Shape, count: int, n: TracedArray, p: Traced) -> Traced:
    """Trials in each of so many categories."""
    levels = max(0, count - 1).bit_length()
    p = np.concatenate([p, np.zeros_like(p[..., :1], shape=(*p.shape[:-1], 2**levels - count))], axis=-1)
    parts = [p]  # sums of 1, 2, 4, … neighbours
    for _ in range(levels):
        parts.append(parts[-1][..., ::2] + parts[-1][..., 1::2])
    fallen: Traced = new(trace, build.broadcast(trace, n.read(), lead))[..., None]
    for level, words in zip(reversed(range(levels)), keys_from(trace, key, levels), strict=True):
        first, both = parts[level][..., ::2], parts[level + 1]
        chance = first / both  # NaN where no category has a probability at all
        if level < levels - 1:
            chance = np.where(both > 0, chance, 0.0)
        half = binomial_from(trace, words, (*lead, 2 ** (levels - 1 - level)), fallen, chance)
        pair = np.stack([half, fallen - half], axis=-1)
        fallen = pair.reshape(*pair.shape[:-2], 2 ** (levels - level))
    return fallen[..., :count]


FUNCTIONS: tuple[TracedFunction, ...] = (
    function("bernoulli", bernoulli, "key", "p", "shape"),
    function("rademacher", rademacher, "key", "shape"),
    function("geometric", geometric, "key", "p", "shape"),
    function("poisson", poisson, "key", "lam", "shape"),
    function("binomial", binomial, "key", "n", "p", "shape"),
    function("multinomial", multinomial, "key", "n", "p", "shape"),
)
