"""Where the user's code stands: stack frames in, one ``SourceLine`` out."""

from __future__ import annotations

import os
import sys
import time
from bisect import bisect_right
from types import CodeType, FrameType
from typing import Any

from tenferro.tracer.records import dataclass

LOADED_AT = time.time_ns()
"""A source file that has changed since is not the code that runs here."""


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A file and a line of the user's code, with the name of the function they are in."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


_INTERNAL: dict[str, bool] = {}
_PASSED: dict[int, dict[str, Any]] = {}
"""Globals of modules that are not the user's, by identity: looked up ten times for each operation of a trace."""
_STANDARD = os.path.dirname(os.__file__) + os.sep
_LINES: dict[tuple[int, int], tuple[CodeType, SourceLine]] = {}
_TABLES: dict[int, tuple[CodeType, list[int], list[int]]] = {}
_KEPT = 100_000
_LONG_TABLE = 2000  # bytes of line table; f_lineno scans it from the start at each call


def _is_internal(name: str, file: str) -> bool:
    internal = name in ("tenferro", "contextlib") or name.startswith(("tenferro.", "numpy."))
    if name.partition(".")[0] in sys.stdlib_module_names:  # which calls back, and knows nothing of the user's arrays
        internal = internal or file.startswith((_STANDARD, "<frozen "))
    _INTERNAL[name] = internal
    return internal


def _line_number(frame: FrameType) -> int:
    """``frame.f_lineno``, in logarithmic time for long functions: 9,000 operations in one function stay linear."""
    code = frame.f_code
    if len(code.co_linetable) < _LONG_TABLE:
        return frame.f_lineno
    table = _TABLES.get(id(code))
    if table is None:
        rows = [(start, line) for start, _, line in code.co_lines() if line is not None]
        table = _TABLES[id(code)] = (code, [r[0] for r in rows], [r[1] for r in rows])
    _, starts, numbers = table
    return numbers[max(bisect_right(starts, frame.f_lasti) - 1, 0)]


def is_users(frame: FrameType) -> bool:
    """Whether the frame's module is neither tenferro nor NumPy, nor of the standard library."""
    name = frame.f_globals.get("__name__") or ""
    internal = _INTERNAL.get(name)
    return not (_is_internal(name, frame.f_code.co_filename) if internal is None else internal)


def user_frame(depth: int = 1) -> FrameType | None:
    """The first frame whose module is neither tenferro nor NumPy (names hold in every install mode, paths do not), nor
    of the standard library. ``depth``: where to begin; so many frames from this one are known not to be it."""
    frame: FrameType | None = sys._getframe(depth)
    passed = _PASSED
    while frame is not None:
        space = frame.f_globals
        if id(space) not in passed:
            if is_users(frame):
                return frame
            passed[id(space)] = space  # holding it keeps its id unique
        frame = frame.f_back
    return None


def user_line(depth: int = 2) -> SourceLine | None:
    """Where the user's code stands now, or None where no frame is the user's. ``depth`` as of ``user_frame``."""
    frame = user_frame(depth)
    if frame is None:
        return None
    code, number = frame.f_code, _line_number(frame)
    known = _LINES.get((id(code), number))
    if known is None:
        if len(_LINES) > _KEPT:  # code made anew at each call must not be held for ever
            _LINES.clear()
            _TABLES.clear()
        line = SourceLine(code.co_filename, number, code.co_name)
        known = _LINES[id(code), number] = (code, line)  # holding the code keeps its id unique
    return known[1]


def at(line: SourceLine | None) -> str:
    """`` (at file:line)`` for an error text, empty where no user line is known."""
    return f" (at {line})" if line is not None else ""
