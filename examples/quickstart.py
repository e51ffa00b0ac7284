"""The first ten minutes: jit a function, call it at many sizes, look inside, and see what it refuses.

python examples/quickstart.py
"""

from __future__ import annotations

from typing import Any

import numpy as np

import tenferro as tn

Array = np.ndarray[Any, Any]


@tn.jit
def softmax(x: Array) -> Any:
    """Over the last axis."""
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


@tn.jit
def heat(u: Array, rate: float) -> Array:
    """One explicit step of the heat equation; the border stays."""
    out = u.copy()
    out[1:-1, 1:-1] += rate * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1])
    return out


@tn.jit
def mean_of_positive(x: Array) -> Any:
    """The mask's number of hits is a size known only when it has run."""
    chosen = x[x > 0]
    return chosen.sum() / chosen.shape[0]


@tn.jit
def smooth(x: Array) -> Array:
    """A branch on a size: fine, and a guard."""
    if x.shape[0] < 3:
        return x
    return (x[:-2] + x[1:-1] + x[2:]) / 3.0


def main() -> None:
    rng = np.random.default_rng(0)

    print("one program for every size")
    for shape in ((2, 3), (512, 100), (1, 100_000), (0, 5)):
        x = rng.standard_normal(shape)
        result = softmax(x)
        assert np.allclose(result.sum(axis=-1), 1.0)
        print(f"  softmax of {shape}: {type(result).__name__} {result.dtype} {result.shape}")
    print(" ", softmax.cache_info())

    print("\nwrites inside a function mean what they mean in NumPy")
    u = np.zeros((64, 64))
    u[32, 32] = 1.0
    for _ in range(100):
        u = heat(u, 0.1)
    print(f"  after 100 steps: total {u.sum():.6f}, peak {u.max():.6f}")

    print("\nboolean masks")
    print(f"  {mean_of_positive(np.array([1.0, -5.0, 3.0])):.1f}")

    print("\na branch on a size")
    smooth(np.arange(10.0))
    smooth(np.arange(1000.0))
    smooth(np.arange(2.0))
    print(smooth.explain())

    print("\nwhat softmax became: one fused kernel")
    print(softmax.lower(np.ones((4, 8), np.float32)).as_text("regions"))

    print("\na bad call")
    try:
        heat(np.zeros((4, 4)), np.zeros(3))
    except ValueError as problem:
        print(f"  {type(problem).__name__}: {problem}")


if __name__ == "__main__":
    main()
