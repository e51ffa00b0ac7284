"""``tenferro.numpy.vectorize`` and ``apply_along_axis``: functions of parts of an array, mapped over the rest.

In: a function of numbers, or of arrays of few axes. Out: it of larger arrays, by ``tn.vmap``."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

import numpy as np

from tenferro.array import any_array
from tenferro.batching import vmap
from tenferro.tracer.errors import ShapeError, TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import current_trace

_NAMES = r"\((?:\s*\w+\s*(?:,\s*\w+\s*)*)?\)"
_SIGNATURE = re.compile(rf"^\s*{_NAMES}(?:\s*,\s*{_NAMES})*\s*->\s*{_NAMES}(?:\s*,\s*{_NAMES})*\s*$")
Core = tuple[str, ...]


def vectorize(
    pyfunc: Callable[..., Any], *, excluded: Collection[int | str] = (), signature: str | None = None
) -> Callable[..., Any]:
    """``pyfunc``, which takes numbers, or arrays whose axes ``signature`` names ("(m,n),(n)->(m)"), of arrays that
    broadcast in front of these. Arguments in ``excluded``, and those by keyword, are passed on as they are."""
    cores = None if signature is None else _cores(signature)

    @functools.wraps(pyfunc)
    def mapped(*args: Any, **kwargs: Any) -> Any:
        places = [k for k in range(len(args)) if k not in excluded and args[k] is not None]

        def called(*arrays: Any) -> Any:
            given = list(args)
            for k, x in zip(places, arrays, strict=True):
                given[k] = x
            return pyfunc(*given, **kwargs)

        wanted = [()] * len(places) if cores is None else cores
        if len(wanted) != len(places):
            raise TraceError(
                f"vectorize: {len(places)} arrays for signature {signature!r}; {len(wanted)} are needed"
                f"{at(user_line())}"
            )
        return _mapped(called, _as_arrays([args[k] for k in places]), wanted)

    return mapped


def _as_arrays(values: Sequence[Any]) -> list[Any]:
    """Numbers beside arrays follow these, outside of traces too."""
    is_beside = current_trace() is None and any(hasattr(x, "dtype") for x in values)
    return [any_array(np.asarray(x) if is_beside and not hasattr(x, "dtype") else x) for x in values]


def _cores(signature: str) -> list[Core]:
    """The names of each argument's own axes."""
    if not _SIGNATURE.match(signature):
        raise TraceError(f"vectorize: signature {signature!r}; one like '(m,n),(n)->(m)' is needed{at(user_line())}")
    inputs = signature.split("->")[0]
    return [tuple(re.findall(r"\w+", one)) for one in re.findall(_NAMES, inputs)]


def _mapped(function: Callable[..., Any], arrays: Sequence[Any], cores: Sequence[Core]) -> Any:
    _check_cores(arrays, cores)
    outer = [x.ndim - len(core) for x, core in zip(arrays, cores, strict=True)]
    rank = max(outer, default=0)
    parts, levels = list(arrays), list[tuple[int | None, ...]]()
    kept = [0] * len(parts)  # how many of an array's axes are mapped
    for level in range(rank):  # from the first axis on, which the outermost map takes
        there = [level >= rank - n for n in outer]
        is_one = [bool(x.shape[k] == 1) if has else True for x, k, has in zip(parts, kept, there, strict=True)]
        along = [0 if has and (not one or all(is_one)) else None for has, one in zip(there, is_one, strict=True)]
        for k, has in enumerate(there):
            if has and along[k] is None:
                parts[k] = parts[k][(slice(None),) * kept[k] + (0,)]
            kept[k] += along[k] == 0
        levels.append(tuple(along))
    for lanes in reversed(levels):
        function = vmap(function, in_axes=lanes)
    return function(*parts)


def _check_cores(arrays: Sequence[Any], cores: Sequence[Core]) -> None:
    """Every array has its own axes, and those of one name have one size."""
    sizes: dict[str, Any] = {}
    for k, (x, core) in enumerate(zip(arrays, cores, strict=True)):
        if x.ndim < len(core):
            raise ShapeError(
                f"vectorize: argument {k} has rank {x.ndim}; its signature ({','.join(core)}) needs at least "
                f"{len(core)}{at(user_line())}"
            )
        for name, size in zip(core, x.shape[x.ndim - len(core) :], strict=True):
            if size != sizes.setdefault(name, size):
                raise ShapeError(
                    f"vectorize: axis {name!r} has sizes {sizes[name]} and {size}; one size is needed{at(user_line())}"
                )


def apply_along_axis(func1d: Callable[..., Any], axis: int, arr: Any, *args: Any, **kwargs: Any) -> Any:
    """``func1d`` of every line along an axis; the axes of its result stand in that axis's place."""
    x = any_array(arr)
    if not -x.ndim <= axis < x.ndim:
        raise ShapeError(f"apply_along_axis: axis {axis} for rank {x.ndim}; one of its axes is needed{at(user_line())}")
    axis %= x.ndim

    def mapped(line: Any) -> Any:
        return any_array(func1d(line, *args, **kwargs))

    for later in range(x.ndim - axis - 1):
        mapped = vmap(mapped, in_axes=1 + later, out_axes=-1)
    for _ in range(axis):
        mapped = vmap(mapped)
    return mapped(x)
