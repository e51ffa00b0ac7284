"""Operations on concrete arrays: a function's name and arguments in, its result out, through the compiled kernels.

Each function of the API is jitted once per set of static arguments, so an eager operation and the same operation inside
a jitted function run the same code. Functions whose result may share memory (slices, reshape, transpose) move no
element and run as NumPy's views of the same buffer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Iterable
from functools import partial
from typing import Any

import numpy as np

from tenferro.array import Array, asarray, engine_here, wrap
from tenferro.engines.engine import Engine
from tenferro.jit import JitFunction
from tenferro.naming import not_on_one
from tenferro.numpys_own import by_numpy
from tenferro.operators import is_operator, make_native
from tenferro.placing import PLACE, at_home
from tenferro.tracer.api.deliver import COMPUTED_IN_OUT, check_cast, stretches
from tenferro.tracer.api.elementwise import SMALL_EXPONENTS
from tenferro.tracer.api.promotion import check_number, out_mismatch
from tenferro.tracer.api.record import API, ApiFunction, TracedFunction
from tenferro.tracer.api.registry import BY_NUMPY
from tenferro.tracer.complaints import scalar_write
from tenferro.tracer.errors import DtypeError, LoweringError, TraceError
from tenferro.tracer.exact import static_key
from tenferro.tracer.foreign import NUMPY_ERRORS, as_own
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.signature import Binder, as_native
from tenferro.tracer.trace import current_trace
from tenferro.tracer.tree import leaves

MAX_STATIC_VARIANTS = 256
_ANY_ARGS, _ANY_NAMES = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
_INT64 = np.iinfo(np.int64)


def jitted(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tenferro's own on arrays, jitted: it reads nothing from outside, and its line is its caller's."""
    return JitFunction(function, Binder(function), None, eager=True)


class EagerFunction:
    """One function of the API on concrete arrays."""

    def __init__(self, record: TracedFunction) -> None:
        self.record = record
        self.signature = inspect.signature(record.function)
        self._arrays = frozenset(record.arrays) - {"out"}
        names = [n for n, p in self.signature.parameters.items() if p.kind is not p.VAR_POSITIONAL]
        leading = 0
        while leading < len(names) and names[leading] in self._arrays:
            leading += 1
        self._plain = [_jitted(record, tuple(names[:k]), {}) for k in range(leading + 1)]
        for k, plain in enumerate(self._plain):
            if is_operator(record.name, k):
                plain.when_native = partial(make_native, record.name, k)
        self._by_value = record.name == "power"  # x ** 2 is a product
        kinds = {p.kind for p in self.signature.parameters.values()}
        # All that can be given, where that is known: no ``*args`` and no ``**kwargs``.
        self._names = () if kinds & {_ANY_ARGS, _ANY_NAMES} else tuple(self.signature.parameters)
        self._forms: dict[tuple[Any, ...], tuple[str, ...]] = {}
        self._variants: dict[Hashable, JitFunction] = {}

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        place = PLACE.get()
        if place is not None:
            return self._on(place, args, kwargs)
        if not kwargs and 0 < len(args) < len(self._plain) and not any(map(self._taken_by_value, args)):
            return self._plain[len(args)](*args)
        bound = self._bind(args, kwargs)
        out = bound.pop("out", None)
        if isinstance(out, tuple) and len(out) == 1:
            (out,) = out
        if out is not None and self.record.name in COMPUTED_IN_OUT and bound.get("dtype") is None:
            _check_target(self.record.name, out)
            bound["dtype"] = out.dtype
        is_ufunc = isinstance(getattr(self.record, "reference", None), np.ufunc)
        where = True if out is None or not is_ufunc else bound.pop("where", True)  # a reduction's chooses elements
        taken = self._arrays
        arrays = {k: v for k, v in bound.items() if k in taken and v is not None and not self._taken_by_value(v)}
        static = {k: _as_number(v) for k, v in bound.items() if k not in arrays}
        result = self._variant(tuple(arrays), static)(*arrays.values())
        casting = static.get("casting", "same_kind")
        return result if out is None else _deliver(self.record.name, result, out, where, casting)

    def _bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name, in the signature's order. Which they are is the same for all calls of a form; the
        signature itself takes 4 µs to tell."""
        form = (len(args), *kwargs)
        names = self._forms.get(form)
        if names is not None:
            given = dict(zip(self._names, args, strict=False)) | kwargs
            return {name: given[name] for name in names}
        try:
            bound = self.signature.bind(*args, **kwargs).arguments
        except TypeError as error:
            raise DtypeError(f"{self.record.name}: {error}{at(user_line())}") from None
        if self._names:
            self._forms[form] = tuple(bound)
        return bound

    def _on(self, place: Engine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The call under ``tn.on``: its arrays are brought to the engine, but to none where ``out`` is written."""
        try:
            writes = self.signature.bind(*args, **kwargs).arguments.get("out") is not None
        except TypeError:
            writes = False  # refused below
        with at_home():
            return self(args, kwargs) if writes else self(*_brought((args, kwargs), place))

    def _taken_by_value(self, x: Any) -> bool:
        """Whether a number decides what is computed: a small exponent, an int that no traced int can be."""
        if type(x) is int:
            return not _INT64.min <= x <= _INT64.max or (self._by_value and x in SMALL_EXPONENTS)
        return self._by_value and type(x) is float and x in SMALL_EXPONENTS

    def _variant(self, names: tuple[str, ...], static: dict[str, Any]) -> JitFunction:
        try:
            key = (names, tuple(static), static_key(tuple(static.values())))
        except TypeError:
            raise TraceError(
                f"{self.record.name}: one of {', '.join(static)} cannot be hashed; numbers, names, dtypes or tuples "
                f"of them are needed{at(user_line())}"
            ) from None
        found = self._variants.get(key)
        if found is None:
            if len(self._variants) >= MAX_STATIC_VARIANTS:
                self._variants.clear()
            found = self._variants[key] = _jitted(self.record, names, static)
        return found


