"""Compilation, many sizes and import: each peer in a fresh process."""

from __future__ import annotations

from benchmarks.case import ProcessCase

COMPILERS = ("jax", "numba", "torch")

CASES = (
    ProcessCase("compile_30", "30 operations, 10 of them transcendental", "compile", COMPILERS, 30),
    ProcessCase("compile_3000", "3,000 operations, 1,000 transcendental", "compile", COMPILERS, 3000),
    ProcessCase("compile_9000", "9,000 operations, 3,000 transcendental", "compile", COMPILERS, 9000),
    ProcessCase("many_sizes", "softmax at 50 sizes", "sizes", COMPILERS, 50),
    ProcessCase("import", "import after NumPy's, against NumPy's own", "import", ("numpy",), dtypes=False),
)
