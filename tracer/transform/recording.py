"""Recordings: a function that runs inside a trace in, the operations that it made out, in the trace or taken out of it.

A derivative leaves the operations where they are. What maps a function over an axis, and what runs it in a loop, takes
them out again: its variables end with it then, and it may read variables of the function around it but not write them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from tenferro.tracer.dims import Extent, leaves
from tenferro.tracer.program import Operation
from tenferro.tracer.trace import Trace

if TYPE_CHECKING:
    from tenferro.tracer.cells import Cell


class Scope:
    """What runs to be taken out again. Variables from around it are as they were when it is over."""

    def __init__(self, what: str, around: Scope | None) -> None:
        self.what = what
        self.around = around
        self._kept: dict[int, tuple[Cell, tuple[Any, ...]]] = {}

    def keep(self, cell: Cell) -> None:
        """Note what a variable from around holds, before reading it records something."""
        if id(cell) not in self._kept:
            self._kept[id(cell)] = (cell, cell.state())

    def restore(self) -> None:
        """Give the variables from around back what they held."""
        for cell, state in self._kept.values():
            cell.restore(state)


class Recording:
    """The operations of a function, once it has run; ``start``: the number that the first of them had."""

    def __init__(self, start: int) -> None:
        self.start = start
        self.operations: list[Operation] = []

    def measures(self, extent: Extent) -> bool:
        """Whether a size of what the function made is known only when one of its operations has run."""
        return any(s.kind == "runtime" and s.index >= self.start for s in leaves(extent))


@contextmanager
def taken_out(trace: Trace, what: str) -> Iterator[Recording]:
    """What is recorded inside is no part of the trace afterwards. ``what`` runs it, for error texts."""
    recording, scope = Recording(len(trace.operations)), Scope(what, trace.scope)
    trace.scope = scope
    try:
        yield recording
    finally:
        recording.operations = trace.taken(recording.start)
        trace.scope = scope.around
        scope.restore()
