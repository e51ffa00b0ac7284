"""NumPy's functions on tenferro's kernels: ``import tenferro.numpy as np``.

Arrays of any kind go in: traced ones inside jitted functions, ``tn.Array`` and ndarray outside (type in, type out).
Calls without an array make a ``tn.Array``, or a traced one inside a jitted function. The names are those of the API
table; dtypes and constants are NumPy's own, and so is ``ndarray``, which traced arrays are instances of.
"""

from __future__ import annotations

import functools as _functools
from collections.abc import Callable as _Callable, Collection as _Collection
from typing import Any as _Any

import numpy as _numpy

from tenferro import linalg as _linalg
from tenferro.array import array as array, asarray as asarray, from_dlpack as from_dlpack
from tenferro.eager import namespace_call as _call, namespace_method as _of_ufunc
from tenferro.jax_keywords import widen as _widen
from tenferro.listing import listing as _listing
from tenferro.tracer.api.grids import Grid as _Grid
from tenferro.tracer.api.library import near as _near
from tenferro.tracer.api.record import API as _API, ApiFunction as _ApiFunction
from tenferro.tracer.signature import SUPPORTED as _SUPPORTED

_CONSTANTS = ("pi", "e", "inf", "nan", "newaxis", "euler_gamma")
_TYPES = (
    "dtype", "ndarray", "finfo", "iinfo", "promote_types", "can_cast", "errstate", "isdtype", "bool_", "generic",
    "number", "integer", "signedinteger", "unsignedinteger", "inexact", "floating", "complexfloating", "int_", "uint",
    "single", "double", "csingle", "cdouble", "issubdtype", "isscalar", "iterable", "broadcast_shapes", "s_",
    "index_exp", "einsum_path", "printoptions", "set_printoptions", "get_printoptions",
)  # fmt: skip
"""NumPy's own, which make no array of another's."""
_OF_NUMBERS = ("geomspace", "logspace")
"""Functions of numbers alone, which are constants of a program."""
_PRIVATE = ("getitem", "view")


_METHODS = ("reduce", "accumulate", "reduceat", "outer", "at")


def _public(name: str, record: _ApiFunction) -> _Callable[..., _Any]:
    def function(*args: _Any, **kwargs: _Any) -> _Any:
        return _call(name, args, kwargs)

    _functools.update_wrapper(function, record.function)
    function.__name__ = function.__qualname__ = name
    function.__module__ = __name__
    if isinstance(record.reference, _numpy.ufunc) and record.reference.nin == 2:
        for method in _METHODS:
            setattr(function, method, _method(record.reference, method))
    return function


def _named(wide: _Callable[..., _Any], plain: _Callable[..., _Any]) -> _Callable[..., _Any]:
    return _functools.update_wrapper(wide, plain)


def _method(ufunc: _numpy.ufunc, method: str) -> _Callable[..., _Any]:
    def function(*args: _Any, **kwargs: _Any) -> _Any:
        return _of_ufunc(ufunc, method, args, kwargs)

    function.__name__ = method
    function.__qualname__ = f"{ufunc.__name__}.{method}"
    function.__module__ = __name__
    function.__doc__ = f"``numpy.{function.__qualname__}``."
    return function


def _of_numbers(name: str) -> _Callable[..., _Any]:
    made: _Callable[..., _Any] = getattr(_numpy, name)

    def function(*args: _Any, **kwargs: _Any) -> _Any:
        return asarray(made(*args, **kwargs))

    _functools.update_wrapper(function, made)
    function.__module__ = __name__
    return function


def fromfunction(function: _Callable[..., _Any], shape: _Any, *, dtype: _Any = float, **kwargs: _Any) -> _Any:
    """``function`` of the index along each axis, as arrays of the shape."""
    return function(*globals()["indices"](shape, dtype=dtype), **kwargs)


def vectorize(
    pyfunc: _Callable[..., _Any], *, excluded: _Collection[int | str] = (), signature: str | None = None
) -> _Callable[..., _Any]:
    """``pyfunc``, which takes numbers, or arrays whose axes ``signature`` names ("(m,n),(n)->(m)"), of arrays that
    broadcast in front of these: it runs once, on values without those axes, as under ``tn.vmap``. Arguments in
    ``excluded``, and those by keyword, are passed on as they are."""
    from tenferro import vectorizing

    return vectorizing.vectorize(pyfunc, excluded=excluded, signature=signature)


def apply_along_axis(func1d: _Callable[..., _Any], axis: int, arr: _Any, *args: _Any, **kwargs: _Any) -> _Any:
    """``func1d`` of every line along an axis, as under ``tn.vmap``; the axes of its result stand in that axis's
    place."""
    from tenferro import vectorizing

    return vectorizing.apply_along_axis(func1d, axis, arr, *args, **kwargs)


def result_type(*args: _Any) -> _numpy.dtype[_Any]:
    """The dtype that NumPy's promotion gives these arrays, dtypes and numbers."""
    return _numpy.result_type(*(getattr(a, "dtype", a) for a in args))


def _fill(namespace: dict[str, _Any]) -> list[str]:
    for name, record in _API.items():
        if name.isidentifier() and name not in _PRIVATE and name not in namespace:
            namespace[name] = _public(name, record)
    for name in _CONSTANTS + _TYPES:
        namespace[name] = getattr(_numpy, name)
    for name in _OF_NUMBERS:
        namespace[name] = _of_numbers(name)
    for dtype in _SUPPORTED:
        namespace[dtype.name] = dtype.type
    namespace["mgrid"], namespace["ogrid"] = _Grid(_numpy.mgrid), _Grid(_numpy.ogrid)
    namespace["fft"], namespace["linalg"] = _numpy.fft, _linalg
    _widen(namespace, lambda wide, name: _named(wide, namespace[name]))
    return [n for n in namespace if not n.startswith("_") and n != "annotations"]


__dir__, __getattr__ = _listing(__name__, _fill(globals()), _near)
