"""A convolutional network for handwritten digits, trained in one ``scan``: test accuracy above 98 %.

    python examples/convnet.py convnet

Two convolutions, a pooling, two dense layers. Each training step draws its rows and moves each image by up to one
pixel, so that the network sees new pictures in every epoch. Two pictures come out: the accuracy of every epoch, and the
filters of the first layer with what they make of a digit. Needs scikit-learn (whose data these are) and matplotlib.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first)
import numpy as np  # noqa: E402
from sklearn.datasets import load_digits  # noqa: E402

import tenferro as tn  # noqa: E402

Array: TypeAlias = np.ndarray[Any, Any]
FIRST, SECOND, DENSE = 16, 32, 64
BATCH, EPOCHS, RATE = 64, 25, 4e-3


def split(test: int = 360) -> tuple[Array, Array, Array, Array]:
    """Images (rows, 1, 8, 8) in [0, 1] and what they are: rows to learn from, then ``test`` rows to be judged by."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.data))
    x = (digits.images[order, np.newaxis] / 16).astype(np.float32)
    y = digits.target[order].astype(np.int32)
    return x[:-test], y[:-test], x[-test:], y[-test:]


def beginning(key: Any) -> dict[str, Any]:
    """Normal weights of variance 2 / inputs (He et al. 2015), zero biases."""
    shapes = {
        "first": (FIRST, 1, 3, 3), "second": (SECOND, FIRST, 3, 3),
        "dense": (SECOND * 16, DENSE), "last": (DENSE, 10),
    }  # fmt: skip
    weights: dict[str, Any] = {}
    for name, each in zip(shapes, tn.random.split(key, len(shapes)), strict=True):
        shape = shapes[name]
        inputs = shape[0] if len(shape) == 2 else shape[1] * 9
        weights[name] = tn.random.normal(each, shape, np.float32) * np.sqrt(np.float32(2 / inputs))
        weights[f"{name}_bias"] = np.zeros((shape[1],) if len(shape) == 2 else (shape[0], 1, 1), np.float32)
    return weights


def convolved(weights: dict[str, Any], name: str, x: Any) -> Any:
    """(rows, channels, h, w) → (rows, filters, h, w), negative values cut off."""
    maps = tn.lax.conv_general_dilated(x, weights[name], (1, 1), "SAME")
    return np.maximum(maps + weights[f"{name}_bias"], 0)


def scores(weights: dict[str, Any], x: Any) -> Any:
    """(rows, 1, 8, 8) → (rows, 10), larger where more likely."""
    x = convolved(weights, "second", convolved(weights, "first", x))
    x = tn.lax.reduce_window(x, -np.float32(np.inf), tn.lax.max, (1, 1, 2, 2), (1, 1, 2, 2), "VALID")
    x = np.maximum(x.reshape(len(x), -1) @ weights["dense"] + weights["dense_bias"], 0)
    return x @ weights["last"] + weights["last_bias"]


def loss(weights: dict[str, Any], x: Any, y: Any) -> Any:
    """The mean cross entropy."""
    return -(tn.nn.log_softmax(scores(weights, x)) * tn.nn.one_hot(y, 10, dtype=np.float32)).sum(axis=1).mean()


def moved(image: Any, shift: Any) -> Any:
    """One image (1, 8, 8), moved by ``shift`` in −1 … 1 each way; the border is white."""
    padded = np.pad(image, ((0, 0), (1, 1), (1, 1)))
    return tn.lax.dynamic_slice(padded, (0, 1 - shift[0], 1 - shift[1]), (1, 8, 8))


def adam(weights: Any, moments: Any, slopes: Any, step: Any, steps: int) -> tuple[Any, Any]:
    """One step of Kingma and Ba (2015), algorithm 1, its rate falling along half a cosine to 0 at the last step;
    ``moments`` are the means of slopes and of their squares."""
    mean = tn.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], slopes)
    square = tn.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], slopes)
    time = step.astype(np.float32) + 1
    rate = RATE * (1 + np.cos(np.pi * time / steps)) / 2 * np.sqrt(1 - 0.999**time) / (1 - 0.9**time)
    weights = tn.tree.map(lambda w, m, v: w - rate * m / (np.sqrt(v) + 1e-8), weights, mean, square)
    return weights, (mean, square)


