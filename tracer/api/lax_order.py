"""Order and choices of ``tenferro.lax``: sorting by keys, running extremes, cases by number, joining and splitting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any

from tenferro.tracer import build
from tenferro.tracer.api.deliver import new
from tenferro.tracer.api.indexing import take_along_axis
from tenferro.tracer.api.lax_common import as_items, function
from tenferro.tracer.api.lax_elementwise import named, of_one_shape, promoted, running
from tenferro.tracer.api.layout import axes_of, axis_of
from tenferro.tracer.api.record import API, TracedFunction
from tenferro.tracer.api.sets import lexsort
from tenferro.tracer.dim import integer, make_dim
from tenferro.tracer.dims import product
from tenferro.tracer.errors import DtypeError, ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.ops import pointwise as p
from tenferro.tracer.trace import running_trace
from tenferro.tracer.traced import as_traced, operand as operand_of

# -- order -----------------------------------------------------------------------------------------------------------


def sort(operand: Any, dimension: int = -1, is_stable: bool = True, num_keys: int = 1) -> Any:
    """The elements in increasing order along an axis, NaN last. Of a tuple of arrays of one shape all are put in the
    order of the first ``num_keys``, the first of which counts most."""
    trace = running_trace("sort")
    if not isinstance(operand, tuple | list):
        return API["sort"].function(operand, dimension, kind="stable")
    arrays = [as_traced(trace, x, "sort") for x in operand]
    count = integer(num_keys, "sort", "num_keys")
    if not 1 <= count <= len(arrays):
        raise ShapeError(
            f"sort: num_keys {count} for {len(arrays)} arrays; 1 to {len(arrays)} is needed{at(user_line())}"
        )
    k = axis_of(dimension, arrays[0].ndim, "sort")
    order = lexsort(arrays[:count][::-1], k)
    return tuple(take_along_axis(x, order, k) for x in arrays)


def sort_key_val(keys: Any, values: Any, dimension: int = -1, is_stable: bool = True) -> Any:
    """(keys in increasing order along an axis, the values that stand beside them)."""
    return sort((keys, values), dimension)


def _cumulative(name: str, of_numpy: str, summary: str) -> TracedFunction:
    return named(name, running(name, of_numpy), f"{summary}, from its end where ``reverse``.", "operand")


# -- choices ---------------------------------------------------------------------------------------------------------


def select_n(which: Any, *cases: Any) -> Any:
    """Elements of the case whose number ``which`` is: bools for two cases, else integers, of which one that no case has
    takes the nearest. The cases are arrays of one shape, or numbers; ``which`` has that shape, or is a number."""
    trace = running_trace("select_n")
    if not cases:
        raise ShapeError(f"select_n: no cases; one or more are needed{at(user_line())}")
    number = operand_of(trace, which, "select_n")[0]
    is_bool = number.type.dtype.kind == "b"
    if not (is_bool and len(cases) <= 2) and number.type.dtype.kind not in "iu":
        raise DtypeError(
            f"select_n: which of dtype {number.type.dtype.name} for {len(cases)} cases; integers, or bools for two, "
            f"are needed{at(user_line())}"
        )
    names = [f"case {k}" for k in range(len(cases))]
    values = of_one_shape(trace, "select_n", promoted(trace, "select_n", *cases), names)
    number, *values = of_one_shape(trace, "select_n", [number, *values], ["which", *names])
    found = values[0]
    for k, value in enumerate(values[1:], 1):
        later = number if is_bool else trace.emit1(p.less_equal, build.literal(k, number.type.dtype), number)
        found = trace.emit1(p.where, later, value, found)
    return new(trace, build.copied(trace, found) if len(values) == 1 else found)


_FOLDS: dict[str, str] = {
    "add": "sum", "mul": "prod", "multiply": "prod", "max": "max", "maximum": "max", "min": "min", "minimum": "min",
    "bitwise_and": "all", "logical_and": "all", "bitwise_or": "any", "logical_or": "any",
}  # fmt: skip
_PAIRS = {"sum": "add", "prod": "multiply", "max": "maximum", "min": "minimum", "all": "logical_and",
          "any": "logical_or"}  # fmt: skip


def reduce(operand: Any, init_value: Any, computation: Callable[..., Any], dimensions: Sequence[int]) -> Any:
    """The elements over the axes folded by ``tn.lax.add``, ``mul``, ``max`` or ``min`` (or NumPy's), of bools by
    ``bitwise_and`` or ``bitwise_or``, and ``init_value``. Integers keep their dtype."""
    trace = running_trace("reduce")
    array = as_traced(trace, operand, "reduce")
    how = _FOLDS.get(getattr(computation, "__name__", ""))
    if how is None or (how in ("all", "any") and array.dtype.kind != "b"):
        raise TraceError(
            f"reduce: computation {computation!r} of {array.dtype.name}; tn.lax.add, mul, max or min is needed, or "
            f"bitwise_and or bitwise_or of bools{at(user_line())}"
        )
    options = {"dtype": array.dtype} if how in ("sum", "prod") else {}
    if how in ("max", "min"):
        options["initial"] = init_value
    found = API[how].function(array, axes_of(tuple(as_items(dimensions)), array.ndim, "reduce"), **options)
    return API[_PAIRS[how]].function(found, init_value)


# -- shapes ----------------------------------------------------------------------------------------------------------


def collapse(operand: Any, start_dimension: int, stop_dimension: Any = None) -> Any:
    """The axes from ``start_dimension`` to before ``stop_dimension`` as one."""
    trace = running_trace("collapse")
    array = as_traced(trace, operand, "collapse")
    rank, shape = array.ndim, array.type.shape
    first = axis_of(start_dimension, rank, "collapse")
    end = rank if stop_dimension is None else integer(stop_dimension, "collapse", "stop_dimension")
    end = end + rank if end < 0 else end
    if not first < end <= rank:
        raise ShapeError(
            f"collapse: axes {first} to before {end} of rank {rank}; one or more are needed{at(user_line())}"
        )
    joined = (*shape[:first], product(shape[first:end]), *shape[end:])
    return new(trace, build.copied(trace, build.reshape(trace, array.read(), joined)))


def split(operand: Any, sizes: Sequence[Any], axis: int = 0) -> list[Any]:
    """Parts of these sizes along an axis, which add up to it."""
    trace = running_trace("split")
    array = as_traced(trace, operand, "split")
    k = axis_of(axis, array.ndim, "split")
    ends = list(accumulate(sizes))
    if not ends or ends[-1] != make_dim(trace, array.type.shape[k]):
        raise ShapeError(
            f"split: sizes {tuple(sizes)} for axis {k} of size {trace.hint(array.type.shape[k])}; they must add up to "
            f"it{at(user_line())}"
        )
    before = (slice(None),) * k
    parts = [array[(*before, slice(end - n, end))] for n, end in zip(sizes, ends, strict=True)]
    return [part.copy() for part in parts]


def broadcast_to_rank(x: Any, rank: int) -> Any:
    """With axes of size 1 in front until there are ``rank``."""
    array = as_traced(running_trace("broadcast_to_rank"), x, "broadcast_to_rank")
    missing = integer(rank, "broadcast_to_rank", "rank") - array.ndim
    if missing < 0:
        raise ShapeError(f"broadcast_to_rank: rank {array.ndim} to {rank}; a higher one is needed{at(user_line())}")
    return array[(None,) * missing].copy() if missing else array.copy()


def _copied(name: str, of_numpy: str) -> TracedFunction:
    """NumPy's function, with an array of its own for a view."""

    def call(x: Any, *args: Any, **options: Any) -> Any:
        found = API[of_numpy].function(x, *args, **options)
        return tuple(part.copy() for part in found) if isinstance(found, tuple | list) else found.copy()

    return named(name, call, f"``numpy.{of_numpy}``.", "x")


FUNCTIONS: tuple[TracedFunction, ...] = (
    function("sort", sort, "operand"),
    function("sort_key_val", sort_key_val, "keys", "values"),
    _cumulative("cummax", "maximum.accumulate", "Running largest elements along an axis"),
    _cumulative("cummin", "minimum.accumulate", "Running smallest elements along an axis"),
    _cumulative("cumlogsumexp", "logaddexp.accumulate", "Running log Σ exp along an axis"),
    function("select_n", select_n, "which", "cases"),
    function("reduce", reduce, "operand", "init_value"),
    function("collapse", collapse, "operand"),
    function("split", split, "operand"),
    function("broadcast_to_rank", broadcast_to_rank, "x"),
    _copied("stack", "stack"),
    _copied("tile", "tile"),
    *((_copied("unstack", "unstack"),) if "unstack" in API else ()),
)
