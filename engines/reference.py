"""The reference engine: a Plan goes in, an Executable comes out that runs its ExecProgram one instruction at a time.

Each instruction is computed by its row's ``reference`` on NumPy arrays; sums follow the fixed tree of
``tenferro.lowering.tree``. It defines what programs mean and serves where no native code can be made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import partial
from typing import Any

import numpy as np

from tenferro.engines.engine import NO_EXECUTORS, Engine, Executable, Executor, Replay, RunResult, executed
from tenferro.engines.values import scalar_array
from tenferro.lowering import staged
from tenferro.lowering.checks import bounds_error, empty_error, exponent_error, report_division, unmet_error
from tenferro.lowering.exec_program import ExecProgram, Instruction, Slot, Source
from tenferro.lowering.masks import lane_conditions
from tenferro.lowering.plan import Plan, Stretch, seam_of
from tenferro.lowering.tree import accumulator, in_tree_order, tree_moments, tree_product, tree_sum
from tenferro.tracer.bodies import Body
from tenferro.tracer.config import config
from tenferro.tracer.dims import DimExpr, Environment, Leaf, evaluate
from tenferro.tracer.op import Check, Control, Indexed, Pointwise, Reduction, View
from tenferro.tracer.ops.control import LOOPS
from tenferro.tracer.ops.reductions import reduced_shape
from tenferro.tracer.program import DimScalar, Literal, Params
from tenferro.tracer.records import dataclass

Array = np.ndarray[Any, Any]


class ReportedError(Exception):
    """A turn of a loop that is run again for the sake of its warning has warned: the other turns need not run."""


@dataclass(frozen=True, slots=True)
class _Division:
    """Lanes of an integer division whose divisor was 0."""

    instruction: Instruction
    number: int
    lanes: Array
    dividend: Array


@dataclass(slots=True)
class _Frame:
    """What one run holds: slots, the values of leaves, and divisions to be judged when their masks are known.
    ``asked``: how NumPy's errors were to be treated when it began."""

    slots: dict[int, Array] = field(default_factory=dict)
    env: dict[Leaf, int] = field(default_factory=dict)
    runtime: dict[Leaf, int] = field(default_factory=dict)
    divisions: list[_Division] = field(default_factory=list)
    asked: Any = field(default_factory=np.geterr)

    def read(self, source: Source) -> Array:
        match source:
            case Slot(index=index):
                return self.slots[index]
            case Literal() | DimScalar():
                return scalar_array(source, self.env)


class ReferenceEngine(Engine):
    """NumPy, one instruction at a time, on the calling thread."""

    def __init__(self, number: int = 0) -> None:
        self.id = f"reference:{number}"

    def compile(self, plan: Plan, executors: Mapping[str, Executor] = NO_EXECUTORS) -> Executable:
        return ReferenceExecutable(plan.program, executors)


