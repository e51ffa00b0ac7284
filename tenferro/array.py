"""``tn.Array``: a concrete array whose operations run through tenferro's kernels, one at a time.

NumPy's semantics: slices are views of the same memory, ``x[i] = v`` and ``x += y`` write into it. What NumPy gives
as a scalar (``x.sum()``, ``x[0]``) is an array of rank 0 that nothing writes into: ``s += y`` makes another. Every
operation is the jitted call of the function of the same name, so that eager and jitted results have equal bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from typing import TYPE_CHECKING, Any

import numpy as np

from tenferro.evaluation import evaluator
from tenferro.naming import engine_of
from tenferro.placing import PLACE
from tenferro.tracer.api.methods import ArrayMethods
from tenferro.tracer.complaints import refuse_sequences
from tenferro.tracer.errors import DtypeError, LoweringError, TraceError
from tenferro.tracer.foreign import NUMPY_ERRORS, as_own
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.signature import AnyArray, as_native, register_wrapper
from tenferro.tracer.standing import standing_at
from tenferro.tracer.trace import current_trace

if TYPE_CHECKING:
    from tenferro.engines.engine import Engine


class Array(ArrayMethods):
    """An array on an engine. Made by ``tn.asarray``, ``tn.array`` and by operations; not by calling the class.

    ``_scalar`` marks what NumPy would return as a scalar."""

    __slots__ = ("__weakref__", "_data", "_engine", "_scalar")
    __array_priority__ = 900.0
    _is_tenferro_array = True

    def __init__(self, data: AnyArray, engine: Engine | None = None, scalar: bool = False) -> None:
        if engine is None or not (isinstance(data, np.ndarray) or hasattr(data, "engine")):
            raise TraceError(
                f"Array: a {type(data).__name__}; the class is not called, tn.asarray(x) makes arrays{at(user_line())}"
            )
        self._data = data
        self._engine = engine
        self._scalar = scalar

    def _call(self, name: str, *args: Any, **kwargs: Any) -> Any:
        return evaluator().call(name, args, kwargs)

    # -- attributes --------------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> np.dtype[Any]:
        dtype: np.dtype[Any] = self._data.dtype
        return dtype

    @dtype.setter
    def dtype(self, value: Any) -> None:
        raise AttributeError(f"dtype: assigned to an array; x = x.view(dtype) is needed{at(user_line())}")

    @property
    def shape(self) -> tuple[int, ...]:
        shape: tuple[int, ...] = self._data.shape
        return shape

    @shape.setter
    def shape(self, value: Any) -> None:
        # As NumPy's: this array alone has another shape, on the same memory; no other that shares it does.
        if self._scalar or not isinstance(self._data, np.ndarray):
            kind = "a scalar" if self._scalar else f"an array on {self.device}"
            raise AttributeError(f"shape: assigned to {kind}; x = x.reshape(shape) is needed{at(user_line())}")
        view = self._data.view()
        try:
            standing_at(user_line())(setattr, (view, "shape", value), {})
        except NUMPY_ERRORS as error:
            raise as_own("shape", error) from None
        self._data = view

    @property
    def ndim(self) -> int:
        return self._data.ndim

    @property
    def size(self) -> int:
        return self._data.size

    @property
    def itemsize(self) -> int:
        return self._data.itemsize

    @property
    def nbytes(self) -> int:
        return self._data.nbytes

    @property
    def strides(self) -> tuple[int, ...]:
        return self._data.strides

    # -- where it is -------------------------------------------------------------------------------------------------

    @property
    def engine(self) -> Engine:
        """The engine that holds it."""
        return self._engine

    @property
    def device(self) -> str:
        """The engine's name, as the array API standard calls it."""
        return self._engine.id

    def to(self, engine: Engine | str) -> Array:
        """The same array on another engine: itself if it is there already, else a copy.

        UnknownEngineError for a name that is not registered, TypeError for what is neither name nor engine."""
        return self._to("to", engine)

    def _to(self, function: str, engine: Engine | str) -> Array:
        target = engine_of(function, engine)
        if target is self._engine:
            return self
        from tenferro.engines.recording import received

        host = self._host
        is_here = host is self._data
        source = self._engine.id if is_here else "host"
        return Array(received(target, host, source, function, copy=is_here), target, self._scalar)

    def to_device(self, device: Engine | str, /, *, stream: Any = None) -> Array:
        """``to``, under the array API standard's name; engines have no streams, so ``stream`` must be None."""
        if stream is not None:
            raise LoweringError(
                f"to_device: stream {stream!r}; None is needed, the engine has no streams{at(user_line())}"
            )
        return self._to("to_device", self._engine if device == "cpu" else device)

    def block_until_ready(self) -> Array:
        """Itself, once its elements are there."""
        if not isinstance(self._data, np.ndarray):
            self._engine.synchronize()
        return self

    @property
    def _host(self) -> AnyArray:
        """The elements on the host: its own memory where that is there, else a copy."""
        if isinstance(self._data, np.ndarray):
            return self._data
        from tenferro.engines.recording import fetched

        return fetched(self._engine, self._data, "read on the host")

    # -- to and from others ------------------------------------------------------------------------------------------

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> AnyArray:
        """The same memory as an ndarray, unless a dtype or a copy is asked for, or it is a scalar's."""
        if dtype is None or np.dtype(dtype) == self.dtype:
            return np.array(_shared(self), copy=copy)
        return standing_at(user_line())(np.array, (_shared(self),), {"dtype": dtype, "copy": copy})  # type: ignore[no-any-return]

    def __dlpack__(self, **options: Any) -> Any:
        return np.asarray(_shared(self)).__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._data.__dlpack_device__()

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return evaluator().ufunc_call(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return evaluator().function_call(function, args, kwargs)

    def __reduce__(self) -> Any:
        return _unpickled, (np.array(self._host), self._scalar)

    def __copy__(self) -> Array:
        return Array(self._engine.receive(self._host.copy()), self._engine, self._scalar)

    def __deepcopy__(self, memo: Any) -> Array:
        return self.__copy__()

    # -- elements and views ------------------------------------------------------------------------------------------

    def __getitem__(self, key: Any) -> Any:
        # A view or an element needs no kernel: 0.3 us, where the function of the API takes 3.
        data, kind = self._data, type(key)
        is_basic = kind in _BASIC or (kind is tuple and _BASIC.issuperset(map(type, key)))
        if not is_basic or type(data) is not _NDARRAY or self._scalar or current_trace() is not None:
            return self._call("getitem", self, key)
        try:
            return _part(data[key], self._engine)
        except NUMPY_ERRORS as error:
            raise as_own("getitem", error) from None

    # -- writes ------------------------------------------------------------------------------------------------------

    def __setitem__(self, key: Any, value: Any) -> None:
        evaluator().set_item(self, key, value)

    def _set_part(self, name: str, value: Any) -> None:
        if current_trace() is not None:
            return super()._set_part(name, value)
        from tenferro.tracer.api.parts import refuse_imaginary  # made of what traces

        refuse_imaginary(name, self.dtype)
        evaluator().set_item(Array(getattr(self._data, name), self._engine, self._scalar), ..., value)
        return None

    def _inplace(self, name: str, other: Any) -> Any:
        if self._scalar:
            return self._call(name, self, other)
        return evaluator().update_in_place(self, name, other)

    def __mul__(self, other: Any) -> Any:
        return self._repeated(other) if self._scalar and type(other) in (list, tuple) else super().__mul__(other)

    def __rmul__(self, other: Any) -> Any:
        return self._repeated(other) if self._scalar and type(other) in (list, tuple) else super().__rmul__(other)

    def _repeated(self, sequence: Any) -> Any:
        """As by NumPy's scalars, which are numbers: Python repeats a sequence by an int."""
        if self.dtype.kind not in "iu":
            refuse_sequences("multiply", (sequence,))
        return sequence * int(self)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or not hasattr(np.ndarray, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)
        raise AttributeError(
            f"ndarray.{name}: not available on tn.Array; numpy.asarray(x).{name} is NumPy's own{at(user_line())}"
        )

    # -- Python's conversions ----------------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._host)

    def __int__(self) -> int:
        return int(self._host)

    def __float__(self) -> float:
        return float(self._host)

    def __complex__(self) -> complex:
        return complex(self._host)

    def __round__(self, digits: int | None = None) -> Any:
        if not self._scalar:
            raise DtypeError(f"round: of an array; numpy.round(x, digits) rounds its elements{at(user_line())}")
        return round(self.item()) if digits is None else self.round(digits)

    def __index__(self) -> int:
        return self._host.__index__()

    def __len__(self) -> int:
        return len(self._data) if isinstance(self._data, np.ndarray) else len(self._host)

    def __iter__(self) -> Iterator[Any]:
        if not self.ndim:
            raise TypeError("iteration over an array of rank 0; rank 1 or more is needed")
        if type(self._data) is np.ndarray and current_trace() is None:
            return map(_part, self._data, repeat(self._engine))
        return (self[k] for k in range(len(self)))

    def __hash__(self) -> int:  # type: ignore[override]  # numbers are hashed, as NumPy's scalars are
        if not self._scalar:
            raise DtypeError(f"hash: of an array, which has none; x.shape or id(x) can be a key{at(user_line())}")
        return hash(_shared(self))

    def __contains__(self, value: Any) -> bool:
        if self._scalar:
            raise DtypeError(f"in: of a scalar, which contains nothing; == compares{at(user_line())}")
        return value in self._host

    def item(self, *args: Any) -> Any:
        """The element as a Python scalar."""
        return self._host.item(*args)

    def tolist(self) -> Any:
        """Nested lists of Python scalars."""
        return self._host.tolist()

    def tofile(self, fid: Any, sep: str = "", format: str = "%s") -> None:
        """The elements into a file, as bytes or, with ``sep`` between them, as text."""
        self._host.tofile(fid, sep, format)

    def tobytes(self, order: Any = "C") -> bytes:
        """The bytes of the elements."""
        return self._host.tobytes(order)

    def __str__(self) -> str:
        return str(self._host)

    def __format__(self, spec: str) -> str:
        if spec and self.ndim:
            raise DtypeError(f"format: {spec!r} for an array of rank {self.ndim}; a number is needed{at(user_line())}")
        return str(self) if self.ndim else format(self._host, spec)

    def __repr__(self) -> str:
        values = np.array2string(self._host, separator=", ", prefix="Array(")
        shape = f", shape={self.shape}" if "..." in values or not self.size else ""
        return f"Array({values}{shape}, dtype={self.dtype.name}, engine={self._engine.id})"


# What makes views and names elements; bools, arrays and lists choose elements.
_NDARRAY = np.ndarray
_BASIC = frozenset({int, slice, type(None), type(...), np.int64})


def _part(found: Any, engine: Engine) -> Array:
    """A view of an array's memory, or an element of it as a scalar, which shares none."""
    made = Array.__new__(Array)
    made._engine = engine
    made._scalar = is_element = type(found) is not _NDARRAY
    made._data = np.asarray(found) if is_element else found
    return made


def _shared(x: Array) -> Any:
    """What others may write into: a scalar's own memory is not given away."""
    return x._host[()] if x._scalar else x._host


register_wrapper(Array, lambda x: x._data)


def wrap(data: AnyArray, engine: Engine, scalar: bool = False) -> Array:
    """A tn.Array over this memory."""
    return Array(data, engine, scalar)


def _unpickled(data: AnyArray, scalar: bool) -> Array:
    engine = engine_here()
    return Array(engine.receive(data), engine, scalar)


def engine_here() -> Engine:
    """Where arrays are made: on the engine of ``tn.on``, else on the first one."""
    from tenferro.runtime import default_runtime

    return PLACE.get() or default_runtime().engines()[0]


def asarray(x: Any, dtype: Any = None, *, copy: bool | None = None, engine: Engine | str | None = None) -> Array:
    """``x`` as a tn.Array; an ndarray's memory is shared unless a dtype, a byte order or ``copy`` asks for a copy.

    x: an array of any library (DLPack, ``__array__``), numbers or nested lists of them.
    DtypeError for strings, objects and longdouble; ValueError where ``copy=False`` cannot be kept. Inside a jitted
    function the result is traced, and ``x`` is read at each call."""
    if current_trace() is not None:
        from tenferro.tracer.api.record import API

        return API["array" if copy else "asarray"].function(x, dtype)  # type: ignore[no-any-return]
    if isinstance(x, Array) and dtype is None and not (copy or x._scalar):
        return x if engine is None else x._to("asarray", engine)
    where = x._engine if isinstance(x, Array) and engine is None else None
    data = _as_ndarray(_shared(x) if isinstance(x, Array) else x, dtype, copy)
    target = where or engine_here()
    if engine is not None:
        target = engine_of("asarray", engine)
    if not target.is_host:
        from tenferro.engines.recording import received

        return Array(received(target, data, "host", "asarray"), target)
    return Array(target.receive(data), target)


def any_array(x: Any) -> Any:
    """``asarray(x)``; outside of traces ``x`` itself where it is an array of any kind."""
    is_array = current_trace() is None and hasattr(x, "dtype") and hasattr(x, "ndim")
    return x if is_array else asarray(x)


def _as_ndarray(x: Any, dtype: Any, copy: bool | None) -> AnyArray:
    if isinstance(x, np.ndarray) and type(x) not in (np.ndarray, np.memmap):
        raise DtypeError(
            f"asarray: an array of class {type(x).__module__}.{type(x).__qualname__}; a plain numpy.ndarray is "
            f"needed{at(user_line())}"
        )
    if not isinstance(x, np.ndarray) and hasattr(x, "__dlpack__") and not hasattr(x, "__array__"):
        x = np.from_dlpack(x)
    if isinstance(x, np.ndarray | np.generic) and x.dtype.kind == "f" and np.dtype(dtype).kind in "iu":
        x = evaluator().call("astype", (x, dtype), {})  # saturates, and NaN becomes 0, as in the kernels
    data = standing_at(user_line())(np.array, (x,), {"dtype": dtype, "copy": copy})
    return as_native(data, "x", "asarray")


def array(x: Any, dtype: Any = None, *, copy: bool = True, engine: Engine | str | None = None) -> Array:
    """``asarray`` that copies."""
    return asarray(x, dtype, copy=True if copy else None, engine=engine)


def from_dlpack(x: Any, /) -> Array:
    """A tn.Array over the memory of another library's array on the CPU."""
    return asarray(np.from_dlpack(x))
