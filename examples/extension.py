"""Operations of one's own: a median filter with a faster executor, and a log that keeps its order.

python examples/extension.py
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np

import tenferro as tn
from tenferro.runtime import ExtensionModule, Family, Lent

Array = np.ndarray[Any, Any]
Pair = tuple[int, int]

# A family says what its operation means: the types of its results, and a NumPy function that computes them.


def filtered_types(types: Sequence[Any], params: Any) -> tuple[Any, ...]:
    """One result, of the image's own type. What is refused here is refused when the function is traced."""
    if params["width"] % 2 == 0:
        raise ValueError(f"median_filter: width is {params['width']}; an odd number is needed")
    return (types[0],)


def windows(x: Array, width: int) -> Array:
    """For each element of the last axis those around it; the border is repeated."""
    edges = [(0, 0)] * (x.ndim - 1) + [(width // 2, width // 2)]
    return np.lib.stride_tricks.sliding_window_view(np.pad(x, edges, mode="edge"), width, axis=-1)


def median_of_windows(x: Array, width: int) -> Array:
    return np.median(windows(x, width), axis=-1).astype(x.dtype)


median_filter = Family("example.median_filter.v1", filtered_types, median_of_windows)

# An executor is a faster way to the same result on one kind of engine. What it is lent for the call keeps what is worth
# keeping between calls: here the comparisons that sort one window, which depend on its width alone.


def sorting_network(width: int) -> tuple[Pair, ...]:
    """Pairs of places to be put in order, after which a window is sorted (odd-even transposition)."""
    rounds = [range(k % 2, width - 1, 2) for k in range(width)]
    return tuple((a, a + 1) for places in rounds for a in places)


def median_by_network(lent: Lent, x: Array, width: int) -> Array:
    """Whole shifted copies of the image are compared, not single windows."""
    pairs = lent.cache.get(width, lambda: sorting_network(width))
    shifted = [np.ascontiguousarray(w) for w in np.moveaxis(windows(x, width), -1, 0)]
    for a, b in pairs:
        low = np.minimum(shifted[a], shifted[b])
        np.maximum(shifted[a], shifted[b], out=shifted[b])
        shifted[a] = low
    return shifted[width // 2]


# An operation with effects: calls are neither dropped nor repeated, and keep their order.

seen: list[str] = []


def noted(x: Array, label: str) -> Array:
    seen.append(f"{label}: {float(x):.4f}")
    return x


note = Family("example.note.v1", lambda types, params: (types[0],), noted, ordered=True)

MODULE = ExtensionModule("example", (median_filter, note), {("example.median_filter.v1", "cpu"): median_by_network})


@tn.jit
def cleaned(image: Array) -> Any:
    """Spikes go, the rest is scaled to [0, 1]; the operations before and after the filter are fused as ever."""
    bright = np.sqrt(image)
    smooth = median_filter(bright, width=5)
    note(np.abs(smooth - bright).max(), label="largest spike")
    low, high = smooth.min(), smooth.max()
    note(high - low, label="range")
    return (smooth - low) / (high - low)


def cleaned_by_numpy(image: Array) -> Array:
    smooth = median_of_windows(np.sqrt(image), 5)
    return np.asarray((smooth - smooth.min()) / (smooth.max() - smooth.min()))


def best_time(f: Any, *args: Any) -> float:
    times = []
    for _ in range(3):
        start = time.perf_counter()
        f(*args)
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    tn.default_runtime().reconfigure(lambda configuration: configuration.install_extension(MODULE))
    rng = np.random.default_rng(0)
    image = rng.random((300, 400))
    image[rng.random(image.shape) < 0.02] = 50.0

    result = cleaned(image)
    print("jitted, against NumPy:", np.allclose(result, cleaned_by_numpy(image), rtol=1e-12))
    print("what was noted, in order:", *seen, sep="\n  ")

    eager = median_filter(image, width=3)
    print("eagerly, against NumPy:", np.array_equal(eager, median_of_windows(image, 3)), type(eager).__name__)
    print("on a tn.Array:", type(median_filter(tn.asarray(image), width=3)).__name__)

    slow, fast = best_time(median_of_windows, image, 5), best_time(lambda x: median_filter(x, width=5), image)
    print(f"reference {1e3 * slow:.1f} ms, executor {1e3 * fast:.1f} ms")

    try:
        median_filter(image, width=4)
    except ValueError as problem:
        print("refused:", problem)

    tn.cpu_engines(2)

    @tn.jit
    def both(a: Array, b: Array) -> Any:
        with tn.on("cpu:1"):
            other = median_filter(b, width=3)
        return median_filter(a, width=3) + other

    total = both(image, image + 1)
    expected = median_of_windows(image, 3) + median_of_windows(image + 1, 3)
    print("on two engines, against NumPy:", np.array_equal(total, expected))
    print(both.lower(image, image).schedule)


if __name__ == "__main__":
    main()
