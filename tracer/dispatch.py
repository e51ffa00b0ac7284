"""NumPy's protocols on traced values: a NumPy function and its arguments in, the NumPy-level function that serves it.

Operations among known cells are NumPy's own, at once; everything else is traced.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Hashable
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api import writes
from tenferro.tracer.api.deliver import check_cast, stretches
from tenferro.tracer.api.library import near, ufunc_call
from tenferro.tracer.api.promotion import broadcast_into
from tenferro.tracer.api.record import API, ApiFunction
from tenferro.tracer.api.registry import BY_NUMPY
from tenferro.tracer.contents import contents
from tenferro.tracer.dim import Dim
from tenferro.tracer.errors import REFUSALS, MutationError, TraceError
from tenferro.tracer.foreign import NUMPY_ERRORS, as_own
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.standing import standing_at
from tenferro.tracer.trace import Trace, current_trace, is_tenferro_array, running_trace
from tenferro.tracer.traced import TracedArray, from_known
from tenferro.tracer.varying import keep_slope, keep_slopes

# Their results lie in the argument's memory, which the variables keep track of themselves.
_ALWAYS_TRACED = frozenset({"copyto", "shape", "size", "ndim"})


def is_known(x: Any) -> bool:
    """Whether the trace has made every element of ``x`` itself: no traced value, array from outside or Dim in it."""
    kind = type(x)
    if kind is TracedArray:
        return x._cell.known is not None
    if kind in (int, float, bool, str, complex) or x is None:
        return True
    if kind is Dim or isinstance(x, np.ndarray) or is_tenferro_array(x):
        return False
    if kind in (tuple, list):
        return all(is_known(i) for i in x)
    if kind is dict:
        return all(is_known(i) for i in x.values())
    if kind is slice:
        return all(is_known(i) for i in (x.start, x.stop, x.step))
    return True


def _bare(x: Any) -> Any:
    """``x`` with known cells as the ndarrays they are."""
    kind = type(x)
    if kind is TracedArray:
        x.live_trace()
        return x.known()
    if kind is tuple or kind is list:
        return kind(_bare(i) for i in x)
    if kind is dict:
        return {k: _bare(v) for k, v in x.items()}
    return x


def wrap_known(trace: Trace, x: Any) -> Any:
    """NumPy's results as known cells; NumPy scalars stay what they are."""
    if type(x) is np.ndarray:
        return from_known(trace, x)
    if type(x) in (tuple, list):
        return type(x)(wrap_known(trace, i) for i in x)
    if isinstance(x, tuple) and hasattr(x, "_fields"):
        return type(x)(*(wrap_known(trace, i) for i in x))
    return x


