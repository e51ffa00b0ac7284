"""Outside arrays that a trace of one call reads: none can be written, by NumPy either, until the trace has ended.

The program reads them when it runs, at the end: an array that the function wrote in between, as a buffer that it uses
again and again, would be read as it is last. So NumPy is told to refuse such a write; its line is the user's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np

from tenferro.tracer.errors import MutationError
from tenferro.tracer.forking import Renewed
from tenferro.tracer.lines import SourceLine, at

AnyArray: TypeAlias = np.ndarray[Any, Any]

_held = Renewed()
_frozen: dict[int, tuple[AnyArray, int]] = {}  # by id: the array, and how many traces read it


def freeze(array: Any) -> tuple[AnyArray, ...]:
    """The array, which cannot be written from here on until it is given to ``thaw``; nothing where nothing was done: it
    cannot be written anyhow, or could not be made writeable again."""
    if not isinstance(array, np.ndarray):
        return ()
    with _held.lock:
        known = _frozen.get(id(array))
        if known is None and not (array.flags.writeable and _is_restorable(array)):
            return ()
        array.flags.writeable = False
        _frozen[id(array)] = (array, known[1] + 1 if known is not None else 1)
    return (array,)


def _is_restorable(array: AnyArray) -> bool:
    """Whether NumPy lets it be written again: it lies in the memory of an array that can be."""
    base: Any = array
    while base.base is not None:
        base = base.base
        if type(base) is not np.ndarray:
            return False
    return bool(base.flags.owndata and (base.flags.writeable or id(base) in _frozen))


def thaw(arrays: Sequence[AnyArray]) -> None:
    """Let what no other trace reads be written again."""
    if not arrays:
        return
    with _held.lock:
        for array in arrays:
            _frozen[id(array)] = (array, _frozen[id(array)][1] - 1)
        ended = [array for array, count in _frozen.values() if count == 0]
        while ended:  # views come after the arrays in which they lie, which may be frozen by another trace
            later = [array for array in ended if not _restore(array)]
            if len(later) == len(ended):
                return
            ended = later


def _restore(array: AnyArray) -> bool:
    try:
        array.flags.writeable = True
    except ValueError:
        return False
    del _frozen[id(array)]
    return True


def is_refusal(error: ValueError) -> bool:
    """Whether the error is NumPy's refusal of a write."""
    return "read-only" in str(error)


def refused(name: str, line: SourceLine | None) -> MutationError:
    """What is raised in its place."""
    return MutationError(
        f"{name}: an outside array is written that the function has read before, whose numbers are computed with when "
        f"it returns; write into a copy, x.copy() makes one{at(line)}"
    )
