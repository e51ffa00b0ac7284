"""What a frame is calling: a frame in, the name in front of the parentheses and how it is looked up out.

Compiled code (Cython, C) has no frame of its own: ``rng.random(3)`` calls ``numpy.empty`` and looks like the user's own
call of it. The text of the call tells the two apart.
"""

from __future__ import annotations

import builtins
import dis
from types import CodeType, FrameType
from typing import Any

_KEPT = 10_000
_PASSING = frozenset({"partial", "reduce", "starmap", "accumulate", "map"})  # they call what they are given
_CALLEES: dict[tuple[int, int], tuple[CodeType, tuple[str, str] | None]] = {}


def calls(frame: FrameType, name: str, function: Any) -> bool:
    """Whether the frame's own code calls ``function`` now, as an attribute of this name or through a variable."""
    code = frame.f_code
    key = (id(code), frame.f_lasti)
    known = _CALLEES.get(key)
    if known is None:
        if len(_CALLEES) > _KEPT:
            _CALLEES.clear()
        known = _CALLEES[key] = (code, _callee(code, frame.f_lasti))  # holding the code keeps its id unique
    if known[1] is None:
        # Without positions (python -X no_debug_ranges) the names in the code have to do.
        return next(iter(code.co_positions()))[2] is None and name in code.co_names
    opname, called = known[1]
    if opname in ("LOAD_ATTR", "LOAD_METHOD"):
        return called == name or called in _PASSING
    for space in (frame.f_locals, frame.f_globals):
        if called in space:
            found = space[called]
            return found is function or getattr(found, "__module__", None) in ("builtins", "functools", "itertools")
    return hasattr(builtins, called)


def _callee(code: CodeType, offset: int) -> tuple[str, str] | None:
    """The last instruction of the expression in front of the parentheses: the longest that begins where the call does
    and ends before the call's end."""
    instructions = [i for i in dis.get_instructions(code) if i.offset <= offset]
    place = instructions[-1].positions if instructions else None
    if place is None or place.lineno is None or place.end_lineno is None:
        return None
    end = (place.end_lineno, place.end_col_offset or 0)
    best: tuple[tuple[int, int], tuple[str, str]] | None = None
    for i in instructions[:-1]:
        p = i.positions
        if p is None or p.lineno is None or p.end_lineno is None or not isinstance(i.argval, str):
            continue
        stop = (p.end_lineno, p.end_col_offset or 0)
        if (
            (p.lineno, p.col_offset) != (place.lineno, place.col_offset)
            or stop >= end
            or not i.opname.startswith("LOAD")
        ):
            continue
        if best is None or stop >= best[0]:
            best = (stop, (i.opname, i.argval))
    return best[1] if best is not None else None
