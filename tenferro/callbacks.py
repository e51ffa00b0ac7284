"""``pure_callback`` and ``io_callback``: a Python function and its arguments in, what it returns out, inside jitted
functions too.

A traced function records the call; when its program runs, the function is called on the caller's thread, with NumPy
arrays that may be read only, and NumPy scalars for rank 0. Outside a trace it is called at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal as OneOf

import numpy as np

from tenferro import tree
from tenferro.tracer.dim import Dim, as_extent
from tenferro.tracer.errors import CallbackError
from tenferro.tracer.exact import static_key
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.op import Op
from tenferro.tracer.ops import host
from tenferro.tracer.program import Value
from tenferro.tracer.records import dataclass
from tenferro.tracer.signature import function_name
from tenferro.tracer.trace import Trace, current_trace, is_tenferro_array, own_dtype
from tenferro.tracer.traced import TracedArray, fresh
from tenferro.tracer.transform.inputs import Opened, open_tree
from tenferro.tracer.tree import in_order_of

Function = Callable[..., Any]
VmapMethod = OneOf["sequential", "expand_dims", "broadcast_all"]
_METHODS = ("sequential", "expand_dims", "broadcast_all")


def pure_callback(
    callback: Function, result_shape_dtypes: Any, *args: Any, vmap_method: str = "sequential", **kwargs: Any
) -> Any:
    """``callback(*args, **kwargs)`` when the program runs. The function has no effects: it may be called more or less
    often than it is written, and not at all where nobody reads what it gives.

    result_shape_dtypes: a pytree of what has ``shape`` and ``dtype`` (``tn.ShapeDtypeStruct``, arrays); sizes may be
    traced. vmap_method: under ``vmap`` one call for each lane in order (``"sequential"``), or one for all, where
    arguments have the lanes in front, those that are the same for all an axis of size 1 (``"expand_dims"``) or as many
    copies (``"broadcast_all"``).

    CallbackError where the function returns another structure, shape or dtype. It has no derivative: ``tn.custom_jvp``
    or ``tn.custom_vjp`` around the function that calls it gives it one."""
    _check_method(vmap_method)
    return _call(host.pure_callback, callback, result_shape_dtypes, args, kwargs, vmap_method)


def io_callback(callback: Function, result_shape_dtypes: Any, *args: Any, ordered: bool = True, **kwargs: Any) -> Any:
    """``callback(*args, **kwargs)`` when the program runs, once, whether its results are read or not. Calls keep the
    program's order, which ``ordered=False`` does not ask for; under ``vmap`` there is one for each lane, in order.

    result_shape_dtypes and errors: as for ``tn.pure_callback``."""
    del ordered  # all keep their order
    return _call(host.io_callback, callback, result_shape_dtypes, args, kwargs, "sequential")


def _check_method(method: Any) -> None:
    if method not in _METHODS:
        raise ValueError(
            f"pure_callback: vmap_method is {method!r}; one of {', '.join(_METHODS)} is needed{at(user_line())}"
        )


@dataclass(frozen=True, slots=True)
class _Declared:
    """What a callback is to return."""

    treedef: tree.TreeDef
    dtypes: tuple[np.dtype[Any], ...]
    shapes: tuple[tuple[Any, ...], ...]

    def leaves_of(self, result: Any, name: str) -> list[Any]:
        """The leaves of what it returned. CallbackError for another structure."""
        values, treedef = tree.flatten(in_order_of(result, self.treedef))
        if treedef != self.treedef:
            raise CallbackError(
                f"{name}: the result has the structure {treedef}; {self.treedef} is declared"
            )  # fmt: skip
        return [_plain(x) for x in values]


def _plain(x: Any) -> Any:
    return np.asarray(x) if is_tenferro_array(x) else x


def _declared(result_shape_dtypes: Any, name: str) -> _Declared:
    leaves, treedef = tree.flatten(result_shape_dtypes)
    dtypes, shapes = [], []
    for x in leaves:
        if not hasattr(x, "shape") or not hasattr(x, "dtype"):
            raise CallbackError(
                f"{name}: result_shape_dtypes has a {type(x).__name__}; tn.ShapeDtypeStruct(shape, dtype), or another "
                f"object with shape and dtype, is needed{at(user_line())}"
            )
        dtypes.append(own_dtype(np.dtype(x.dtype)))
        shapes.append(tuple([as_extent(n) if isinstance(n, Dim) else int(n) for n in x.shape]))
    return _Declared(treedef, tuple(dtypes), tuple(shapes))


def _call(
    op: Op, callback: Function, result_shape_dtypes: Any, args: tuple[Any, ...], kwargs: dict[str, Any], method: str
) -> Any:
    name = op.name
    if not callable(callback):
        raise TypeError(f"{name}: a {type(callback).__name__}; a function is needed{at(user_line())}")
    declared = _declared(result_shape_dtypes, name)
    trace = current_trace()
    if trace is None:
        return _at_once(callback, declared, args, kwargs, name)
    given = opened_arguments(trace, args, kwargs, name)

    from tenferro.tracer.substitution import outside

    callback = outside(callback)

    def run(*arrays: Any) -> list[Any]:
        positional, named = given.close(arrays)
        return declared.leaves_of(callback(*positional, **named), str(call))

    key = key_of(name, callback, given, declared.treedef)
    call = host.HostCall(f"{name}({function_name(callback)})", run, key)
    if op is host.pure_callback and not declared.dtypes:
        return tree.unflatten(declared.treedef, [])
    made = emit(trace, op, call, given, declared.dtypes, declared.shapes, method)
    return tree.unflatten(declared.treedef, [fresh(trace, v) for v in made[: len(declared.dtypes)]])


def _at_once(callback: Function, declared: _Declared, args: Any, kwargs: Any, name: str) -> Any:
    """The call outside a trace; results are tn.Arrays where an argument is one."""
    values, treedef = tree.flatten((args, kwargs))
    places = [k for k, x in enumerate(values) if is_array(x)]
    arrays = [_plain(values[k]) for k in places]

    def run(*given: Any) -> list[Any]:
        mine = list(values)
        for place, x in zip(places, given, strict=True):
            mine[place] = x
        positional, named = tree.unflatten(treedef, mine)
        return declared.leaves_of(callback(*positional, **named), str(call))

    call = host.HostCall(f"{name}({function_name(callback)})", run)
    line = user_line()
    try:
        found = host.called(arrays, call, declared.dtypes, declared.shapes, ())
    except Exception as error:
        error.add_note(f"{call}: called{at(line)}")
        raise
    results: list[Any] = [x if x.ndim else x[()] for x in found]
    if any(is_tenferro_array(values[k]) for k in places):
        from tenferro.array import asarray

        results = [asarray(x) for x in found]
    return tree.unflatten(declared.treedef, results)


def is_array(x: Any) -> bool:
    """Whether a leaf becomes an operand: Python's own numbers and whatever else are handed over as they are."""
    return type(x) in (TracedArray, Dim) or isinstance(x, np.ndarray | np.generic) or is_tenferro_array(x)


def opened_arguments(trace: Trace, args: Sequence[Any], kwargs: dict[str, Any], name: str) -> Opened:
    """The arguments of a callback, whose arrays are operands."""
    return open_tree(trace, (tuple(args), kwargs), name, is_array)


def key_of(kind: str, function: Any, given: Opened, *more: Any) -> Any:
    """What a callback is made of; None where that cannot be compared. The function itself is held by the callback, so
    that its identity is its own."""
    fixed = [x for k, x in enumerate(given.values) if k not in given.places]
    try:
        return (kind, id(function), given.treedef, given.places, static_key(tuple(fixed)), *more)
    except TypeError:
        return None


def emit(
    trace: Trace, op: Op, call: host.HostCall, given: Opened, dtypes: Any = (), shapes: Any = (),
    method: str = "sequential",
) -> tuple[Value, ...]:  # fmt: skip
    """Record the call; its results, and then the token of a row with effects."""
    operands = [leaf.operand for leaf in given.leaves]
    return trace.emit(
        op, operands, call=call, dtypes=tuple(dtypes), shapes=tuple(shapes), lanes=(), extents=(), method=method
    )


__all__ = ["io_callback", "pure_callback"]
