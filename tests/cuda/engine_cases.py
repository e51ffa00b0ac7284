"""Functions and arguments for tests of the CUDA engine, with the kernels of all of them compiled in a few files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import tenferro as tn

RNG = np.random.default_rng(7)
X = RNG.standard_normal((6, 70))
Y = RNG.standard_normal((6, 70))
V = RNG.standard_normal(70)
X8, Y8 = np.round(X * 8) / 8, np.round(Y * 8) / 8
"""Their products and the sums of these are exact, so that it does not matter in which order a library adds."""
BIG = RNG.standard_normal((3, 9000)).astype(np.float32)
K = RNG.integers(-9, 9, (6, 70))
Z = RNG.standard_normal((4, 5)) + 1j * RNG.standard_normal((4, 5))
H = RNG.standard_normal((5, 33)).astype(np.float16)
CUBE = RNG.standard_normal((3, 4, 5))


@dataclass(frozen=True)
class Case:
    name: str
    function: Callable[..., Any]
    args: tuple[Any, ...]


def softmax(x: Any) -> Any:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def layer_norm(x: Any, gain: Any) -> Any:
    mean = x.mean(axis=-1, keepdims=True)
    spread = ((x - mean) ** 2).mean(axis=-1, keepdims=True)
    return (x - mean) / np.sqrt(spread + 1e-5) * gain


def updated(x: Any, v: Any) -> Any:
    y = x.copy()
    y[1:3, ::2] = v[::2]
    y[0] += 1.0
    return y


def twice_updated(x: Any) -> Any:
    y = x * 2.0
    y[2:4] = 0.0
    z = y.copy()
    z[:, 3] = y[:, 4]
    return z, y


def many(x: Any, y: Any) -> Any:
    a = x @ y.T
    b = a.sum(axis=0)
    return a, b, (b / a.shape[0]).reshape(2, 3), x, 3.5, x.shape[1], np.float64(2.0)


def windows(x: Any, starts: Any) -> Any:
    window = tn.lax.dynamic_slice(x, starts, (3, 20))
    return tn.lax.dynamic_update_slice(x, window * 2, starts[::-1] // 9), tn.lax.sum_of_squares(window, (1,))


def chain(x: Any) -> Any:
    for k in range(6):
        x = (x - x.mean(axis=k % 2, keepdims=True)).T.copy()
    return x


CASES = [
    Case("pointwise", lambda x, y: 2.5 * x + np.tanh(y) - 0.5, (X, Y)),
    Case("broadcast", lambda x, v: x * v - v[:1], (X, V)),
    Case("strides", lambda x, y: x.T[::2] + y[:, ::-1].T[::2], (X, Y)),
    Case("an input in columns", lambda x: x + x.T.sum(axis=0)[:, None], (np.asfortranarray(X[:, :6]),)),
    Case("softmax", softmax, (X,)),
    Case("softmax of long rows", softmax, (BIG,)),
    Case("layer norm", layer_norm, (X, V)),
    Case("reductions", lambda x: (x.sum(), x.max(axis=0), x.argmin(axis=1), x.mean(), x.std(axis=1)), (X,)),
    Case("integers", lambda k: (k * k - 3, k.sum(axis=0), (k > 2).any(axis=1)), (K,)),
    Case("complex", lambda z: (z * z.conj(), z.sum(axis=0), abs(z)), (Z,)),
    Case("half precision", lambda h: (h * 2 + 1, h.sum(axis=1), h.max()), (H,)),
    Case("gather", lambda x, i: (x[i] * 2, x[:, i] + 1), (X, np.array([0, 5, -1]))),
    Case("update", updated, (X, V)),
    Case("updates in place and not", twice_updated, (X,)),
    Case("reshape of strides", lambda c: c.transpose(2, 0, 1).reshape(5, 12) * 2.0, (CUBE,)),
    Case("a view of an input", lambda c: c.transpose(2, 0, 1), (CUBE,)),
    Case("concatenate and pad", lambda x, y: np.pad(np.concatenate([x, y]), 1), (X, Y)),
    # Of whole numbers: libraries add in orders of their own.
    Case(
        "products", lambda a, b: (a @ b.T, a @ b[0], a[None] @ b.T[None]), (np.rint(X * 9) + 0.0, np.rint(Y * 9) + 0.0)
    ),
    Case("products of nothing", lambda a, b: a[:, :0] @ b[:0], (X, Y[:4].T.copy())),
    Case("many results", many, (X8, Y8)),
    Case("a chain of passes", chain, (X,)),
    Case("empty", lambda x: (x + 1, x.sum(axis=0), x.sum()), (np.zeros((0, 5)),)),
    Case("numbers", lambda x, n, s: x[:n] * s + n, (X, 3, 0.25)),
    Case("a library call between", lambda x: np.sort(x * 2, axis=1)[:, 0] - x.sum(axis=1), (X,)),
    Case("windows", windows, (X, np.array([2, 30]))),
    Case("a truncated array", lambda x, k: tn.lax.pad_to_match(tn.lax.truncate(x, (k[0] > 0).sum(), 1), x, 1), (X, K)),
    Case("run-time extents", lambda x: x[x > 0.5] * 2.0, (X,)),
]


@cache
def host(name: str) -> Any:
    """What the CPU engine gives."""
    case = next(c for c in CASES if c.name == name)
    return tn.jit(case.function)(*case.args)


@cache
def compile_all() -> None:
    """Compile the kernels of all cases in a few files: one by one they would take minutes."""
    from tenferro.engines.cuda.engine import CudaEngine
    from tests.cuda.running import SHIM, SMALL
    from tests.cuda.shim_device import DryDevice

    device = DryDevice()
    engine = CudaEngine(9, device, shape=SMALL)
    runtime = tn.default_runtime()
    runtime.reconfigure(lambda c: c.register_engine(engine))
    try:
        for case in CASES:
            tn.jit(case.function, engine=engine.id)(*case.args)
    finally:
        runtime.reconfigure(lambda c: c.remove_engine(engine.id))
    SHIM.add(device.kernels)


def same(found: object, wanted: object) -> None:
    """One result, or a tuple of them: type, dtype, shape and bits."""
    if isinstance(wanted, tuple):
        assert isinstance(found, tuple) and len(found) == len(wanted)
        for f, w in zip(found, wanted, strict=True):
            same(f, w)
        return
    assert type(found) is type(wanted)
    f, w = np.asarray(found), np.asarray(wanted)
    assert (f.dtype, f.shape) == (w.dtype, w.shape)
    assert f.tobytes() == w.tobytes()
