"""The page of operations tells what is traced anew for each size, and which arguments are refused: it is so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
import tenferro.tracer.api.registry  # noqa: F401 (fills API)
from tenferro.tracer.api.record import API
from tenferro.tracer.api.restrictions import PER_SIZE, REFUSED
from tenferro.tracer.errors import TenferroError

X = np.arange(1.0, 7.0).reshape(2, 3)
V = X[0]
CALLS: dict[str, list[Callable[[Any], Any]]] = {
    "add and every other ufunc": [
        lambda x: np.add(x, x, signature="dd->d"), lambda x: np.exp(x, where=x > 0),
    ],
    "add.reduceat": [lambda x: np.add.reduceat(x[0], [0, 1]), lambda x: np.subtract.accumulate(x)],
    "arange": [lambda x: np.arange(x[0, 0], x[0, 1] + 3)],
    "astype": [lambda x: (x * 1j).astype(float)],
    "divmod, modf": [
        lambda x: np.divmod(x, 2, out=(np.zeros((2, 3)), np.zeros((2, 3)))),
        lambda x: np.modf(x, out=(np.zeros((2, 3)), np.zeros((2, 3)))),
    ],
    "ediff1d": [lambda x: np.ediff1d(x, to_end=np.array([9.0])), lambda x: np.ediff1d(x, to_begin=x[0])],
    "histogram": [
        lambda x: np.histogram(x, "auto"), lambda x: np.histogram(x, weights=x * 1j),
    ],
    "insert": [lambda x: np.insert(x, x[0, :1].astype(int), 1.0, axis=1)],
    "interp": [lambda x: np.interp(x[0], V, V, left=x[0, 0]), lambda x: np.interp(x[0], V, V, period=x[0, 0])],
    "linspace": [lambda x: np.linspace(x[0], x[1], 3)],
    "matmul, vecdot": [
        lambda x: np.matmul(x, x.T, axes=[(0, 1), (0, 1), (0, 1)]), lambda x: np.vecdot(x, x, axis=0),
        lambda x: np.vecdot(x, x, keepdims=True),
    ],
    "mean, var, std": [lambda x: np.mean(x, dtype=int), lambda x: np.var(x, dtype=int), lambda x: x.std(dtype=int)],
    "nanmedian": [lambda x: np.nanmedian(x, axis=0, out=np.zeros(3))],
    "pad": [lambda x: np.pad(x, 1, mode=lambda vector, width, axis, options: None)],
    "partition, argpartition": [
        lambda x: np.partition(x, np.array([0, 1])), lambda x: np.argpartition(x, np.array([1])),
    ],
    "percentile, quantile, nanpercentile, nanquantile": [
        lambda x: np.percentile(x, x[0, 0]), lambda x: np.nanquantile(x, x[0] / 10),
        lambda x: np.quantile(x, 0.5, weights=np.ones((2, 3)), method="inverted_cdf"),
    ],
    "polyfit": [
        lambda x: np.polyfit(x[0], x[1], 1, full=True), lambda x: np.polyfit(x[0], x[1], 1, w=x[0]),
        lambda x: np.polyfit(x[0], x[1], 1, cov=True),
    ],
    "ravel, reshape": [lambda x: x.ravel("K"), lambda x: np.reshape(x, 6, order="A"), lambda x: (x + 1).T.flatten("A")],
    "repeat": [lambda x: np.repeat(x, x[0].astype(int), axis=1)],
    "sliding_window_view": [lambda x: np.lib.stride_tricks.sliding_window_view(x + 0, 2, axis=1, writeable=True)],
    "sort, argsort": [],  # NumPy refuses it too, of numbers
    "unique": [lambda x: np.unique(x, axis=0)],
    "zeros, ones, empty, full, copy": [
        lambda x: x + np.zeros((2, 3), order="F"), lambda x: x + np.full((2, 3), 1.0, order="F"),
        lambda x: np.copy(x, order="F"),
    ],
}  # fmt: skip


def test_each_is_called() -> None:
    assert CALLS.keys() == REFUSED.keys()
    names = {n for key in REFUSED for n in key.removesuffix(" and every other ufunc").split(", ")}
    assert {n.partition(".")[0] for n in names} <= API.keys() and API.keys() >= PER_SIZE


@pytest.mark.parametrize("key", [key for key, calls in CALLS.items() if calls])
@pytest.mark.filterwarnings("ignore")
def test_numpy_takes_it_and_it_is_refused(key: str) -> None:
    for call in CALLS[key]:
        call(X.copy())
        with pytest.raises((TenferroError, TypeError)):
            tn.jit(call)(X.copy())


def arguments(n: int) -> list[tuple[Any, ...]]:
    """Arguments of many kinds for n elements: each function takes some of them."""
    x, i = np.linspace(0.1, 0.9, n), np.arange(1, n + 1)
    m, rows = x.reshape(2, -1), np.ones((n, 3))
    return [
        (x,), (m,), (x, x), (m, m), (x, 2), (i,), (i, i), (x > 0.4, x), (x, i - 1), (x, x, x), (x, [0.5]), (x, (2, -1)),
        (x, 0, 0), (x, 0, -1), (m, 0, 1), (x, i[:, None] - 1, 0), (rows, rows),
        (i.astype(np.uint8),),
    ]  # fmt: skip


def traced(name: str) -> tuple[int, str] | None:
    """Programs for three sizes and the guards of the first, by the first arguments that the function takes."""
    for k in range(len(arguments(6))):
        f = tn.jit(lambda *args: getattr(np, name)(*args))
        try:
            for n in (6, 8, 12):
                f(*arguments(n)[k])
        except Exception:  # wrong arguments, by NumPy's rules or ours
            continue
        explanation = f.explain()
        return len(explanation.traces), " ".join(explanation.traces[0].guards)
    return None


@pytest.mark.filterwarnings("ignore")
def test_what_is_traced_anew_for_each_size() -> None:
    found = {name: traced(name) for name in API if hasattr(np, name)}
    anew = {name for name, told in found.items() if told is not None and "needs the size as a number" in told[1]}
    assert anew == PER_SIZE
    assert all(found[name][0] == 3 for name in anew)  # type: ignore[index]
    once = [name for name, told in found.items() if told is not None and told[0] == 1]
    assert len(once) > 150
