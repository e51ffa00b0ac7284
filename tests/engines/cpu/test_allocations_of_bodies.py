"""What loops and choices really allocate in their bodies, counted array by array, beside what ``memory()`` says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu import loop_kernel, memory, toolchain
from tenferro.tracer.ops import control
from tests.engines.cpu import test_allocations as allocations

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)

N = 512
ALIGNMENT = 64
"""Arrays in the arena of a block begin at multiples of it; its results are made with it, numbers too."""


class StacksCounted:
    """NumPy as the loops in Python see it, whose stacks of results are told to ``count``."""

    def __init__(self, count: allocations.Count) -> None:
        self._count = count

    def zeros(self, shape: Any, dtype: Any) -> Any:
        made = np.zeros(shape, dtype)
        self._count.add([made])
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def real_peak(f: Callable[..., Any], inputs: Sequence[Any]) -> tuple[int, int]:
    """The bytes that a run really takes, and those that ``memory()`` says."""
    lowered = tn.jit(f).lower(*inputs)
    lowered.run(lowered.prepared)
    with allocations.counted(inputs) as count, pytest.MonkeyPatch.context() as patch:
        make = memory.empty

        def empty(*args: Any) -> Any:
            made = make(*args)
            count.add([made])
            return made

        patch.setattr(memory, "empty", empty)
        patch.setattr(control, "np", StacksCounted(count))
        result: Any = lowered.run(lowered.prepared)
        assert count.now >= sum(o.nbytes for o in {id(o): o for o in map(allocations.owner, result.outputs)}.values())
        del result
    assert count.now == 0, "an array outlived the run"
    return count.peak, lowered.memory().peak.bytes


def square(x: Any, c: Any) -> Any:
    return ((x[:, None] * x + c) @ (x[:, None] * x - c)).sum()


def scan_of_a_product(x):
    return tn.lax.scan(lambda c, _: (c + square(x, c), None), 0.0, None, length=1)[0]


def scan_with_a_seam(x):
    return tn.lax.scan(lambda c, _: (np.cumsum(np.sort(c + x)), None), x, None, length=3)[0]


def scan_that_stacks_with_a_seam(x):
    return tn.lax.scan(lambda c, v: (np.cumsum(c * v), np.sort(c)), x, x[:4])


def scan_that_stacks(x):
    return tn.lax.scan(lambda c, v: (c + square(x, v), c * x), 0.0, x[:4])


def elementwise(x):
    return tn.lax.scan(lambda c, v: (c * v, c + 1), x, x[:4])


def elementwise_while(x):
    return tn.lax.while_loop(lambda c: c[1] < 30, lambda c: (c[0] * 1.5 + x, c[1] + 1), (x, 0))[0]


def elementwise_in_lanes(x):
    return tn.vmap(lambda v: tn.lax.while_loop(lambda c: c < 100 * v, lambda c: c + 1.25 * v, v))(x)


def fori_of_a_product(x):
    return tn.lax.fori_loop(0, 3, lambda i, c: c + square(x, c), 0.0)


def fori_to_a_traced_end(x):
    return tn.lax.fori_loop(0, (x > 0).sum() // 100, lambda i, c: np.cumsum(c * x), x)


def while_with_a_seam(x):
    return tn.lax.while_loop(lambda c: c.sum() < 1e9, lambda c: np.cumsum(c + 1), x)


def while_whose_condition_has_a_product(x):
    return tn.lax.while_loop(lambda c: (c < 3) & (square(x, c) > -1), lambda c: c + 1, 0.0)


def map_of_a_product(x):
    return tn.lax.map(lambda v: square(x, v), x[:3])


def map_of_sorts(x):
    return tn.lax.map(lambda v: np.sort(x * v), x[:3])


def cond_of_two(x):
    return tn.lax.cond(x[0] > 5, lambda: np.cumsum(x), lambda: np.sort((x[:, None] @ x[None, :]) @ x))


def cond_of_an_operand(x):
    return tn.lax.cond(x[0] > 5, lambda: np.cumsum(x), lambda: x)


def cond_of_reshaped(x):
    return tn.lax.cond(x[0] > 5, lambda: (x[:4, None] + x).T, lambda: np.cumsum(x)[:, None] + x[:4])


def switch_of_three(x):
    f = [np.cumsum, lambda x: np.sort(np.cumsum(x) * x), lambda x: np.exp(-x[:, None] @ x[None, :]) @ x]
    return tn.lax.switch((x > 0).sum(), f, x) * 2


def nested(x):
    def inner(c, v):
        return tn.lax.cond(c > 1e300, lambda: c, lambda: c + square(x, v)), None

    return tn.lax.scan(lambda c, _: (tn.lax.scan(inner, c, x[:3])[0], None), 0.0, None, length=2)[0]


def nested_around_an_array(x):
    def outer(c, v):
        y = np.sort(c * v)
        return tn.lax.fori_loop(0, 2, lambda i, c: np.cumsum(c * y), c), None

    return tn.lax.scan(outer, x, x[:2])[0] + 1


X = np.linspace(0.1, 1, N)
BIG, ROW = 8 * N * N, 8 * N
PROGRAMS: list[Callable[..., Any]] = [
    scan_of_a_product, scan_with_a_seam, scan_that_stacks_with_a_seam, scan_that_stacks, elementwise,
    elementwise_while, elementwise_in_lanes, fori_of_a_product, fori_to_a_traced_end, while_with_a_seam,
    while_whose_condition_has_a_product, map_of_a_product, map_of_sorts, cond_of_two, cond_of_an_operand,
    cond_of_reshaped, switch_of_three, nested, nested_around_an_array,
]  # fmt: skip


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_the_peak_is_what_is_allocated(f: Callable[..., Any]) -> None:
    real, said = real_peak(f, [X])
    assert abs(real - said) <= ALIGNMENT


def test_an_elementwise_loop_of_many_turns_takes_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loop_kernel, "turns_at_once", lambda loop: 7)
    for f in (elementwise, elementwise_while, elementwise_in_lanes):
        real, said = real_peak(f, [X[:509]])
        assert abs(real - said) <= 5 * ALIGNMENT  # and the lanes of the last vector


def test_a_budget_counts_what_a_body_holds() -> None:
    with pytest.raises(tn.BudgetError, match=r"inside what makes s\d+: 6291456 bytes") as caught:
        tn.assert_budget(scan_of_a_product, (X,), peak_bytes=8)
    assert "at most 8 are allowed" in str(caught.value)
    tn.assert_budget(scan_of_a_product, (X,), peak_bytes=3 * BIG + 8)


def test_a_formula_is_of_the_sizes_around() -> None:
    jitted = tn.jit(nested)
    for n in (64, 96):
        found = jitted.lower(X[:n]).memory()
        assert found.formula == jitted.lower(X).memory().formula and "x.shape[0]*x.shape[0]" in found.formula
        assert abs(found.bytes - real_peak(nested, [X[:n]])[0]) <= ALIGNMENT


def test_what_depends_on_elements_has_no_bound_in_a_body_either() -> None:
    def counts(x):
        return tn.lax.map(lambda v: np.bincount((x * v).astype(np.int64)).sum(), x)

    found = tn.jit(counts).lower(X).memory()
    assert len(found.unbounded) == 1 and "bincount" in found.unbounded[0] and __file__ in found.unbounded[0]
    with pytest.raises(tn.BudgetError, match="no bound found"):
        tn.assert_budget(counts, (X,), peak_bytes=1 << 40)


def test_a_selection_in_a_body_takes_at_most_all() -> None:
    found = tn.jit(lambda x: tn.lax.map(lambda v: np.sort(x[x > v]).sum(), x[:2])).lower(X).memory()
    assert not found.unbounded and found.bytes >= 2 * ROW
