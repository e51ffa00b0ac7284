"""What calls cost: ``python -m benchmarks.calls`` prints one line for each figure and its gate.

Calls of jitted functions and methods on small arrays, nested containers, tn.Arrays and arrays of many sizes, eager
operations, selections by masks, threads, and a program of many small operations; beside ``np.add`` on eight elements
and, where it is installed, JAX. Times are medians of interleaved rounds.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np

import tenferro as tn
from benchmarks.runtime import interleaved

CALLS, CALL_ROUNDS = 1000, 141
"""A sample takes less than a time slice of a busy machine, so that the median is one without interruption."""
SIZES = 500
SELECTIONS = 50
LAYERS = 50
STEPS = 67
THREADS = 8
THREAD_CALLS = 50_000

Call = Callable[[], Any]


def jax_or_none() -> ModuleType | None:
    """JAX with 64-bit numbers, where it is installed."""
    try:
        import jax
    except ImportError:
        return None
    jax.config.update("jax_enable_x64", True)
    found: ModuleType = jax
    return found


def add(a: Any, b: Any) -> Any:
    return a + b


def layers(p: Any, s: Any) -> Any:
    total = s
    for layer in p:
        total = total + layer["w"] * layer["b"][0]
    return total


def small_steps(x: Any, w: Any, xp: Any = np) -> Any:
    """Products of 8 x 8, sums of rows and pointwise steps, in turn: none of them fuses with the next."""
    for _ in range(STEPS):
        x = x @ w
        x = xp.tanh(x - x.sum(axis=1, keepdims=True) * 0.01)
    return x


class Model:
    """A jitted method that reads a number and two arrays of its object."""

    def __init__(self) -> None:
        self.w, self.b, self.rate = np.ones(8), np.ones(8), 0.5

    @tn.jit
    def step(self, x: Any) -> Any:
        return (x * self.w + self.b) * self.rate


def show(what: str, seconds: float, base: float, gate: str) -> None:
    """One figure as a multiple of ``np.add``."""
    print(f"{what}: {seconds * 1e6:.2f} µs, {seconds / base:.2f} x np.add ({gate})")


def small_calls(jax: ModuleType | None) -> None:
    """Jitted calls and eager operations on arrays of eight elements."""
    x, y = np.arange(8.0), np.arange(8.0)
    a, b = tn.asarray(x), tn.asarray(y)
    jitted, wrapped = tn.jit(add), tn.jit(add)
    scale, offset = 3.0, np.arange(8.0)
    captured, model, views = tn.jit(lambda v: v * scale + offset), Model(), tn.jit(lambda v: (v[1:], v + 1))
    calls: list[Call] = [
        lambda: np.add(x, y), lambda: jitted(x, y), lambda: wrapped(a, b), lambda: a + b, lambda: captured(x),
        lambda: model.step(x), lambda: views(x),
    ]  # fmt: skip
    if jax is not None:
        theirs, jx, jy = jax.jit(add), jax.numpy.asarray(x), jax.numpy.asarray(y)
        calls.append(lambda: theirs(jx, jy).block_until_ready())
    for call in calls:
        for _ in range(100):
            call()
    base, ours, arrays, eager, captures, method, view, *rest = interleaved(calls, CALLS, CALL_ROUNDS)
    print(f"np.add on 8 elements: {base * 1e6:.2f} µs")
    show("a jitted call on two arrays", ours, base, "gate 0.6")
    show("the same on tn.Arrays", arrays, base, "gate 1.0")
    show("an eager operation on tn.Arrays", eager, base, "gate 1.5")
    show("a call that captures a number and an array", captures, base, "no gate")
    show("a method that reads a number and two arrays of its object", method, base, "no gate")
    show("a call that returns a view and an array", view, base, "no gate")
    if rest:
        print(f"a jitted call on two arrays: {rest[0] / ours:.1f} x faster than JAX (gate 15)")


def sizes() -> None:
    """Calls of a size that differs from the last call's, and that most were never made of."""
    jitted = tn.jit(add)
    arrays = [np.arange(float(n)) for n in range(8, 8 + SIZES)]

    def call() -> None:
        for v in arrays:
            jitted(v, v)

    def numpy() -> None:
        for v in arrays:
            np.add(v, v)

    base, ours = (seconds / SIZES for seconds in interleaved([numpy, call], 2, CALL_ROUNDS))
    show(f"a call of another of {SIZES} sizes each time", ours, base, "no gate")


