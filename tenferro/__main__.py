"""``python -m tenferro``: one real function on this machine, from its program to its time beside NumPy's.

The function is Reinhard's global tone mapping operator (Reinhard, Stark, Shirley and Ferwerda, 2002, equations 1 to 4)
on an image of high dynamic range. The image is computed here: a matt, gently waved floor under two lamps, by Lambert's
law and the inverse square of the distance, with the shot noise of a sensor. Nothing is measured, and nothing is read.

``--all`` prints the stages in full.
"""

from __future__ import annotations

import argparse
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

import tenferro as tn

if TYPE_CHECKING:
    from tenferro.explain import CacheInfo, Explanation
    from tenferro.lowered import Lowered

HEIGHT, WIDTH = 1024, 1536
ROUNDS = 7
TOLERANCE = 2e-5  # of the white level; float32 has 6e-8, and NumPy sums in another order


def lit_floor(height: int, width: int) -> np.ndarray[Any, Any]:
    """Radiance of the floor, shape (height, width, 3), float32, from about 1e-3 to 1e3."""
    random = np.random.default_rng(2002)
    y, x = np.meshgrid(np.linspace(-2, 2, height), np.linspace(-3, 3, width), indexing="ij")
    slope_x, slope_y = 0.2 * np.cos(5 * x), 0.2 * np.cos(4 * y)
    normal = np.stack([-slope_x, -slope_y, np.ones_like(x)]) / np.sqrt(1 + slope_x**2 + slope_y**2)
    image = np.full((height, width, 3), 1e-3)
    for position, colour in (((-1.5, 0.5, 0.1), (1.0, 0.7, 0.4)), ((1.8, -0.8, 0.6), (0.4, 0.6, 1.0))):
        way = np.stack([position[0] - x, position[1] - y, np.full_like(x, position[2])])
        distance = np.sqrt((way**2).sum(0))
        cosine = np.maximum((normal * way).sum(0) / distance, 0)
        image += (10 * cosine / distance**2)[..., None] * np.array(colour)
    electrons = 2000.0
    return (random.poisson(image * electrons) / electrons).astype(np.float32)


def tone_map(image: Any) -> Any:
    """Radiance in, display values in [0, 1] out (gamma 2)."""
    luminance = 0.2126 * image[..., 0] + 0.7152 * image[..., 1] + 0.0722 * image[..., 2]
    average = np.exp(np.mean(np.log(luminance + 1e-4)))
    scaled = luminance * (0.18 / average)
    white = np.max(scaled)
    mapped = scaled * (1 + scaled / (white * white)) / (1 + scaled)
    ratio = mapped / np.maximum(luminance, 1e-6)
    return np.sqrt(np.minimum(image * ratio[..., None], 1))


def processor() -> str:
    """The processor's name as the system gives it."""
    try:
        with open("/proc/cpuinfo") as lines:
            return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def best_ms(function: Callable[[Any], Any], image: Any) -> float:
    """The shortest of ``ROUNDS`` calls, in milliseconds."""
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        function(image)
        times.append(time.perf_counter() - start)
    return min(times) * 1e3


REGION_LEGEND = """  s0, s1, … are arrays (slots), arguments first; v0, v1, … are values of one element
  o marks what is computed once for each row, or once: results of reductions, and numbers made of them
  s5! in a call line is the last use, so that its memory may be taken over; s7 = v5 is a store"""
MEMORY_LEGEND = """  peak is the most memory that a run holds beyond its inputs: here, and as a formula for every size
  naive is what it would take if every array had memory of its own; the largest arrays are listed with the steps that
  hold them"""


def heading(text: str) -> None:
    print(f"\n== {text}")


def show_in_short(lowered: Lowered, info: CacheInfo) -> None:
    """The ends of the program, the last region, and what the machine code takes."""
    lines = lowered.as_text("program").splitlines()
    heading(f"{lines[0]}: {len(lowered.program.operations)} operations, the last four")
    print(*lines[-5:], sep="\n")
    *before, region = lowered.regions
    heading(f"regions: {len(lowered.regions)}, each one kernel; the last")
    for other in before:
        print(f"{str(other).splitlines()[0]}: {len(other.nodes)} values")
    print(region)
    print(REGION_LEGEND.splitlines()[0])
    heading("machine code")
    print(f"{info.kernels} kernels, {info.kernel_bytes} bytes; at most {lowered.memory().bytes} bytes beside the image")


def show_all(lowered: Lowered, info: CacheInfo, explanation: Explanation) -> None:
    """The stages in full."""
    heading("program")
    print(lowered.as_text("program"))
    heading("regions")
    print(lowered.as_text("regions"))
    print(REGION_LEGEND)
    heading("machine code")
    print(f"{info.kernels} kernels, {info.kernel_bytes} bytes")
    print(lowered.memory())
    print(MEMORY_LEGEND)
    print(explanation)


def main(arguments: Sequence[str] | None = None) -> int:
    """0 where tenferro's result is NumPy's within the tolerance, else 1."""
    parser = argparse.ArgumentParser(
        "python -m tenferro", description="One function on this machine: seen, checked, timed."
    )
    parser.add_argument("--all", action="store_true", help="print the stages in full")
    whole = parser.parse_args(arguments).all
    print(f"tenferro {tn.__version__} on {processor()}, {cores()} cores")
    system = f"{platform.system()}, Python {platform.python_version()}, NumPy {np.__version__}"
    print(f"{system}, engine {', '.join(tn.list_engines())}")
    image = lit_floor(HEIGHT, WIDTH)
    print(f"image {image.shape}, {image.dtype}, computed: radiance from {image.min():.3g} to {image.max():.3g}")

    mapped = tn.jit(tone_map)
    start = time.perf_counter()
    result = mapped(image)
    first = (time.perf_counter() - start) * 1e3
    lowered = mapped.lower(image)
    if whole:
        show_all(lowered, mapped.cache_info(), mapped.explain())
    else:
        show_in_short(lowered, mapped.cache_info())

    heading("check")
    expected = tone_map(image)
    error = float(np.max(np.abs(result - expected)))
    good = bool(np.isfinite(error)) and error <= TOLERANCE and result.dtype == expected.dtype
    verdict = "good" if good else "BAD"
    print(f"largest difference from NumPy {error:.1e} of the white level, {TOLERANCE:.0e} allowed: {verdict}")

    heading("time")
    ours, theirs = best_ms(mapped, image), best_ms(tone_map, image)
    print(f"tenferro {ours:8.2f} ms   (first call, compilation included: {first:.1f} ms)")
    print(f"NumPy    {theirs:8.2f} ms")
    print(f"ratio    {theirs / ours:8.1f}")
    if not whole:
        print("\npython -m tenferro --all: the whole program, every region, memory, and what the trace cost")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
