"""How a namespace makes a public function of a record: ``tn.lax`` and ``tn.random``.

In: the namespace's module, a name and its record. Out: a function that traces inside a trace and runs at once
elsewhere.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from tenferro.eager import EagerFunction, of_namespace
from tenferro.tracer.api.record import TracedFunction
from tenferro.tracer.complaints import no_integer
from tenferro.tracer.errors import TraceError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.trace import current_trace


def public(
    module: str, name: str, record: TracedFunction, sizes: Collection[str] = ()
) -> Callable[..., Any]:  # fmt: skip
    """The function under its name in the module, with the signature and docstring of the record's. ``sizes``:
    parameters that hold sizes, where NumPy's integers count as Python's."""
    on_concrete = EagerFunction(record)
    places = [k for k, parameter in enumerate(on_concrete.signature.parameters) if parameter in sizes]

    def function(*args: Any, **kwargs: Any) -> Any:
        if current_trace() is not None:
            return record.function(*args, **kwargs)
        given = list(args)
        for k in places:
            if k < len(given):
                given[k] = _as_ints(given[k], name)
        named = {k: _as_ints(v, name) if k in sizes else v for k, v in kwargs.items()}
        return of_namespace(on_concrete(tuple(given), named), args, kwargs)

    functools.update_wrapper(function, record.function)
    function.__name__ = function.__qualname__ = name
    function.__module__ = module
    return function


def _as_ints(x: Any, name: str) -> Any:
    """A size or a shape with Python's integers for NumPy's. TraceError for floats."""
    if isinstance(x, float | np.floating):
        raise TraceError(f"{name}: size {no_integer(x, of_sizes=True)}{at(user_line())}")
    if isinstance(x, np.ndarray | np.integer) and x.dtype.kind in "iu":
        return x.tolist()
    return type(x)([_as_ints(n, name) for n in x]) if type(x) in (tuple, list) else x
