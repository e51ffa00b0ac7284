"""The heat equation, explicit Euler in time, five-point stencil in space, fixed borders."""

import numpy as np


def diffuse(u, dt):
    u = u.copy()
    for _ in range(10):
        u[1:-1, 1:-1] += dt * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    return u


def wave(u, c):
    previous, current = u, u.copy()
    following = np.zeros_like(u)
    for _ in range(6):
        following[1:-1] = 2 * current[1:-1] - previous[1:-1] + c**2 * (current[2:] - 2 * current[1:-1] + current[:-2])
        following[0] = 0
        following[-1] = 0
        previous, current = current, following.copy()
    return current
