"""k-means: one step of Lloyd's algorithm; distances between all pairs of points."""

import numpy as np


def lloyd_step(points, centres):
    distances = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=-1)
    labels = distances.argmin(axis=1)
    member = labels[:, None] == np.arange(len(centres))
    counts = member.sum(axis=0)
    sums = member.astype(points.dtype).T @ points
    moved = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], centres)
    return labels, moved


def pairwise(x):
    squares = np.sum(x**2, axis=1)
    d2 = squares[:, np.newaxis] + squares[np.newaxis, :] - 2 * np.dot(x, x.T)
    return np.sqrt(np.maximum(d2, 0))


def nearest(x, y):
    d = np.abs(x[:, None, :] - y[None, :, :]).max(axis=2)
    return np.argmin(d, axis=1), d.min(axis=1)
