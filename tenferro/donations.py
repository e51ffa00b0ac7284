"""Donated arguments of a program: what a call gives up comes out of its inputs, and what became of it.

An argument that the function writes into holds its new elements when the call has succeeded; the memory of one that it
only reads may become a result's, which is then the very array that was given.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tenferro.engines.engine import RunResult
from tenferro.lowering.donation import Donation
from tenferro.tracer.errors import MutationError
from tenferro.tracer.lines import at, user_line
from tenferro.tracer.program import SemanticProgram
from tenferro.tracer.records import dataclass
from tenferro.tracer.trace import is_tenferro_array


@dataclass(frozen=True, slots=True)
class Donated:
    """What becomes of a donated argument. ``honoured``: it is written in place, or becomes a result's memory; else
    ``reason`` says why it does not, and what is written into it is copied there at the end."""

    argument: str
    honoured: bool
    becomes: str
    reason: str = ""

    def __str__(self) -> str:
        return (
            f"{self.argument}: {self.becomes}" if self.honoured else f"{self.argument}: {self.becomes}; {self.reason}"
        )


def memory_of(original: Any) -> Any:
    """The ndarray whose memory a write reaches."""
    return original._data if is_tenferro_array(original) else original


class Donations:
    """Of one program. ``writes``: inputs that the function writes, each with the output that it then holds; ``offers``:
    donated inputs that it does not write."""

    def __init__(
        self, program: SemanticProgram, writes: Sequence[tuple[int, int]], offers: Sequence[int], returned: set[int]
    ) -> None:
        self.program = program
        self.writes = tuple(writes)
        self.offers = tuple([k for k in offers if k not in dict(writes) and k not in returned])
        self._known: dict[tuple[int, ...], Donation] = {}

    def of_call(self, inputs: Sequence[Any], originals: Sequence[Any]) -> Donation | None:
        """What this call gives up; None for nothing. MutationError where an argument that is written cannot be; nothing
        has been done then."""
        for index, _ in self.writes:
            self._check(index, originals)
        reasons = self.reasons(inputs, originals)
        usable = tuple([k for k in (*(k for k, _ in self.writes), *self.offers) if k not in reasons])
        if not usable:
            return None
        found = self._known.get(usable)
        if found is None:
            writes = tuple(w for w in self.writes if w[0] in usable)
            offers = tuple(k for k in self.offers if k in usable)
            found = self._known[usable] = Donation(writes, offers, self.program.aliases)
        return found

    def reasons(self, inputs: Sequence[Any], originals: Sequence[Any]) -> dict[int, str]:
        """The donated inputs whose memory this call does not give up, and why."""
        found = {}
        for k in (*(k for k, _ in self.writes), *self.offers):
            reason = self._reason(k, inputs, originals)
            if reason:
                found[k] = reason
        return found

    def _reason(self, k: int, inputs: Sequence[Any], originals: Sequence[Any]) -> str:
        memory, array = memory_of(originals[k]), inputs[k]
        if type(memory) is not np.ndarray:
            return f"it is a {type(memory).__name__}"
        if array is not memory:
            return "its byte order or alignment is not the machine's"
        if not array.flags.writeable:
            return "it is read-only"
        for other, original in enumerate(originals):
            if other != k and np.may_share_memory(array, memory_of(original)):
                return f"it may share memory with {self.program.inputs[other].name}"
        return ""

    def _check(self, index: int, originals: Sequence[Any]) -> None:
        name, memory = self.program.inputs[index].name, memory_of(originals[index])
        if not isinstance(memory, np.ndarray):
            raise MutationError(
                f"{self.program.name}: donated argument {name} is a {type(memory).__name__}, which has no memory "
                f"to write; an array is needed{at(user_line())}"
            )
        if not memory.flags.writeable:
            raise MutationError(
                f"{self.program.name}: donated argument {name} is read-only; a writeable array is "
                f"needed{at(user_line())}"
            )
        for other, original in enumerate(originals):
            # The trace took them for separate variables; NumPy would show the writes through both.
            if other != index and np.may_share_memory(memory, memory_of(original)):
                raise MutationError(
                    f"{self.program.name}: donated argument {name} may share memory with "
                    f"{self.program.inputs[other].name}; memory of its own is needed{at(user_line())}"
                )

    def complete(self, result: RunResult, inputs: Sequence[Any], originals: Sequence[Any]) -> None:
        """Copy what was not written in place to where it belongs."""
        for index, position in self.writes:
            if result.outputs[position] is not inputs[index]:
                np.copyto(memory_of(originals[index]), result.outputs[position])

    def told(self, refused: Mapping[int, str], held: Mapping[int, int]) -> tuple[Donated, ...]:
        """What becomes of each donated argument. ``held``: input → output, of those that are used."""
        found = []
        writes = dict(self.writes)
        for k in (*writes, *self.offers):
            name = self.program.inputs[k].name
            if k in writes:
                becomes = "written in place" if k in held else "written by a copy at the end"
            else:
                becomes = f"becomes output {held[k]}" if k in held else "not used"
            found.append(Donated(name, k in held, becomes, refused.get(k, "")))
        return tuple(found)
