"""What is run and compiled as CUDA: programs with operands, by group.

Each group takes the dtypes and shapes of its subject in turn, so that a usual run stays short; with ``CUDA_TESTS=full``
in the environment it takes all of them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

import tenferro as tn
from benchmarks.case import ArrayCase
from benchmarks.cases import layout, pointwise, reductions
from tenferro.engines.cuda.params import Schedule
from tenferro.engines.cuda.prelude import KernelText
from tenferro.lowering import lower
from tenferro.lowering.plan import Plan
from tenferro.tracer.config import config
from tenferro.tracer.op import Contraction, Library
from tenferro.tracer.ops import OPS
from tenferro.tracer.program import ArrayType, SemanticProgram
from tests.cuda import gradient_cases, lax_cases
from tests.cuda.running import SHIM, kernels_of, run_on_shim
from tests.running import executable, one_op, outputs_of
from tests.samples import SAMPLES, Agreement, Sample
from tests.table.agreement import bits, values as equal_values
from tests.values import factors, laid_out, uniform

Array = np.ndarray[Any, Any]
FULL = os.environ.get("CUDA_TESTS") == "full"


@dataclass
class Case:
    """``agreement`` is that of the row where an engine may choose among results of equal value."""

    name: str
    program: SemanticProgram
    operands: tuple[Any, ...]
    schedule: Schedule | None = None
    agreement: Agreement = "bits"
    plan: Plan = field(init=False)

    def __post_init__(self) -> None:
        self.plan = lower(self.program, config())

    def __str__(self) -> str:
        operands = ", ".join(f"{np.asarray(x).dtype}{np.shape(x)}" for x in self.operands)
        return f"{self.name}({operands}) {self.schedule or ''}"

    def kernels(self) -> Iterator[KernelText]:
        return kernels_of(self.plan, self.operands, schedule=self.schedule)

    def problem(self) -> str | None:
        """How the shim's outputs differ from the CPU engine's."""
        actual, _ = run_on_shim(self.plan, self.operands, schedule=self.schedule)
        expected = outputs_of(executable(self.program, "cpu:0"), self.operands)
        compare = equal_values if self.agreement == "values" else bits
        problems = [compare(np.asarray(a), np.asarray(e)) for a, e in zip(actual, expected, strict=True)]
        return next((p for p in problems if p), None)


def prepared(cases: Sequence[Case]) -> Sequence[Case]:
    """The cases, with all their kernels compiled for the shim."""
    SHIM.add(k for case in cases for k in case.kernels())
    return cases


def problems(cases: Iterable[Case]) -> list[str]:
    return [f"{case}: {problem}" for case in cases if (problem := case.problem()) is not None]


def op_case(name: str, sample: Sample, schedule: Schedule | None = None) -> Case:
    types = [ArrayType(x.dtype, x.shape) for x in sample.operands]
    program = one_op(OPS[name], types, dict(sample.params))
    # Which of several NaNs the maximum of complex numbers hands on depends on the order in which it meets them.
    free = name in ("max", "min") and any(x.dtype.kind == "c" for x in sample.operands)
    return Case(name, program, sample.operands, schedule, "values" if free else "bits")


# The table.

NATIVE_ROWS = tuple(n for n in SAMPLES if not isinstance(OPS[n].form, Library | Contraction))


def _chosen(samples: Sequence[Sample]) -> list[Sample]:
    """For every combination of dtypes the sample with the most elements; of every fourth one of the others as well."""
    groups: dict[tuple[str, ...], list[Sample]] = {}
    for sample in samples:
        groups.setdefault(tuple(x.dtype.str for x in sample.operands), []).append(sample)
    found = []
    for number, group in enumerate(groups.values()):
        largest = max(group, key=lambda s: sum(x.size for x in s.operands))
        found += [largest] if number % 4 else [largest, group[number % len(group)]]
    return found


@cache
def table() -> tuple[Case, ...]:
    """Every row that becomes a kernel, with every combination of dtypes."""
    return tuple(
        op_case(name, sample)
        for name in NATIVE_ROWS
        for sample in (SAMPLES[name].samples if FULL else _chosen(SAMPLES[name].samples))
    )


# Reductions.

SCHEDULES: tuple[Schedule, ...] = ("thread", "warp", "block", "column", "split", "split column")
REDUCED: tuple[tuple[tuple[int, ...], tuple[int, ...]], ...] = (
    ((3, 17), (1,)), ((17, 3), (0,)), ((3, 5000), (1,)), ((5000, 3), (0,)), ((4, 3, 70), (0, 2)), ((9001,), (0,)),
    ((3, 0), (1,)), ((1,), (0,)), ((40, 33), (0, 1)), ((2, 2048), (1,)), ((2, 4097), (1,)), ((5, 70, 6), (1,)),
)  # fmt: skip
REDUCTIONS = ("sum", "prod", "squared_deviations", "max", "min", "argmax", "argmin")
REDUCED_DTYPES = ("float32", "float64", "complex64", "float16", "int32", "complex128", "int8", "uint64", "bool")
LONGEST_OF_THREAD = 2048


def _reducible(name: str, dtype: str) -> bool:
    return any(dtype == s.operands[0].dtype.name for s in SAMPLES[name].samples)


@cache
def reduced() -> tuple[Case, ...]:
    """Every kind of reduction on every schedule, round the lengths of lanes and chunks."""
    found = []
    number = 0
    for name in REDUCTIONS:
        dtypes = [d for d in REDUCED_DTYPES if _reducible(name, d)]
        for schedule in SCHEDULES:
            for shape, axes in REDUCED:
                length = int(np.prod([shape[a] for a in axes]))
                if schedule == "thread" and length > LONGEST_OF_THREAD or not length and name not in ("sum", "prod"):
                    continue
                number += 1
                if not FULL and number % 2:
                    continue
                mine = dtypes if FULL else [dtypes[number // 2 % len(dtypes)]]
                for dtype in mine:
                    values = factors if name == "prod" else uniform
                    sample = Sample((values(shape, dtype, number),), {"axes": axes, "keepdims": False})
                    found.append(op_case(name, sample, schedule))
    return tuple(found)


# Functions.


def traced(name: str, function: Callable[..., Any], operands: tuple[Any, ...], schedule: Schedule | None) -> Case:
    return Case(name, tn.jit(function).trace(*operands), operands, schedule)


def softmax(x: Array) -> Any:
    e = np.exp(x - np.max(x, axis=-1, keepdims=True))
    return e / np.sum(e, axis=-1, keepdims=True)


def softmax_down(x: Array) -> Any:
    e = np.exp(x - np.max(x, axis=0, keepdims=True))
    return e / np.sum(e, axis=0, keepdims=True)


def layer_norm(x: Array) -> Any:
    centred = x - np.mean(x, axis=-1, keepdims=True)
    return centred / np.sqrt(np.var(x, axis=-1, keepdims=True) + 1e-5)


def both_widths(x: Array) -> Any:
    """Sums in float32 and float64: trees of 32 and 16 lanes in one region."""
    wide = np.sum(x.astype(np.float64) * 0.5, axis=-1, keepdims=True)
    return np.sum(x, axis=-1, keepdims=True) + wide, x * wide


def extremes(x: Array) -> Any:
    return np.argmax(x, axis=1), np.min(x, axis=1), np.sum(x * x, axis=1), x - np.max(x, axis=1, keepdims=True)


ROW_PROGRAMS = (softmax, softmax_down, layer_norm, both_widths, extremes)


@cache
def row_programs() -> tuple[Case, ...]:
    """Regions of several passes, on every schedule."""
    found = []
    shapes = ((3, 17), (2, 4500), (70, 33), (4500, 2))
    for number, function in enumerate(ROW_PROGRAMS):
        for k, schedule in enumerate(SCHEDULES):
            for j, shape in enumerate(shapes):
                length = shape[0] if function is softmax_down else shape[1]
                rows = shape[0] * shape[1] // length
                if schedule == "thread" and length > LONGEST_OF_THREAD or schedule == "block" and rows > 100:
                    continue
                dtype = ("float32", "float64")[(number + k + j) % 2]
                found.append(traced(function.__name__, function, (uniform(shape, dtype, j),), schedule))
    return tuple(found)


def _mirrored(x: Array) -> Any:
    return x + x.T


def _padded(x: Array) -> Any:
    return np.pad(x, ((1, 2), (3, 0))) * 2.0


def _joined(x: Array, y: Array) -> Any:
    return np.concatenate([x, y * 2.0, x[:, ::-1]], axis=1) + 1.0


def _taken(x: Array, index: Array) -> Any:
    return x[index] * 2.0 + x[0]


def _shifted(x: Array) -> Any:
    return x[1:, 2:] - x[:-1, :-2]


def _triangle(x: Array) -> Any:
    return np.tril(x) + np.triu(x, 1) * np.arange(x.shape[1])


def _reshaped(x: Array) -> Any:
    return np.reshape(np.transpose(x), (-1,)) * 3.0


def _row_mean(x: Array, weights: Array) -> Any:
    return np.mean(x * weights, axis=1, keepdims=True) * x


ORDERS = ("C", "F", "strided", "reversed", "offset")


@cache
def layouts() -> tuple[Case, ...]:
    """Windows, gathers, iotas and every order of memory."""
    found = []
    for number, order in enumerate(ORDERS):
        for dtype in ("float32", "complex128", "int16", "float64") if FULL else ("float32", "complex128"):
            x, y, square = (laid_out(uniform(s, dtype, number), order) for s in ((12, 20), (12, 8), (33, 33)))
            index = laid_out(np.array([[3, -1, 0], [11, -12, 5]]), order)
            weights = laid_out(uniform((20,), dtype, 3), order)
            for name, function, operands in (
                ("x + x.T", _mirrored, (square,)), ("pad", _padded, (x,)), ("concatenate", _joined, (x, y)),
                ("take", _taken, (x, index)), ("shift", _shifted, (x,)), ("triangle", _triangle, (square,)),
                ("reshape", _reshaped, (x,)), ("row mean", _row_mean, (x, weights)),
            ):  # fmt: skip
                found.append(traced(f"{name} in {order}", function, operands, None))
    return tuple(found)


@cache
def windows() -> tuple[Case, ...]:
    """Functions of ``tn.lax`` in every order of memory."""
    found = []
    for number, order in enumerate(ORDERS):
        for dtype in ("float32", "complex64", "int16", "float64") if FULL else (("float32", "int16")[number % 2],):
            for name, function, operands in lax_cases.calls(order, dtype, number):
                found.append(traced(f"{name} in {order}", function, operands, None))
    return tuple(found)


@cache
def gradients() -> tuple[Case, ...]:
    """Gradients of functions of many kinds, backwards through each kind of region."""
    found = []
    for number, order in enumerate(ORDERS if FULL else ("C", "strided")):
        for dtype in ("float32", "float64") if FULL else (("float32", "float64")[number % 2],):
            for name, function, operands in gradient_cases.calls(order, dtype, number):
                found.append(traced(f"{name} in {order}", function, operands, None))
    return tuple(found)


BENCHMARKS: tuple[ArrayCase, ...] = (*pointwise.CASES, *reductions.CASES, *layout.CASES)


@cache
def benchmarks() -> tuple[Case, ...]:
    """Every array case of the benchmarks at small sizes."""
    found = []
    for case in BENCHMARKS:
        for dtype in ("float32", "float64"):
            for scale in (2.0**-14, 2.0**-11, 3.0**-9) if FULL else (2.0**-13, 3.0**-9):
                operands = case.inputs(np.dtype(dtype), scale)
                found.append(traced(case.name, case.function, operands, None))
                strided = tuple(laid_out(x, "strided") for x in operands)
                found.append(traced(f"{case.name}, strided", case.function, strided, None))
    return tuple(found)


GROUPS: dict[str, Callable[[], tuple[Case, ...]]] = {
    "table": table,
    "reduced": reduced,
    "row programs": row_programs,
    "layouts": layouts,
    "windows": windows,
    "gradients": gradients,
    "benchmarks": benchmarks,
}
