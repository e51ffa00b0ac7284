"""The Lorenz system by ``scan``, and how its path depends on where it began and on its parameters.

    python examples/lorenz.py lorenz

Sensitivities come twice: forward by ``tn.jvp``, along the path, and backward by ``tn.grad``, the adjoint of the whole
integration; both are compared with differences of two paths. A picture shows the path and the growth of a small
disturbance. Needs matplotlib.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any, TypeAlias

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402 (the backend comes first)
import numpy as np  # noqa: E402

import tenferro as tn  # noqa: E402

Array: TypeAlias = np.ndarray[Any, Any]
State: TypeAlias = tuple[Any, Any, Any]
STEP, TURNS, DRAWN = 0.01, 40_000, 4_000
BEGINNING, PARAMETERS = (1.0, 1.0, 1.0), (10.0, 28.0, 8 / 3)


def velocity(state: State, parameters: State) -> State:
    """Equations 25 to 27 of Lorenz (1963)."""
    x, y, z = state
    sigma, rho, beta = parameters
    return sigma * (y - x), x * (rho - z) - y, x * y - beta * z


def runge_kutta(state: State, parameters: State, step: float) -> State:
    """One step of the classical method of order four."""

    def along(slope: State, part: float) -> State:
        return tuple(s + part * k for s, k in zip(state, slope, strict=True))

    first = velocity(state, parameters)
    second = velocity(along(first, step / 2), parameters)
    third = velocity(along(second, step / 2), parameters)
    fourth = velocity(along(third, step), parameters)
    slopes = zip(state, first, second, third, fourth, strict=True)
    return tuple(s + step / 6 * (a + 2 * b + 2 * c + d) for s, a, b, c, d in slopes)


def path(state: State, parameters: State, turns: int = TURNS) -> tuple[State, State]:
    """The last state, and x, y and z after every step."""

    def turn(state: State, _: None) -> tuple[State, State]:
        state = runge_kutta(state, parameters, STEP)
        return state, state

    return tn.lax.scan(turn, state, None, length=turns)


@tn.jit
def disturbed(state: State, parameters: State, disturbance: State) -> tuple[Any, Any]:
    """The path, and the distance that a disturbance of the beginning grows to along it, to first order."""
    zeros = (0.0, 0.0, 0.0)
    (_, along), (_, change) = tn.jvp(path, (state, parameters), (disturbance, zeros))
    return np.stack(along), np.sqrt(sum(c * c for c in change))


SHORT = 500
"""Steps after which sensitivities are still smooth enough to be compared with differences."""


def height(state: State, parameters: State) -> Any:
    """The mean of z over a short path."""
    return path(state, parameters, SHORT)[1][2].mean()


adjoint = tn.jit(tn.grad(height, argnums=(0, 1)))
forward = tn.jit(lambda s, p, ds, dp: tn.jvp(height, (s, p), (ds, dp))[1])
value = tn.jit(height)


def compare() -> float:
    """Print the six sensitivities three ways; the largest relative difference between forward and adjoint."""
    backward = [float(slope) for group in adjoint(BEGINNING, PARAMETERS) for slope in group]
    worst = 0.0
    print("mean height of 500 steps      forward         adjoint         difference of two paths")
    for number, name in enumerate(("x", "y", "z", "sigma", "rho", "beta")):
        unit = np.zeros(6)
        unit[number] = 1
        ds, dp = tuple(unit[:3]), tuple(unit[3:])
        slope = float(forward(BEGINNING, PARAMETERS, ds, dp))
        ends = [float(value(tuple(BEGINNING + h * unit[:3]), tuple(PARAMETERS + h * unit[3:]))) for h in (1e-6, -1e-6)]
        measured = (ends[0] - ends[1]) / 2e-6
        print(f"  by {name:22} {slope:+14.9f}  {backward[number]:+14.9f}  {measured:+14.6f}")
        worst = max(worst, abs(slope - backward[number]) / abs(slope))
        assert abs(slope - measured) < 1e-4 * abs(slope) + 1e-6
    return worst


def plot(file: Path, along: Array, growth: Array) -> None:
    figure = plt.figure(figsize=(10, 4.2), layout="constrained")
    left = figure.add_subplot(1, 2, 1, projection="3d")
    left.plot(*along[:, :DRAWN], linewidth=0.5, color="#136")
    left.set(xlabel="x", ylabel="y", zlabel="z", title=f"the path of {DRAWN} steps")
    right = figure.add_subplot(1, 2, 2)
    time = STEP * np.arange(1, len(growth) + 1)
    right.semilogy(time, growth, color="#c63", label="disturbance of the beginning by (1, 0, 0), first order")
    right.semilogy(time, growth[0] * np.exp(0.9056 * time), "--", color="gray", label="exp(0.9056 t)")
    right.set_yticks([10.0**k for k in range(0, 161, 40)])
    right.set(xlabel="time", ylabel="distance", title="growth of a disturbance")
    right.grid(True, alpha=0.3)
    right.legend(fontsize=8)
    figure.savefig(file, dpi=120)
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="where the PNG file goes")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    worst = compare()
    print(f"forward and adjoint differ by {worst:.0e} at most")
    along, growth = disturbed(BEGINNING, PARAMETERS, (1.0, 0.0, 0.0))
    rate = np.polyfit(STEP * np.arange(TURNS), np.log(growth), 1)[0]
    print(f"a disturbance grows by exp({rate:.2f} t); the largest Lyapunov exponent is 0.9056 (Sprott 2003)")
    plot(folder / "lorenz.png", np.asarray(along), np.asarray(growth))
    assert worst < 1e-9
    assert abs(rate - 0.9056) < 0.05


if __name__ == "__main__":
    main()
