"""Distributions whose numbers are a formula of one or two uniform or normal numbers: a key, parameters, a shape and a
dtype in, a new array out.

Formulas are written in NumPy's words on traced arrays. What is not 0 or not 1 where a logarithm needs it is drawn from
the smallest normal number on, or from one spacing above -1 on.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import extents_of
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.random_common import (
    DOUBLE,
    UINT64,
    Dtype,
    Key,
    Shape,
    counter,
    float_dtype,
    function,
    keys_from,
    one_of,
    prepared,
    words,
    words_of,
)
from tenferro.tracer.api.random_uniform import between
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.ops import pointwise as p, random
from tenferro.tracer.program import Literal, Operand
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray

Traced = Any  # a TracedArray, as NumPy's operators and functions on it give one


def uniform_from(
    trace: Trace, key: Key, shape: Shape, dtype: Dtype, low: float, high: float = 1.0, numbers: Operand | None = None
) -> TracedArray:
    """Floats in [low, high)."""
    bounds = build.literal(low, dtype), build.literal(high, dtype)
    return new(trace, between(trace, key, shape, dtype, bounds[0], bounds[1], numbers))


def signs(trace: Trace, key: Key, shape: Shape) -> Traced:
    """1 and -1, equally likely, int64."""
    return np.where(uniform_from(trace, key, shape, DOUBLE, 0.0) < 0.5, 1, -1)


def positive(trace: Trace, key: Key, shape: Shape, dtype: Dtype) -> TracedArray:
    """Floats in [the smallest normal number, 1)."""
    return uniform_from(trace, key, shape, dtype, float(np.finfo(dtype).tiny))


# -- normal ----------------------------------------------------------------------------------------------------------


def normal_from(trace: Trace, key: Key, shape: Shape, dtype: Dtype, numbers: Operand | None = None) -> TracedArray:
    """√2 times the inverse error function of a number in (-1, 1); complex numbers of variance 1 have two independent
    parts."""
    if dtype.kind == "c":
        part = np.dtype(f"f{dtype.itemsize // 2}")
        real, imaginary = (normal_from(trace, k, shape, part) for k in keys_from(trace, key, 2))
        made: TracedArray = (real + 1j * imaginary) / part.type(math.sqrt(2)).item()
        return made
    above = float(np.nextafter(dtype.type(-1), dtype.type(0)))
    u = uniform_from(trace, key, shape, dtype, above, numbers=numbers)
    found: TracedArray = new(trace, trace.emit1(random.erfinv, u.read())) * math.sqrt(2)
    return found


def normal(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Normal numbers of mean 0 and variance 1; complex ones where the dtype is."""
    trace = running_trace("normal")
    target = float_dtype(dtype, "normal", "fc")
    return normal_from(trace, words_of(trace, key, "normal"), extents_of(shape, "normal"), target)


