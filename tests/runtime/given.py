"""Programs and values that tests of runs share."""

from __future__ import annotations

from typing import Any

import numpy as np

import tenferro as tn
from tenferro.runtime import Runtime
from tenferro.tracer.dims import leaf
from tenferro.tracer.program import ArrayType, SemanticProgram
from tests.runtime.devices import (
    placed,
    prepared_for,
)

VECTOR = ArrayType(np.dtype("f8"), (leaf("extent", 0, 0),))


def anything(value: Any) -> Any:
    return value


def traced(f, *args) -> SemanticProgram:
    return tn.jit(f).trace(*args)


def there_and_back() -> SemanticProgram:
    """(x + 1) on the host, * 3 on the device, - 2 on the host."""
    program = traced(lambda x: (x + 1) * 3 - 2, np.ones(2))
    assert len(program.operations) == 3
    return placed(program, "reference:0", "device:0", "reference:0")


def serves(runtime: Runtime, *engines) -> None:
    prepared = prepared_for(runtime, there_and_back(), *engines)
    assert runtime.run(engines, prepared, [np.arange(3.0)]).outputs[0].tolist() == [1, 4, 7]
