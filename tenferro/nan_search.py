"""Programs that watch for NaNs: an ExecProgram and its inputs in, its results and their births out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.engines.engine import RunResult
from tenferro.engines.reference import ReferenceExecutable, _Frame
from tenferro.lowering.exec_program import ExecProgram, Instruction, Slot, Source
from tenferro.lowering.stage import stage
from tenferro.tracer.bodies import Body
from tenferro.tracer.lines import SourceLine
from tenferro.tracer.op import Control, Pointwise
from tenferro.tracer.ops import pointwise
from tenferro.tracer.records import dataclass

Array = np.ndarray[Any, Any]


@dataclass(frozen=True, slots=True)
class Birth:
    """What gave the first NaN; ``text`` is empty for one that came in with the arguments."""

    text: str
    line: SourceLine | None


GIVEN = Birth("", None)


def has_nan(x: Any) -> bool:
    """Whether an array of floats or complex numbers has one."""
    array = np.asarray(x)
    return array.dtype.kind in "fc" and bool(np.isnan(array).any())


class NanExecutable(ReferenceExecutable):
    """Serves one call at a time. ``outcomes``: for each output the birth of its NaN, None where it has none."""

    def __init__(self, program: ExecProgram) -> None:
        super().__init__(program)
        self.outcomes: list[Birth | None] = []
        self._births: dict[int, Birth] = {}  # of the slots that have a NaN
        self._units: dict[Body, NanExecutable] = {}
        self._inner: Birth | None = None  # the first one in the bodies of the operation that runs
        self._turns: dict[Body, int] = {}

    def run(self, inputs: Sequence[Array | int]) -> RunResult:
        self._births = {d.slot.index: GIVEN for d, x in zip(self.program.inputs, inputs, strict=True) if has_nan(x)}
        result = super().run(inputs)
        self.outcomes = [
            (self._births.get(o.index) if isinstance(o, Slot) else GIVEN) if has_nan(x) else None
            for o, x in zip(self.program.outputs, result.outputs, strict=True)
        ]
        return result

    def _step(self, frame: _Frame, number: int, instruction: Instruction) -> None:
        arrays = [frame.read(s) for s in instruction.inputs]  # some go with their last use
        self._inner, self._turns = None, {}
        super()._step(frame, number, instruction)
        for slot in instruction.outputs:
            found = frame.slots[slot.index]
            if has_nan(found):
                self._births[slot.index] = self._birth(instruction, arrays, found)

    def _birth(self, instruction: Instruction, arrays: Sequence[Array], found: Array) -> Birth:
        """Where the NaN of a result comes from."""
        if instruction.op is pointwise.where:
            mask, x, y = arrays
            arrays = (mask, _under(mask, x), _under(~mask, y))
        for source, x in zip(instruction.inputs, arrays, strict=True):
            if has_nan(x):
                return self._of(source)
        if self._inner is not None:
            return self._inner
        return Birth(_text(instruction, arrays, found), instruction.line)

    def _of(self, source: Source) -> Birth:
        return self._births.get(source.index, GIVEN) if isinstance(source, Slot) else GIVEN

    def _run_body(self, frame: _Frame, body: Body, inputs: Sequence[Any]) -> list[Array]:
        unit = self._units.get(body)
        if unit is None:
            unit = self._units[body] = NanExecutable(stage(body.program))
        turn = self._turns[body] = self._turns.get(body, -1) + 1
        ints = [i.kind == "int" for i in unit.program.inputs]
        given = [int(x) if is_int else np.asarray(x) for x, is_int in zip(inputs, ints, strict=True)]
        outputs = unit.run(given).outputs
        born = next((b for b in unit.outcomes if b is not None and b is not GIVEN), None)
        if born is not None and self._inner is None:
            self._inner = Birth(f"{born.text}, in {body.program.name}, turn {turn}", born.line)
        return outputs


def _under(mask: Array, x: Array) -> Array:
    """The elements of an array that a mask takes."""
    return np.asarray(np.broadcast_to(x, mask.shape)[mask] if mask.shape else (x if mask else np.zeros(0, x.dtype)))


def _text(instruction: Instruction, arrays: Sequence[Array], found: Array) -> str:
    name = instruction.params.get("function", instruction.op.name)
    if isinstance(instruction.op.form, Control):
        return f"{name}: a NaN is born"
    place = tuple(int(k) for k in np.argwhere(np.isnan(found))[0])
    where = f" at {place}" if place else ""
    if not isinstance(instruction.op.form, Pointwise):
        return f"{name}: a NaN is born{where}"
    values = ", ".join(str(np.broadcast_to(x, found.shape)[place].item()) for x in arrays)
    return f"{name}: a NaN is born{where}, of {values}"
