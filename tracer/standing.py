"""NumPy called as if from a line of the user's: a function goes in, a call of it that stands at that line comes out.

What NumPy warns of shows its caller's line and asks the filters for its caller's module. In a trace or at a seam that
would be a line of this package; a frame made for the purpose is the caller instead. The filters themselves are left
alone, since they belong to all threads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from types import FunctionType, ModuleType
from typing import Any

from tenferro.tracer.lines import SourceLine

Call = Callable[[Callable[..., Any], Sequence[Any], Mapping[str, Any]], Any]

_HERE = (lambda function, args, options: function(*args, **options)).__code__  # one line, which is moved
silently: Call = FunctionType(_HERE, {"__name__": None})
"""A call of a function whose own warnings go nowhere: CPython has none for a module that is None."""
_CALLS: dict[tuple[str, int], Call] = {}
_NAMESPACES: dict[str, dict[str, Any]] = {}
_KEPT = 10_000


def _plainly(function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    return function(*args, **options)


def standing_at(line: SourceLine | None) -> Call:
    """``call(function, args, options)`` from a frame at this line; a plain call for None."""
    if line is None:
        return _plainly
    found = _CALLS.get((line.file, line.line))
    if found is None:
        if len(_CALLS) >= _KEPT:
            _CALLS.clear()
        name = line.function or "<module>"
        code = _HERE.replace(co_filename=line.file, co_firstlineno=line.line, co_name=name, co_qualname=name)
        found = _CALLS[line.file, line.line] = FunctionType(code, _namespace(line.file))
    return found


def _namespace(file: str) -> dict[str, Any]:
    """The globals of the module with this source, whose name filters ask for, and where warnings shown once are noted;
    of a notebook's cell or a text a dict of its own."""
    found = _NAMESPACES.get(file)
    if found is None:
        spaces = [vars(m) for m in list(sys.modules.values()) if isinstance(m, ModuleType)]
        found = next((s for s in spaces if s.get("__file__") == file), {"__name__": "__main__"})
        _NAMESPACES[file] = found
    return found
