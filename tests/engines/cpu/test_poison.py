"""Dead temporaries overwritten with 0xFF: results keep their bits, and a buffer that dies too early shows at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu import memory
from tenferro.engines.cpu.binding import Binder
from tenferro.engines.cpu.poison import poisoned
from tests.engines.cpu.test_allocations import PROGRAMS
from tests.random_programs.compare import disagreements
from tests.random_programs.generator import generate
from tests.random_programs.statements import propose


@contextmanager
def freshly_bound() -> Iterator[None]:
    """Nothing that is bound inside was bound before, or stays bound."""
    tn.default_runtime().clear_caches()
    with poisoned():
        yield
    tn.default_runtime().clear_caches()


def leaves(value: Any) -> list[bytes]:
    return [np.asarray(v).tobytes() for v in (value if isinstance(value, tuple) else (value,))]


@pytest.mark.parametrize(("f", "x"), PROGRAMS, ids=lambda p: getattr(p, "__name__", ""))
def test_results_keep_their_bits(f: Callable[..., Any], x: Any) -> None:
    expected = leaves(tn.jit(f)(x))
    with freshly_bound():
        jitted = tn.jit(f)
        for _ in range(3):  # the long way, then the native one
            assert leaves(jitted(x)) == expected


@pytest.mark.parametrize("seed", range(50))
def test_random_programs_agree(seed: int) -> None:
    random = np.random.default_rng(seed)
    program = generate(lambda n: int(random.integers(n)), propose)
    with freshly_bound():
        found = disagreements(program)
    assert not found, "\n".join([*found, program.runnable()])


def chain_of_products(a: Any) -> Any:
    y = np.exp(a) @ a
    return (np.exp(-y) @ a) @ y


def test_what_is_read_after_its_end_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A binder that lets go of arrays one step too early."""
    a = np.random.default_rng(0).random((32, 32))
    free, early = Binder._free, {}

    def too_early(self: Binder, slots: Any) -> None:
        step = self.number + 1
        following = self.plan.frees[step] if 0 < step < len(self.plan.frees) else ()
        kept = {s: self.places[s] for s in following if s in self.places}
        free(self, [*(s for s in slots if s not in early.get(id(self), ())), *kept])
        early[id(self)] = set(kept)
        self.places.update(kept)

    expected = leaves(tn.jit(chain_of_products)(a))
    monkeypatch.setattr(Binder, "_free", too_early)
    with freshly_bound():
        assert leaves(tn.jit(chain_of_products)(a)) != expected


def test_the_pool_hands_out_and_takes_back_what_is_poisoned() -> None:
    with poisoned():
        for size in (100, 1 << 20):
            x = memory.empty((size,), np.float64)
            assert np.isnan(x).all()
            x[:] = 1
            del x
            assert np.isnan(memory.empty((size,), np.float64)).all()
    memory.empty((100,), np.float64)[:] = 1
    assert not np.isnan(memory.empty((100,), np.float64)).any()
