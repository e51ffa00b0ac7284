"""Several CPU engines in the default runtime for the length of a test, and programs scattered over them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import tenferro as tn
from tenferro.engines.cpu.engine import CpuEngine
from tenferro.engines.engine import Engine
from tenferro.runtime import Configuration, Prepared, signature_of, target_of
from tenferro.tracer.program import SemanticProgram


@contextmanager
def several(n: int) -> Iterator[list[Engine]]:
    """``tn.cpu_engines(n)``; afterwards the engines there were have all cores again."""
    runtime = tn.default_runtime()
    before = runtime.engines()
    shares = [e.share for e in before if isinstance(e, CpuEngine)]

    def restore(configuration: Configuration) -> None:
        configuration.engines[:] = before
        for engine, share in zip((e for e in before if isinstance(e, CpuEngine)), shares, strict=True):
            engine.share = share

    try:
        yield tn.cpu_engines(n)
    finally:
        runtime.reconfigure(restore)


def scattered(program: SemanticProgram, names: Sequence[str], seed: int) -> SemanticProgram:
    """Every operation put on one of the engines at random; now and then on none."""
    choose = random.Random(seed)
    operations = tuple(replace(o, place=choose.choice([*names, ""])) for o in program.operations)
    return replace(program, operations=operations)


def run_on(program: SemanticProgram, engines: Sequence[Engine], inputs: Sequence[Any]) -> list[Any]:
    """The outputs, by the default runtime."""
    return tn.default_runtime().run(engines, prepared_on(program, engines), inputs).outputs


def prepared_on(program: SemanticProgram, engines: Sequence[Engine]) -> Prepared:
    return tn.default_runtime().prepare(program, signature_of(program), [target_of(e) for e in engines])
