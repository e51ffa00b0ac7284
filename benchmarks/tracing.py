"""What tracing costs for each operation, and whether it stays the same for long programs; beside JAX's.

    python -m benchmarks.tracing

Prints medians of turns taken in turn, in CPU time of the process. ``eval_shape`` of both traces and does no more.
"""

from __future__ import annotations

import gc
import statistics
import time
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np

import tenferro as tn

LENGTHS = (1_000, 10_000, 100_000)
TURNS = 5


def chain(module: Any, length: int) -> Callable[[Any], Any]:
    """A function of so many operations."""

    def f(x: Any) -> Any:
        for _ in range(length // 2):
            x = module.sin(x) * 1.01
        return x

    return f


def seconds(trace: Callable[[], object]) -> float:
    gc.collect()  # what the other has left is not this one's to search through
    gc.freeze()
    start = time.process_time()
    trace()
    return time.process_time() - start


def measured(length: int, with_jax: bool) -> tuple[float, float | None]:
    """µs an operation, and JAX's."""
    x = np.ones(4, np.float32)
    ours: list[float] = []
    theirs: list[float] = []
    for _ in range(TURNS if length <= LENGTHS[1] else 1):
        ours.append(seconds(lambda: tn.eval_shape(chain(np, length), x)))
        if with_jax and length <= LENGTHS[1]:
            import jax
            import jax.numpy as jnp

            theirs.append(seconds(lambda: jax.eval_shape(chain(jnp, length), x)))
    scale = 1e6 / length
    return scale * statistics.median(ours), scale * statistics.median(theirs) if theirs else None


def main() -> None:
    warnings.simplefilter("ignore", tn.UnrolledLoopWarning)
    try:
        import jax  # noqa: F401
    except ImportError:
        with_jax = False
    else:
        with_jax = True
    measured(100, with_jax)
    found = {length: measured(length, with_jax) for length in LENGTHS}
    for length, (ours, theirs) in found.items():
        beside = "" if theirs is None else f"; JAX {theirs:.1f} µs, {theirs / ours:.1f} x as long (gate 3)"
        print(f"{length} operations: {ours:.1f} µs each{beside}")
    print(
        f"{LENGTHS[-1]} operations: {found[LENGTHS[-1]][0] / found[LENGTHS[0]][0]:.2f} x as long each as {LENGTHS[0]}"
    )


if __name__ == "__main__":
    main()
