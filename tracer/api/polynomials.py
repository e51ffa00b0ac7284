"""Polynomials as vectors of coefficients, that of the highest power first: sums, products, slopes, integrals, fits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.creation import iota
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.joining import concatenate
from tenferro.tracer.api.layout import atleast_1d
from tenferro.tracer.api.library import result_of
from tenferro.tracer.api.record import API, ApiFunction
from tenferro.tracer.dim import integer
from tenferro.tracer.dims import sub
from tenferro.tracer.errors import ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout
from tenferro.tracer.trace import Trace, running_trace
from tenferro.tracer.traced import TracedArray, as_traced


def _coefficients(trace: Trace, p: Any, name: str) -> TracedArray:
    vector: TracedArray = atleast_1d(as_traced(trace, p, name))
    if vector.ndim != 1:
        raise ShapeError(f"{name}: coefficients of rank {vector.ndim}; rank 1 is needed{at(user_line())}")
    return vector


def _combined(name: str, ufunc: str) -> Callable[..., Any]:
    def function(a1: Any, a2: Any) -> Any:
        trace = running_trace(name)
        left, right = _coefficients(trace, a1, name), _coefficients(trace, a2, name)
        n, m = left.type.shape[0], right.type.shape[0]
        if trace.guard("<", n, m):
            left = _lengthened(trace, left, right)
        elif not trace.guard("==", n, m):
            right = _lengthened(trace, right, left)
        return API[ufunc].function(left, right)

    function.__name__ = name
    return function


def _lengthened(trace: Trace, short: TracedArray, long: TracedArray) -> TracedArray:
    """With zeros in front, which are powers that it has not."""
    missing = sub(long.type.shape[0], short.type.shape[0])
    zero = build.literal(0, short.dtype)
    return new(trace, trace.emit1(layout.pad, short.read(), zero, low=(missing,), high=(0,)))


def polymul(a1: Any, a2: Any) -> Any:
    """The product, as a convolution: traced anew for each degree."""
    trace = running_trace("polymul")
    return API["convolve"].function(_coefficients(trace, a1, "polymul"), _coefficients(trace, a2, "polymul"))


def polyder(p: Any, m: Any = 1) -> Any:
    """The derivative of order ``m``."""
    trace = running_trace("polyder")
    order = integer(m, "polyder", "m")
    if order < 0:
        raise ShapeError(f"polyder: m {order}; 0 or more is needed{at(user_line())}")
    found = _coefficients(trace, p, "polyder")
    for _ in range(order):
        powers = _powers(trace, found)
        found = (found * powers)[:-1]
    return found


def polyint(p: Any, m: Any = 1, k: Any = None) -> Any:
    """The integral of order ``m``, whose constants are 0, or ``k``: those of the first integral first."""
    trace = running_trace("polyint")
    order = integer(m, "polyint", "m")
    if order < 0:
        raise ShapeError(f"polyint: m {order}; 0 or more is needed{at(user_line())}")
    constants = atleast_1d(as_traced(trace, 0.0 if k is None else k, "polyint"))
    if constants.ndim != 1 or not (
        trace.guard("==", constants.type.shape[0], 1) or trace.guard("==", constants.type.shape[0], order)
    ):
        raise ShapeError(f"polyint: k of another number than m {order}; one, or as many, are needed{at(user_line())}")
    is_one = trace.guard("==", constants.type.shape[0], 1)
    found = _coefficients(trace, p, "polyint")
    for n in range(order):
        last = constants[0 if is_one else n].reshape(1)
        found = concatenate([found / (_powers(trace, found) + 1), last])
    return found


def _powers(trace: Trace, vector: TracedArray) -> TracedArray:
    """n − 1, …, 1, 0: the power that each coefficient belongs to."""
    count = vector.type.shape[0]
    last = new(trace, build.broadcast(trace, build.size(sub(count, 1)), (count,)))
    found: TracedArray = last - new(trace, iota(trace, count))
    return found


def polyfit(
    x: Any, y: Any, deg: Any, rcond: Any = None, full: bool = False, w: Any = None, cov: Any = False
) -> Any:  # fmt: skip
    """The polynomial of degree ``deg`` with the least squares of errors, as a call of NumPy's; without what ``full``,
    ``w`` and ``cov`` ask for."""
    if full or w is not None or cov:
        asked = "full" if full else "w" if w is not None else "cov"
        raise TraceError(f"polyfit: {asked}; x, y, deg and rcond alone are available{at(user_line())}")
    trace = running_trace("polyfit")
    places, values = as_traced(trace, x, "polyfit"), as_traced(trace, y, "polyfit")
    degree = integer(deg, "polyfit", "deg")
    if places.ndim != 1 or values.ndim not in (1, 2):
        raise ShapeError(
            f"polyfit: x of rank {places.ndim}, y of rank {values.ndim}; 1, and 1 or 2, are needed{at(user_line())}"
        )
    if not trace.guard("==", places.type.shape[0], values.type.shape[0]):
        raise ShapeError(
            f"polyfit: {trace.hint(places.type.shape[0])} places and {trace.hint(values.type.shape[0])} values; equal "
            f"sizes are needed{at(user_line())}"
        )
    options = {"deg": degree} if rcond is None else {"deg": degree, "rcond": float(rcond)}
    shape = (degree + 1, *values.type.shape[1:])
    return new(trace, result_of("polyfit", [places.read(), values.read()], options, shape))


def _f(name: str, function: Callable[..., Any], *arrays: str) -> ApiFunction:
    return ApiFunction(name, function, arrays, False, getattr(np, name))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f("polyadd", _combined("polyadd", "add"), "a1", "a2"),
    _f("polysub", _combined("polysub", "subtract"), "a1", "a2"),
    _f("polymul", polymul, "a1", "a2"),
    _f("polyder", polyder, "p"),
    _f("polyint", polyint, "p", "k"),
    _f("polyfit", polyfit, "x", "y"),
)
