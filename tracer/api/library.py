"""NumPy functions without a row of their own whose result shape is fixed: run as calls at a seam.

In: traced arrays and static arguments. Out: a result whose dtype NumPy itself has told, on a tiny array.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, Literal as OneOf

import numpy as np

from tenferro.tracer.api.creation import stack_nested
from tenferro.tracer.api.deliver import deliver, new, numbers_of
from tenferro.tracer.api.elementwise import BY_UFUNC
from tenferro.tracer.api.layout import axes_of, axis_of, line_of
from tenferro.tracer.api.promotion import (
    broadcast_operands,
    converted,
    resolve,
    result_type as promote,
    strong,
)
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.api.vocabulary import WITH_ROWS
from tenferro.tracer.dim import pinned
from tenferro.tracer.dims import Extent
from tenferro.tracer.errors import DtypeError, ShapeError, TraceError
from tenferro.tracer.foreign import NUMPY_ERRORS, as_own
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import library
from tenferro.tracer.ops.reductions import reduced_shape
from tenferro.tracer.program import Operand
from tenferro.tracer.trace import Trace, is_supported, running_trace
from tenferro.tracer.traced import as_traced, number_of, operand

Rule = OneOf["same", "reduce"]


def ufunc_call(
    ufunc: np.ufunc,
    args: tuple[Any, ...],
    out: Any = None,
    where: Any = True,
    dtype: Any = None,
    casting: Any = "same_kind",
) -> Any:
    """Any ufunc of NumPy's main namespace with one result."""
    name = ufunc.__name__
    if getattr(np, name, None) is not ufunc or ufunc.nout != 1 or ufunc.signature is not None:
        raise TraceError(f"{name}: not available in a traced function{near(name)}{at(user_line())}")
    trace = running_trace(name)
    pairs = [operand(trace, x, name) for x in args]
    dtypes = resolve(ufunc, tuple(k for _, k in pairs), dtype, casting)
    operands = [converted(trace, x, d, name) for (x, _), d in zip(pairs, dtypes, strict=False)]
    operands = broadcast_operands(trace, name, operands)
    shape = max((x.type.shape for x in operands), key=len)
    value = trace.emit1(library.numpy_call, *operands, function=name, static=(), shape=shape, dtype=dtypes[-1])
    return deliver(trace, name, value, out, where, casting)


_BY_CALLBACK = "tenferro.pure_callback(numpy.fft.{0}, tenferro.ShapeDtypeStruct(shape, dtype), x) calls it at each run"
_TRANSFORMS = frozenset(np.fft.__all__)
_NEAREST: dict[str, str] = {
    "apply_along_axis": "tenferro.numpy.apply_along_axis, or a function of whole arrays, is",
    "apply_over_axes": "the function with axis=(0, 1) is",
    "vectorize": "tenferro.numpy.vectorize, or a function of whole arrays, is",
    "eig": "numpy.linalg.eigh of a symmetric or Hermitian matrix is",
    "eigvals": "numpy.linalg.eigvalsh of a symmetric or Hermitian matrix is",
    "poly": "numpy.polymul of the factors is",
    "histogramdd": "numpy.add.at(counts, (i, j, k), 1) at places i, j, k by numpy.digitize is",
    "reduceat": "numpy.bincount(group, weights=x), which sums by group, is",
    "accumulate": "tenferro.lax.associative_scan of the function is",
    "frexp": "e = (x.view(numpy.int64) >> 52 & 2047) - 1022 and x / 2.0**e are, for normal numbers of float64",
}


def near(name: str) -> str:
    """What is nearest to a name that is not available, for an error text: by meaning for a function of NumPy, by
    spelling for a name that NumPy has not."""
    import difflib

    from tenferro.tracer.api.record import API

    if name in _NEAREST:
        return f"; {_NEAREST[name]}"
    if name in _TRANSFORMS and not hasattr(np, name):
        return f"; {_BY_CALLBACK.format(name)}, or call it outside"
    found = [] if hasattr(np, name) else difflib.get_close_matches(name, API, 1, 0.75)
    return f"; numpy.{found[0]} is the nearest name that is" if found else "; return the array and call it outside"


