"""What runs really allocate, counted array by array, beside what ``memory()`` says of the plan."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tenferro as tn
from tenferro.engines.cpu import occupancy, toolchain
from tenferro.engines.cpu.actions import Call, Select, ViewOf
from tenferro.engines.cpu.engine import CpuExecutable
from tenferro.lowered import Lowered
from tenferro.lowering.plan import Segment
from tenferro.runtime import ExtensionModule, Family
from tenferro.tracer.dims import leaves
from tests.random_programs.generator import generate
from tests.random_programs.statements import propose

if not toolchain.supported():
    pytest.skip("this machine is served by the reference engine", allow_module_level=True)

N, M = 1024, 64
X = np.linspace(0.1, 1, N)
A = np.linspace(0.1, 1, M * M).reshape(M, M)
LONG = np.linspace(0.1, 1, 1 << 20)


class Count:
    """Bytes of the arrays that a run made and that are still there. Arrays are followed by weak references to whoever
    owns their memory: nothing of the plan or of the binder is asked."""

    def __init__(self, inputs: Sequence[Any]) -> None:
        self.now = self.peak = 0
        self._known = {id(owner(x)) for x in inputs}

    def add(self, arrays: Sequence[Any]) -> None:
        for array in map(owner, arrays):
            if id(array) not in self._known:
                self._known.add(id(array))
                self.now += array.nbytes
                weakref.finalize(array, self._gone, id(array), array.nbytes)
        self.peak = max(self.peak, self.now)

    def _gone(self, key: int, size: int) -> None:
        self._known.discard(key)
        self.now -= size


def owner(array: Any) -> Any:
    """The array whose own memory the elements lie in."""
    while not array.flags.owndata:
        base = array.base
        array = getattr(base, "owner", base)  # the array interface of a view that the engine made
    return array


@contextmanager
def counted(inputs: Sequence[Any]) -> Iterator[Count]:
    """Count what the CPU engine allocates: whatever native calls and seams hand back."""
    count = Count(inputs)
    with pytest.MonkeyPatch.context() as patch:
        act, call = CpuExecutable._act_in_python, CpuExecutable._enter_block
        run_bound = CpuExecutable._run_bound

        def acted(self: Any, action: Any, arrays: list[Any], *rest: Any) -> None:
            act(self, action, arrays, *rest)
            if isinstance(action, Call):
                count.add([arrays[p] for p in action.outputs])
            elif isinstance(action, Select):
                count.add([arrays[action.output]])
            elif isinstance(action, ViewOf):
                count.add([arrays[action.position]])

        def entered(self: Any, *args: Any) -> Any:
            found = call(self, *args)
            count.add(found[1:])
            return found

        def whole(self: Any, bound: Any, given: Any) -> Any:
            enter = self._enter

            def spy(*args: Any) -> Any:
                found = enter(*args)
                count.add(found[1:])
                return found

            self._enter = spy
            try:
                return run_bound(self, bound, given)
            finally:
                self._enter = enter

        patch.setattr(CpuExecutable, "_act_in_python", acted)
        patch.setattr(CpuExecutable, "_enter_block", entered)
        patch.setattr(CpuExecutable, "_run_bound", whole)
        yield count


def real_peak(lowered: Lowered, inputs: Sequence[Any]) -> int:
    lowered.run(lowered.prepared)  # bind and compile first
    with counted(inputs) as count:
        result: Any = lowered.run(lowered.prepared)
        made = {id(o): o for o in map(owner, result.outputs) if not any(o is owner(x) for x in inputs)}
        assert count.now >= sum(array.nbytes for array in made.values())
        del result, made
    assert count.now == 0, "an array outlived the run"
    return count.peak


def chain(x):
    return np.exp(x) * 2 + 1


def running_sums(x):
    a = np.cumsum(x)
    b = np.cumsum(a * 2)
    c = np.cumsum(b + 1)
    return np.cumsum(c - 1)


def products(a):
    y = a
    for _ in range(5):
        y = np.exp(y / M) @ a
    return y


def products_in_a_row(a):
    return (a @ a) @ a @ a / M


def normalised(a):
    e = np.exp(a - a.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def layers(a):
    h = np.maximum(a @ a, 0)
    h = np.maximum(h[:, :32] @ a[:32], 0)
    return h @ a, h.sum(axis=0)


def seams_between(x):
    a = np.exp(x)
    b = np.cumsum(a)
    c = b * a
    return np.cumsum(c) + 1


def slices(x):
    y = np.exp(x)
    y[10:100] = 0
    y[200:300] += x[:100]
    return y


def concatenated(x):
    return np.concatenate([np.exp(x), np.sin(x)]) * 2


def sorted_twice(x):
    s = np.sort(np.sin(x * 8))
    return np.sort(np.concatenate([s, -s]))


def selected(x):
    y = np.cumsum(x)
    picked = y[y > 0]
    return picked - picked.mean()


def several_results(x):
    e = np.exp(x)
    return e, np.sort(e), np.cumsum(e) + e.sum(), e.sum()


def reshaped(a):
    return (np.exp(a).T @ a).T.reshape(-1)


def reshaped_within(a):
    b = a @ a
    return np.exp(b.T.reshape(-1)[1:]).sum()


def operands_that_are_views(x):
    y = np.exp(x)
    a = np.cumsum(y[::2])
    return np.cumsum(a[1:]) * 2


def updates_and_seams(x):
    y = np.zeros(x.shape[0])
    y[1:] = np.cumsum(x[1:])
    z = np.cumsum(y)
    z[0] = 3
    w = np.cumsum(z)
    w[-1] = 0
    return np.cumsum(w)


def dead_before_the_end(x):
    y = np.cumsum(x)
    total = (y * y).sum()
    z = np.cumsum(x * total)
    return np.sqrt(z).sum()


PROGRAMS: list[tuple[Callable[..., Any], Any]] = [
    (chain, X), (running_sums, X), (products, A), (products_in_a_row, A), (normalised, A), (layers, A),
    (seams_between, X), (slices, X), (concatenated, X), (sorted_twice, X), (selected, X), (several_results, X),
    (reshaped, A), (reshaped_within, A), (operands_that_are_views, X), (updates_and_seams, X), (dead_before_the_end, X),
]  # fmt: skip


@pytest.mark.parametrize(("f", "x"), PROGRAMS, ids=lambda p: getattr(p, "__name__", ""))
def test_the_peak_is_what_is_allocated(f: Callable[..., Any], x: Any) -> None:
    lowered = tn.jit(f).lower(x)
    memory = lowered.memory()
    assert real_peak(lowered, [x]) == memory.peak.bytes <= memory.naive.bytes
    expected, found = f(x.copy()), tn.jit(f)(x)
    for one, other in zip(np.atleast_1d(*_listed(expected)), np.atleast_1d(*_listed(found)), strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-12)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, tuple) else [value, 0]


def test_partial_sums_of_a_long_row_are_all_that_is_not_counted() -> None:
    """A row that all threads reduce has a few words for each chunk of 4,096 or more elements."""
    lowered = tn.jit(lambda x: np.exp(x).sum()).lower(LONG)
    assert lowered.memory().peak.bytes == 8
    assert 8 <= real_peak(lowered, [LONG]) <= 8 + LONG.nbytes // 256


def test_a_selection_takes_what_it_selects() -> None:
    """``memory()`` counts the most that a mask can select."""
    lowered = tn.jit(lambda x: np.sort(x)[x > 0.55] + 1).lower(X)
    picked = int((X > 0.55).sum())
    assert lowered.memory().peak.bytes == 8 * N + N + 8 * N
    assert real_peak(lowered, [X]) == 8 * N + N + 8 * picked


def test_large_arrays_are_given_back_before_more_is_made() -> None:
    """What dies in a block and was there before it cannot become a result of the block. From 4 MB on the block ends
    there; less is held until the block's end, beside what ``memory()`` says."""

    def f(x):
        y = np.sort(x)
        s = y.sum()
        return np.cumsum(x)[::-1] * s, np.ones((2 * x.shape[0],)) + s

    small, large = tn.jit(f).lower(X), tn.jit(f).lower(LONG)
    assert real_peak(small, [X]) == small.memory().peak.bytes + X.nbytes
    assert 0 <= real_peak(large, [LONG]) - large.memory().peak.bytes <= LONG.nbytes // 256  # partial sums
    assert [len(s.kernels) for s in large.stretches[0] if isinstance(s, Segment)] == [1, 1]


