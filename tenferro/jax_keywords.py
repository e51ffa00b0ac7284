"""Arguments that ``jax.numpy``'s functions have and NumPy's have not: ``size``, ``fill_value``, ``length``,
``precision``, ``preferred_element_type``, ``inplace=False``, ``mode="fill"``.

In: functions of ``tenferro.numpy`` by name. Out: the same functions, which take these too."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import Any

import numpy as np

from tenferro.array import any_array
from tenferro.tracer.at import At
from tenferro.tracer.errors import TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import current_trace

Function = Callable[..., Any]


def widen(namespace: MutableMapping[str, Any], publish: Callable[[Function, str], Function]) -> None:
    """Put functions with the further arguments in the places of those without. ``publish`` names a function."""
    for makers, names in _MADE:
        for name in names:
            namespace[name] = publish(makers(name, namespace[name], namespace), name)


def _made(space: MutableMapping[str, Any], name: str) -> Function:
    """What makes an array: traced in a trace, NumPy's outside of it, which follows the arrays that it meets."""
    made: Function = getattr(np, name) if current_trace() is None else space[name]
    return made


# -- as many places as are asked for ---------------------------------------------------------------------------------


def _sized(name: str, plain: Function, space: MutableMapping[str, Any]) -> Function:
    def function(a: Any, *rest: Any, size: Any = None, fill_value: Any = None, **named: Any) -> Any:
        if size is None:
            _refuse_fill(name, fill_value)
            return plain(a, *rest, **named)
        if rest or named:
            raise TraceError(f"{name}: size beside other arguments; a condition alone is needed{at(user_line())}")
        a = any_array(a)
        if name == "flatnonzero":
            return _places(a.ravel(), size, fill_value, space)[0]
        found = _places(a, size, fill_value, space)
        return np.stack(found, axis=-1) if name == "argwhere" else found

    return function


def _refuse_fill(name: str, fill_value: Any) -> None:
    if fill_value is not None:
        raise TraceError(f"{name}: fill_value without size; both are needed{at(user_line())}")


def _places(a: Any, size: Any, fill_value: Any, space: MutableMapping[str, Any]) -> tuple[Any, ...]:
    """The first ``size`` places where an array is not 0, along each axis; ``fill_value`` where there are fewer."""
    place, is_there = _first(a.ravel() != 0, size, space)
    fills = fill_value if isinstance(fill_value, tuple | list) else (fill_value or 0,) * a.ndim
    axes = np.unravel_index(place, a.shape)
    return tuple(np.where(is_there, x, fill) for x, fill in zip(axes, fills, strict=True))


def _first(mask: Any, size: Any, space: MutableMapping[str, Any]) -> tuple[Any, Any]:
    """The places of the first ``size`` trues of a vector, 0 where there are fewer, and where there are enough."""
    count = np.cumsum(mask)
    number = _made(space, "arange")(1, size + 1)
    is_there = number <= mask.sum()
    return np.where(is_there, np.searchsorted(count, number), 0), is_there


def _unique(name: str, plain: Function, space: MutableMapping[str, Any]) -> Function:
    def function(
        ar: Any, return_index: bool = False, return_inverse: bool = False, return_counts: bool = False, *rest: Any,
        size: Any = None, fill_value: Any = None, **named: Any,
    ) -> Any:  # fmt: skip
        if size is None:
            _refuse_fill(name, fill_value)
            return plain(ar, return_index, return_inverse, return_counts, *rest, **named)
        if rest or any(v is not None for k, v in named.items() if k == "axis"):
            raise TraceError(f"unique: size beside axis; size alone is needed{at(user_line())}")
        return _first_unique(ar, (return_index, return_inverse, return_counts), size, fill_value, space)

    return function


def _first_unique(
    ar: Any, more: tuple[bool, bool, bool], size: Any, fill_value: Any, space: MutableMapping[str, Any]
) -> Any:
    a = any_array(ar)
    flat = a.ravel()
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    begins = np.concatenate([np.ones_like(ordered[:1], bool), _differs(ordered)])
    place, is_there = _first(begins, size + 1, space)  # one more, where the last one ends
    ends = np.where(is_there, place, flat.shape[0])[1:]
    place, is_there = place[:-1], is_there[:-1]
    values = np.where(is_there, ordered[place], ordered[0] if fill_value is None else fill_value).astype(a.dtype)
    inverse = np.zeros_like(order)
    inverse[order] = np.cumsum(begins) - 1
    found = (order[place], inverse.reshape(a.shape), np.where(is_there, ends - place, 0))
    wanted = tuple(x for x, is_wanted in zip(found, more, strict=True) if is_wanted)
    return (values, *wanted) if wanted else values


def _differs(ordered: Any) -> Any:
    """Where an element is another than the one before; NaNs are one value."""
    if ordered.dtype.kind not in "fc":
        return ordered[1:] != ordered[:-1]
    return (ordered[1:] != ordered[:-1]) & ~(np.isnan(ordered[1:]) & np.isnan(ordered[:-1]))


def _bincount(name: str, plain: Function, space: MutableMapping[str, Any]) -> Function:
    def function(x: Any, weights: Any = None, minlength: Any = 0, *, length: Any = None) -> Any:
        if length is None:
            return plain(x, weights, minlength)
        x = np.maximum(any_array(x), 0)
        counts = _made(space, "zeros")(length, int if weights is None else float)
        return At(counts)[x].add(1 if weights is None else weights, mode="drop")

    return function


# -- products, writes, reads -----------------------------------------------------------------------------------------


def _product(name: str, plain: Function, space: MutableMapping[str, Any]) -> Function:
    """Every product is computed in the dtype of its operands, whatever ``precision`` says."""

    def function(*args: Any, precision: Any = None, preferred_element_type: Any = None, **named: Any) -> Any:
        if preferred_element_type is None:
            return plain(*args, **named)
        wanted = np.dtype(preferred_element_type)

        def wide(x: Any) -> Any:
            return x.astype(np.promote_types(x.dtype, wanted)) if hasattr(x, "dtype") else x

        return plain(*map(wide, args), **named).astype(wanted)

    return function


def _written(name: str, plain: Function, space: MutableMapping[str, Any]) -> Function:
    def function(a: Any, *args: Any, inplace: bool = True, **named: Any) -> Any:
        if inplace:
            return plain(a, *args, **named)
        changed = any_array(a).copy()
        plain(changed, *args, **named)
        return changed

    return function


def _take(name: str, plain: Function, space: MutableMapping[str, Any]) -> Function:
    def function(
        a: Any, indices: Any, axis: Any = None, out: Any = None, mode: Any = "raise", *, fill_value: Any = None,
        unique_indices: bool = False, indices_are_sorted: bool = False,
    ) -> Any:  # fmt: skip
        if mode != "fill":
            return plain(a, indices, axis, out, "raise" if mode is None else mode)
        a, indices = any_array(a), any_array(indices)
        a, axis = (a.ravel(), 0) if axis is None else (a, axis % a.ndim)
        return At(a)[(slice(None),) * axis + (indices,)].get(mode="fill", fill_value=fill_value)

    return function


_MADE: tuple[tuple[Callable[[str, Function, MutableMapping[str, Any]], Function], tuple[str, ...]], ...] = (
    (_sized, ("nonzero", "flatnonzero", "argwhere", "where")),
    (_unique, ("unique",)),
    (_bincount, ("bincount",)),
    (_product, ("dot", "matmul", "vdot", "inner", "tensordot", "einsum", "vecdot", "convolve", "correlate")),
    (_written, ("put_along_axis", "fill_diagonal", "place", "put")),
    (_take, ("take",)),
)