def _call(name: str, rule: Rule, a: Any, axis: Any, keepdims: bool, static: dict[str, Hashable], out: Any) -> Any:
    trace = running_trace(name)
    array = as_traced(trace, a, name)
    value = array.read()
    rank = len(value.type.shape)
    if rule == "same":
        k = axis_of(axis, rank, name)
        static, shape = {**static, "axis": k}, value.type.shape
    else:
        axes = axes_of(axis, rank, name)
        shape = reduced_shape(value.type.shape, axes, keepdims)
        static = {**static, "axis": axes, "keepdims": keepdims}  # of an empty axis the call itself says what NumPy says
    return deliver(trace, name, result_of(name, [value], static, shape), out)


def result_of(name: str, operands: Sequence[Operand], static: dict[str, Any], shape: tuple[Extent, ...]) -> Operand:
    """A call of NumPy's function, whose result has this shape; its dtype NumPy tells."""
    dtype = _result_dtype(name, operands, static)
    found: Operand = running_trace(name).emit1(
        library.numpy_call, *operands, function=name, static=tuple(sorted(static.items())), shape=shape, dtype=dtype
    )
    return found


def _result_dtype(name: str, operands: Sequence[Operand], static: dict[str, Any]) -> np.dtype[Any]:
    tiny = [np.ones((1,) * len(x.type.shape), x.type.dtype) for x in operands]
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")  # about arrays that are nobody's
            dtype = np.asarray(library.by_name(name)(*tiny, **static)).dtype
    except NUMPY_ERRORS as error:
        raise as_own(name, error) from None
    if not is_supported(dtype):
        raise DtypeError(f"{name}: result of dtype {dtype}; no engine holds it{at(user_line())}")
    return dtype


def _along(name: str) -> Callable[..., Any]:
    """Functions that keep the shape and work along one axis."""

    def function(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, *, stable: Any = None) -> Any:
        if order is not None:
            raise TraceError(f"{name}: order; structured arrays are not available{at(user_line())}")
        array = as_traced(running_trace(name), a, name)
        if axis is None or name == "argsort":
            array, axis = line_of(array, axis, name)
        return _call(name, "same", array, axis, False, {} if kind is None else {"kind": kind}, None)

    function.__name__ = name
    return function


