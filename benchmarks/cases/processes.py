"""Compilation, many sizes and import: each peer in a fresh process."""

from __future__ import annotations

from benchmarks.case import ProcessCase

JAX, OTHERS = ("jax",), ("numba", "torch")

CASES = (
    ProcessCase("compile_30", "30 operations, 10 of them transcendental", "compile", JAX, OTHERS, 30),
    ProcessCase("compile_3000", "3,000 operations, 1,000 transcendental", "compile", JAX, OTHERS, 3000),
    ProcessCase("compile_9000", "9,000 operations, 3,000 transcendental", "compile", JAX, OTHERS, 9000),
    ProcessCase(
        "compile_mlp_grad", "the function of mlp_grad, loss and gradient", "compile_case", JAX, array_case="mlp_grad"
    ),
    ProcessCase("many_sizes", "softmax at 50 sizes", "sizes", JAX, OTHERS, 50),
    ProcessCase(
        "restart_100",
        "first result of a second process after NumPy's import: the library, 100 operations, caches on disk",
        "restart",
        JAX,
        OTHERS,
        100,
    ),
    ProcessCase(
        "import", "import after NumPy's, against NumPy's own", "import", ("numpy",), (*JAX, *OTHERS), dtypes=False
    ),
)
