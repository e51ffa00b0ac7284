"""Numerical methods: the Thomas algorithm, a Runge–Kutta step, power iteration, Jacobi iteration, Horner's scheme."""

import numpy as np


def thomas(lower, diagonal, upper, rhs):
    n = len(rhs)
    c = np.zeros(n)
    d = np.zeros(n)
    x = np.zeros(n)
    c[0] = upper[0] / diagonal[0]
    d[0] = rhs[0] / diagonal[0]
    for i in range(1, n):
        m = diagonal[i] - lower[i] * c[i - 1]
        c[i] = upper[i] / m
        d[i] = (rhs[i] - lower[i] * d[i - 1]) / m
    x[n - 1] = d[n - 1]
    for i in range(n - 2, -1, -1):
        x[i] = d[i] - c[i] * x[i + 1]
    return x


def lorenz(state):
    x, y, z = state[:, 0], state[:, 1], state[:, 2]
    return np.stack([10.0 * (y - x), x * (28.0 - z) - y, x * y - 8.0 / 3.0 * z], axis=-1)


def runge_kutta(state, dt):
    k1 = lorenz(state)
    k2 = lorenz(state + 0.5 * dt * k1)
    k3 = lorenz(state + 0.5 * dt * k2)
    k4 = lorenz(state + dt * k3)
    return state + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


def power_iteration(a):
    v = np.ones(a.shape[0]) / np.sqrt(a.shape[0])
    for _ in range(12):
        v = a @ v
        v = v / np.sqrt((v * v).sum())
    return v, v @ a @ v


def jacobi(a, b):
    n = a.shape[0]
    on_diagonal = np.arange(n)[:, None] == np.arange(n)[None, :]
    d = (a * on_diagonal).sum(axis=1)
    off = np.where(on_diagonal, 0.0, a)
    x = np.zeros_like(b)
    for _ in range(15):
        x = (b - off @ x) / d
    return x


def horner(x):
    coefficients = [1.0, -0.5, 1 / 24, -1 / 720]
    total = np.zeros_like(x)
    for c in reversed(coefficients):
        total *= x * x
        total += c
    return total


def n_body(position, velocity, mass):
    delta = position[None, :, :] - position[:, None, :]
    r2 = (delta**2).sum(axis=2) + 0.01
    pull = (mass[None, :, None] * delta / (r2 * np.sqrt(r2))[:, :, None]).sum(axis=1)
    velocity = velocity + 0.01 * pull
    return position + 0.01 * velocity, velocity
