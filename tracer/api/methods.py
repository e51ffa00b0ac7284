"""Operators and methods of arrays as calls of NumPy-level functions by name.

``TracedArray`` and ``tn.Array`` inherit this; each says in ``_call(name, *args, **kwargs)`` how a function runs on it.
Arguments are passed with the array itself in its place, so that reflected operators are the same calls.
"""

from __future__ import annotations

from types import FunctionType
from typing import Any

import numpy as np

from tenferro.tracer.at import At
from tenferro.tracer.errors import DtypeError, ShapeError
from tenferro.tracer.lines import at, user_line

# No number equals one of these, which NumPy finds out element by element.
_NO_NUMBERS = (type(None), str, bytes, type, dict, set, frozenset, slice, type(...))


class ArrayMethods:
    """NumPy's operators and methods. Shapes, dtypes and errors are those of the functions of the same names."""

    __slots__ = ()
    _scalar: bool

    @property
    def dtype(self) -> np.dtype[Any]:
        raise NotImplementedError

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _set_part(self, name: str, value: Any) -> None:
        """``x.real = value`` and ``x.imag = value``, inside a trace."""
        from tenferro.tracer.api.parts import set_part

        set_part(self, name, value)

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """``tenferro.numpy``: found by name when asked, since this folder imports nothing above it."""
        import importlib

        return importlib.import_module("tenferro.numpy")

    def __trunc__(self) -> int:
        return int(self)

    def __delitem__(self, key: Any) -> None:
        raise ShapeError(
            f"del: of an element, which an array keeps; numpy.delete(x, i) makes a new one{at(user_line())}"
        )

    def __add__(self, other: Any) -> Any:
        return self._call("add", self, other)

    def __radd__(self, other: Any) -> Any:
        return self._call("add", other, self)

    def __sub__(self, other: Any) -> Any:
        return self._call("subtract", self, other)

    def __rsub__(self, other: Any) -> Any:
        return self._call("subtract", other, self)

    def __mul__(self, other: Any) -> Any:
        return self._call("multiply", self, other)

    def __rmul__(self, other: Any) -> Any:
        return self._call("multiply", other, self)

    def __truediv__(self, other: Any) -> Any:
        return self._call("divide", self, other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._call("divide", other, self)

    def __floordiv__(self, other: Any) -> Any:
        return self._call("floor_divide", self, other)

    def __rfloordiv__(self, other: Any) -> Any:
        return self._call("floor_divide", other, self)

    def __mod__(self, other: Any) -> Any:
        return self._call("remainder", self, other)

    def __rmod__(self, other: Any) -> Any:
        return self._call("remainder", other, self)

    def __divmod__(self, other: Any) -> Any:
        return self._call("divmod", self, other)

    def __rdivmod__(self, other: Any) -> Any:
        return self._call("divmod", other, self)

    def __pow__(self, other: Any, modulo: Any = None) -> Any:
        if modulo is not None:
            return NotImplemented
        if isinstance(other, int) and self.dtype.kind == "b" and other == 2:
            return self._call("square", self)  # NumPy's operator does so, which gives int8 where power gives int64
        return self._call("power", self, other)

    def __rpow__(self, other: Any) -> Any:
        return self._call("power", other, self)

    def __matmul__(self, other: Any) -> Any:
        return self._call("matmul", self, other)

    def __rmatmul__(self, other: Any) -> Any:
        return self._call("matmul", other, self)

    def __and__(self, other: Any) -> Any:
        return self._call("bitwise_and", self, other)

    def __rand__(self, other: Any) -> Any:
        return self._call("bitwise_and", other, self)

    def __or__(self, other: Any) -> Any:
        return self._call("bitwise_or", self, other)

    def __ror__(self, other: Any) -> Any:
        return self._call("bitwise_or", other, self)

    def __xor__(self, other: Any) -> Any:
        return self._call("bitwise_xor", self, other)

    def __rxor__(self, other: Any) -> Any:
        return self._call("bitwise_xor", other, self)

    def __lshift__(self, other: Any) -> Any:
        return self._call("left_shift", self, other)

    def __rlshift__(self, other: Any) -> Any:
        return self._call("left_shift", other, self)

    def __rshift__(self, other: Any) -> Any:
        return self._call("right_shift", self, other)

    def __rrshift__(self, other: Any) -> Any:
        return self._call("right_shift", other, self)

    def __eq__(self, other: Any) -> Any:
        if isinstance(other, _NO_NUMBERS):
            return False if other is None and self._scalar else self._call("equal", self, None)
        return self._call("equal", self, other)

    def __ne__(self, other: Any) -> Any:
        if isinstance(other, _NO_NUMBERS):
            return True if other is None and self._scalar else self._call("not_equal", self, None)
        return self._call("not_equal", self, other)

    def __lt__(self, other: Any) -> Any:
        return self._call("less", self, other)

    def __le__(self, other: Any) -> Any:
        return self._call("less_equal", self, other)

    def __gt__(self, other: Any) -> Any:
        return self._call("greater", self, other)

    def __ge__(self, other: Any) -> Any:
        return self._call("greater_equal", self, other)

    def __neg__(self) -> Any:
        return self._call("negative", self)

    def __pos__(self) -> Any:
        return self._call("positive", self)

    def __abs__(self) -> Any:
        return self._call("absolute", self)

    def __invert__(self) -> Any:
        return self._call("invert", self)

    def __setitem__(self, key: Any, value: Any) -> None:
        raise NotImplementedError

    def _inplace(self, name: str, other: Any) -> Any:
        raise NotImplementedError

    def __iadd__(self, other: Any) -> Any:
        return self._inplace("add", other)

    def __isub__(self, other: Any) -> Any:
        return self._inplace("subtract", other)

    def __imul__(self, other: Any) -> Any:
        return self._inplace("multiply", other)

    def __itruediv__(self, other: Any) -> Any:
        return self._inplace("divide", other)

    def __ifloordiv__(self, other: Any) -> Any:
        return self._inplace("floor_divide", other)

    def __imod__(self, other: Any) -> Any:
        return self._inplace("remainder", other)

    def __ipow__(self, other: Any, modulo: Any = None) -> Any:
        return self._inplace("power", other)

    def __imatmul__(self, other: Any) -> Any:
        return self._inplace("matmul", other)

    def __ilshift__(self, other: Any) -> Any:
        return self._inplace("left_shift", other)

    def __irshift__(self, other: Any) -> Any:
        return self._inplace("right_shift", other)

    def __iand__(self, other: Any) -> Any:
        return self._inplace("bitwise_and", other)

    def __ior__(self, other: Any) -> Any:
        return self._inplace("bitwise_or", other)

    def __ixor__(self, other: Any) -> Any:
        return self._inplace("bitwise_xor", other)

    def __getitem__(self, key: Any) -> Any:
        return self._call("getitem", self, key)

    def fill(self, value: Any) -> None:
        """Write one value everywhere."""
        self[...] = value

    def sum(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, **options: Any) -> Any:
        return self._call("sum", self, axis, dtype, out, keepdims, **options)

    def prod(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, **options: Any) -> Any:
        return self._call("prod", self, axis, dtype, out, keepdims, **options)

    def max(self, axis: Any = None, out: Any = None, keepdims: bool = False, **options: Any) -> Any:
        return self._call("max", self, axis, out, keepdims, **options)

    def min(self, axis: Any = None, out: Any = None, keepdims: bool = False, **options: Any) -> Any:
        return self._call("min", self, axis, out, keepdims, **options)

    def mean(self, axis: Any = None, dtype: Any = None, out: Any = None, keepdims: bool = False, **options: Any) -> Any:
        return self._call("mean", self, axis, dtype, out, keepdims, **options)

    def var(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: bool = False,
        **options: Any,
    ) -> Any:
        return self._call("var", self, axis, dtype, out, ddof, keepdims, **options)

    def std(
        self,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: bool = False,
        **options: Any,
    ) -> Any:
        return self._call("std", self, axis, dtype, out, ddof, keepdims, **options)

    def any(self, axis: Any = None, out: Any = None, keepdims: bool = False, **options: Any) -> Any:
        return self._call("any", self, axis, out, keepdims, **options)

    def all(self, axis: Any = None, out: Any = None, keepdims: bool = False, **options: Any) -> Any:
        return self._call("all", self, axis, out, keepdims, **options)

    def argmax(self, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
        return self._call("argmax", self, axis, out, keepdims=keepdims)

    def argmin(self, axis: Any = None, out: Any = None, *, keepdims: bool = False) -> Any:
        return self._call("argmin", self, axis, out, keepdims=keepdims)

    def cumsum(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        return self._call("cumsum", self, axis, dtype, out)

    def cumprod(self, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        return self._call("cumprod", self, axis, dtype, out)

    def clip(self, min: Any = None, max: Any = None, out: Any = None) -> Any:
        return self._call("clip", self, min, max, out)

    def round(self, decimals: int = 0, out: Any = None) -> Any:
        return self._call("round", self, decimals, out)

    def conj(self) -> Any:
        return self._call("conjugate", self) if self.dtype.kind == "c" else self

    conjugate = conj

    def dot(self, b: Any, out: Any = None) -> Any:
        return self._call("dot", self, b, out)

    def take(self, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
        return self._call("take", self, indices, axis, out, mode)

    def repeat(self, repeats: Any, axis: Any = None) -> Any:
        return self._call("repeat", self, repeats, axis)

    def trace(self, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None) -> Any:
        return self._call("trace", self, offset, axis1, axis2, dtype, out)

    def diagonal(self, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
        return self._call("diagonal", self, offset, axis1, axis2)

    def searchsorted(self, v: Any, side: str = "left", sorter: Any = None) -> Any:
        return self._call("searchsorted", self, v, side, sorter)

    def choose(self, choices: Any, out: Any = None, mode: str = "raise") -> Any:
        return self._call("choose", self, choices, out, mode)

    def compress(self, condition: Any, axis: Any = None, out: Any = None) -> Any:
        return self._call("compress", condition, self, axis, out)

    def argpartition(self, kth: Any, axis: Any = -1, kind: str = "introselect", order: Any = None) -> Any:
        return self._call("argpartition", self, kth, axis, kind, order)

    def partition(self, kth: Any, axis: int = -1, kind: str = "introselect", order: Any = None) -> None:
        self[...] = self._call("partition", self, kth, axis, kind, order)

    def sort(self, axis: int = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> None:
        self[...] = self._call("sort", self, axis, kind, order, stable=stable)

    def nonzero(self) -> Any:
        return self._call("nonzero", self)

    def argsort(self, axis: int = -1, kind: Any = None, order: Any = None, **options: Any) -> Any:
        return self._call("argsort", self, axis, kind, order, **options)

    def copy(self, order: str = "C") -> Any:
        made = self._call("copy", self, order)
        return made[()] if self._scalar else made

    def astype(
        self, dtype: Any, order: str = "K", casting: str = "unsafe", subok: bool = True, copy: bool = True
    ) -> Any:
        return self._call("astype", self, dtype, copy=copy, casting=casting)

    def view(self, dtype: Any = None, type: Any = None) -> Any:
        """The same memory: as a dtype of equal width, or as it is."""
        if dtype is np.ndarray or type is np.ndarray:
            dtype, type = None if dtype is np.ndarray else dtype, None
        if type is not None:
            raise DtypeError(f"view: type {type!r}; numpy.ndarray is the one there is{at(user_line())}")
        return self._call("view", self, dtype)

    def reshape(self, *shape: Any, order: str = "C", copy: bool | None = None) -> Any:
        if not shape:
            raise DtypeError(f"reshape: no shape; x.reshape(()) is of rank 0{at(user_line())}")
        return self._call("reshape", self, shape[0] if len(shape) == 1 else shape, order, copy=copy)

    def ravel(self, order: str = "C") -> Any:
        return self._call("ravel", self, order)

    def flatten(self, order: str = "C") -> Any:
        return self._call("flatten", self, order)

    def transpose(self, *axes: Any) -> Any:
        return self._call("transpose", self, axes[0] if len(axes) == 1 else (axes or None))

    def swapaxes(self, axis1: int, axis2: int) -> Any:
        return self._call("swapaxes", self, axis1, axis2)

    def squeeze(self, axis: Any = None) -> Any:
        return self._call("squeeze", self, axis)

    T = property(lambda self: self._call("transpose", self, None))
    mT = property(lambda self: self._call("matrix_transpose", self))
    at = property(At, doc="``x.at[i].set(v)``, ``.add(v)`` and so on: a changed copy.")
    real = property(lambda self: self._call("real", self), lambda self, value: self._set_part("real", value))
    imag = property(lambda self: self._call("imag", self), lambda self, value: self._set_part("imag", value))

    __hash__ = None  # type: ignore[assignment]


for _name, _method in vars(ArrayMethods).items():
    if isinstance(_method, FunctionType):
        _method.__qualname__ = _name  # in Python's TypeErrors, as in NumPy's