@tn.jit
def train(key: Any, x: Any, y: Any, test_x: Any, test_y: Any) -> tuple[Any, Any, Any]:
    """Weights after all epochs, the mean loss of every epoch, and the share of test rows read rightly after it."""
    begin, turns = tn.random.split(key)
    weights = beginning(begin)
    zeros = tn.tree.map(np.zeros_like, weights)
    rows = len(y) // BATCH * BATCH

    def step(state: Any, batch: Any) -> Any:
        weights, moments, count = state
        chosen, shifts = batch
        images = tn.vmap(moved)(x[chosen], shifts)
        value, slopes = tn.value_and_grad(loss)(weights, images, y[chosen])
        weights, moments = adam(weights, moments, slopes, count, EPOCHS * (rows // BATCH))
        return (weights, moments, count + 1), value

    def epoch(state: Any, key: Any) -> Any:
        order_key, shift_key = tn.random.split(key)
        order = tn.random.permutation(order_key, len(y))[:rows].reshape(-1, BATCH)
        shifts = tn.random.randint(shift_key, (rows // BATCH, BATCH, 2), -1, 2)
        state, losses = tn.lax.scan(step, state, (order, shifts))
        return state, (losses.mean(), (scores(state[0], test_x).argmax(axis=1) == test_y).mean())

    state = (weights, (zeros, zeros), np.int32(0))
    (weights, _, _), (losses, right) = tn.lax.scan(epoch, state, tn.random.split(turns, EPOCHS))
    return weights, losses, right


@tn.jit
def first_maps(weights: dict[str, Any], image: Any) -> Any:
    return convolved(weights, "first", image[np.newaxis])[0]


def plot_accuracy(path: Path, losses: Array, right: Array) -> None:
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    epochs = np.arange(1, len(losses) + 1)
    axes.plot(epochs, 100 * right, "o-", color="#136")
    axes.set(xlabel="epochs", ylabel="test rows read rightly, %", title="a convolutional network on 8 × 8 digits")
    axes.grid(True, alpha=0.3)
    other = axes.twinx()
    other.semilogy(epochs, losses, "s--", color="#c63")
    other.set_ylabel("training loss", color="#c63")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_filters(path: Path, filters: Array, image: Array, maps: Array) -> None:
    """The filters of the first layer, and below each what it makes of the image."""
    figure, panels = plt.subplots(2, FIRST + 1, figsize=(13, 2.2), layout="constrained")
    for panel in panels.flat:
        panel.axis("off")
    panels[1, 0].imshow(image[0], cmap="gray_r")
    for number in range(FIRST):
        panels[0, number + 1].imshow(filters[number, 0], cmap="RdBu", vmin=-1, vmax=1)
        panels[1, number + 1].imshow(maps[number], cmap="gray_r")
    figure.suptitle("filters of the first layer, and a digit through them")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the PNG files go")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    x, y, test_x, test_y = split()
    start = time.perf_counter()
    weights, losses, right = train(tn.random.key(0), x, y, test_x, test_y)
    print(f"{EPOCHS} epochs in {time.perf_counter() - start:.2f} s, compile included")
    losses, right = np.asarray(losses), np.asarray(right)
    print(f"loss {losses[0]:.3f} in the first epoch, {losses[-1]:.4f} in the last")
    print(f"test accuracy {right[-1]:.2%}")
    plot_accuracy(folder / "accuracy.png", losses, right)
    plot_filters(
        folder / "filters.png", np.asarray(weights["first"]), test_x[0], np.asarray(first_maps(weights, test_x[0]))
    )
    assert right[-1] >= 0.98


if __name__ == "__main__":
    main()
