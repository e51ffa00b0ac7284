"""NumPy's window functions of a size: ``hanning(n)``, ``hamming``, ``blackman``, ``bartlett``, ``kaiser``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tenferro.tracer.api.creation import arange, full
from tenferro.tracer.api.record import API, ApiFunction
from tenferro.tracer.dim import as_extent
from tenferro.tracer.errors import DtypeError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import running_trace
from tenferro.tracer.traced import as_traced


def _window(name: str, M: Any, values: Callable[[Any, Any], Any]) -> Any:
    """``values`` of the places -(M-1), -(M-3), … up to M-1, and of M-1; one 1 where there is one place."""
    running_trace(name)
    if as_extent(M) is None:
        raise DtypeError(f"{name}: M {M!r}; a size is needed{at(user_line())}")
    if M < 2:
        return full(max(M, 0), 1.0)
    return values(arange(1 - M, M, 2).astype(np.float64), M - 1)


def _cosines(n: Any, end: Any, *weights: float) -> Any:
    angle = n * np.pi / end
    total = weights[0] + weights[1] * API["cos"].function(angle)
    return total if len(weights) == 2 else total + weights[2] * API["cos"].function(2.0 * angle)


def hanning(M: Any) -> Any:
    """Half of 1 plus a cosine."""
    return _window("hanning", M, lambda n, end: _cosines(n, end, 0.5, 0.5))


def hamming(M: Any) -> Any:
    """A raised cosine that does not reach 0."""
    return _window("hamming", M, lambda n, end: _cosines(n, end, 0.54, 0.46))


def blackman(M: Any) -> Any:
    """A sum of two cosines."""
    return _window("blackman", M, lambda n, end: _cosines(n, end, 0.42, 0.5, 0.08))


def bartlett(M: Any) -> Any:
    """A triangle."""
    return _window("bartlett", M, lambda n, end: 1.0 - abs(n) / end)


def kaiser(M: Any, beta: Any) -> Any:
    """A Bessel function of a half circle, the narrower the larger ``beta`` is."""
    trace = running_trace("kaiser")
    steep = as_traced(trace, beta, "kaiser").astype(np.float64)

    def values(n: Any, end: Any) -> Any:
        return API["i0"].function(steep * API["sqrt"].function(1.0 - (n / end) ** 2)) / API["i0"].function(steep)

    return _window("kaiser", M, values)


def _f(function: Any, *arrays: str) -> ApiFunction:
    return ApiFunction(function.__name__, function, arrays, False, getattr(np, function.__name__))


FUNCTIONS: tuple[ApiFunction, ...] = (_f(hanning), _f(hamming), _f(blackman), _f(bartlett), _f(kaiser, "beta"))
