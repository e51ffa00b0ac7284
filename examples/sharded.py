"""Softmax regression on handwritten digits, trained on two CPU engines, each with its half of the data.

The rows are cut in two; every engine computes the gradient of its part, ``tn.psum`` adds the parts, and both take the
same step. The whole is checked against NumPy. Needs scikit-learn (the extra ``test``).

python examples/sharded.py
"""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.datasets import load_digits

import tenferro as tn

Array = np.ndarray[Any, Any]
STEPS, RATE = 100, 0.5


def sums(w: Array, b: Array, x: Array, y: Array, weight: Array) -> tuple[Any, ...]:
    """What the rows of ``x`` contribute: the gradients by hand, the loss, the number of right answers. Rows of weight 0
    contribute nothing."""
    scores = x @ w + b
    scores = scores - scores.max(axis=1, keepdims=True)
    e = np.exp(scores)
    total = e.sum(axis=1, keepdims=True)
    error = (e / total - y) * weight[:, None]
    loss = ((np.log(total[:, 0]) - (scores * y).sum(axis=1)) * weight).sum()
    right = ((scores.argmax(axis=1) == y.argmax(axis=1)) * weight).sum()
    return x.T @ error, error.sum(axis=0), loss, right, weight.sum()


def stepped(w: Array, b: Array, total: tuple[Any, ...]) -> tuple[Any, ...]:
    dw, db, loss, right, count = total
    return w - RATE * dw / count, b - RATE * db / count, loss / count, right / count


def step_on_shards(w: Array, b: Array, x: Array, y: Array, weight: Array) -> tuple[Any, ...]:
    """One step; each engine runs this on its rows."""
    return stepped(w, b, tn.psum(sums(w, b, x, y, weight), "rows"))


def moments_on_shards(x: Array, weight: Array) -> tuple[Any, ...]:
    """Mean and covariance of all rows, from each engine's."""
    count = tn.psum(weight.sum(), "rows")
    mean = tn.psum((x * weight[:, None]).sum(axis=0), "rows") / count
    centred = (x - mean) * weight[:, None]
    return mean, tn.psum(centred.T @ centred, "rows") / (count - 1)


def step_on_all(w: Array, b: Array, x: Array, y: Array, weight: Array) -> tuple[Any, ...]:
    """The same step on whole arrays."""
    return stepped(w, b, sums(w, b, x, y, weight))


def padded(x: Array, multiple: int) -> Array:
    """Rows of zeros behind ``x``, so that every engine gets as many rows."""
    return np.concatenate([x, np.zeros((-len(x) % multiple, *x.shape[1:]))])


def trained(step: Any, data: tuple[Array, ...]) -> tuple[Any, ...]:
    state: tuple[Any, ...] = (np.zeros((64, 10)), np.zeros(10))
    for _ in range(STEPS):
        w, b, loss, right = step(*state, *data)
        state = w, b
    return w, b, loss, right


def main() -> None:
    mesh = tn.Mesh(tn.cpu_engines(2), "rows")
    rows, same = tn.P("rows"), tn.P()
    images, labels = load_digits(return_X_y=True)
    images = images / 16.0
    x, y, weight = (padded(a, mesh.size) for a in (images, np.eye(10)[labels], np.ones(len(images))))
    print(f"{len(images)} digits of 64 pixels, {len(x)} rows with padding, on {mesh}")

    moments = tn.shard_map(moments_on_shards, mesh, (rows, rows), same)
    mean, covariance = moments(x, weight)
    far = max(np.abs(mean - images.mean(axis=0)).max(), np.abs(covariance - np.cov(images.T)).max())
    print(f"mean and covariance: at most {far:.0e} from NumPy's")

    step = tn.shard_map(step_on_shards, mesh, (same, same, rows, rows, rows), same)
    w, b, loss, right = trained(step, (x, y, weight))
    ones = np.ones(len(images))
    expected = trained(step_on_all, (images, np.eye(10)[labels], ones))
    far = max(np.abs(a - e).max() for a, e in zip((w, b, loss), expected, strict=False))
    print(f"after {STEPS} steps: loss {loss:.4f}, {100 * right:.1f} % right; weights at most {far:.0e} from NumPy's")
    assert far < 1e-9

    print(step.lower(w, b, x, y, weight).as_text("schedule"))


if __name__ == "__main__":
    main()