def cumprod(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
    """Running products."""
    array, k = line_of(as_traced(running_trace("cumprod"), a, "cumprod"), axis, "cumprod")
    static: dict[str, Hashable] = {} if dtype is None else {"dtype": np.dtype(dtype)}
    return _call("cumprod", "same", array, k, False, static, out)


def median(a: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, keepdims: Any = False) -> Any:
    """The median over the axes."""
    return _call("median", "reduce", a, axis, bool(keepdims), {}, out)


def _quantiles(name: str) -> Callable[..., Any]:
    """``quantile`` and its like: one over the axes, or one for each number of ``q`` along leading axes."""

    def function(
        a: Any, q: Any, axis: Any = None, out: Any = None, overwrite_input: bool = False, *, method: str = "linear",
        keepdims: Any = False,
    ) -> Any:  # fmt: skip
        numbers = _numbers(name, q)
        options = (axis, bool(keepdims))
        if not isinstance(numbers, np.ndarray):  # a number is weak
            return _call(name, "reduce", a, *options, {"q": numbers, "method": method}, out)
        trace = running_trace(name)
        each = [_call(name, "reduce", a, *options, {"q": n, "method": method}, None) for n in numbers.ravel()]
        if not each:
            raise ShapeError(f"{name}: q has no elements; one or more are needed{at(user_line())}")
        joined = stack_nested(trace, each, name)
        return deliver(trace, name, joined.reshape((*numbers.shape, *joined.shape[1:])).read(), out)

    function.__name__ = name
    return function


def _numbers(name: str, q: Any) -> Any:
    """``q`` as a Python number, or as an array of them."""
    q = pinned(q)
    if type(q) in (float, int):
        return q
    found = numbers_of(running_trace(name), q, name)
    if found is None or found.dtype.kind not in "iuf":
        raise TraceError(f"{name}: q {q!r}; Python numbers, which are known, are needed{at(user_line())}")
    return found.astype(np.float64)  # as NumPy has arrays of them: they take part in promotion, numbers do not


def array_equal(a1: Any, a2: Any, equal_nan: bool = False) -> Any:
    """Whether shapes and elements are equal: False at once where shapes differ, else a traced bool."""
    trace = running_trace("array_equal")
    left, right = as_traced(trace, a1, "array_equal"), as_traced(trace, a2, "array_equal")
    same = left.ndim == right.ndim and all(
        trace.guard("==", n, m) for n, m in zip(left.type.shape, right.type.shape, strict=True)
    )
    if not same:
        return False
    equal = left == right
    found = ((equal | ((left != left) & (right != right))) if equal_nan else equal).all()
    return number_of(found)  # a Python bool, as NumPy's


def isclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """|a − b| <= atol + rtol |b|, equal infinities included."""
    trace = running_trace("isclose")
    x = as_traced(trace, a, "isclose")
    # As NumPy: the second side is a float, so that differences of integers do not wrap.
    y = as_traced(trace, b, "isclose")
    y = y.astype(promote((strong(operand(trace, y, "isclose")[1]), float)))
    finite = BY_UFUNC[np.isfinite].function(y)
    close = ((abs(x - y) <= atol + rtol * abs(y)) & finite) | (x == y)
    return new(trace, (close | ((x != x) & (y != y)) if equal_nan else close).read())


def allclose(a: Any, b: Any, rtol: Any = 1e-05, atol: Any = 1e-08, equal_nan: bool = False) -> Any:
    """Whether ``isclose`` holds everywhere, as a traced bool."""
    return number_of(isclose(a, b, rtol, atol, equal_nan).all())


def result_type(*arrays_and_dtypes: Any) -> np.dtype[Any]:
    """``numpy.result_type`` of traced arrays, numbers and dtypes."""
    trace = running_trace("result_type")
    keys = []
    for x in arrays_and_dtypes:
        is_dtype = isinstance(x, np.dtype | type | str)
        keys.append(np.dtype(x) if is_dtype else operand(trace, x, "result_type")[1])
    return promote(keys)


def can_cast(from_: Any, to: Any, casting: Any = "safe") -> bool:
    """``numpy.can_cast`` of a traced array's dtype."""
    return np.can_cast(getattr(from_, "dtype", from_), to, casting)


def may_share_memory(a: Any, b: Any, max_work: Any = None) -> bool:
    """Whether two traced arrays are views of one variable."""
    trace: Trace = running_trace("may_share_memory")
    return bool(as_traced(trace, a, "may_share_memory")._cell is as_traced(trace, b, "may_share_memory")._cell)


def _f(name: str, function: Any, arrays: tuple[str, ...]) -> ApiFunction:
    return ApiFunction(name, function, arrays, False, getattr(np, name))


def _ufunc(ufunc: np.ufunc) -> ApiFunction:
    """A ufunc without a row of its own, as a library call."""

    def unary(x: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None, casting: Any = "same_kind") -> Any:
        return ufunc_call(ufunc, (x,), out, where, dtype, casting)

    def binary(
        x1: Any, x2: Any, /, out: Any = None, *, where: Any = True, dtype: Any = None, casting: Any = "same_kind"
    ) -> Any:
        return ufunc_call(ufunc, (x1, x2), out, where, dtype, casting)

    function, arrays = (unary, ("x",)) if ufunc.nin == 1 else (binary, ("x1", "x2"))
    function.__name__ = ufunc.__name__
    function.__doc__ = f"``numpy.{ufunc.__name__}`` as a library call."
    return ApiFunction(ufunc.__name__, function, (*arrays, "out", "where"), False, ufunc)


def _ufuncs() -> Iterator[ApiFunction]:
    """NumPy's ufuncs of numbers with one result, element by element, that have no row."""
    found = {f.__name__: f for f in map(vars(np).get, np.__all__) if isinstance(f, np.ufunc)}
    for ufunc in found.values():
        has_rows = ufunc in BY_UFUNC or ufunc in WITH_ROWS
        if ufunc.nout == 1 and ufunc.signature is None and not has_rows and ufunc is not np.isnat:
            yield _ufunc(ufunc)


FUNCTIONS: tuple[ApiFunction, ...] = (
    *_ufuncs(),
    _f("sort", _along("sort"), ("a",)),
    _f("argsort", _along("argsort"), ("a",)),
    _f("cumprod", cumprod, ("a", "out")),
    _f("median", median, ("a", "out")),
    *(_f(q, _quantiles(q), ("a", "out")) for q in ("quantile", "percentile", "nanquantile", "nanpercentile")),
    _f("array_equal", array_equal, ("a1", "a2")),
    _f("isclose", isclose, ("a", "b", "rtol", "atol")),
    _f("allclose", allclose, ("a", "b", "rtol", "atol")),
    _f("result_type", result_type, ("arrays_and_dtypes",)),
    _f("can_cast", can_cast, ("from_",)),
    _f("may_share_memory", may_share_memory, ("a", "b")),
    _f("shares_memory", may_share_memory, ("a", "b")),
)
