"""What a run's inputs tell of sizes, and what literals and sizes are as arrays: the same for every engine."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.tracer.dims import Environment, Leaf, evaluate, is_runtime
from tenferro.tracer.errors import RangeError
from tenferro.tracer.program import DimScalar, Literal


def input_sizes(inputs: Sequence[Any]) -> dict[Leaf, int]:
    """The leaves that the inputs, arrays of any engine and ints, give values to."""
    found: dict[Leaf, int] = {}
    for k, x in enumerate(inputs):
        if isinstance(x, int):
            found[Leaf("int", k)] = x
        else:
            found.update((Leaf("extent", k, axis), n) for axis, n in enumerate(x.shape))
    return found


def layout_sizes(layouts: Sequence[Any]) -> dict[Leaf, Any]:
    """``input_sizes`` of numbers for ints and (shape, strides) for arrays."""
    found: dict[Leaf, Any] = {}
    for k, x in enumerate(layouts):
        if isinstance(x, tuple):
            found.update((Leaf("extent", k, axis), n) for axis, n in enumerate(x[0]))
        else:
            found[Leaf("int", k)] = x
    return found


def scalar_array(source: Literal | DimScalar, env: Environment) -> np.ndarray[Any, Any]:
    """A fresh array of rank 0 that holds the literal, or the size under ``env``."""
    value = source.value if isinstance(source, Literal) else evaluate(source.expr, env)
    try:
        return np.array(value, source.dtype)
    except OverflowError as error:
        if isinstance(source, Literal) or not is_runtime(source.expr):
            raise  # whoever knows the program's inputs tells which
        raise RangeError(f"{source.expr} is {value}; needed a number that {source.dtype.name} holds") from error