def _brought(x: Any, place: Engine) -> Any:
    """Every tn.Array in it on this engine."""
    if type(x) is Array:
        return x._to("on", place)
    if type(x) is dict:
        return {k: _brought(v, place) for k, v in x.items()}
    return type(x)(_brought(v, place) for v in x) if type(x) in (tuple, list) else x


def _as_number(x: Any) -> Any:
    """An array as the number or the numbers that it holds."""
    return np.asarray(x).tolist() if isinstance(x, np.ndarray | Array) else x


def _jitted(record: TracedFunction, names: tuple[str, ...], static: dict[str, Any]) -> JitFunction:
    parameters = inspect.signature(record.function).parameters
    rest = next((n for n, p in parameters.items() if p.kind is p.VAR_POSITIONAL), "")
    named = next((n for n, p in parameters.items() if p.kind is p.VAR_KEYWORD), "")
    # What stands before ``*args`` cannot be given by name beside them.
    most = inspect.Parameter.POSITIONAL_OR_KEYWORD if rest else inspect.Parameter.POSITIONAL_ONLY
    leading = [n for n, p in parameters.items() if p.kind <= most]

    def function(*arrays: Any) -> Any:
        values = dict(zip(names, arrays, strict=True)) | static
        first = [values.pop(n) for n in leading if n in values]
        return record.function(*first, *values.pop(rest, ()), **values.pop(named, {}), **values)

    function.__name__ = function.__qualname__ = record.name
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    signature = inspect.Signature([inspect.Parameter(n, kind) for n in names])
    function.__signature__ = signature  # type: ignore[attr-defined]
    return JitFunction(function, Binder(function), None, eager=True)


def _deliver(name: str, result: Any, out: Any, where: Any, casting: Any = "same_kind") -> Any:
    """Write a result into ``out``, as NumPy does: only what casts by the rule and fits."""
    _check_target(name, out)
    _engine(name, result, out, where)
    data = _data(result)
    if data is _data(out):
        return out
    check_cast(name, data.dtype, out.dtype, casting)
    for x, stretched in ((data, stretches(name)), (_data(where), True)):
        if not _fits(np.shape(x), out.shape, stretched):
            raise out_mismatch(name, str(np.shape(x)), str(out.shape), stretched)
    if isinstance(out, Array) and not out.engine.is_host:
        return _replaced(name, out, result, where)
    np.copyto(_data(out), _data(_converted(result, out.dtype)), where=_data(where))
    return out


