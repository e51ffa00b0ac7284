"""NumPy functions of fixed result shape that have no rule of their own: library calls with the sizes of this call.

In: arrays in front, static arguments behind. Out: one array whose shape and dtype NumPy has told, on ones of the same
shapes. Where the shape is that of an argument, one program serves every size; else the sizes are pinned, so that each
new size is a new program.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable
from typing import Any

import numpy as np

from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.indexing import take
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.dim import pinned
from tenferro.tracer.dims import Extent, product
from tenferro.tracer.errors import DtypeError, TraceError
from tenferro.tracer.foreign import NUMPY_ERRORS, as_own
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import library
from tenferro.tracer.standing import silently
from tenferro.tracer.trace import is_supported, running_trace
from tenferro.tracer.traced import TracedArray, operand

# The leading parameters that hold arrays; the result's shape depends on shapes and static arguments alone.
_ARRAYS: dict[str, tuple[str, ...]] = {
    "interp": ("x", "xp", "fp"),
    "searchsorted": ("a", "v"),
    "digitize": ("x", "bins"),
    "convolve": ("a", "v"),
    "correlate": ("a", "v"),
    "cross": ("a", "b"),
    "nanmedian": ("a",),
    "unwrap": ("p",),
    "sinc": ("x",),
    "i0": ("x",),
    "partition": ("a",),
    "argpartition": ("a",),
    "vander": ("x",),
    "ediff1d": ("ary",),
    "packbits": ("a",),
    "unpackbits": ("a",),
}

_SHAPED_AS = {
    "interp": 0, "searchsorted": 1, "digitize": 0, "unwrap": 0, "sinc": 0, "i0": 0, "partition": 0,
    "argpartition": 0,
}  # fmt: skip
"""The array whose shape the result has, or whose elements on one axis (``axis=None``)."""
PER_SIZE = frozenset(_ARRAYS) - frozenset(_SHAPED_AS)
"""What is traced anew for each size."""


def _made(name: str) -> Callable[..., Any]:
    original = getattr(np, name)
    signature = inspect.signature(original)

    def function(*args: Any, **kwargs: Any) -> Any:
        try:
            given = signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise DtypeError(f"{name}: {error}{at(user_line())}") from None
        sorter = given.pop("sorter", None)  # of searchsorted
        if sorter is not None:
            given["a"] = take(given["a"], sorter)
        arrays = [given.pop(p) for p in _ARRAYS[name] if p in given]
        return _call(name, arrays, {k: v for k, v in given.items() if v is not signature.parameters[k].default})

    function.__name__ = name
    pins = "; pins the sizes of its arrays" if name in PER_SIZE else ""
    function.__doc__ = f"``numpy.{name}`` as a library call{pins}."
    function.__signature__ = signature  # type: ignore[attr-defined]
    return function


def _call(name: str, arrays: list[Any], static: dict[str, Hashable]) -> Any:
    trace = running_trace(name)
    operands = [operand(trace, x, name)[0] for x in arrays]
    static = {k: pinned(tuple(v) if isinstance(v, list) else v) for k, v in static.items()}
    for key, value in static.items():
        if type(value) is TracedArray or not isinstance(value, int | float | str | tuple | np.dtype | type | None):
            raise TraceError(f"{name}: {key} {value!r}; a number, a name or a tuple of them is needed{at(user_line())}")
    like = operands[_SHAPED_AS[name]].type.shape if name in _SHAPED_AS else None

    def size(n: Extent) -> int:
        known = trace.concrete(n, name) if like is None else trace.hint(n)
        return 1 if known is None else known  # of a size that only the run tells

    ones = [np.ones([size(n) for n in x.type.shape], x.type.dtype) for x in operands]
    try:
        with np.errstate(all="ignore"):
            told = silently(getattr(np, name), ones, static)  # it warns when it runs
            found = np.asarray(told)
    except NUMPY_ERRORS as error:
        for n in (n for x in operands for n in x.type.shape if trace.hint(n) is None):
            trace.concrete(n, name)  # refuses: what NumPy says is of a size that was made up
        raise as_own(name, error) from None
    if not is_supported(found.dtype):
        raise DtypeError(f"{name}: result of dtype {found.dtype}; no engine holds it{at(user_line())}")
    shape: tuple[Extent, ...] = found.shape
    if like is not None:
        shape = like if found.ndim == len(like) else (product(like),)
    parameters = tuple(sorted(static.items()))
    value = trace.emit1(library.numpy_call, *operands, function=name, static=parameters, shape=shape, dtype=found.dtype)
    return new(trace, value, scalar=isinstance(told, np.generic))


_FURTHER = {"searchsorted": ("sorter",)}
"""Arrays that the call itself does not take."""

FUNCTIONS: tuple[ApiFunction, ...] = tuple(
    ApiFunction(name, _made(name), (*arrays, *_FURTHER.get(name, ())), False, getattr(np, name))
    for name, arrays in _ARRAYS.items()
)
