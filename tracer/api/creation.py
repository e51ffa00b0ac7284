"""Creation and conversion: sizes and values in, new variables out.

With sizes known as numbers NumPy makes the array at once and it stays a known cell; with symbolic sizes the program
makes it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.tracer import build
from tenferro.tracer.api.deliver import new, new_array
from tenferro.tracer.api.promotion import (
    broadcast_into,
    broadcast_operands,
    converted,
    result_type,
    sizes_text,
    stored,
    strong,
)
from tenferro.tracer.api.record import ApiFunction
from tenferro.tracer.complaints import no_integer
from tenferro.tracer.dim import Dim, as_extent, integer
from tenferro.tracer.dims import Extent, floordiv, sub
from tenferro.tracer.errors import DivisionError, DtypeError, ShapeError, TraceError
from tenferro.tracer.foreign import NUMPY_ERRORS, as_own
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import layout, pointwise as p
from tenferro.tracer.program import DimScalar, Literal, Operand
from tenferro.tracer.trace import Trace, check_dtype, is_tenferro_array, running_trace
from tenferro.tracer.traced import TracedArray, as_traced, captured, from_known, is_number, operand

INT64 = np.dtype(np.int64)
FLOAT64 = np.dtype(np.float64)


def dtype_of(dtype: Any, name: str) -> np.dtype[Any]:
    """``numpy.dtype(dtype)``, refused unless engines compute in it; Python's int from a Dim's class counts."""
    try:
        return check_dtype(np.dtype(dtype), name)
    except TypeError as error:
        if isinstance(error, DtypeError):
            raise
        raise DtypeError(f"{name}: dtype {dtype!r}; NumPy knows no such dtype{at(user_line())}") from None


def extents_of(shape: Any, name: str) -> tuple[Extent, ...]:
    """A shape argument (an int, a Dim or a sequence of them) as extents; a negative size is a ShapeError."""
    items = list(shape) if isinstance(shape, tuple | list) else [shape]
    if isinstance(shape, np.ndarray) and not (isinstance(shape, TracedArray) and shape._cell.known is None):
        items = np.atleast_1d(np.asarray(shape)).tolist()
    trace = running_trace(name)
    found: list[Extent] = []
    for item in items:
        extent = as_extent(item)
        if extent is None:
            is_traced = isinstance(item, TracedArray) and item._cell.known is None
            if is_traced or isinstance(item, float) or not hasattr(item, "__index__"):
                raise TraceError(f"{name}: size {no_integer(item, of_sizes=True)}{at(user_line())}")
            extent = int(item.__index__())
        if not trace.guard("<=", 0, extent):
            raise ShapeError(f"{name}: size {trace.hint(extent)}; sizes cannot be negative{at(user_line())}")
        found.append(extent)
    return tuple(found)


def _is_known(shape: Sequence[Extent]) -> bool:
    return all(isinstance(n, int) for n in shape)


def _refuse_order(order: Any, name: str) -> None:
    if order not in ("C", "K", "A", None):
        raise TraceError(f"{name}: order {order!r}; results of a traced function are in C order{at(user_line())}")


def full(
    shape: Any, fill_value: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None
) -> Any:
    """An array of one value."""
    return _filled("full", shape, fill_value, dtype, order)


def _filled(name: str, shape: Any, fill_value: Any, dtype: Any, order: Any = "C") -> TracedArray:
    trace = running_trace(name)
    _refuse_order(order, name)
    extents = extents_of(shape, name)
    value, key = operand(trace, fill_value, name)
    target = strong(key) if dtype is None else dtype_of(dtype, name)
    value = converted(trace, value, target, name) if key is int else build.convert(trace, value, target)
    if isinstance(value, Literal) and _is_known(extents):
        known: Any = extents
        try:
            made = np.full(known, value.value, target) if value.value else np.zeros(known, target)
        except NUMPY_ERRORS as error:
            raise as_own(name, error) from None
        return from_known(trace, made, value.value)
    return new_array(trace, build.broadcast(trace, broadcast_into(trace, name, value, extents), extents))


def zeros(shape: Any, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """Zeros; float64 unless told otherwise."""
    return _filled("zeros", shape, 0, float if dtype is None else dtype, order)


def ones(shape: Any, dtype: Any = None, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """Ones; float64 unless told otherwise."""
    return _filled("ones", shape, 1, float if dtype is None else dtype, order)


def empty(shape: Any, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None) -> Any:
    """Zeros too: what NumPy leaves undefined is defined here."""
    return _filled("empty", shape, 0, float if dtype is None else dtype, order)


def _like(name: str, a: Any, fill_value: Any, dtype: Any, shape: Any) -> TracedArray:
    array = as_traced(running_trace(name), a, name)
    sizes = array.shape if shape is None else shape
    return _filled(name, sizes, fill_value, array.dtype if dtype is None else dtype)


def zeros_like(
    a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Any:
    """Zeros of the shape and dtype of ``a``."""
    return _like("zeros_like", a, 0, dtype, shape)


def ones_like(
    a: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Any:
    """Ones of the shape and dtype of ``a``."""
    return _like("ones_like", a, 1, dtype, shape)


def empty_like(
    prototype: Any, dtype: Any = None, order: Any = "K", subok: bool = True, shape: Any = None, *, device: Any = None
) -> Any:
    """Zeros of the shape and dtype of ``prototype``."""
    return _like("empty_like", prototype, 0, dtype, shape)


def full_like(
    a: Any,
    fill_value: Any,
    dtype: Any = None,
    order: Any = "K",
    subok: bool = True,
    shape: Any = None,
    *,
    device: Any = None,
) -> Any:
    """One value in the shape and dtype of ``a``."""
    return _like("full_like", a, fill_value, dtype, shape)


def iota(trace: Trace, n: Extent, dtype: np.dtype[Any] = INT64) -> Operand:
    """0, 1, … n − 1."""
    return build.convert(trace, trace.emit1(layout.iota, shape=(n,), axis=0), dtype)


def arange(
    start: Any, stop: Any = None, step: Any = 1, dtype: Any = None, *, device: Any = None, like: Any = None
) -> Any:
    """``start + step * i`` below ``stop``; integer bounds may be Dims."""
    trace = running_trace("arange")
    if stop is None:
        start, stop = 0, start
    step = 1 if step is None else step
    first, last = as_extent(start), as_extent(stop)
    if type(step) in (int, float, Dim) and step == 0:
        raise DivisionError(f"arange: step {step!r}; another number than 0 is needed{at(user_line())}")
    stride = int(step) if type(step) is Dim or isinstance(step, int | np.integer) else None
    if first is None or last is None or stride is None or stride == 0:
        return _concrete_arange(trace, start, stop, step, dtype)
    span = sub(last, first) if stride > 0 else sub(first, last)
    if not trace.guard("<=", 0, span):
        span = 0
    n = span if abs(stride) == 1 else floordiv(sub(span, 1 - abs(stride)), abs(stride))
    values = iota(trace, n)
    if stride != 1:
        values = trace.emit1(p.multiply, values, Literal(stride, INT64))
    if first != 0:
        offset: Operand = Literal(first, INT64) if isinstance(first, int) else DimScalar(first, INT64)
        values = trace.emit1(p.add, values, offset)
    return new(trace, build.convert(trace, values, INT64 if dtype is None else dtype_of(dtype, "arange")))


def _concrete_arange(trace: Trace, start: Any, stop: Any, step: Any, dtype: Any) -> Any:
    """Float bounds decide the number of elements, so they must be numbers."""
    numbers = [int(x) if type(x) is Dim else x for x in (start, stop, step)]
    if any(type(x) is TracedArray and x.known() is None for x in numbers):
        raise TraceError(
            "arange: a traced bound; the number of elements must be known: sizes divide with //, numpy.linspace"
            f"(a, b, n) takes traced bounds{at(user_line())}"
        )
    bounds: list[Any] = [np.asarray(x)[()] for x in numbers]
    return from_known(trace, np.arange(*bounds, dtype=dtype))


def linspace(
    start: Any, stop: Any, num: Any = 50, endpoint: bool = True, retstep: bool = False, dtype: Any = None, axis: int = 0
) -> Any:
    """``num`` evenly spaced numbers from ``start`` to ``stop``, computed as NumPy does: start + i * step."""
    trace = running_trace("linspace")
    (count,) = extents_of((num,), "linspace")
    (a, a_key), (b, b_key) = operand(trace, start, "linspace"), operand(trace, stop, "linspace")
    if a.type.shape or b.type.shape:
        raise ShapeError(f"linspace: bounds of rank above 0; numbers are needed yet{at(user_line())}")
    working = result_type((a_key, b_key, float))
    a, b = build.convert(trace, a, working), build.convert(trace, b, working)
    pieces: Extent = sub(count, 1) if endpoint else count
    several = trace.guard("<", 0, pieces)
    width = trace.emit1(p.subtract, b, a)
    divisor: Operand = build.literal(1, working)
    if several:
        divisor = build.literal(pieces, working) if isinstance(pieces, int) else DimScalar(pieces, working)
    step = trace.emit1(p.divide, width, divisor)
    ramp = iota(trace, count, working)
    values: Operand = trace.emit1(p.add, trace.emit1(p.multiply, ramp, step), a)
    if endpoint and several:
        last = trace.emit1(p.equal, ramp, divisor)
        values = trace.emit1(p.where, last, b, values)
    result = new(trace, build.convert(trace, values, working if dtype is None else dtype_of(dtype, "linspace")))
    return (result, new(trace, step)) if retstep else result


def tri(N: Any, M: Any = None, k: Any = 0, dtype: Any = float, *, like: Any = None) -> Any:  # noqa: N803
    """Ones at and below diagonal ``k``."""
    return _diagonal_mask("tri", N, M, k, dtype, p.less_equal)


def eye(
    N: Any, M: Any = None, k: Any = 0, dtype: Any = float, order: str = "C", *, device: Any = None, like: Any = None
) -> Any:  # noqa: N803
    """Ones on diagonal ``k``."""
    return _diagonal_mask("eye", N, M, k, dtype, p.equal)


def identity(n: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """Ones on the diagonal of a square."""
    return _diagonal_mask("identity", n, None, 0, float if dtype is None else dtype, p.equal)


def _diagonal_mask(name: str, rows: Any, columns: Any, k: Any, dtype: Any, relation: Any) -> TracedArray:
    """``column relation row + k`` as numbers of the dtype."""
    trace = running_trace(name)
    shape = extents_of((rows, rows if columns is None else columns), name)
    offset = as_extent(k)
    if offset is None:
        offset = integer(k, name, "k")
    row, column = (trace.emit1(layout.iota, shape=shape, axis=a) for a in (0, 1))
    shift: Operand = Literal(offset, INT64) if isinstance(offset, int) else DimScalar(offset, INT64)
    mask = trace.emit1(relation, column, trace.emit1(p.add, row, shift))
    return new(trace, build.convert(trace, mask, dtype_of(dtype, name)))


def tril(m: Any, k: int = 0) -> Any:
    """``m`` with zeros above diagonal ``k``."""
    return _triangle("tril", m, k, p.less_equal)


def triu(m: Any, k: int = 0) -> Any:
    """``m`` with zeros below diagonal ``k``."""
    return _triangle("triu", m, k - 1, p.less_equal, inverted=True)


def _triangle(name: str, m: Any, k: int, relation: Any, inverted: bool = False) -> TracedArray:
    trace = running_trace(name)
    array = as_traced(trace, m, name)
    if array.ndim < 2:
        raise ShapeError(f"{name}: an array of rank {array.ndim}; rank 2 or more is needed{at(user_line())}")
    rows, columns = array.shape[-2:]
    mask = _diagonal_mask(name, rows, columns, k, bool, relation).read()
    mask = build.broadcast(trace, mask, array.type.shape)
    zero = build.literal(0, array.dtype)
    chosen = (zero, array.read()) if inverted else (array.read(), zero)
    return new(trace, trace.emit1(p.where, mask, *chosen))


def indices(dimensions: Any, dtype: Any = int, sparse: bool = False) -> Any:
    """The index of each element along each axis, stacked in front (or a tuple of open grids)."""
    trace = running_trace("indices")
    shape = extents_of(dimensions, "indices")
    target = dtype_of(dtype, "indices")
    rank = len(shape)
    if sparse:
        sizes = [tuple(n if k == a else 1 for k, n in enumerate(shape)) for a in range(rank)]
        return tuple(
            new(trace, build.convert(trace, trace.emit1(layout.iota, shape=s, axis=a), target))
            for a, s in enumerate(sizes)
        )
    planes = [trace.emit1(layout.iota, shape=(1, *shape), axis=a + 1) for a in range(rank)]
    return new(trace, build.convert(trace, trace.emit1(layout.concatenate, *planes, axis=0), target))


# -- conversion ------------------------------------------------------------------------------------------------------


def asarray(
    a: Any, dtype: Any = None, order: Any = None, *, device: Any = None, copy: bool | None = None, like: Any = None
) -> Any:
    """``a`` as a traced array: a copy only where the dtype changes or ``copy`` is True. Arrays from outside become
    inputs of the program; lists of traced values are stacked."""
    return _as_array("asarray", a, dtype, bool(copy))


def array(
    object: Any, dtype: Any = None, *, copy: bool | None = True, order: Any = "K", subok: bool = False, ndmin: int = 0,
    ndmax: int = 0, like: Any = None,
) -> Any:  # fmt: skip
    """A new array with the values of ``object``."""
    made = _as_array("array", object, dtype, bool(copy))
    missing = ndmin - made.ndim
    return made if missing <= 0 else made[(None,) * missing]


def _as_array(name: str, a: Any, dtype: Any, copy: bool) -> TracedArray:
    trace = running_trace(name)
    made = as_traced(trace, a, name)
    assert type(made) is TracedArray
    target = made.dtype if dtype is None else dtype_of(dtype, name)
    if target != made.dtype:
        check_numbers(trace, a, target, name)
        value, key = operand(trace, made, name)
        return new_array(trace, stored(trace, value, key, target, name))
    is_own = not isinstance(a, np.ndarray) and not is_tenferro_array(a)
    if is_own and type(a) is not TracedArray:
        return new_array(trace, made.read()) if made.type.weak or made._scalar else made
    if made._scalar:  # NumPy makes an array of a scalar: one that can be written, and whose views see it
        return new_array(trace, made.read())
    return new_array(trace, build.copied(trace, made.read())) if copy or made.type.weak else made


def check_numbers(trace: Trace, x: Any, dtype: np.dtype[Any], name: str) -> None:
    """Raise where the dtype cannot hold a Python number in a nested list, as in NumPy."""
    if isinstance(x, list | tuple):
        for item in x:
            check_numbers(trace, item, dtype, name)
    elif is_number(x):
        stored(trace, *operand(trace, x, name), dtype, name)


def listed(x: Any, dtype: np.dtype[Any], name: str) -> Any:
    """A nested list of numbers as NumPy stores it in an array of the dtype; anything else as it is."""
    if not isinstance(x, list | tuple) or _holds_traced(x):
        return x
    try:
        return np.asarray(x, dtype)
    except NUMPY_ERRORS as error:
        raise as_own(name, error) from None


def of_integers(trace: Trace, x: Any) -> Any:
    """An empty list as the array of integers that it is where integers are asked for; anything else as it is."""
    return from_known(trace, np.zeros(0, np.int64)) if isinstance(x, list | tuple) and not x else x


def stack_nested(trace: Trace, x: Sequence[Any], name: str) -> TracedArray:
    """A nested list as an array: by NumPy where every element is a number, else stacked level by level."""
    if not _holds_traced(x):
        try:
            found = np.asarray(x)
        except ValueError as error:
            raise ShapeError(f"{name}: a nested sequence; {error}{at(user_line())}") from None
        check_dtype(found.dtype, name)
        return from_known(trace, found)
    items = [as_traced(trace, i, name) for i in x]
    pairs = [operand(trace, i, name) for i in items]
    dtype = result_type([strong(k) for _, k in pairs])  # a list holds numbers in the dtypes that NumPy gives them
    values = [converted(trace, v, dtype, name) for v, _ in pairs]
    check_even(trace, name, [v.type.shape for v in values])
    return join_along_new_axis(trace, name, values, 0)


def check_even(trace: Trace, name: str, shapes: Sequence[tuple[Extent, ...]]) -> None:
    """A ShapeError where the items of a list differ in shape, as NumPy's about an inhomogeneous one; what is equal in
    this call becomes a guard."""
    ranks = {len(s) for s in shapes}
    if len(ranks) > 1:
        raise ShapeError(f"{name}: a list of arrays of ranks {sorted(ranks)}; one rank is needed{at(user_line())}")
    first = shapes[0]
    for shape in shapes[1:]:
        if not all(trace.guard("==", n, m) for n, m in zip(first, shape, strict=True)):
            raise ShapeError(
                f"{name}: a list of arrays of shapes {sizes_text(trace, first)} and {sizes_text(trace, shape)}, which "
                f"is inhomogeneous; one shape is needed{at(user_line())}"
            )


def join_along_new_axis(trace: Trace, name: str, values: Sequence[Operand], axis: int) -> TracedArray:
    """``stack`` of operands of one dtype; shapes are brought to one."""
    aligned = broadcast_operands(trace, name, values)
    shape = max((v.type.shape for v in aligned), key=len)
    wide = [build.reshape(trace, build.broadcast(trace, v, shape), (*shape[:axis], 1, *shape[axis:])) for v in aligned]
    return new(
        trace, trace.emit1(layout.concatenate, *wide, axis=axis) if len(wide) > 1 else build.copied(trace, wide[0])
    )


def _holds_traced(x: Any) -> bool:
    """Whether an array that NumPy cannot read now (traced, from outside) or a Dim is somewhere inside."""
    if isinstance(x, list | tuple):
        return any(_holds_traced(i) for i in x)
    if type(x) is TracedArray:
        return x.known() is None
    return type(x) is Dim or isinstance(x, np.ndarray) or is_tenferro_array(x)


def capture(x: Any) -> TracedArray:
    """An array from outside as an input of the running trace."""
    return captured(running_trace("asarray"), x)


def ascontiguousarray(a: Any, dtype: Any = None, *, like: Any = None) -> Any:
    """``asarray`` of rank 1 or more, in C order."""
    made = _as_array("ascontiguousarray", a, dtype, False)
    if not made._contiguous:
        made = new_array(made.live_trace(), build.copied(made.live_trace(), made.read()))
    return made if made.ndim else made[None]


def copy(a: Any, order: Any = "K", subok: bool = False) -> Any:
    """A new variable with the value of ``a``."""
    trace = running_trace("copy")
    _refuse_order(order, "copy")
    return new_array(trace, build.copied(trace, as_traced(trace, a, "copy").read()))


def meshgrid(*xi: Any, copy: bool = True, sparse: bool = False, indexing: str = "xy") -> Any:
    """Grids from vectors."""
    trace = running_trace("meshgrid")
    vectors = [as_traced(trace, x, "meshgrid").ravel() for x in xi]
    rank = len(vectors)
    order = list(range(rank))
    if indexing == "xy" and rank >= 2:
        order[:2] = [1, 0]
    full_shape = tuple(vectors[k].type.shape[0] for k in order)
    grids = []
    for k, vector in enumerate(vectors):
        value = build.expand(trace, vector.read(), (order.index(k),), rank)
        grids.append(new(trace, build.copied(trace, value if sparse else build.broadcast(trace, value, full_shape))))
    return tuple(grids)


def _f(name: str, function: Any, arrays: tuple[str, ...] = (), view: bool = False) -> ApiFunction:
    return ApiFunction(name, function, arrays, view, getattr(np, name))


FUNCTIONS: tuple[ApiFunction, ...] = (
    _f("zeros", zeros),
    _f("ones", ones),
    _f("empty", empty),
    _f("full", full, ("fill_value",)),
    _f("zeros_like", zeros_like, ("a",)),
    _f("ones_like", ones_like, ("a",)),
    _f("empty_like", empty_like, ("prototype",)),
    _f("full_like", full_like, ("a", "fill_value")),
    _f("arange", arange),
    _f("linspace", linspace, ("start", "stop")),
    _f("tri", tri),
    _f("eye", eye),
    _f("identity", identity),
    _f("tril", tril, ("m",)),
    _f("triu", triu, ("m",)),
    _f("indices", indices),
    _f("meshgrid", meshgrid, ("xi",)),
    _f("asarray", asarray, ("a",), True),
    _f("asanyarray", asarray, ("a",), True),
    _f("ascontiguousarray", ascontiguousarray, ("a",), True),
    _f("array", array, ("object",)),
    _f("copy", copy, ("a",)),
)