def _evaluate(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """NumPy's own function on the known arrays; ``out=`` writes into the variable."""
    trace = running_trace(getattr(function, "__name__", "function"))
    outs = kwargs.get("out")
    found = standing_at(user_line())(function, _bare(args), _bare(kwargs))
    targets = [o for o in (outs if type(outs) is tuple else (outs,)) if type(o) is TracedArray]
    for target in (*targets, _written(function, args, kwargs)):
        if type(target) is TracedArray:
            target._cell.touched()
    if targets:
        return targets[0] if len(targets) == 1 else tuple(targets)
    return wrap_known(trace, found)


_WRITERS: dict[Any, str] = {
    np.fill_diagonal: "a",
    np.put: "a",
    np.putmask: "a",
    np.place: "arr",
    np.put_along_axis: "arr",
}
"""NumPy's functions that write into their first argument, by its name."""


def _written(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What NumPy's function has written into, but for its ``out=``; None where there is nothing."""
    if function is np.nan_to_num:
        return args[0] if args and not kwargs.get("copy", (*args, True, True)[1]) else None
    name = _WRITERS.get(function) if isinstance(function, Hashable) else None
    return None if name is None else args[0] if args else kwargs.get(name)


def _present(x: Any, name: str) -> Any:
    """``x`` with every array as its present elements, for NumPy's own functions; None where an argument of the traced
    function or an unknown size takes part in one. Captured arrays that are read so are guarded."""
    kind = type(x)
    if kind is TracedArray or isinstance(x, np.ndarray) or is_tenferro_array(x):
        from tenferro.tracer.traced import as_traced

        trace = running_trace(name)
        traced = as_traced(trace, x, name)
        known = traced.known()
        return contents(trace, traced.read(), name) if known is None else _read_only(known)
    if kind is Dim:
        return None
    if kind in (tuple, list):
        parts = [_present(i, name) for i in x]
        return None if any(p is None and i is not None for p, i in zip(parts, x, strict=True)) else kind(parts)
    if kind is dict:
        values = _present(list(x.values()), name)
        return None if values is None else dict(zip(x, values, strict=True))
    return x


def _read_only(array: Any) -> Any:
    view = array.view()
    view.flags.writeable = False
    return view


def call(name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """An operator or method whose array is a known cell."""
    function = API[name]
    if function.view or name in _ALWAYS_TRACED or not (is_known(args) and is_known(kwargs)):
        return _viewing(function, args, kwargs)
    return _evaluate(function.reference, args, kwargs)


def _viewing(function: ApiFunction, args: Any, kwargs: dict[str, Any]) -> Any:
    """A function that may make a view: a known cell's view is one; what is no view of it is NumPy's at once."""
    if function.name == "getitem" and is_known(args):
        x, key = args
        try:
            found = x.known()[_bare(key)]
        except NUMPY_ERRORS as error:
            raise as_own("getitem", error) from None
        if not isinstance(found, np.ndarray) or not np.may_share_memory(found, x.known()):
            return wrap_known(x.live_trace(), found)
    return function.function(*args, **kwargs)


def array_function(function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """``__array_function__``: serve it, or name what is nearest."""
    found = BY_NUMPY.get(function)
    name = getattr(function, "__name__", str(function))
    if found is not None and (found.view or name in _ALWAYS_TRACED):
        if is_known(args) and found.name == "asarray":
            return found.function(*args, **kwargs)
        return _viewing(found, args, kwargs)
    if is_known(args) and is_known(kwargs):
        return _evaluate(function, args, kwargs)
    if found is None:
        present = _present((args, kwargs), name)
        if present is not None:
            return _of_present(name, _by_numpy(function, name, *present), (args, kwargs), near(name))
        module = function.__module__ if function.__module__ in ("numpy.linalg", "numpy.fft") else "numpy"
        raise TraceError(f"{module}.{name}: not available in a traced function{near(name)}{at(user_line())}")
    try:
        return found.function(*args, **kwargs)
    except TraceError as error:
        return concretely(found, args, kwargs, error)


def _by_numpy(function: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """NumPy's own function on present elements, which it may not write."""
    try:
        return function(*args, **kwargs)
    except ValueError as error:
        if "read-only" not in str(error):
            raise
    raise TraceError(f"numpy.{name}: writes into an array, which is not available here{near(name)}{at(user_line())}")


def concretely(function: ApiFunction, args: Any, kwargs: dict[str, Any], error: TraceError) -> Any:
    """The function once more where it was refused because a number is traced: with the numbers that depend on captured
    arrays alone as numbers, then, if nothing else takes part, on NumPy's own. Raises ``error`` where neither helps."""
    trace = current_trace()
    if trace is None or not trace.captured:
        raise error
    refusals = REFUSALS.get() or []
    known = len(refusals) - 1  # what is refused on the way to a result is nobody's loss
    found = _concretely(trace, function, args, kwargs, error)
    del refusals[known:]
    return found


def _concretely(trace: Trace, function: ApiFunction, args: Any, kwargs: dict[str, Any], error: TraceError) -> Any:
    plain = [_number(x, function.name) for x in args], {k: _number(x, function.name) for k, x in kwargs.items()}
    if any(a is not b for a, b in zip((*args, *kwargs.values()), (*plain[0], *plain[1].values()), strict=True)):
        try:
            return function.function(*plain[0], **plain[1])
        except TraceError:
            pass
    present = _present((args, kwargs), function.name)
    if present is None or kwargs.get("out") is not None:
        raise error
    return _of_present(function.name, standing_at(user_line())(function.reference, *present), (args, kwargs))


def _of_present(name: str, found: Any, given: Any, cure: str = "") -> Any:
    """What NumPy's own function has given for present elements."""
    trace = running_trace(name)
    keep_slopes(trace, found, given, name, cure)
    return wrap_known(trace, found)


def _number(x: Any, name: str) -> Any:
    """A traced number of captured arrays alone as NumPy's scalar; anything else as it is."""
    if type(x) is not TracedArray or x.type.shape or x._cell.known is not None:
        return x
    found = contents(x.live_trace(), x.read(), name)
    if found is not None:
        keep_slope(x.live_trace(), x.read(), name)
    return x if found is None else found[()]


# -- ufuncs ----------------------------------------------------------------------------------------------------------

_REDUCTIONS: dict[np.ufunc, str] = {
    np.add: "sum",
    np.multiply: "prod",
    np.maximum: "max",
    np.minimum: "min",
    np.logical_and: "all",
    np.logical_or: "any",
}


def array_ufunc(ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
    """``__array_ufunc__``: calls and the methods that have a counterpart."""
    for x in inputs:
        if type(x) is TracedArray and x._cell.known is None:  # the usual case
            break
    else:
        if method != "at" and is_known(inputs) and is_known(kwargs):
            return _evaluate(getattr(ufunc, method), inputs, kwargs)
    name = ufunc.__name__
    match method:
        case "__call__":
            return _call_ufunc(ufunc, inputs, kwargs)
        case "reduce" if ufunc in _REDUCTIONS:
            return _reduce(ufunc, *inputs, **kwargs)
        case "accumulate" if f"{name}.accumulate" in API:
            return API[f"{name}.accumulate"].function(*inputs, **kwargs)
        case "outer":
            left, right = inputs
            trace = running_trace(name)
            rank = len(np.shape(right)) if type(right) is not TracedArray else right.ndim
            return API[name].function(_trailing(trace, left, rank), right, **kwargs)
        case "at":
            return _at(ufunc, *inputs)
        case _:
            present = _present((inputs, kwargs), f"{name}.{method}")
            if present is not None:
                found = getattr(ufunc, method)(*present[0], **present[1])
                return _of_present(f"{name}.{method}", found, (inputs, kwargs))
            raise TraceError(f"{name}.{method}: not available in a traced function{near(method)}{at(user_line())}")


def _trailing(trace: Trace, x: Any, rank: int) -> Any:
    from tenferro.tracer.traced import as_traced

    return as_traced(trace, x, "outer")[(..., *(None,) * rank)]


_LAYOUT = ("order", "subok")  # of results, which are fresh and in C order whatever these say
_USUAL = {"where": True, "dtype": None, "casting": "same_kind"}


def ufunc_options(name: str, function: Any, options: dict[str, Any]) -> dict[str, Any]:
    """The options of a ufunc's call that ask for something; a TraceError where ``function`` has no such parameter."""
    asked = {k: v for k, v in options.items() if k not in _LAYOUT and not (k in _USUAL and v is _USUAL[k])}
    refused = asked.keys() - inspect.signature(function).parameters if asked else None
    if refused:
        raise TraceError(f"{name}: {', '.join(sorted(refused))}; not available{at(user_line())}")
    return asked


def _call_ufunc(ufunc: np.ufunc, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    found = BY_NUMPY.get(ufunc)
    if not kwargs:
        return ufunc_call(ufunc, inputs, None) if found is None else found.function(*inputs)
    out = kwargs.pop("out", None)
    options = ufunc_options(ufunc.__name__, ufunc_call if found is None else found.function, kwargs)
    return ufunc_call(ufunc, inputs, out, **options) if found is None else found.function(*inputs, out, **options)


def _reduce(ufunc: np.ufunc, x: Any, axis: Any = 0, dtype: Any = None, out: Any = None, **options: Any) -> Any:
    name = _REDUCTIONS[ufunc]
    if type(out) is tuple:
        out = out[0]
    keyed: dict[str, Any] = {"axis": axis, "out": out, **options}
    if name in ("sum", "prod"):
        keyed["dtype"] = dtype
    elif dtype is not None:
        raise TraceError(f"{ufunc.__name__}.reduce: dtype; not available, x.astype(dtype) converts{at(user_line())}")
    return API[name].function(x, **keyed)


_COMBINING = (np.add, np.multiply, np.maximum, np.minimum)
"""Ufuncs whose ``at`` is a scatter; ``subtract`` adds the negative."""


def _at(ufunc: np.ufunc, x: Any, key: Any, value: Any = None) -> None:
    if type(x) is not TracedArray:
        raise MutationError(
            f"{ufunc.__name__}.at: a traced value goes into an array made outside the trace; write into a traced "
            f"array{at(user_line())}"
        )
    if is_known((x, key, value)):
        operands: Any = (x.known(), *_bare((key,) if value is None else (key, value)))
        try:
            ufunc.at(*operands)
        except NUMPY_ERRORS as error:
            raise as_own(f"{ufunc.__name__}.at", error) from None
        x._cell.touched()
        return
    if ufunc is np.subtract:
        writes.combine_at(np.add, x, key, -value)
    elif ufunc in _COMBINING:
        writes.combine_at(ufunc, x, key, value)
    else:
        raise TraceError(
            f"{ufunc.__name__}.at: not available in a traced function; add.at, subtract.at, multiply.at, maximum.at "
            f"and minimum.at are{at(user_line())}"
        )


# -- writes ----------------------------------------------------------------------------------------------------------


def set_item(x: TracedArray, key: Any, value: Any) -> None:
    """``x[key] = value``."""
    trace = x.live_trace()
    if x._cell.known is not None and is_known(key) and is_known(value):
        x.check_writeable()
        known = x.known()
        assert known is not None
        try:
            standing_at(user_line())(operator.setitem, (known, _bare(key), _bare(value)), {})
        except NUMPY_ERRORS as error:
            raise as_own("setitem", error) from None
        x._cell.touched()
        return
    assert trace is current_trace()
    writes.setitem(x, key, value)


def update_in_place(x: TracedArray, name: str, other: Any) -> TracedArray:
    """``x op= other``: the same variable with a new value."""
    trace = x.live_trace()
    x.check_writeable()
    if x._cell.known is not None and is_known(other):
        known = x.known()
        standing_at(user_line())(API[name].reference, (known, _bare(other)), {"out": known})
        x._cell.touched()
        return x
    value = API[name].function(x, other).read()
    check_cast(name, value.type.dtype, x.dtype)
    x.store(broadcast_into(trace, name, build.convert(trace, value, x.dtype), x.type.shape, stretches(name)))
    return x
