"""Gaussian process regression of the diabetes data, its kernel fitted by the gradient of the marginal likelihood.

    python examples/gp.py gp

The likelihood is as in Rasmussen and Williams (2006), equations 2.30 and 5.8: a Cholesky factor, a solution, a sum of
logarithms; its gradient comes from ``tn.value_and_grad`` through all of them. Ascent with Adam is one ``scan``.
A picture shows the likelihood and predictions of rows that were not learnt. Needs scikit-learn and matplotlib.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first)
import numpy as np  # noqa: E402
from sklearn.datasets import load_diabetes  # noqa: E402

import tenferro as tn  # noqa: E402

Array: TypeAlias = np.ndarray[Any, Any]
STEPS, RATE, ROWS = 100, 0.05, 200


def covariance(logs: dict[str, Any], a: Any, b: Any) -> Any:
    """The squared exponential of distances between rows, each column with a length of its own."""
    scaled_a, scaled_b = a * np.exp(-logs["lengths"]), b * np.exp(-logs["lengths"])
    squares = (scaled_a**2).sum(axis=1)[:, np.newaxis] + (scaled_b**2).sum(axis=1) - 2 * scaled_a @ scaled_b.T
    return np.exp(2 * logs["height"]) * np.exp(-np.maximum(squares, 0) / 2)


def factor(logs: dict[str, Any], x: Any) -> Any:
    """The Cholesky factor of the covariance of what is measured at x, noise included."""
    noise = np.exp(2 * logs["noise"]) + 1e-8
    return np.linalg.cholesky(covariance(logs, x, x) + noise * np.eye(len(x)))


def log_likelihood(logs: dict[str, Any], x: Any, y: Any) -> Any:
    """The logarithm of the marginal likelihood of y (rows,) at x (rows, columns)."""
    lower = factor(logs, x)
    white = tn.linalg.triangular_solve(lower, y, lower=True)
    return -(white**2).sum() / 2 - np.log(np.diagonal(lower)).sum() - len(y) / 2 * np.log(2 * np.pi)


@tn.jit
def fit(logs: dict[str, Any], x: Any, y: Any) -> tuple[Any, Any]:
    """Logarithms of the kernel's numbers after ``STEPS`` steps of Adam (Kingma and Ba 2015), and the likelihoods."""

    def step(state: Any, number: Any) -> Any:
        logs, mean, square = state
        value, slopes = tn.value_and_grad(log_likelihood)(logs, x, y)
        mean = tn.tree.map(lambda m, g: 0.9 * m + 0.1 * g, mean, slopes)
        square = tn.tree.map(lambda v, g: 0.99 * v + 0.01 * g * g, square, slopes)
        a, b = 1 - 0.9 ** (number + 1), 1 - 0.99 ** (number + 1)
        logs = tn.tree.map(lambda p, m, v: p + RATE * (m / a) / (np.sqrt(v / b) + 1e-8), logs, mean, square)
        return (logs, mean, square), value

    zeros = tn.tree.map(np.zeros_like, logs)
    (logs, _, _), values = tn.lax.scan(step, (logs, zeros, zeros), np.arange(STEPS))
    return logs, values


@tn.jit
def predict(logs: dict[str, Any], x: Any, y: Any, new: Any) -> tuple[Any, Any]:
    """Mean and standard deviation of what would be measured at ``new``: equations 2.25 and 2.26."""
    lower = factor(logs, x)
    across = tn.linalg.triangular_solve(lower, covariance(logs, x, new), lower=True)
    mean = across.T @ tn.linalg.triangular_solve(lower, y, lower=True)
    variance = np.exp(2 * logs["height"]) + np.exp(2 * logs["noise"]) - (across**2).sum(axis=0)
    return mean, np.sqrt(variance)


def check_with_scikit(logs: dict[str, Array], x: Array, y: Array) -> float:
    """The largest relative difference from scikit-learn's likelihood and its gradient at the same numbers."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    kernel = ConstantKernel(np.exp(2 * logs["height"])) * RBF(np.exp(logs["lengths"]))
    kernel += WhiteKernel(np.exp(2 * logs["noise"]))
    other = GaussianProcessRegressor(kernel, alpha=1e-8, optimizer=None).fit(x, y)
    theirs, slopes = other.log_marginal_likelihood(other.kernel_.theta, eval_gradient=True)
    ours, slope = tn.jit(tn.value_and_grad(log_likelihood))(logs, x, y)
    # scikit-learn differentiates by the logarithm of the variance, ours is that of its root: half as steep
    mine = np.concatenate([[slope["height"] / 2], slope["lengths"], [slope["noise"] / 2]])
    scale = np.abs(slopes).max()
    return float(max(abs(float(ours) - theirs) / abs(theirs), np.abs(mine - slopes).max() / scale))


def plot(file: Path, values: Array, truth: Array, mean: Array, deviation: Array) -> None:
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4), layout="constrained")
    left.plot(values, color="#136")
    left.set(xlabel="steps", ylabel="log marginal likelihood", title="fitting the kernel")
    left.grid(True, alpha=0.3)
    right.errorbar(truth, mean, deviation, fmt="o", markersize=3, linewidth=0.5, color="#c63")
    ends = [truth.min(), truth.max()]
    right.plot(ends, ends, "--", color="gray")
    right.set(xlabel="measured", ylabel="predicted, ± one deviation", title=f"{len(truth)} rows that were not learnt")
    right.grid(True, alpha=0.3)
    figure.savefig(file, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the PNG file goes")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)

    data, target = load_diabetes(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(target))
    x = (data / data.std(axis=0))[order]
    y = ((target - target.mean()) / target.std())[order]
    start = {"height": np.float64(0), "lengths": np.full(x.shape[1], np.log(3.0)), "noise": np.log(0.5)}
    logs, values = fit(start, x[:ROWS], y[:ROWS])
    logs, values = tn.tree.map(np.asarray, logs), np.asarray(values)
    print(f"log marginal likelihood {values[0]:.2f} at first, {values[-1]:.2f} after {STEPS} steps")
    difference = check_with_scikit(logs, x[:ROWS], y[:ROWS])
    print(f"largest relative difference from scikit-learn's likelihood and gradient {difference:.0e}")
    mean, deviation = (np.asarray(v) for v in predict(logs, x[:ROWS], y[:ROWS], x[ROWS:]))
    error = np.sqrt(np.mean((mean - y[ROWS:]) ** 2))
    inside = np.mean(np.abs(mean - y[ROWS:]) < 2 * deviation)
    print(f"{len(mean)} new rows: error {error:.3f} of the target's deviation, {inside:.1%} within two deviations")
    plot(folder / "gp.png", values, y[ROWS:], mean, deviation)
    assert values[-1] > values[0]
    assert difference < 1e-6
    assert error < 0.8


if __name__ == "__main__":
    main()
