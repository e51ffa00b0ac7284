"""Where the user's code stands: stack frames in, one ``SourceLine`` out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from types import FrameType


@dataclass(frozen=True, slots=True)
class SourceLine:
    """A file and a line of the user's code, with the name of the function they are in."""

    file: str
    line: int
    function: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


def _is_internal(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__", "")
    return module == "tenferro" or module.startswith(("tenferro.", "numpy."))


def user_line() -> SourceLine | None:
    """The first frame whose module is neither tenferro nor NumPy (module names hold in every install mode, paths do not)."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_internal(frame):
        frame = frame.f_back
    if frame is None:
        return None
    return SourceLine(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name)


def at(line: SourceLine | None) -> str:
    """`` (at file:line)`` for an error text, empty where no user line is known."""
    return f" (at {line})" if line is not None else ""
