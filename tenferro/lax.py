"""Array operations beyond NumPy's functions, by JAX's names: ``tn.lax.dynamic_slice``, ``tn.lax.gather``, ….

Arrays of any kind go in: traced ones inside jitted functions, ``tn.Array`` and ndarray outside (type in, type out).
Calls without an array make a ``tn.Array``. Results are new arrays. Dtypes follow NumPy's rules, and what is out of
range raises IndexError unless ``mode`` says otherwise.
"""

from __future__ import annotations

import functools as _functools
from collections.abc import Callable as _Callable
from typing import Any as _Any

from tenferro.control import (
    associative_scan as associative_scan,
    cond as cond,
    fori_loop as fori_loop,
    map as map,
    scan as scan,
    switch as switch,
    while_loop as while_loop,
)
from tenferro.eager import EagerFunction as _EagerFunction, of_namespace as _of_namespace
from tenferro.listing import listing as _listing
from tenferro.tracer.api.lax_gather import (
    GatherDimensionNumbers as GatherDimensionNumbers,
    ScatterDimensionNumbers as ScatterDimensionNumbers,
)
from tenferro.tracer.api.lax_registry import LAX as _LAX
from tenferro.tracer.api.record import TracedFunction as _TracedFunction
from tenferro.tracer.trace import current_trace as _current_trace


def _public(name: str, record: _TracedFunction) -> _Callable[..., _Any]:
    on_concrete = _EagerFunction(record)

    def function(*args: _Any, **kwargs: _Any) -> _Any:
        if _current_trace() is not None:
            return record.function(*args, **kwargs)
        return _of_namespace(on_concrete(args, kwargs), args, kwargs)

    _functools.update_wrapper(function, record.function)
    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    return function


_CONTROL = ("associative_scan", "cond", "fori_loop", "map", "scan", "switch", "while_loop")
globals().update((name, _public(name, record)) for name, record in _LAX.items())
__dir__, __getattr__ = _listing(__name__, (*_LAX, *_CONTROL, "GatherDimensionNumbers", "ScatterDimensionNumbers"))
