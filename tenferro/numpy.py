"""NumPy's functions on tenferro's kernels: ``import tenferro.numpy as np``.

Arrays of any kind go in: traced ones inside jitted functions, ``tn.Array`` and ndarray outside (type in, type out).
Calls without an array make a ``tn.Array``, or a traced one inside a jitted function. The names are those of the API
table; dtypes and constants are NumPy's own, and so is ``ndarray``, which traced arrays are instances of.
"""

from __future__ import annotations

import functools as _functools
from collections.abc import Callable as _Callable
from typing import Any as _Any

import numpy as _numpy

from tenferro.array import array as array, asarray as asarray, from_dlpack as from_dlpack
from tenferro.eager import namespace_call as _call
from tenferro.listing import listing as _listing
from tenferro.tracer.api.library import near as _near
from tenferro.tracer.api.record import API as _API, ApiFunction as _ApiFunction
from tenferro.tracer.signature import SUPPORTED as _SUPPORTED

_CONSTANTS = ("pi", "e", "inf", "nan", "newaxis", "euler_gamma")
_TYPES = ("dtype", "ndarray", "finfo", "iinfo", "promote_types", "can_cast", "errstate", "isdtype", "bool_")
_PRIVATE = ("getitem", "view")


def _public(name: str, record: _ApiFunction) -> _Callable[..., _Any]:
    def function(*args: _Any, **kwargs: _Any) -> _Any:
        return _call(name, args, kwargs)

    _functools.update_wrapper(function, record.function)
    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    return function


def result_type(*args: _Any) -> _numpy.dtype[_Any]:
    """The dtype that NumPy's promotion gives these arrays, dtypes and numbers."""
    return _numpy.result_type(*(getattr(a, "dtype", a) for a in args))


def _fill(namespace: dict[str, _Any]) -> list[str]:
    for name, record in _API.items():
        if name not in _PRIVATE and name not in namespace:
            namespace[name] = _public(name, record)
    for name in _CONSTANTS + _TYPES:
        namespace[name] = getattr(_numpy, name)
    for dtype in _SUPPORTED:
        namespace[dtype.name] = dtype.type
    return [n for n in namespace if not n.startswith("_") and n != "annotations"]


__dir__, __getattr__ = _listing(__name__, _fill(globals()), _near)