class ReferenceExecutable(Executable):
    """Runs an ExecProgram; see ``Executable.run``. ``is_turn``: the program is a body."""

    def __init__(
        self, program: ExecProgram, executors: Mapping[str, Executor] = NO_EXECUTORS, is_turn: bool = False
    ) -> None:
        self.program = program
        self.executors = executors
        self.conditions = lane_conditions(program)
        masks = {c.slot for conditions in self.conditions.values() for c in conditions}
        self._bodies: dict[Body, ReferenceExecutable] = {}
        self._is_turn = is_turn
        self.kept = masks | {o.index for o in program.outputs if isinstance(o, Slot)}

    def run(self, inputs: Sequence[np.ndarray[Any, Any] | int]) -> RunResult:
        frame = _Frame()
        for k, (declared, given) in enumerate(zip(self.program.inputs, inputs, strict=True)):
            array = np.asarray(given, declared.type.dtype) if isinstance(given, int) else given
            frame.slots[declared.slot.index] = array
            frame.env.update((Leaf("extent", k, axis), n) for axis, n in enumerate(array.shape))
            if declared.kind == "int":
                frame.env[Leaf("int", k)] = int(array)
        for number, instruction in enumerate(self.program.instructions):
            with np.errstate(all="ignore"):
                self._step(frame, number, instruction)
        self._judge_divisions(frame)
        return RunResult([frame.read(o) for o in self.program.outputs], frame.runtime)

    def kernel_texts(self) -> dict[str, dict[str, str]]:
        return {}

    def segments(self, inputs: Sequence[Any], runtime: Environment) -> Sequence[Stretch]:
        """Every instruction is a call."""
        reason = "the reference engine calls NumPy for every operation"
        return [seam_of(-1, i, reason) for i in self.program.instructions if not isinstance(i.op.form, View)]

    @property
    def kernels(self) -> int:
        return 0

    @property
    def kernel_bytes(self) -> int:
        return 0

    def _step(self, frame: _Frame, number: int, instruction: Instruction) -> None:
        arrays = [frame.read(s) for s in instruction.inputs]
        params = {k: evaluated(v, frame.env) for k, v in instruction.params.items()}
        match instruction.op.form:
            case Reduction(kind=kind) if in_tree_order(kind, arrays[0].dtype):
                results = (_tree_reduce(arrays[0], kind, instruction.params),)
            case Reduction(kind="max" | "min" | "argmax" | "argmin") if _has_empty_rows(arrays[0], params["axes"]):
                raise empty_error(instruction)
            case Indexed(kind="gather"):
                self._check_bounds(instruction, arrays, params)
                results = (instruction.op.reference(*arrays, **params),)
            case Control(kind=kind) if not self._is_replayed(instruction):
                results = LOOPS[kind](partial(self._run_body, frame), arrays, params)
            case form:
                if isinstance(form, Pointwise) and form.is_checked(arrays[0].dtype):
                    self._check(form.check, frame, number, instruction, arrays)
                results = executed(instruction, arrays, params, self.executors, frame.env)
        self._write(frame, instruction, results)
        for source, last in zip(instruction.inputs, instruction.last_use, strict=True):
            if last and isinstance(source, Slot) and source.index not in self.kept:
                frame.slots.pop(source.index, None)

    def _is_replayed(self, instruction: Instruction) -> bool:
        return isinstance(self.executors, Replay) and instruction.op.is_ordered(instruction.params)

    def _run_body(self, frame: _Frame, body: Body, inputs: Sequence[Any]) -> list[Array]:
        unit = self._bodies.get(body)
        if unit is None:
            unit = self._bodies[body] = ReferenceExecutable(staged(body.program, config()), self.executors, True)
        ints = [i.kind == "int" for i in unit.program.inputs]
        given = [int(x) if is_int else np.asarray(x) for x, is_int in zip(inputs, ints, strict=True)]
        with np.errstate(**frame.asked):  # divisions in the body are judged by it
            return unit.run(given).outputs

    def _write(self, frame: _Frame, instruction: Instruction, results: Sequence[Any]) -> None:
        is_view = isinstance(instruction.op.form, View)
        for slot, kind, result in zip(instruction.outputs, instruction.types, results, strict=True):
            array = np.asarray(result)
            if not is_view:
                array = _owned(array, kind.dtype)
            frame.slots[slot.index] = array
        for output, axis in instruction.op.measures(instruction.params):
            expr = instruction.types[output].shape[axis]
            n = frame.slots[instruction.outputs[output].index].shape[axis]
            if isinstance(expr, DimExpr):
                ((leaf_monomial, _),) = expr.terms
                leaf = leaf_monomial[0].leaf
                if leaf is not None:
                    frame.env[leaf] = frame.runtime[leaf] = n

    def _check_bounds(self, instruction: Instruction, arrays: Sequence[Array], params: Mapping[str, Any]) -> None:
        x, indices = arrays
        n = x.shape[instruction.params["axis"]]
        bad = (indices < -n) | (indices >= n)
        if bad.any():
            first = int(np.flatnonzero(bad.reshape(-1))[0])
            raise bounds_error(instruction, int(indices.reshape(-1)[first]), n, params)

    def _check(
        self, check: Check, frame: _Frame, number: int, instruction: Instruction, arrays: Sequence[Array]
    ) -> None:
        if check == "zero_divisor":
            self._note_division(frame, number, instruction, arrays)
        elif check == "unmet":
            if not arrays[1].all():
                raise unmet_error(instruction)
        elif arrays[0].size and (arrays[1] < 0).any():
            raise exponent_error(instruction, arrays[1][arrays[1] < 0].reshape(-1)[0])

    def _note_division(self, frame: _Frame, number: int, instruction: Instruction, arrays: Sequence[Array]) -> None:
        dividend, divisor = arrays
        lanes = np.broadcast_to(divisor == 0, np.broadcast_shapes(dividend.shape, divisor.shape))
        if lanes.any():
            frame.divisions.append(_Division(instruction, number, lanes, np.broadcast_to(dividend, lanes.shape)))

    def _judge_divisions(self, frame: _Frame) -> None:
        """Only lanes that reach a result count: those that no ``where`` discards."""
        for division in frame.divisions:
            lanes = division.lanes
            for condition in self.conditions.get(division.number, ()):
                mask = frame.slots[condition.slot]
                lanes = lanes & (mask if condition.holds else ~mask)
            if lanes.any():
                dividend = np.broadcast_to(division.dividend, lanes.shape)
                report_division(division.instruction, dividend.reshape(-1)[np.flatnonzero(lanes.reshape(-1))[0]])
                if self._is_turn and isinstance(self.executors, Replay):
                    raise ReportedError


