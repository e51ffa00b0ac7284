"""NumPy's functions on tenferro's kernels: ``import tenferro.numpy as np``.

Arrays of any kind go in: traced ones inside jitted functions, ``tn.Array`` and ndarray outside (type in, type out).
Functions that take no array make a ``tn.Array``, or a traced one inside a jitted function. The names are those of the
API table; dtypes and constants are NumPy's own.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as _numpy

from tenferro.array import array as array, asarray as asarray, from_dlpack as from_dlpack
from tenferro.eager import call as _call
from tenferro.tracer.api.record import API as _API, ApiFunction as _ApiFunction
from tenferro.tracer.signature import SUPPORTED as _SUPPORTED

_CONSTANTS = ("pi", "e", "inf", "nan", "newaxis", "euler_gamma")
_TYPES = ("dtype", "finfo", "iinfo", "promote_types", "can_cast", "errstate", "isdtype")
_PRIVATE = ("getitem",)


def _public(name: str, record: _ApiFunction) -> Callable[..., Any]:
    def function(*args: Any, **kwargs: Any) -> Any:
        return _call(name, args, kwargs)

    functools.update_wrapper(function, record.function)
    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    return function


def result_type(*args: Any) -> _numpy.dtype[Any]:
    """The dtype that NumPy's promotion gives these arrays, dtypes and numbers."""
    return _numpy.result_type(*(a.dtype if hasattr(a, "dtype") else a for a in args))


def _fill(namespace: dict[str, Any]) -> list[str]:
    for name, record in _API.items():
        if name not in _PRIVATE and name not in namespace:
            namespace[name] = _public(name, record)
    for name in _CONSTANTS + _TYPES:
        namespace[name] = getattr(_numpy, name)
    for dtype in _SUPPORTED:
        namespace[dtype.name] = dtype.type
    namespace["bool_"] = _numpy.bool_
    return [n for n in namespace if not n.startswith("_") and n not in ("annotations", "functools", "Any", "Callable")]


_names = _fill(globals())


def __dir__() -> list[str]:
    return sorted(_names)