def selected(x: Any) -> Any:
    return np.exp(x[x > 0]).sum()


def selections() -> None:
    """A mask that selects another number of elements at each call, and the same from arrays of other sizes too."""
    rng = np.random.default_rng(0)
    alike = [rng.standard_normal(64) for _ in range(SELECTIONS)]
    others = [rng.standard_normal(n) for n in range(40, 40 + SELECTIONS)]
    for what, arrays in ((f"of {alike[0].size} elements", alike), ("of another number of elements each time", others)):
        jitted = tn.jit(selected)

        def times(f: Callable[[Any], Any], arrays: list[Any] = arrays) -> Call:
            return lambda: [f(x) for x in arrays]

        base, ours = (
            seconds / SELECTIONS for seconds in interleaved([times(selected), times(jitted)], 10, CALL_ROUNDS)
        )
        print(f"what a mask selects {what}, exp and sum: {ours * 1e6:.2f} µs, {base / ours:.1f} x faster than NumPy")


def leaves(jax: ModuleType | None) -> None:
    """A call with 101 leaves in nested containers."""
    x = np.ones(8, np.float32)
    ours, tree = tn.jit(layers), [{"w": x.copy(), "b": (x.copy(),)} for _ in range(LAYERS)]
    calls: list[Call] = [lambda: ours(tree, x)]
    if jax is not None:
        theirs, other, start = jax.jit(layers), jax.tree.map(jax.numpy.asarray, tree), jax.numpy.asarray(x)
        calls.append(lambda: theirs(other, start).block_until_ready())
    for call in calls:
        for _ in range(100):
            call()
    found, *rest = interleaved(calls, 50, CALL_ROUNDS)
    beside = f", {found / rest[0]:.2f} of JAX's time (gate 0.33)" if rest else ""
    print(f"a call with {2 * LAYERS + 1} leaves: {found * 1e6:.1f} µs{beside}")


def many_steps(jax: ModuleType | None) -> None:
    """A program of 200 small operations that cannot fuse."""
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((8, 8)), rng.standard_normal((8, 8)) * 0.3
    ours = tn.jit(small_steps, static_argnames="xp")
    calls: list[Call] = [lambda: ours(x, w), lambda: small_steps(x, w)]
    if jax is not None:
        jnp = jax.numpy
        theirs, jx, jw = jax.jit(lambda x, w: small_steps(x, w, jnp)), jnp.asarray(x), jnp.asarray(w)
        calls.append(lambda: theirs(jx, jw).block_until_ready())
    for _ in range(3000):
        ours(x, w)
    found, numpy, *rest = interleaved(calls, 10, CALL_ROUNDS)
    beside = f", {rest[0] / found:.2f} x faster than JAX (gate 2)" if rest else ""
    print(f"{3 * STEPS} small operations: {found * 1e6:.1f} µs, {numpy / found:.1f} x faster than NumPy{beside}")


def threads() -> None:
    """Eight threads, each calling its own function, against one that makes all the calls; and the same of ``np.add``,
    since what Python's lock costs when it goes from thread to thread is in both."""
    x = np.ones(125)
    functions = [tn.jit(lambda a, k=k: a * 2.0 + k) for k in range(THREADS)]

    def work(f: Any) -> None:
        for _ in range(THREAD_CALLS):
            f(x)

    def ratio(functions: list[Any]) -> float:
        def alone() -> None:
            for f in functions:
                work(f)

        def together() -> None:
            running = [threading.Thread(target=work, args=(f,)) for f in functions]
            for thread in running:
                thread.start()
            for thread in running:
                thread.join()

        one, all_at_once = interleaved([alone, together], rounds=9)
        return all_at_once / one

    ours, numpy = ratio(functions), ratio([lambda a: np.add(a, 2.0)] * THREADS)
    print(f"{THREADS} threads: {ours:.2f} of one thread's time for the same calls (gate 1); np.add {numpy:.2f}")


def main() -> int:
    """Print every figure with its gate."""
    jax = jax_or_none()
    small_calls(jax)
    sizes()
    selections()
    leaves(jax)
    many_steps(jax)
    threads()
    return 0


if __name__ == "__main__":
    sys.exit(main())
