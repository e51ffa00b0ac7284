"""Logistic regression on the breast-cancer data by Newton's method: gradient and Hessian are of the loss as written.

    python examples/logistic.py

The loss is three lines of NumPy; ``tn.grad`` and ``tn.hessian`` give what Newton needs, ``tn.lax.while_loop`` runs
until the step is small, and the coefficients are scikit-learn's to eight digits. Needs scikit-learn.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.linear_model import LogisticRegression

import tenferro as tn

PENALTY = 1.0


def loss(weights: Any, x: Any, sign: Any) -> Any:
    """The negative log likelihood of all rows and half the squared norm of the slopes, not of the intercept.

    weights: the intercept, then a slope for each column of x (rows, columns). sign: 1 or −1 for each row."""
    margin = sign * (x @ weights[1:] + weights[0])
    return np.logaddexp(0.0, -margin).sum() + PENALTY / 2 * (weights[1:] ** 2).sum()


@tn.jit
def newton(x: Any, sign: Any) -> tuple[Any, Any, Any]:
    """The weights of the smallest loss, the number of steps, and the largest slope that is left."""

    def step(state: Any) -> Any:
        weights, _, count = state
        slope = tn.grad(loss)(weights, x, sign)
        change = np.linalg.solve(tn.hessian(loss)(weights, x, sign), slope)
        return weights - change, np.abs(change).max(), count + 1

    def on(state: Any) -> Any:
        return (state[1] > 1e-10) & (state[2] < 50)

    weights, _, count = tn.lax.while_loop(on, step, (np.zeros(x.shape[1] + 1), np.inf, 0))
    return weights, count, np.abs(tn.grad(loss)(weights, x, sign)).max()


def main() -> None:
    data = load_breast_cancer()
    x = (data.data - data.data.mean(axis=0)) / data.data.std(axis=0)
    weights, count, slope = newton(x, 2.0 * data.target - 1)
    weights = np.asarray(weights)
    print(f"{count} steps of Newton's method, largest slope left {float(slope):.0e}")

    reference = LogisticRegression(C=1 / PENALTY, tol=1e-12, solver="newton-cholesky", max_iter=1000).fit(
        x, data.target
    )
    expected = np.concatenate([reference.intercept_, reference.coef_[0]])
    difference = np.abs(weights - expected).max()
    print(f"largest difference from scikit-learn's coefficients {difference:.0e}")
    right = np.mean((x @ weights[1:] + weights[0] > 0) == data.target)
    print(f"{right:.2%} of the rows are classified rightly")
    for column in np.argsort(-np.abs(weights[1:]))[:5]:
        print(f"  {data.feature_names[column]:24} {weights[1 + column]:+.4f}")
    assert difference < 1e-8


if __name__ == "__main__":
    main()
