"""NumPy's own functions on tn.Arrays, for those that have no rule here: a function and its arguments in, what NumPy
gives of the arrays' memory out.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tenferro.array import Array
from tenferro.tracer.foreign import NUMPY_ERRORS, as_own
from tenferro.tracer.lines import user_line
from tenferro.tracer.standing import standing_at
from tenferro.tracer.tree import leaves


def by_numpy(name: str, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A function of NumPy's that has no rule here, on the arrays' memory: it gives NumPy's own arrays, but for an array
    that it was given and has written into. Of what lies on a device it is given a copy that it must not write."""
    given = [x for x in leaves((args, kwargs)) if type(x) is Array]
    try:
        found = standing_at(user_line())(function, _on_host(args), _on_host(kwargs))
    except NUMPY_ERRORS as error:
        raise as_own(name, error) from None
    return next((x for x in given if found is x._data), found)


def _on_host(x: Any) -> Any:
    """Every tn.Array in it as NumPy's own array of the same memory, or NumPy's scalar."""
    if type(x) is Array:
        if x._scalar or x.engine.is_host:
            return x._host[()] if x._scalar else x._host
        copy = x._host.view()
        copy.flags.writeable = False
        return copy
    if type(x) is dict:
        return {k: _on_host(v) for k, v in x.items()}
    return type(x)(map(_on_host, x)) if type(x) in (tuple, list) else x