def released(x, y):
    """A temporary that no later result has room for."""
    p = np.exp(x) @ y
    q = np.cos(x[: x.shape[0] // 2]) * p.sum()
    return q, q * 2


def test_a_block_ends_before_it_makes_what_has_no_room() -> None:
    """All results of a block are made when it is entered; 4 MB and more that die before are given back first."""
    for n in (100, 1024):
        a = np.random.default_rng(0).random((n, n))
        lowered = tn.jit(released).lower(a, a[:, :8].copy())
        unshared = real_peak(lowered, [a]) - lowered.memory().peak.bytes
        assert unshared == (8 if n == 1024 else 8 * n * n - 8 * 8 * n)  # the sum lies apart from the arena then


@pytest.mark.parametrize("seed", range(50))
def test_the_peak_of_random_programs(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks end wherever that helps at all. Arrays in the arena begin at multiples of 64 bytes."""
    monkeypatch.setattr(occupancy, "GIVE_BACK_BYTES", 1)
    random = np.random.default_rng(seed)
    program = generate(lambda n: int(random.integers(n)), propose)
    tn.default_runtime().clear_caches()
    jitted = tn.jit(program.function())
    for sizes in (*program.sizes, {"n": 24, "m": 40}, {"n": 8, "m": 64}):
        inputs = program.inputs(sizes)
        lowered = jitted.lower(*inputs)
        with np.errstate(all="ignore"):
            peak, memory = real_peak(lowered, inputs), lowered.memory()
        types = lowered.exec_program.slot_types().values()
        is_bounded = any(leaf.kind == "runtime" for t in types for n in t.shape for leaf in leaves(n))
        assert peak <= memory.peak.bytes + 64 * len(lowered.plan.steps), program.runnable()
        assert peak >= memory.peak.bytes or is_bounded, program.runnable()
    tn.default_runtime().clear_caches()


def test_results_do_not_depend_on_where_temporaries_lie() -> None:
    """Blocks of many sizes, whose temporaries share memory with one another and with results."""

    def f(a, x):
        p = a @ a
        q = np.exp(-p) @ a[:, :16]
        r = np.maximum(q.T @ p, 0.25)
        s = np.cumsum(r.sum(axis=0)) @ p
        t = (q @ r) @ a / (1 + np.abs(s))
        return t, q * 2, np.sort(x) * t[0, 0], (t.T @ q).sum()

    found = tn.jit(f)(A / M, X)
    for one, other in zip(f(A / M, X), found, strict=True):
        np.testing.assert_allclose(other, one, rtol=1e-11)


seen: list[Any] = []


def keep(x):
    seen.append(x)
    return x * 0


def test_what_an_executor_has_seen_is_not_written_to() -> None:
    """An executor may keep what it was given, so that nothing else may lie there when the program has done with it."""
    family = Family("test.keep.v1", lambda types, params: (types[0],), keep, ordered=True)
    module = ExtensionModule("keeping", (family,), {})
    runtime = tn.default_runtime()
    runtime.reconfigure(lambda c: c.install_extension(module))
    try:

        @tn.jit
        def f(a):
            y = np.exp(a)
            p = np.exp(-((y + family(y)) @ a))
            total = np.sqrt(p @ a @ a).sum()
            s = np.cumsum(a * total)
            family(s)
            s[0] = 5  # in place, were it not for the executor
            return s

        found = f(A)
        y = np.exp(A)
        s = np.cumsum(A * np.sqrt(np.exp(-(y @ A)) @ A @ A).sum())
        np.testing.assert_allclose(seen[0], y)
        np.testing.assert_allclose(seen[1], s)
        assert found[0] == 5 and np.array_equal(found[1:], seen[1][1:])
    finally:
        seen.clear()
        runtime.reconfigure(lambda c: c.modules.remove(module))
