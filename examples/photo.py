"""Tone mapping, sharpening and vignette on two photographs; PNG files and a plot of time against size come out.

    python examples/photo.py photos

The functions are NumPy code. Each is traced once and then serves every image size; the plot times the same code under
NumPy and under ``jit``. Needs scikit-learn (whose sample photographs these are), pillow and matplotlib.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first)
import numpy as np  # noqa: E402
from PIL import Image  # noqa: E402
from sklearn.datasets import load_sample_images  # noqa: E402

import tenferro as tn  # noqa: E402

Array: TypeAlias = np.ndarray[Any, Any]
Step: TypeAlias = Callable[[Array], Array]


def to_bytes(x: Array) -> Array:
    """[0, 255] in float32 → uint8, rounded, values outside clipped."""
    return np.minimum(np.maximum(x + 0.5, 0.0), 255.0).astype(np.uint8)


def tone_map(image: Array, key: float = 0.3) -> Array:
    """Brighten shadows and hold highlights: Reinhard, Stark, Shirley and Ferwerda (2002), equations 1, 2 and 4, on the
    luminance of ITU-R BT.709.

    ``image``: (height, width, 3), uint8. ``key``: the luminance that the average goes to. The display's curve is taken
    to be a square."""
    light = image.astype(np.float32) / 255.0
    light = light * light
    luminance = 0.2126 * light[:, :, 0:1] + 0.7152 * light[:, :, 1:2] + 0.0722 * light[:, :, 2:3]
    average = np.exp(np.log(luminance + 1e-4).mean())
    scaled = luminance * (key / average)
    white = scaled.max()
    mapped = scaled * (1.0 + scaled / (white * white)) / (1.0 + scaled)
    return to_bytes(255.0 * np.sqrt(light * (mapped / (luminance + 1e-6))))


def unsharp(image: Array, amount: float = 1.5) -> Array:
    """Add what a 3 × 3 binomial blur takes away; the border row and column stay."""
    x = image.astype(np.float32)
    rows = x[:-2] + 2.0 * x[1:-1] + x[2:]
    blurred = (rows[:, :-2] + 2.0 * rows[:, 1:-1] + rows[:, 2:]) / 16.0
    x[1:-1, 1:-1] += amount * (x[1:-1, 1:-1] - blurred)
    return to_bytes(x)


def vignette(image: Array, field: float = 0.8) -> Array:
    """Darken the corners as a simple lens does: by the fourth power of the cosine of the angle to its axis.

    ``field``: the tangent of that angle in the corners."""
    height, width = image.shape[:2]
    y = (np.arange(height) - (height - 1) / 2).astype(np.float32)
    x = (np.arange(width) - (width - 1) / 2).astype(np.float32)
    scale = 4.0 * field * field / (height * height + width * width)
    squared = scale * (y[:, np.newaxis] * y[:, np.newaxis] + x * x)
    weight = 1.0 / ((1.0 + squared) * (1.0 + squared))
    return to_bytes(image * weight[:, :, np.newaxis])


def develop(image: Array) -> Array:
    """All three, one after the other."""
    return vignette(unsharp(tone_map(image)))


STEPS: dict[str, Step] = {"tone": tone_map, "sharp": unsharp, "vignette": vignette, "developed": develop}
COMPILED: dict[str, Step] = {name: tn.jit(step) for name, step in STEPS.items()}


def write_pictures(folder: Path, photographs: dict[str, Array]) -> None:
    """Write each photograph and what each step makes of it; compare with NumPy."""
    for name, image in photographs.items():
        Image.fromarray(image).save(folder / f"{name}-original.png")
        for step, compiled in COMPILED.items():
            result = compiled(image)
            difference = np.abs(result.astype(int) - STEPS[step](image).astype(int))
            Image.fromarray(result).save(folder / f"{name}-{step}.png")
            share = np.mean(difference > 0)
            print(f"{name}-{step}.png: {share:.4%} of values differ from NumPy's, by {difference.max()} at most")
            # Sums and roots differ in the last bit, which may move a value across a whole number; sharpening, which
            # follows in "developed", doubles such a step.
            assert difference.max() <= (4 if step == "developed" else 1)
            assert share < 1e-3


def resized(image: Array, side: int) -> Array:
    """A square of this side, by repetition of the nearest pixel."""
    rows = np.arange(side) * image.shape[0] // side
    columns = np.arange(side) * image.shape[1] // side
    return np.ascontiguousarray(image[rows[:, np.newaxis], columns])


def best_time(step: Step, image: Array, repeats: int) -> float:
    """Seconds of the fastest of some calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        step(image)
        times.append(time.perf_counter() - start)
    return min(times)


def plot_times(path: Path, image: Array, sides: Sequence[int], repeats: int) -> None:
    """Time of ``develop`` against the number of pixels, NumPy and tenferro."""
    numpy_times, times = [], []
    for side in sides:
        picture = resized(image, side)
        numpy_times.append(best_time(STEPS["developed"], picture, repeats))
        times.append(best_time(COMPILED["developed"], picture, repeats))
        print(f"{side:5} x {side:<5} NumPy {1e3 * numpy_times[-1]:9.3f} ms   tenferro {1e3 * times[-1]:9.3f} ms")
    pixels = np.array(sides) ** 2
    figure, axes = plt.subplots(figsize=(7, 4.5), layout="constrained")
    axes.loglog(pixels, numpy_times, "o-", color="#a33", label=f"NumPy {np.__version__}")
    axes.loglog(pixels, times, "s-", color="#27a", label=f"tenferro {tn.__version__}, one program for all sizes")
    axes.set_xlabel("pixels")
    axes.set_ylabel("seconds")
    axes.set_title("tone mapping, unsharp mask and vignette of one image")
    axes.grid(True, which="major", alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the PNG files go")
    parser.add_argument("--sides", default="32,64,128,256,512,1024,2048", help="sides of the square images of the plot")
    parser.add_argument("--repeats", type=int, default=5, help="calls of which the fastest counts")
    parser.add_argument("--shrink", type=int, default=1, help="take every n-th pixel of the photographs")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)

    china, flower = (image[:: arguments.shrink, :: arguments.shrink] for image in load_sample_images().images)
    write_pictures(arguments.folder, {"china": china, "flower": flower})
    sides = [int(side) for side in arguments.sides.split(",")]
    plot_times(arguments.folder / "time.png", china, sides, arguments.repeats)
    print(COMPILED["developed"].cache_info())  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
