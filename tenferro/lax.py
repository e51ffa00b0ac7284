"""Array operations beyond NumPy's functions, by JAX's names: ``tn.lax.dynamic_slice``, ``tn.lax.gather``, ….

Arrays of any kind go in: traced ones inside jitted functions, ``tn.Array`` and ndarray outside (type in, type out).
Calls without an array make a ``tn.Array``. Results are new arrays. Dtypes follow NumPy's rules, and what is out of
range raises IndexError unless ``mode`` says otherwise.
"""

from __future__ import annotations

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

_CONTROL = ("associative_scan", "cond", "fori_loop", "map", "scan", "stop_gradient", "switch", "while_loop")
globals().update((name, _public(__name__, name, record)) for name, record in _LAX.items())
__dir__, __getattr__ = _listing(__name__, (*_LAX, *_CONTROL, "GatherDimensionNumbers", "ScatterDimensionNumbers"))
