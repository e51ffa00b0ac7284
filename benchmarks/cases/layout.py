"""Slices and transposes: what a fused kernel reads through index maps."""

from __future__ import annotations

from typing import Any

from benchmarks.case import Array, ArrayCase, normal, whole


def heat(u: Array) -> Any:
    out = u.copy()
    out[1:-1, 1:-1] = u[1:-1, 1:-1] + 0.1 * (
        u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4.0 * u[1:-1, 1:-1]
    )
    return out


def x_plus_xt(x: Array) -> Any:
    return x + x.T


CASES = (
    ArrayCase("heat", "five-point stencil by slices, 2048^2", heat, normal(1, (2048, 2048)), whole(2)),
    ArrayCase("x_plus_xT", "x + x.T, 4096^2", x_plus_xt, normal(1, (4096, 4096)), whole(2)),
)
