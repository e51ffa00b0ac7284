"""A traced function made ready to run: a call's inputs in, its results as the function's own pytree out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal as OneOf

import numpy as np

from tenferro.engines.engine import Engine
from tenferro.guards import Predicate, compile_guards, environment
from tenferro.lowered import Lowered
from tenferro.runtime import Prepared, Runtime, signature_of, target_of
from tenferro.tracer.captures import Captures
from tenferro.tracer.errors import MutationError
from tenferro.tracer.program import DimScalar, Literal, Operand, SemanticProgram, Value
from tenferro.tracer.signature import AnyArray, as_native
from tenferro.tracer.trace import is_tenferro_array

Wrap = Callable[[AnyArray, Engine], Any]


@dataclass(frozen=True, slots=True)
class _Result:
    """Where a leaf of the result comes from: the run's output ``index``, the caller's own input ``index``, or nowhere,
    being the Python object ``constant``."""

    source: OneOf["output", "size", "input", "constant"]
    index: int
    constant: Any = None


def _results(program: SemanticProgram, count: int) -> tuple[_Result, ...]:
    inputs = {i.value.id: k for k, i in enumerate(program.inputs) if i.kind != "constant"}
    first: dict[Operand, int] = {}
    found = []
    for k, operand in enumerate(program.outputs[:count]):
        match operand:
            case Literal(value=value):
                found.append(_Result("constant", k, value))
            case DimScalar():
                found.append(_Result("size", k))
            case Value(id=number) if number in inputs:
                found.append(_Result("input", inputs[number]))
            case _:
                found.append(_Result("output", first.setdefault(operand, k)))
    return tuple(found)


class Compiled:
    """One program of a jitted function. Thread-safe; holds no array of a call but those that the trace made itself.

    ``rebuild``: from the leaves of the result, in order, to the result. ``donated``: pairs of an input and the output
    that holds what the function left in it."""

    def __init__(
        self,
        program: SemanticProgram,
        captures: Captures,
        constants: Sequence[AnyArray],
        rebuild: Callable[[list[Any]], Any],
        donated: Sequence[tuple[int, int]],
        runtime: Runtime,
        engine: Engine,
        wrap: Wrap,
    ) -> None:
        self.program = program
        self.captures = captures
        self.runtime = runtime
        self.engines = (engine,)
        self.used = 0
        self.arguments = sum(i.kind in ("argument", "int") for i in program.inputs)
        self.guard: Predicate = compile_guards(program.guards)
        self._wrap = wrap
        self._constants = tuple(constants)
        self._rebuild = rebuild
        self._donated = tuple(donated)
        self._leaves = _results(program, len(program.outputs) - len(donated))
        self._fetch = _single_output(self._leaves, rebuild) and not donated
        self.has_late = not captures.is_empty or bool(constants)
        self.prepared: Prepared = self.prepare()

    def prepare(self) -> Prepared:
        """Prepare the program under the runtime's present configuration."""
        signature = signature_of(self.program)
        self.prepared = self.runtime.prepare(self.program, signature, [target_of(self.engines[0])])
        return self.prepared

    def late_inputs(self, receiver: Any) -> tuple[list[Any], bool] | None:
        """The captured arrays as they are now and the trace's own constants, in the program's order, and whether a
        tn.Array is among them; None where what was captured is no longer what the program was traced for."""
        values = self.captures.read(receiver)
        if values is None:
            return None
        captured, constants = iter(values), iter(self._constants)
        found: list[Any] = []
        wrapped = False
        for declared in self.program.inputs[self.arguments :]:
            if declared.kind == "constant":
                found.append(next(constants))
                continue
            value = next(captured)
            if is_tenferro_array(value):
                wrapped = True
                value = value._data
            elif type(value) is not np.ndarray and type(value) is not np.memmap:
                return None
            t = declared.value.type
            if value.ndim != t.rank or value.dtype.newbyteorder("=") != t.dtype:
                return None
            found.append(as_native(value, declared.name, self.program.name))
        return found, wrapped

    def run(self, inputs: Sequence[Any], originals: Sequence[Any], wrapped: bool) -> Any:
        """Run and rebuild the result. ``originals``: what the caller passed, one per input; an input among the results
        is handed back as it came."""
        prepared = self.prepared
        if prepared.epoch != self.runtime.epoch:
            prepared = self.prepare()
        outputs = self.runtime.run(self.engines, prepared, inputs).outputs
        if self._fetch:
            out = outputs[0]
            return self._wrap(out, self.engines[0]) if wrapped else out if out.ndim else out[()]
        return self._result(inputs, originals, outputs, wrapped)

    def _result(
        self, inputs: Sequence[Any], originals: Sequence[Any], outputs: Sequence[AnyArray], wrapped: bool
    ) -> Any:  # fmt: skip
        for index, position in self._donated:
            if outputs[position] is not inputs[index]:
                np.copyto(inputs[index], outputs[position])
                if inputs[index] is not originals[index] and type(originals[index]) is np.ndarray:
                    np.copyto(originals[index], outputs[position])
        made: dict[int, Any] = {}
        leaves: list[Any] = []
        for leaf in self._leaves:
            match leaf.source:
                case "constant":
                    leaves.append(leaf.constant)
                case "input":
                    leaves.append(originals[leaf.index])
                case "size":
                    leaves.append(int(outputs[leaf.index]))
                case "output":
                    if leaf.index not in made:
                        out = outputs[leaf.index]
                        made[leaf.index] = self._wrap(out, self.engines[0]) if wrapped else out if out.ndim else out[()]
                    leaves.append(made[leaf.index])
        return self._rebuild(leaves)

    def check_donated(self, inputs: Sequence[Any]) -> None:
        """MutationError where a donated array cannot be written; nothing has been done then."""
        for index, _ in self._donated:
            if not inputs[index].flags.writeable:
                raise MutationError(
                    f"{self.program.name}: donated argument {self.program.inputs[index].name} is read-only; "
                    f"a writeable array is needed"
                )

    def lowered(self, inputs: Sequence[Any]) -> Lowered:
        """The stages, for the sizes of these inputs."""
        prepared = self.prepared
        run = lambda: self.runtime.run(self.engines, prepared, inputs)  # noqa: E731
        return Lowered(prepared, environment(self.program, inputs), run)


def _single_output(leaves: Sequence[_Result], rebuild: Callable[[list[Any]], Any]) -> bool:
    """Whether the result is one array that the run makes, and nothing around it."""
    if len(leaves) != 1 or leaves[0].source != "output":
        return False
    probe = object()
    return rebuild([probe]) is probe
