"""What follows a selection is bound once and brought to the extents of each run: the bits of a binding of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu import any_tail, engine, toolchain

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)


def rows_of(x: Any) -> Any:
    return np.stack([x, x * 2, x - 1], 1)


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x[x > 0].sum(),
    "pointwise": lambda x: np.exp(x[x > 0]) * 2,
    "first": lambda x: x[x > 0][:3] + 1,
    "centred": lambda x: x[x > 0] - x[x > 0].sum() / (len(x) + 1),
    "places": lambda x: np.nonzero(x > 0)[0] * 2,
    "backwards": lambda x: x[x > 0][::-1],
    "every other": lambda x: x[x > 0][::2],
    "rows": lambda x: (rows_of(x)[x > 0] * 1.5).sum(0),
    "product": lambda x: rows_of(x)[x > 0].T @ rows_of(x)[x > 0],
    "view": lambda x: x[x > 0].reshape(-1, 1),
    "several": lambda x: (x[x > 0], x[x > 0] * 2, x[x < 0]),
    "twice": lambda x: (lambda y: y[y > 1].sum())(x[x > 0]),
    "sorted": lambda x: np.sort(x[x > 0]) * 2,
}


@pytest.fixture
def runs() -> Iterator[list[np.ndarray[Any, Any]]]:
    rng = np.random.default_rng(0)
    yield [rng.standard_normal(300) + rng.uniform(-3, 3) for _ in range(60)]


def leaves(x: Any) -> list[bytes]:
    return [np.asarray(a).tobytes() + str(np.shape(a)).encode() for a in tn.tree.leaves(x)]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_bits_of_a_binding_of_its_own(name: str, runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    f = FUNCTIONS[name]
    jitted = tn.jit(lambda x: f(x))
    found = [leaves(jitted(x)) for x in runs]
    monkeypatch.setattr(engine, "brought", lambda tail, extents: None)
    other = tn.jit(lambda x: f(x))
    assert found == [leaves(other(x)) for x in runs]
    for x in (np.full(300, -1.0), np.full(300, 1.0)):
        for a, b in zip(tn.tree.leaves(jitted(x)), tn.tree.leaves(f(x)), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12)


def test_one_binding_serves_most_extents(runs: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    served = []

    def counted(tail: Any, extents: Any) -> Any:
        found = any_tail.brought(tail, extents)
        served.append((found is not None, len(tail.any)))
        return found

    monkeypatch.setattr(engine, "brought", counted)
    monkeypatch.setattr(engine.CpuExecutable, "shortcut", lambda *_: None)
    jitted = tn.jit(lambda x: np.exp(x[x > 0]).sum())
    for x in runs:
        jitted(x)
    assert len(served) > 30 and served[-1][1] <= 2
    assert sum(ok for ok, _ in served) >= len(served) - 4  # nothing, or all, is selected: another binding


def test_threads_have_words_of_their_own(runs: Any) -> None:
    jitted = tn.jit(lambda x: np.exp(x[x > 0]) * 3)
    wanted = [jitted(x) for x in runs]
    failed = []

    def work(turn: int) -> None:
        for k in range(len(runs)):
            k = (k * 7 + turn) % len(runs)
            if not np.array_equal(jitted(runs[k]), wanted[k]):
                failed.append(k)

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert not failed


def test_memory_that_is_not_there_is_named_by_its_own_size() -> None:
    x = np.arange(4_000_000.0)
    jitted = tn.jit(lambda x, least: np.outer(x[x >= least], x[x >= least]))
    for count in (20, 30, 40):
        assert jitted(x, float(x.size - count)).shape == (count, count)
    with pytest.raises(tn.MemoryLimitError, match=r"\(3999990, 3999990\)"):
        jitted(x, 10.0)
