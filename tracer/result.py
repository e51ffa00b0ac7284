"""What a trace gives, and what a program that was kept on disk gives in its place."""

from __future__ import annotations

from typing import Any, Literal as OneOf, TypeAlias

import numpy as np

from tenferro.tracer.dims import Extent
from tenferro.tracer.program import SemanticProgram
from tenferro.tracer.records import dataclass
from tenferro.tracer.tree import TreeDef

OutLeaf: TypeAlias = (
    tuple[OneOf["array", "scalar", "number"], int] | tuple[OneOf["size"], Extent] | tuple[OneOf["static"], Any]
)


@dataclass(frozen=True, slots=True)
class TraceResult:
    """The program and what it takes to run it.

    Program inputs are the leaves in order, then captured arrays and constants as they were met; ``captured`` and
    ``constants`` pair their input indices with the arrays. ``out_leaves`` says for each leaf of the result where it
    comes from: an output of the program, which NumPy would give as an array, a NumPy scalar or a Python number, a size,
    or the Python object itself. ``writes`` pairs each donated input that the function wrote into with the output that
    holds what it must hold afterwards; those outputs stand behind the result's own."""

    program: SemanticProgram
    captured: tuple[tuple[int, Any], ...]
    constants: tuple[tuple[int, np.ndarray[Any, Any]], ...]
    out_treedef: TreeDef
    out_leaves: tuple[OutLeaf, ...]
    writes: tuple[tuple[int, int], ...]
    uses_tenferro_arrays: bool