def evaluated(value: Any, env: dict[Leaf, int]) -> Any:
    """A parameter with its sizes as numbers. A run-time extent that this very instruction measures stays as it is."""
    if isinstance(value, DimExpr):
        try:
            return evaluate(value, env)
        except KeyError:
            return value
    return tuple(evaluated(v, env) for v in value) if isinstance(value, tuple) else value


def _has_empty_rows(x: Array, axes: tuple[int, ...]) -> bool:
    """Whether there are results, of no elements each."""
    return not x.size and 0 not in reduced_shape(x.shape, axes, False)


def _owned(array: Array, dtype: np.dtype[Any]) -> Array:
    if array.base is None and array.flags.c_contiguous and array.flags.writeable and array.dtype == dtype:
        return array
    return np.array(array, dtype, order="C")


def _tree_reduce(x: Array, kind: str, params: Params) -> Array:
    """Reduced axes last and flattened in row-major order; a complex number is two components."""
    axes: tuple[int, ...] = params["axes"]
    kept = [k for k in range(x.ndim) if k not in axes]
    count = int(np.prod([x.shape[a] for a in axes], dtype=np.int64))
    rows = np.ascontiguousarray(x.transpose(*kept, *axes)).reshape([*(x.shape[k] for k in kept), count])
    shape = reduced_shape(x.shape, axes, params["keepdims"])
    rows = rows.astype(accumulator(x.dtype), copy=False)
    if kind == "moments":
        total = tree_moments(rows.real) + tree_moments(rows.imag) if x.dtype.kind == "c" else tree_moments(rows)
        dtype = rows.real.dtype if x.dtype.kind == "c" else x.dtype
        return total.reshape(shape).astype(dtype)
    if kind == "product":
        total = tree_product(rows).reshape(shape).astype(x.dtype)
        return np.multiply(x.dtype.type(1), total) if x.dtype.kind == "c" else total
    if x.dtype.kind != "c":
        return tree_sum(rows).reshape(shape).astype(x.dtype)
    out = np.empty(shape, x.dtype)
    out.real = tree_sum(rows.real).reshape(shape)
    out.imag = tree_sum(rows.imag).reshape(shape)
    return out
