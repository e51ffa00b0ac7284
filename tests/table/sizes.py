"""One program for every size against a program of each size's own: an op's name and sizes in, differences out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tenferro.engines.engine import Executable
from tenferro.tracer.dims import DimExpr, leaf
from tenferro.tracer.ops import OPS
from tenferro.tracer.program import ArrayType
from tests.running import executable, one_op, outputs_of
from tests.samples import SAMPLES, Shape
from tests.table.agreement import bits
from tests.values import uniform

Array = np.ndarray[Any, Any]


def size_pairs(minimum: int, count: int, seed: int) -> list[tuple[int, int]]:
    """0 (where the call exists), 1, and sizes round the widths of vectors, then random ones up to 150."""
    rng = np.random.default_rng(seed)
    first = [(minimum, minimum), (1, 1), (1, 17), (33, 1), (minimum, 5), (7, minimum)]
    rest = [(int(n), int(m)) for n, m in np.exp(rng.uniform(0, np.log(150), (max(0, count - len(first)), 2)))]
    return (first + rest)[:count]


def _polymorphic(name: str, dtypes: tuple[str, ...]) -> Executable:
    """Sizes as symbols. A last, unused operand of shape (n, m) brings both sizes to ops whose operands do not."""
    n, m = leaf("extent", len(dtypes), 0), leaf("extent", len(dtypes), 1)
    sized = SAMPLES[name].sized
    types = [ArrayType(np.dtype(d), s) for d, s in zip(dtypes, sized.shapes(n, m), strict=True)]
    carrier = ArrayType(np.dtype(np.bool_), (n, m))
    return executable(one_op(OPS[name], types, sized.params(n, m), carriers=(carrier,)), "cpu:0")


def operand(name: str, shape: Shape, dtype: str, limit: int, seed: int) -> Array:
    concrete = tuple(e for e in shape if not isinstance(e, DimExpr))
    if dtype == "int64" and name in ("take", "scatter"):
        return np.random.default_rng(seed).integers(-limit, limit, concrete)
    return uniform(concrete, dtype, seed)


def check_sizes(name: str, pairs: Sequence[tuple[int, int]]) -> list[str]:
    """The sizes are dealt out to the row's dtypes in turn."""
    sized = SAMPLES[name].sized
    programs = [(dtypes, _polymorphic(name, dtypes)) for dtypes in sized.variants]
    wrong = []
    for number, (n, m) in enumerate(pairs):
        dtypes, polymorphic = programs[number % len(programs)]
        operands = [
            operand(name, shape, dtype, m, number + k)
            for k, (shape, dtype) in enumerate(zip(sized.shapes(n, m), dtypes, strict=True))
        ]
        fixed = [ArrayType(x.dtype, x.shape) for x in operands]
        fresh = executable(one_op(OPS[name], fixed, sized.params(n, m)), "cpu:0")
        expected = outputs_of(fresh, operands)
        for a, e in zip(outputs_of(polymorphic, [*operands, np.zeros((n, m), bool)]), expected, strict=True):
            problem = bits(a, e)
            if problem:
                wrong.append(f"n={n}, m={m}, {dtypes}: {problem}")
    return wrong
