"""Programs run on engines directly, below ``jit``: an op and operand types in; a program, a plan, outputs out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

import tenferro as tn
from tenferro.engines.cpu import code_generator
from tenferro.engines.cpu.engine import CpuEngine
from tenferro.engines.cpu.toolchain import Target, host_target
from tenferro.engines.engine import Engine, Executable, RunResult
from tenferro.engines.reference import ReferenceEngine
from tenferro.lowering import lower
from tenferro.tracer.config import Config, config
from tenferro.tracer.op import Op
from tenferro.tracer.program import ArrayType, Operation, Params, ProgramInput, SemanticProgram, Value

Array = np.ndarray[Any, Any]
ENGINES = ("reference:0", "cpu:0")


def one_op(
    op: Op, types: Sequence[ArrayType], params: Mapping[str, Any], carriers: Sequence[ArrayType] = ()
) -> SemanticProgram:
    """The program that applies one op to its arguments and returns fresh arrays. ``carriers`` are further inputs that
    no operation reads: sizes may come from them."""
    inputs = tuple(Value(k, t) for k, t in enumerate((*types, *carriers)))
    inferred = op.infer(types, Params(**params))
    outputs = tuple(Value(len(inputs) + k, t) for k, t in enumerate(inferred))
    return SemanticProgram(
        name=op.name,
        inputs=tuple(ProgramInput(v, "argument", f"x{v.id}") for v in inputs),
        operations=(Operation(op, inputs[: len(types)], Params(**params), outputs),),
        outputs=outputs,
        aliases=tuple(range(len(outputs))),
    )


@cache
def engine(engine_id: str) -> Engine:
    match engine_id:
        case "reference:0":
            return ReferenceEngine()
        case "cpu:0":
            return CpuEngine()
        case _:
            raise ValueError(f"no engine {engine_id!r}")


@contextmanager
def engines_as_they_were() -> Iterator[None]:
    """The default runtime has the engines that it had, with their shares of the threads, when this is left."""
    runtime = tn.default_runtime()
    before = list(runtime.engines())
    shares = [(e, e.share) for e in before if isinstance(e, CpuEngine)]
    yield
    for mine, share in shares:
        mine.share = share
    runtime.reconfigure(lambda configuration: configuration.engines.__setitem__(slice(None), before))


def settings(**changes: Any) -> Config:
    """The process's settings with some of them changed."""
    return replace(config(), **changes)


def executable(program: SemanticProgram, engine_id: str) -> Executable:
    return engine(engine_id).compile(lower(program, config()))


def outputs_of(made: Executable, operands: Sequence[Any]) -> list[Array]:
    """The outputs of one run; whatever NumPy would warn of is not what these tests are about."""
    with np.errstate(all="ignore"):
        return made.run(list(operands)).outputs


CPU_WAYS = tuple(f"{bits} bits, level {tier}" for bits in (512, 256, 128) for tier in ("0", "2"))
WITHOUT = {512: "", 256: ",-avx512f", 128: ",-avx512f,-avx2,-avx,-fma,-f16c"}
"""Features to take from an x86 processor so that its widest registers have so many bits."""


def target(bits: int) -> Target:
    """The machine's own target with registers of at most ``bits`` bits. At 128 bits x86 has no fma instruction:
    kernels call libm's, which rounds once as well."""
    host = host_target()
    if host.vector_bits <= bits:
        return host
    return replace(host, features=host.features + WITHOUT[bits], vector_bits=bits)


class Way(Executable):
    """A program on a CPU engine of a vector width and code generation level of its own."""

    def __init__(self, program: SemanticProgram, name: str) -> None:
        bits, tier = int(name.split()[0]), name.split()[-1]
        self._made = CpuEngine(target=target(bits), tier=tier).compile(lower(program, config()))

    def run(self, inputs: Sequence[Array | int]) -> RunResult:
        with patch.object(code_generator, "ALLOWED_SYMBOLS", code_generator.ALLOWED_SYMBOLS | {"fma", "fmaf"}):
            return self._made.run(inputs)

    def kernel_texts(self) -> dict[str, dict[str, str]]:
        return self._made.kernel_texts()

    @property
    def kernels(self) -> int:
        return self._made.kernels

    @property
    def kernel_bytes(self) -> int:
        return self._made.kernel_bytes