def _replaced(name: str, out: Array, result: Any, where: Any) -> Array:
    """``out`` with the result as its memory: nothing is written on a device, so that views of the old one stay."""
    if where is not True or np.shape(result) != out.shape:
        raise _no_write(name, out)
    new = call("astype", (result, out.dtype), {}) if result.dtype != out.dtype else result
    out._data = asarray(new, engine=out.engine)._data
    return out


def _no_write(name: str, out: Array) -> LoweringError:
    return LoweringError(
        f"{name}: an array on {out.device}, whose memory is not written; a jitted function that copies, writes and "
        f"returns is needed{at(user_line())}"
    )


def _fits(own: tuple[int, ...], shape: tuple[int, ...], stretches: bool) -> bool:
    if own == shape or not stretches:
        return own == shape
    aligned = (1,) * (len(shape) - len(own)) + own
    return len(aligned) == len(shape) and all(n in (1, m) for n, m in zip(aligned, shape, strict=True))


def _check_target(name: str, out: Any) -> None:
    """Raise unless ``out`` can be written: an array, and none that stands for a scalar."""
    if not isinstance(out, np.ndarray | Array):
        raise DtypeError(f"{name}: out of class {type(out).__name__}; an array is needed{at(user_line())}")
    if isinstance(out, Array) and out._scalar:
        raise scalar_write(name)


def _data(x: Any) -> Any:
    return x._data if type(x) is Array else x


def _unwrapped(x: Any) -> Any:
    if type(x) is Array:
        return x._data[()] if x._scalar else x._data
    if type(x) is tuple or type(x) is list:
        return type(x)(_unwrapped(v) for v in x)
    return x


_functions: dict[str, EagerFunction] = {}
_OF_MEMORY = frozenset({"may_share_memory", "shares_memory"})  # asked by NumPy before it works in place


def _engines(args: Iterable[Any]) -> set[Engine]:
    """The engines of the tn.Arrays among the arguments, inside sequences too."""
    found: set[Engine] = set()
    for a in args:
        if type(a) is Array:
            found.add(a._engine)
        elif isinstance(a, tuple | list):
            found |= _engines(a)
    return found


def _engine(name: str, *args: Any) -> Engine | None:
    """The engine of the tn.Arrays among the arguments, None where there are none. LoweringError for several."""
    found = _engines(args)
    if len(found) > 1:
        raise not_on_one(name, found)
    return found.pop() if found else None


def call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run a function of the API: traced inside a trace, at once elsewhere. AttributeError for a name it has not."""
    record = API.get(name)
    if record is None:
        raise AttributeError(f"{name}: tenferro has no such function{at(user_line())}")
    if current_trace() is not None:
        return record.function(*args, **kwargs)
    if name in _IN_PLACE:
        return _IN_PLACE[name](*args, **kwargs)
    if name in _OF_MEMORY:
        return record.reference(*map(_unwrapped, args), **{k: _unwrapped(v) for k, v in kwargs.items()})
    if record.view and name != "astype":  # whose bits are those of the kernels
        return _view(record, args, kwargs)
    if not record.arrays:
        return _made(_run(record, args, kwargs), engine_here())
    return _function(name)(args, kwargs)


def _function(name: str) -> EagerFunction:
    function = _functions.get(name)
    if function is None:
        function = _functions[name] = EagerFunction(API[name])
    return function


def namespace_call(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``call`` for ``tenferro.numpy``: what numbers and lists alone make is a tn.Array, as an array namespace's
    functions give its own arrays."""
    return of_namespace(call(name, args, kwargs), args, kwargs)


