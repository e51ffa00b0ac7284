"""Escape times of the Mandelbrot set, in real arithmetic: once with np.where, once with boolean masks."""

import numpy as np


def escape_where(cx, cy):
    x = np.zeros_like(cx)
    y = np.zeros_like(cy)
    count = np.zeros(cx.shape, dtype=np.int32)
    for _ in range(30):
        inside = x * x + y * y <= 4.0
        count += inside
        x, y = np.where(inside, x * x - y * y + cx, x), np.where(inside, 2 * x * y + cy, y)
    return count


def escape_masked(cx, cy):
    x = np.zeros_like(cx)
    y = np.zeros_like(cy)
    count = np.zeros(cx.shape, dtype=int)
    for k in range(8):
        inside = x * x + y * y <= 4.0
        xi, yi = x[inside], y[inside]
        x[inside] = xi * xi - yi * yi + cx[inside]
        y[inside] = 2 * xi * yi + cy[inside]
        count[inside] = k
    return count
