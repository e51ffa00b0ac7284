"""Gamma numbers and what is made of them: a key, parameters, a shape and a dtype in, a new array out."""

from __future__ import annotations

from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import extents_of
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.promotion import aligned
from tenferro.tracer.api.random_common import (
    Dtype,
    Key,
    Shape,
    counter,
    fitted,
    float_dtype,
    function,
    keys_from,
    parameter,
    prepared,
    words_of,
)
from tenferro.tracer.api.random_continuous import normal_from, signs, waiting
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.errors import ShapeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import random
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray

SINGLE = np.dtype(np.float32)
Traced = Any  # a TracedArray, as NumPy's operators and functions on it give one


def gamma_from(trace: Trace, key: Key, shape: Shape, a: TracedArray, is_log: bool = False) -> TracedArray:
    """Gamma numbers, or their logarithms, of shapes ``a`` that broadcast to the shape of results."""
    dtype = a.dtype
    wide = SINGLE if dtype.itemsize == 2 else dtype
    parameters = aligned(trace, build.convert(trace, a.read(), wide), shape)
    drawn = trace.emit1(random.random_gamma, key.first, key.second, counter(trace, shape), parameters, is_log=is_log)
    return new(trace, build.convert(trace, drawn, dtype))


def gamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Gamma numbers of shape ``a`` and scale 1; NaN where ``a`` is below 0."""
    trace, words, size, _, (alpha,) = prepared("gamma", key, shape, dtype, a=a)
    return gamma_from(trace, words, size, alpha)


def loggamma(key: Any, a: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Logarithms of gamma numbers, which for small ``a`` are too small to be numbers of the dtype themselves."""
    trace, words, size, _, (alpha,) = prepared("loggamma", key, shape, dtype, a=a)
    return gamma_from(trace, words, size, alpha, is_log=True)


def beta(key: Any, a: Any, b: Any, shape: Any = None, dtype: Any = None) -> Any:
    """The share of a gamma number of shape ``a`` in the sum of it and one of shape ``b``."""
    trace, words, size, _, parameters = prepared("beta", key, shape, dtype, a=a, b=b)
    first, second = (
        gamma_from(trace, k, size, x, is_log=True) for k, x in zip(keys_from(trace, words, 2), parameters, strict=True)
    )
    most = np.maximum(first, second)
    share, rest = np.exp(first - most), np.exp(second - most)
    return share / (share + rest)


def dirichlet(key: Any, alpha: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Shares of gamma numbers of shapes ``alpha`` in their sum, along the last axis; ``shape`` is that of the
    others."""
    trace = running_trace("dirichlet")
    target = float_dtype(dtype, "dirichlet")
    shapes = parameter(trace, alpha, target, "dirichlet", "alpha")
    if not shapes.ndim:
        raise ShapeError(f"dirichlet: alpha of rank 0; rank 1 or more is needed{at(user_line())}")
    *lead, count = shapes.type.shape
    size = (*(lead if shape is None else extents_of(shape, "dirichlet")), count)
    fitted(trace, "dirichlet", size, alpha=shapes)
    logarithms = gamma_from(trace, words_of(trace, key, "dirichlet"), size, shapes, is_log=True)
    numbers = np.exp(logarithms - logarithms.max(axis=-1, keepdims=True))
    return numbers / numbers.sum(axis=-1, keepdims=True)


def chisquare(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Sums of ``df`` squares of normal numbers, for any positive ``df``."""
    trace, words, size, _, (freedom,) = prepared("chisquare", key, shape, dtype, df=df)
    return _chisquare(trace, words, size, freedom)


def _chisquare(trace: Trace, key: Key, shape: Shape, freedom: Traced) -> Traced:
    return 2 * gamma_from(trace, key, shape, freedom / 2)


def f(key: Any, dfnum: Any, dfden: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Quotients of two chi-square numbers, each divided by its degrees of freedom."""
    trace, words, size, _, (above, below) = prepared("f", key, shape, dtype, dfnum=dfnum, dfden=dfden)
    first, second = keys_from(trace, words, 2)
    return (_chisquare(trace, first, size, above) / above) / (_chisquare(trace, second, size, below) / below)


def t(key: Any, df: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Student's t: a normal number divided by the root of a chi-square number by its degrees of freedom."""
    trace, words, size, target, (freedom,) = prepared("t", key, shape, dtype, df=df)
    first, second = keys_from(trace, words, 2)
    half = freedom / 2
    return normal_from(trace, first, size, target) * np.sqrt(half / gamma_from(trace, second, size, half))


def generalized_normal(key: Any, p: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Numbers x whose density falls as exp(-|x|**p)."""
    trace, words, size, target, (power,) = prepared("generalized_normal", key, shape, dtype, p=p)
    return _generalized_normal(trace, words, size, target, power)


def _generalized_normal(trace: Trace, key: Key, shape: Shape, dtype: Dtype, power: Traced) -> Traced:
    first, second = keys_from(trace, key, 2)
    inverse = 1 / power
    return gamma_from(trace, first, shape, inverse) ** inverse * signs(trace, second, shape).astype(dtype)


def ball(key: Any, d: Any, p: Any = 2, shape: Any = (), dtype: Any = None) -> Any:
    """Points spread evenly in the ball of radius 1 of the p-norm in ``d`` dimensions, which are the last axis.

    Barthe, Guédon, Mendelson and Naor, A probabilistic approach to the geometry of the l_p^n-ball (2005)."""
    trace = running_trace("ball")
    target, words = float_dtype(dtype, "ball"), words_of(trace, key, "ball")
    (dimensions,), size = extents_of(d, "ball"), extents_of(shape, "ball")
    power = parameter(trace, p, target, "ball", "p")
    if power.ndim:
        raise ShapeError(f"ball: p of rank {power.ndim}; a number is needed{at(user_line())}")
    first, second = keys_from(trace, words, 2)
    z: Traced = _generalized_normal(trace, first, (*size, dimensions), target, power)
    total = (abs(z) ** power).sum(axis=-1, keepdims=True) + waiting(trace, second, (*size, 1), target)
    return z / total ** (1 / power)


FUNCTIONS: tuple[TracedFunction, ...] = (
    function("gamma", gamma, "key", "a", "shape"),
    function("loggamma", loggamma, "key", "a", "shape"),
    function("beta", beta, "key", "a", "b", "shape"),
    function("dirichlet", dirichlet, "key", "alpha", "shape"),
    function("chisquare", chisquare, "key", "df", "shape"),
    function("f", f, "key", "dfnum", "dfden", "shape"),
    function("t", t, "key", "df", "shape"),
    function("generalized_normal", generalized_normal, "key", "p", "shape"),
    function("ball", ball, "key", "d", "p", "shape"),
)