def namespace_method(ufunc: np.ufunc, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A ufunc's method for ``tenferro.numpy``; among ndarrays alone it is NumPy's own."""
    has_own = current_trace() is not None or any(type(x) is Array for x in leaves((args, kwargs)))
    found = ufunc_call(ufunc, method, args, kwargs) if has_own else getattr(ufunc, method)(*args, **kwargs)
    return of_namespace(found, args, kwargs)


def of_namespace(result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The result of a namespace's function: a tn.Array where no argument is an array."""
    if type(result) is Array or current_trace() is not None:
        return result
    has_array = any(isinstance(x, np.ndarray | np.generic | Array) for x in leaves((args, kwargs)))
    return result if has_array else _made(result, engine_here())


def _view(record: ApiFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    engine = _engine(record.name, *args, *kwargs.values())
    if engine is not None and not engine.is_host:  # a view is another layout of the same memory there too
        return _function(record.name)(args, kwargs)
    result = _run(record, args, kwargs)
    return result if engine is None else _made(result, engine)


def _run(record: ApiFunction, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """NumPy's own function on the arrays' memory."""
    try:
        return record.reference(*map(_unwrapped, args), **{k: _unwrapped(v) for k, v in kwargs.items()})
    except NUMPY_ERRORS as error:
        raise as_own(record.name, error) from None


def _made(result: Any, engine: Engine) -> Any:
    if isinstance(result, tuple | list):
        return type(result)(_made(r, engine) for r in result)
    if isinstance(result, np.ndarray):
        return wrap(engine.receive(as_native(result, "x", "array")), engine)
    return wrap(engine.receive(np.asarray(result)), engine, scalar=True) if isinstance(result, np.generic) else result


# -- NumPy's protocols -----------------------------------------------------------------------------------------------

_REDUCTIONS = {
    "add": "sum", "multiply": "prod", "maximum": "max", "minimum": "min", "logical_and": "all", "logical_or": "any",
}  # fmt: skip


def ufunc_call(ufunc: np.ufunc, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``__array_ufunc__`` of tn.Array: a ufunc of NumPy on at least one of them."""
    if current_trace() is not None:
        from tenferro.tracer.dispatch import array_ufunc

        return array_ufunc(ufunc, method, *inputs, **kwargs)
    name = ufunc.__name__
    if method == "__call__" and name in API:
        return call(name, inputs, _options(name, kwargs) if kwargs else kwargs)
    if method == "reduce" and name in _REDUCTIONS:
        return call(_REDUCTIONS[name], inputs, {"axis": 0} | kwargs)
    if method == "accumulate" and f"{name}.accumulate" in API:
        return call(f"{name}.accumulate", inputs, kwargs)
    if method == "at":
        return _ufunc_at(ufunc, *inputs)
    if method == "outer" and name in API:
        left, right = inputs
        return call(name, (np.reshape(left, (*np.shape(left), *(1,) * np.ndim(right))), right), kwargs)
    return by_numpy(name if method == "__call__" else f"{name}.{method}", getattr(ufunc, method), inputs, kwargs)


def _options(name: str, kwargs: dict[str, Any]) -> dict[str, Any]:
    from tenferro.tracer.dispatch import ufunc_options

    out = {k: v for k, v in kwargs.items() if k == "out"}
    return out | ufunc_options(name, API[name].function, {k: v for k, v in kwargs.items() if k != "out"})


def _ufunc_at(ufunc: np.ufunc, target: Any, key: Any, values: Any = None) -> None:
    """``np.add.at``: repeated indices take part one after another, each step rounding to the target's dtype."""
    _engine(f"{ufunc.__name__}.at", target, key, values)
    rest = () if values is None else (_converted(values, target.dtype),)
    try:
        ufunc.at(_data(target), _unwrapped(key), *rest)
    except NUMPY_ERRORS as error:
        raise as_own(f"{ufunc.__name__}.at", error) from None


def _converted(value: Any, dtype: np.dtype[Any]) -> Any:
    """The value in this dtype, by tenferro's own conversion (float to int saturates); a Python number must fit."""
    check_number("setitem", value, dtype)
    if isinstance(value, np.ndarray | np.generic | Array) and value.dtype != dtype:
        with at_home():
            value = call("astype", (value, dtype), {})
    return _data(value)


def set_item(array: Array, key: Any, value: Any) -> None:
    """``array[key] = value``."""
    trace = current_trace()
    if trace is not None:
        from tenferro.tracer.traced import captured

        captured(trace, array)[key] = value
        return
    _check_target("setitem", array)
    _engine("setitem", array, key, value)
    if not array.engine.is_host:
        raise _no_write("setitem", array)
    new = _converted(value, array.dtype)
    try:
        with np.errstate(all="ignore"):
            array._data[_unwrapped(key)] = new
    except NUMPY_ERRORS as error:
        raise as_own("setitem", error) from None


def update_in_place(array: Array, name: str, other: Any) -> Array:
    """``array op= other``: NumPy's function with ``out=array``."""
    with at_home():
        result = call(name, (array, other), {})
    if current_trace() is not None:
        array[...] = result  # refused there: a captured array is not the traced function's own
    _deliver(name, result, array, True)
    return array


def function_call(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``__array_function__`` of tn.Array: a function of NumPy on at least one of them."""
    if current_trace() is not None:
        from tenferro.tracer.dispatch import array_function

        return array_function(function, args, kwargs)
    found = BY_NUMPY.get(function)
    if found is None:
        return by_numpy(getattr(function, "__name__", str(function)), function, args, kwargs)
    return call(found.name, args, kwargs)


def _nan_to_num(x: Any, copy: bool = True, *args: Any, **options: Any) -> Any:
    if copy or not isinstance(x, np.ndarray | Array) or getattr(x, "_scalar", False):
        return _function("nan_to_num")((x, True, *args), options)
    with at_home():
        return _deliver("nan_to_num", _function("nan_to_num")((x, True, *args), options), x, True)


def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    _check_target("copyto", dst)
    _engine("copyto", dst, src, where)
    if type(src) is not int:  # a Python int takes the target's dtype where it fits
        src = src if isinstance(src, np.ndarray | np.generic | Array) else np.asarray(src)
        check_cast("copyto", src.dtype, dst.dtype, casting)
    value = _converted(src, dst.dtype)
    try:
        np.copyto(_data(dst), value, casting="unsafe", where=_data(where))
    except NUMPY_ERRORS as error:
        raise as_own("copyto", error) from None


def _put_along_axis(arr: Any, indices: Any, values: Any, axis: Any) -> None:
    _in_memory("put_along_axis", arr, (indices, values))
    _written("put_along_axis", np.put_along_axis, _data(arr), _data(indices), _converted(values, arr.dtype), axis)


def _in_memory(name: str, target: Any, others: tuple[Any, ...]) -> None:
    """Raise unless the array's memory is the host's and may be written."""
    _check_target(name, target)
    _engine(name, target, *others)
    if isinstance(target, Array) and not target.engine.is_host:
        raise _no_write(name, target)


def _written(name: str, function: Callable[..., Any], *args: Any, **options: Any) -> None:
    """NumPy's own function that writes, on arrays' memory."""
    try:
        function(*map(_unwrapped, args), **options)
    except NUMPY_ERRORS as error:
        raise as_own(name, error) from None


def _fill_diagonal(a: Any, val: Any, wrap: bool = False) -> None:
    _in_memory("fill_diagonal", a, (val,))
    _written("fill_diagonal", np.fill_diagonal, _data(a), _converted(val, a.dtype), wrap)


def _put(a: Any, ind: Any, v: Any, mode: str = "raise") -> None:
    _in_memory("put", a, (ind, v))
    _written("put", np.put, _data(a), ind, _converted(v, a.dtype), mode)


def _by_mask(name: str) -> Callable[..., None]:
    """``putmask`` and ``place``, which convert nothing that loses a value."""

    def function(array: Any, mask: Any, values: Any) -> None:
        _in_memory(name, array, (mask, values))
        _written(name, getattr(np, name), _data(array), mask, values)

    return function


_IN_PLACE: dict[str, Callable[..., Any]] = {
    "copyto": _copyto, "nan_to_num": _nan_to_num, "put_along_axis": _put_along_axis, "fill_diagonal": _fill_diagonal,
    "put": _put, "putmask": _by_mask("putmask"), "place": _by_mask("place"),
}  # fmt: skip
