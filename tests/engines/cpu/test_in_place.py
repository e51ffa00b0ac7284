"""Arrays that take the memory of their operands: what a kernel still reads is not overwritten, in any schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.lowering.plan import AdoptStep, Plan, RegionStep
from tests.engines.cpu.test_allocations import real_peak

Function = Callable[[Any, int], Any]
SHAPES = [(1, 40_000), (3, 9_001), (60, 33), (3_000, 7), (5_000, 64), (40, 2_100), (1, 1), (0, 4), (17, 1)]


def over(plan: Plan) -> list[tuple[int, int]]:
    """The slots that lie where another one was."""
    stores = [s for step in plan.steps if isinstance(step, RegionStep) for s in step.region.stores]
    return [(s.slot, s.over) for s in stores if s.over is not None]


def softmax(t: Any, axis: int) -> Any:
    e = np.exp(t - t.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def softmax_and_itself(t: Any, axis: int) -> Any:
    """The last pass reads again what the exponentials would be kept over."""
    e = np.exp(t - t.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True) + t


def deviations_of_exponentials(t: Any, axis: int) -> Any:
    """A variance sweeps a chunk twice, and reads what it sweeps."""
    e = np.exp(t)
    return (e - e.mean(axis=axis, keepdims=True)) / np.sqrt(e.var(axis=axis, keepdims=True) + 1)


def normalised(t: Any, axis: int) -> Any:
    return (t - t.mean(axis=axis, keepdims=True)) / np.sqrt(t.var(axis=axis, keepdims=True) + 1e-3)


def scaled_by_its_sums(t: Any, axis: int) -> Any:
    return t * t.sum(axis=axis, keepdims=True) - np.exp(t).sum(axis=axis, keepdims=True)


def two_results(t: Any, axis: int) -> Any:
    return t * 2 - t.min(axis=axis, keepdims=True), np.sqrt(t) + t.sum(axis=axis, keepdims=True)


def pointwise(t: Any, axis: int) -> Any:
    return np.where(t > 0.5, t * t, 1 / (1 + t))


FUNCTIONS: list[Function] = [
    softmax, softmax_and_itself, deviations_of_exponentials, normalised, scaled_by_its_sums, two_results, pointwise,
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("f", FUNCTIONS)
def test_a_region_may_write_over_what_it_reads(f: Function, dtype: str) -> None:
    for axis in (0, 1):
        # np.sort makes an array that only the region reads.
        made = tn.jit(lambda x, axis=axis: f(np.sort(x, axis=0), axis))
        alone = tn.jit(lambda t, axis=axis: f(t, axis))
        for shape in SHAPES:
            if f in (softmax, softmax_and_itself, two_results) and 0 in shape and shape[axis] == 0:
                continue
            x = np.random.default_rng(0).random(shape).astype(dtype)
            found, expected = made(x), alone(np.sort(x, axis=0))
            for one, other in zip(_tuple(found), _tuple(expected), strict=True):
                assert one.tobytes() == other.tobytes(), (f.__name__, axis, shape)
        assert over(made.lower(np.ones((5, 6), dtype)).plan), f.__name__


def _tuple(x: Any) -> tuple[Any, ...]:
    return x if isinstance(x, tuple) else (x,)


def test_a_layer_holds_one_array() -> None:
    a = np.random.default_rng(0).random((96, 96))
    lowered = tn.jit(lambda x: softmax(np.maximum(x @ x, 1), 1)).lower(a)
    assert lowered.memory().peak.bytes == real_peak(lowered, [a]) == a.nbytes
    assert lowered.memory().formula == "8*x.shape[0]*x.shape[0]"


NOT: list[tuple[str, Callable[[Any], Any]]] = [
    ("an argument", lambda x: x + 1),
    ("read later", lambda x: (lambda s: (s + 1, np.sort(s)[::-1] * 2))(np.cumsum(x))),
    ("a result", lambda x: (lambda s: (s, s + 1))(np.cumsum(x))),
    ("another order", lambda x: np.cumsum(x)[::-1] * 2),
    ("shifted", lambda x: (lambda s: s[1:] + s[:-1])(np.cumsum(x))),
    ("another dtype", lambda x: np.cumsum(x).astype("float32")),
    ("both ways", lambda x: (lambda s: s + s[::-1])(np.cumsum(x))),
    ("an index array", lambda x: (lambda s: s + s[(np.arange(x.shape[0]) * 7) % x.shape[0]])(np.cumsum(x))),
]


@pytest.mark.parametrize(("why", "f"), NOT, ids=[why for why, _ in NOT])
def test_what_is_not_taken_over(why: str, f: Callable[[Any], Any]) -> None:
    x = np.random.default_rng(0).random(100)
    lowered = tn.jit(f).lower(x)
    assert over(lowered.plan) == [], why
    for one, other in zip(_tuple(tn.jit(f)(x)), _tuple(f(x)), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)


def test_an_update_that_reads_its_base_through_a_view_of_unknown_form() -> None:
    """A reshape that may have to copy is a view where it need not: an update must not overwrite what is read there."""

    def f(x, columns):
        y = np.exp(x)
        v = y[:, :columns].reshape(columns, x.shape[0])
        z = np.cumsum(v, axis=0)
        y[:, :columns] += v.T
        return y, z

    x = np.random.default_rng(0).random((5, 8))
    jitted = tn.jit(f)
    for columns in (8, 7):
        for one, other in zip(jitted(x, columns), f(x.copy(), columns), strict=True):
            np.testing.assert_allclose(one, other)
    adopted = [s.steal for s in jitted.lower(x, 7).plan.steps if isinstance(s, AdoptStep)]
    assert adopted == [False]
