"""Array operations beyond NumPy's functions, by JAX's names: ``tn.lax.dynamic_slice``, ``tn.lax.gather``, ….

Arrays of any kind go in: traced ones inside jitted functions, ``tn.Array`` and ndarray outside (type in, type out).
Calls without an array make a ``tn.Array``. Results are new arrays. Dtypes follow NumPy's rules, and what is out of
range raises IndexError unless ``mode`` says otherwise.
"""

from __future__ import annotations

from enum import Enum as _Enum
from typing import Any as _Any

import numpy as _numpy

from tenferro import _COLLECTIVES
from tenferro.collectives import (
    all_gather as all_gather,
    all_to_all as all_to_all,
    axis_index as axis_index,
    axis_size as axis_size,
    pbroadcast as pbroadcast,
    pmax as pmax,
    pmean as pmean,
    pmin as pmin,
    ppermute as ppermute,
    pshuffle as pshuffle,
    psum as psum,
    psum_scatter as psum_scatter,
    pswapaxes as pswapaxes,
)
from tenferro.control import (
    associative_scan as associative_scan,
    cond as cond,
    fori_loop as fori_loop,
    map as map,
    scan as scan,
    switch as switch,
    while_loop as while_loop,
)
from tenferro.gradients import stop_gradient as stop_gradient
from tenferro.listing import listing as _listing
from tenferro.publishing import public as _public
from tenferro.tracer.api.lax_gather import (
    GatherDimensionNumbers as GatherDimensionNumbers,
    ScatterDimensionNumbers as ScatterDimensionNumbers,
)
from tenferro.tracer.api.lax_registry import LAX as _LAX


class Precision(_Enum):
    """How exact a product is asked to be. Every product is computed in the dtype of its operands, whatever it says."""

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2


def dtype(x: _Any) -> _numpy.dtype[_Any]:
    """The dtype of an array, or that of a number."""
    return _numpy.dtype(x.dtype if hasattr(x, "dtype") else _numpy.result_type(x))


def broadcast_shapes(*shapes: _Any) -> tuple[_Any, ...]:
    """The shape that arrays of these shapes broadcast to."""
    return _numpy.broadcast_shapes(*shapes)


def optimization_barrier(x: _Any) -> _Any:
    """The same pytree: no pass of this package changes a bit, so that none has to be held back."""
    return x


_CONTROL = ("associative_scan", "cond", "fori_loop", "map", "scan", "stop_gradient", "switch", "while_loop")
_OTHERS = (
    "GatherDimensionNumbers",
    "ScatterDimensionNumbers",
    "Precision",
    "dtype",
    "broadcast_shapes",
    "optimization_barrier",
)
globals().update((name, _public(__name__, name, record)) for name, record in _LAX.items())
__dir__, __getattr__ = _listing(__name__, (*_LAX, *_CONTROL, *_COLLECTIVES, *_OTHERS))
