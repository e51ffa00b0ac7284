"""One-dimensional signals: moving average by cumulative sums, differences, smoothing, clipping of outliers."""

import numpy as np


def moving_average(x):
    window = 5
    total = np.cumsum(x)
    total[window:] = total[window:] - total[:-window]
    return total[window - 1 :] / window


def gradient(f, dx):
    g = np.empty_like(f)
    g[1:-1] = (f[2:] - f[:-2]) / (2 * dx)
    g[0] = (f[1] - f[0]) / dx
    g[-1] = (f[-1] - f[-2]) / dx
    return g


def exponential_taps(x):
    out = np.zeros(len(x) - 3)
    for k, weight in enumerate([0.5, 0.25, 0.125, 0.0625]):
        out += weight * x[3 - k : len(x) - k]
    return out


def without_outliers(x):
    centre, spread = x.mean(), x.std()
    kept = x[np.abs(x - centre) < 1.5 * spread]
    return kept.mean(), kept.sum() / x.size


def interleave(a, b):
    out = np.empty(a.size + b.size, dtype=a.dtype)
    out[0::2] = a
    out[1::2] = b[::-1]
    return out
