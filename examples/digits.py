"""A network that reads handwritten digits, trained from scratch: all epochs are one ``scan`` inside one ``jit``.

    python examples/digits.py digits

Two layers, Adam on minibatches in a random order, the test rows never seen. Adam is a dozen lines of NumPy over a
pytree; nothing here is tenferro's but ``jit``, ``value_and_grad``, ``scan`` and ``tn.random``. Two pictures come out:
the loss, and the digits that are read wrongly. Needs scikit-learn (whose data these are) and matplotlib.
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
HIDDEN, BATCH, EPOCHS, RATE, DECAY = 256, 64, 60, 3e-3, 1e-4


def split(test: int = 360) -> tuple[Array, Array, Array, Array]:
    """Digits of 8 × 8 pixels in [0, 1] and what they are: rows to learn from, then ``test`` rows to be judged by."""
    digits = load_digits()
    order = np.random.default_rng(0).permutation(len(digits.data))
    x, y = (digits.data[order] / 16).astype(np.float32), digits.target[order].astype(np.int32)
    return x[:-test], y[:-test], x[-test:], y[-test:]


def beginning(key: Any) -> dict[str, Any]:
    """Weights of He et al. (2015): normal, with variance 2 / inputs; biases of zero."""
    first, second = tn.random.split(key)
    return {
        "w1": tn.random.normal(first, (64, HIDDEN), np.float32) * np.sqrt(np.float32(2 / 64)),
        "b1": np.zeros(HIDDEN, np.float32),
        "w2": tn.random.normal(second, (HIDDEN, 10), np.float32) * np.sqrt(np.float32(2 / HIDDEN)),
        "b2": np.zeros(10, np.float32),
    }


def scores(weights: dict[str, Any], x: Any) -> Any:
    """(rows, 64) → (rows, 10), larger where more likely."""
    return np.maximum(x @ weights["w1"] + weights["b1"], 0) @ weights["w2"] + weights["b2"]


def loss(weights: dict[str, Any], x: Any, y: Any) -> Any:
    """The mean cross entropy, and a little of the weights' squares."""
    likelihood = tn.nn.log_softmax(scores(weights, x)) * tn.nn.one_hot(y, 10, dtype=np.float32)
    size = (weights["w1"] ** 2).sum() + (weights["w2"] ** 2).sum()
    return -likelihood.sum(axis=1).mean() + DECAY * size


def adam(weights: Any, moments: Any, slopes: Any, step: Any) -> tuple[Any, Any]:
    """One step of Kingma and Ba (2015), algorithm 1; ``moments`` are the means of slopes and of their squares."""
    mean = tn.tree.map(lambda m, g: 0.9 * m + 0.1 * g, moments[0], slopes)
    square = tn.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, moments[1], slopes)
    time = step.astype(np.float32) + 1
    rate = RATE * np.sqrt(1 - 0.999**time) / (1 - 0.9**time)
    weights = tn.tree.map(lambda w, m, v: w - rate * m / (np.sqrt(v) + 1e-8), weights, mean, square)
    return weights, (mean, square)


@tn.jit
def train(key: Any, x: Any, y: Any) -> tuple[Any, Any]:
    """Weights after all epochs, and the loss of every step."""
    begin, shuffle = tn.random.split(key)
    weights = beginning(begin)
    zeros = tn.tree.map(np.zeros_like, weights)
    rows = len(y) // BATCH * BATCH

    def step(state: Any, batch: Any) -> Any:
        weights, moments, count = state
        value, slopes = tn.value_and_grad(loss)(weights, x[batch], y[batch])
        weights, moments = adam(weights, moments, slopes, count)
        return (weights, moments, count + 1), value

    def epoch(state: Any, key: Any) -> Any:
        order = tn.random.permutation(key, len(y))[:rows]
        return tn.lax.scan(step, state, order.reshape(-1, BATCH))

    state = (weights, (zeros, zeros), np.int32(0))
    (weights, _, _), losses = tn.lax.scan(epoch, state, tn.random.split(shuffle, EPOCHS))
    return weights, losses.reshape(-1)


@tn.jit
def read(weights: Any, x: Any) -> Any:
    return scores(weights, x).argmax(axis=1)


def plot_loss(path: Path, losses: Array) -> None:
    figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
    steps = np.arange(len(losses)) * BATCH / 1437
    axes.semilogy(steps, losses, color="#9bd", linewidth=0.8, label="minibatch")
    smooth = np.convolve(losses, np.ones(22) / 22, mode="valid")
    axes.semilogy(steps[21:], smooth, color="#136", label="mean of an epoch")
    axes.set(xlabel="epochs", ylabel="loss", title="training of the digits' network")
    axes.grid(True, alpha=0.3)
    axes.legend()
    figure.savefig(path, dpi=120)
    plt.close(figure)


def plot_wrong(path: Path, x: Array, y: Array, found: Array) -> None:
    wrong = np.flatnonzero(found != y)[:12]
    figure, panels = plt.subplots(1, max(len(wrong), 3), figsize=(1.5 * max(len(wrong), 3), 2.2), layout="constrained")
    for panel in panels:
        panel.axis("off")
    for panel, row in zip(panels, wrong, strict=False):
        panel.imshow(x[row].reshape(8, 8), cmap="gray_r")
        panel.set_title(f"{y[row]}, read {found[row]}", fontsize=9)
    figure.suptitle(f"{np.sum(found != y)} of {len(y)} test digits are read wrongly")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the PNG files go")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    x, y, test_x, test_y = split()
    start = time.perf_counter()
    weights, losses = train(tn.random.key(0), x, y)
    print(f"{len(losses)} steps in {time.perf_counter() - start:.2f} s, compile included")
    losses, found = np.asarray(losses), np.asarray(read(weights, test_x))
    print(f"loss {losses[:22].mean():.3f} in the first epoch, {losses[-22:].mean():.4f} in the last")
    print(f"test accuracy {np.mean(found == test_y):.2%}")
    plot_loss(folder / "loss.png", losses)
    plot_wrong(folder / "wrong.png", test_x, test_y, found)
    assert np.mean(found == test_y) >= 0.97


if __name__ == "__main__":
    main()