def truncated_normal(key: Any, lower: Any, upper: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Normal numbers between two bounds: the inverse error function of a number between the bounds' error functions, so
    that a lower bound above 5 (8 in float64) leaves few numbers to choose from."""
    name = "truncated_normal"
    trace, words, size, target, bounds = prepared(name, key, shape, dtype, lower=lower, upper=upper)
    low, high = (trace.emit1(random.erf, (x / math.sqrt(2)).read()) for x in bounds)
    u = between(trace, words, size, target, low, high)
    found: Traced = new(trace, trace.emit1(random.erfinv, u)) * math.sqrt(2)
    least, most = bounds
    return np.clip(found, np.nextafter(least, math.inf), np.nextafter(most, -math.inf))


def lognormal(key: Any, sigma: Any = 1.0, shape: Any = None, dtype: Any = None) -> Any:
    """e to a normal number of mean 0 and standard deviation sigma."""
    trace, words, size, target, (scale,) = prepared("lognormal", key, shape, dtype, sigma=sigma)
    return np.exp(normal_from(trace, words, size, target) * scale)


def maxwell(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """The length of a vector of three normal numbers."""
    trace, words, size, target, _ = prepared("maxwell", key, shape, dtype)
    return _length(trace, words, size, target)


def _length(trace: Trace, key: Key, shape: Shape, dtype: Dtype) -> Traced:
    """Of the numbers of an array with a last axis of size 3, which is not made: such short rows take longer."""
    first = trace.emit1(p.multiply, counter(trace, shape), Literal(3, UINT64))
    squares = []
    for k in range(3):
        z: Traced = normal_from(trace, key, shape, dtype, trace.emit1(p.add, first, Literal(k, UINT64)))
        squares.append(z * z)
    return np.sqrt(squares[0] + squares[1] + squares[2])


def double_sided_maxwell(key: Any, loc: Any, scale: Any, shape: Any = (), dtype: Any = None) -> Any:
    """loc plus scale times a Maxwell number of either sign."""
    name = "double_sided_maxwell"
    trace, words, size, target, (middle, width) = prepared(name, key, shape, dtype, loc=loc, scale=scale)
    first, second = keys_from(trace, words, 2)
    return _length(trace, first, size, target) * signs(trace, second, size).astype(target) * width + middle


def wald(key: Any, mean: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Inverse Gaussian numbers of this mean and scale 1.

    Michael, Schucany and Haas, Generating random variates using transformations with multiple roots (1976)."""
    trace, words, size, target, (mu,) = prepared("wald", key, shape, dtype, mean=mean)
    first, second = keys_from(trace, words, 2)
    z, u = normal_from(trace, first, size, target), uniform_from(trace, second, size, target, 0.0)
    y = z * z
    root = mu + mu * mu * y / 2 - mu / 2 * np.sqrt(4 * mu * y + (mu * y) ** 2)
    return np.where(u <= mu / (mu + root), root, mu * mu / root)


# -- one uniform number ----------------------------------------------------------------------------------------------


def exponential(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Waiting times of mean 1."""
    trace, words, size, target, _ = prepared("exponential", key, shape, dtype)
    return waiting(trace, words, size, target)


def waiting(trace: Trace, key: Key, shape: Shape, dtype: Dtype) -> Traced:
    """Exponential numbers. 1 - u is exact, so that the logarithm is as good as log1p(-u), and faster."""
    return 0.0 - np.log(1.0 - uniform_from(trace, key, shape, dtype, 0.0))


def pareto(key: Any, b: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Numbers above 1, of which a share x**-b is above x."""
    trace, words, size, target, (shape_of_tail,) = prepared("pareto", key, shape, dtype, b=b)
    return np.exp(waiting(trace, words, size, target) / shape_of_tail)


def weibull_min(key: Any, scale: Any, concentration: Any, shape: Any = (), dtype: Any = None) -> Any:
    """scale times an exponential number to the power 1 / concentration."""
    name = "weibull_min"
    trace, words, size, target, (width, power) = prepared(
        name, key, shape, dtype, scale=scale, concentration=concentration
    )
    return waiting(trace, words, size, target) ** (1 / power) * width


def rayleigh(key: Any, scale: Any, shape: Any = None, dtype: Any = None) -> Any:
    """scale times the length of a vector of two normal numbers."""
    trace, words, size, target, (width,) = prepared("rayleigh", key, shape, dtype, scale=scale)
    return width * np.sqrt(-2 * np.log(positive(trace, words, size, target)))


def laplace(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """Exponential numbers of either sign."""
    trace, words, size, target, _ = prepared("laplace", key, shape, dtype)
    u = uniform_from(trace, words, size, target, -1 + float(np.finfo(target).eps))
    return np.sign(u) * np.log1p(-abs(u))


def logistic(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """log(u / (1 - u)) of a uniform number."""
    trace, words, size, target, _ = prepared("logistic", key, shape, dtype)
    u = positive(trace, words, size, target)
    return np.log(u / (1 - u))


def cauchy(key: Any, shape: Any = (), dtype: Any = None) -> Any:
    """The tangent of an angle in half a turn."""
    trace, words, size, target, _ = prepared("cauchy", key, shape, dtype)
    u = uniform_from(trace, words, size, target, float(np.finfo(target).eps))
    return np.tan(math.pi * (u - 0.5))


def triangular(key: Any, left: Any, mode: Any, right: Any, shape: Any = None, dtype: Any = None) -> Any:
    """Numbers between left and right whose density rises to mode and falls from there, in straight lines."""
    trace, words, size, target, (low, top, high) = prepared(
        "triangular", key, shape, dtype, left=left, mode=mode, right=right
    )
    u = uniform_from(trace, words, size, target, 0.0)
    below = low + np.sqrt(u * (high - low) * (top - low))
    above = high - np.sqrt((1 - u) * (high - low) * (high - top))
    return np.where(u < (top - low) / (high - low), below, above)


# -- gumbel ----------------------------------------------------------------------------------------------------------

MODES = ("low", "high")


def gumbel(key: Any, shape: Any = (), dtype: Any = None, mode: Any = None) -> Any:
    """-log(-log(u)) of a uniform number. ``mode`` "high" takes 64 random bits for each, so that its tails reach as far
    as those of numbers of 64 bits."""
    trace, words, size, target, _ = prepared("gumbel", key, shape, dtype)
    return gumbel_from(trace, words, size, target, one_of("low" if mode is None else mode, MODES, "gumbel"))


def gumbel_from(trace: Trace, key: Key, shape: Shape, dtype: Dtype, mode: str) -> Traced:
    """Gumbel numbers in a mode that has been checked."""
    if mode == "low":
        return -np.log(-np.log(positive(trace, key, shape, dtype)))
    below, above = sides(trace, key, shape, dtype)
    return -np.log(np.where(below < 0.5, -np.log1p(-below), -np.log(above)))


def sides(trace: Trace, key: Key, shape: Shape, dtype: Dtype) -> tuple[Traced, Traced]:
    """u and 1 - u of a uniform number of 64 bits, both with the digits that the dtype has for them."""
    bits = new(trace, words(trace, key, shape, UINT64))
    return tuple((b.astype(dtype) + dtype.type(0.5)) * dtype.type(2.0**-64) for b in (bits, ~bits))


FUNCTIONS: tuple[TracedFunction, ...] = (
    function("normal", normal, "key", "shape"),
    function("truncated_normal", truncated_normal, "key", "lower", "upper", "shape"),
    function("lognormal", lognormal, "key", "sigma", "shape"),
    function("maxwell", maxwell, "key", "shape"),
    function("double_sided_maxwell", double_sided_maxwell, "key", "loc", "scale", "shape"),
    function("wald", wald, "key", "mean", "shape"),
    function("exponential", exponential, "key", "shape"),
    function("pareto", pareto, "key", "b", "shape"),
    function("weibull_min", weibull_min, "key", "scale", "concentration", "shape"),
    function("rayleigh", rayleigh, "key", "scale", "shape"),
    function("laplace", laplace, "key", "shape"),
    function("logistic", logistic, "key", "shape"),
    function("cauchy", cauchy, "key", "shape"),
    function("triangular", triangular, "key", "left", "mode", "right", "shape"),
    function("gumbel", gumbel, "key", "shape"),
)
